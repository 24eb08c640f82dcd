"""Entries that are compared less tightly than the rest, with the reason."""

import re

from tools.opinfo.tolerances import TOLERANCES as EAGER
from tools.opinfo.tolerances import Tolerance

_POLE = "another rounding next to a pole, where the gradient is in the hundreds"
_CONDITION = "another algorithm than LAPACK's: both have the error of float32 times the condition of the matrix"

PATTERNS: tuple[tuple[str, Tolerance], ...] = (
    (r"asin|atanh|erfinv", Tolerance(1e-5, 1e-5, _POLE)),
    (r"(matrix_exp|linalg_matrix_exp)", Tolerance(1e-5, 0.5, "errors are relative to the largest element, 1e5")),
    (
        r"linalg_.*|.*cholesky.*|lu.*|qr|geqrf|ormqr|svd.*|pca_lowrank|pinverse|logdet|triangular_solve",
        Tolerance(1e-4, 1e-4, _CONDITION),
    ),
)
"""Patterns of the entries' names, for float32."""


def tolerance_of(entry: str, dtype: str) -> Tolerance | None:
    """Return the tolerance of an entry, ``None`` for the default."""
    if dtype == "float32":
        for pattern, tolerance in PATTERNS:
            if re.fullmatch(pattern, entry):
                return tolerance
    return EAGER.get((entry, dtype))
