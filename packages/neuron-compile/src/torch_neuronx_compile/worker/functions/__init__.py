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

_SPECIAL = (
    "lgamma", "digamma", "polygamma", "special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar", "erfinv",
    "erfc",
    "special_erfcx", "special_log_ndtr", "special_ndtri", "igamma", "igammac", "i0", "special_i0e", "special_i1",
    "special_i1e", "special_modified_bessel_k0", "special_modified_bessel_k1", "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
    "special_bessel_y1", "special_spherical_bessel_j0", "special_airy_ai", "nextafter", "frexp.Tensor",
    *(
        f"special_{name}{overload}"
        for name in (
            "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
            "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
            "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
            "legendre_polynomial_p",
        )
        for overload in ("", ".x_scalar", ".n_scalar")
    ),
)  # fmt: skip

FUNCTIONS: dict[str, str] = {
    f"aten.{name}": f"{module}:{name.partition('.')[0]}"
    for module, names in (("linear_algebra", _LINEAR_ALGEBRA), ("special", _SPECIAL))
    for name in names
} | {"aten.special_modified_bessel_i0": "special:i0", "aten.special_modified_bessel_i1": "special:special_i1"}
"""``module:function`` below this package by operator, spelled as the importer does: without ``.default``."""
