"""Matrix products with an addition, without the multiplications by one that torch's own decompositions keep.

And distances, which are norms of differences of each row with each.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.narrow_floats import NARROW

aten = torch.ops.aten
Scalar = int | float


def _scaled_sum(added: Tensor, product: Tensor, beta: Scalar, alpha: Scalar) -> Tensor:
    if not (product.is_floating_point() or product.is_complex()):
        beta, alpha = int(beta), int(alpha)  # ATen takes the factors of integers as integers
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


def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """Decompose the form of :func:`addmm` whose products are summed: one product of all batches side by side."""
    left = batch1.transpose(0, 1).reshape(batch1.shape[1], batch1.shape[0] * batch1.shape[2])
    return _scaled_sum(self, torch.mm(left, batch2.reshape(left.shape[1], batch2.shape[2])), beta, alpha)


def addmv(self: Tensor, mat: Tensor, vec: Tensor, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """Decompose the form of :func:`addmm` with a vector."""
    return _scaled_sum(self, torch.mm(mat, vec.unsqueeze(1)).squeeze(1), beta, alpha)


def trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Decompose into a product of three, summed."""
    factors = []
    for factor, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for dim in sorted(dims):
            factor = factor.unsqueeze(dim)
        factors.append(factor)
    product = factors[0] * factors[2] * factors[1]
    return product.sum(list(sumdim), dtype=product.dtype) if sumdim else product


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Decompose a scalar's norm, and that of narrow floats, whose squares may be beyond what the dtype holds."""
    if x.dim() != 0:
        kind = dtype or x.dtype
        if kind not in NARROW:
            return NotImplemented  # type: ignore[no-any-return]
        result: Tensor = torch.linalg.vector_norm(x.to(torch.float32), ord, dim, keepdim).to(kind)
        return result
    size = x.abs()
    size = size if dtype is None else size.to(dtype)
    return (size != 0).to(size.dtype) if ord == 0 else size


def norm(
    self: Tensor,
    p: float | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Decompose the older spelling of :func:`vector_norm`, where narrow floats need that."""
    if (dtype or self.dtype) not in NARROW:
        return NotImplemented  # type: ignore[no-any-return]
    result: Tensor = torch.linalg.vector_norm(self, 2.0 if p is None else p, dim or None, keepdim, dtype=dtype)
    return result


def dist(self: Tensor, other: Tensor, p: float = 2.0) -> Tensor:
    """Decompose into the norm of the difference."""
    result: Tensor = torch.linalg.vector_norm(self - other, p)
    return result


def _norm(difference: Tensor, p: float) -> Tensor:
    """Return the norms of the last dimension."""
    size = difference.abs()
    if p == 0:
        return (size != 0).to(size.dtype).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (size * size).sum(-1).sqrt()
    if math.isinf(p):
        return size.amax(-1) if size.shape[-1] else size.sum(-1)
    return size.pow(p).sum(-1).pow(1 / p)


def _slope(difference: Tensor, grad: Tensor, distance: Tensor, p: float) -> Tensor:
    """Return the gradient of a distance with respect to the difference; zero where the distance is."""
    if p == 0:
        return torch.zeros_like(difference)
    sign = difference.sign()
    if p == 1:
        return grad * sign
    if math.isinf(p):
        return torch.where(difference.abs() == distance, grad * sign, 0.0)
    apart = torch.where(distance == 0, 1.0, distance)
    if p == 2:
        slope = grad * difference / apart
    else:
        size = difference.abs()
        power = torch.where(size == 0, 0.0, torch.where(size == 0, 1.0, size).pow(p - 1))
        slope = sign * power * grad / apart.pow(p - 1)
    return torch.where(distance == 0, 0.0, slope)


def cdist_forward(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Decompose into the norms of all differences, without the matrix product that loses digits."""
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """Decompose into the slopes of all distances, summed over the second operand."""
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return _slope(difference, grad.unsqueeze(-1), cdist.unsqueeze(-1), p).sum(-2)


def _pairs(self: Tensor) -> Tensor:
    """Return the differences of each row with the later ones, in the order of ``pdist``."""
    return torch.cat([self[i : i + 1] - self[i + 1 :] for i in range(self.shape[0] - 1)])


def pdist_forward(self: Tensor, p: float = 2.0) -> Tensor:
    """Decompose into the norms of the differences of each row with the later ones."""
    if self.shape[0] < 2:
        return self.new_zeros([0])
    return _norm(_pairs(self), p)


def pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    """Decompose: each pair's slope goes to one row and, negated, to the other."""
    rows = self.shape[0]
    if rows < 2:
        return torch.zeros_like(self)
    slopes = _slope(_pairs(self), grad.unsqueeze(-1), pdist.unsqueeze(-1), p)
    result, begin = torch.zeros_like(self), 0
    for i in range(rows - 1):
        part = slopes[begin : begin + rows - 1 - i]
        begin += rows - 1 - i
        before = self.new_zeros([i, *self.shape[1:]])
        result = result + torch.cat([before, part.sum(0, keepdim=True), -part])
    return result


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.addmm.default: addmm,
    aten.baddbmm.default: baddbmm,
    aten.addbmm.default: addbmm,
    aten.addmv.default: addmv,
    aten._trilinear.default: trilinear,
    aten.dist.default: dist,
    aten.linalg_vector_norm.default: vector_norm,
    aten.norm.Scalar: norm,
    aten.norm.ScalarOpt_dtype: norm,
    aten.norm.ScalarOpt_dim: norm,
    aten.norm.ScalarOpt_dim_dtype: norm,
    aten._cdist_forward.default: cdist_forward,
    aten._cdist_backward.default: cdist_backward,
    aten._pdist_forward.default: pdist_forward,
    aten._pdist_backward.default: pdist_backward,
}
