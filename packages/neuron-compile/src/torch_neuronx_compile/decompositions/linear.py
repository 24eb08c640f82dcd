"""Matrix products with an addition, without the multiplications by one that torch's own decompositions keep."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
Scalar = int | float


def _scaled_sum(added: Tensor, product: Tensor, beta: Scalar, alpha: Scalar) -> Tensor:
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # then not even a NaN in the addend counts
        return product
    return product + (added if beta == 1 else added * beta)


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """Decompose ``beta * self + alpha * (mat1 @ mat2)``."""
    return _scaled_sum(self, torch.mm(mat1, mat2), beta, alpha)


def baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """Decompose the batched form of :func:`addmm`."""
    return _scaled_sum(self, torch.bmm(batch1, batch2), beta, alpha)


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {aten.addmm.default: addmm, aten.baddbmm.default: baddbmm}
