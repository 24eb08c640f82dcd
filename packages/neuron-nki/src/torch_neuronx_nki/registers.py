"""Scalar registers of a core, which kernels load from memory and use as numbers."""

from typing import Any

from torch_neuronx_nki.machine import current_core, violation


class NkiScalar:
    """One 32-bit register. It is a number to Python: in arithmetic, comparisons, indices and conditions.

    Raises :class:`NkiValidationError` where the number is asked for and only shapes are followed.
    """

    __slots__ = ("_value",)

    def __init__(self, value: int = 0) -> None:
        self._value: int | None = value

    @property
    def value(self) -> int:
        """What it holds."""
        if self._value is None:
            raise violation(
                "register",
                "The kernel asks for the number in a register, but runs without data",
                limit="a run with data",
                actual="shapes only",
                advice="State the shapes of the results with register_fake instead of running the kernel on them.",
            )
        return self._value

    def set(self, value: int | None) -> None:
        """Hold ``value``, cut to 32 bits with a sign; None where there is no data."""
        self._value = None if value is None else ((value + 2**31) % 2**32) - 2**31

    def __index__(self) -> int:
        # without data, an index stays inside of any tensor
        return 0 if self._value is None and not current_core().computes else self.value

    def __int__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return self.value != 0

    def __repr__(self) -> str:
        return f"NkiScalar({self._value})"

    def __hash__(self) -> int:
        return id(self)

    def __add__(self, other: Any) -> Any:
        return self.__index__() + other.__index__()

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self.__index__() - other.__index__()

    def __rsub__(self, other: Any) -> Any:
        return other.__index__() - self.__index__()

    def __mul__(self, other: Any) -> Any:
        return self.__index__() * other.__index__()

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self.__index__() // other.__index__()

    def __mod__(self, other: Any) -> Any:
        return self.__index__() % other.__index__()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int | NkiScalar) and self.value == int(other))

    def __lt__(self, other: Any) -> bool:
        return self.value < int(other)

    def __le__(self, other: Any) -> bool:
        return self.value <= int(other)

    def __gt__(self, other: Any) -> bool:
        return self.value > int(other)

    def __ge__(self, other: Any) -> bool:
        return self.value >= int(other)


VirtualRegister = NkiScalar
"""The name before version 0.7."""
