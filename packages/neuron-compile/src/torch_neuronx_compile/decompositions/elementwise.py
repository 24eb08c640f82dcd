"""Elementwise operators that torch-mlir lacks or gets wrong for operands of different shapes.

Each is exact, or has the rounding of the operators that it consists of.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.narrow_floats import NARROW, widened
from torch_neuronx_compile.structured_ops import remainder as rest_of_division

aten = torch.ops.aten


def _numbers(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Bring two tensors to one shape and one dtype."""
    dtype = torch.result_type(self, other)
    left, right = torch.broadcast_tensors(self.to(dtype), other.to(dtype))  # type: ignore[no-untyped-call]
    return left, right


def fmax(self: Tensor, other: Tensor) -> Tensor:
    """Take the larger, or the one that is not NaN."""
    a, b = _numbers(self, other)
    if not a.is_floating_point():
        return torch.maximum(a, b)
    return torch.where(torch.isnan(b) | (a >= b), a, b)


def fmin(self: Tensor, other: Tensor) -> Tensor:
    """Take the smaller, or the one that is not NaN."""
    a, b = _numbers(self, other)
    if not a.is_floating_point():
        return torch.minimum(a, b)
    return torch.where(torch.isnan(b) | (a <= b), a, b)


def fmod(self: Tensor, other: Tensor) -> Tensor:
    """Take the remainder of floats exactly: torch-mlir subtracts a rounded multiple, which leaves all or nothing."""
    a, b = _numbers(self, other)
    return rest_of_division(a, b) if a.is_floating_point() else NotImplemented


def div_mode(self: Tensor | float, other: Tensor | float, *, rounding_mode: str | None) -> Tensor:
    """Divide floats and round down, as ATen does: from the exact remainder, where 1 // 0.1 is 9."""
    kind = torch.result_type(self, other)
    if rounding_mode != "floor" or not kind.is_floating_point:
        return NotImplemented  # type: ignore[no-any-return]
    wide = torch.float32 if kind in NARROW else kind
    (device, *_) = (operand.device for operand in (self, other) if isinstance(operand, Tensor))
    a, b = _numbers(
        *(
            operand.to(kind).to(wide)
            if isinstance(operand, Tensor)
            else torch.full((), operand, dtype=wide, device=device)
            for operand in (self, other)
        )
    )
    rest = torch.fmod(a, b)
    exact = (a - rest) / b
    exact = torch.where((rest != 0) & ((rest < 0) != (b < 0)), exact - 1, exact)
    below = torch.floor(exact)
    whole = torch.where(exact - below > 0.5, below + 1, below)
    quotient = a / b
    whole = torch.where(exact == 0, torch.copysign(torch.zeros_like(quotient), quotient), whole)
    return torch.where(b == 0, quotient, whole).to(kind)


def remainder(self: Tensor, other: Tensor) -> Tensor:
    """Take the remainder with the sign of the divisor: that of :func:`torch.fmod`, moved once."""
    a, b = _numbers(self, other)
    rest = torch.fmod(a, b)
    return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def reciprocal(self: Tensor) -> Tensor:
    """Divide one by integers, as floating-point numbers."""
    if self.is_floating_point() or self.is_complex():
        return NotImplemented  # type: ignore[no-any-return]
    return torch.reciprocal(self.to(torch.get_default_dtype()))


def remainder_scalar_tensor(self: float, other: Tensor) -> Tensor:
    """Take the remainder of a number."""
    dtype = torch.result_type(self, other)
    return remainder(torch.full((), self, dtype=dtype, device=other.device), other.to(dtype))


def clamp_tensor(self: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Clamp between tensors of any shapes that broadcast; NaN in any of them wins."""
    result = self
    if min is not None:
        result = torch.maximum(*_numbers(result, min))
    if max is not None:
        result = torch.minimum(*_numbers(result, max))
    return result


def clamp_as_numbers(self: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """Clamp bools and integers as the numbers that their bounds make of them; torch-mlir converts other tensors."""
    kind = self.dtype
    for bound in (min, max):
        if bound is not None:
            kind = torch.promote_types(kind, torch.result_type(self, bound))
    return torch.clamp(self.to(kind), min, max) if kind is not self.dtype else NotImplemented


def clamp_min_tensor(self: Tensor, min: Tensor) -> Tensor:
    """Clamp from below."""
    return clamp_tensor(self, min)


def clamp_max_tensor(self: Tensor, max: Tensor) -> Tensor:
    """Clamp from above."""
    return clamp_tensor(self, None, max)


def angle(self: Tensor) -> Tensor:
    """Return pi for negative numbers, zero for others; NaN stays. Complex numbers have a form of their own."""
    if self.is_complex():
        return NotImplemented  # type: ignore[no-any-return]
    wide = self if self.is_floating_point() else self.to(torch.get_default_dtype())
    flat = torch.where(wide < 0, torch.full_like(wide, math.pi), torch.zeros_like(wide))
    return torch.where(torch.isnan(wide), wide, flat)


def signbit(self: Tensor) -> Tensor:
    """Whether the sign is set; that of a zero shows in its reciprocal."""
    if not self.is_floating_point():
        return self < 0 if self.dtype is not torch.bool else torch.zeros_like(self)
    return torch.where(self == 0, self.reciprocal() < 0, self < 0)


def copysign(self: Tensor, other: Tensor) -> Tensor:
    """Give ``self`` the sign of ``other``."""
    dtype = torch.result_type(self, other)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    size, sign = torch.broadcast_tensors(  # type: ignore[no-untyped-call]
        self.to(dtype).abs(), other.to(dtype)
    )
    return torch.where(signbit(sign), -size, size)


def copysign_scalar(self: Tensor, other: float) -> Tensor:
    """Give ``self`` the sign of a number."""
    size = self.abs() if self.is_floating_point() else self.to(torch.get_default_dtype()).abs()
    return -size if math.copysign(1.0, other) < 0 else size


def isinf(self: Tensor) -> Tensor:
    """Whether infinite. Complex numbers have a form of their own."""
    if self.is_complex():
        return NotImplemented  # type: ignore[no-any-return]
    return self.abs() == math.inf if self.is_floating_point() else torch.zeros_like(self, dtype=torch.bool)


def hypot(self: Tensor, other: Tensor) -> Tensor:
    """Return the length of the hypotenuse, scaled so that squares do not overflow."""
    a, b = _numbers(self, other)
    narrow = a.dtype
    a, b = (part.abs().to(torch.float32) if narrow.itemsize < 4 else part.abs() for part in (a, b))
    larger, smaller = torch.maximum(a, b), torch.minimum(a, b)
    ratio = smaller / torch.where(larger == 0, torch.ones_like(larger), larger)
    length = larger * torch.sqrt(1.0 + ratio * ratio)
    return torch.where(larger == math.inf, larger, length).to(narrow)


def _logaddexp(log: Callable[[Tensor], Tensor], exp: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def decomposed(self: Tensor, other: Tensor) -> Tensor:
        a, b = _numbers(self, other)
        larger, smaller = torch.maximum(a, b), torch.minimum(a, b)
        equal = a.abs().eq(math.inf) & (a == b)
        return torch.where(equal, a, larger + log(exp(torch.where(equal, torch.zeros_like(a), smaller - larger))))

    return decomposed


def round_decimals(self: Tensor, *, decimals: int) -> Tensor:
    """Round to so many decimals, half to even."""
    if decimals == 0:
        return torch.round(self)
    scale = 10.0 ** abs(decimals)
    wide = widened(self)
    rounded = torch.round(wide * scale) / scale if decimals > 0 else torch.round(wide / scale) * scale
    return rounded.to(self.dtype)


def heaviside(self: Tensor, values: Tensor) -> Tensor:
    """Return 0, ``values`` or 1 for negative, zero and positive numbers; 0 for NaN, as ATen does."""
    a, b = _numbers(self, values)
    step = torch.where(a > 0, torch.ones_like(a), torch.zeros_like(a))
    return torch.where(a == 0, b, step)


def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """Add a product of integers; ATen takes the factor as an integer too."""
    if any(operand.is_floating_point() or operand.is_complex() for operand in (self, tensor1, tensor2)):
        return NotImplemented  # type: ignore[no-any-return]
    return self + int(value) * tensor1 * tensor2


def power_of_bools(self: Tensor, exponent: float) -> Tensor:
    """Take a bool to the power of a truth value, which stays a bool."""
    if self.dtype is not torch.bool or not isinstance(exponent, bool):
        return NotImplemented  # type: ignore[no-any-return]
    return self.clone() if exponent else torch.ones_like(self)


def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """Multiply by a power of two."""
    return self * torch.pow(2.0, other)


def _gcd(a: Tensor, b: Tensor) -> Tensor:
    """Euclid's algorithm: in int64 it ends after 93 divisions at most, in 32 bits after 47."""
    for _ in range({1: 13, 2: 24, 4: 47, 8: 93}[a.dtype.itemsize]):
        safe = torch.where(b == 0, torch.ones_like(b), b)
        a, b = torch.where(b == 0, a, b), torch.where(b == 0, b, torch.fmod(a, safe))
    return a


def gcd(self: Tensor, other: Tensor) -> Tensor:
    """Return the greatest common divisor."""
    a, b = _numbers(self, other)
    return _gcd(a.abs(), b.abs())


def lcm(self: Tensor, other: Tensor) -> Tensor:
    """Return the least common multiple."""
    a, b = _numbers(self, other)
    divisor = _gcd(a.abs(), b.abs())
    return (torch.div(a, torch.where(divisor == 0, torch.ones_like(divisor), divisor), rounding_mode="trunc") * b).abs()


def _scaling(operator: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    def scaled(self: Tensor, other: Tensor | float) -> Tensor:
        """Decompose a product or quotient of narrow floats and one number that they cannot hold, as float32."""
        kind = torch.result_type(self, other)
        if kind not in NARROW or not (_cannot_hold(kind, other) or _cannot_hold(kind, self)):
            return NotImplemented  # type: ignore[no-any-return]
        left, right = (
            operand.to(torch.float32) if isinstance(operand, Tensor) else operand for operand in (self, other)
        )
        return operator(left, right).to(kind)

    return scaled


def _cannot_hold(kind: torch.dtype, number: Tensor | float) -> bool:
    """Whether a number, or a scalar tensor that promotes to ``kind``, may have digits or a range that it has not."""
    if isinstance(number, Tensor):
        return number.dim() == 0 and number.is_floating_point() and number.dtype not in NARROW
    if not isinstance(number, (int, float)) or number == 0 or not math.isfinite(number):
        return False
    limits = torch.finfo(kind)
    if not limits.smallest_normal <= abs(number) <= limits.max:
        return True
    return not (math.frexp(number)[0] * 2 / limits.eps).is_integer()


def _with_number(operator: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def decompose(self: Tensor, other: float) -> Tensor:
        """Decompose into the operator of two tensors; torch-mlir has no constants of uint8, which goes as int32."""
        kind = torch.result_type(self, other)
        wide = torch.int32 if kind is torch.uint8 else kind
        return operator(self.to(wide), torch.full(self.shape, other, dtype=wide, device=self.device)).to(kind)

    return decompose


def _shift(operator: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def decompose(self: Tensor, other: Tensor) -> Tensor:
        """Decompose into the shift of one shape and dtype; torch-mlir expands and converts nothing here.

        Bytes are shifted as int32: torch-mlir shifts them as if they had a sign.
        """
        kind = torch.result_type(self, other)
        wide = torch.int32 if kind is torch.uint8 else kind
        if self.shape == other.shape and self.dtype is wide and other.dtype is wide:
            return NotImplemented  # type: ignore[no-any-return]
        a, b = torch.broadcast_tensors(self.to(wide), other.to(wide))  # type: ignore[no-untyped-call]
        return operator(a, b).to(kind)

    return decompose


def absolute(self: Tensor) -> Tensor:
    """Return what has no sign as it is; torch-mlir converts others."""
    return self.clone() if self.dtype is torch.uint8 else NotImplemented


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.fmax.default: fmax,
    aten.fmin.default: fmin,
    aten.fmod.Scalar: _with_number(torch.fmod),
    aten.fmod.Tensor: fmod,
    aten.div.Tensor_mode: div_mode,
    aten.div.Scalar_mode: div_mode,
    aten.reciprocal.default: reciprocal,
    aten.remainder.Tensor: remainder,
    aten.abs.default: absolute,
    aten.bitwise_and.Scalar: _with_number(torch.bitwise_and),
    aten.bitwise_or.Scalar: _with_number(torch.bitwise_or),
    aten.bitwise_xor.Scalar: _with_number(torch.bitwise_xor),
    aten.__lshift__.Tensor: torch.bitwise_left_shift,
    aten.__rshift__.Tensor: torch.bitwise_right_shift,
    aten.bitwise_left_shift.Tensor: _shift(torch.bitwise_left_shift),
    aten.bitwise_right_shift.Tensor: _shift(torch.bitwise_right_shift),
    aten.__lshift__.Scalar: _with_number(torch.bitwise_left_shift),
    aten.__rshift__.Scalar: _with_number(torch.bitwise_right_shift),
    aten.bitwise_left_shift.Tensor_Scalar: _with_number(torch.bitwise_left_shift),
    aten.bitwise_right_shift.Tensor_Scalar: _with_number(torch.bitwise_right_shift),
    aten.mul.Tensor: _scaling(torch.mul),
    aten.mul.Scalar: _scaling(torch.mul),
    aten.div.Tensor: _scaling(torch.div),
    aten.div.Scalar: _scaling(torch.div),
    aten.remainder.Scalar: _with_number(remainder),
    aten.remainder.Scalar_Tensor: remainder_scalar_tensor,
    aten.clamp.default: clamp_as_numbers,
    aten.clamp.Tensor: clamp_tensor,
    aten.clamp_min.Tensor: clamp_min_tensor,
    aten.clamp_max.Tensor: clamp_max_tensor,
    aten.angle.default: angle,
    aten.signbit.default: signbit,
    aten.copysign.Tensor: copysign,
    aten.copysign.Scalar: copysign_scalar,
    aten.isinf.default: isinf,
    aten.hypot.default: hypot,
    aten.logaddexp.default: _logaddexp(torch.log1p, torch.exp),
    aten.logaddexp2.default: _logaddexp(lambda x: torch.log1p(x) / math.log(2.0), torch.exp2),
    aten.round.decimals: round_decimals,
    aten.heaviside.default: heaviside,
    aten.addcmul.default: addcmul,
    aten.pow.Tensor_Scalar: power_of_bools,
    aten.ldexp.Tensor: ldexp,
    aten.gcd.default: gcd,
    aten.lcm.default: lcm,
}
