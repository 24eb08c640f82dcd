"""Sorting and what a sorted order gives: positions of ranks, medians, modes, searches."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.cumulative import scan
from torch_neuronx_compile.documented_ops import topk as documented_topk
from torch_neuronx_compile.structured_ops import gather_rows
from torch_neuronx_compile.structured_ops import sort as sort_along

aten = torch.ops.aten
Pair = tuple[Tensor, Tensor]


def sort(self: Tensor, dim: int = -1, descending: bool = False) -> Pair:
    """Decompose; always stable."""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    return sort_along(self, dim, descending)


def sort_stable(self: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Pair:
    """Decompose; always stable."""
    return sort(self, dim, descending)


def topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """Decompose into the documented call where it takes the dtype, else into the first ``k`` of the sorted order."""
    if self.dim() == 0:
        values, where = self.reshape(1)[:k], torch.zeros((k,), dtype=torch.int64, device=self.device)
        return (values.reshape(()), where.reshape(())) if k == 1 else (values, where)
    if largest and self.is_floating_point() and self.numel() and k:
        values, where = documented_topk(self.movedim(dim, -1), k)
        return values.movedim(-1, dim), where.movedim(-1, dim)
    values, where = sort(self, dim, largest)
    return values.narrow(dim, 0, k), where.narrow(dim, 0, k)


def _picked(self: Tensor, dim: int, keepdim: bool, rank: Callable[[Tensor], Tensor | int]) -> Pair:
    """Return the element of a rank along ``dim``; ``rank`` takes the sorted values."""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    values, where = sort(self, dim)
    at = rank(values)
    if isinstance(at, int):
        found = values.narrow(dim, at, 1), where.narrow(dim, at, 1)
    else:
        found = values.gather(dim, at), where.gather(dim, at)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    """Decompose into the element of a rank."""
    return _picked(self, dim, keepdim, lambda _: k - 1)


def _numbers(values: Tensor, dim: int) -> Tensor:
    """Return how many along ``dim`` are not NaN."""
    return (~values.isnan()).to(torch.int64).sum(dim, keepdim=True)


def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """Decompose: the lower of two medians, the first NaN where there is one."""

    def rank(values: Tensor) -> Tensor | int:
        extent = values.shape[dim]
        middle = (extent - 1) // 2
        if not values.is_floating_point():
            return middle
        count = _numbers(values, dim)
        return torch.where(count == extent, middle, count)

    return _picked(self, dim, keepdim, rank)


def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """Decompose: the lower median of what is not NaN."""

    def rank(values: Tensor) -> Tensor | int:
        if not values.is_floating_point():
            return (values.shape[dim] - 1) // 2
        return ((_numbers(values, dim) - 1) // 2).clamp(min=0)

    return _picked(self, dim, keepdim, rank)


def _of_all(function: Callable[[Tensor, int], Pair]) -> Callable[[Tensor], Tensor]:
    def of_all(self: Tensor) -> Tensor:
        """Decompose over the flattened tensor; NaN, the least integer or ``True`` where it is empty."""
        if self.numel() == 0:
            if self.is_floating_point():
                empty: float = float("nan")
            else:
                empty = True if self.dtype is torch.bool else torch.iinfo(self.dtype).min
            return torch.full((), empty, dtype=self.dtype, device=self.device)
        return function(self.reshape(-1), 0)[0]

    return of_all


def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    """Decompose: the longest run of the sorted order, the first of several; the position is its last element's."""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    dim %= self.dim()
    values, where = sort(self, dim)
    extent = self.shape[dim]
    place = torch.arange(extent, device=self.device).reshape([-1 if i == dim else 1 for i in range(self.dim())])
    place = place.expand(self.shape)
    same = values.narrow(dim, 1, extent - 1) == values.narrow(dim, 0, extent - 1)
    begins = torch.cat(
        [torch.zeros_like(place.narrow(dim, 0, 1)), torch.where(same, 0, place.narrow(dim, 1, extent - 1))], dim
    )
    start = scan((begins,), dim, lambda a, b: (torch.maximum(a[0], b[0]),))[0]
    # The longest run's end: the greatest length, then the smallest place. One number holds both.
    key = (place - start) * extent + (extent - 1 - place)
    at = extent - 1 - key.amax(dim, keepdim=True) % extent
    found = values.gather(dim, at), where.gather(dim, at)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def searchsorted(
    sorted_sequence: Tensor,
    self: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Decompose into a binary search: one gather for each bit of the sequence's length."""
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    right = right or side == "right"
    dtype = torch.int32 if out_int32 else torch.int64
    extent = sorted_sequence.shape[-1]
    common = torch.promote_types(sorted_sequence.dtype, self.dtype)
    sequence, values = sorted_sequence.reshape(-1).to(common), self.to(common)
    if extent == 0 or self.numel() == 0:
        return torch.zeros(self.shape, dtype=dtype, device=self.device)
    base: Tensor | int = 0
    if sorted_sequence.dim() > 1:
        base = torch.arange(sequence.numel() // extent, device=self.device) * extent
        base = base.reshape([*sorted_sequence.shape[:-1], 1])
    first = torch.zeros(self.shape, dtype=torch.int64, device=self.device)
    last = torch.full(self.shape, extent, dtype=torch.int64, device=self.device)
    for _ in range(extent.bit_length()):
        # Eager mode's steps: what it finds where NaN stops the order depends on where it looks.
        middle = (first + last) // 2
        probe = gather_rows(sequence, base + middle.clamp(max=extent - 1))
        ahead = (first < last) & ~(probe > values if right else probe >= values)
        first, last = torch.where(ahead, middle + 1, first), torch.where(ahead, last, middle)
    return first.to(dtype)


def searchsorted_scalar(sorted_sequence: Tensor, self: int | float, **options: Any) -> Tensor:
    """Decompose as :func:`searchsorted`."""
    kind = sorted_sequence.dtype if isinstance(self, float) or not sorted_sequence.is_floating_point() else None
    number = torch.full((), self, dtype=kind or torch.get_default_dtype(), device=sorted_sequence.device)
    return searchsorted(sorted_sequence, number, **options)


def bucketize(self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Decompose as :func:`searchsorted`."""
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


def bucketize_scalar(self: float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Decompose as :func:`searchsorted`."""
    return searchsorted_scalar(boundaries, self, out_int32=out_int32, right=right)


def isin(elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Decompose into a comparison of each with each."""
    if test_elements.numel() == 0:
        return torch.full(elements.shape, invert, dtype=torch.bool, device=elements.device)
    found = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return ~found if invert else found


def _extreme(
    function: Callable[..., Pair], extremes: Callable[..., Tensor], places: Callable[..., Tensor]
) -> Callable[..., Pair]:
    def extreme(self: Tensor, dim: int, keepdim: bool = False) -> Pair:
        """Decompose a scalar's ``max`` or ``min``, a mask's, and floats', of whose NaN torch-mlir takes the last."""
        if self.dim() == 0:
            return self.clone(), torch.zeros_like(self, dtype=torch.int64)
        if self.is_floating_point():
            return extremes(self, dim, keepdim), places(self, dim, keepdim)
        if self.dtype is not torch.bool:
            return NotImplemented  # type: ignore[no-any-return]
        values, where = function(self.to(torch.int32), dim, keepdim)
        return values.to(torch.bool), where

    return extreme


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.sort.default: sort,
    aten.sort.stable: sort_stable,
    aten.topk.default: topk,
    aten.kthvalue.default: kthvalue,
    aten.median.default: _of_all(median_dim),
    aten.median.dim: median_dim,
    aten.nanmedian.default: _of_all(nanmedian_dim),
    aten.nanmedian.dim: nanmedian_dim,
    aten.mode.default: mode,
    aten.searchsorted.Tensor: searchsorted,
    aten.searchsorted.Scalar: searchsorted_scalar,
    aten.bucketize.Tensor: bucketize,
    aten.bucketize.Scalar: bucketize_scalar,
    aten.isin.Tensor_Tensor: isin,
    aten.max.dim: _extreme(torch.max, torch.amax, torch.argmax),
    aten.min.dim: _extreme(torch.min, torch.amin, torch.argmin),
}
