"""Factorizations of small matrices in loops, with LAPACK's conventions for pivots and signs.

Every function takes matrices in the last two axes, batches in front. Sources: Golub and Van Loan, Matrix Computations,
4th edition: LU with partial pivoting (3.4), Householder QR (5.2), cyclic Jacobi in parallel order (8.5) for symmetric
matrices, one-sided Jacobi (8.6) for singular values, scaling and squaring (9.3). Errors are those of float32 backward
stable algorithms, a few units of the last place times the condition number.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

_SWEEPS = 15
"""Jacobi converges quadratically after a few sweeps; float32 needs six to ten."""


def _batched(function: Callable[..., Any], *arrays: Array) -> Any:
    """Map a function of matrices over the axes in front of the last two."""
    batch = np.broadcast_shapes(*(array.shape[:-2] for array in arrays))
    count = int(np.prod(batch))
    flat = [jnp.broadcast_to(a, (*batch, *a.shape[-2:])).reshape((count, *a.shape[-2:])) for a in arrays]
    results = jax.vmap(function)(*flat)
    return jax.tree.map(lambda result: result.reshape((*batch, *result.shape[1:])), results)


def _loop(count: int, body: Callable[[Array, Any], Any], state: Any) -> Any:
    return lax.fori_loop(jnp.int32(0), jnp.int32(count), body, state) if count else state


def _matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _index(count: int) -> Array:
    return jnp.arange(count, dtype=jnp.int32)


def _column(a: Array, i: Array) -> Array:
    column: Array = lax.dynamic_index_in_dim(a, i, 1, keepdims=False)
    return column


def _row(a: Array, i: Array) -> Array:
    row: Array = lax.dynamic_index_in_dim(a, i, 0, keepdims=False)
    return row


# LU -----------------------------------------------------------------------------------------------------------------


def _lu(a: Array, pivot: bool = True) -> tuple[Array, Array, Array, Array]:
    """Return L and U in one matrix, pivots from 1, the permutation of the rows and LAPACK's info."""
    m, n = a.shape
    rows, columns = _index(m), _index(n)
    count = min(m, n)

    def step(i: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        a, pivots, permutation, info = state
        chosen = jnp.argmax(jnp.where(rows >= i, jnp.abs(_column(a, i)), -1.0)).astype(jnp.int32) if pivot else i
        swapped = jnp.where(rows == i, chosen, jnp.where(rows == chosen, i, rows))
        a, permutation = a[swapped], permutation[swapped]
        pivots = jnp.where(_index(count) == i, chosen + 1, pivots)
        column, row = _column(a, i), _row(a, i)
        diagonal = lax.dynamic_index_in_dim(column, i, 0, keepdims=False)
        factors = jnp.where((rows > i) & (diagonal != 0), column / diagonal, 0.0)
        a = a - factors[:, None] * jnp.where(columns > i, row, 0.0)[None, :]
        replaced = jnp.where(rows > i, jnp.where(diagonal != 0, factors, column), column)
        a = jnp.where((columns == i)[None, :], replaced[:, None], a)
        info = jnp.where((diagonal == 0) & (info == 0), i + 1, info)
        return a, pivots, permutation, info

    return _loop(count, step, (a, jnp.zeros(count, jnp.int32), rows, jnp.int32(0)))  # type: ignore[no-any-return]


def linalg_lu_factor_ex(A: Array, pivot: bool = True, check_errors: bool = False) -> tuple[Array, Array, Array]:
    """LU with partial pivoting: the packed factors, the pivots and info."""
    packed, pivots, _, info = _batched(lambda a: _lu(a, pivot), A)
    return packed, pivots if pivot else jnp.broadcast_to(_index(pivots.shape[-1]) + 1, pivots.shape), info


def _split(packed: Array) -> tuple[Array, Array]:
    m, n = packed.shape[-2:]
    k = min(m, n)
    lower = jnp.tril(packed[..., :, :k], -1) + jnp.eye(m, k, dtype=packed.dtype)
    return lower, jnp.triu(packed[..., :k, :])


def linalg_lu(A: Array, pivot: bool = True) -> tuple[Array, Array, Array]:
    """P, L and U with A = P L U."""
    packed, _, permutation, _ = _batched(lambda a: _lu(a, pivot), A)
    lower, upper = _split(packed)
    m = A.shape[-2]
    p = (permutation[..., None, :] == _index(m)[:, None]).astype(A.dtype) if pivot else jnp.zeros((0,), A.dtype)
    return p, lower, upper


def _permutation(pivots: Array, m: int) -> Array:
    """Return the permutation of the rows that swaps with ``pivots`` make."""

    def one(pivots: Array) -> Array:
        rows = _index(m)

        def step(i: Array, permutation: Array) -> Array:
            other = lax.dynamic_index_in_dim(pivots, i, 0, keepdims=False) - 1
            return permutation[jnp.where(rows == i, other, jnp.where(rows == other, i, rows))]

        return _loop(pivots.shape[0], step, rows)  # type: ignore[no-any-return]

    flat = pivots.astype(jnp.int32).reshape((int(np.prod(pivots.shape[:-1])), pivots.shape[-1]))
    return jax.vmap(one)(flat).reshape((*pivots.shape[:-1], m))


def lu_unpack(
    LU_data: Array, LU_pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, Array, Array]:
    """P, L and U of packed factors; empty where not asked for."""
    empty = jnp.zeros((0,), LU_data.dtype)
    m = LU_data.shape[-2]
    p, lower, upper = empty, empty, empty
    if unpack_pivots:
        permutation = _permutation(LU_pivots, m)
        p = (permutation[..., None, :] == _index(m)[:, None]).astype(LU_data.dtype)
    if unpack_data:
        lower, upper = _split(LU_data)
    return p, lower, upper


def _triangular(a: Array, b: Array, upper: bool, unit: bool = False, transpose: bool = False) -> Array:
    """Solve ``a x = b`` for one triangular matrix by substitution."""
    n = a.shape[0]
    if n == 0 or b.shape[1] == 0:
        return b
    if transpose:
        a, upper = a.T, not upper
    a = (
        jnp.triu(a, 1) + jnp.diag(jnp.ones(n, a.dtype) if unit else jnp.diagonal(a))
        if upper
        else (jnp.tril(a, -1) + jnp.diag(jnp.ones(n, a.dtype) if unit else jnp.diagonal(a)))
    )
    rows = _index(n)

    def step(k: Array, x: Array) -> Array:
        i = n - 1 - k if upper else k
        row = _row(a, i)
        known = jnp.where(rows > i if upper else rows < i, row, 0.0)
        rest = _row(b, i) - _matmul(known[None, :], jnp.where((known != 0)[:, None], x, 0.0))[0]
        return jnp.where((rows == i)[:, None], rest / lax.dynamic_index_in_dim(row, i, 0, keepdims=False), x)

    return _loop(n, step, jnp.zeros_like(b))  # type: ignore[no-any-return]


def _solve_packed(packed: Array, permutation: Array, b: Array, adjoint: bool = False) -> Array:
    if adjoint:
        x = _triangular(_triangular_part(packed), b, upper=True, transpose=True)
        x = _triangular(packed, x, upper=False, unit=True, transpose=True)
        return x[jnp.argsort(permutation)]
    x = _triangular(packed, b[permutation], upper=False, unit=True)
    return _triangular(packed, x, upper=True)


def _triangular_part(packed: Array) -> Array:
    return jnp.triu(packed)


def _solve(a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    packed, pivots, permutation, info = _lu(a)
    return _solve_packed(packed, permutation, b), packed, pivots, info


def _swap(a: Array) -> Array:
    return jnp.swapaxes(a, -1, -2)


def linalg_lu_solve(LU: Array, pivots: Array, B: Array, left: bool = True, adjoint: bool = False) -> Array:
    """Solve with packed factors."""
    permutation = _permutation(pivots, LU.shape[-2])[..., None, :]
    if not left:
        return _swap(_batched(lambda f, p, b: _solve_packed(f, p[0], b, not adjoint), LU, permutation, _swap(B)))
    solution: Array = _batched(lambda f, p, b: _solve_packed(f, p[0], b, adjoint), LU, permutation, B)
    return solution


def _linalg_solve_ex(A: Array, B: Array, left: bool = True, check_errors: bool = False) -> tuple[Array, ...]:
    """Solve ``A X = B``: the solution, the packed factors, the pivots and info."""
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])
    right = B[..., None] if vector else B
    if not left:
        # X A = B is A^T X^T = B^T; the factors that autograd keeps are those of A
        packed, pivots, permutation, info = _batched(_lu, A)
        solved = _batched(
            lambda f, p, b: _solve_packed(f, p[0], b, True), packed, permutation[..., None, :], _swap(right)
        )
        x = _swap(solved)
    else:
        packed, pivots, permutation, info = _batched(_lu, A)
        x = _batched(lambda f, p, b: _solve_packed(f, p[0], b), packed, permutation[..., None, :], right)
    return x[..., 0] if vector else x, packed, pivots, info


def linalg_inv_ex(A: Array, check_errors: bool = False) -> tuple[Array, Array]:
    """The inverse, and info."""
    eye = jnp.eye(A.shape[-1], dtype=A.dtype)
    x, _, _, info = _batched(lambda a: _solve(a, eye), A)
    return x, info


def _parity(pivots: Array) -> Array:
    swaps = jnp.sum(pivots != _index(pivots.shape[-1]) + 1, axis=-1, dtype=jnp.int32)
    return (1 - 2 * (swaps % 2)).astype(jnp.float32)


def _linalg_det(A: Array) -> tuple[Array, Array, Array]:
    """The determinant, the packed factors and the pivots."""
    packed, pivots, _, _ = _batched(_lu, A)
    return jnp.prod(jnp.diagonal(packed, axis1=-2, axis2=-1), axis=-1) * _parity(pivots), packed, pivots


def _linalg_slogdet(A: Array) -> tuple[Array, Array, Array, Array]:
    """Sign and logarithm of the determinant, the packed factors and the pivots."""
    packed, pivots, _, _ = _batched(_lu, A)
    diagonal = jnp.diagonal(packed, axis1=-2, axis2=-1)
    sign = jnp.prod(jnp.sign(diagonal), axis=-1) * _parity(pivots)
    return sign, jnp.sum(jnp.log(jnp.abs(diagonal)), axis=-1), packed, pivots


def linalg_solve_triangular(
    self: Array, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """Solve ``self X = B`` or, from the right, ``X self = B``."""
    if left:
        solution: Array = _batched(lambda a, b: _triangular(a, b, upper, unitriangular), self, B)
        return solution
    return _swap(_batched(lambda a, b: _triangular(a, b, upper, unitriangular, True), self, _swap(B)))


def triangular_solve(
    self: Array, A: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Array, Array]:
    """Solve ``A X = self``; also a copy of A."""
    x = _batched(lambda a, b: _triangular(a, b, upper, unitriangular, transpose), A, self)
    return x, jnp.broadcast_to(A, (*x.shape[:-2], *A.shape[-2:]))


# Cholesky -----------------------------------------------------------------------------------------------------------


def _cholesky(a: Array) -> tuple[Array, Array]:
    n = a.shape[0]
    rows = _index(n)

    def step(j: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, lower, info = state
        column = _column(a, j)
        pivot = lax.dynamic_index_in_dim(column, j, 0, keepdims=False)
        info = jnp.where((info == 0) & ~(pivot > 0), j + 1, info)
        column = jnp.where(rows >= j, column / jnp.sqrt(pivot), 0.0)
        lower = jnp.where((rows == j)[None, :], column[:, None], lower)
        return a - column[:, None] * column[None, :], lower, info

    _, lower, info = _loop(n, step, (a, jnp.zeros_like(a), jnp.int32(0)))
    return lower, info


def linalg_cholesky_ex(self: Array, *, upper: bool = False, check_errors: bool = False) -> tuple[Array, Array]:
    """The Cholesky factor, and info; only one triangle is read."""
    lower, info = _batched(_cholesky, _swap(self) if upper else self)
    return _swap(lower) if upper else lower, info


def cholesky(self: Array, upper: bool = False) -> Array:
    """The Cholesky factor."""
    return linalg_cholesky_ex(self, upper=upper)[0]


def _cholesky_solve_helper(self: Array, A: Array, upper: bool) -> Array:
    """Solve with the Cholesky factor A."""

    def solve(a: Array, b: Array) -> Array:
        return _triangular(a, _triangular(a, b, upper, transpose=upper), upper, transpose=not upper)

    solution: Array = _batched(solve, A, self)
    return solution


def cholesky_inverse(self: Array, upper: bool = False) -> Array:
    """The inverse of the matrix whose Cholesky factor is given."""
    return _cholesky_solve_helper(jnp.eye(self.shape[-1], dtype=self.dtype), self, upper)


# QR -----------------------------------------------------------------------------------------------------------------


def _geqrf(a: Array) -> tuple[Array, Array]:
    m, n = a.shape
    rows, columns, count = _index(m), _index(n), min(m, n)

    def step(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, taus = state
        column = _column(a, i)
        alpha = lax.dynamic_index_in_dim(column, i, 0, keepdims=False)
        below = jnp.where(rows > i, column, 0.0)
        largest = jnp.max(jnp.abs(below))
        scale = jnp.where(largest > 0, largest, 1.0)
        norm = scale * jnp.sqrt(jnp.sum((below / scale) ** 2))
        reflects = norm > 0
        beta = jnp.where(reflects, -jnp.copysign(jnp.hypot(alpha, norm), alpha), alpha)
        tau = jnp.where(reflects, (beta - alpha) / jnp.where(reflects, beta, 1.0), 0.0)
        vector = jnp.where(reflects, below / jnp.where(reflects, alpha - beta, 1.0), 0.0)
        vector = jnp.where(rows == i, 1.0, vector)
        update = tau * vector[:, None] * _matmul(vector[None, :], a)
        a = jnp.where((columns > i)[None, :], a - update, a)
        replaced = jnp.where(rows < i, column, jnp.where(rows == i, beta, vector))
        a = jnp.where((columns == i)[None, :], replaced[:, None], a)
        return a, jnp.where(_index(count) == i, tau, taus)

    return _loop(count, step, (a, jnp.zeros(count, a.dtype)))  # type: ignore[no-any-return]


def geqrf(self: Array) -> tuple[Array, Array]:
    """R with the Householder vectors below it, and their factors."""
    return _batched(_geqrf, self)  # type: ignore[no-any-return]


def _reflect(vectors: Array, taus: Array, target: Array, reverse: bool) -> Array:
    """Multiply ``target`` from the left by the product of the reflections, or by its transpose."""
    m, count = vectors.shape[0], taus.shape[0]
    rows = _index(m)

    def step(k: Array, target: Array) -> Array:
        i = count - 1 - k if reverse else k
        column = _column(vectors, i)
        vector = jnp.where(rows == i, 1.0, jnp.where(rows > i, column, 0.0))
        tau: Array = lax.dynamic_index_in_dim(taus, i, 0, keepdims=False)
        return target - tau * vector[:, None] * _matmul(vector[None, :], target)

    return _loop(count, step, target)  # type: ignore[no-any-return]


def linalg_householder_product(input: Array, tau: Array) -> Array:
    """The first columns of the product of reflections."""
    m, n = input.shape[-2:]
    eye = jnp.eye(m, n, dtype=input.dtype)
    product: Array = _batched(lambda v, t: _reflect(v, t[0], eye, True), input, tau[..., None, :])
    return product


def ormqr(self: Array, input2: Array, input3: Array, left: bool = True, transpose: bool = False) -> Array:
    """Multiply ``input3`` by the product of the reflections in ``self`` or by its transpose."""
    other = input3 if left else _swap(input3)
    backwards = not transpose if left else transpose
    product = _batched(lambda v, t, c: _reflect(v, t[0], c, backwards), self, input2[..., None, :], other)
    return product if left else _swap(product)


def linalg_qr(A: Array, mode: str = "reduced") -> tuple[Array, Array]:
    """Q and R."""
    m, n = A.shape[-2:]
    packed, taus = _batched(_geqrf, A)
    if mode == "r":
        return jnp.zeros((0,), A.dtype), jnp.triu(packed[..., : min(m, n), :])
    k = m if mode == "complete" else min(m, n)
    eye = jnp.eye(m, k, dtype=A.dtype)
    q = _batched(lambda v, t: _reflect(v, t[0], eye, True), packed, taus[..., None, :])
    return q, jnp.triu(packed[..., :k, :])


# Eigenvalues and singular values ------------------------------------------------------------------------------------


def _rounds(n: int) -> np.ndarray[Any, Any]:
    """Return a tournament of ``n`` (even) players: for each of n - 1 rounds, n / 2 disjoint pairs."""
    players = list(range(n))
    rounds = []
    for _ in range(n - 1):
        rounds.append([sorted((players[i], players[n - 1 - i])) for i in range(n // 2)])
        players = [players[0], players[-1], *players[1:-1]]
    return np.array(rounds, dtype=np.int32).reshape(n - 1, n // 2, 2)


def _rotation(app: Array, aqq: Array, apq: Array, p: Array, q: Array, n: int) -> Array:
    """Return the matrix of the rotations that make each ``apq`` zero."""
    safe = jnp.where(apq == 0, 1.0, apq)
    theta = (aqq - app) / (2.0 * safe)
    tangent = jnp.where(theta >= 0, 1.0, -1.0) / (jnp.abs(theta) + jnp.hypot(theta, jnp.ones_like(theta)))
    tangent = jnp.where(apq == 0, 0.0, tangent)
    cosine = lax.rsqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    matrix = jnp.zeros((n, n), app.dtype)
    return matrix.at[p, p].set(cosine).at[q, q].set(cosine).at[p, q].set(sine).at[q, p].set(-sine)


def _jacobi(state: Any, n: int, entries: Callable[[Any, Array, Array], Any], turn: Callable[[Any, Array], Any]) -> Any:
    """Rotate until nothing is left to rotate; ``entries`` gives app, aqq, apq of pairs."""
    rounds = jnp.asarray(_rounds(n))

    def one_round(i: Array, carried: tuple[Any, Array]) -> tuple[Any, Array]:
        state, rotated = carried
        pairs = _row(rounds, i)
        p, q = pairs[:, 0], pairs[:, 1]
        app, aqq, apq = entries(state, p, q)
        unit = jnp.finfo(apq.dtype).eps * 0.5  # type: ignore[no-untyped-call]
        negligible = jnp.abs(apq) <= unit * jnp.sqrt(jnp.abs(app)) * jnp.sqrt(jnp.abs(aqq))
        apq = jnp.where(negligible, 0.0, apq)
        return turn(state, _rotation(app, aqq, apq, p, q, n)), rotated | jnp.any(apq != 0)

    def sweep(carried: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
        count, state, _ = carried
        state, rotated = _loop(n - 1, one_round, (state, jnp.bool_(False)))
        return count + 1, state, rotated

    def goes_on(carried: tuple[Array, Any, Array]) -> Array:
        return (carried[0] < _SWEEPS) & carried[2]

    return lax.while_loop(goes_on, sweep, (jnp.int32(0), state, jnp.bool_(True)))[1]


def _eigh(a: Array) -> tuple[Array, Array]:
    n = a.shape[0]
    if n < 2:
        return jnp.diagonal(a), jnp.ones_like(a)
    even = n + n % 2
    a = jnp.pad(a, ((0, even - n), (0, even - n)))

    def turn(state: tuple[Array, Array], rotation: Array) -> tuple[Array, Array]:
        a, vectors = state
        turned = _matmul(rotation.T, _matmul(a, rotation))
        return (turned + turned.T) * 0.5, _matmul(vectors, rotation)

    def entries(state: tuple[Array, Array], p: Array, q: Array) -> tuple[Array, Array, Array]:
        a = state[0]
        return a[p, p], a[q, q], a[p, q]

    turned, vectors = _jacobi((a, jnp.eye(even, dtype=a.dtype)), even, entries, turn)
    values = jnp.diagonal(turned)[:n]
    vectors = vectors[:n, :n]
    order = jnp.argsort(values)
    return values[order], _with_signs(vectors[:, order])


def _with_signs(vectors: Array) -> Array:
    """Choose the sign of each column so that its largest element is positive."""
    largest = jnp.take_along_axis(vectors, jnp.argmax(jnp.abs(vectors), axis=0)[None, :], axis=0)
    return vectors * jnp.where(largest < 0, -1.0, 1.0)


def _linalg_eigh(A: Array, UPLO: str = "L", compute_v: bool = True) -> tuple[Array, Array]:
    """Eigenvalues in ascending order, and eigenvectors; only one triangle is read."""
    triangle = jnp.tril(A) if UPLO.upper() == "L" else _swap(jnp.triu(A))
    symmetric = triangle + _swap(jnp.tril(triangle, -1))
    values, vectors = _batched(_eigh, symmetric)
    return values, vectors if compute_v else jnp.zeros((0,), A.dtype)


def _tall_svd(a: Array, full: bool) -> tuple[Array, Array, Array]:
    """Return U, S and V of a matrix that is at least as high as wide."""
    m, n = a.shape
    if n == 0:
        return jnp.eye(m, m if full else 0, dtype=a.dtype), jnp.zeros((0,), a.dtype), jnp.zeros((0, 0), a.dtype)
    even = max(n + n % 2, 2)
    padded = jnp.pad(a, ((0, 0), (0, even - n)))

    def turn(state: tuple[Array, Array], rotation: Array) -> tuple[Array, Array]:
        return _matmul(state[0], rotation), _matmul(state[1], rotation)

    def entries(state: tuple[Array, Array], p: Array, q: Array) -> tuple[Array, Array, Array]:
        left, right = state[0][:, p], state[0][:, q]
        return jnp.sum(left * left, 0), jnp.sum(right * right, 0), jnp.sum(left * right, 0)

    turned, v = _jacobi((padded, jnp.eye(even, dtype=a.dtype)), even, entries, turn)
    turned, v = turned[:, :n], v[:n, :n]
    s = jnp.sqrt(jnp.sum(turned * turned, axis=0))
    order = jnp.argsort(-s)
    turned, v, s = turned[:, order], v[:, order], s[order]
    packed, taus = _geqrf(turned)  # also completes U where singular values are zero
    u = _reflect(packed, taus, jnp.eye(m, m if full else n, dtype=a.dtype), True)
    signs = jnp.where(jnp.diagonal(packed) < 0, -1.0, 1.0)
    return u.at[:, :n].multiply(signs[None, :]), s, v


def _linalg_svd(
    A: Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Array, Array, Array]:
    """U, S and the transpose of V."""
    m, n = A.shape[-2:]
    if m >= n:
        u, s, v = _batched(lambda a: _tall_svd(a, full_matrices), A)
        vh = _swap(v)
    else:
        v, s, u = _batched(lambda a: _tall_svd(a, full_matrices), _swap(A))
        vh = _swap(v)
    if not compute_uv:
        return jnp.zeros((0,), A.dtype), s, jnp.zeros((0,), A.dtype)
    return u, s, vh


# The exponential ----------------------------------------------------------------------------------------------------

_TERMS = 10
"""Of the Taylor series, for a norm up to a half: the rest is below 2**-35."""


def linalg_matrix_exp(self: Array) -> Array:
    """Scaling, Taylor's series, squaring."""

    def one(a: Array) -> Array:
        n = a.shape[0]
        norm = jnp.max(jnp.sum(jnp.abs(a), axis=0))
        squarings = jnp.maximum(jnp.ceil(jnp.log2(jnp.maximum(norm, 1e-30))) + 1, 0).astype(jnp.int32)
        scaled = a * jnp.exp2(-squarings.astype(a.dtype))
        eye = jnp.eye(n, dtype=a.dtype)
        result = eye
        for k in range(_TERMS, 0, -1):
            result = eye + _matmul(scaled, result) / k
        squared: Array = lax.fori_loop(jnp.int32(0), squarings, lambda _, x: _matmul(x, x), result)
        return squared

    if self.size == 0:
        return self
    result: Array = _batched(one, self)
    return result
