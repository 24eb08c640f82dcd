"""Reductions, statistics, scans and searches."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nki_harness import FLOATS, assert_close, assert_same, data, execute, rounded, wide

from torch_neuronx_nki import NkiValidationError
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl

FOLDS = {"add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min}


@given(
    op=st.sampled_from(sorted(FOLDS)),
    axes=st.sampled_from([(1, 2), (2,), 2, -1]),
    kind=st.sampled_from(FLOATS),
    negate=st.booleans(),
    psum=st.booleans(),
)
def test_tensor_reduce(op: str, axes: Any, kind: str, negate: bool, psum: bool) -> None:
    x = data((64, 3, 5), kind, 1)
    expected = FOLDS[op](wide(x), axis=axes)
    expected = expected.reshape(64, -1)
    got = execute(
        lambda dst, tile: nisa.tensor_reduce(dst, getattr(nl, op), tile, axes, negate=negate),
        x,
        out=(expected.shape, "float32"),
        buffers=[nl.psum] if psum else None,
    )
    assert_close(got, rounded(-expected if negate else expected, "float32"), units=16)


def test_reductions_of_bits_and_of_a_permuted_view() -> None:
    x = data((32, 2, 3), "int32", 2)
    got = execute(
        lambda dst, tile: nisa.tensor_reduce(dst, nl.bitwise_xor, tile.permute((0, 2, 1)), 2),
        x,
        out=((32, 3), "int32"),
    )
    assert_same(got, np.bitwise_xor.reduce(x, axis=1))


@pytest.mark.parametrize("op", ["add", "average", "maximum"])
def test_partition_reduce(op: str) -> None:
    x = data((64, 7), "float32", 3)
    got = execute(
        lambda dst, tile: nisa.tensor_partition_reduce(dst, getattr(nl, op), tile), x, out=((1, 7), "float32")
    )
    expected = {"add": np.sum, "average": np.mean, "maximum": np.max}[op](wide(x), axis=0, keepdims=True)
    assert_close(got, rounded(expected, "float32"), units=64)


@given(count=st.sampled_from([2, 7, 512]), kind=st.sampled_from(["float32", "bfloat16"]))
def test_statistics(count: int, kind: str) -> None:
    x = data((32, count), kind, 4)

    def body(dst: Any, stats: Any, tile: Any) -> None:
        nisa.bn_stats(stats, tile)
        nisa.bn_aggr(dst, stats)

    got, stats = execute(body, x, out=[((32, 2), "float32"), ((32, 6), "float32")])
    for half, columns in ((stats[:, :3], wide(x)[:, 0::2]), (stats[:, 3:], wide(x)[:, 1::2])):
        size = columns.shape[1]
        expected = np.stack([np.full(32, size), columns.mean(1), columns.var(1) * size], 1)
        assert np.allclose(half, expected, rtol=1e-4, atol=1e-5)
    assert np.allclose(got, np.stack([wide(x).mean(1), wide(x).var(1)], 1), rtol=1e-4, atol=1e-5)


@given(reverse0=st.booleans(), op1=st.sampled_from(["add", "maximum"]))
def test_scan(reverse0: bool, op1: str) -> None:
    a, b = data((32, 6), "float32", 5), data((32, 6), "float32", 6)
    got = execute(
        lambda dst, x, y: nisa.tensor_tensor_scan(dst, x, y, 0.5, nl.subtract, getattr(nl, op1), reverse0=reverse0),
        a,
        b,
        out=((32, 6), "float32"),
    )
    result, columns = np.full(32, 0.5), []
    for i in range(6):
        inner = result - wide(a)[:, i] if reverse0 else wide(a)[:, i] - result
        result = inner + wide(b)[:, i] if op1 == "add" else np.maximum(inner, wide(b)[:, i])
        columns.append(result)
    assert np.allclose(got, np.stack(columns, 1), atol=1e-5)


@given(kind=st.sampled_from(["float32", "bfloat16"]), count=st.sampled_from([8, 33]))
def test_max8_and_the_places_of_what_it_finds(kind: str, count: int) -> None:
    x = data((32, count), kind, 7)
    x[:, 1] = x[:, 5]  # equal values take later places

    def body(values: Any, index: Any, tile: Any) -> None:
        nisa.max8(values, tile)
        nisa.nc_find_index8(index, tile, values)

    values, index = execute(body, x, out=[((32, 8), kind), ((32, 8), "uint32")])
    assert_same(values, -np.sort(-wide(x), 1)[:, :8].astype(np.float32).astype(x.dtype))
    assert np.array_equal(np.take_along_axis(x, index.astype(np.int64), 1), values)
    assert all(len(set(row)) == 8 for row in index.tolist())


def test_values_that_are_nowhere_have_all_ones() -> None:
    x = np.arange(16, dtype=np.float32)[None]
    wanted = np.array([[3, 99, 15, 0, 3, -1, 7, 7]], np.float32)
    got = execute(nisa.nc_find_index8, x, wanted, out=((1, 8), "uint16"))
    none = 0xFFFF
    assert got.tolist() == [[3, none, 15, 0, none, none, 7, none]]


def test_match_replace_starts_with_the_last_value() -> None:
    x = np.array([[5, 1, 5, 2, 3, 4, 6, 7]], np.float32)
    wanted = np.array([[5, 5, 5, 2, 99, 99, 99, 7]], np.float32)

    def body(dst: Any, index: Any, tile: Any, values: Any) -> None:
        nisa.nc_match_replace8(dst, tile, values, -1.0, dst_idx=index)

    got, index = execute(body, x, wanted, out=[((1, 8), "float32"), ((1, 8), "uint32")])
    assert got.tolist() == [[-1, 1, -1, -1, 3, 4, 6, -1]]
    none = 0xFFFFFFFF
    assert index.tolist() == [[none, 2, 0, 3, none, none, none, 7]]


def test_nonzero_works_on_every_sixteenth_partition() -> None:
    x = (data((32, 9), "int32", 8) > 20).astype(np.float32)

    def body(dst: Any, tile: Any) -> None:
        nisa.memset(dst, -7)
        nisa.nonzero_with_count(dst, tile, index_offset=100, padding_val=-1)

    got = execute(body, x, out=((32, 10), "int32"))
    for partition in range(32):
        where = np.flatnonzero(x[partition]) + 100
        row = np.concatenate([where, np.full(9 - len(where), -1), [len(where)]]) if partition % 16 == 0 else [-7] * 10
        assert got[partition].tolist() == list(row)


@pytest.mark.parametrize(("n", "count"), [(128, 128), (42, 8), (100, 37)])
def test_topk_is_ascending_in_rows_of_16_partitions(n: int, count: int) -> None:
    x = data((48, 8), "bfloat16", 9)

    def body(values: Any, index: Any, tile: Any) -> None:
        nisa.memset(values, -99.0)
        nisa.memset(index, 77)
        nisa.topk(values, index, tile, n)

    values, index = execute(body, x, out=[((48, count), "bfloat16"), ((48, count), "uint32")])
    for first in range(0, 48, 16):
        row, kept, places = (wide(part[first : first + 16]).T.reshape(-1) for part in (x, values, index))
        assert np.array_equal(kept[:count], np.sort(row[:n])[-count:])
        assert np.array_equal(row[places[:count].astype(int)], kept[:count])
        assert (kept[count:] == -99).all()
        assert (places[count:] == 77).all()


@pytest.mark.parametrize(
    ("rule", "rows", "columns", "n", "count", "kind"),
    [
        ("shape-match", 24, 8, 64, 8, "uint32"),
        ("free-limit", 16, 8, 129, 8, "uint32"),
        ("free-limit", 16, 8, 7, 4, "uint32"),
        ("free-limit", 16, 8, 20, 21, "uint32"),
        ("dtype", 16, 8, 64, 8, "int32"),
    ],
)
def test_topk_refuses(rule: str, rows: int, columns: int, n: int, count: int, kind: str) -> None:
    x = data((rows, columns), "bfloat16", 9)

    def body(values: Any, index: Any, tile: Any) -> None:
        nisa.topk(values, index, tile, n)

    with pytest.raises(NkiValidationError) as caught:
        execute(body, x, out=[((rows, count), "bfloat16"), ((rows, count), kind)])
    assert caught.value.rule == rule


def test_sequence_bounds() -> None:
    ids = np.array([[1, 1, 2, 2, 2, 0, 0, 3]], np.float32)
    got = execute(nisa.sequence_bounds, ids, out=((1, 2, 8), "int32"))
    assert got.tolist() == [[[0, 0, 2, 2, 2, 8, 8, 7], [2, 2, 5, 5, 5, -1, -1, 8]]]


REFUSED = {
    "axis": lambda a: nisa.tensor_reduce(a[:, 0:1], nl.add, a, 0),
    "element-match": lambda a: nisa.tensor_reduce(a[:, 0:2], nl.add, a, 1),
    "option": lambda a: nisa.tensor_reduce(a.view("int32")[:, 0:1], nl.bitwise_or, a.view("int32"), 1, negate=True),
    "operator": lambda a: nisa.tensor_reduce(a[:, 0:1], nl.exp, a, 1),
    "free-limit": lambda a: nisa.max8(a[:, 0:8], a[:, 0:4]),
    "shape-match": lambda a: nisa.bn_aggr(a[:, 0:2], a[:, 0:8]),
    "dtype": lambda a: nisa.nc_find_index8(a[:, 0:8], a, a[:, 0:8]),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused(rule: str) -> None:
    with pytest.raises(NkiValidationError) as caught:
        execute(lambda dst: REFUSED[rule](dst), out=((32, 16), "float32"))
    assert caught.value.rule == rule
