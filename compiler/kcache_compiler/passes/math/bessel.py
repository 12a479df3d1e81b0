"""bessel_i1e: the modified Bessel function of the first kind and order 1, times exp(-|x|)."""

from __future__ import annotations

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import Expr, copysign, fma, horner, narrow, select, sqrt, widen
from kcache_compiler.passes.math.exponential import absolute


def bessel_i1e(x: Expr) -> Expr:
    if x.type == "f32":
        size = widen(absolute(x))
        return copysign(narrow(_i1e(size, c.I1E_LOW_MIXED, c.I1E_MIDDLE_MIXED, c.I1E_FAR_MIXED)), x)
    return copysign(_i1e(absolute(x), c.I1E_LOW_f64, c.I1E_MIDDLE_f64, c.I1E_FAR_f64), x)


def _i1e(a: Expr, low: tuple[float, ...], middle: tuple[float, ...], far: tuple[float, ...]) -> Expr:
    """Of non-negative ``a``: polynomials on [0, 3] and [3, 8], beyond one in 1/a, each centred."""
    first = a < 3.0
    t = select(first, a - 1.5, a - 5.5)
    total = select(first, a.like(low[-1]), middle[-1])
    for one, other in zip(low[-2::-1], middle[-2::-1], strict=True):
        total = fma(total, t, select(first, a.like(one), other))
    large = horner(16.0 / a - 1.0, far) / sqrt(a)
    return select(a <= 8.0, a * total, large)
