"""Positions of elements: affine patterns, and indices that data holds."""

import torch

from torch_neuronx_nki.dtypes import Codec
from torch_neuronx_nki.machine import violation
from torch_neuronx_nki.simulator.arithmetic import save_integers

GROUP = 16
"""Partitions that share indices in a local gather."""


def affine(pattern: tuple[tuple[int, int], ...], partitions: int, channel_multiplier: int) -> torch.Tensor:
    """Return ``p * channel_multiplier + sum(step * index)`` as int64, (partitions, elements)."""
    values = torch.zeros(1, dtype=torch.long)
    for step, count in pattern:
        values = (values[:, None] + torch.arange(count) * step).reshape(-1)
    return torch.arange(partitions)[:, None] * channel_multiplier + values


def save_int32(out: torch.Tensor, values: torch.Tensor, codec: Codec) -> None:
    """Write int32 values: exactly to 32-bit integers, else through float32."""
    wrapped = ((values + 2**31) % 2**32) - 2**31
    if codec.dtype.is_integer and codec.dtype.itemsize == 4:
        save_integers(out, wrapped, codec)
    else:
        codec.save(out, wrapped.float())


def checked(index: torch.Tensor, size: int, opcode: str) -> torch.Tensor:
    """Return ``index`` if all of it is inside of ``size`` elements."""
    outside = (index < 0) | (index >= size)
    if bool(outside.any()):
        worst = int(index[outside][0])
        raise violation(
            "index-bounds",
            f"nisa.{opcode}: index {worst} of {size} elements",
            limit=size,
            actual=worst,
            advice="Check what the index tensor holds.",
        )
    return index


def of_groups(index: torch.Tensor, valid: int, each: int) -> torch.Tensor:
    """Return the element positions of indices that 16 partitions share, (partitions, valid * each)."""
    rows = []
    for start in range(0, index.shape[0], GROUP):
        flat = index[start : start + GROUP].T.reshape(-1)[:valid]
        elements = (flat[:, None] * each + torch.arange(each)).reshape(-1)
        rows.append(elements.expand(min(GROUP, index.shape[0] - start), -1))
    return torch.cat(rows)
