"""The types of the kernel language, and how torch tensors hold them.

A :class:`Dtype` is a string, as in the vendor's language: ``nl.float32 == "float32"``. A :class:`Codec` says which
torch dtype carries the bits, how they become float32 and how float32 becomes them. Every type is held bit for bit;
arithmetic is float32; results are rounded to nearest, ties to even; what does not fit an integer saturates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import torch


class Kind(StrEnum):
    """What the elements of a type are."""

    FLOAT = "float"
    INTEGER = "integer"
    PACKED = "packed"
    """Four small floats in one element, which only the microscaling instructions look into."""


class Dtype(str):
    """A type of the kernel language. Equal to its name."""

    itemsize: int
    kind: Kind
    carrier: torch.dtype
    """The torch dtype that holds the bits."""
    largest: float
    """Largest finite value."""

    def __new__(cls, name: str, itemsize: int, kind: Kind, carrier: torch.dtype, largest: float) -> "Dtype":
        """Make the type ``name``."""
        self = super().__new__(cls, name)
        self.itemsize, self.kind, self.carrier, self.largest = itemsize, kind, carrier, largest
        return self

    def __repr__(self) -> str:
        return str(self)

    @property
    def is_integer(self) -> bool:
        """Whether bit operations take it."""
        return self.kind is Kind.INTEGER


_FLOAT, _INTEGER, _PACKED = Kind.FLOAT, Kind.INTEGER, Kind.PACKED

bool_ = Dtype("bool", 1, _INTEGER, torch.uint8, 255)
int8 = Dtype("int8", 1, _INTEGER, torch.int8, 2**7 - 1)
int16 = Dtype("int16", 2, _INTEGER, torch.int16, 2**15 - 1)
int32 = Dtype("int32", 4, _INTEGER, torch.int32, 2**31 - 1)
uint8 = Dtype("uint8", 1, _INTEGER, torch.uint8, 2**8 - 1)
uint16 = Dtype("uint16", 2, _INTEGER, torch.uint16, 2**16 - 1)
uint32 = Dtype("uint32", 4, _INTEGER, torch.uint32, 2**32 - 1)
float16 = Dtype("float16", 2, _FLOAT, torch.float16, 65504.0)
bfloat16 = Dtype("bfloat16", 2, _FLOAT, torch.bfloat16, torch.finfo(torch.bfloat16).max)
tfloat32 = Dtype("tfloat32", 4, _FLOAT, torch.float32, torch.finfo(torch.float32).max)
float32 = Dtype("float32", 4, _FLOAT, torch.float32, torch.finfo(torch.float32).max)
float8_e4m3 = Dtype("float8_e4m3", 1, _FLOAT, torch.uint8, 240.0)
"""IEEE-like: has infinities, largest value 240. torch has no such type."""
float8_e4m3fn = Dtype("float8_e4m3fn", 1, _FLOAT, torch.float8_e4m3fn, 448.0)
float8_e5m2 = Dtype("float8_e5m2", 1, _FLOAT, torch.float8_e5m2, 57344.0)
float8_e8m0fnu = Dtype("float8_e8m0fnu", 1, _FLOAT, torch.float8_e8m0fnu, 2.0**127)
float8_e5m2_x4 = Dtype("float8_e5m2_x4", 4, _PACKED, torch.int32, 0)
float8_e4m3fn_x4 = Dtype("float8_e4m3fn_x4", 4, _PACKED, torch.int32, 0)
float4_e2m1fn_x4 = Dtype("float4_e2m1fn_x4", 2, _PACKED, torch.int16, 0)

DTYPES: tuple[Dtype, ...] = (
    bool_, int8, int16, int32, uint8, uint16, uint32, float16, bfloat16, tfloat32, float32, float8_e4m3, float8_e4m3fn,
    float8_e5m2, float8_e8m0fnu, float8_e5m2_x4, float8_e4m3fn_x4, float4_e2m1fn_x4,
)  # fmt: skip
BY_NAME = {str(dtype): dtype for dtype in DTYPES} | {"bool_": bool_}
FP8 = frozenset({float8_e4m3, float8_e4m3fn, float8_e5m2})
HALF = frozenset({float16, bfloat16})

_OF_TORCH: dict[torch.dtype, Dtype] = {
    torch.bool: bool_,
    torch.int8: int8,
    torch.int16: int16,
    torch.int32: int32,
    torch.uint8: uint8,
    torch.uint16: uint16,
    torch.uint32: uint32,
    torch.float16: float16,
    torch.bfloat16: bfloat16,
    torch.float32: float32,
    torch.float8_e4m3fn: float8_e4m3fn,
    torch.float8_e5m2: float8_e5m2,
    torch.float8_e8m0fnu: float8_e8m0fnu,
}


def as_dtype(value: Any) -> Dtype | None:
    """Return the type that ``value`` names: one of ours, a string, a torch or a NumPy dtype; None if there is none."""
    if type(value) is Dtype:
        return value
    if isinstance(value, torch.dtype):
        return _OF_TORCH.get(value)
    if isinstance(value, str):
        return BY_NAME.get(value)
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return BY_NAME.get(name) if isinstance(name, str) else None


def torch_dtype(dtype: Dtype) -> torch.dtype:
    """Return the dtype of a torch tensor that leaves a kernel as ``dtype``."""
    if dtype is float8_e4m3:  # its finite values are e4m3fn's, bit for bit
        return torch.float8_e4m3fn
    if dtype is bool_:
        return torch.bool
    return dtype.carrier


@dataclass(frozen=True, slots=True, eq=False)
class Codec:
    """How elements of ``dtype`` are held in a torch tensor of dtype ``carrier``. Compared by identity."""

    dtype: Dtype
    carrier: torch.dtype
    native: bool
    """Whether torch's own arithmetic on the carrier is what the language asks for: float32 inside, rounded once."""
    load: Callable[[torch.Tensor], torch.Tensor]
    """Elements as float32; may return its argument."""
    save: Callable[[torch.Tensor, torch.Tensor], Any]
    """Write float32 values of the same shape to a carrier."""

    def __repr__(self) -> str:
        return f"Codec({self.dtype} in {self.carrier})"


@cache
def codec(dtype: Dtype, *, precise: bool = True, saturate: bool = False) -> Codec:
    """Return how ``dtype`` is held.

    ``precise=False`` holds the floating-point types that are narrower than float32 as float32, so that nothing is
    rounded. ``saturate`` keeps float8 results finite instead of giving infinity or NaN on overflow.
    """
    if dtype.kind is Kind.PACKED:
        return Codec(dtype, dtype.carrier, False, _no_values, _no_values)
    if dtype.is_integer:
        return Codec(dtype, dtype.carrier, False, torch.Tensor.float, _save_integer(dtype))
    if dtype is float32 or (not precise and dtype is not float8_e8m0fnu):
        return Codec(dtype, torch.float32, True, _same, torch.Tensor.copy_)
    if dtype in (float16, bfloat16):
        return Codec(dtype, dtype.carrier, True, torch.Tensor.float, torch.Tensor.copy_)
    if dtype is tfloat32:
        return Codec(dtype, torch.float32, False, _same, _save_tfloat32)
    if dtype is float8_e4m3:
        return Codec(dtype, torch.uint8, False, _load_e4m3, _saturated(_save_e4m3, 240.0) if saturate else _save_e4m3)
    save: Callable[[torch.Tensor, torch.Tensor], Any] = _save_e4m3fn if dtype is float8_e4m3fn else torch.Tensor.copy_
    if saturate:
        save = _saturated(torch.Tensor.copy_, dtype.largest)
    return Codec(dtype, dtype.carrier, False, torch.Tensor.float, save)


def _same(values: torch.Tensor) -> torch.Tensor:
    return values


def _no_values(*_: torch.Tensor) -> torch.Tensor:
    raise TypeError("A packed type has no arithmetic of its own.")


def _save_integer(dtype: Dtype) -> Callable[[torch.Tensor, torch.Tensor], None]:
    low = -(dtype.largest + 1) if dtype.startswith("int") else 0
    high = dtype.largest

    def save(out: torch.Tensor, values: torch.Tensor) -> None:
        # float64 holds every 32-bit integer, so that the limits are exact
        whole = values.double().round_().clamp_(low, high).nan_to_num_(0.0)
        out.copy_(whole.long() if out.dtype in (torch.uint16, torch.uint32) else whole)

    return save


def round_tfloat32(values: torch.Tensor) -> torch.Tensor:
    """Round float32 to the 10 fraction bits of tfloat32, ties to even."""
    bits = values.view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(values.isfinite(), rounded.view(torch.float32), values)


def _save_tfloat32(out: torch.Tensor, values: torch.Tensor) -> None:
    out.copy_(round_tfloat32(values.contiguous()))


def _e4m3_table() -> torch.Tensor:
    codes = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    values = codes.view(torch.float8_e4m3fn).float()
    magnitude = codes & 0x7F
    values[magnitude == 0x78] = torch.inf
    values[codes == 0xF8] = -torch.inf
    values[magnitude > 0x78] = torch.nan
    return values


_E4M3_VALUES = _e4m3_table()


def _load_e4m3(codes: torch.Tensor) -> torch.Tensor:
    return _E4M3_VALUES[codes.int()]


def _save_e4m3(out: torch.Tensor, values: torch.Tensor) -> None:
    codes = values.to(torch.float8_e4m3fn).view(torch.uint8)
    sign = values.signbit().to(torch.uint8) << 7
    codes = torch.where((codes & 0x7F) >= 0x78, sign | 0x78, codes)
    out.copy_(torch.where(values.isnan(), sign | 0x7F, codes))


def _save_e4m3fn(out: torch.Tensor, values: torch.Tensor) -> None:
    # torch saturates; without saturation, what rounds past the largest value is NaN
    out.copy_(torch.where(values.abs() > 464.0, torch.nan, values))


def _saturated(
    save: Callable[[torch.Tensor, torch.Tensor], Any], largest: float
) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    def clamp_and_save(out: torch.Tensor, values: torch.Tensor) -> None:
        save(out, values.clamp(-largest, largest))

    return clamp_and_save
