"""erf, erfc, erf_inv."""

from __future__ import annotations

from . import coefficients as c
from .build import Expr, copysign, fma, horner, minimum, select
from .exponential import absolute, expm1_reduced, power_of_two, reduce


def erf(x: Expr) -> Expr:
    """x (1 + P(x^2)) to 1; beyond, 1 - exp(Q(|x|)), where exp(Q) is erfc to the accuracy of 1."""
    a = absolute(x)
    square = x * x
    small = fma(x, horner(square, c.ERF_SMALL_f32), x)
    part = reduce(horner(minimum(4.0, a), c.ERF_LARGE_f32))
    power = power_of_two(part.exponent, x)
    large = (1.0 - power) - power * expm1_reduced(part.r)
    return select(a < 1.0, small, copysign(large, x))
