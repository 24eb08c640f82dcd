"""Special functions that CHLO and torch-mlir lack, in float32 whatever the input, as the CPU computes narrow types.

Sources: Cephes (its coefficients are in ``cephes``), CHLO where it has the function, and the three-term recurrences
of orthogonal polynomials (DLMF 18.9). Errors are a few units in the last place of float32 away from zeros of a
function, and absolute near them.
"""

import math
from collections.abc import Callable, Sequence

from jax import Array, lax
from jax import numpy as jnp
from jax.scipy import special

from torch_neuronx_compile.worker.functions import cephes

Number = Array | int | float


def _float(x: Number) -> Array:
    array = jnp.asarray(x)
    return array if array.dtype == jnp.float64 else array.astype(jnp.float32)


def _polynomial(x: Array, coefficients: Sequence[float], monic: bool = False) -> Array:
    result = jnp.ones_like(x) if monic else jnp.zeros_like(x)
    for coefficient in coefficients:
        result = result * x + coefficient
    return result


def _series(x: Array, coefficients: Sequence[float]) -> Array:
    """Sum a Chebyshev series by Clenshaw's recurrence."""
    a, q, p = jnp.full_like(x, coefficients[0]), jnp.zeros_like(x), jnp.zeros_like(x)
    for coefficient in coefficients[1:]:
        p, q = q, a
        a = x * q - p + coefficient
    return 0.5 * (a - p)


# Gamma and error functions ------------------------------------------------------------------------------------------


def lgamma(self: Array) -> Array:
    """Logarithm of the absolute gamma function."""
    return lax.lgamma(_float(self))


def digamma(self: Array) -> Array:
    """Derivative of lgamma; infinite with the opposite sign at zero, NaN at negative integers, as on the CPU."""
    x = _float(self)
    result = jnp.where((x < 0) & (x == jnp.floor(x)), jnp.nan, lax.digamma(x))
    return jnp.where(x == 0, jnp.copysign(jnp.inf, -x), result)


def polygamma(n: int, self: Array) -> Array:
    """The n-th derivative of digamma."""
    x = _float(self)
    if n == 0:
        return digamma(x)
    if n == 1:
        return _trigamma(x)
    return (-1.0) ** (n + 1) * math.gamma(n + 1) * special_zeta(n + 1.0, x)


def _trigamma(x: Array) -> Array:
    """Reflect to the right half, step up by six, then the asymptotic series (DLMF 5.15)."""
    left = x < 0.5
    z = jnp.where(left, 1.0 - x, x)
    total = jnp.where(left, -((math.pi / jnp.sin(math.pi * x)) ** 2), 0.0)
    for _ in range(6):
        total = total + 1.0 / (z * z)
        z = z + 1.0
    inverse = 1.0 / (z * z)
    series = (1.0 + 0.5 / z + inverse * (1.0 / 6 - inverse * (1.0 / 30 - inverse / 42))) / z
    return jnp.where(left, -1.0, 1.0) * (total + series)


_ZETA_TERMS = 9
_ZETA_LIMIT = 10000
"""Of terms for a negative argument, which needs as many as its distance from the positive numbers."""
_ZETA_COEFFICIENTS = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip

_Sums = tuple[Array, Array, Array, Array, Array]


def special_zeta(self: Number, other: Number) -> Array:
    """Hurwitz's zeta function by the Euler-Maclaurin formula, as in Cephes."""
    x, q = jnp.broadcast_arrays(_float(self), _float(other))
    unit = jnp.finfo(x.dtype).eps * 0.5  # type: ignore[no-untyped-call]

    def sums(state: _Sums) -> Array:
        count, a, _, _, done = state
        return (count < _ZETA_LIMIT) & jnp.any(~done & ((count < _ZETA_TERMS) | (a <= _ZETA_TERMS)))

    def add(state: _Sums) -> _Sums:
        count, a, term, total, done = state
        going = ~done & ((count < _ZETA_TERMS) | (a <= _ZETA_TERMS))
        a = jnp.where(going, a + 1.0, a)
        term = jnp.where(going, jnp.power(a, -x), term)
        total = jnp.where(going, total + term, total)
        return count + 1, a, term, total, done | (going & (jnp.abs(term) < unit * total))

    start = (jnp.int32(0), q, jnp.zeros_like(x), jnp.power(q, -x), jnp.zeros(x.shape, bool))
    _, a, term, total, done = lax.while_loop(sums, add, start)
    tail = total + term * a / (x - 1.0) - 0.5 * term
    factor, power, settled = jnp.ones_like(x), term, done
    for k, coefficient in enumerate(_ZETA_COEFFICIENTS):
        factor = factor * (x + 2.0 * k)
        power = power / a
        correction = jnp.where(settled, 0.0, power * factor / coefficient)
        tail = tail + correction
        settled |= jnp.abs(correction) < unit * jnp.abs(tail)
        factor = factor * (x + 2.0 * k + 1.0)
        power = power / a
    result = jnp.where(done, total, tail)
    whole = q == jnp.floor(q)
    result = jnp.where((q <= 0) & whole, jnp.inf, result)
    result = jnp.where((q <= 0) & ~whole & (x != jnp.floor(x)), jnp.nan, result)
    return jnp.where(x < 1, jnp.nan, jnp.where(x == 1, jnp.inf, result))


def erfinv(self: Array) -> Array:
    """Inverse of the error function."""
    return lax.erf_inv(_float(self))


def erfc(self: Array) -> Array:
    """Complementary error function."""
    return lax.erfc(_float(self))


_ERFC_P = (
    2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687, 4.86371970985681366614e1,
    1.96520832956077098242e2, 5.26445194995477358631e2, 9.34528527171957607540e2, 1.02755188689515710272e3,
    5.57535335369399327526e2,
)  # fmt: skip
_ERFC_Q = (
    1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2, 9.75708501743205489753e2,
    1.82390916687909736289e3, 2.24633760818710981792e3, 1.65666309194161350182e3, 5.57535340817727675546e2,
)  # fmt: skip
_ERFC_R = (
    5.64189583547755073984e-1, 1.27536670759978104416, 5.01905042251180477414, 6.16021097993053585195,
    7.40974269950448939160, 2.97886665372100240670,
)  # fmt: skip
_ERFC_S = (
    2.26052863220117276590, 9.39603524938001434673, 1.20489539808096656605e1, 1.70814450747565897222e1,
    9.60896809063285878198, 3.36907645100081516050,
)  # fmt: skip


def special_erfcx(self: Array) -> Array:
    """``exp(x**2) * erfc(x)`` without overflow, from the rational functions of Cephes' erfc."""
    x = _float(self)
    size = jnp.abs(x)
    middle = jnp.clip(size, 1.0, 8.0)
    far = 1.0 / jnp.maximum(size, 8.0)  # in 1/x, so that large arguments do not overflow
    ratio = _polynomial(middle, _ERFC_P) / _polynomial(middle, _ERFC_Q, monic=True)
    tail = far * _polynomial(far, _ERFC_R[::-1]) / _polynomial(far, (*_ERFC_S[::-1], 1.0))
    near = jnp.minimum(size, 1.0)
    positive = jnp.where(size < 1, jnp.exp(near * near) * lax.erfc(near), jnp.where(size < 8, ratio, tail))
    return jnp.where(x < 0, 2.0 * jnp.exp(x * x) - positive, jnp.where(jnp.isnan(x), x, positive))


def special_log_ndtr(self: Array) -> Array:
    """Logarithm of the normal distribution function."""
    x = _float(self)
    scaled = x * math.sqrt(0.5)
    low = jnp.log(special_erfcx(-jnp.minimum(scaled, 0.0)) / 2.0) - scaled * scaled
    return jnp.where(x < -1.0, low, jnp.log1p(-lax.erfc(jnp.maximum(scaled, -1.0)) / 2.0))


def special_ndtri(self: Array) -> Array:
    """Inverse of the normal distribution function."""
    p = _float(self)
    return jnp.where((p < 0) | (p > 1), jnp.nan, special.ndtri(jnp.clip(p, 0.0, 1.0)))


def igamma(self: Array, other: Array) -> Array:
    """Lower regularized incomplete gamma function."""
    return lax.igamma(*jnp.broadcast_arrays(_float(self), _float(other)))


def igammac(self: Array, other: Array) -> Array:
    """Upper regularized incomplete gamma function."""
    return lax.igammac(*jnp.broadcast_arrays(_float(self), _float(other)))


# Bessel and Airy functions ------------------------------------------------------------------------------------------


def special_i0e(self: Array) -> Array:
    """``exp(-abs(x)) * i0(x)``."""
    x = jnp.abs(_float(self))
    far = jnp.maximum(x, 8.0)
    near = _series(jnp.minimum(x, 8.0) / 2.0 - 2.0, cephes.I0_A)
    return jnp.where(x <= 8, near, _series(32.0 / far - 2.0, cephes.I0_B) / jnp.sqrt(far))


def i0(self: Array) -> Array:
    """Modified Bessel function of the first kind, order 0."""
    return special_i0e(self) * jnp.exp(jnp.abs(_float(self)))


def special_i1e(self: Array) -> Array:
    """``exp(-abs(x)) * i1(x)``."""
    x = _float(self)
    size = jnp.abs(x)
    far = jnp.maximum(size, 8.0)
    near = size * _series(jnp.minimum(size, 8.0) / 2.0 - 2.0, cephes.I1_A)
    value = jnp.where(size <= 8, near, _series(32.0 / far - 2.0, cephes.I1_B) / jnp.sqrt(far))
    return jnp.where(x < 0, -value, value)


def special_i1(self: Array) -> Array:
    """Modified Bessel function of the first kind, order 1."""
    return special_i1e(self) * jnp.exp(jnp.abs(_float(self)))


def _outside(x: Array, value: Array) -> Array:
    """Functions that have a logarithmic singularity at zero are not defined below it."""
    return jnp.where(x < 0, jnp.nan, value)


def _k0(self: Array, scaled: bool) -> Array:
    x = _float(self)
    near, far = jnp.clip(x, 1e-38, 2.0), jnp.maximum(x, 2.0)
    low = _series(near * near - 2.0, cephes.K0_A) - jnp.log(0.5 * near) * i0(near)
    high = _series(8.0 / far - 2.0, cephes.K0_B) / jnp.sqrt(far)
    low, high = (low * jnp.exp(near), high) if scaled else (low, high * jnp.exp(-far))
    return _outside(x, jnp.where(x == 0, jnp.inf, jnp.where(x <= 2, low, high)))


def special_modified_bessel_k0(self: Array) -> Array:
    """Modified Bessel function of the second kind, order 0."""
    return _k0(self, False)


def special_scaled_modified_bessel_k0(x: Array) -> Array:
    """``exp(x) * k0(x)``."""
    return _k0(x, True)


def _k1(self: Array, scaled: bool) -> Array:
    x = _float(self)
    near, far = jnp.clip(x, 1e-38, 2.0), jnp.maximum(x, 2.0)
    low = jnp.log(0.5 * near) * special_i1(near) + _series(near * near - 2.0, cephes.K1_A) / near
    high = _series(8.0 / far - 2.0, cephes.K1_B) / jnp.sqrt(far)
    low, high = (low * jnp.exp(near), high) if scaled else (low, high * jnp.exp(-far))
    return _outside(x, jnp.where(x == 0, jnp.inf, jnp.where(x <= 2, low, high)))


def special_modified_bessel_k1(self: Array) -> Array:
    """Modified Bessel function of the second kind, order 1."""
    return _k1(self, False)


def special_scaled_modified_bessel_k1(x: Array) -> Array:
    """``exp(x) * k1(x)``."""
    return _k1(x, True)


def _asymptotic(x: Array, tables: tuple[Sequence[float], ...], shift: float, second: bool) -> Array:
    """Hankel's expansion beyond 5, of the first or of the second kind."""
    pp, pq, qp, qq = tables
    z = (5.0 / x) ** 2
    p = _polynomial(z, pp) / _polynomial(z, pq)
    q = 5.0 / x * _polynomial(z, qp) / _polynomial(z, qq, monic=False)
    angle = x - shift
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    wave = p * sine + q * cosine if second else p * cosine - q * sine
    return wave * math.sqrt(2.0 / math.pi) / jnp.sqrt(x)


_J0 = (cephes.J0_PP, cephes.J0_PQ, cephes.J0_QP, cephes.J0_QQ)
_J1 = (cephes.J1_PP, cephes.J1_PQ, cephes.J1_QP, cephes.J1_QQ)
_ZEROS_J0 = (5.78318596294678452118, 3.04712623436620863991e1)
_ZEROS_J1 = (1.46819706421238932572e1, 4.92184563216946036703e1)


def special_bessel_j0(self: Array) -> Array:
    """Bessel function of the first kind, order 0."""
    x = jnp.abs(_float(self))
    near, far = jnp.minimum(x, 5.0), jnp.maximum(x, 5.0)
    z = near * near
    low = (z - _ZEROS_J0[0]) * (z - _ZEROS_J0[1]) * _ratio(z, cephes.J0_RP, cephes.J0_RQ)
    low = jnp.where(near < 1e-5, 1.0 - z / 4.0, low)
    return jnp.where(x <= 5, low, _asymptotic(far, _J0, math.pi / 4, False))


def special_bessel_j1(self: Array) -> Array:
    """Bessel function of the first kind, order 1."""
    x = _float(self)
    size = jnp.abs(x)
    near, far = jnp.minimum(size, 5.0), jnp.maximum(size, 5.0)
    z = near * near
    low = _ratio(z, cephes.J1_RP, cephes.J1_RQ) * near * (z - _ZEROS_J1[0]) * (z - _ZEROS_J1[1])
    value = jnp.where(size <= 5, low, _asymptotic(far, _J1, 3 * math.pi / 4, False))
    return jnp.where(x < 0, -value, value)


def _ratio(z: Array, above: Sequence[float], below: Sequence[float]) -> Array:
    """Divide two polynomials, the lower one with a leading 1 that Cephes leaves out."""
    return _polynomial(z, above) / _polynomial(z, below)


def _y(x: Array, low: Callable[[Array], Array], tables: tuple[Sequence[float], ...], shift: float) -> Array:
    near, far = jnp.clip(x, 1e-38, 5.0), jnp.maximum(x, 5.0)
    value = jnp.where(x <= 5, low(near), _asymptotic(far, tables, shift, True))
    return _outside(x, jnp.where(x == 0, -jnp.inf, value))


def special_bessel_y0(self: Array) -> Array:
    """Bessel function of the second kind, order 0."""

    def low(x: Array) -> Array:
        return _ratio(x * x, cephes.Y0_YP, cephes.Y0_YQ) + 2.0 / math.pi * jnp.log(x) * special_bessel_j0(x)

    tables = (cephes.Y0_PP, cephes.Y0_PQ, cephes.Y0_QP, cephes.Y0_QQ)
    return _y(_float(self), low, tables, math.pi / 4)


def special_bessel_y1(self: Array) -> Array:
    """Bessel function of the second kind, order 1."""

    def low(x: Array) -> Array:
        logarithm = special_bessel_j1(x) * jnp.log(x) - 1.0 / x
        return x * _ratio(x * x, cephes.Y1_YP, cephes.Y1_YQ) + 2.0 / math.pi * logarithm

    tables = (cephes.Y1_PP, cephes.Y1_PQ, cephes.Y1_QP, cephes.Y1_QQ)
    return _y(_float(self), low, tables, 3 * math.pi / 4)


def special_spherical_bessel_j0(x: Array) -> Array:
    """``sin(x) / x``."""
    x = _float(x)
    z = x * x
    series = _polynomial(z, [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)])
    far = jnp.where(jnp.abs(x) < 0.5, 1.0, x)
    return jnp.where(jnp.isinf(x), 0.0, jnp.where(jnp.abs(x) < 0.5, series, jnp.sin(far) / far))


def special_airy_ai(x: Array) -> Array:
    """Airy function: asymptotic expansions beyond 2.09, the power series between."""
    x = _float(x)
    below = jnp.minimum(x, -2.09)
    root = jnp.sqrt(-below)
    zeta = -2.0 * below * root / 3.0
    z = 1.0 / zeta
    angle = zeta + 0.25 * math.pi
    first = 1.0 + z * z * _polynomial(z * z, cephes.AIRY_AFN) / _polynomial(z * z, cephes.AIRY_AFD)
    second = z * _polynomial(z * z, cephes.AIRY_AGN) / _polynomial(z * z, cephes.AIRY_AGD)
    scale = 1.0 / math.sqrt(math.pi)
    left = scale / jnp.sqrt(root) * (jnp.sin(angle) * first - jnp.cos(angle) * second)
    above = jnp.clip(x, 2.09, 104.0)
    zeta = 2.0 * above * jnp.sqrt(above) / 3.0
    ratio = _polynomial(1.0 / zeta, cephes.AIRY_AN) / _polynomial(1.0 / zeta, cephes.AIRY_AD)
    right = scale * ratio / (2.0 * jnp.sqrt(jnp.sqrt(above)) * jnp.exp(zeta))
    middle = jnp.clip(x, -2.09, 2.09)
    f, g = jnp.ones_like(x), middle
    m, n, k = jnp.ones_like(x), middle, 1.0
    cube = middle**3
    for _ in range(8):
        m = m * cube / ((k + 1) * (k + 2))
        n = n * cube / ((k + 2) * (k + 3))
        k += 3.0
        f, g = f + m, g + n
    series = 0.355028053887817239260 * f - 0.258819403792806798405 * g
    value = jnp.where(x < -2.09, left, jnp.where(x >= 2.09, right, series))
    value = jnp.where(x > 103.892, 0.0, value)
    return jnp.where(jnp.isinf(x), jnp.nan, value)


# Orthogonal polynomials ---------------------------------------------------------------------------------------------


def _recurrence(x: Array, n: Array, second: Array, step: Callable[[Array, Array, Array], Array]) -> Array:
    """Return the n-th of 1, ``second``, and ``step(k, p, q)`` from the two before the k-th."""

    def goes_on(state: tuple[Array, Array, Array]) -> Array:
        return state[0] <= jnp.max(n)

    def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, p, q = state
        going = k <= n
        return k + 1, jnp.where(going, q, p), jnp.where(going, step(k.astype(x.dtype), p, q), q)

    q = lax.while_loop(goes_on, body, (jnp.int32(2), jnp.ones_like(x), second))[2] if x.size else second
    return jnp.where(n < 0, 0.0, jnp.where(n == 0, 1.0, q))


def _arguments(x: Number, n: Number) -> tuple[Array, Array]:
    x, n = jnp.broadcast_arrays(_float(x), _float(n))
    return x, jnp.where(jnp.isfinite(n), n, -1.0).astype(jnp.int32)


def _odd(n: Array) -> Array:
    return jnp.where(n % 2 == 0, 1.0, -1.0)


def _chebyshev(
    x: Array, n: Array, second: Array, beyond: int, closed: Callable[[Array, Array], Array], ends: tuple[Array, Array]
) -> Array:
    """Apply the recurrence of all four kinds, and the closed form inside for a high degree."""
    low = _recurrence(x, n, second, lambda _, p, q: (x + x) * q - p)
    inside = jnp.abs(x) < 1
    high = closed(n.astype(x.dtype), jnp.arccos(jnp.where(inside, x, 0.5)))
    value = jnp.where((n > beyond) & inside, high, low)
    value = jnp.where(x == 1, ends[0], jnp.where(x == -1, ends[1], value))
    return jnp.where(n < 0, 0.0, value)


def special_chebyshev_polynomial_t(x: Number, n: Number) -> Array:
    """Chebyshev polynomial of the first kind."""
    x, n = _arguments(x, n)
    ends = jnp.ones_like(x), _odd(n)
    return _chebyshev(x, n, x, 6, lambda n, angle: jnp.cos(n * angle), ends)


def special_chebyshev_polynomial_u(x: Number, n: Number) -> Array:
    """Chebyshev polynomial of the second kind."""
    x, n = _arguments(x, n)
    end = (n + 1).astype(x.dtype)
    ends = end, _odd(n) * end
    return _chebyshev(x, n, x + x, 8, lambda n, angle: jnp.sin((n + 1) * angle) / jnp.sin(angle), ends)


def special_chebyshev_polynomial_v(x: Number, n: Number) -> Array:
    """Chebyshev polynomial of the third kind."""
    x, n = _arguments(x, n)
    ends = jnp.ones_like(x), _odd(n) * (2 * n + 1).astype(x.dtype)
    return _chebyshev(x, n, x + x - 1.0, 8, lambda n, angle: jnp.cos((n + 0.5) * angle) / jnp.cos(angle / 2), ends)


def special_chebyshev_polynomial_w(x: Number, n: Number) -> Array:
    """Chebyshev polynomial of the fourth kind."""
    x, n = _arguments(x, n)
    ends = (2 * n + 1).astype(x.dtype), _odd(n)
    return _chebyshev(x, n, x + x + 1.0, 8, lambda n, angle: jnp.sin((n + 0.5) * angle) / jnp.sin(angle / 2), ends)


def _shifted(function: Callable[[Number, Number], Array]) -> Callable[[Number, Number], Array]:
    def call(x: Number, n: Number) -> Array:
        x = _float(x)
        return function(x + x - 1.0, n)

    return call


special_shifted_chebyshev_polynomial_t = _shifted(special_chebyshev_polynomial_t)
special_shifted_chebyshev_polynomial_u = _shifted(special_chebyshev_polynomial_u)
special_shifted_chebyshev_polynomial_v = _shifted(special_chebyshev_polynomial_v)
special_shifted_chebyshev_polynomial_w = _shifted(special_chebyshev_polynomial_w)

_HERMITE_LIMIT = 128
"""Beyond this degree ATen gives NaN in float32."""


def special_hermite_polynomial_h(x: Number, n: Number) -> Array:
    """Physicist's Hermite polynomial."""
    x, n = _arguments(x, n)
    value = _recurrence(x, jnp.minimum(n, _HERMITE_LIMIT), x + x, lambda k, p, q: (x + x) * q - 2.0 * (k - 1.0) * p)
    return jnp.where(n > _HERMITE_LIMIT, jnp.nan, value)


def special_hermite_polynomial_he(x: Number, n: Number) -> Array:
    """Probabilist's Hermite polynomial."""
    x, n = _arguments(x, n)
    value = _recurrence(x, jnp.minimum(n, _HERMITE_LIMIT), x, lambda k, p, q: x * q - (k - 1.0) * p)
    return jnp.where(n > _HERMITE_LIMIT, jnp.nan, value)


def special_laguerre_polynomial_l(x: Number, n: Number) -> Array:
    """Laguerre polynomial."""
    x, n = _arguments(x, n)
    return _recurrence(x, n, 1.0 - x, lambda k, p, q: ((2.0 * k - 2.0 + (1.0 - x)) * q - (k - 1.0) * p) / k)


def special_legendre_polynomial_p(x: Number, n: Number) -> Array:
    """Legendre polynomial."""
    x, n = _arguments(x, n)
    value = _recurrence(x, n, x, lambda k, p, q: ((2.0 * k - 1.0) * x * q - (k - 1.0) * p) / k)
    ends = jnp.where(x == 1, 1.0, jnp.where(x == -1, _odd(n), value))
    return jnp.where(n < 0, 0.0, ends)


# Floating-point numbers ---------------------------------------------------------------------------------------------


def nextafter(self: Array, other: Array) -> Array:
    """The next number of the dtype in the direction of ``other``."""
    return lax.nextafter(*jnp.broadcast_arrays(self, other))


def frexp(self: Array) -> tuple[Array, Array]:
    """Mantissa in [0.5, 1) and exponent."""
    mantissa, exponent = jnp.frexp(_float(self))
    return mantissa.astype(self.dtype), exponent.astype(jnp.int32)
