"""Indexing, gathering and scattering as gathers and scatters of rows, for every rank and dtype.

What torch's own table already expresses by ``index`` and ``index_put`` stays there. Additions to one place happen in
the tensor's own dtype, one after the other, as on the CPU.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.strides import elements
from torch_neuronx_compile.decompositions.views import unfold
from torch_neuronx_compile.memory_order import inverse
from torch_neuronx_compile.structured_ops import (
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    REPLACE,
    SUM,
    gather_rows,
    identity,
    scatter_rows,
)

aten = torch.ops.aten
Scalar = int | float | bool | complex
_REDUCTIONS = {
    "sum": SUM, "add": SUM, "mean": SUM, "prod": PRODUCT, "multiply": PRODUCT, "amax": MAXIMUM, "amin": MINIMUM,
}  # fmt: skip


def wrap(index: Tensor, extent: int) -> Tensor:
    """Return int64 positions, negative ones counted from the end."""
    index = index.to(torch.int64)
    return torch.where(index < 0, index + extent, index)


def positions(shape: Sequence[int], dim: int, index: Tensor) -> Tensor:
    """Return where in a flattened tensor of ``shape`` the elements are that ``index`` selects along ``dim``."""
    stride = 1
    found: Tensor | None = None
    for axis in reversed(range(len(shape))):
        if axis == dim:
            along = index
        else:
            along = torch.arange(index.shape[axis], device=index.device)
            along = along.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        along = along * stride if stride != 1 else along
        found = along if found is None else found + along
        stride *= shape[axis]
    assert found is not None
    return found.expand(index.shape)


class _Selection:
    """Which rows of a tensor an advanced index means, once the indexed dimensions come first."""

    def __init__(self, self_: Tensor, indices: Sequence[Tensor | None]) -> None:
        self.dims = [dim for dim, index in enumerate(indices) if index is not None]
        given = [index for index in indices if index is not None]
        found = torch.broadcast_tensors(  # type: ignore[no-untyped-call]
            *(wrap(index, self_.shape[d]) for index, d in zip(given, self.dims, strict=True))
        )
        self.order = [*self.dims, *(dim for dim in range(self_.dim()) if dim not in self.dims)]
        self.indexed = [self_.shape[dim] for dim in self.dims]
        self.rest = [self_.shape[dim] for dim in self.order[len(self.dims) :]]
        self.batch = list(found[0].shape)
        rows = found[0]
        for index, extent in zip(found[1:], self.indexed[1:], strict=True):
            rows = rows * extent + index
        self.rows = rows
        adjacent = self.dims == list(range(self.dims[0], self.dims[-1] + 1))
        self.first = self.dims[0] if adjacent else 0
        """Where the index's own dimensions are in the result."""

    def to_rows(self, tensor: Tensor) -> Tensor:
        return tensor.permute(self.order).reshape([prod(self.indexed), *self.rest])

    def from_rows(self, rows: Tensor) -> Tensor:
        back = [self.order.index(dim) for dim in range(len(self.order))]
        return rows.reshape([*self.indexed, *self.rest]).permute(back)

    def to_result(self, gathered: Tensor) -> Tensor:
        count = len(self.batch)
        return gathered.movedim(list(range(count)), list(range(self.first, self.first + count))) if count else gathered

    def from_result(self, values: Tensor) -> Tensor:
        count = len(self.batch)
        shape = [*self.rest[: self.first], *self.batch, *self.rest[self.first :]]
        values = values.expand(shape)
        return values.movedim(list(range(self.first, self.first + count)), list(range(count))) if count else values


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Decompose an advanced index by integers; by masks its shape depends on data, and it stays."""
    if _has_mask(indices) or all(index is None for index in indices):
        return NotImplemented  # type: ignore[no-any-return]
    selection = _Selection(self, indices)
    return selection.to_result(gather_rows(selection.to_rows(self), selection.rows))


def index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Decompose into a scatter; one mask with a value for every place into a selection."""
    if all(index is None for index in indices):
        return NotImplemented  # type: ignore[no-any-return]
    values = values.to(self.dtype)
    if _has_mask(indices):
        return _put_by_mask(self, indices, values, accumulate)
    selection = _Selection(self, indices)
    source = selection.from_result(values).reshape([prod(selection.batch), *selection.rest])
    rows = scatter_rows(selection.to_rows(self), selection.rows.reshape(-1), source, SUM if accumulate else REPLACE)
    return selection.from_rows(rows)


def _put_by_mask(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        return NotImplemented  # type: ignore[no-any-return]
    dim, mask = given[0]
    after = self.dim() - dim - mask.dim()
    mask = mask.to(torch.bool)
    if values.numel() == 1:
        values = values.reshape(())
    elif values.dim() > after:  # one for every true element, in their order
        if dim != 0 or values.dim() != after + 1:
            return NotImplemented  # type: ignore[no-any-return]
        values = gather_rows(values, _order(mask).reshape(mask.shape))
    mask = mask.reshape([*mask.shape, *[1] * after])
    return torch.where(mask, self + values if accumulate else values, self)


def index_put_impl(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """Decompose as :func:`index_put`."""
    return index_put(self, indices, values, accumulate)


def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Decompose into a gather of rows."""
    if self.dim() == 0:
        return self.clone()
    dim %= self.dim()
    return gather_rows(self.movedim(dim, 0), index.reshape(-1).to(torch.int64)).movedim(0, dim)


def gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Decompose into a gather of elements."""
    if self.dim() == 0:
        return self.expand(index.shape).clone()
    if index.dim() == 0:
        return gather(self, dim, index.reshape(1)).reshape(())
    dim %= self.dim()
    return gather_rows(self.reshape(-1), positions(self.shape, dim, index.to(torch.int64)))


def _scatter(self: Tensor, dim: int, index: Tensor, source: Tensor | Scalar, reduction: str) -> Tensor:
    if index.numel() == 0:
        return self.clone()
    if self.dim() == 0:
        part = source.reshape(-1)[:1] if isinstance(source, Tensor) else source
        return _scatter(self.reshape(1), 0, index.reshape(-1)[:1], part, reduction).reshape(())
    dim %= self.dim()
    index = index.reshape(1).to(torch.int64) if index.dim() == 0 else index.to(torch.int64)
    if isinstance(source, Tensor):
        source = source.reshape(1) if source.dim() == 0 else source
        source = source[tuple(slice(0, extent) for extent in index.shape)].to(self.dtype)
    else:
        source = torch.full(index.shape, source, dtype=self.dtype, device=self.device)
    where = positions(self.shape, dim, index).reshape(-1)
    return scatter_rows(self.reshape(-1), where, source.reshape(-1), reduction).reshape(self.shape)


def scatter(self: Tensor, dim: int, index: Tensor, src: Tensor | Scalar, *, reduce: str | None = None) -> Tensor:
    """Decompose the four overloads of ``scatter``."""
    return _scatter(self, dim, index, src, REPLACE if reduce is None else _REDUCTIONS[reduce])


def scatter_value(self: Tensor, dim: int, index: Tensor, value: Scalar, *, reduce: str | None = None) -> Tensor:
    """Decompose the overloads of ``scatter`` that take a number."""
    return scatter(self, dim, index, value, reduce=reduce)


def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Decompose into a scatter of elements."""
    return _scatter(self, dim, index, src, SUM)


def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Decompose; a mean is a sum divided by the number of what went in."""
    return _reduce(
        self,
        reduce,
        include_self,
        torch.ones_like(src, dtype=torch.float32),
        lambda base, source, reduction: _scatter(base, dim, index, src if source is None else source, reduction),
    )


def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Decompose as :func:`scatter_reduce`, by rows."""
    if self.dim() == 0:
        rows = index_reduce(
            self.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self
        )
        return rows.reshape(())
    axis = dim % self.dim()
    wrapped = wrap(index.reshape(-1), self.shape[axis])

    def combine(base: Tensor, part: Tensor | None, reduction: str) -> Tensor:
        part = source if part is None else part
        rows = scatter_rows(base.movedim(axis, 0), wrapped, part.movedim(axis, 0), reduction)
        return rows.movedim(0, axis)

    return _reduce(self, reduce, include_self, torch.ones_like(source, dtype=torch.float32), combine)


def _reduce(
    self: Tensor,
    reduce: str,
    include_self: bool,
    ones: Tensor,
    combine: Callable[[Tensor, Tensor | None, str], Tensor],
) -> Tensor:
    reduction = _REDUCTIONS[reduce]
    counts = None
    if reduce == "mean" or not include_self:
        counts = combine(torch.zeros_like(self, dtype=torch.float32), ones, SUM)
    base = self
    if not include_self:
        assert counts is not None
        base = torch.where(counts > 0, torch.full_like(self, identity(self.dtype, reduction)), self)
    result = combine(base, None, reduction)
    if reduce != "mean":
        return result
    assert counts is not None
    divisor = (counts + 1 if include_self else counts.clamp(min=1)).to(self.dtype)
    if self.is_floating_point() or self.is_complex():
        return result / divisor
    return torch.div(result, divisor, rounding_mode="floor")


def take(self: Tensor, index: Tensor) -> Tensor:
    """Decompose into a gather from the flattened tensor."""
    return gather_rows(self.reshape(-1), wrap(index, self.numel()))


def index_fill(self: Tensor, dim: int, index: Tensor, value: Tensor | Scalar) -> Tensor:
    """Decompose into a scatter of equal rows."""
    filling = value.to(self.dtype) if isinstance(value, Tensor) else self.new_full((), value)
    if self.dim() == 0:
        return filling.expand(()).clone() if index.numel() else self.clone()
    dim %= self.dim()
    rows = self.movedim(dim, 0)
    source = filling.expand([index.numel(), *rows.shape[1:]])
    return scatter_rows(rows, wrap(index.reshape(-1), self.shape[dim]), source).movedim(0, dim)


def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Decompose into a scatter into the flattened tensor."""
    where = wrap(index.reshape(-1), self.numel())
    rows = scatter_rows(self.reshape(-1), where, source.reshape(-1), SUM if accumulate else REPLACE)
    return rows.reshape(self.shape)


def _order(mask: Tensor) -> Tensor:
    """Return for every true element how many are before it."""
    return torch.cumsum(mask.reshape(-1).to(torch.int64), 0) - 1


def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Decompose into a gather by the running count of the mask."""
    shape = torch.broadcast_shapes(self.shape, mask.shape)  # type: ignore[no-untyped-call]
    self, mask = self.expand(shape), mask.expand(shape)
    if self.numel() == 0 or source.numel() == 0:
        return self.clone()
    chosen = gather_rows(source.reshape(-1), _order(mask)).reshape(shape)
    return torch.where(mask, chosen, self)


def masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """Decompose into a scatter of what the mask selects to the front."""
    mask = mask.expand(grad_output.shape).reshape(-1)
    zeros = grad_output.new_zeros([prod(sizes)])
    where = torch.where(mask, _order(mask), -1)
    return scatter_rows(zeros, where, grad_output.reshape(-1)).reshape(sizes)


def _replicated(extent: int, low: int, high: int, device: torch.device) -> Tensor:
    return torch.arange(-low, extent + high, device=device).clamp(0, extent - 1)


def replication_pad_backward(grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
    """Add what the padding repeated to where it came from, one dimension after the other."""
    grad = grad_output
    for i in range(len(padding) // 2):
        dim = self.dim() - 1 - i
        where = _replicated(self.shape[dim], padding[2 * i], padding[2 * i + 1], grad.device)
        rows = grad.movedim(dim, 0)
        rows = scatter_rows(rows.new_zeros([self.shape[dim], *rows.shape[1:]]), where, rows, SUM)
        grad = rows.movedim(0, dim)
    return grad


def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Decompose: the running count of what is not zero says where each position goes."""
    flat = (self != 0).reshape(-1)
    if self.dim() == 0 or size == 0:
        return torch.full((size, self.dim()), fill_value, dtype=torch.int64, device=self.device)
    axes = []
    stride = self.numel()
    position = torch.arange(self.numel(), device=self.device)
    for extent in self.shape:
        stride //= max(extent, 1)
        axes.append(position // max(stride, 1) % max(extent, 1))
    filled = torch.full((size, self.dim()), fill_value, dtype=torch.int64, device=self.device)
    if self.numel() == 0:
        return filled
    where = torch.where(flat, _order(flat), size)
    return scatter_rows(filled, where, torch.stack(axes, 1))


def slice_scatter(
    self: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """Decompose into a concatenation, with a step into a scatter of rows."""
    dim %= self.dim()
    first, last, step = slice(start, end, step).indices(self.shape[dim])
    count = len(range(first, last, step))
    if count == 0 or self.numel() == 0:
        return self.clone()
    src = src.expand([*self.shape[:dim], count, *self.shape[dim + 1 :]]).to(self.dtype)
    if step != 1:
        where = torch.arange(first, last, step, device=self.device)
        return scatter_rows(self.movedim(dim, 0), where, src.movedim(dim, 0)).movedim(0, dim)
    after = first + count
    parts = [self.narrow(dim, 0, first), src, self.narrow(dim, after, self.shape[dim] - after)]
    return torch.cat([part for part in parts if part.numel()], dim)


def diagonal_scatter(self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Decompose into a scatter to the diagonal's positions."""
    last = self.movedim((dim1 % self.dim(), dim2 % self.dim()), (-2, -1))
    rows, columns = last.shape[-2:]
    above, below = max(offset, 0), max(-offset, 0)
    where = torch.arange(src.shape[-1], device=self.device)
    where = (where + below) * columns + where + above
    flat = last.reshape([*last.shape[:-2], rows * columns]).movedim(-1, 0)
    placed = scatter_rows(flat, where, src.movedim(-1, 0)).movedim(0, -1)
    return placed.reshape(last.shape).movedim((-2, -1), (dim1 % self.dim(), dim2 % self.dim()))


def as_strided_scatter(
    self: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Decompose into a scatter to the elements in the order in which they lie in memory."""
    found = elements(self, size, stride, storage_offset)
    if found is None:
        return NotImplemented  # type: ignore[no-any-return]
    order, where = found
    permuted = self.permute(order)
    flat = scatter_rows(permuted.reshape(-1), where.reshape(-1), src.reshape(-1))
    return flat.reshape(permuted.shape).permute(inverse(order))


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.index.Tensor: index,
    aten._unsafe_index.Tensor: index,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten._index_put_impl.default: index_put_impl,
    aten.index_select.default: index_select,
    aten.gather.default: gather,
    aten.scatter.src: scatter,
    aten.scatter.value: scatter_value,
    aten.scatter.reduce: scatter,
    aten.scatter.value_reduce: scatter_value,
    aten.scatter_add.default: scatter_add,
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_reduce.default: index_reduce,
    aten.take.default: take,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.put.default: put,
    aten.masked_scatter.default: masked_scatter,
    aten.masked_scatter_backward.default: masked_scatter_backward,
    aten.replication_pad1d_backward.default: replication_pad_backward,
    aten.replication_pad2d_backward.default: replication_pad_backward,
    aten.replication_pad3d_backward.default: replication_pad_backward,
    aten.nonzero_static.default: nonzero_static,
    aten.slice_scatter.default: slice_scatter,
    aten.unfold_copy.default: unfold,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.as_strided_scatter.default: as_strided_scatter,
}
