"""Estimates of kernels: costs by hand, rules of the timeline, and what is written."""

import json
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki import trace
from torch_neuronx_nki.cli import app
from torch_neuronx_nki.cost import chrome, page, text
from torch_neuronx_nki.cost.estimate import Estimate, estimate
from torch_neuronx_nki.cost.figures import FIGURES
from torch_neuronx_nki.cost.timeline import Slice
from torch_neuronx_nki.engines import NcVersion
from torch_neuronx_nki.jit import jit, simulate

EXAMPLES = Path(__file__).parents[3] / "examples" / "nki"
META = {"device": "meta"}


def estimated(body: Callable[..., Any], *args: torch.Tensor, target: str = "trn2", lnc: int = 1) -> Estimate:
    """Estimate ``body(*args)`` from shapes alone."""

    def kernel(*given: Any) -> None:
        body(*given)

    kernel.__name__ = body.__name__
    events: list[trace.Event] = []
    made = simulate(jit(kernel), target=target, observers=[events.append], verify="off")
    made[lnc](*args or (torch.empty(1, 1, **META),))
    return estimate(events)


def tile(*shape: int, dtype: Any = nl.float32, buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray(shape, dtype, buffer)


def one(body: Callable[[], Any], target: str = "trn2") -> Slice:
    """Return the only instruction of ``body``."""
    (piece,) = estimated(lambda _: body() and None, target=target).timeline.slices
    return piece


BF16, PSUM = {"dtype": nl.bfloat16}, {"buffer": nl.psum}
BY_HAND = {
    # columns of the moving tile, and 128 rows of the other four at a time
    "nc_matmul": (lambda: nisa.nc_matmul(tile(128, 512, **PSUM), tile(128, 128, **BF16), tile(128, 512, **BF16)),
                  (512 + 32) / 2.4e9),
    "nc_matmul of float32": (lambda: nisa.nc_matmul(tile(128, 512, **PSUM), tile(128, 128), tile(128, 512)),
                             4 * (512 + 32) / 2.4e9),
    "a short nc_matmul": (lambda: nisa.nc_matmul(tile(8, 8, **PSUM), tile(128, 8, **BF16), tile(128, 8, **BF16)),
                          (64 + 16) / 2.4e9),
    "nc_transpose": (lambda: nisa.nc_transpose(tile(128, 128, **PSUM), tile(128, 128)), 128 / 2.4e9),
    "tensor_tensor": (lambda: nisa.tensor_tensor(tile(128, 512), tile(128, 512), tile(128, 512), nl.add),
                      512 / 0.96e9),
    "tensor_tensor of bfloat16": (lambda: nisa.tensor_tensor(tile(128, 512, **BF16), tile(128, 512, **BF16),
                                                             tile(128, 512, **BF16), nl.add), 256 / 0.96e9),
    "tensor_copy of bfloat16": (lambda: nisa.tensor_copy(tile(128, 512, **BF16), tile(128, 512, **BF16),
                                                         engine=nisa.engine.vector), 128 / 0.96e9),
    "a short tensor_copy": (lambda: nisa.tensor_copy(tile(128, 2), tile(128, 2), engine=nisa.engine.vector),
                            64 / 0.96e9),
    "reciprocal": (lambda: nisa.reciprocal(tile(128, 100), tile(128, 100)), 800 / 0.96e9),
    "activation": (lambda: nisa.activation(tile(128, 512), nl.exp, tile(128, 512)), 512 / 1.2e9),
    "iota": (lambda: nisa.iota(tile(128, 512, dtype=nl.int32), [[1, 512]]), 512 / 1.2e9),
    # descriptors of 4 KiB reach 16 times 23 GB/s
    "dma_copy": (lambda: nisa.dma_copy(tile(128, 1024), tile(128, 1024, buffer=nl.hbm)), 128 * 4096 / 368e9),
    "dma_copy in short runs": (lambda: nisa.dma_copy(tile(128, 256), tile(128, 256, buffer=nl.hbm)),
                               128 * 1024 / (368e9 / 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_costs_by_hand(name: str) -> None:
    body, seconds = BY_HAND[name]
    assert one(body).work.busy == pytest.approx(seconds)


def test_transfers_wait_for_descriptors_and_hbm() -> None:
    nbytes = 128 * 4096
    by_software = one(lambda: nisa.dma_copy(tile(128, 1024), tile(128, 1024, buffer=nl.hbm)))
    assert by_software.end == pytest.approx(1.3e-6 + nbytes / 0.36e12)
    by_hardware = one(
        lambda: nisa.dma_copy(tile(128, 1024), tile(128, 1024, buffer=nl.hbm), dge_mode=nisa.dge_mode.hwdge)
    )
    assert by_software.end - by_hardware.end == pytest.approx(0.7e-6)
    on_trn3 = one(lambda: nisa.dma_copy(tile(128, 1024), tile(128, 1024, buffer=nl.hbm)), "trn3")
    assert on_trn3.end == pytest.approx(1.3e-6 + nbytes / 0.528e12)  # its DMA engines are slower than its HBM
    assert (by_software.work.hbm_read, by_software.work.hbm_written) == (nbytes, 0)


@pytest.mark.parametrize(
    ("generation", "dtype"),
    [(NcVersion.gen2, "bfloat16"), (NcVersion.gen3, "bfloat16"), (NcVersion.gen4, "bfloat16"),
     (NcVersion.gen3, "float32")],
)  # fmt: skip
def test_peaks_are_those_of_the_array(generation: NcVersion, dtype: str) -> None:
    """The published peak is 128 x 128 products per cycle, to the digits that the page gives."""
    figures = FIGURES[generation]
    passes = figures.float32_passes if dtype == "float32" else 1
    assert figures.peak(dtype) == pytest.approx(2 * 128 * 128 * figures.tensor_hz / passes, rel=0.02)


def chain(_: Any) -> None:
    a, b, sums = tile(128, 128, **BF16), tile(128, 512, **BF16), tile(128, 512, **PSUM)
    nisa.dma_copy(a, tile(128, 128, dtype=nl.bfloat16, buffer=nl.hbm))
    nisa.dma_copy(b, tile(128, 512, dtype=nl.bfloat16, buffer=nl.hbm))
    for _step in range(3):
        nisa.nc_matmul(sums, a, b)
    out = tile(128, 512)
    nisa.tensor_copy(out, sums, engine=nisa.engine.vector)
    nisa.activation(out, nl.exp, out)
    nisa.dma_copy(tile(128, 512, buffer=nl.hbm), out)


def test_results_are_there_before_they_are_used() -> None:
    made = estimated(chain)
    load_a, load_b, first, second, third, copy, exp, store = made.timeline.slices
    assert load_a.start == 0.0
    assert first.start == max(load_a.end, load_b.end)
    assert first.waits_for == "data"
    # products that add up follow one another, and the stationary tile stays
    assert second.start == pytest.approx(first.start + first.work.busy)
    assert second.work.busy == third.work.busy == pytest.approx(512 / 2.4e9)
    assert (copy.start, exp.start, store.start) == (third.end, copy.end, exp.end)
    assert made.seconds == store.end
    assert made.flops == 3 * 2 * 128 * 128 * 512
    assert made.ideal_seconds == pytest.approx(made.flops / 79e12)
    assert made.mfu == pytest.approx(made.flops / 79e12 / made.seconds)
    assert made.hbm_read == 128 * 640 * 2
    assert made.hbm_written == 128 * 512 * 4
    assert made.intensity == pytest.approx(made.flops / (made.hbm_read + made.hbm_written))


def test_engines_overlap_and_each_is_in_order() -> None:
    def independent(_: Any) -> None:
        for _step in range(4):
            nisa.activation(tile(128, 512), nl.exp, tile(128, 512))
            nisa.tensor_tensor(tile(128, 512), tile(128, 512), tile(128, 512), nl.add)

    made = estimated(independent)
    lanes = {lane.name: lane for lane in made.lanes}
    assert lanes["vector"].busy == pytest.approx(4 * 512 / 0.96e9)
    assert made.bound == lanes["vector"]
    assert made.seconds == pytest.approx(lanes["vector"].busy + 100 / 0.96e9)
    assert "Bound by the vector engine" in made.verdict()
    for name in ("vector", "scalar"):
        own = [piece for piece in made.timeline.slices if piece.lane == name]
        assert all(later.start >= earlier.start + earlier.work.busy for earlier, later in pairwise(own))


def test_transfers_share_the_bandwidth() -> None:
    def loads(_: Any) -> None:
        for _step in range(50):
            nisa.dma_copy(tile(128, 1024), tile(128, 1024, buffer=nl.hbm))

    made = estimated(loads)
    assert made.seconds == pytest.approx(50 * 128 * 4096 / 0.36e12 + 1.3e-6, rel=0.01)
    assert made.bound is not None
    assert made.bound.name == "hbm"


def test_a_tile_waits_for_room() -> None:
    """Three tiles that fill more than half of SBUF cannot be loaded ahead of the work on the one before."""

    def heavy(_: Any) -> None:
        for _step in range(3):
            big = tile(128, 32 * 1024)
            nisa.dma_copy(big, tile(128, 32 * 1024, buffer=nl.hbm))
            nisa.activation(big, nl.exp, big)

    loads = [piece for piece in estimated(heavy).timeline.slices if piece.lane == "dma"]
    work = [piece for piece in estimated(heavy).timeline.slices if piece.lane == "scalar"]
    assert [piece.waits_for for piece in loads] == ["", "room", "room"]
    assert [piece.start for piece in loads[1:]] == [piece.end for piece in work[:2]]


def test_halves_of_a_tile_do_not_wait_for_one_another() -> None:
    def halves(_: Any) -> None:
        both, out = tile(128, 1024), tile(128, 1024)
        nisa.activation(both[:, 0:512], nl.exp, tile(128, 512))
        nisa.tensor_copy(out[:, 512:1024], both[:, 512:1024], engine=nisa.engine.vector)
        nisa.tensor_copy(out[:, 0:512], both[:, 0:512], engine=nisa.engine.gpsimd)

    first, apart, after = estimated(halves).timeline.slices
    assert apart.start == 0.0
    assert after.start == first.end


def test_cores_wait_for_one_another() -> None:
    def meets(x: Any) -> None:
        if nl.program_id(0) == 0:
            for _step in range(5):
                nisa.activation(tile(128, 512), nl.exp, tile(128, 512))
        nisa.core_barrier(x, (0, 1))
        nisa.activation(tile(128, 512), nl.exp, tile(128, 512))

    made = estimated(meets, torch.empty(8, 8, **META), lnc=2)
    late = [piece for piece in made.timeline.slices if piece.opcode == "activation"][-2:]
    before = [piece for piece in made.timeline.slices if piece.opcode == "activation"][:5]
    assert {piece.core for piece in late} == {0, 1}
    assert all(piece.start >= before[-1].end for piece in late)
    assert {lane.core for lane in made.lanes} == {0, 1}


def test_order_that_the_kernel_asks_for() -> None:
    def ordered(_: Any) -> None:
        first = nisa.activation(tile(128, 512), nl.exp, tile(128, 512))
        nisa.tensor_copy(tile(128, 8), tile(128, 8), engine=nisa.engine.vector).depends_on(first)

    first, second = estimated(ordered).timeline.slices
    assert second.start == first.end


def test_a_kernel_of_nothing() -> None:
    made = estimated(lambda _: None)
    assert (made.seconds, made.mfu, made.bound) == (0.0, 0.0, None)
    assert "no instruction" in made.verdict()
    assert "<svg" in page.render(made)


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    done = CliRunner().invoke(app, ["cost", str(EXAMPLES / "matmul.py"), "--html", str(path), "--shapes-only"])
    assert done.exit_code == 0, done.output
    assert "matmul_tiled on 1 core of trn2: about" in done.stdout
    assert "An estimate, not a measurement." in done.stdout
    assert "NeuronCore-v3: tensor 2.4 GHz" in done.stdout
    assert "core\tengine\tinstructions\tbusy\tshare" in done.stdout.splitlines()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.0.matmul_tiled.html", "out.1.matmul_blocked.html"]

    done = CliRunner().invoke(
        app, ["cost", str(EXAMPLES / "matmul.py"), "--json", "--kernel", "matmul_blocked", "--target", "trn3"]
    )
    (read,) = json.loads(done.stdout)
    assert (read["kernel"], read["target"], read["estimate"]) == ("matmul_blocked", "trn3", True)
    assert read["figures"]["name"] == "NeuronCore-v4"
    assert read["flops"] == 2 * 512 * 512 * 1024
    assert 0 < read["mfu"] < 1

    empty = tmp_path / "empty.py"
    empty.write_text("")
    assert CliRunner().invoke(app, ["cost", str(empty)]).exit_code == 2
    assert CliRunner().invoke(app, ["cost", str(tmp_path / "absent.py")]).exit_code == 2


def test_reuse_of_a_tile_is_worth_it() -> None:
    """The estimate shows what the example is about: blocks load each tile less often."""
    done = CliRunner().invoke(app, ["cost", str(EXAMPLES / "matmul.py"), "--json", "--shapes-only"])
    tiled, blocked = json.loads(done.stdout)
    assert tiled["flops"] == blocked["flops"]
    assert blocked["hbm_read"] < tiled["hbm_read"]
    assert blocked["seconds"] < tiled["seconds"]


def test_the_trace(tmp_path: Path) -> None:
    made = estimated(chain)
    read = json.loads(chrome.write(made, tmp_path / "trace.json").read_text())
    events = [event for event in read["traceEvents"] if event["ph"] == "X"]
    names = {event["tid"]: event["args"]["name"] for event in read["traceEvents"] if event["name"] == "thread_name"}
    assert len(events) == len(made.timeline.slices)
    assert sorted(names.values()) == ["dma 0", "dma 1", "scalar", "tensor", "vector"]
    assert events[-1]["args"]["source"].startswith(__file__)
    by_thread: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        by_thread.setdefault(event["tid"], []).append(event)
    for own in by_thread.values():
        for earlier, later in pairwise(own):
            assert later["ts"] >= earlier["ts"] + earlier["dur"] - 1e-9


class Page(HTMLParser):
    """Counts tags and keeps the text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert not any(name in ("src", "href") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_everything_in_it(tmp_path: Path) -> None:
    made = estimated(chain)
    read = Page(page.write(made, tmp_path / "page.html").read_text(encoding="utf-8"))
    assert read.tags.count("svg") == 2
    assert read.tags.count("rect") == len(made.timeline.slices) == 8
    assert read.tags.count("polyline") == read.tags.count("circle") == 1
    for sentence in [*text.summary(made), text.sources(made)]:
        assert sentence in read.text
    assert "test_cost.py:" in read.text


def test_many_instructions_make_a_small_page() -> None:
    def many(_: Any) -> None:
        a = tile(128, 8)
        for _step in range(3000):
            nisa.memset(a, 0.0, engine=nisa.engine.vector)

    assert len(page.render(estimated(many))) < 300_000


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    path = page.write(estimated(chain), tmp_path / "page.html")
    script = """<script>
const box = (query) => document.querySelector(query).getBoundingClientRect();
document.documentElement.setAttribute("seen", JSON.stringify({
  mode: document.compatMode,
  wide: document.documentElement.scrollWidth > innerWidth,
  background: getComputedStyle(document.body).backgroundColor,
  timeline: box("svg.timeline").width,
  blocks: [...document.querySelectorAll("rect")].map((block) => block.getBoundingClientRect().width),
  bars: [...document.querySelectorAll(".bar")].map((bar) => bar.getBoundingClientRect().width),
  inside: box("circle").top > box("polyline").top,
}));
</script>"""
    path.write_text(path.read_text().replace("</body>", f"{script}</body>"))
    seen = []
    for theme in ([], ["--blink-settings=preferredColorScheme=0"]):
        done = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
             "--window-size=1000,800", *theme, "--dump-dom", path.as_uri()],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        marker = done.stdout.partition('seen="')[2].partition('"')[0]
        seen.append(json.loads(marker.replace("&quot;", '"')))
    light, dark = seen
    assert light["mode"] == "CSS1Compat"
    assert not light["wide"]
    assert light["timeline"] > 700
    assert min(light["blocks"]) > 0
    assert max(light["bars"]) > 10
    assert light["inside"]
    assert light["background"] != dark["background"]
