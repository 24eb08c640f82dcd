"""Add two matrices, a tile of 128 rows at a time."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def tensor_add(a, b):
    """Return ``a + b`` for matrices of any number of rows."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in nl.affine_range(0, rows, nl.tile_size.pmax):
        size = min(nl.tile_size.pmax, rows - start)
        left = nl.ndarray((size, columns), dtype=a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((size, columns), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[nl.ds(start, size), :])
        nisa.dma_copy(dst=right, src=b[nl.ds(start, size), :])
        nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(start, size), :], src=left)
    return out


def example():
    """What `torch-neuronx nki check` and `torch-neuronx nki cost` run."""
    import torch

    return tensor_add, (torch.randn(300, 512), torch.randn(300, 512))


if __name__ == "__main__":
    import torch

    x, y = (torch.randn(300, 512, device="neuron") for _ in range(2))
    print("largest difference:", (tensor_add(x, y) - (x + y)).abs().max().item())
