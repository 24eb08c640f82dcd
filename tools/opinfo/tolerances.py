"""Entries that are compared less tightly than the rest, with the reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Relative and absolute tolerance of one entry in one dtype."""

    rtol: float
    atol: float
    reason: str


TOLERANCES = {
    ("float_power", "float32"): Tolerance(1e-5, 1e-5, "computes in float64, which the target computes in float32"),
}
"""By name of the entry and dtype."""
