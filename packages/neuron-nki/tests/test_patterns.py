"""Instructions on positions, registers and random numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nki_harness import assert_same, data, execute, rounded, wide

from torch_neuronx_nki import NkiValidationError
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl

COMPARES = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


def affine(pattern: Any, partitions: int, multiplier: int, offset: int) -> np.ndarray:
    values = np.full((partitions, *[count for _, count in pattern]), offset, np.int64)
    for dim, (step, count) in enumerate(pattern):
        values += step * np.arange(count).reshape(-1, *[1] * (len(pattern) - dim - 1))
    return values + multiplier * np.arange(partitions).reshape(-1, *[1] * len(pattern))


@given(
    pattern=st.sampled_from([[[1, 6]], [[3, 2], [-1, 5]], [[0, 2], [1, 2], [10, 3]]]),
    multiplier=st.integers(-3, 3),
    offset=st.integers(-5, 5),
    kind=st.sampled_from(["int32", "float32", "uint8", "bfloat16"]),
)
def test_iota(pattern: Any, multiplier: int, offset: int, kind: str) -> None:
    values = affine(pattern, 32, multiplier, offset)
    got = execute(
        lambda dst: nisa.iota(dst, pattern, offset=offset, channel_multiplier=multiplier), out=(values.shape, kind)
    )
    assert_same(got, rounded(values, kind))


@given(op=st.sampled_from(sorted(COMPARES)), multiplier=st.integers(-2, 2), offset=st.integers(-3, 3))
def test_affine_select(op: str, multiplier: int, offset: int) -> None:
    x = data((32, 6), "bfloat16", 1)
    got = execute(
        lambda dst, tile: nisa.affine_select(
            dst, [[-1, 6]], multiplier, tile, -9.0, cmp_op=getattr(nl, op), offset=offset
        ),
        x,
        out=((32, 6), "float32"),
    )
    chosen = COMPARES[op](affine([[-1, 6]], 32, multiplier, offset), 0)
    assert_same(got, np.where(chosen, wide(x), -9.0).astype(np.float32))


def test_shuffle_within_quadrants() -> None:
    x, before = data((64, 4), "bfloat16", 2), data((64, 4), "bfloat16", 3)
    mask = [(i * 5) % 32 for i in range(31)] + [255]

    def body(dst: Any, tile: Any, old: Any) -> None:
        nisa.tensor_copy(dst, old)
        nisa.nc_stream_shuffle(dst, tile, mask)

    got = execute(body, x, before, out=((64, 4), "bfloat16"))
    expected = before.copy()
    for start in (0, 32):
        for i in range(31):
            expected[start + i] = x[start + mask[i]]
    assert_same(got, expected)


def test_gathers() -> None:
    x = data((32, 10), "float32", 4)
    generator = np.random.default_rng(5)
    index = generator.integers(0, 10, (32, 7)).astype(np.uint32)
    assert_same(
        execute(nisa.nc_n_gather, x, index, out=((32, 7), "float32")), np.take_along_axis(x, index.astype(int), 1)
    )

    shared = generator.integers(0, 5, (32, 1)).astype(np.uint16)
    got = execute(
        lambda dst, tile, at: nisa.local_gather(dst, tile, at, num_elem_per_idx=2, num_valid_indices=5),
        x,
        shared,
        out=((32, 10), "float32"),
    )
    for partition in range(32):
        group = shared[partition // 16 * 16 :][:5, 0].astype(int)
        assert_same(got[partition], x[partition].reshape(5, 2)[group].reshape(-1))


def test_indirect_views_gather_and_scatter_on_the_newer_chip() -> None:
    x = data((16, 32), "float32", 6)
    index = (np.arange(16, dtype=np.uint16)[::-1] * 2)[:, None].copy()

    def body(dst: Any, scattered: Any, tile: Any, at: Any) -> None:
        nisa.tensor_copy(dst, tile.indirect(at))
        nisa.memset(scattered, 0)
        nisa.tensor_copy(scattered.indirect(at), dst)

    outs = [((16, 16), "float32"), ((16, 32), "float32")]
    got, scattered = execute(body, x, index, out=outs, target="trn3")
    assert_same(got, x[:, index[:, 0]])
    expected = np.zeros_like(x)
    expected[:, index[:, 0]] = x[:, index[:, 0]]
    assert_same(scattered, expected)
    with pytest.raises(NkiValidationError) as caught:
        execute(body, x, index, out=outs, target="trn2")
    assert caught.value.rule == "generation"


def test_registers_hold_numbers_of_memory() -> None:
    x = np.array([[7, -3, 2**31 - 1]], np.int32)

    def body(dst: Any, tile: Any) -> None:
        first = nisa.register_alloc(tile[:, 0:1])
        second = nisa.register_alloc()
        nisa.register_load(second, tile[:, 1:2])
        assert (int(first), int(second), first + second, first > 5) == (7, -3, 4, True)
        nisa.register_store(dst[:, 0:1], second)
        nisa.register_move(second, first)
        nisa.register_store(dst[:, 1:2], second)
        nisa.register_load(second, tile[:, 2:3])
        nisa.register_store(dst[:, 2:3], second)

    assert_same(execute(body, x, out=((1, 3), "int32")), np.array([[-3, 7, 2**31 - 1]], np.int32))


def test_registers_index_and_steer_loops() -> None:
    x = data((1, 8), "float32", 7)

    def body(dst: Any, tile: Any) -> None:
        nisa.memset(dst, 0.0)

        def add(i: Any) -> None:
            nisa.tensor_copy(dst[:, i], tile[:, nl.ds(7 - i, 1)])

        nl.fori_loop(0, 4, add, step=2)
        left = nisa.register_alloc(2)

        def more(condition: Any) -> Any:
            nisa.tensor_scalar(dst, dst, nl.multiply, 2.0)
            nisa.register_move(condition, condition - 1)
            return condition

        nl.while_loop(left, more)

    expected = np.zeros_like(x)
    expected[:, [0, 2]] = x[:, [7, 5]] * 4
    assert_same(execute(body, x, out=((1, 8), "float32")), expected)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_version_of_the_core(target: str) -> None:
    versions = []
    execute(
        lambda dst: (versions.append(nisa.get_nc_version()), nisa.memset(dst, 0)),
        out=((1, 1), "float32"),
        target=target,
    )
    assert versions == [{"trn2": nisa.nc_version.gen3, "trn3": nisa.nc_version.gen4}[target]]
    assert int(versions[0]) == {"trn2": 3, "trn3": 4}[target]


def test_equal_seeds_give_equal_numbers() -> None:
    def body(a: Any, b: Any, c: Any, tile: Any) -> None:
        for dst, seed in ((a, 5), (b, 5), (c, 6)):
            nl.random_seed(seed)
            nisa.tensor_copy(dst, nl.rand(dst.shape))

    a, b, c = execute(body, data((1, 1), "float32"), out=[((64, 50), "float32")] * 3)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert (a >= 0).all()
    assert (a < 1).all()
    assert abs(a.mean() - 0.5) < 0.02


def test_random_bits_ranges_states_and_dropout() -> None:
    x = np.ones((64, 100), np.float32)

    def body(bits: Any, ranged: Any, dropped: Any, again: Any, once_more: Any, tile: Any) -> None:
        seeds = nl.full((1, 1), 3, nl.uint32)
        nisa.set_rng_seed(seeds)
        nisa.rng(bits)
        nisa.rand2(ranged, 2.0, 3.0)
        nisa.dropout(dropped, tile, 0.25)
        state = nl.ndarray((1, 6), nl.uint32)
        nisa.rand_get_state(state)
        nisa.rng(again)
        nisa.rand_set_state(state)
        nisa.rng(once_more)

    kinds = ["uint16", "float32", "float32", "uint16", "uint16"]
    outs = [((64, 100), kind) for kind in kinds]
    bits, ranged, dropped, again, once_more = execute(body, x, out=outs, target="trn3")
    assert len(np.unique(bits)) > 5000
    assert ((ranged >= 2) & (ranged < 3)).all()
    assert set(np.unique(dropped)) == {0.0, 1.0}
    assert abs(dropped.mean() - 0.75) < 0.03
    assert np.array_equal(again, once_more)
    assert not np.array_equal(bits, again)


REFUSED = {
    "shape-match": lambda a: nisa.iota(a, [[1, 3]]),
    "option": lambda a: nisa.nc_stream_shuffle(a, a, [40] * 32),
    "operator": lambda a: nisa.affine_select(a, [[1, 8]], 0, a, 0.0, cmp_op=nl.add),
    "register": lambda a: nisa.register_load(a, a[0, 0]),
    "dtype": lambda a: nisa.nc_n_gather(a, a, a),
    "index-bounds": lambda a: nisa.nc_n_gather(a, a, nl.full((32, 8), 8, nl.uint32)),
    "index-type": lambda a: a[:, a],
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused(rule: str) -> None:
    with pytest.raises(NkiValidationError) as caught:
        execute(lambda dst: REFUSED[rule](dst), out=((32, 8), "float32"), verify="off")
    assert caught.value.rule == rule
