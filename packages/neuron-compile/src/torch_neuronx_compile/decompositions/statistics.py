"""Histograms, reductions by segment, and reductions of scalars, at which torch-mlir aborts."""

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.narrow_floats import NARROW
from torch_neuronx_compile.decompositions.sorting import searchsorted
from torch_neuronx_compile.structured_ops import MAXIMUM, MINIMUM, PRODUCT, SUM, gather_rows, scatter_rows

aten = torch.ops.aten
Pair = tuple[Tensor, Tensor]


def _limits(self: Tensor, low: float, high: float) -> Pair:
    """Return the outer edges of ``histc``: those given, else the data's extremes, moved apart where they are equal."""
    if low != high:
        return self.new_full((), low), self.new_full((), high)
    if self.numel() == 0:
        return self.new_full((), low - 1.0), self.new_full((), high + 1.0)
    return _apart(self.min(), self.max(), 1.0)


def _outer_edges(self: Tensor, range: Sequence[float] | None) -> Pair:
    """Return the outer edges of ``histogram``: those given, else the data's, or 0 and 1 without data."""
    if range is None and self.numel() > 0:
        return _apart(self.min(), self.max(), 0.5)
    low, high = (0.0, 1.0) if range is None else range
    widening = 0.5 if low == high else 0.0
    return self.new_full((), low - widening), self.new_full((), high + widening)


def _apart(first: Tensor, last: Tensor, widening: float) -> Pair:
    same = first == last
    return torch.where(same, first - widening, first), torch.where(same, last + widening, last)


def _count(place: Tensor, bins: int, inside: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Sum the weights, or ones, of what is inside by bin."""
    values = torch.ones_like(place, dtype=dtype) if weight is None else weight.reshape(-1).to(dtype)
    zeros = torch.zeros([bins], dtype=dtype, device=place.device)
    return scatter_rows(zeros, torch.where(inside, place, bins), values, SUM)


def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Decompose; the bin comes from the distance to the lowest edge, as on the CPU."""
    flat = self.reshape(-1)
    low, high = _limits(flat, min, max)
    place = ((flat - low) / (high - low) * bins).to(torch.int64).clamp(0, bins - 1)
    return _count(place, bins, (flat >= low) & (flat <= high), None, self.dtype)


def _edges(low: Tensor, high: Tensor, bins: int) -> Tensor:
    """Return equally spaced edges, computed from the nearer end as ``linspace`` does."""
    step = (high - low) / bins
    place = torch.arange(bins + 1, device=low.device).to(low.dtype)
    return torch.where(place < (bins + 1) // 2, low + step * place, high - step * (bins - place))


def _histogram(self: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> Tensor:
    flat, bins = self.reshape(-1), edges.shape[0] - 1
    place = searchsorted(edges, flat, right=True) - 1
    place = torch.where(flat == edges[-1], bins - 1, place)
    counts = _count(place, bins, (flat >= edges[0]) & (flat <= edges[-1]), weight, self.dtype)
    return counts / counts.sum() / (edges[1:] - edges[:-1]) if density else counts


def histogram(
    self: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Pair:
    """Decompose into a search among equally spaced edges."""
    edges = _edges(*_outer_edges(self.reshape(-1), range), bins)
    return _histogram(self, edges, weight, density), edges


def histogram_of_edges(self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Pair:
    """Decompose into a search among the edges."""
    return _histogram(self, bins, weight, density), bins.clone()


def _bin_edges(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    """Decompose: equally spaced edges for every column."""
    columns = self.reshape(-1, self.shape[-1])
    edges = []
    for i, count in enumerate(bins):
        given = None if range is None else range[2 * i : 2 * i + 2]
        edges.append(_edges(*_outer_edges(columns[:, i], given), count))
    return edges


def _histogramdd(self: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    columns = self.reshape(-1, self.shape[-1])
    shape = [edge.shape[0] - 1 for edge in edges]
    place = torch.zeros([columns.shape[0]], dtype=torch.int64, device=self.device)
    inside = torch.ones_like(place, dtype=torch.bool)
    total = 1
    for i, edge in enumerate(edges):
        column = columns[:, i]
        found = torch.where(column == edge[-1], shape[i] - 1, searchsorted(edge, column, right=True) - 1)
        place, total = place * shape[i] + found, total * shape[i]
        inside = inside & (column >= edge[0]) & (column <= edge[-1])
    counts = _count(place, total, inside, weight, self.dtype).reshape(shape)
    if density:
        counts = counts / counts.sum()
        for i, edge in enumerate(edges):
            counts = counts / (edge[1:] - edge[:-1]).reshape([-1 if i == j else 1 for j in builtins.range(len(shape))])
    return counts


def histogramdd_of_counts(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    """Decompose into one search for every column."""
    return _histogramdd(self, _bin_edges(self, bins, range=range), weight, density)


def histogramdd_of_edges(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """Decompose into one search for every column."""
    return _histogramdd(self, bins, weight, density)


_SEGMENT = {"sum": SUM, "mean": SUM, "prod": PRODUCT, "max": MAXIMUM, "min": MINIMUM}
_INITIAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _segments(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> tuple[Tensor, Tensor, int]:
    """Return where in the rows of all segments each element along ``axis`` goes, the lengths, and how many rows."""
    if offsets is None:
        assert lengths is not None
        ends = torch.cumsum(lengths.to(torch.int64), axis)
    else:
        offsets = offsets.to(torch.int64)
        ends = offsets.narrow(axis, 1, offsets.shape[axis] - 1)
        lengths = ends - offsets.narrow(axis, 0, offsets.shape[axis] - 1)
    segments, extent = ends.shape[axis], data.shape[axis]
    place = torch.arange(extent, device=data.device)
    segment = (place.unsqueeze(1) >= ends.unsqueeze(-2)).to(torch.int64).sum(-1)  # [..., extent]
    leading = ends.numel() // max(segments, 1)
    block = torch.arange(leading, device=data.device).reshape([*ends.shape[:-1], 1])
    rows = torch.where(segment < segments, block * segments + segment, -1)
    return rows, lengths.to(torch.int64), leading * segments


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Decompose into a scatter by segment; an empty one holds the reduction's identity, its mean is NaN."""
    rows, sizes, count = _segments(data, lengths, offsets, axis)
    rest = list(data.shape[axis + 1 :])
    start = _INITIAL[reduce] if initial is None else initial
    base = data.new_full([count, *rest], start)
    found = scatter_rows(base, rows.reshape(-1), data.reshape([-1, *rest]), _SEGMENT[reduce])
    found = found.reshape([*data.shape[:axis], sizes.shape[axis], *rest])
    if reduce == "mean":
        size = sizes.reshape([*sizes.shape, *[1] * len(rest)])
        if initial is None:
            found = torch.where(size > 0, found / size.clamp(min=1), float("nan"))
        else:
            found = torch.where(size > 0, found / size.clamp(min=1), found)
    return found


def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Tensor:
    """Decompose into gathers of each element's segment; maxima share the gradient equally."""
    rows, sizes, count = _segments(data, lengths, offsets, axis)
    rest = list(data.shape[axis + 1 :])
    rows = rows.reshape(-1)
    flat = data.reshape([-1, *rest])
    outside = (rows >= 0).reshape([-1, *[1] * len(rest)])

    def of_segment(values: Tensor) -> Tensor:
        return gather_rows(values.reshape([count, *values.shape[axis + 1 :]]), rows)

    share = of_segment(grad)
    if reduce == "mean":
        size = of_segment(sizes).clamp(min=1)
        share = share / size.reshape([-1, *[1] * len(rest)])
    elif reduce == "prod":
        zero = flat == 0
        without = torch.where(zero, 1.0, flat)
        start = 1.0 if initial is None else initial
        others = scatter_rows(data.new_full([count, *rest], start), rows, without, PRODUCT)
        zeros = scatter_rows(data.new_zeros([count, *rest]), rows, zero.to(data.dtype), SUM)
        zeros = gather_rows(zeros, rows) - zero.to(data.dtype)
        share = torch.where(zeros > 0, 0.0, share * gather_rows(others, rows) / without)
    elif reduce in ("max", "min"):
        chosen = ((flat == of_segment(output)) | flat.isnan()).to(data.dtype)
        several = scatter_rows(data.new_zeros([count, *rest]), rows, chosen, SUM)
        share = share * chosen / gather_rows(several, rows).clamp(min=1)
    return torch.where(outside, share, 0.0).reshape(data.shape)


def _extreme(of_bools: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def decompose(self: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
        """Decompose a scalar's extreme, and that of bools; for other tensors torch-mlir has a conversion."""
        if self.dim() == 0:
            return self.clone()
        if self.dtype is torch.bool:  # numbers of one bit with a sign to torch-mlir: True is the smaller
            return of_bools(self, tuple(dim) or tuple(range(self.dim())), keepdim)
        return NotImplemented  # type: ignore[no-any-return]

    return decompose


def sum_of_scalar(
    self: Tensor, dim: Sequence[int] | int | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Decompose a scalar's sum, mean or product; for other tensors torch-mlir has a conversion."""
    if self.dim() != 0:
        return NotImplemented  # type: ignore[no-any-return]
    whole = not (self.is_floating_point() or self.is_complex())
    return self.to(dtype or (torch.int64 if whole else self.dtype), copy=True)


def all_dim(self: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Decompose: whether none is false."""
    return _as_asked(~any_dim(self == 0, dim, keepdim), self)


def any_dim(self: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Decompose: the sum of what is true; torch-mlir converts no ``dim`` of a tensor without dimensions."""
    if self.dim() == 0:
        return _as_asked(self != 0, self)
    return _as_asked(torch.sum((self != 0).to(torch.int32), dim, keepdim) != 0, self)


def _as_asked(found: Tensor, self: Tensor) -> Tensor:
    return found.to(torch.uint8) if self.dtype is torch.uint8 else found


def all_dims(self: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Decompose into one reduction for each dimension; none of them where ``dim`` is empty."""
    axes = list(builtins.range(self.dim())) if dim is None else list(dim)
    found = self != 0
    if self.dim() != 0:
        for axis in axes:
            found = found.all(axis, keepdim=True)
        found = found if keepdim or not axes else found.squeeze(axes)
    return _as_asked(found, self)


def _of_bytes(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduction(self: Tensor, *arguments: Any, **named: Any) -> Tensor:
        """Decompose ``any`` and ``all`` of uint8, which torch-mlir takes for a sum of bits; it converts others."""
        if self.dtype is not torch.uint8:
            return NotImplemented  # type: ignore[no-any-return]
        return operator(self != 0, *arguments, **named).to(torch.uint8)

    return reduction


def mean(
    self: Tensor, dim: Sequence[int] | int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Decompose a scalar's mean, and that of narrow floats: their sum may be beyond what the dtype holds."""
    if self.dim() == 0:
        return sum_of_scalar(self, dim, keepdim, dtype=dtype)
    kind = dtype or self.dtype
    axes = list(dim) if isinstance(dim, Sequence) else dim
    return self.to(torch.float32).mean(axes, keepdim).to(kind) if kind in NARROW else NotImplemented


def mean_of_all(self: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Decompose as :func:`mean`."""
    return mean(self, None, dtype=dtype)


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.all.default: _of_bytes(torch.all),
    aten.all.dim: all_dim,
    aten.all.dims: all_dims,
    aten.any.default: _of_bytes(torch.any),
    aten.any.dim: any_dim,
    aten.any.dims: _of_bytes(torch.any),
    aten.amax.default: _extreme(torch.any),
    aten.amin.default: _extreme(torch.all),
    aten.max.default: _extreme(torch.any),
    aten.min.default: _extreme(torch.all),
    aten.sum.dim_IntList: sum_of_scalar,
    aten.mean.default: mean_of_all,
    aten.mean.dim: mean,
    aten.prod.dim_int: sum_of_scalar,
    aten.histc.default: histc,
    aten.histogram.bin_ct: histogram,
    aten.histogram.bins_tensor: histogram_of_edges,
    aten._histogramdd_bin_edges.default: _bin_edges,
    aten._histogramdd_from_bin_cts.default: histogramdd_of_counts,
    aten._histogramdd_from_bin_tensors.default: histogramdd_of_edges,
    aten.segment_reduce.default: segment_reduce,
    aten._segment_reduce_backward.default: segment_reduce_backward,
}
