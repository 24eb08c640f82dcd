"""Operators that only move elements; copies of views become the view and a copy.

All are exact.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.strides import laid_out

aten = torch.ops.aten


def diagonal_backward(grad_output: Tensor, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    """Put a gradient on the diagonal of zeros."""
    return torch.diagonal_scatter(grad_output.new_zeros(input_sizes), grad_output, offset, dim1, dim2)


def _copy_of(view: Callable[..., Any]) -> Callable[..., Any]:
    def copy(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = view(self, *args, **kwargs)
        return result.clone() if isinstance(result, Tensor) else [part.clone() for part in result]

    return copy


def resize(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """Take the first elements, with zeros after them where there are too few."""
    flat, count = self.reshape(-1), math.prod(size)
    if count > flat.numel():
        flat = torch.cat([flat, flat.new_zeros([count - flat.numel()])])
    return flat[:count].reshape(size)


def roll(self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Move elements round: two slices an axis."""
    if self.numel() == 0:
        return self
    if not dims:
        return roll(self.reshape(-1), shifts, [0]).reshape(self.shape)
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        extent = result.shape[dim]
        start = -shift % extent
        if start:
            result = torch.cat([result.narrow(dim, start, extent - start), result.narrow(dim, 0, start)], dim)
    return result


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.diagonal_backward.default: diagonal_backward,
    aten.diagonal_copy.default: _copy_of(torch.diagonal),
    aten.view_copy.default: _copy_of(aten.view.default),
    aten.view_copy.dtype: _copy_of(aten.view.dtype),
    aten.permute_copy.default: _copy_of(torch.permute),
    aten.unbind_copy.int: _copy_of(torch.unbind),
    aten.narrow_copy.default: _copy_of(torch.narrow),
    aten.as_strided_copy.default: _copy_of(torch.as_strided),
    aten.resize.default: resize,
    torch.ops.prims.copy_strided.default: laid_out,  # what PyTorch's decomposition of lerp ends with
    aten.roll.default: roll,
}
