"""asin, acos, atan and their hyperbolic sisters.

asin and acos by the square roots of 1 - z and 1 + z, whose products have no cancellation (Kahan, Branch cuts
for complex elementary functions, 1987); far out by the logarithm of |2 z|.
"""

from __future__ import annotations

import math

from kcache_compiler.passes.math.builder import Expr, copysign, fma, select
from kcache_compiler.passes.math.complex.parts import INF, NAN, Number, length, log_of_pair, zero_like
from kcache_compiler.passes.math.complex.roots import sqrt
from kcache_compiler.passes.math.double_word import two_sum
from kcache_compiler.passes.math.exponential import absolute
from kcache_compiler.passes.math.logarithm import asinh as real_asinh
from kcache_compiler.passes.math.trigonometry import atan2 as angle

#: Beyond, 1 is below the rounding of z.
_FAR = 2.0**60
HALF_PI = 0.5 * math.pi


def _far(z: Number) -> Expr:
    return (absolute(z.re) > _FAR) | (absolute(z.im) > _FAR)


def _around_one(z: Number) -> tuple[Number, Number]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    return sqrt(z.of(1.0 - z.re, -z.im)), sqrt(z.of(1.0 + z.re, z.im))


def asin(z: Number) -> Number:
    below, above = _around_one(z)
    re = angle(z.re, fma(below.re, above.re, -(below.im * above.im)))
    im = real_asinh(fma(below.re, above.im, -(below.im * above.re)))
    far = _far(z)
    re = select(far, angle(z.re, absolute(z.im)), re)
    im = select(far, copysign(length(z).log(1.0), z.im), im)
    # A NaN beside 0 leaves the 0, one beside an infinity the infinity.
    known = z.re.eq(0.0) & z.im.isnan()
    lost = z.nan & ~z.infinite
    re = select(known, z.re, select(lost | z.re.isnan() | z.im.isnan(), NAN, re))
    return z.of(re, select(lost, im.like(NAN), im))


def acos(z: Number) -> Number:
    below, above = _around_one(z)
    re = angle(below.re, above.re) * 2.0
    im = real_asinh(fma(above.re, below.im, -(above.im * below.re)))
    far = _far(z)
    re = select(far, angle(absolute(z.im), z.re), re)
    im = select(far, copysign(length(z).log(1.0), -z.im), im)
    known = z.re.eq(0.0) & z.im.isnan()
    lost = z.nan & ~z.infinite
    re = select(known, re.like(HALF_PI), select(z.nan, NAN, re))
    return z.of(re, select(lost, im.like(NAN), im))


def asinh(z: Number) -> Number:
    """i asin(-i z)."""
    return asin(z.swapped()).swapped()


def acosh(z: Number) -> Number:
    """acos(z) turned to the right of the imaginary axis, on the side of z."""
    result = acos(z)
    re = absolute(result.im)
    known = z.re.eq(0.0) & z.im.isnan()
    im = select(known, result.re, copysign(result.re, z.im))
    return z.of(re, select(z.nan & ~known, NAN, im))


def atanh(z: Number) -> Number:
    """log(|1 + z| / |1 - z|) / 2, by log1p(4 |x| / |1 - |x| + i y|^2), and half of the quotient's angle."""
    a = absolute(z.re)
    beside, size = length(z.of(1.0 - a, z.im)), length(z)
    distance = beside.value
    ratio = a * 4.0 / distance / distance
    near = two_sum(ratio, ratio.like(1.0))
    re = log_of_pair(near) * 0.25
    if beside.step is not None:  # so near to 1 that the quotient is out of range
        re = select(beside.step < 0.0, beside.log(-1.0) * -0.5, re)
    far = _far(z)
    away = absolute(size.number.re) / size.scaled / size.scaled * size.power(-600)
    re = select(far, away, re)
    im = angle(z.im * 2.0, fma(1.0 - a, 1.0 + a, -(z.im * z.im))) * 0.5
    im = select(far, copysign(im.like(HALF_PI), z.im), im)
    return _limits(z, copysign(re, z.re), im)


def _limits(z: Number, re: Expr, im: Expr) -> Number:
    """Where a part is infinite or NaN."""
    endless = absolute(z.im).eq(INF)
    wide = absolute(z.re).eq(INF)
    re = select(endless | wide, zero_like(z.re), select(z.re.eq(0.0), z.re, re))
    im = select(z.im.isnan() | (z.re.isnan() & ~endless), im.like(NAN), im)
    stays = endless | wide | (z.re.eq(0.0) & z.im.isnan())
    re = select(z.nan & ~stays, re.like(NAN), re)
    return z.of(re, im)


def atan(z: Number) -> Number:
    """-i atanh(i z)."""
    return atanh(z.swapped()).swapped()
