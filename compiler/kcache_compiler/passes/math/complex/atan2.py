"""atan2 of two complex numbers of any sizes."""

from __future__ import annotations

import math

from kcache_compiler.passes.math.builder import Expr, bits, copysign, fma, from_bits, nearest, select
from kcache_compiler.passes.math.complex.parts import NAN, Number, finite, length
from kcache_compiler.passes.math.double_word import two_sum
from kcache_compiler.passes.math.exponential import absolute
from kcache_compiler.passes.math.logarithm import log1p as real_log1p
from kcache_compiler.passes.math.trigonometry import atan2 as angle

PI = math.pi


def atan2(y: Number, x: Number) -> Number:
    """-i log((x + i y) / sqrt(x^2 + y^2)), NaN where a part is not finite and of two zeros.

    With a = x + i y and b = x - i y the square of what is under the logarithm is a / b. So the result is half
    of that of a / b, whose real part is the angle of a times b's conjugate; that half, or what is opposite to
    it, as the angles of a and of the root say. The signs that decide, of the imaginary parts of a times b's
    conjugate and of a times b, are those of sums of two products, which may be of any two sizes.
    """
    near_x, near_y, shrink = _of_like_size(x, y)
    up, down = _scales(x, y)
    u, v = x.of(x.re * up * down, x.im * up * down), y.of(y.re * up * down, y.im * up * down)
    a, b = x.of(u.re - v.im, u.im + v.re), x.of(u.re + v.im, u.im - v.re)
    side = _sign(x, x.re, y.re, x.im, y.im)
    cross = _two_products(near_x.re, near_y.re, near_x.im, near_y.im) * 2.0 * shrink
    cross = copysign(cross, side)
    half = angle(cross, fma(a.re, b.re, a.im * b.im)) * 0.5
    re = _opposed(half, side, angle(a.im, a.re), angle(b.im, b.re), _sign(x, x.re, x.im, y.re, y.im))
    below = length(b)
    apart = _two_products(near_x.im, near_y.re, -near_x.re, near_y.im) * 4.0 * shrink
    ratio = apart / below.value / below.value
    im = select(absolute(ratio) < 0.5, real_log1p(ratio) * -0.25, (length(a).log() - below.log()) * -0.5)
    known = finite(x.re) & finite(x.im) & finite(y.re) & finite(y.im) & ~(x.zero & y.zero)
    return x.of(select(known, re, NAN), select(known, im, NAN))


def _opposed(half: Expr, side: Expr, first: Expr, second: Expr, root: Expr) -> Expr:
    """``half``, or what is opposite to it; of the angles of a and b, and a number with the root's sign."""
    total = first + second
    total = total - nearest(total * (0.5 / PI)) * (2.0 * PI)
    turn = select(absolute(total) > 2.0, copysign(total, root), total) * 0.5
    away = (first - turn - half) * (1.0 / PI)
    opposite = absolute(away - nearest(away * 0.5) * 2.0) > 0.5
    above = select(half.eq(0.0), side, half) > 0.0
    return select(opposite, half + select(above, half.like(-PI), PI), half)


def _top(z: Number) -> Expr:
    p, q = absolute(z.re), absolute(z.im)
    return select(p > q, p, q)


def _scales(x: Number, y: Number) -> tuple[Expr, Expr]:
    """Two powers of two whose product brings the largest part of both near to 1."""
    one = x.re.like(1.0)
    if x.single:
        return one, one
    first, second = _top(x), _top(y)
    return _toward_one(select(first > second, first, second))


def _toward_one(top: Expr) -> tuple[Expr, Expr]:
    """Of a number that may be below the normal ones, by 2**64 first."""
    up = select(top < 2.0**-900, top.like(2.0**64), 1.0)
    field = bits(top * up).lshr(52)
    field = select(field > 2045, field.like(2045), field)
    return up, from_bits((field.like(2046) - field) << 52, top.fmt)


def _of_like_size(x: Number, y: Number) -> tuple[Number, Number, Expr]:
    """Each with its larger part near 1, and what their products are then multiplied with."""
    one = x.re.like(1.0)
    if x.single:
        return x, y, one
    (up, down), (lift, drop) = _toward_one(_top(x)), _toward_one(_top(y))
    common, more = _scales(x, y)
    shrink = (common / up) * (more / down) * ((common / lift) * (more / drop))
    return (
        x.of(x.re * up * down, x.im * up * down),
        y.of(y.re * lift * drop, y.im * lift * drop),
        shrink,
    )


def _two_products(a: Expr, b: Expr, c: Expr, d: Expr) -> Expr:
    """a b + c d within about a rounding (Kahan)."""
    second = c * d
    return fma(a, b, second) + fma(c, d, -second)


def _sign(z: Number, a: Expr, b: Expr, c: Expr, d: Expr) -> Expr:
    """A number with the sign of a b + c d, which is 0 where that is."""
    if z.single:
        return a * b + c * d
    (a, i), (b, j), (c, k), (d, m) = (_mantissa(part) for part in (a, b, c, d))
    lead = i + j - k - m
    # Beyond this many places the smaller product does not count.
    lead = select(lead > 200, lead.like(200), select(lead < -200, lead.like(-200), lead))
    a = a * from_bits((lead + 1023) << 52, a.fmt)
    first, second = a * b, c * d
    total = two_sum(first, second)
    lost = two_sum(fma(a, b, -first), fma(c, d, -second))
    high = total.high + lost.high
    whole = select(high.eq(0.0), lost.low, high)
    return select(whole.eq(0.0) & total.high.eq(0.0), total.high, whole)


def _mantissa(x: Expr) -> tuple[Expr, Expr]:
    """``x`` as a number of 1 to 2 in size, or 0, times a power of two."""
    low = absolute(x) < 2.0**-900
    lifted = bits(select(low, x * 2.0**128, x))
    positions = (lifted.lshr(52) & 2047) - select(low, lifted.like(128), 0)
    fraction = from_bits((lifted & ~(2047 << 52)) | (1023 << 52), x.fmt)
    return select(x.eq(0.0), x, fraction), positions
