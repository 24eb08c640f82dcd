"""Transfers between HBM and SBUF: casts, gathers and scatters, transposes, sums."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nki_harness import FLOATS, INTEGERS, as_numpy, assert_close, assert_same, data, execute, rounded, wide

from torch_neuronx_nki import NkiValidationError
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit, simulate


def on_hbm(body: Any, *inputs: np.ndarray, out: Any, target: str = "trn2", fill: float = 0.0) -> np.ndarray:
    """Call ``body(out, *inputs)`` on tensors in HBM."""

    @jit
    def kernel(result: Any, *args: Any) -> Any:
        body(result, *args)
        return result

    shape, dtype = out
    given = np.full(shape, fill, np.float64).astype(rounded(0.0, dtype).dtype)
    return as_numpy(simulate(kernel, target=target)(given, *inputs), dtype)


@given(kind=st.sampled_from(FLOATS + INTEGERS), to=st.sampled_from(FLOATS + INTEGERS))
def test_copies_convert_through_float32(kind: str, to: str) -> None:
    x = data((6, 20), kind, 1, scale=200.0)
    got = on_hbm(lambda out, a: nisa.dma_copy(out, a), x, out=((3, 40), to))
    assert_same(got, rounded(wide(x), to).reshape(3, 40))


@given(
    start=st.integers(0, 3), step=st.integers(1, 3), reverse=st.booleans(), kind=st.sampled_from(["float32", "int8"])
)
def test_strided_views(start: int, step: int, reverse: bool, kind: str) -> None:
    x = data((8, 12), kind, 2)
    source = x[start:8:step, ::2]
    pattern = lambda a: a[start:8:step, 0:12:2]  # noqa: E731
    if reverse:
        got = on_hbm(lambda out, a: nisa.dma_copy(pattern(out), a[: source.shape[0], :6]), x, out=((8, 12), kind))
        expected = np.zeros_like(x)
        expected[start:8:step, ::2] = x[: source.shape[0], :6]
        assert_same(got, expected)
    else:
        assert_same(on_hbm(lambda out, a: nisa.dma_copy(out, pattern(a)), x, out=(source.shape, kind)), source)


@pytest.mark.parametrize("index_dtype", ["int32", "uint32", "float32"])
def test_a_vector_offset_gathers_rows(index_dtype: str) -> None:
    x, rows = data((50, 6), "bfloat16", 3), np.array([[3], [0], [49], [3]], index_dtype)

    def body(out: Any, a: Any, index: Any) -> None:
        tile = nl.ndarray((4, 1), index.dtype)
        nisa.dma_copy(tile, index)
        gathered = nl.ndarray((4, 6), a.dtype)
        nisa.dma_copy(gathered, a.ap([[6, 4], [1, 6]], vector_offset=tile))
        nisa.dma_copy(out, gathered)

    assert_same(on_hbm(body, x, rows, out=((4, 6), "bfloat16")), x[rows[:, 0].astype(int)])


def test_a_vector_offset_scatters_rows_and_skips_those_outside() -> None:
    x, rows = data((4, 6), "float32", 4), np.array([[3], [7], [99], [-1]], np.int32)

    def body(out: Any, a: Any, index: Any) -> None:
        tile, values = nl.ndarray((4, 1), nl.int32), nl.ndarray((4, 6), nl.float32)
        nisa.dma_copy(tile, index)
        nisa.dma_copy(values, a)
        nisa.dma_copy(out.ap([[6, 4], [1, 6]], vector_offset=tile), values, oob_mode=nisa.oob_mode.skip)

    expected = np.zeros((9, 6), np.float32)
    expected[[3, 7]] = x[:2]
    assert_same(on_hbm(body, x, rows, out=((9, 6), "float32")), expected)


def test_a_skipped_gather_keeps_the_destination() -> None:
    x, rows = data((5, 4), "int32", 5), np.array([[1], [5]], np.int32)

    def body(out: Any, a: Any, index: Any) -> None:
        tile, values = nl.ndarray((2, 1), nl.int32), nl.zeros((2, 4), nl.int32)
        nisa.dma_copy(tile, index)
        nisa.dma_copy(values, a.ap([[4, 2], [1, 4]], vector_offset=tile), oob_mode=nisa.oob_mode.skip)
        nisa.dma_copy(out, values)

    assert_same(on_hbm(body, x, rows, out=((2, 4), "int32")), np.stack([x[1], np.zeros(4, np.int32)]))


def test_an_index_outside_is_an_error() -> None:
    def body(out: Any, a: Any, index: Any) -> None:
        tile = nl.ndarray((2, 1), nl.int32)
        nisa.dma_copy(tile, index)
        nisa.dma_copy(out, a.ap([[4, 2], [1, 4]], vector_offset=tile))

    with pytest.raises(NkiValidationError, match="row index 5 of a tensor of 5 rows") as caught:
        on_hbm(body, data((5, 4), "float32"), np.array([[1], [5]], np.int32), out=((2, 4), "float32"))
    assert caught.value.rule == "dma-indirect"


@pytest.mark.parametrize("register", [True, False])
def test_a_scalar_offset_moves_by_whole_rows(register: bool) -> None:
    x = data((7, 3, 4), "float32", 6)

    def body(out: Any, a: Any, index: Any) -> None:
        tile = nl.ndarray((1, 1), nl.int32)
        nisa.dma_copy(tile, index)
        offset = nisa.register_alloc(tile) if register else tile
        nisa.dma_copy(out, a.ap([[4, 3], [1, 4]], scalar_offset=offset, indirect_dim=0))

    got = on_hbm(body, x, np.array([[5]], np.int32), out=((3, 4), "float32"))
    assert_same(got, x[5])


@pytest.mark.parametrize(("shape", "axes"), [((16, 24), (1, 0)), ((4, 3, 8), (2, 1, 0)), ((2, 3, 4, 8), (3, 1, 2, 0))])
@pytest.mark.parametrize("named", [True, False])
def test_dma_transpose(shape: tuple[int, ...], axes: tuple[int, ...], named: bool) -> None:
    x = data(shape, "bfloat16", 7)
    expected = x.transpose(axes)
    got = on_hbm(
        lambda out, a: nisa.dma_transpose(out, a, axes=axes if named else None), x, out=(expected.shape, "bfloat16")
    )
    assert_same(got, expected)


def test_dma_transpose_of_gathered_rows() -> None:
    x, rows = data((40, 8), "bfloat16", 8), np.arange(16, dtype=np.int32)[:, None] * 2 + 1

    def body(out: Any, a: Any, index: Any) -> None:
        tile = nl.ndarray((16, 1), nl.int32)
        nisa.dma_copy(tile, index)
        nisa.dma_transpose(out, a.ap([[8, 16], [1, 8]], vector_offset=tile))

    assert_same(on_hbm(body, x, rows, out=((8, 16), "bfloat16")), x[rows[:, 0]].T)


@given(count=st.integers(1, 5), kind=st.sampled_from(["float32", "bfloat16"]))
def test_dma_compute_sums_in_float32(count: int, kind: str) -> None:
    parts = [data((8, 6), kind, seed) for seed in range(count)]
    got = on_hbm(lambda out, *srcs: nisa.dma_compute(out, srcs, nl.add), *parts, out=((8, 6), kind))
    assert_close(got, rounded(sum(wide(part) for part in parts), kind))


def test_dma_compute_adds_to_rows_that_repeat() -> None:
    x, rows = data((3, 4), "float32", 9), np.array([[2], [0], [2]], np.int32)

    def body(out: Any, a: Any, index: Any) -> None:
        tile, values = nl.ndarray((3, 1), nl.int32), nl.ndarray((3, 4), nl.float32)
        nisa.dma_copy(tile, index)
        nisa.dma_copy(values, a)
        view = out.ap([[4, 3], [1, 4]], vector_offset=tile)
        nisa.dma_compute(view, [view, values], nl.add, unique_indices=False)

    expected = np.ones((4, 4))
    for row, values in zip([2, 0, 2], wide(x), strict=True):
        expected[row] += values
    assert np.allclose(on_hbm(body, x, rows, out=((4, 4), "float32"), fill=1.0), expected)


REFUSED = {
    "buffer": lambda out, a: nisa.dma_copy(nl.ndarray((8, 8), nl.float32, nl.psum), a),
    "element-match": lambda out, a: nisa.dma_copy(out[0:3, :], a),
    "dma-mode": lambda out, a: nisa.dma_copy(
        nl.ndarray((8, 8), nl.bfloat16), a, dge_mode=nisa.dge_mode.hwdge, engine=nisa.scalar_engine
    ),
    "generation": lambda out, a: nisa.dma_copy(out, a, priority=1),
    "dtype-match": lambda out, a: nisa.dma_transpose(nl.ndarray((8, 8), nl.bfloat16), a),
    "option": lambda out, a: nisa.dma_transpose(out, a, axes=(0, 1)),
    "shape-match": lambda out, a: nisa.dma_transpose(out[0:4, :], a[:, 0:8]),
    "operator": lambda out, a: nisa.dma_compute(out, [a, a], nl.multiply),
    "index-bounds": lambda out, a: nisa.dma_copy(out, a.ap([[8, 9], [1, 8]])),
    "view": lambda out, a: nisa.dma_copy(out, a.reshape((3, 3))),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused(rule: str) -> None:
    with pytest.raises(NkiValidationError) as caught:
        on_hbm(lambda out, a: REFUSED[rule](out, a), data((8, 8), "float32"), out=((8, 8), "float32"))
    assert caught.value.rule == rule


def test_rules_that_changed_hold_by_version() -> None:
    @jit
    def kernel(a: Any) -> Any:
        out = nl.ndarray((8, 4, 2), a.dtype, nl.shared_hbm)
        nisa.dma_transpose(out, a)
        return out

    x = torch.randn(8, 8).bfloat16()
    assert torch.equal(simulate(kernel, language="0.3")(x).reshape(8, 8), x.T)
    with pytest.raises(NkiValidationError) as caught:
        simulate(kernel)(x)
    assert caught.value.rule == "shape-match"


def test_strided_arguments_are_used_in_place() -> None:
    x = data((6, 10), "float32", 10)
    got = execute(nisa.tensor_copy, x[:, ::2], out=((6, 5), "float32"))
    assert_same(got, np.ascontiguousarray(x[:, ::2]))


@pytest.mark.parametrize(
    "call",
    [
        lambda tile: nisa.dma_copy(tile, tile, dge_mode="no such mode"),
        lambda tile: nisa.tensor_reduce(tile[:, 0:1], nl.add, tile, "a"),
        lambda tile: nisa.memset(tile, [1]),
        lambda tile: nisa.activation(tile, nl.exp, tile, reduce_cmd=9, reduce_res=tile[:, 0:1]),
    ],
)
def test_parameters_of_another_form_are_errors_of_the_language(call: Any) -> None:
    with pytest.raises(NkiValidationError) as caught:
        execute(lambda dst: call(dst), out=((4, 6), "float32"))
    assert caught.value.rule in ("option", "operand-value")
    assert caught.value.source.file == __file__
