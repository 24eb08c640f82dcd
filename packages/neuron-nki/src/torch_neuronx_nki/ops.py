"""The operators of the kernel language: what ``op=`` arguments name, and functions that can be called on tiles.

``nl.add`` is an :class:`Operator`: an instruction takes it as ``op=nl.add``, and ``nl.add(x, y)`` makes a tile.
Each has the torch function that computes it on float32 (or, for bit operations, on integers).
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import torch

from torch_neuronx_nki.dtypes import Dtype


class OperatorKind(StrEnum):
    """What an operator computes on."""

    ARITHMETIC = "arithmetic"
    """Two float32 numbers."""
    BITS = "bits"
    """Integers, without a cast."""
    ACTIVATION = "activation"
    """One float32 number."""


class Operator:
    """One operator. Compared by identity; its name is the vendor's."""

    __slots__ = ("compute", "identity", "into", "kind", "name", "reduce", "since_gen4")

    def __init__(
        self,
        name: str,
        kind: OperatorKind,
        compute: Callable[..., torch.Tensor],
        *,
        reduce: Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor] | None = None,
        identity: float | None = None,
        since_gen4: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.compute = compute
        """``compute(x, y)`` or ``compute(x)``."""
        self.into = _writes_into(compute)
        """The same with ``out=``, which converts; None where torch has no such form."""
        self.reduce = reduce
        """``reduce(x, dimensions)`` keeps the dimensions with size 1; None where the operator is no reduction."""
        self.identity = identity
        """What a running reduction starts from."""
        self.since_gen4 = since_gen4
        self.since_gen4 = since_gen4

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __call__(self, *args: Any, dtype: Dtype | str | None = None, **kwargs: Any) -> Any:
        """Compute a new tile of SBUF: of two tiles or a tile and a number, or of one tile for an activation.

        Reductions (``nl.max(x, axis=1)``) are called the same way: an operator that is both is one of
        ``nl.maximum`` and ``nl.max``.
        """
        from torch_neuronx_nki.language import tiles

        return tiles.apply(self, *args, dtype=dtype, **kwargs)


# those whose out= converts: torch.abs and its kind want the type of the input
_WITH_OUT = frozenset(
    {
        torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.div, torch.pow, torch.remainder,
        torch.fmod, torch.eq, torch.ne, torch.ge, torch.gt, torch.le, torch.lt, torch.logical_and, torch.logical_or,
        torch.logical_xor, torch.square, torch.sigmoid, torch.tanh, torch.erf, torch.exp, torch.log, torch.atan,
        torch.sqrt, torch.rsqrt, torch.reciprocal, torch.cos, torch.tan,
    }
)  # fmt: skip


def _writes_into(compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor] | None:
    function = getattr(compute, "of", compute)
    return function if function in _WITH_OUT else None


def _float(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Make numbers of truth values: comparisons of the language give 1.0 or 0.0."""

    def compute(*args: Any) -> torch.Tensor:
        return function(*args).float()

    compute.of = function  # type: ignore[attr-defined]
    return compute


def _sum(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return torch.sum(x, dims, keepdim=True)


def _product(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    for dim in dims:
        x = torch.prod(x, dim, keepdim=True)
    return x


def _folded(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Reduce with an operator that torch has no reduction for, from the first element to the last."""

    def reduce(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        kept = [size if dim not in dims else 1 for dim, size in enumerate(x.shape)]
        rows = x.reshape(*x.shape[: dims[0]], -1)
        result = rows[..., 0]
        for column in range(1, rows.shape[-1]):
            result = function(result, rows[..., column])
        return result.reshape(kept)

    return reduce


def _maximum(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return torch.amax(x, dims, keepdim=True)


def _minimum(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return torch.amin(x, dims, keepdim=True)


def _abs_max(x: Any, y: Any) -> torch.Tensor:
    return torch.maximum(torch.as_tensor(x).abs(), torch.as_tensor(y).abs())


def _abs_min(x: Any, y: Any) -> torch.Tensor:
    return torch.minimum(torch.as_tensor(x).abs(), torch.as_tensor(y).abs())


def _shift_right(x: torch.Tensor, y: Any) -> torch.Tensor:
    """Shift without the sign."""
    width = x.element_size() * 8
    wide = x.long() & ((1 << width) - 1)
    by = torch.as_tensor(y).long()
    return torch.where((by >= 0) & (by < width), wide >> by.clamp(0, 63), 0).to(x.dtype)


def _shift_left(x: torch.Tensor, y: Any) -> torch.Tensor:
    width = x.element_size() * 8
    by = torch.as_tensor(y).long()
    return torch.where((by >= 0) & (by < width), x.long() << by.clamp(0, 31), 0).to(x.dtype)


_A, _B, _U = OperatorKind.ARITHMETIC, OperatorKind.BITS, OperatorKind.ACTIVATION

add = Operator("add", _A, torch.add, reduce=_sum, identity=0.0)
subtract = Operator("subtract", _A, torch.sub, reduce=_folded(torch.sub), identity=0.0)
multiply = Operator("multiply", _A, torch.mul, reduce=_product, identity=1.0)
maximum = Operator("maximum", _A, torch.maximum, reduce=_maximum, identity=-torch.inf)
minimum = Operator("minimum", _A, torch.minimum, reduce=_minimum, identity=torch.inf)
divide = Operator("divide", _A, torch.div)
power = Operator("power", _A, torch.pow)
mod = Operator("mod", _A, torch.remainder)
fmod = Operator("fmod", _A, torch.fmod)
equal = Operator("equal", _A, _float(torch.eq))
not_equal = Operator("not_equal", _A, _float(torch.ne))
greater_equal = Operator("greater_equal", _A, _float(torch.ge))
greater = Operator("greater", _A, _float(torch.gt))
less_equal = Operator("less_equal", _A, _float(torch.le))
less = Operator("less", _A, _float(torch.lt))
logical_and = Operator("logical_and", _A, _float(torch.logical_and), reduce=_folded(_float(torch.logical_and)))
logical_or = Operator("logical_or", _A, _float(torch.logical_or), reduce=_folded(_float(torch.logical_or)))
logical_xor = Operator("logical_xor", _A, _float(torch.logical_xor), reduce=_folded(_float(torch.logical_xor)))
abs_max = Operator("abs_max", _A, _abs_max, reduce=lambda x, d: _maximum(x.abs(), d), identity=0.0, since_gen4=True)
abs_min = Operator(
    "abs_min", _A, _abs_min, reduce=lambda x, d: _minimum(x.abs(), d), identity=torch.inf, since_gen4=True
)
average = Operator("average", _A, lambda x, y: (x + y) / 2, reduce=lambda x, d: torch.mean(x, d, keepdim=True))
bypass = Operator("bypass", _A, lambda x, y: x)

invert = Operator("invert", _B, torch.bitwise_not)
bitwise_and = Operator("bitwise_and", _B, torch.bitwise_and, reduce=_folded(torch.bitwise_and))
bitwise_or = Operator("bitwise_or", _B, torch.bitwise_or, reduce=_folded(torch.bitwise_or))
bitwise_xor = Operator("bitwise_xor", _B, torch.bitwise_xor, reduce=_folded(torch.bitwise_xor))
left_shift = Operator("left_shift", _B, _shift_left)
right_shift = Operator("right_shift", _B, _shift_right)

_GELU_TANH = 0.7978845608028654  # sqrt(2 / pi)
_ERF_DX = 1.1283791670955126  # 2 / sqrt(pi)


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


def _gelu_dx(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * (1 + torch.erf(x * 2**-0.5)) + x * torch.exp(-0.5 * x * x) * (_GELU_TANH / 2)


def _gelu_sigmoid(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def _gelu_sigmoid_dx(x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(1.702 * x)
    return gate + 1.702 * x * gate * (1 - gate)


def _silu_dx(x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(x)
    return gate * (1 + x * (1 - gate))


def sine_of_the_engine(x: torch.Tensor) -> torch.Tensor:
    """Sine on [-pi, pi]; outside, the cubic that the engine's table extrapolates with.

    The one published value, sin(9) = 27.65, is met by the cubic that has value 0 and slope -1 at pi, as sine has, and
    no second-order term.
    """
    past = x.abs() - torch.pi
    cubic = x.sign() * (_SINE_CUBIC * past**3 - past)
    return torch.where(past > 0, cubic, torch.sin(x))


_SINE_CUBIC = (27.65 + (9 - torch.pi)) / (9 - torch.pi) ** 3

# called as functions, and as op= of activation
copy = Operator("copy", _U, _identity)
square = Operator("square", _U, torch.square)
sigmoid = Operator("sigmoid", _U, torch.sigmoid)
relu = Operator("relu", _U, torch.relu)
prelu = Operator("prelu", _U, torch.relu)
gelu = Operator("gelu", _U, torch.nn.functional.gelu)
gelu_dx = Operator("gelu_dx", _U, _gelu_dx)
gelu_apprx_tanh = Operator("gelu_apprx_tanh", _U, lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
gelu_apprx_sigmoid = Operator("gelu_apprx_sigmoid", _U, _gelu_sigmoid)
gelu_apprx_sigmoid_dx = Operator("gelu_apprx_sigmoid_dx", _U, _gelu_sigmoid_dx)
silu = Operator("silu", _U, torch.nn.functional.silu)
silu_dx = Operator("silu_dx", _U, _silu_dx)
tanh = Operator("tanh", _U, torch.tanh)
softplus = Operator("softplus", _U, torch.nn.functional.softplus)
mish = Operator("mish", _U, torch.nn.functional.mish)
erf = Operator("erf", _U, torch.erf)
erf_dx = Operator("erf_dx", _U, lambda x: torch.exp(-x * x) * _ERF_DX)
exp = Operator("exp", _U, torch.exp)
log = Operator("log", _U, torch.log)
sin = Operator("sin", _U, sine_of_the_engine)
arctan = Operator("arctan", _U, torch.atan)
sqrt = Operator("sqrt", _U, torch.sqrt)
rsqrt = Operator("rsqrt", _U, torch.rsqrt)
reciprocal = Operator("reciprocal", _U, torch.reciprocal)
sign = Operator("sign", _U, torch.sign)
abs = Operator("abs", _U, torch.abs)

# functions of nl only: the engines have no such activation, so that they are composed
cos = Operator("cos", _U, torch.cos)
tan = Operator("tan", _U, torch.tan)
tanh_dx = Operator("tanh_dx", _U, lambda x: 1 - torch.tanh(x) ** 2)
relu_dx = Operator("relu_dx", _U, lambda x: (x > 0).float())
negative = Operator("negative", _U, torch.neg)
ceil = Operator("ceil", _U, torch.ceil)
floor = Operator("floor", _U, torch.floor)
trunc = Operator("trunc", _U, torch.trunc)
logical_not = Operator("logical_not", _U, lambda x: torch.logical_not(x).float())

ACTIVATIONS = frozenset(
    {
        copy, square, sigmoid, relu, prelu, gelu, gelu_dx, gelu_apprx_tanh, gelu_apprx_sigmoid, gelu_apprx_sigmoid_dx,
        silu, silu_dx, tanh, softplus, mish, erf, erf_dx, exp, log, sin, arctan, sqrt, rsqrt, reciprocal, sign, abs,
    }
)  # fmt: skip
"""What the scalar engine computes."""
COMPOSED = frozenset({cos, tan, tanh_dx, relu_dx, negative, ceil, floor, trunc, logical_not})
"""Functions of ``nl`` that no instruction takes as ``op=``."""
UNARY_ALU = frozenset({abs, square, relu, rsqrt, reciprocal})
"""Activations that the vector engine takes where an operator of two numbers is expected; they ignore the second."""
WITHOUT_HARDWARE = frozenset({divide, mod, fmod})
"""Functions of ``nl`` that the chip's operator table lacks."""
BINARY = frozenset(
    {
        add, subtract, multiply, maximum, minimum, equal, not_equal, greater_equal, greater, less_equal, less,
        logical_and, logical_or, logical_xor, power, abs_max, abs_min, bypass, average,
    }
)  # fmt: skip
BITWISE = frozenset({invert, bitwise_and, bitwise_or, bitwise_xor, left_shift, right_shift})
REDUCTIONS = frozenset(
    {
        bitwise_and, bitwise_or, bitwise_xor, add, subtract, multiply, maximum, minimum, logical_and, logical_or,
        logical_xor, abs_max, abs_min,
    }
)  # fmt: skip
OPERATORS: dict[str, Operator] = {
    operator.name: operator for operator in (*ACTIVATIONS, *COMPOSED, *WITHOUT_HARDWARE, *BINARY, *BITWISE)
}
