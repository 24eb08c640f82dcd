"""Antialiased resizing as products with a matrix for each dimension; sampling at a grid as gathers of corners.

Other ways to resize are in torch's own table.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.narrow_floats import widened
from torch_neuronx_compile.structured_ops import SUM, gather_rows, scatter_rows

aten = torch.ops.aten
_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor, a: float = -0.5) -> Tensor:
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _matrix(
    size: int,
    extent: int,
    align_corners: bool,
    factor: float | None,
    shape: Callable[[Tensor], Tensor],
    reach: int,
    like: Tensor,
) -> Tensor:
    """Return the weights of ``size`` elements for each of ``extent`` results, as Pillow computes them."""
    if align_corners:
        scale = (size - 1) / (extent - 1) if extent > 1 else 0.0
    else:
        scale = 1 / factor if factor else size / extent
    support = reach * 0.5 * (scale if scale >= 1 else 1.0)
    center = (torch.arange(extent, device=like.device).to(torch.float32) + 0.5) * scale
    place = torch.arange(size, device=like.device).to(torch.float32)
    first = (center - support + 0.5).to(torch.int64).clamp(min=0).unsqueeze(1)
    last = (center + support + 0.5).to(torch.int64).clamp(max=size).unsqueeze(1)
    weights = shape((place - center.unsqueeze(1) + 0.5) / max(scale, 1.0))
    whole = torch.arange(size, device=like.device)
    weights = torch.where((whole >= first) & (whole < last), weights, 0.0)
    total = weights.sum(1, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total)


def _antialiased(shape: Callable[[Tensor], Tensor], reach: int) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Return the operator with the filter ``shape`` that is zero beyond ``reach / 2``, and its gradient."""

    def matrices(
        sizes: Sequence[int],
        output_size: Sequence[int],
        align_corners: bool,
        factors: Sequence[float | None],
        like: Tensor,
    ) -> list[Tensor]:
        return [
            _matrix(size, extent, align_corners, factor, shape, reach, like)
            for size, extent, factor in zip(sizes, output_size, factors, strict=True)
        ]

    def resize(
        self: Tensor,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Tensor:
        """Decompose into a product for each dimension, in float32."""
        rows, columns = matrices(self.shape[2:], output_size, align_corners, (scales_h, scales_w), self)
        return (rows @ (widened(self) @ columns.transpose(0, 1))).to(self.dtype)

    def backward(
        grad_output: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Tensor:
        """Decompose into the products with the transposed matrices."""
        rows, columns = matrices(input_size[2:], output_size, align_corners, (scales_h, scales_w), grad_output)
        return (rows.transpose(0, 1) @ (widened(grad_output) @ columns)).to(grad_output.dtype)

    return resize, backward


class _Sampler:
    """Where a grid points: coordinates in elements, and how they change with the grid."""

    def __init__(self, input: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> None:
        self.mode, self.padding, self.align_corners = mode, padding, align_corners
        self.input = widened(input)
        self.sizes = list(input.shape[2:])
        self.batch = input.shape[0]
        self.channels = input.shape[1]
        wide = widened(grid)
        # The grid's last dimension counts from the innermost spatial one.
        self.at: list[Tensor] = []
        self.slope: list[Tensor | float] = []
        for i, size in enumerate(self.sizes):
            point = wide[..., len(self.sizes) - 1 - i]
            scale = (size - 1) / 2 if align_corners else size / 2
            place = (point + 1) * scale if align_corners else ((point + 1) * size - 1) / 2
            slope: Tensor | float = scale
            if mode != _BICUBIC:
                place, turned = self.padded(place, size)
                slope = turned * scale
            self.at.append(place)
            self.slope.append(slope)

    def padded(self, place: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return the coordinate inside the border that the padding means, and its derivative."""
        slope = torch.ones_like(place)
        if self.padding == _ZEROS:
            return place, slope
        if self.padding == _REFLECTION:
            low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
            span = high - low
            if span <= 0:
                return torch.zeros_like(place), torch.zeros_like(place)
            away = place - low
            slope = torch.where(away < 0, -1.0, 1.0)
            away = away.abs()
            turns = torch.floor(away / span)
            rest = away - turns * span
            odd = torch.remainder(turns, 2.0) != 0
            place = torch.where(odd, span - rest, rest) + low
            slope = torch.where(odd, -slope, slope)
        inside = (place > 0) & (place < size - 1)
        return place.clamp(0, size - 1), torch.where(inside, slope, 0.0)

    def element(self, index: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return flat positions in a plane, and which of them are inside."""
        inside: Tensor | None = None
        flat: Tensor | None = None
        for along, size in zip(index, self.sizes, strict=True):
            within = (along >= 0) & (along <= size - 1)
            inside = within if inside is None else inside & within
            whole = torch.where(within, along, 0.0).to(torch.int64)
            flat = whole if flat is None else flat * size + whole
        assert flat is not None
        assert inside is not None
        return flat, inside

    def rows(self, flat: Tensor) -> Tensor:
        """Return positions among all planes' elements, with channels last."""
        plane = math.prod(self.sizes)
        block = torch.arange(self.batch, device=flat.device).reshape([-1, *[1] * (flat.dim() - 1)])
        return flat + block * plane

    def values(self, index: Sequence[Tensor]) -> Tensor:
        """Return the elements at ``index``, zero outside: [batch, ..., channels]."""
        flat, inside = self.element(index)
        table = self.input.movedim(1, -1).reshape(-1, self.channels)
        return torch.where(inside.unsqueeze(-1), gather_rows(table, self.rows(flat)), 0.0)

    def taps(self) -> Iterator[tuple[list[Tensor], Tensor, list[Tensor]]]:
        """Yield the elements that count for each point, their weight, and its derivative for each dimension."""
        each = [self._taps_along(i) for i in range(len(self.sizes))]
        for chosen in itertools.product(*each):
            weight = math.prod((tap[1] for tap in chosen[1:]), start=chosen[0][1])
            slopes = []
            for i, tap in enumerate(chosen):
                slope = tap[2]
                for j, other in enumerate(chosen):
                    slope = slope * other[1] if i != j else slope
                slopes.append(slope)
            yield [tap[0] for tap in chosen], weight, slopes

    def _taps_along(self, dim: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        place = self.at[dim]
        if self.mode == _NEAREST:
            return [(torch.round(place), torch.ones_like(place), torch.zeros_like(place))]
        low = torch.floor(place)
        part = place - low
        if self.mode == _BILINEAR:
            ones = torch.ones_like(part)
            return [(low, 1 - part, -ones), (low + 1, part, ones)]
        taps = []
        for offset in range(-1, 3):
            index, _ = self.padded(low + offset, self.sizes[dim])
            taps.append((torch.round(index), *_cubic_tap(part - offset)))
        return taps


def _cubic_tap(x: Tensor, a: float = -0.75) -> tuple[Tensor, Tensor]:
    """Return the weight of an element at the distance ``x``, and its derivative."""
    size, sign = x.abs(), torch.sign(x)
    near = ((a + 2) * size - (a + 3)) * size * size + 1
    far = ((a * size - 5 * a) * size + 8 * a) * size - 4 * a
    near_slope = (3 * (a + 2) * size - 2 * (a + 3)) * size
    far_slope = (3 * a * size - 10 * a) * size + 8 * a
    return torch.where(size <= 1, near, far), sign * torch.where(size <= 1, near_slope, far_slope)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Decompose into a weighted sum of gathers, in float32."""
    if input.numel() == 0 or grid.numel() == 0:
        return input.new_zeros([*input.shape[:2], *grid.shape[1:-1]])
    sampler = _Sampler(input, grid, interpolation_mode, padding_mode, align_corners)
    result: Tensor | None = None
    for index, weight, _ in sampler.taps():
        part = sampler.values(index) * weight.unsqueeze(-1)
        result = part if result is None else result + part
    assert result is not None
    return result.movedim(-1, 1).to(input.dtype)


def grid_sampler_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Decompose into scatters for the input and sums over channels for the grid."""
    sampler = _Sampler(input, grid, interpolation_mode, padding_mode, align_corners)
    grad = widened(grad_output).movedim(1, -1)
    table = sampler.input.new_zeros([sampler.batch * math.prod(sampler.sizes), sampler.channels])
    along: list[Tensor | None] = [None] * len(sampler.sizes)
    for index, weight, slopes in sampler.taps():
        if output_mask[0]:
            flat, inside = sampler.element(index)
            where = torch.where(inside, sampler.rows(flat), -1).reshape(-1)
            table = scatter_rows(table, where, (grad * weight.unsqueeze(-1)).reshape(-1, sampler.channels), SUM)
        if output_mask[1] and interpolation_mode != _NEAREST:
            product = (grad * sampler.values(index)).sum(-1)
            for i, slope in enumerate(slopes):
                part = product * slope
                previous = along[i]
                along[i] = part if previous is None else previous + part
    grad_input = grad_grid = None
    if output_mask[0]:
        shape = [sampler.batch, *sampler.sizes, sampler.channels]
        grad_input = table.reshape(shape).movedim(-1, 1).to(input.dtype)
    if output_mask[1]:
        parts = [part * slope for part, slope in zip(along, sampler.slope, strict=True) if part is not None]
        grad_grid = torch.stack(parts[::-1], -1).to(grid.dtype) if parts else torch.zeros_like(grid)
    return grad_input, grad_grid


_bilinear_aa, _bilinear_aa_backward = _antialiased(_triangle, 2)
_bicubic_aa, _bicubic_aa_backward = _antialiased(_cubic, 4)

DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten._upsample_bilinear2d_aa.default: _bilinear_aa,
    aten._upsample_bilinear2d_aa_backward.default: _bilinear_aa_backward,
    aten._upsample_bicubic2d_aa.default: _bicubic_aa,
    aten._upsample_bicubic2d_aa_backward.default: _bicubic_aa_backward,
    aten.grid_sampler_2d.default: grid_sampler,
    aten.grid_sampler_3d.default: grid_sampler,
    aten.grid_sampler_2d_backward.default: grid_sampler_backward,
    aten.grid_sampler_3d_backward.default: grid_sampler_backward,
}
