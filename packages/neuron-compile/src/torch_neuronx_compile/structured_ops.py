"""Operators of this package's own that are one StableHLO operation each: sort, gather, scatter, windows, remainders.

Decompositions are written with them where torch-mlir has no conversion or converts some ranks and dtypes only. Their
kernels here serve graphs that run in eager mode.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from torch_neuronx_compile.ops import Operator, define

SUM, PRODUCT, MAXIMUM, MINIMUM, REPLACE = "sum", "product", "maximum", "minimum", "replace"


def sort(self: Tensor, dim: int, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Sort stably, NaN as the greatest; return values and int64 positions. ``self`` has at least one dimension."""
    define()
    if self.numel() == 0 or self.shape[dim] == 1:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    values, positions = torch.ops.neuron_compile.sort(self, dim % self.dim(), descending)
    return values, positions


def remainder(self: Tensor, other: Tensor) -> Tensor:
    """Return what a division to a whole number leaves, exactly; it has the sign of ``self``. Both are of one kind."""
    define()
    if self.numel() == 0:
        return self.clone()
    result: Tensor = torch.ops.neuron_compile.remainder(self, other)
    return result


def gather_rows(self: Tensor, index: Tensor) -> Tensor:
    """Return ``self[index]`` along the first dimension; positions outside are moved to the nearest row."""
    define()
    if index.numel() == 0 or self.numel() == 0:
        return self.new_zeros((*index.shape, *self.shape[1:]))
    result: Tensor = torch.ops.neuron_compile.gather_rows(self, index)
    return result


def scatter_rows(self: Tensor, index: Tensor, source: Tensor, reduction: str = REPLACE) -> Tensor:
    """Combine row ``i`` of ``source`` into row ``index[i]`` of ``self``; positions outside are left out.

    ``reduction`` is one of this module's names; of several rows replaced at one place the last is meant to stay.
    """
    define()
    if source.numel() == 0 or self.numel() == 0:
        return self.clone()
    result: Tensor = torch.ops.neuron_compile.scatter_rows(self, index, source, reduction)
    return result


def reduce_window(
    self: Tensor,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    reduction: str,
    spacing: Sequence[int] | None = None,
) -> Tensor:
    """Reduce every window over the last ``len(window)`` dimensions, the padding being the reduction's identity.

    ``spacing`` is the distance at which the elements are laid out first, with the identity between them.
    """
    define()
    shape = _reduced_shape(self, list(window), list(strides), list(spacing or [1] * len(window)), _flat(padding))
    if self.numel() == 0 or prod(shape) == 0:
        return self.new_full(shape, identity(self.dtype, reduction))
    result: Tensor = torch.ops.neuron_compile.reduce_window(
        self, list(window), list(strides), list(spacing or [1] * len(window)), _flat(padding), reduction
    )
    return result


def convolve(
    self: Tensor,
    weight: Tensor,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    spacing: Sequence[int] | None = None,
    weight_spacing: Sequence[int] | None = None,
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> Tensor:
    """Correlate ``self`` (batch, feature, ...) with ``weight`` (output feature, feature of a group, ...).

    ``spacing`` and ``weight_spacing`` are the distances at which the elements of the two are laid out first, with
    zeros between them. Padding may be negative.
    """
    define()
    ones = [1] * len(strides)
    arguments = (list(strides), _flat(padding), list(spacing or ones), list(weight_spacing or ones))
    result: Tensor = torch.ops.neuron_compile.convolve(self, weight, *arguments, feature_groups, batch_groups)
    return result


def window_argmax(
    self: Tensor,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the maximum of every window and its int64 position in the flattened last ``len(window)`` dimensions.

    The first of equals counts, NaN is the greatest, and the last NaN counts. Every window must meet an element.
    """
    define()
    if self.numel() == 0:
        shape = _window_shape(self, list(window), list(strides), list(dilation or [1] * len(window)), _flat(padding))
        return self.new_zeros(shape), self.new_zeros(shape, dtype=torch.int64)
    values, positions = torch.ops.neuron_compile.window_argmax(
        self, list(window), list(strides), list(dilation or [1] * len(window)), _flat(padding)
    )
    return values, positions


def _flat(padding: Sequence[tuple[int, int]]) -> list[int]:
    return [amount for pair in padding for amount in pair]


def _sort(self: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    values, positions = torch.sort(self, dim=dim, descending=descending, stable=True)
    return values, positions


def _fake_sort(self: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    return self.new_empty(self.shape), self.new_empty(self.shape, dtype=torch.int64)


def _gather_rows(self: Tensor, index: Tensor) -> Tensor:
    rows = self.index_select(0, index.clamp(0, self.shape[0] - 1).flatten())
    return rows.reshape(*index.shape, *self.shape[1:])


def _fake_remainder(self: Tensor, other: Tensor) -> Tensor:
    return torch.empty_like(self)


def _fake_gather_rows(self: Tensor, index: Tensor) -> Tensor:
    return self.new_empty((*index.shape, *self.shape[1:]))


_INDEX_REDUCE = {PRODUCT: "prod", MAXIMUM: "amax", MINIMUM: "amin"}


def _scatter_rows(self: Tensor, index: Tensor, source: Tensor, reduction: str) -> Tensor:
    inside = (index >= 0) & (index < self.shape[0])
    index, source = index[inside], source[inside]
    if reduction == REPLACE:
        return self.index_put((index,), source)
    if reduction == SUM:
        return self.index_put((index,), source, accumulate=True)
    return self.index_reduce(0, index, source, _INDEX_REDUCE[reduction])


def _fake_scatter_rows(self: Tensor, index: Tensor, source: Tensor, reduction: str) -> Tensor:
    return self.new_empty(self.shape)


def identity(dtype: torch.dtype, reduction: str) -> float | int | bool:
    """Return the value that leaves every other one as it is under ``reduction``."""
    if reduction in (SUM, PRODUCT):
        return int(reduction == PRODUCT)
    if dtype is torch.bool:
        return reduction == MINIMUM
    if dtype.is_floating_point:
        return float("-inf") if reduction == MAXIMUM else float("inf")
    limits = torch.iinfo(dtype)
    return limits.min if reduction == MAXIMUM else limits.max


def _windows(
    self: Tensor, window: list[int], strides: list[int], dilation: list[int], padding: list[int], value: float | int
) -> Tensor:
    """Return ``self`` with its windows flattened into one more dimension at the end."""
    spatial = len(window)
    pairs = [padding[2 * i : 2 * i + 2] for i in range(spatial)]
    padded = torch.nn.functional.pad(self, [amount for pair in reversed(pairs) for amount in pair], value=value)
    first = self.dim() - spatial
    for i in range(spatial):
        padded = padded.unfold(first + i, (window[i] - 1) * dilation[i] + 1, strides[i])[..., :: dilation[i]]
    return padded.flatten(self.dim())


def _spaced(self: Tensor, spatial: int, spacing: list[int], value: float | int) -> Tensor:
    """Lay the elements of the last ``spatial`` dimensions out at a distance, with ``value`` between them."""
    if all(distance == 1 for distance in spacing):
        return self
    first = self.dim() - spatial
    extents = [(self.shape[first + i] - 1) * spacing[i] + 1 for i in range(spatial)]
    wide = self.new_full((*self.shape[:first], *extents), value)
    places: list[Any] = [..., *(slice(None, None, distance) for distance in spacing)]
    wide[tuple(places)] = self
    return wide


def _reduce_window(
    self: Tensor, window: list[int], strides: list[int], spacing: list[int], padding: list[int], reduction: str
) -> Tensor:
    value = identity(self.dtype, reduction)
    found = _windows(_spaced(self, len(window), spacing, value), window, strides, [1] * len(window), padding, value)
    match reduction:
        case "sum":
            return found.sum(-1, dtype=self.dtype)
        case "product":
            return found.prod(-1, dtype=self.dtype)
        case "maximum":
            return found.amax(-1)
        case _:
            return found.amin(-1)


def _reduced_shape(
    self: Tensor, window: list[int], strides: list[int], spacing: list[int], padding: list[int]
) -> list[int]:
    first = self.dim() - len(window)
    return [
        *self.shape[:first],
        *(
            _positions((max(self.shape[first + i], 1) - 1) * spacing[i] + 1, padding[2 * i : 2 * i + 2], window[i], s)
            for i, s in enumerate(strides)
        ),
    ]


def _positions(extent: int, padding: list[int], window: int, stride: int) -> int:
    return max((extent + sum(padding) - window) // stride + 1, 0)


def _convolve(
    self: Tensor,
    weight: Tensor,
    strides: list[int],
    padding: list[int],
    spacing: list[int],
    weight_spacing: list[int],
    feature_groups: int,
    batch_groups: int,
) -> Tensor:
    spatial = len(strides)
    pairs = [padding[2 * i : 2 * i + 2] for i in range(spatial)]
    amounts = [amount for pair in reversed(pairs) for amount in pair]
    padded = torch.nn.functional.pad(_spaced(self, spatial, spacing, 0), amounts)
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[spatial - 1]
    if batch_groups == 1:
        return function(padded, weight, None, strides, 0, weight_spacing, feature_groups)
    return torch.cat(
        [
            function(part, kernels, None, strides, 0, weight_spacing)
            for part, kernels in zip(padded.chunk(batch_groups), weight.chunk(batch_groups), strict=True)
        ],
        1,
    )


def _fake_convolve(
    self: Tensor,
    weight: Tensor,
    strides: list[int],
    padding: list[int],
    spacing: list[int],
    weight_spacing: list[int],
    feature_groups: int,
    batch_groups: int,
) -> Tensor:
    extents = [
        _positions(
            (self.shape[2 + i] - 1) * spacing[i] + 1,
            padding[2 * i : 2 * i + 2],
            (weight.shape[2 + i] - 1) * weight_spacing[i] + 1,
            strides[i],
        )
        for i in range(len(strides))
    ]
    return self.new_empty((self.shape[0] // batch_groups, weight.shape[0], *extents))


def _window_shape(
    self: Tensor, window: list[int], strides: list[int], dilation: list[int], padding: list[int]
) -> list[int]:
    first = self.dim() - len(window)
    extents = [
        (self.shape[first + i] + padding[2 * i] + padding[2 * i + 1] - (window[i] - 1) * dilation[i] - 1) // strides[i]
        + 1
        for i in range(len(window))
    ]
    return [*self.shape[:first], *extents]


def _fake_reduce_window(
    self: Tensor, window: list[int], strides: list[int], spacing: list[int], padding: list[int], reduction: str
) -> Tensor:
    return self.new_empty(_reduced_shape(self, window, strides, spacing, padding))


def _window_argmax(
    self: Tensor, window: list[int], strides: list[int], dilation: list[int], padding: list[int]
) -> tuple[Tensor, Tensor]:
    spatial = self.shape[self.dim() - len(window) :]
    plane = torch.arange(prod(spatial), device=self.device).reshape(spatial)
    positions = _windows(plane, window, strides, dilation, padding, -1)
    found = _windows(self, window, strides, dilation, padding, identity(self.dtype, MAXIMUM))
    best = found.amax(-1, keepdim=True)
    order = torch.where(best.isnan(), positions.double(), -positions.double())
    equal = ((found == best) | (found.isnan() & best.isnan())) & (positions >= 0)
    chosen = torch.where(equal, order, float("-inf")).argmax(-1, keepdim=True)
    return best.squeeze(-1), positions.expand_as(found).gather(-1, chosen).squeeze(-1)


def _fake_window_argmax(
    self: Tensor, window: list[int], strides: list[int], dilation: list[int], padding: list[int]
) -> tuple[Tensor, Tensor]:
    shape = _window_shape(self, window, strides, dilation, padding)
    return self.new_empty(shape), self.new_empty(shape, dtype=torch.int64)


OPERATORS: tuple[Operator, ...] = (
    ("sort(Tensor self, int dim, bool descending) -> (Tensor, Tensor)", _sort, _fake_sort),
    ("gather_rows(Tensor self, Tensor index) -> Tensor", _gather_rows, _fake_gather_rows),
    (
        "scatter_rows(Tensor self, Tensor index, Tensor source, str reduction) -> Tensor",
        _scatter_rows,
        _fake_scatter_rows,
    ),
    (
        "reduce_window(Tensor self, int[] window, int[] strides, int[] spacing, int[] padding, str reduction)"
        " -> Tensor",
        _reduce_window,
        _fake_reduce_window,
    ),
    (
        "convolve(Tensor self, Tensor weight, int[] strides, int[] padding, int[] spacing, int[] weight_spacing,"
        " int feature_groups, int batch_groups) -> Tensor",
        _convolve,
        _fake_convolve,
    ),
    (
        "window_argmax(Tensor self, int[] window, int[] strides, int[] dilation, int[] padding) -> (Tensor, Tensor)",
        _window_argmax,
        _fake_window_argmax,
    ),
    ("remainder(Tensor self, Tensor other) -> Tensor", torch.fmod, _fake_remainder),
)
"""Schemas, kernels, and what they give for fake tensors."""
