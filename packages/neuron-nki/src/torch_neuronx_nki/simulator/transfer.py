"""What DMA moves: rows that an index names, casts through float32, sums of sources."""

from typing import Any

import torch

from torch_neuronx_nki.dtypes import Codec
from torch_neuronx_nki.engines import OobMode
from torch_neuronx_nki.machine import violation
from torch_neuronx_nki.tensors import NkiTensor, RowOffsets


class Rows:
    """The rows of a view in HBM that an index per partition names."""

    def __init__(self, view: NkiTensor, oob_mode: OobMode, opcode: str) -> None:
        offsets = view.indirection
        assert isinstance(offsets, RowOffsets)
        memory = view.memory
        total = memory.row * (memory.shape[0] if memory.shape else 1)
        total = total * memory.codec.dtype.itemsize // view.dtype.itemsize
        reach = sum(stride * (count - 1) for stride, count in zip(view.strides[1:], view.shape[1:], strict=True))
        count = max((total - 1 - view.offset - reach) // offsets.scale + 1, 0)
        index = offsets.index
        self.index = (index.data if index.dtype.is_integer else index.codec.load(index.data)).reshape(-1).long()
        self.inside = (self.index >= 0) & (self.index < count)
        if self.index.shape[0] != view.shape[0]:
            raise violation(
                "shape-match",
                f"nisa.{opcode}: {self.index.shape[0]} indices for {view.shape[0]} rows",
                limit=view.shape[0],
                actual=self.index.shape[0],
                advice="Give one index for each row of the pattern.",
            )
        if oob_mode == OobMode.error and not bool(self.inside.all()):
            worst = self.index[~self.inside][0].item()
            raise violation(
                "dma-indirect",
                f"nisa.{opcode}: row index {worst} of a tensor of {count} rows",
                limit=count,
                actual=worst,
                advice="Keep indices inside, or pass oob_mode=oob_mode.skip.",
            )
        flat = memory.flat_as(view.codec.carrier)
        start = flat.storage_offset() + view.offset
        self.rows = torch.as_strided(flat, (count, *view.shape[1:]), (offsets.scale, *view.strides[1:]), start)

    def gather(self) -> torch.Tensor:
        """Return the rows; those that are outside have the content of row 0."""
        return self.rows[torch.where(self.inside, self.index, 0)]

    def scatter(self, values: torch.Tensor) -> None:
        """Write rows in order, so that the last of those with one index stays; those outside are left out."""
        kept = values[self.inside]
        for position, row in enumerate(self.index[self.inside].tolist()):
            self.rows[row].copy_(kept[position])


def read(view: NkiTensor, oob_mode: OobMode, opcode: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the elements of ``view``, and which rows of it are inside of the tensor (None: all)."""
    if isinstance(view.indirection, RowOffsets):
        rows = Rows(view, oob_mode, opcode)
        return rows.gather(), rows.inside
    return view.data, None


def write(view: NkiTensor, values: torch.Tensor, inside: torch.Tensor | None, oob_mode: OobMode, opcode: str) -> None:
    """Write carrier elements to ``view``; only rows that are ``inside``, where that is given."""
    if isinstance(view.indirection, RowOffsets):
        rows = Rows(view, oob_mode, opcode)
        if inside is not None:
            rows.inside &= inside
        rows.scatter(values.reshape(view.shape))
        return
    data = view.data
    if inside is None:
        data.copy_(values.reshape(view.shape))
        return
    shaped = values.reshape(inside.shape[0], -1)
    before = data.reshape(inside.shape[0], -1)
    data.copy_(torch.where(inside[:, None], shaped, before).reshape(view.shape))


def converted(values: torch.Tensor, source: Codec, target: Codec) -> torch.Tensor:
    """Return elements of ``source`` as elements of ``target``: the bits within a type, through float32 otherwise."""
    if source is target or (source.dtype == target.dtype and source.carrier is target.carrier):
        return values
    out = torch.empty(values.shape, dtype=target.carrier)
    target.save(out, source.load(values))
    return out


def transposed(values: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """Return ``values`` with its dimensions in the order ``axes``."""
    return values.permute(axes)


def total(sources: list[tuple[torch.Tensor, Codec]], shape: Any) -> torch.Tensor:
    """Return the float32 sum of ``sources``, the first first."""
    result = sources[0][1].load(sources[0][0]).reshape(shape).clone()
    for values, codec in sources[1:]:
        result += codec.load(values).reshape(shape)
    return result
