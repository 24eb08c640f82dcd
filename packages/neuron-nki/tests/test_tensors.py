"""Views of tensors, against the same views of NumPy arrays."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nki_harness import as_numpy

from torch_neuronx_nki import NkiValidationError
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit, simulate

BASE = np.arange(4 * 6 * 8, dtype=np.float32).reshape(4, 6, 8)


def viewed(make: Any, base: np.ndarray = BASE, buffer: Any = nl.hbm, target: str = "trn2") -> np.ndarray:
    """Return the elements that a view of ``base`` names."""
    result = []

    @jit
    def kernel(x: Any) -> None:
        if buffer is nl.sbuf:
            tile = nl.ndarray(x.shape, x.dtype)
            nisa.dma_copy(tile, x)
            x = tile
        view = make(x)
        assert view.ndim == len(view.shape)
        assert view.size == int(np.prod(view.shape))
        assert [count for _, count in view.get_pattern()] == list(view.shape)
        assert [stride for stride, _ in view.get_pattern()] == list(view.strides)
        out = nl.ndarray(view.shape, view.dtype, nl.hbm)
        nisa.dma_copy(out, view)
        result.append(out.data.clone())

    simulate(kernel, target=target)(base)
    return as_numpy(result[0], "float32") if result[0].dtype == torch.float32 else result[0].numpy()


slices = st.builds(
    slice,
    st.none() | st.integers(0, 2),
    st.none() | st.integers(3, 4),
    st.none() | st.integers(1, 3),
)
index = st.tuples(
    st.integers(-4, 3) | slices, st.integers(-4, 5) | slices | st.just(Ellipsis), st.integers(0, 7) | slices
)


@given(index=index)
def test_indexing_in_hbm(index: Any) -> None:
    expected = BASE[index]
    if expected.ndim == 0:
        expected = expected.reshape(())
    assert np.array_equal(viewed(lambda x: x[index]).reshape(expected.shape), expected)


@given(index=index)
def test_indexing_on_chip_keeps_the_partition(index: Any) -> None:
    expected = BASE[index]
    got = viewed(lambda x: x[index], buffer=nl.sbuf)
    assert got.ndim >= 2
    assert got.shape[0] == (1 if isinstance(index[0], int) else expected.shape[0])
    assert np.array_equal(got.reshape(-1), expected.reshape(-1))


def test_ds_and_fewer_indices() -> None:
    assert np.array_equal(viewed(lambda x: x[nl.ds(1, 2)]), BASE[1:3])
    assert np.array_equal(viewed(lambda x: x[..., nl.ds(2, 3)]), BASE[..., 2:5])


VIEWS = {
    "reshape": (lambda x: x.reshape((4, 48)), BASE.reshape(4, 48)),
    "reshape with -1": (lambda x: x.reshape((4, -1, 2)), BASE.reshape(4, 24, 2)),
    "reshape of a slice": (lambda x: x[:, 0:3, :].reshape((4, 3, 2, 4)), BASE[:, 0:3].reshape(4, 3, 2, 4)),
    "slice": (lambda x: x.slice(1, 1, 6, step=2), BASE[:, 1:6:2]),
    "select": (lambda x: x.select(2, 3), BASE[:, :, 3]),
    "permute": (lambda x: x.permute((0, 2, 1)), BASE.transpose(0, 2, 1)),
    "reshape_dim": (lambda x: x.reshape_dim(2, (2, -1)), BASE.reshape(4, 6, 2, 4)),
    "expand_dim": (lambda x: x.expand_dim(1), BASE[:, None]),
    "expand_dims": (lambda x: nl.expand_dims(x, 2), BASE[:, :, None]),
    "squeeze_dim": (lambda x: x[:, 2:3].squeeze_dim(1), BASE[:, 2]),
    "broadcast": (lambda x: x[:, 2:3].broadcast(1, 5), np.broadcast_to(BASE[:, 2:3], (4, 5, 8))),
    "flatten_dims": (lambda x: x.flatten_dims(1, 2), BASE.reshape(4, 48)),
    "rearrange": (
        lambda x: x.rearrange(("a", "b", ("c", "d")), ("a", "d", ("b", "c")), {"c": 2}),
        BASE.reshape(4, 6, 2, 4).transpose(0, 3, 1, 2).reshape(4, 4, 12),
    ),
    "ap": (lambda x: x.ap([[48, 4], [2, 3]], offset=5), BASE.reshape(4, 48)[:, 5:10:2]),
    "ap of the whole": (lambda x: x[1:2].ap([[48, 2], [1, 4]]), BASE.reshape(4, 48)[:2, :4]),
    "view as narrower": (lambda x: x.view(nl.uint8), BASE.view(np.uint8)),
    "view as as wide": (lambda x: x.reinterpret_cast("int32"), BASE.view(np.int32)),
    "ap with a type": (lambda x: x.ap([[192, 4], [1, 8]], dtype="uint8"), BASE.reshape(4, 48).view(np.uint8)[:, :8]),
}


@pytest.mark.parametrize("buffer", ["hbm", "sbuf"])
@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, buffer: str) -> None:
    make, expected = VIEWS[name]
    assert np.array_equal(viewed(make, buffer=getattr(nl, buffer)), expected)


def test_rearrange_merges_what_is_adjacent() -> None:
    with pytest.raises(NkiValidationError, match="not adjacent"):
        viewed(lambda x: x.rearrange(("a", "b", "c"), ("a", ("c", "b"))))
    got = viewed(lambda x: x.rearrange(("a", ("b", "c"), "d"), ("a", "d", ("b", "c")), {"b": 2}))
    assert np.array_equal(got, BASE.transpose(0, 2, 1))
    got = viewed(lambda x: x.rearrange(("a", "b", "c"), ("a", ("b", "c"))))
    assert np.array_equal(got, BASE.reshape(4, 48))


def test_views_that_data_chooses() -> None:
    @jit
    def kernel(x: Any, which: Any) -> Any:
        out = nl.ndarray((2, 6, 8), x.dtype, nl.shared_hbm)
        one = nl.ndarray((1, 8), x.dtype, nl.shared_hbm)
        rows = nl.load(which)
        view = x.vector_select(0, rows)
        assert view.is_indirect()
        nisa.dma_copy(out, view)
        nisa.dma_copy(one, x[3].select(0, rows[1:2, :]))
        return out, one

    picked, one = kernel(torch.from_numpy(BASE), torch.tensor([[3], [1]], dtype=torch.int32))
    assert np.array_equal(picked.numpy(), BASE[[3, 1]])
    assert np.array_equal(one.numpy(), BASE[3, 1:2])


def test_what_tensors_say_of_themselves() -> None:
    @jit
    def kernel(x: Any) -> None:
        tile = nl.zeros((4, 3), nl.bfloat16, name="mine")
        assert (tile.name, tile.dtype, tile.offset, len(tile)) == ("mine", nl.bfloat16, 0, 4)
        assert "sbuf 'mine' bfloat16 [4, 3]" in repr(tile)
        assert tile.is_contiguous()
        assert not tile[:, ::2].is_contiguous()
        assert not tile.is_indirect()
        assert nl.is_sbuf(tile.buffer)
        assert nl.is_on_chip(tile)
        assert nl.is_hbm(x)
        assert not nl.is_psum(x)
        assert nl.private_hbm is nl.hbm
        for use in (lambda: bool(tile), lambda: list(tile), lambda: tile.__setitem__(0, 1)):
            with pytest.raises(TypeError):
                use()

    kernel(torch.ones(2, 2))


REFUSED = {
    "index-bounds": [lambda x: x[4], lambda x: x[:, 0:7], lambda x: x[0:0], lambda x: x[0, 0, 0, 0]],
    "index-type": [lambda x: x["a"], lambda x: x[0.5]],
    "view": [
        lambda x: x.reshape((4, 47)),
        lambda x: x.permute((0, 2, 1)).reshape((4, 48)),
        lambda x: x.permute((0, 1)),
        lambda x: x.broadcast(1, 3),
        lambda x: x.squeeze_dim(1),
        lambda x: x.flatten_dims(2, 1),
        lambda x: x.permute((0, 2, 1)).flatten_dims(1, 2),
        lambda x: x.slice(3, 0, 1),
        lambda x: x.ap([[48, 0]]),
        lambda x: x.ap([48, 2]),
        lambda x: x.reshape_dim(1, (4, 2)),
    ],
    "view-dtype": [lambda x: x.permute((0, 2, 1)).view("uint8")],
    "dtype-name": [lambda x: x.view("float64")],
}


@pytest.mark.parametrize(("rule", "number"), [(rule, i) for rule, views in REFUSED.items() for i in range(len(views))])
def test_refused(rule: str, number: int) -> None:
    with pytest.raises(NkiValidationError) as caught:
        viewed(REFUSED[rule][number])
    assert caught.value.rule == rule
    assert caught.value.source.file == __file__


ON_CHIP = [
    lambda x: x.reshape((2, 96)),
    lambda x: x.permute((1, 0, 2)),
    lambda x: x.reshape_dim(0, (2, 2)),
    lambda x: x.expand_dim(0),
    lambda x: x.flatten_dims(0, 1),
    lambda x: x.ap([[47, 2], [1, 4]]),
    lambda x: x.vector_select(0, x),
]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.ap([[48, 2], [1, 49]]),
        lambda x: x.ap([[48, 2], [1, 8]], 36, scalar_offset=nisa.register_alloc(1), indirect_dim=1),
    ],
)
def test_a_pattern_stays_within_the_partition(make: Any) -> None:
    with pytest.raises(NkiValidationError, match="of a partition of 48") as caught:
        viewed(make, buffer=nl.sbuf)
    assert caught.value.rule == "index-bounds"


@pytest.mark.parametrize("number", range(len(ON_CHIP)))
def test_the_partition_of_a_tensor_on_chip_stays(number: int) -> None:
    with pytest.raises(NkiValidationError) as caught:
        viewed(ON_CHIP[number], buffer=nl.sbuf)
    assert caught.value.rule == "view"


ALLOCATIONS = {
    "partition-limit": lambda: nl.ndarray((129, 1), nl.float32),
    "shape": lambda: nl.ndarray((128,), nl.float32),
    "dtype-name": lambda: nl.ndarray((1, 1), "float64"),
    "buffer": lambda: nl.ndarray((1, 1), nl.float32, "sbuf"),
    "address": lambda: nl.ndarray((64, 4), nl.float32, address=(96, 0)),
}


@pytest.mark.parametrize("rule", ALLOCATIONS)
def test_allocations_that_are_refused(rule: str) -> None:
    with pytest.raises(NkiValidationError) as caught:
        simulate(jit(lambda: ALLOCATIONS[rule]()))()
    assert caught.value.rule == rule
