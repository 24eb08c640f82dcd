"""Factorizations in compiled graphs give what LAPACK gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .helpers import check_all, first_name, groups


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _regular(*shape: int) -> Tensor:
    return _x(*shape) + 4 * torch.eye(shape[-1])


def _positive(*shape: int) -> Tensor:
    return _x(*shape) @ _x(*shape).mT + torch.eye(shape[-1])


def _rebuilt(x: Tensor) -> Tensor:
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    return u @ torch.diag_embed(s + s**2) @ vh


def _function_of_symmetric(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(x + x.mT)
    return (vectors * values.exp()[..., None, :]) @ vectors.mT


DIFFERENTIABLE: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "inv": (torch.linalg.inv, (_regular(2, 4, 4),)),
    "det": (torch.linalg.det, (_x(2, 3, 3),)),
    "slogdet": (lambda x: torch.linalg.slogdet(x)[1], (_x(2, 3, 3),)),
    "solve": (torch.linalg.solve, (_regular(4, 4), _x(4, 3))),
    "solve from the right": (lambda a, b: torch.linalg.solve(a, b, left=False), (_regular(4, 4), _x(3, 4))),
    "cholesky": (torch.linalg.cholesky, (_positive(4, 4),)),
    "solve_triangular": (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), (_regular(4, 4), _x(4, 2))),
    "qr": (torch.linalg.qr, (_x(5, 3),)),
    "matrix_exp": (torch.linalg.matrix_exp, (_x(3, 3),)),
    "eigh": (_function_of_symmetric, (_x(5, 5) / 5,)),
    "svd": (_rebuilt, (_x(5, 3),)),
    "lu": (torch.linalg.lu, (_x(4, 4),)),
}
OTHERS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "pivots": (lambda x: torch.linalg.lu_factor_ex(x), (_x(2, 4, 3),)),
    "singular values of a wide matrix": (torch.linalg.svdvals, (_x(3, 6),)),
    "singular values of a singular matrix": (torch.linalg.svdvals, (torch.ones(4, 3),)),
    "a matrix that is not positive": (lambda x: torch.linalg.cholesky_ex(x)[1], (-torch.eye(3),)),
    "cholesky_solve of a batch": (
        lambda b, a: torch.cholesky_solve(b, torch.linalg.cholesky(a)),
        (_x(2, 4, 3), _positive(4, 4)),
    ),
    "householder vectors": (torch.geqrf, (_x(5, 3),)),
}


@pytest.mark.parametrize("cases", groups(DIFFERENTIABLE, 6), ids=first_name)
def test_values_and_gradients(cases: dict[str, Any]) -> None:
    check_all(cases, grad=True, rtol=1e-4, atol=1e-4)


def test_values() -> None:
    check_all(OTHERS)
