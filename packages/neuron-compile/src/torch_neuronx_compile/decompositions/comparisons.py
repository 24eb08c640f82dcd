"""Comparisons and logic of two tensors: both are converted to one dtype first, as PyTorch converts them.

torch-mlir compares a scalar tensor of a wider dtype as it is: 0.3 in float32 is then no 0.3 in bfloat16. Exact.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
Operator = Callable[[Tensor, Tensor], Tensor]


def _compared(op: Operator, *, of_bools: Operator | None = None, of_floats: Operator | None = None) -> Operator:
    """Return a decomposition of ``op``; bools are taken for integers of one bit, in which True is -1."""

    def decompose(self: Tensor, other: Tensor) -> Tensor:
        """Compare in one dtype."""
        kind = torch.result_type(self, other)
        if self.dtype is not kind or other.dtype is not kind:
            return op(self.to(kind), other.to(kind))
        if of_bools is not None and kind is torch.bool:
            return of_bools(self, other)
        if of_floats is not None and kind.is_floating_point:
            return of_floats(self, other)
        return NotImplemented  # type: ignore[no-any-return]

    return decompose


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.gt.Tensor: _compared(torch.gt, of_bools=lambda a, b: a & ~b),
    aten.lt.Tensor: _compared(torch.lt, of_bools=lambda a, b: ~a & b),
    aten.ge.Tensor: _compared(torch.ge, of_bools=lambda a, b: a | ~b),
    aten.le.Tensor: _compared(torch.le, of_bools=lambda a, b: ~a | b),
    aten.ne.Tensor: _compared(torch.ne),
    # torch-mlir takes x == x for true, which it is not for NaN.
    aten.eq.Tensor: _compared(torch.eq, of_floats=lambda a, b: torch.logical_not(torch.ne(a, b))),
    aten.logical_and.default: _compared(torch.logical_and),
    aten.logical_or.default: _compared(torch.logical_or),
    aten.logical_xor.default: _compared(torch.logical_xor),
}
