"""``torch-neuronx explain`` and its page."""

import json
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import torch_neuronx
from torch_neuronx_compile.explain.report import Break, Explanation, Fallback, Frame, Graph, Stage
from torch_neuronx_compile.explain.script import explain_script

PROGRAM = """
import sys
import torch

print(__name__, *sys.argv[1:])
compiled = torch.compile(lambda x: (x * 2).sum(), backend="neuron")
compiled(torch.ones(3, device="neuron", requires_grad=True)).backward()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_the_command(script: Path, tmp_path: Path) -> None:
    """Options may stand on either side of the program; others, and what follows ``--``, are the program's."""
    script.write_text(PROGRAM + "raise ValueError('at its end')\n")
    page, data, programs = (tmp_path / name for name in ("page.html", "data.json", "programs"))
    arguments = [
        "--html", str(page), str(script), "--lr", "0.1", "--json", str(data), "-v", "--reproductions", str(programs),
        "--", "--json", "5",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "torch_neuronx.cli", "explain", *arguments],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.startswith("__main__ --lr 0.1 -v --json 5\n")
    assert "program.py: 1 frame, 2 graphs" in done.stdout
    assert "ValueError: at its end" in done.stderr
    assert "explain_script" not in done.stderr
    read = json.loads(data.read_text())
    assert [graph["kind"] for graph in read["graphs"]] == ["forward", "backward"]
    assert read["error"] == "ValueError: at its end"
    assert "at its end" in page.read_text()
    assert len(list(programs.iterdir())) == 2


@pytest.mark.parametrize(
    ("last", "code", "error"),
    [("", 0, ""), ("sys.exit(3)", 3, ""), ("sys.exit('bye')", 1, ""), ("1 / 0", 1, "ZeroDivisionError"),
     ("raise KeyboardInterrupt", 130, "KeyboardInterrupt")],
)  # fmt: skip
def test_the_exit_code_is_the_programs(tmp_path: Path, last: str, code: int, error: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"import sys\n{last}\n")
    before = list(sys.argv), list(sys.path)
    explanation, found = explain_script(path, ["a"])
    assert found == code
    assert explanation.error.startswith(error)
    assert (sys.argv, sys.path) == before


def test_the_program_imports_its_neighbours(script: Path) -> None:
    (script.parent / "neighbour_of_program.py").write_text("value = 4")
    script.write_text("import sys, neighbour_of_program\nsys.exit(neighbour_of_program.value)")
    assert explain_script(script, [])[1] == 4


def test_a_program_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from torch_neuronx.cli.explain import run

    assert run(script=tmp_path / "none.py", arguments=[], json=None, html=None, reproductions=None) == 2
    assert "no program" in capsys.readouterr().err


def sample() -> Explanation:
    """Return an explanation with something in every place, and text that would be markup."""
    seconds = {stage: 0.25 * number for number, stage in enumerate(Stage)}
    graph = Graph(
        "model_0", "forward", "0/0", 3, {"aten.add.Tensor": 2}, "k" * 64, "compiled", (), seconds, 1, "",
        "def forward(self, x: '<b>f32[3]</b>')", "import torch",
    )  # fmt: skip
    return Explanation(
        subject="<script>alert(1)</script>",
        frames=(Frame("0/0", "f", "a.py:1", 1.5, 1, "guard <x> & <y>", "failed"),),
        graphs=(graph,),
        breaks=(Break("0/0", "a.py:2", "Op not supported", "because", ("try this",), "aten::lgamma", "File a.py"),),
        fallbacks=(Fallback("aten::complex", "no kernel", 3),),
        seconds=seconds,
        error="ValueError: <i>",
        environment={"torch": "2.13"},
    )


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects tags, text and what points elsewhere."""

    VOID = frozenset({"meta", "br", "img", "input", "link", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.references: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_by_itself(tmp_path: Path) -> None:
    path = sample().html(tmp_path / "page.html")
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert not page.open
    assert not page.references
    assert "script" not in page.tags
    assert "url(" not in source
    assert "@import" not in source
    for part in (
        "<script>alert(1)</script>",
        "guard <x> & <y>",
        "Op not supported",
        "try this",
        "aten::complex",
        "<i>",
    ):
        assert part in page.text
    assert page.tags.count("rect") == len(Stage)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    path = sample().html(tmp_path / "page.html")
    script = """<script>
const style = (query) => getComputedStyle(document.querySelector(query));
document.documentElement.setAttribute("seen", JSON.stringify({
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  background: style("body").backgroundColor,
  wide: document.documentElement.scrollWidth > innerWidth,
  bars: [...document.querySelectorAll("rect")].map((bar) => bar.getBoundingClientRect().width),
  open: [...document.querySelectorAll("details")].filter((part) => part.open).length,
  mode: document.compatMode,
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
        root = Page(done.stdout)
        assert "Op not supported" in root.text
        marker = done.stdout.partition('seen="')[2].partition('"')[0]
        seen.append(json.loads(marker.replace("&quot;", '"')))
    light, dark = seen
    assert light["mode"] == "CSS1Compat"
    assert not light["wide"]
    assert light["open"] == 0
    assert light["bars"] == sorted(light["bars"])
    assert light["bars"][-1] > 100
    assert (light["dark"], dark["dark"]) == (False, True)
    assert light["background"] != dark["background"]


def test_a_real_page(tmp_path: Path) -> None:
    explanation = torch_neuronx.explain(lambda x: x * 2.5, torch.ones(2, device="neuron"))
    page = Page(explanation.html(str(tmp_path / "page.html")).read_text(encoding="utf-8"))
    assert not page.open
    assert explanation.graphs[0].key in page.text
    assert "torch.ops.aten.mul.Tensor" in page.text
