"""Views that torch-mlir lacks, as copies of the elements that they show.

They stay views while a graph is traced: by their strides a later `reshape` is a view or a copy, and what is written
into the view afterwards shows in the one and not in the other. `passes/views.py` puts these in their place. All are
exact.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.strides import elements
from torch_neuronx_compile.structured_ops import gather_rows

aten = torch.ops.aten


def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Take the diagonal: one gather of rows and columns."""
    moved = self.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    count = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    if count == 0:
        return self.new_zeros((*moved.shape[:-2], 0))
    flat = moved.reshape((*moved.shape[:-2], rows * columns))
    first = offset if offset >= 0 else -offset * columns
    # a slice with the stride of the diagonal; no index tensor needed
    return flat[..., first : first + (count - 1) * (columns + 1) + 1 : columns + 1]


def as_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Gather from the elements in the order in which they lie in memory.

    Raises :class:`NotImplementedError` where memory may be shown that ``self`` has no elements in.
    """
    found = elements(self, size, stride, storage_offset)
    if found is None:
        raise NotImplementedError("it may show memory outside of its argument, which a graph is not given")
    order, where = found
    return self.permute(order).reshape(-1)[where.reshape(-1)].reshape(size)


def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Gather overlapping slices."""
    if self.dim() == 0:
        return self.reshape(1)[:size].clone()
    dim = dimension % self.dim()
    count = (self.shape[dim] - size) // step + 1
    first = torch.arange(count, device=self.device).unsqueeze(1) * step
    rows = gather_rows(self.movedim(dim, 0), first + torch.arange(size, device=self.device))
    return rows.movedim(1, -1).movedim(0, dim)


VIEWS: dict[OpOverload, Callable[..., Any]] = {
    aten.as_strided.default: as_strided,
    aten.diagonal.default: diagonal,
    aten.unfold.default: unfold,
}
