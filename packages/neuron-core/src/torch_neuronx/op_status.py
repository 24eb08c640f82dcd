"""What the target does with an ATen operator."""

from dataclasses import dataclass
from enum import StrEnum


class OpStatus(StrEnum):
    """How an operator runs on the target."""

    NATIVE = "native"
    """The chip runs it."""
    FALLBACK = "fallback"
    """The CPU runs it, on a copy of the data; the result is on the device."""
    UNSUPPORTED = "unsupported"
    """It raises :class:`torch_neuronx.errors.UnsupportedOperatorError`."""


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One row of the operator table: the status, and why it is not ``native`` where it is not."""

    status: OpStatus
    reason: str = ""
    breaks: str | None = None
    """Why, or when, a call of it breaks a compiled graph; empty: it does not, ``None``: nobody has tried."""
