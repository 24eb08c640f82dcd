"""Sums of bools and comparisons with numbers: programs take bools for signed integers of one bit, in which True is -1.

Exact. Tensors of other dtypes are left to the conversions of the operators.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def _with_number(operator: Callable[[Tensor, float], Tensor]) -> Callable[..., Tensor]:
    def decompose(self: Tensor, other: float) -> Tensor:
        """Compare numbers: ``other`` need not be 0 or 1."""
        if self.dtype is not torch.bool:
            return NotImplemented  # type: ignore[no-any-return]
        return operator(self.to(torch.int32), other)

    return decompose


def add(self: Tensor, other: Tensor | float, *, alpha: float = 1) -> Tensor:
    """Decompose a sum of bools into a disjunction."""
    if self.dtype is not torch.bool or torch.result_type(self, other) is not torch.bool:
        return NotImplemented  # type: ignore[no-any-return]
    if not alpha:
        other = False
    if isinstance(other, Tensor):
        return torch.logical_or(self, other)
    return torch.logical_or(self, torch.full((), bool(other), dtype=torch.bool, device=self.device))


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.add.Tensor: add,
    **{getattr(aten, name).Scalar: _with_number(getattr(torch, name)) for name in ("eq", "ne", "gt", "ge", "lt", "le")},
}
