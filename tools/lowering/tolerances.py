"""Entries that are compared less tightly than the rest, with the reason.

The bounds are of float32's rounding, 6e-8 of a term: PyTorch's samples are numbers up to 9, so that a term of a product
is up to 81, and a sum of tens of such terms in another order differs by up to 1e-4 without either being wrong.
"""

import re

from tools.opinfo.tolerances import TOLERANCES as EAGER
from tools.opinfo.tolerances import Tolerance

_POLE = "another rounding next to a pole, where the gradient is in the hundreds"
_CONDITION = "another algorithm than LAPACK's: both have the error of float32 times the condition of the matrix"
_ORDER = "sums of products up to 81 each, in another order"

PATTERNS: tuple[tuple[str, Tolerance], ...] = (
    (r"asin|atanh|erfinv", Tolerance(1e-5, 1e-5, _POLE)),
    (
        r"addbmm|baddbmm|bmm|matmul|__rmatmul__|addmm.*|mm|nn_functional_(conv.*|linear|bilinear|scaled_dot_product_attention)",
        Tolerance(1e-5, 1e-4, _ORDER),
    ),
    (
        r"native_layer_norm|nn_functional_layer_norm",
        Tolerance(1e-5, 1e-3, "of one element the gradient is 0; the CPU leaves a rounding times 1/sqrt(eps)"),
    ),
    (r"pow", Tolerance(1e-5, 1e-5, "the gradient is a power times a logarithm, both rounded")),
    (r"fft_.*", Tolerance(1e-5, 1e-4, "sums of up to 72 numbers up to 9, in another order")),
    (
        r"grid_sampler_.*|nn_functional_grid_sample",
        Tolerance(1e-5, 1e-3, "the gradient of the grid is a sum of products up to 81, times half the extent"),
    ),
    (r"logcumsumexp", Tolerance(5e-3, 1e-5, "the gradient is the exponential of a difference of numbers around 10000")),
    (
        r"linalg_.*|.*cholesky.*|lu.*|qr|geqrf|ormqr|svd.*|pca_lowrank|pinverse|logdet|triangular_solve",
        Tolerance(1e-4, 1e-4, _CONDITION),
    ),
)
"""Patterns of the entries' names, for float32."""

RELATIVE_TO_LARGEST: tuple[tuple[str, float, str], ...] = (
    (
        r"matrix_exp",
        5e-5,
        "the exponential multiplies a rounding of 6e-8 by the norm, here 45, and each of six squarings adds its own",
    ),
)
"""Patterns of entries, for float32: the largest difference divided by the largest element of the tensor, and why."""


def tolerance_of(entry: str, dtype: str) -> Tolerance | None:
    """Return the tolerance of an entry, ``None`` for the default."""
    if dtype == "float32":
        for pattern, tolerance in PATTERNS:
            if re.fullmatch(pattern, entry):
                return tolerance
    return EAGER.get((entry, dtype))


def relative_to_largest(entry: str, dtype: str) -> float | None:
    """Return the bound of an entry whose errors are in proportion to the largest element, ``None`` for others."""
    if dtype == "float32":
        for pattern, bound, _ in RELATIVE_TO_LARGEST:
            if re.fullmatch(pattern, entry):
                return bound
    return None
