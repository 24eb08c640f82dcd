"""Special functions and other elementwise operators give what the CPU gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .helpers import check, check_all, first_name, groups

X = torch.cat([torch.linspace(-7, 7, 57), torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf")])])
POSITIVE = torch.linspace(0.1, 9, 40)
UNIT = torch.linspace(0.01, 0.99, 30)
s = torch.special

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "bessel_j": (lambda x: (s.bessel_j0(x), s.bessel_j1(x)), (X,)),
    "bessel_y": (lambda x: (s.bessel_y0(x), s.bessel_y1(x)), (POSITIVE,)),
    "modified bessel": (lambda x: (s.i0e(x), s.i1e(x), s.i1(x)), (X[:-3],)),
    "modified bessel, second kind": (lambda x: (s.modified_bessel_k0(x), s.modified_bessel_k1(x)), (POSITIVE,)),
    "airy": (s.airy_ai, (X,)),
    "erfcx": (s.erfcx, (X,)),
    "log_ndtr": (s.log_ndtr, (X[:-3],)),
    "ndtri and erfinv": (lambda x: (s.ndtri(x), torch.erfinv(x)), (UNIT,)),
    "gamma functions": (lambda x: (torch.lgamma(x), torch.digamma(x), torch.polygamma(1, x)), (POSITIVE,)),
    "higher polygamma": (lambda x: torch.polygamma(3, x), (POSITIVE,)),
    "zeta": (lambda x: s.zeta(x + 1, x), (POSITIVE,)),
    "incomplete gamma": (lambda x: (torch.igamma(x, x + 1), torch.igammac(x, x + 1)), (POSITIVE,)),
    "chebyshev": (
        lambda x, n: (s.chebyshev_polynomial_t(x, n), s.chebyshev_polynomial_u(x, n)),
        (torch.linspace(-1, 1, 12), torch.arange(12.0)),
    ),
    "hermite": (lambda x: s.hermite_polynomial_h(x, 4), (torch.linspace(-1, 1, 12),)),
    "legendre": (lambda x: s.legendre_polynomial_p(x, 3), (torch.linspace(-1, 1, 12),)),
    "nextafter": (torch.nextafter, (X[:-3], X[:-3].flip(0))),
    "frexp": (torch.frexp, (X[:-3],)),
    "remainder of shapes": (torch.remainder, (X[:57], torch.tensor(-1.5))),
    "fmax and fmin": (lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)), (X, X.flip(0)[:1])),
    "signbit": (lambda x: (torch.signbit(x), torch.copysign(torch.ones_like(x), x)), (X,)),
    "hypot": (torch.hypot, (X, X.flip(0))),
    "gcd": (lambda x: (torch.gcd(x.int() * 6, x.int() * 4 + 2), torch.lcm(x.int(), x.int() + 3)), (X[:57],)),
    "heaviside": (torch.heaviside, (X, X.flip(0))),
    "diagonal": (lambda x: (x.reshape(5, 11).diagonal(2), x.reshape(5, 11).diagonal(-1)), (X[:55],)),
    "as_strided": (lambda x: x.as_strided((3, 4), (2, 5), 1), (X[:30],)),
    "roll": (lambda x: x.reshape(5, 11).roll((1, -2), (0, 1)), (X[:55],)),
    "eye": (lambda x: x.reshape(5, 11) + torch.eye(5, 11, device=x.device), (X[:55],)),
}


@pytest.mark.parametrize("cases", groups(FUNCTIONS, 9), ids=first_name)
def test_values(cases: dict[str, Any]) -> None:
    check_all(cases, rtol=2e-5)


DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
    "lgamma": torch.lgamma,
    "i0": torch.i0,
    "logaddexp": lambda x: torch.logaddexp(x, x * 2),
    "fmax": lambda x: torch.fmax(x, 4 - x),
    "diagonal": lambda x: x.reshape(5, 8).diagonal(1),
    "roll": lambda x: x.roll(3) * x,
}


def test_gradients() -> None:
    check_all({name: (function, (POSITIVE,)) for name, function in DIFFERENTIABLE.items()}, grad=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_computed_in_float32(dtype: torch.dtype) -> None:
    check(torch.lgamma, POSITIVE.to(dtype), rtol=1e-2, atol=1e-3)
