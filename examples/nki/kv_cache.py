"""Write new keys or values into a cache, in place, at rows that a tensor names."""

import nki
import nki.isa as nisa
import nki.language as nl
import torch

from torch_neuronx import nki_op


@nki.jit
def scatter_rows(cache, new, slots):
    """Write row ``i`` of ``new`` to row ``slots[i]`` of ``cache``; a slot outside of it is left out.

    ``cache`` is (rows, width), ``new`` (count, width) and ``slots`` (count, 1) in int32.
    """
    count, width = new.shape
    for start in nl.affine_range(0, count, nl.tile_size.pmax):
        size = min(nl.tile_size.pmax, count - start)
        rows = nl.ndarray((size, width), dtype=cache.dtype, buffer=nl.sbuf)
        index = nl.ndarray((size, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=new[nl.ds(start, size), :])
        nisa.dma_copy(dst=index, src=slots[nl.ds(start, size), :])
        nisa.dma_copy(
            dst=cache.ap([[width, size], [1, width]], vector_offset=index),
            src=rows,
            oob_mode=nisa.oob_mode.skip,
        )


@nki_op("nki_examples::update_cache", mutates_args=("keys", "values"))
def update_cache(
    keys: torch.Tensor, values: torch.Tensor, new_keys: torch.Tensor, new_values: torch.Tensor, slots: torch.Tensor
) -> None:
    """Write new keys and values to their slots; negative slots, as padding has, are left out."""
    scatter_rows(keys, new_keys, slots)
    scatter_rows(values, new_values, slots)


def example():
    """What `torch-neuronx nki check` and `torch-neuronx nki cost` run."""
    slots = torch.tensor([[5], [-1], [1000]], dtype=torch.int32)
    return scatter_rows, (torch.zeros(1024, 128), torch.randn(3, 128), slots)


if __name__ == "__main__":
    keys, values = (torch.zeros(1024, 128, device="neuron") for _ in range(2))
    new = torch.randn(3, 128, device="neuron")
    slots = torch.tensor([[5], [-1], [1000]], dtype=torch.int32, device="neuron")
    update_cache(keys, values, new, 2 * new, slots)
    print("rows written:", keys.abs().sum(1).nonzero().flatten().tolist())
