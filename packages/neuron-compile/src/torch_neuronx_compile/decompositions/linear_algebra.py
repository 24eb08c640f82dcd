"""Linear algebra that is made of a factorization: torch has no decomposition of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def linalg_pinv(
    self: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """Invert the singular values above the tolerance (Golub and Van Loan, 5.5.2), as ATen does."""
    rows, columns = self.shape[-2:]
    if self.numel() == 0:
        return self.new_zeros((*self.shape[:-2], columns, rows))
    if hermitian:
        values, right = torch.linalg.eigh(self)
        left, sizes = right.mT, values.abs()
    else:
        u, values, vh = torch.linalg.svd(self, full_matrices=False)
        left, right, sizes = u.mT, vh.mT, values
    largest = sizes.amax(-1, keepdim=True)
    least = torch.zeros_like(largest)
    if atol is not None:
        least = least + atol.to(self.dtype)[..., None]
    if rtol is not None:
        relative = least * 0.0 + rtol.to(self.dtype)[..., None]
    else:
        relative = torch.full_like(least, torch.finfo(self.dtype).eps * max(rows, columns))
        relative = torch.where(least > 0, torch.zeros_like(least), relative)
    kept = sizes > torch.maximum(least, relative * largest)
    inverse = torch.where(kept, 1.0 / torch.where(kept, values, torch.ones_like(values)), torch.zeros_like(values))
    result: Tensor = (right * inverse[..., None, :]) @ left
    return result


def _is_row_major(self: Tensor) -> bool:
    """Whether ATen factorizes the transpose for a determinant, on which its gradient relies."""
    return self.numel() > 0 and self.is_contiguous() and not self.mT.is_contiguous()


def linalg_det(self: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Take the determinant, and the factors, of the transpose."""
    return torch.ops.aten._linalg_det(self.mT) if _is_row_major(self) else NotImplemented


def linalg_slogdet(self: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Take the logarithm of the determinant, and the factors, of the transpose."""
    return torch.ops.aten._linalg_slogdet(self.mT) if _is_row_major(self) else NotImplemented


def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """Solve with the factor, leading dimensions broadcast; autograd takes this step by itself, inference does not."""
    batch = torch.broadcast_shapes(self.shape[:-2], input2.shape[:-2])  # type: ignore[no-untyped-call]
    right, factor = self.expand(*batch, *self.shape[-2:]), input2.expand(*batch, *input2.shape[-2:])
    result: Tensor = torch.ops.aten._cholesky_solve_helper(right, factor, upper)
    return result


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.linalg_pinv.atol_rtol_tensor: linalg_pinv,
    aten.cholesky_solve.default: cholesky_solve,
    aten._linalg_det.default: linalg_det,
    aten._linalg_slogdet.default: linalg_slogdet,
}
