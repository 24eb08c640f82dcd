"""Complex operators as operators of two real tensors: neither StableHLO for the chip nor the chip has complex numbers.

``REAL_FORMS`` maps an operator to a function in which each complex tensor among arguments and results is a
:class:`Complex`. Operators that only move or add elements need no form: ``componentwise`` is theirs. Formulas: Kahan,
Branch Cuts for Complex Elementary Functions (1987), without its care for the last digits at overflow.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from torch_neuronx_compile.decompositions import fourier

aten = torch.ops.aten
prims = torch.ops.prims


class Complex(NamedTuple):
    """A complex tensor in parts."""

    real: Tensor
    imag: Tensor


Operand = Complex | Tensor | complex | float | int
_Form = TypeVar("_Form", bound=Callable[..., Any])

REAL_DTYPES = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def _form(*operators: Any) -> Callable[[_Form], _Form]:
    def register(function: _Form) -> _Form:
        for operator in operators:
            REAL_FORMS[operator] = function
        return function

    return register


REAL_FORMS: dict[OpOverloadPacket, Callable[..., Any]] = {}


def componentwise(operator: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Apply a linear operator to the real and to the imaginary parts of its complex arguments."""

    def part(value: Any, index: int) -> Any:
        if isinstance(value, Complex):
            return value[index]
        if isinstance(value, (list, tuple)):
            return type(value)(part(item, index) for item in value)
        if isinstance(value, torch.dtype):
            return REAL_DTYPES.get(value, value)
        if isinstance(value, complex):
            return value.imag if index else value.real
        return value

    results = [
        operator(
            *(part(value, index) for value in args), **{name: part(value, index) for name, value in kwargs.items()}
        )
        for index in (0, 1)
    ]
    if isinstance(results[0], (list, tuple)):
        return [Complex(real, imag) for real, imag in zip(*results, strict=True)]
    return Complex(*results)


def as_complex(value: Operand, like: Complex | None = None) -> Complex:
    """Return a real operand with a zero imaginary part; numbers become tensors of the dtype of ``like``."""
    if isinstance(value, Complex):
        return value
    if isinstance(value, Tensor):
        value = value if value.is_floating_point() or like is None else value.to(like.real.dtype)
        return Complex(value, torch.zeros_like(value))
    assert like is not None
    number = complex(value)
    return Complex(like.real.new_full((), number.real), like.real.new_full((), number.imag))


def _both(a: Operand, b: Operand) -> tuple[Complex, Complex]:
    like = a if isinstance(a, Complex) else b if isinstance(b, Complex) else None
    if like is None:  # two real operands of which one is a complex number
        like = as_complex(a if isinstance(a, Tensor) else b)
    return as_complex(a, like), as_complex(b, like)


@_form(aten.add, prims.add)
def add(a: Operand, b: Operand, *, alpha: complex = 1) -> Complex:
    """Add."""
    x, y = _both(a, b)
    if alpha != 1:
        y = mul(y, alpha)
    return Complex(x.real + y.real, x.imag + y.imag)


@_form(aten.sub, prims.sub)
def sub(a: Operand, b: Operand, *, alpha: complex = 1) -> Complex:
    """Subtract."""
    return add(a, b, alpha=-alpha)


@_form(aten.rsub)
def rsub(a: Operand, b: Operand, *, alpha: complex = 1) -> Complex:
    """Subtract ``a`` from ``b``."""
    return add(b, a, alpha=-alpha)


@_form(aten.mul, prims.mul)
def mul(a: Operand, b: Operand) -> Complex:
    """Multiply."""
    if isinstance(a, Complex) and isinstance(b, Tensor | float | int) and not isinstance(b, complex):
        return Complex(a.real * b, a.imag * b)
    if isinstance(b, Complex) and isinstance(a, Tensor | float | int) and not isinstance(a, complex):
        return Complex(a * b.real, a * b.imag)
    x, y = _both(a, b)
    return Complex(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


@_form(aten.div, prims.div)
def div(a: Operand, b: Operand) -> Complex:
    """Divide; the divisor is scaled first, so that its square does not overflow."""
    if isinstance(a, Complex) and isinstance(b, Tensor | float | int):
        return Complex(a.real / b, a.imag / b)
    x, y = _both(a, b)
    size = torch.maximum(y.real.abs(), y.imag.abs())
    size = torch.where(size == 0, torch.ones_like(size), size)
    c, d = y.real / size, y.imag / size
    below = (c * c + d * d) * size
    return Complex((x.real * c + x.imag * d) / below, (x.imag * c - x.real * d) / below)


@_form(aten.reciprocal)
def reciprocal(a: Complex) -> Complex:
    """Divide one by ``a``."""
    return div(1.0, a)


@_form(aten._conj, aten.conj_physical, aten._conj_physical, prims.conj, prims.conj_physical)
def conj(a: Complex) -> Complex:
    """Conjugate."""
    return Complex(a.real, -a.imag)


@_form(aten.resolve_conj, aten.resolve_neg, aten.alias, aten.clone, aten.detach, aten.lift_fresh, aten.contiguous)
def same(a: Complex, **_: Any) -> Complex:
    """Return ``a``."""
    return Complex(a.real, a.imag)


@_form(aten.view_as_real, aten.view_as_real_copy)
def view_as_real(a: Complex) -> Tensor:
    """Put the parts into a last axis."""
    return torch.stack([a.real, a.imag], -1)


@_form(aten.view_as_complex, aten.view_as_complex_copy)
def view_as_complex(a: Tensor) -> Complex:
    """Take the parts from the last axis."""
    return Complex(a.select(-1, 0), a.select(-1, 1))


@_form(aten.complex)
def complex_(real: Tensor, imag: Tensor) -> Complex:
    """Join two real tensors."""
    real, imag = torch.broadcast_tensors(real, imag)  # type: ignore[no-untyped-call]
    return Complex(real.clone(), imag.clone())


@_form(aten.polar)
def polar(abs: Tensor, angle: Tensor) -> Complex:
    """Join size and angle."""
    return Complex(abs * torch.cos(angle), abs * torch.sin(angle))


@_form(aten.real, prims.real)
def real(a: Complex) -> Tensor:
    """Return the real part."""
    return a.real.clone()


@_form(aten.imag, prims.imag)
def imag(a: Complex) -> Tensor:
    """Return the imaginary part."""
    return a.imag.clone()


@_form(aten.abs, prims.abs)
def abs_(a: Complex) -> Tensor:
    """Return the size, scaled so that squares do not overflow."""
    larger = torch.maximum(a.real.abs(), a.imag.abs())
    smaller = torch.minimum(a.real.abs(), a.imag.abs())
    ratio = smaller / torch.where(larger == 0, torch.ones_like(larger), larger)
    return larger * torch.sqrt(1.0 + ratio * ratio)


@_form(aten.angle)
def angle(a: Complex) -> Tensor:
    """Return the angle."""
    return torch.atan2(a.imag, a.real)


@_form(aten.sgn)
def sgn(a: Complex) -> Complex:
    """Return ``a`` divided by its size, zero for zero."""
    size = abs_(a)
    safe = torch.where(size == 0, torch.ones_like(size), size)
    return Complex(a.real / safe, a.imag / safe)


@_form(aten.exp)
def exp(a: Complex) -> Complex:
    """Exponential."""
    return polar(torch.exp(a.real), a.imag)


@_form(aten.log)
def log(a: Complex) -> Complex:
    """Logarithm."""
    return Complex(torch.log(abs_(a)), angle(a))


@_form(aten.sqrt)
def sqrt(a: Complex) -> Complex:
    """Square root with a real part that is not negative."""
    size = abs_(a)
    root = torch.sqrt((size + a.real.abs()) * 0.5)
    other = a.imag.abs() / (2.0 * torch.where(root == 0, torch.ones_like(root), root))
    positive = a.real >= 0
    return Complex(torch.where(positive, root, other), torch.copysign(torch.where(positive, other, root), a.imag))


@_form(aten.pow)
def pow_(a: Operand, b: Operand) -> Complex:
    """Power: by multiplication for small whole exponents, by logarithm for others."""
    if isinstance(b, (int, float)) and float(b).is_integer() and 0 < b <= 4:
        assert isinstance(a, Complex)
        result = a
        for _ in range(int(b) - 1):
            result = mul(result, a)
        return result
    x, y = _both(a, b)
    return exp(mul(y, log(x)))


@_form(aten.sin)
def sin(a: Complex) -> Complex:
    """Sine."""
    return Complex(torch.sin(a.real) * torch.cosh(a.imag), torch.cos(a.real) * torch.sinh(a.imag))


@_form(aten.cos)
def cos(a: Complex) -> Complex:
    """Cosine."""
    return Complex(torch.cos(a.real) * torch.cosh(a.imag), -torch.sin(a.real) * torch.sinh(a.imag))


@_form(aten.mm, aten.bmm, aten.matmul)
def matmul(a: Operand, b: Operand) -> Complex:
    """Multiply matrices with four real products."""
    x, y = as_complex(a), as_complex(b)
    return Complex(
        torch.matmul(x.real, y.real) - torch.matmul(x.imag, y.imag),
        torch.matmul(x.real, y.imag) + torch.matmul(x.imag, y.real),
    )


@_form(aten.eq)
def eq(a: Operand, b: Operand) -> Tensor:
    """Compare."""
    x, y = _both(a, b)
    return (x.real == y.real) & (x.imag == y.imag)


@_form(aten.ne)
def ne(a: Operand, b: Operand) -> Tensor:
    """Compare."""
    return ~eq(a, b)


@_form(aten.where)
def where(condition: Tensor, a: Operand, b: Operand) -> Complex:
    """Choose."""
    x, y = _both(a, b)
    return Complex(torch.where(condition, x.real, y.real), torch.where(condition, x.imag, y.imag))


@_form(aten._to_copy, prims.convert_element_type)
def convert(a: Complex | Tensor, dtype: torch.dtype | None = None, **_: Any) -> Complex | Tensor:
    """Convert from, to and between complex dtypes; to a real one by dropping the imaginary part."""
    if dtype is None:
        return same(a) if isinstance(a, Complex) else a.clone()
    wanted = REAL_DTYPES.get(dtype)
    if wanted is None:
        part = a.real if isinstance(a, Complex) else a
        if dtype is torch.bool and isinstance(a, Complex):
            return (a.real != 0) | (a.imag != 0)
        return part.to(dtype)
    if isinstance(a, Complex):
        return Complex(a.real.to(wanted), a.imag.to(wanted))
    return Complex(a.to(wanted), torch.zeros_like(a, dtype=wanted))


@_form(aten.isnan)
def isnan(a: Complex) -> Tensor:
    """Whether a part is NaN."""
    return torch.isnan(a.real) | torch.isnan(a.imag)


@_form(aten.isinf)
def isinf(a: Complex) -> Tensor:
    """Whether a part is infinite."""
    return torch.isinf(a.real) | torch.isinf(a.imag)


@_form(aten.fill, aten.full_like)
def full_like(a: Complex, value: complex, **_: Any) -> Complex:
    """Fill with a number."""
    number = complex(value)
    return Complex(torch.full_like(a.real, number.real), torch.full_like(a.imag, number.imag))


@_form(aten.ones_like)
def ones_like(a: Complex, **_: Any) -> Complex:
    """Fill with one."""
    return full_like(a, 1.0)


@_form(aten._fft_r2c)
def fft_r2c(self: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """Fourier transform of a real tensor."""
    return Complex(*fourier.r2c(self, dim, normalization, onesided))


@_form(aten._fft_c2r)
def fft_c2r(self: Complex, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """Fourier transform to a real tensor."""
    return fourier.c2r(self, dim, normalization, last_dim_size)


@_form(aten._fft_c2c)
def fft_c2c(self: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    """Fourier transform."""
    return Complex(*fourier.c2c(self, dim, normalization, forward))
