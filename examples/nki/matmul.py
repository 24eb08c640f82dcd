"""Multiply matrices on the tensor engine: one tile at a time, then with blocks that stay in SBUF.

The engine contracts over partitions, so the left matrix comes transposed: ``lhsT`` is (K, M).
"""

import nki
import nki.isa as nisa
import nki.language as nl

TILE_K = nl.tile_size.pmax
TILE_M = nl.tile_size.gemm_stationary_fmax
TILE_N = nl.tile_size.gemm_moving_fmax


@nki.jit
def matmul_tiled(lhsT, rhs):
    """Return ``lhsT.T @ rhs``; K and M are multiples of 128, N of 512. Each product loads both of its tiles."""
    depth, height = lhsT.shape
    width = rhs.shape[1]
    out = nl.ndarray((height, width), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(height // TILE_M):
        for n in nl.affine_range(width // TILE_N):
            sums = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // TILE_K):
                left = nl.ndarray((TILE_K, TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=lhsT[nl.ds(k * TILE_K, TILE_K), nl.ds(m * TILE_M, TILE_M)])
                nisa.dma_copy(dst=right, src=rhs[nl.ds(k * TILE_K, TILE_K), nl.ds(n * TILE_N, TILE_N)])
                nisa.nc_matmul(dst=sums, stationary=left, moving=right)
            result = nl.ndarray((TILE_M, TILE_N), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=sums)
            nisa.dma_copy(dst=out[nl.ds(m * TILE_M, TILE_M), nl.ds(n * TILE_N, TILE_N)], src=result)
    return out


@nki.jit
def matmul_blocked(lhsT, rhs, tiles_in_block_m=2):
    """Return ``lhsT.T @ rhs`` as :func:`matmul_tiled` does, with each tile of ``rhs`` loaded once per block of rows.

    ``tiles_in_block_m`` row tiles of the result share it; M is a multiple of that many times 128.
    """
    depth, height = lhsT.shape
    width = rhs.shape[1]
    steps = depth // TILE_K
    block_m = tiles_in_block_m * TILE_M
    out = nl.ndarray((height, width), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for block in nl.affine_range(height // block_m):
        # all of the block's left tiles, side by side: (128, steps, block_m)
        left = nl.ndarray((TILE_K, steps, block_m), dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(steps):
            nisa.dma_copy(dst=left[:, k, :], src=lhsT[nl.ds(k * TILE_K, TILE_K), nl.ds(block * block_m, block_m)])
        for n in nl.affine_range(width // TILE_N):
            right = nl.ndarray((TILE_K, steps, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(steps):
                nisa.dma_copy(dst=right[:, k, :], src=rhs[nl.ds(k * TILE_K, TILE_K), nl.ds(n * TILE_N, TILE_N)])
            for m in nl.affine_range(tiles_in_block_m):
                sums = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(steps):
                    nisa.nc_matmul(dst=sums, stationary=left[:, k, nl.ds(m * TILE_M, TILE_M)], moving=right[:, k, :])
                result = nl.ndarray((TILE_M, TILE_N), dtype=out.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=result, src=sums)
                row = block * block_m + m * TILE_M
                nisa.dma_copy(dst=out[nl.ds(row, TILE_M), nl.ds(n * TILE_N, TILE_N)], src=result)
    return out


def example():
    """What `torch-neuronx nki check` and `torch-neuronx nki cost` run."""
    import torch

    a, b = torch.randn(512, 512, dtype=torch.bfloat16), torch.randn(512, 1024, dtype=torch.bfloat16)
    return [(matmul_tiled, (a, b)), (matmul_blocked, (a, b))]


if __name__ == "__main__":
    import torch

    a, b = torch.randn(512, 512, device="neuron"), torch.randn(512, 1024, device="neuron")
    for kernel in (matmul_tiled, matmul_blocked):
        print(kernel.__name__, "largest difference:", (kernel(a.T.contiguous(), b) - a @ b).abs().max().item())
