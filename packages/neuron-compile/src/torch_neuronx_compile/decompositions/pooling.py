"""Poolings as reductions of windows, their gradients as sums over windows and as scatters.

Averages of narrow floats are summed in float32. Positions of maxima are those of the flattened input, as on the CPU.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.narrow_floats import widened
from torch_neuronx_compile.structured_ops import SUM, gather_rows, reduce_window, scatter_rows, window_argmax

aten = torch.ops.aten
Pair = tuple[Tensor, Tensor]


def _each(values: int | Sequence[int], count: int) -> list[int]:
    """Return one value for every spatial dimension."""
    given = [values] if isinstance(values, int) else list(values)
    return given * count if len(given) == 1 else given


def _extent(size: int, window: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Return how many windows there are; the last one of ``ceil_mode`` must begin before the padding on the right."""
    over = size + 2 * padding - dilation * (window - 1) - 1
    if not ceil_mode:
        return over // stride + 1
    extent = -(-over // stride) + 1
    return extent - 1 if (extent - 1) * stride >= size + padding else extent


class _Windows:
    """The geometry of a pooling over the last dimensions."""

    def __init__(
        self,
        sizes: Sequence[int],
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        padding: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> None:
        count = len(sizes)
        self.sizes = list(sizes)
        self.window = _each(kernel_size, count)
        self.stride = _each(stride, count) if stride or isinstance(stride, int) else self.window
        self.low = _each(padding, count)
        self.dilation = _each(dilation, count)
        self.extents = [
            _extent(size, window, step, low, dilation, ceil_mode)
            for size, window, step, low, dilation in zip(
                self.sizes, self.window, self.stride, self.low, self.dilation, strict=True
            )
        ]
        self.padding = [
            (low, (extent - 1) * step + (window - 1) * dilation + 1 - size - low)
            for size, extent, window, step, low, dilation in zip(
                self.sizes, self.extents, self.window, self.stride, self.low, self.dilation, strict=True
            )
        ]


def _max_pool(count: int) -> Callable[..., Pair]:
    def max_pool(
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> Pair:
        """Decompose into one reduction of values and positions."""
        found = _Windows(self.shape[-count:], kernel_size, stride, padding, dilation, ceil_mode)
        return window_argmax(self, found.window, found.stride, found.padding, found.dilation)

    return max_pool


def _scatter_to_plane(grad_output: Tensor, self: Tensor, indices: Tensor, count: int) -> Tensor:
    """Add gradients to the positions of the maxima in the flattened last ``count`` dimensions."""
    plane = prod(self.shape[-count:])
    leading = prod(self.shape[:-count])
    offsets = torch.arange(leading, device=indices.device).reshape([*self.shape[:-count], *[1] * count]) * plane
    zeros = widened(grad_output.new_zeros([leading * plane]))
    rows = scatter_rows(zeros, (indices + offsets).reshape(-1), widened(grad_output).reshape(-1), SUM)
    return rows.reshape(self.shape).to(self.dtype)


def _max_pool_backward(count: int) -> Callable[..., Tensor]:
    def max_pool_backward(grad_output: Tensor, self: Tensor, *arguments: Any, **named: Any) -> Tensor:
        """Decompose into a scatter to the positions, whatever the windows were."""
        indices: Tensor = named["indices"] if "indices" in named else arguments[-1]
        return _scatter_to_plane(grad_output, self, indices, count)

    return max_pool_backward


def _divisor(
    found: _Windows, count_include_pad: bool, divisor_override: int | None, device: torch.device
) -> Tensor | int:
    """Return by what each window's sum is divided."""
    if divisor_override is not None:
        return divisor_override
    whole = all(low == 0 or count_include_pad for low in found.low) and all(high <= low for low, high in found.padding)
    if whole:
        return prod(found.window)
    counts: Tensor | None = None
    for i, (size, extent, low) in enumerate(zip(found.sizes, found.extents, found.low, strict=True)):
        first = torch.arange(extent, device=device) * found.stride[i] - low
        last = (first + found.window[i]).clamp(max=size + low if count_include_pad else size)
        along = last - (first if count_include_pad else first.clamp(min=0))
        along = along.reshape([-1, *[1] * (len(found.sizes) - 1 - i)])
        counts = along if counts is None else counts * along
    assert counts is not None
    return counts.to(torch.float32)


def _avg_pool(count: int) -> Callable[..., Tensor]:
    def avg_pool(
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        """Decompose into a sum over windows and a division."""
        found = _Windows(self.shape[-count:], kernel_size, stride, padding, 1, ceil_mode)
        total = reduce_window(widened(self), found.window, found.stride, found.padding, SUM)
        return _divided(total, _divisor(found, count_include_pad, divisor_override, self.device)).to(self.dtype)

    return avg_pool


def _divided(total: Tensor, divisor: Tensor | int) -> Tensor:
    if total.is_floating_point():
        return total / divisor
    return torch.div(total, divisor, rounding_mode="trunc")


def _avg_pool_backward(count: int) -> Callable[..., Tensor]:
    def avg_pool_backward(
        grad_output: Tensor,
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: int | Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        """Decompose into a sum over the windows that an element is in: of the gradients, laid out at the stride."""
        found = _Windows(self.shape[-count:], kernel_size, stride, padding, 1, ceil_mode)
        divisor = _divisor(found, count_include_pad, divisor_override, self.device)
        shares = _divided(widened(grad_output), divisor)
        around = []
        for size, extent, step, window, low in zip(
            found.sizes, found.extents, found.stride, found.window, found.low, strict=True
        ):
            before = window - 1 - low
            around.append((before, size + window - 1 - before - ((extent - 1) * step + 1)))
        ones = [1] * count
        return reduce_window(shares, found.window, ones, around, SUM, found.stride).to(self.dtype)

    return avg_pool_backward


def _bins(size: int, extent: int) -> list[tuple[int, int]]:
    """Return where each of ``extent`` adaptive windows over ``size`` elements begins and ends."""
    return [(i * size // extent, -(-(i + 1) * size // extent)) for i in range(extent)]


def _table(size: int, extent: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Return the elements of each adaptive window, padded to the longest, which of them count, and that length."""
    longest = max(last - first for first, last in _bins(size, extent))
    window = torch.arange(extent, device=device).unsqueeze(1)
    first, last = window * size // extent, ((window + 1) * size + extent - 1) // extent
    elements = first + torch.arange(longest, device=device)
    return torch.minimum(elements, last - 1), elements < last, longest


def _adaptive_sum(self: Tensor, dim: int, extent: int) -> Tensor:
    """Sum the adaptive windows along one dimension."""
    size = self.shape[dim]
    if size == extent:
        return self
    if size % extent == 0:
        shape = [*self.shape[:dim], extent, size // extent, *self.shape[dim + 1 :]]
        return self.reshape(shape).sum(dim + 1)
    elements, counted, _ = _table(size, extent, self.device)
    rows = gather_rows(self.movedim(dim, 0), elements)
    counted = counted.reshape([*counted.shape, *[1] * (self.dim() - 1)])
    return torch.where(counted, rows, 0.0).sum(1).movedim(0, dim)


def _lengths(size: int, extent: int, device: torch.device) -> Tensor | int:
    if size % extent == 0:
        return size // extent
    window = torch.arange(extent, device=device)
    return (((window + 1) * size + extent - 1) // extent - window * size // extent).to(torch.float32)


def _along(lengths: Tensor | int, dim: int, rank: int) -> Tensor | int:
    return lengths if isinstance(lengths, int) else lengths.reshape([-1 if i == dim else 1 for i in range(rank)])


def _adaptive_avg_pool(count: int) -> Callable[..., Tensor]:
    def adaptive_avg_pool(self: Tensor, output_size: Sequence[int]) -> Tensor:
        """Decompose dimension by dimension into sums over windows of their own lengths."""
        result, rank = widened(self), self.dim()
        if self.numel() == 0 or prod(output_size) == 0:
            return self.new_zeros([*self.shape[:-count], *output_size])
        for dim, extent in zip(range(rank - count, rank), output_size, strict=True):
            lengths = _lengths(self.shape[dim], extent, self.device)
            result = _adaptive_sum(result, dim, extent) / _along(lengths, dim, rank)
        return result.to(self.dtype)

    return adaptive_avg_pool


def _adaptive_avg_pool_backward(count: int) -> Callable[..., Tensor]:
    def adaptive_avg_pool_backward(grad_output: Tensor, self: Tensor) -> Tensor:
        """Decompose: the windows that an element is in are an adaptive window of the output."""
        grad, rank = widened(grad_output), self.dim()
        if grad_output.numel() == 0 or self.numel() == 0:
            return torch.zeros_like(self)
        for dim in range(rank - count, rank):
            size, extent = self.shape[dim], grad_output.shape[dim]
            grad = grad / _along(_lengths(size, extent, self.device), dim, rank)
            if extent % size == 0 or size % extent:
                grad = _adaptive_sum(grad, dim, size)
            else:
                grad = grad.repeat_interleave(size // extent, dim)
        return grad.to(self.dtype)

    return adaptive_avg_pool_backward


def _adaptive_max_pool(count: int) -> Callable[..., Pair]:
    def adaptive_max_pool(self: Tensor, output_size: Sequence[int]) -> Pair:
        """Decompose dimension by dimension, innermost first: the first maximum in each stays the first of all."""
        rank = self.dim()
        shape = [*self.shape[:-count], *output_size]
        if self.numel() == 0 or prod(output_size) == 0:
            return self.new_zeros(shape), self.new_zeros(shape, dtype=torch.int64)
        values, where = self, None
        stride = 1
        for dim, extent in zip(reversed(range(rank - count, rank)), reversed(output_size), strict=True):
            elements, _, longest = _table(self.shape[dim], extent, self.device)
            rows = gather_rows(values.movedim(dim, 0), elements.reshape(-1)).movedim(0, -1)
            values, at = window_argmax(rows, [longest], [longest], [(0, 0)])
            # The position counts over the whole row of gathered elements.
            chosen = gather_rows(elements.reshape(-1), at).movedim(-1, dim)
            values = values.movedim(-1, dim)
            if where is None:
                where = chosen
            else:
                index = chosen.reshape(chosen.shape)
                where = where.gather(dim, index) + chosen * stride
            stride *= self.shape[dim]
        assert where is not None
        return values, where

    return adaptive_max_pool


def _intervals(sample: Tensor, size: int, extent: int, window: int) -> Tensor:
    """Return where each fractional window begins, from one random number per plane; the last ends at the end."""
    if extent == 1:
        return torch.full((*sample.shape, 1), size - window, dtype=torch.int64, device=sample.device)
    alpha = (size - window) / (extent - 1)
    step = torch.arange(extent, device=sample.device)
    begin = ((step + sample.unsqueeze(-1)) * alpha).to(torch.int64) - (sample.unsqueeze(-1) * alpha).to(torch.int64)
    return torch.where(step == extent - 1, size - window, begin)


def _fractional_max_pool(count: int) -> Callable[..., Pair]:
    def fractional_max_pool(
        self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
    ) -> Pair:
        """Decompose into a gather of every window and a maximum over it.

        The two-dimensional form takes the last dimension's random number first, the three-dimensional one last.
        """
        batched = self if self.dim() == count + 2 else self.unsqueeze(0)
        sizes = batched.shape[-count:]
        where: Tensor | None = None
        stride = 1
        for i in reversed(range(count)):
            number = random_samples[..., count - 1 - i if count == 2 else i].to(torch.float32)
            begin = _intervals(number, sizes[i], output_size[i], kernel_size[i])
            elements = begin.unsqueeze(-1) + torch.arange(kernel_size[i], device=self.device)
            shape = [*begin.shape[:2], *[1] * (2 * count)]
            shape[2 + i], shape[2 + count + i] = output_size[i], kernel_size[i]
            along = elements.reshape(shape) * stride
            where = along if where is None else where + along
            stride *= sizes[i]
        assert where is not None
        where = where.expand([*batched.shape[:2], *output_size, *kernel_size]).flatten(2 + count)
        planes = torch.arange(prod(batched.shape[:2]), device=self.device).reshape(
            [*batched.shape[:2], *[1] * (count + 1)]
        )
        values = gather_rows(batched.reshape(-1), where + planes * stride)
        length = prod(kernel_size)
        best, at = window_argmax(values, [length], [length], [(0, 0)])
        found = where.gather(-1, at).squeeze(-1)
        shape = [*self.shape[:-count], *output_size]
        return best.squeeze(-1).reshape(shape), found.reshape(shape)

    return fractional_max_pool


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.max_pool2d_with_indices.default: _max_pool(2),
    aten.max_pool3d_with_indices.default: _max_pool(3),
    aten.max_pool2d_with_indices_backward.default: _max_pool_backward(2),
    aten.max_pool3d_with_indices_backward.default: _max_pool_backward(3),
    aten.avg_pool2d.default: _avg_pool(2),
    aten.avg_pool3d.default: _avg_pool(3),
    aten.avg_pool2d_backward.default: _avg_pool_backward(2),
    aten.avg_pool3d_backward.default: _avg_pool_backward(3),
    aten._adaptive_avg_pool2d.default: _adaptive_avg_pool(2),
    aten._adaptive_avg_pool3d.default: _adaptive_avg_pool(3),
    aten._adaptive_avg_pool2d_backward.default: _adaptive_avg_pool_backward(2),
    aten._adaptive_avg_pool3d_backward.default: _adaptive_avg_pool_backward(3),
    aten.adaptive_max_pool2d.default: _adaptive_max_pool(2),
    aten.adaptive_max_pool3d.default: _adaptive_max_pool(3),
    aten.adaptive_max_pool2d_backward.default: _max_pool_backward(2),
    aten.adaptive_max_pool3d_backward.default: _max_pool_backward(3),
    aten.fractional_max_pool2d.default: _fractional_max_pool(2),
    aten.fractional_max_pool3d.default: _fractional_max_pool(3),
    aten.fractional_max_pool2d_backward.default: _max_pool_backward(2),
    aten.fractional_max_pool3d_backward.default: _max_pool_backward(3),
}
