"""The first dialect: index arrays, masks, blocks, assignment, instructions by value."""

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
import torch
from neuronxcc import nki as named
from neuronxcc.nki.typing import tensor

from torch_neuronx_nki import NkiLaunchError, NkiValidationError


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("device", ["cpu", "neuron"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_cut_the_last_tile(device: str, dtype: torch.dtype) -> None:
    @nki.jit
    def add(a: tensor[300, 64], b: Any) -> Any:
        rows, columns = a.shape
        out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
        for start in nl.affine_range((rows + 127) // 128):
            i_p = start * 128 + nl.arange(128)[:, None]
            i_f = nl.arange(columns)[None, :]
            mask = i_p < rows
            left = nl.load(a[i_p, i_f], mask=mask)
            right = nl.load(b[i_p, i_f], mask=mask)
            nl.store(out[i_p, i_f], value=left + right, mask=mask)
        return out

    a, b = random(300, 64, dtype=dtype).to(device), random(300, 64, dtype=dtype, seed=1).to(device)
    assert torch.equal(add(a, b), a + b)
    assert torch.equal(nki.simulate_kernel(add, a, b), a + b)


def test_grids_move_dimensions() -> None:
    @nki.jit
    def transpose_free(x: Any, rows: int, columns: int) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile, result = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype)
        i_p, i_1, i_2 = nl.mgrid[0 : x.shape[0], 0:rows, 0:columns]
        result[i_p, i_2 * rows + i_1] = nl.copy(tile[i_p, i_1 * columns + i_2])
        nl.store(out, result)
        return out

    x = random(4, 12)
    assert torch.equal(transpose_free(x, 3, 4), x.reshape(4, 3, 4).transpose(1, 2).reshape(4, 12))
    assert named is nki
    grid = nl.mgrid[0:4, 0:2, 0:3, 0:5]
    assert [part.numel() for part in (grid.p, grid.x, grid.y, grid.z)] == [4, 2, 3, 5]


def test_blocks_and_products_that_add_up() -> None:
    @nki.jit
    def matmul(lhsT: Any, rhs: Any) -> Any:
        depth, height = lhsT.shape
        width = rhs.shape[1]
        out = nl.ndarray((height, width), dtype=lhsT.dtype, buffer=nl.shared_hbm)
        blocks = nl.ndarray((depth // 128, nl.par_dim(128), width), dtype=rhs.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(depth // 128):
            blocks[k] = nl.load(rhs[nl.ds(k * 128, 128), :])
        total = nl.zeros((nl.par_dim(height), width), nl.float32, buffer=nl.psum)
        first = nl.ndarray((2, nl.par_dim(height), width), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(depth // 128):
            left = nl.load(lhsT[k * 128 : (k + 1) * 128, :])
            total += nisa.nc_matmul(left, blocks[k])
            first[1, :, :] += nisa.nc_matmul(left, blocks[k])  # the first one overwrites what is there
        half = nisa.tensor_copy(first[1], dtype=nl.float32) * 0.5
        nl.store(out, value=nisa.tensor_copy(total, dtype=nl.float32) * 0.5 + half)
        return out

    a, b = random(256, 64), random(256, 96, seed=1)
    torch.testing.assert_close(matmul(a, b), a.T @ b, rtol=1e-4, atol=1e-4)


def test_softmax_by_value() -> None:
    @nki.jit
    def softmax(x: Any) -> Any:
        out, again = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        tile = nl.load(x)
        largest = nl.max(tile, axis=1, keepdims=True)
        powers = nisa.activation(np.exp, tile, bias=nl.negative(largest), dtype=nl.float32)
        total = nl.ndarray((x.shape[0], 1), dtype=nl.float32)
        nisa.activation_reduce(np.exp, tile, reduce_op=np.add, reduce_res=total, bias=largest * -1.0)
        nl.store(out, nisa.tensor_scalar(powers, np.multiply, nisa.reciprocal(total)))
        nl.store(again, nl.softmax(tile, axis=1))
        return out, again

    x = random(32, 40)
    for got in softmax(x):
        torch.testing.assert_close(got, torch.softmax(x, 1))


def test_reductions_leave_out_what_a_mask_does() -> None:
    @nki.jit
    def reduce(x: Any) -> Any:
        out = nl.ndarray((x.shape[0], 4), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        mask = (nl.arange(8)[None, :] < 5) & (nl.arange(x.shape[0])[:, None] >= 0)
        out[:, 0:1] = nl.max(tile, axis=1, mask=mask)
        out[:, 1:2] = nl.sum(tile, axis=[1], mask=mask)
        out[:, 2:3] = nisa.tensor_reduce(np.min, tile, axis=1, negate=True)
        out[:, 3:4] = nl.mean(tile, axis=1)
        return out

    x = random(16, 8)
    got = reduce(x)
    expected = [x[:, :5].amax(1), x[:, :5].sum(1), -x.amin(1), x.mean(1)]
    torch.testing.assert_close(got, torch.stack(expected, 1))


def test_other_instructions() -> None:
    @nki.jit
    def kernel(a: Any, b: Any) -> Any:
        out = nl.ndarray((10, *a.shape), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        out[0] = nisa.tensor_tensor(x, y, op=np.subtract)
        out[1] = nisa.scalar_tensor_tensor(data=x, op0=np.multiply, operand0=2.0, op1=np.add, operand1=y)
        out[2] = nisa.tensor_tensor_scan(x, y, initial=0, op0=np.multiply, op1=np.add)
        total = nl.ndarray((a.shape[0], 1), dtype=nl.float32)
        out[3] = nisa.tensor_scalar_reduce(
            data=x, op0=np.add, operand0=1.0, reduce_op=np.max, reduce_res=total
        ) + total.broadcast_to(x.shape)
        i_p, i_f = nl.mgrid[0 : a.shape[0], 0 : a.shape[1]]
        out[4] = nisa.affine_select(pred=i_p > i_f, on_true_tile=x, on_false_value=-9.0)
        out[5] = nl.where(nl.greater(x, 0.0), x, 0.5)
        out[6] = nl.transpose(nl.transpose(x)) / 2.0
        out[7] = nisa.iota(i_p * 10 + i_f, dtype=nl.int32)
        out[8] = nl.matmul(nl.transpose(x), x)[0:1, 0:1].broadcast_to(x.shape)
        out[9] = x / y
        return out

    a, b = random(8, 8), random(8, 8, seed=1)
    got = kernel(a, b)
    torch.testing.assert_close(got[0], a - b)
    torch.testing.assert_close(got[1], a * 2 + b)
    state, columns = torch.zeros(8), []
    for i in range(8):
        state = a[:, i] * state + b[:, i]
        columns.append(state)
    torch.testing.assert_close(got[2], torch.stack(columns, 1))
    torch.testing.assert_close(got[3], a + 1 + (a + 1).amax(1, keepdim=True))
    row, column = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    torch.testing.assert_close(got[4], torch.where(row > column, a, -9.0))
    torch.testing.assert_close(got[5], torch.where(a > 0, a, 0.5))
    torch.testing.assert_close(got[6], a / 2)
    torch.testing.assert_close(got[7], (row * 10 + column).float())
    torch.testing.assert_close(got[8], (a.T @ a)[0, 0].expand(8, 8))
    torch.testing.assert_close(got[9], a / b)


def test_updates_are_in_place() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        also = tile
        also += 1.0
        also *= 2.0
        also -= tile * 0.5
        tile[0:2, nl.ds(0, 3)] += 10.0
        i_p, i_f = nl.mgrid[0:2, 0:3]
        tile[i_p + 2, i_f] += 20.0
        nl.store(out, tile)
        return out

    x = random(4, 3)
    expected = x + 1
    expected[:2] += 10
    expected[2:] += 20
    torch.testing.assert_close(kernel(x), expected)


def test_grids_of_programs() -> None:
    @nki.jit
    def add_one(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows, columns = (x.shape[axis] // nl.num_programs(axis) for axis in range(2))
        i_p = nl.program_id(0) * rows + nl.arange(rows)[:, None]
        i_f = nl.program_id(1) * columns + nl.arange(columns)[None, :]
        nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]) + float(nl.program_ndim()))
        return out

    x = random(8, 12)
    assert torch.equal(add_one[2, 3](x), x + 2)
    assert torch.equal(add_one[nl.spmd_dim(4, nl.nc(2)), 1](x), x + 2)


def test_hints_to_the_compiler_change_nothing() -> None:
    @nki.jit
    @ncc.skip_middle_end_transformations
    @ncc.enable_stack_allocator(log_level=10)
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=ncc.sbuf.alloc(lambda index: (0, 0)))
        tile[...] = nl.load(x)
        nl.store(out, tile)
        return out

    x = random(4, 4)
    assert torch.equal(kernel(x), x)


def test_what_is_refused() -> None:
    x = random(4, 4)
    with pytest.raises(NkiLaunchError, match="measures on a chip"):
        nki.benchmark(warmup=1)(lambda y: y)(x)
    with pytest.raises(NkiValidationError) as caught:
        nki.jit(lambda y: nl.load(y))(x)
    assert caught.value.rule == "output-buffer"
    with pytest.raises(NkiLaunchError, match="needs data"):
        nki.jit(lambda y: y)(torch.empty(2, 2, device="meta"))

    @nki.jit
    def beyond(y: Any) -> None:
        y[nl.arange(5)[:, None], nl.arange(4)[None, :]] = 1.0

    with pytest.raises(IndexError, match="Pass a mask"):
        beyond(x)

    @nki.baremetal
    def unknown(y: Any) -> None:
        nisa.activation(np.median, nl.load(y))

    with pytest.raises(TypeError, match="no operator"):
        unknown(x)
