"""Running sums, products, maxima and logarithms of sums, by doubling: log2(n) steps over the whole tensor.

Narrow floats are computed in float32. The order of additions differs from the CPU's, which adds one by one: the error
grows with the logarithm of the length, not with the length.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.narrow_floats import widened

aten = torch.ops.aten
Values = tuple[Tensor, ...]


def scan(values: Values, dim: int, combine: Callable[[Values, Values], Values]) -> Values:
    """Return the running combination along ``dim`` of tensors of one shape; ``combine`` takes earlier and later."""
    extent = values[0].shape[dim]
    step = 1
    while step < extent:
        earlier = tuple(value.narrow(dim, 0, extent - step) for value in values)
        later = tuple(value.narrow(dim, step, extent - step) for value in values)
        combined = combine(earlier, later)
        values = tuple(
            torch.cat([value.narrow(dim, 0, step), new], dim) for value, new in zip(values, combined, strict=True)
        )
        step *= 2
    return values


def _result_dtype(self: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return self.dtype if self.is_floating_point() or self.is_complex() else torch.int64


def cumsum(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Decompose."""
    target = _result_dtype(self, dtype)
    if self.dim() == 0 or self.numel() == 0:
        return self.to(target, copy=True)
    found = scan((widened(self.to(target)),), dim % self.dim(), lambda a, b: (a[0] + b[0],))
    return found[0].to(target)


def cumprod(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Decompose."""
    target = _result_dtype(self, dtype)
    if self.dim() == 0 or self.numel() == 0:
        return self.to(target, copy=True)
    found = scan((widened(self.to(target)),), dim % self.dim(), lambda a, b: (a[0] * b[0],))
    return found[0].to(target)


def logcumsumexp(self: Tensor, dim: int) -> Tensor:
    """Decompose, every partial sum relative to its greater part."""
    if self.dim() == 0 or self.numel() == 0:
        return self.clone()
    if self.is_complex():
        return NotImplemented  # type: ignore[no-any-return]

    def combine(a: Values, b: Values) -> Values:
        high = torch.maximum(a[0], b[0])
        low = torch.minimum(a[0], b[0])
        apart = torch.where(high.isinf() & (high == low), torch.zeros_like(high), low - high)
        return (high + torch.log1p(torch.exp(apart)),)

    found = scan((widened(self),), dim % self.dim(), combine)
    return found[0].to(self.dtype)


def _running(self: Tensor, dim: int, better: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    if self.dim() == 0 or self.numel() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    dim %= self.dim()
    position = torch.arange(self.shape[dim], device=self.device)
    position = position.reshape([-1 if axis == dim else 1 for axis in range(self.dim())]).expand(self.shape)

    def combine(a: Values, b: Values) -> Values:
        later = better(b[0], a[0])
        if self.is_floating_point():
            later = b[0].isnan() | (~a[0].isnan() & later)
        return torch.where(later, b[0], a[0]), torch.where(later, b[1], a[1])

    values, where = scan((self, position), dim, combine)
    return values, where


def cummax(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Decompose; the last of equals counts, NaN is the greatest."""
    return _running(self, dim, torch.ge)


def cummin(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Decompose; the last of equals counts, NaN is the least."""
    return _running(self, dim, torch.le)


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.cumsum.default: cumsum,
    aten.cumprod.default: cumprod,
    aten.logcumsumexp.default: logcumsumexp,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
}
