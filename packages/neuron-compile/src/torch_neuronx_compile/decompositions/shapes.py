"""Operators that only move elements: views that torch-mlir lacks become indexing, copies of views the view and a copy.

All are exact.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.strides import elements, laid_out

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


def diagonal_backward(grad_output: Tensor, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    """Put a gradient on the diagonal of zeros."""
    return torch.diagonal_scatter(grad_output.new_zeros(input_sizes), grad_output, offset, dim1, dim2)


def _copy_of(view: Callable[..., Any]) -> Callable[..., Any]:
    def copy(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = view(self, *args, **kwargs)
        return result.clone() if isinstance(result, Tensor) else [part.clone() for part in result]

    return copy


def as_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Gather from the elements in the order in which they lie in memory."""
    found = elements(self, size, stride, storage_offset)
    if found is None:
        return NotImplemented  # type: ignore[no-any-return]
    order, where = found
    return self.permute(order).reshape(-1)[where.reshape(-1)].reshape(size)


def resize(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """Take the first elements, with zeros after them where there are too few."""
    flat, count = self.reshape(-1), math.prod(size)
    if count > flat.numel():
        flat = torch.cat([flat, flat.new_zeros([count - flat.numel()])])
    return flat[:count].reshape(size)


def roll(self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Move elements round: two slices an axis."""
    if self.numel() == 0:
        return self.clone()
    if not dims:
        return roll(self.reshape(-1), shifts, [0]).reshape(self.shape)
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        extent = result.shape[dim]
        start = -shift % extent
        if start:
            result = torch.cat([result.narrow(dim, start, extent - start), result.narrow(dim, 0, start)], dim)
    return result if result is not self else self.clone()


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.diagonal.default: diagonal,
    aten.diagonal_backward.default: diagonal_backward,
    aten.diagonal_copy.default: _copy_of(torch.diagonal),
    aten.view_copy.default: _copy_of(aten.view.default),
    aten.view_copy.dtype: _copy_of(aten.view.dtype),
    aten.permute_copy.default: _copy_of(torch.permute),
    aten.unbind_copy.int: _copy_of(torch.unbind),
    aten.narrow_copy.default: _copy_of(torch.narrow),
    aten.as_strided_copy.default: _copy_of(torch.as_strided),
    aten.as_strided.default: as_strided,
    aten.resize.default: resize,
    torch.ops.prims.copy_strided.default: laid_out,  # what PyTorch's decomposition of lerp ends with
    aten.roll.default: roll,
}
