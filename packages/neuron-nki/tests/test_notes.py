"""What the simulator puts off, and what it keeps, is never seen: results are those of doing everything at once."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit, simulate

TILE = 32
PARTS = 4
TYPES = (nl.float32, nl.bfloat16, nl.float16)


def run(kernel: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    return simulate(jit(kernel), **settings)(*args)


def stored(tile: Any) -> Any:
    """Copy ``tile`` to HBM as it is."""
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def loaded(x: Any, dtype: Any = None) -> Any:
    tile = nl.ndarray(x.shape, dtype or x.dtype)
    nisa.dma_copy(tile, x)
    return tile


def turned(x: Any) -> Any:
    """Transpose through PSUM, as kernels do."""
    there = nl.ndarray((x.shape[1], x.shape[0]), x.dtype, nl.psum)
    nisa.nc_transpose(there, x)
    tile = nl.ndarray(there.shape, x.dtype)
    nisa.tensor_copy(tile, there)
    return tile


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(TILE, TILE, generator=torch.Generator().manual_seed(1))


def test_a_transpose_holds_what_its_source_held(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        tile = loaded(x)
        across = turned(tile)
        nisa.memset(tile, 7.0)
        return stored(across)

    assert torch.equal(run(kernel, x), x.T)


def test_a_source_that_is_dropped_and_its_bytes_taken_again(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        across = turned(loaded(x))
        others = [nl.zeros((TILE, TILE), nl.float32) for _ in range(6)]
        return stored(across), stored(others[-1])

    across, zeros = run(kernel, x)
    assert torch.equal(across, x.T)
    assert not zeros.any()


def test_a_part_that_is_overwritten_keeps_the_rest(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        across = turned(loaded(x))
        nisa.memset(across[:, 3:5], 2.0)
        nisa.tensor_scalar(across[:, 10:20], across[:, 10:20], nl.add, 1.0)
        return stored(across)

    expected = x.T.clone()
    expected[:, 3:5] = 2.0
    expected[:, 10:20] += 1.0
    assert torch.equal(run(kernel, x), expected)


def test_columns_that_cover_earlier_ones_of_another_size_win(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        tile = loaded(x)
        there = nl.ndarray((TILE, TILE), nl.float32, nl.psum)
        half = TILE // 2
        nisa.nc_transpose(there[:, 0:half], tile[0:half, :])
        nisa.nc_transpose(there[:, half:TILE], tile[0:half, :])
        nisa.nc_transpose(there, tile)
        nisa.nc_transpose(there[:, 4:12], tile[0:8, :])
        out = nl.ndarray((TILE, TILE), nl.float32)
        nisa.tensor_copy(out, there)
        return stored(out)

    expected = x.T.clone()
    expected[:, 4:12] = x[0:8].T
    assert torch.equal(run(kernel, x), expected)


def test_a_copy_of_another_size_than_the_columns(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        there = nl.ndarray((TILE, TILE), nl.float32, nl.psum)
        nisa.nc_transpose(there, loaded(x))
        part, shifted = nl.ndarray((TILE, 8), nl.float32), nl.zeros((TILE, 2 * TILE), nl.float32)
        nisa.tensor_copy(part, there[:, 4:12])
        nisa.tensor_copy(shifted[:, TILE - 4 : 2 * TILE - 4], there)
        return stored(part), stored(shifted)

    part, shifted = run(kernel, x)
    assert torch.equal(part, x.T[:, 4:12])
    assert torch.equal(shifted[:, TILE - 4 : -4], x.T)
    assert not shifted[:, : TILE - 4].any()
    assert not shifted[:, -4:].any()


def test_a_transpose_of_a_transpose(x: torch.Tensor) -> None:
    assert torch.equal(run(lambda x: stored(turned(turned(loaded(x)))), x), x)


def test_what_is_no_number_is_moved_bit_for_bit() -> None:
    bits = torch.arange(TILE * TILE, dtype=torch.int32).reshape(TILE, TILE) * 4_000_037
    x = bits.view(torch.float32)

    def kernel(x: Any) -> Any:
        return stored(turned(loaded(x)))

    assert torch.equal(run(kernel, x).view(torch.int32), bits.T)


def test_a_view_as_another_type_and_one_that_repeats_a_partition_see_the_elements(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        across = turned(loaded(x, nl.bfloat16))
        as_integers = nl.ndarray((TILE, TILE), nl.int16)
        nisa.tensor_copy(as_integers, across.view(nl.int16))
        repeated = nl.ndarray((TILE, TILE), nl.bfloat16)
        nisa.tensor_copy(repeated, turned(loaded(x, nl.bfloat16)).ap([[0, TILE], [1, TILE]]))
        outs = []
        for view in (
            turned(loaded(x, nl.bfloat16)).view(nl.float16),
            turned(loaded(x, nl.bfloat16)).ap([[0, TILE], [1, TILE]]).view(nl.float16),
            turned(loaded(x, nl.bfloat16))[:, 0:8].view(nl.float16),
        ):
            product = nl.ndarray((view.shape[1], TILE), nl.float32, nl.psum)
            nisa.nc_matmul(product, view, across.view(nl.float16))
            out = nl.ndarray(product.shape, nl.float32)
            nisa.tensor_copy(out, product)
            outs.append(stored(out))
        return stored(as_integers), stored(repeated), *outs

    narrow = x.bfloat16().T.contiguous()
    as_integers, repeated, *products = run(kernel, x)
    assert torch.equal(as_integers, narrow.view(torch.int16))
    assert torch.equal(repeated, narrow[:1].expand(TILE, -1))
    halves = narrow.view(torch.float16).float()
    for product, left in zip(products, (halves, halves[:1].expand(TILE, -1), halves[:, 0:8]), strict=True):
        torch.testing.assert_close(product, left.T @ halves)


def test_a_product_with_parts_of_what_was_transposed(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        tile = loaded(x)
        product = nl.ndarray((8, TILE), nl.float32, nl.psum)
        nisa.nc_matmul(product, turned(tile)[:, 0:8], tile)
        repeated = nl.ndarray((TILE, TILE), nl.float32, nl.psum)
        nisa.nc_matmul(repeated, turned(tile).ap([[0, TILE], [1, TILE]]), tile)
        outs = []
        for found in (product, repeated):
            out = nl.ndarray(found.shape, nl.float32)
            nisa.tensor_copy(out, found)
            outs.append(stored(out))
        return tuple(outs)

    product, repeated = run(kernel, x)
    torch.testing.assert_close(product, x[0:8] @ x)
    torch.testing.assert_close(repeated, x.T[:1].expand(TILE, -1).T @ x)


def test_a_source_that_is_itself_made_of_a_transpose_later(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        first, second = loaded(x), nl.ndarray((TILE, TILE), nl.float32)
        nisa.tensor_scalar(second, first, nl.add, 1.0)
        there = [nl.ndarray((TILE, TILE), nl.float32, nl.psum) for _ in range(2)]
        nisa.nc_transpose(there[0], first)
        nisa.nc_transpose(there[1], second)
        nisa.tensor_copy(first, there[1])
        out = nl.ndarray((TILE, TILE), nl.float32)
        found = stored(first)
        nisa.tensor_copy(out, there[0])
        return found, stored(out)

    first, out = run(kernel, x)
    assert torch.equal(first, (x + 1).T)
    assert torch.equal(out, x.T)


@pytest.mark.parametrize("dtype", TYPES)
def test_products_see_every_write_between_them(x: torch.Tensor, dtype: Any) -> None:
    """The tile is read as often as makes the simulator keep it in float32, then written, and read again."""

    def kernel(x: Any) -> Any:
        moving, other = loaded(x, dtype), loaded(x, dtype)
        stationary = turned(other)
        outs = []
        for step in range(6):
            for _ in range(3):
                product = nl.ndarray((TILE, TILE), nl.float32, nl.psum)
                nisa.nc_matmul(product, stationary, moving)
            out = nl.ndarray((TILE, TILE), nl.float32)
            nisa.tensor_copy(out, product)
            outs.append(stored(out))
            written = (moving, other, stationary)[step % 3]
            nisa.tensor_scalar(written[:, 0:4], written[:, 0:4], nl.add, 1.0)
        return tuple(outs)

    moving, other = (x.to(getattr(torch, dtype)) for _ in range(2))
    stationary = other.T.clone()
    moving, other = moving.clone(), other.clone()
    for step, out in enumerate(run(kernel, x)):
        torch.testing.assert_close(out, stationary.float().T @ moving.float(), rtol=1e-5, atol=1e-5)
        (moving, other, stationary)[step % 3][:, 0:4] += 1.0


def test_a_product_into_the_tile_that_was_transposed(x: torch.Tensor) -> None:
    def kernel(x: Any) -> Any:
        tile = loaded(x)
        there = nl.ndarray((TILE, TILE), nl.float32, nl.psum)
        nisa.nc_transpose(there, tile)
        across = nl.ndarray((TILE, TILE), nl.float32)
        nisa.nc_transpose(across, there)
        nisa.nc_matmul(there, across, tile)
        out = nl.ndarray((TILE, TILE), nl.float32)
        nisa.tensor_copy(out, there)
        return stored(out), stored(across)

    out, across = run(kernel, x)
    torch.testing.assert_close(out, x.T @ x)
    assert torch.equal(across, x)


class Program:
    """A random kernel over a few tiles; ``at_once`` asks for all elements after each instruction."""

    def __init__(self, seed: int, at_once: bool) -> None:
        self.seed, self.at_once = seed, at_once

    def __call__(self, x: Any) -> Any:
        choose = random.Random(self.seed)
        dtype = choose.choice(TYPES)
        width = PARTS * TILE
        sbuf = [nl.ndarray((TILE, width), dtype) for _ in range(4)]
        psum = [nl.ndarray((TILE, width), dtype, nl.psum) for _ in range(2)]
        sums = nl.ndarray((TILE, width), nl.float32, nl.psum)
        nisa.memset(sums, 0.0)
        for tile in sbuf:
            nisa.dma_copy(tile, x)
        for tile in psum:
            nisa.memset(tile, 1.0)
        for _ in range(60):
            self.step(choose, sbuf, psum, sums)
            if self.at_once:
                for tile in (*sbuf, *psum, sums):
                    assert tile.data is not None
        total = nl.ndarray((TILE, width), nl.float32)
        nisa.tensor_copy(total, sums)
        return tuple(stored(tile) for tile in (*sbuf, total))

    def step(self, choose: random.Random, sbuf: list[Any], psum: list[Any], sums: Any) -> None:
        def part(tile: Any) -> Any:
            return tile[:, nl.ds(choose.randrange(PARTS) * TILE, TILE)]

        def some(tile: Any) -> tuple[Any, Any]:
            size, step = choose.choice(((8, 8), (TILE, TILE), (TILE, TILE), (2 * TILE, 8), (PARTS * TILE, 8)))
            places = range(0, PARTS * TILE - size + 1, step)
            return nl.ds(choose.choice(places), size), nl.ds(choose.choice(places), size)

        what = choose.choice(("transpose", "transpose", "turn", "copy", "copy", "copy", "matmul", "write", "new"))
        one, other, bank = *choose.sample(range(4), 2), choose.randrange(2)
        if what == "transpose":
            nisa.nc_transpose(part(psum[bank]), part(sbuf[one]))
        elif what == "turn":
            nisa.nc_transpose(part(sbuf[one]), part(sbuf[choose.choice((one, other))]))
        elif what == "copy":
            to, of = some(sbuf[one])
            nisa.tensor_copy(sbuf[one][:, to], psum[bank][:, of])
        elif what == "matmul":
            nisa.nc_matmul(part(sums), part(sbuf[one]), part(sbuf[other]), accumulate=False)
        elif what == "write":
            to, _ = some(sbuf[one])
            nisa.tensor_scalar(sbuf[one][:, to], sbuf[one][:, to], nl.multiply, 0.5)
        else:
            fresh = nl.ndarray((TILE, PARTS * TILE), sbuf[one].dtype)
            nisa.tensor_copy(fresh, sbuf[one])
            sbuf[one] = fresh


@pytest.mark.parametrize("seed", range(40))
def test_a_random_kernel_gives_the_bits_that_it_gives_when_all_is_done_at_once(seed: int) -> None:
    x = torch.randn(TILE, PARTS * TILE, generator=torch.Generator().manual_seed(seed))
    put_off, at_once = (run(Program(seed, mode), x) for mode in (False, True))
    for found, expected in zip(put_off[:-1], at_once[:-1], strict=True):
        assert torch.equal(found, expected)
    torch.testing.assert_close(put_off[-1], at_once[-1], rtol=1e-4, atol=1e-4)
