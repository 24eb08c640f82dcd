"""Softmax over the rows of a matrix, with the sum taken while the exponentials are computed."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def softmax(x):
    """Return the softmax of each row, in the type of ``x``; float32 inside."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in nl.affine_range(0, rows, nl.tile_size.pmax):
        size = min(nl.tile_size.pmax, rows - start)
        tile = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(start, size), :])

        minus_largest = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=minus_largest, op=nl.maximum, data=tile, axis=1, negate=True)
        powers = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total, bias=minus_largest)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=powers, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(start, size), :], src=tile)
    return out


def example():
    """What `torch-neuronx nki check` and `torch-neuronx nki cost` run."""
    import torch

    return softmax, (torch.randn(300, 1000),)


if __name__ == "__main__":
    import torch

    x = torch.randn(300, 1000, device="neuron")
    print("largest difference:", (softmax(x) - torch.softmax(x, -1)).abs().max().item())
