"""RMS normalization: each row by the root of its mean square, then by a weight per column."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def rms_norm(x, weight, eps=1e-6):
    """Return ``x * rsqrt(mean(x ** 2) + eps) * weight`` per row; ``weight`` is (1, columns)."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # one row of HBM becomes all partitions of a tile: a pattern that does not move between partitions
    scale = nl.ndarray((nl.tile_size.pmax, columns), dtype=weight.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=scale, src=weight.ap([[0, nl.tile_size.pmax], [1, columns]]))
    for start in nl.affine_range(0, rows, nl.tile_size.pmax):
        size = min(nl.tile_size.pmax, rows - start)
        tile = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(start, size), :])

        squares = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        factor = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=factor)
        nisa.tensor_scalar(dst=factor, data=factor, op0=nl.multiply, operand0=1.0 / columns, op1=nl.add, operand1=eps)
        nisa.activation(dst=factor, op=nl.rsqrt, data=factor)
        nisa.scalar_tensor_tensor(
            dst=tile, data=tile, op0=nl.multiply, operand0=factor, op1=nl.multiply, operand1=scale[0:size, :]
        )
        nisa.dma_copy(dst=out[nl.ds(start, size), :], src=tile)
    return out


def example():
    """What `torch-neuronx nki check` and `torch-neuronx nki cost` run."""
    import torch

    return rms_norm, (torch.randn(300, 768), torch.randn(1, 768))


if __name__ == "__main__":
    import torch

    x, weight = torch.randn(300, 768, device="neuron"), torch.randn(1, 768, device="neuron")
    expected = torch.nn.functional.rms_norm(x, (768,), weight[0], eps=1e-6)
    print("largest difference:", (rms_norm(x, weight) - expected).abs().max().item())
