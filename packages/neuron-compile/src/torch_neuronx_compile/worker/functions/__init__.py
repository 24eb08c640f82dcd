"""Operators written as functions of jax arrays: what has a definition in loops or sorts but none in other operators.

A function takes the operator's arguments by name, tensors as arrays, and is traced to StableHLO in the worker for one
set of shapes. ``FUNCTIONS`` is all that the user's process reads of this package.
"""

_LINEAR_ALGEBRA = (
    "linalg_lu_factor_ex", "linalg_lu", "lu_unpack", "linalg_lu_solve", "_linalg_solve_ex", "linalg_inv_ex",
    "_linalg_det", "_linalg_slogdet", "linalg_solve_triangular", "triangular_solve",
    "linalg_cholesky_ex", "cholesky", "_cholesky_solve_helper", "cholesky_inverse", "geqrf",
    "linalg_householder_product", "ormqr", "linalg_qr", "_linalg_eigh", "_linalg_svd", "linalg_matrix_exp",
)  # fmt: skip

FUNCTIONS: dict[str, str] = {f"aten.{name}": f"linear_algebra:{name.partition('.')[0]}" for name in _LINEAR_ALGEBRA}
"""``module:function`` below this package by operator, spelled as the importer does: without ``.default``."""
