"""The verifier: right kernels, files of kernels, the command, the page, and what it costs."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from torch_neuronx_nki import NkiLaunchError, NkiValidationError
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.cli import app
from torch_neuronx_nki.jit import jit, simulate
from torch_neuronx_nki.rules import RULES
from torch_neuronx_nki.verifier.coverage import Coverage, overlap
from torch_neuronx_nki.verifier.files import check_file
from torch_neuronx_nki.verifier.registry import FAMILIES, REGISTRY, page

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "nki").glob("*.py"))

WRONG = """
import nki, nki.isa as nisa, nki.language as nl
import torch

@nki.jit
def forgets(x):
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(x, tile)
    return x

@nki.jit
def nobody_calls_it(x):
    return x

@nki.jit
def wide(x):
    nl.ndarray((128, x.shape[1]), x.dtype)
    return x
"""


@pytest.mark.parametrize("shapes_only", [False, True])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_right_kernels_give_no_finding(path: Path, shapes_only: bool) -> None:
    results = check_file(path, shapes_only=shapes_only)
    assert results
    assert all(result.ran and not result.findings and not result.error for result in results)


def test_the_command_names_rule_line_and_hint(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG + "EXAMPLES = [(forgets, (torch.ones(8, 8),)), (wide, (torch.ones(1, 8),))]\n")
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 1
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0] == ["line", "rule", "severity", "kernel", "what", "limit", "actual", "hint"]
    assert rows[1][:4] == ["wrong.py:8", "INIT001", "error", "forgets"]
    assert rows[1][5:] == ["0", "64", REGISTRY["uninitialised-read"].hint]
    assert rows[2] == ["2 runs of kernels, 1 finding"]
    assert "nobody_calls_it has no example" in done.stderr

    done = CliRunner().invoke(app, ["check", str(path), "--json", "--kernel", "forgets", "--target", "trn3"])
    read = json.loads(done.stdout)
    assert read["kernels"] == ["forgets"]
    assert read["without_example"] == read["errors"] == []
    (finding,) = read["findings"]
    assert (finding["code"], finding["source"]["line"], finding["actual"]) == ("INIT001", 8, 64)

    assert CliRunner().invoke(app, ["check", str(path), "--kernel", "wide"]).exit_code == 0


def test_what_stops_the_command(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    assert CliRunner().invoke(app, ["check", str(path)]).exit_code == 2
    path.write_text(WRONG + "def example():\n    return forgets, 3\n")
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 2
    assert "(kernel, args)" in done.stderr
    path.write_text(WRONG + "def example():\n    return wide, ()\n")
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 2
    assert "TypeError" in done.stderr
    for text in ("1 / 0", "import no_such_module"):
        path.write_text(text)
        with pytest.raises(NkiLaunchError, match="cannot be loaded"):
            check_file(path)
    with pytest.raises(NkiLaunchError, match="no Python file"):
        check_file(tmp_path / "absent.py")


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    @jit
    def forgets(x: Any) -> Any:
        nisa.dma_copy(x, nl.ndarray(x.shape, x.dtype))
        return x

    x = torch.ones(4, 4)
    with pytest.raises(NkiValidationError, match="INIT001"):
        forgets(x)
    assert (x == 1).all()
    monkeypatch.setenv("TORCH_NEURONX_NKI_VERIFY", "off")
    assert forgets(x).isnan().all()
    with pytest.raises(NkiLaunchError, match="strict, warn, off"):
        simulate(forgets, verify="loud")(x)


def test_what_a_capacity_allows() -> None:
    """Lifetimes end, small tiles share partitions, and all of a memory can be used."""

    @jit
    def kernel(x: Any) -> Any:
        for _ in range(20):
            tile = nl.ndarray((128, 56 * 1024), nl.float32)
            nisa.memset(tile, 0.0)
        for _ in range(20):
            for bank in [nl.ndarray((128, 512), nl.float32, nl.psum) for _ in range(8)]:
                nisa.memset(bank, 0.0)
        quarters = [nl.ndarray((32, 56 * 1024), nl.float32) for _ in range(4)]
        for tile in quarters * 2:
            nisa.memset(tile, 0.0)
        return x

    simulate(kernel, target="trn2")(torch.empty(1, 1, device="meta"))


def test_placed_tensors_may_take_turns() -> None:
    @jit
    def kernel(x: Any) -> Any:
        for step in range(4):
            tile = nl.ndarray((8, 8), nl.float32, address=(0, 32 * (step % 2)))
            nisa.dma_copy(tile, x)
            nisa.dma_copy(x, tile)
        return x

    x = torch.ones(8, 8)
    assert (kernel(x) == 1).all()


def test_two_cores_may_meet_between() -> None:
    @jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        core = nl.program_id(0)
        tile = nl.load(x)
        for turn in range(3):
            nisa.dma_copy(out[nl.ds(4 * core, 4), :], tile[nl.ds(0, 4), :])
            nisa.core_barrier(out, (0, 1))
            nisa.dma_copy(tile[0:4, :], out[nl.ds(4 - 4 * core, 4), :])
            nisa.core_barrier(out, (0, 1))
            del turn
        return out

    assert (kernel[2](torch.ones(8, 8)) == 1).all()


def test_every_rule_is_on_the_page() -> None:
    """If this fails: python tools/nki_rules.py."""
    assert set(REGISTRY) == set(RULES)
    assert {entry.code.rstrip("0123456789") for entry in REGISTRY.values()} == set(FAMILIES)
    text = (ROOT / "docs" / "nki_rules.md").read_text(encoding="utf-8")
    assert text == page()
    assert text.count("\n### ") == len(REGISTRY)


def test_memory_is_flat_over_many_instructions() -> None:
    marks: list[int] = []
    count = 4_000

    @jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray((128, 64), nl.float32, nl.shared_hbm)
        for step in range(2 * count):
            if step % 8 == 0:
                tile = nl.ndarray((128, 8), nl.float32)
            at = step % 8
            nisa.memset(tile[:, at : at + 1], 0.0)
            if at == 7:
                nisa.dma_copy(out[:, nl.ds(8 * (step // 8 % 8), 8)], tile)
            if step + 1 in (count // 2, 2 * count):
                marks.append(tracemalloc.get_traced_memory()[0])
        return out

    tracemalloc.start()
    try:
        simulate(kernel, verify="strict")(torch.empty(1, 1, device="meta"))
    finally:
        tracemalloc.stop()
    assert marks[1] - marks[0] < count * 32


_views = st.tuples(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=3), st.integers(0, 20),
    st.sampled_from([1, 2, 4]),
)  # fmt: skip


def _elements(view: Any) -> set[int]:
    shape, strides, offset, itemsize = view
    index = offset + sum(
        np.arange(size).reshape([-1 if at == dim else 1 for at in range(len(shape))]) * stride
        for dim, (size, stride) in enumerate(zip(shape, strides, strict=True))
    )
    return {int(first) * itemsize + byte for first in np.ravel(index) for byte in range(itemsize)}


def _view(drawn: Any) -> Any:
    dims, offset, itemsize = drawn
    return tuple(size for size, _ in dims), tuple(stride for _, stride in dims), offset, itemsize


@given(st.lists(_views, min_size=1, max_size=6), _views)
def test_coverage_is_what_sets_of_elements_say(written: Any, asked: Any) -> None:
    """In units of the allocation's elements; parts of elements may be taken as covered, never as missing."""
    coverage = Coverage(600, 2)
    touched: set[int] = set()
    for drawn in written:
        view = _view(drawn)
        coverage.add(view)
        touched |= {byte // 2 for byte in _elements(view)}
    view = _view(asked)
    wanted = {byte // 2 for byte in _elements(view)}
    if view[3] >= 2 and all(_view(drawn)[3] >= 2 for drawn in written):
        assert coverage.touches(view) == bool(wanted & touched)
        assert coverage.covers(view) == (wanted <= touched)
        assert coverage.count() == len(touched)
    elif wanted <= touched:
        assert coverage.covers(view)


@given(_views, _views)
def test_overlap_is_what_sets_of_elements_say(one: Any, other: Any) -> None:
    first, second = _view(one), _view(other)
    if first[3] == second[3]:
        assert overlap(first, second) == bool(_elements(first) & _elements(second))
    elif _elements(first) & _elements(second):
        assert overlap(first, second)
