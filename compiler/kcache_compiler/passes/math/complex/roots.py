"""abs, sign, sqrt, rsqrt, and quotients."""

from __future__ import annotations

from kcache_compiler.passes.math.builder import Expr, bits, copysign, fma, from_bits, select
from kcache_compiler.passes.math.builder import sqrt as root
from kcache_compiler.passes.math.complex.parts import INF, NAN, Number, finite, length
from kcache_compiler.passes.math.exponential import absolute


def magnitude(z: Number) -> Number:
    """|z|, which is infinite where a part is, whatever the other."""
    value = length(z).value
    return z.of(value, value)


def sign(z: Number) -> Number:
    """z / |z|; 0 of 0, and NaN where a part is infinite or NaN."""
    size = length(z)
    number, whole = size.number, size.scaled
    nothing = select(z.zero, whole.like(1.0), select(finite(whole), whole, NAN))
    return z.of(
        select(z.zero, whole.like(0.0), number.re / nothing),
        select(z.zero, whole.like(0.0), number.im / nothing),
    )


def _root(z: Number) -> tuple[Number, Expr, Expr]:
    """The root of z 4**-e, its length, and 2**e."""
    size = length(z)
    x, y = size.number.re, size.number.im
    whole = select(z.infinite, x.like(INF), size.scaled)
    large = root((absolute(x) + whole) * 0.5)
    small = select(large.eq(0.0), large, absolute(y) / (large * 2.0))
    left = bits(x) < 0
    re, im = select(left, small, large), copysign(select(left, large, small), y)
    endless = absolute(y).eq(INF)
    result = z.of(select(endless, re.like(INF), re), select(endless, y, im))
    return result, whole, size.power(300)


def sqrt(z: Number) -> Number:
    """On the right of the imaginary axis, with the sign of z's imaginary part."""
    result, _, power = _root(z)
    return z.of(result.re * power, result.im * power)


def rsqrt(z: Number) -> Number:
    """The conjugate of sqrt(z) over |z|; of 0 as the quotient 1 / 0, of infinite numbers 0."""
    result, whole, power = _root(z)
    inside = whole > 0.0
    re, im = result.re / whole / power, 0.0 - result.im / whole / power
    flat = z.infinite
    re = select(flat, re.like(0.0), select(inside, re, select(z.zero, re.like(INF), re)))
    return z.of(re, select(flat, im.like(0.0), im))


def divide(a: Number, b: Number) -> Number:
    """As C's Annex G has it: infinite by finite is infinite, finite by infinite 0, finite by 0 infinite."""
    if a.single:
        bottom = fma(b.re, b.re, b.im * b.im)
        re = fma(a.re, b.re, a.im * b.im) / bottom
        im = fma(a.im, b.re, -(a.re * b.im)) / bottom
        return _recovered(a, b, re, im)
    up = _to_one(b)
    c, d = b.re * up, b.im * up
    shrink, grow = _to_middle(a)
    x, y = a.re * shrink, a.im * shrink
    bottom = fma(c, c, d * d)
    re, im = _sum_of_products(x, c, y, d), _sum_of_products(y, c, -x, d)
    return _recovered(a, b, re / bottom * up * grow, im / bottom * up * grow)


def _to_one(b: Number) -> Expr:
    """A power of two that brings the larger part of ``b`` near 1."""
    p, q = absolute(b.re), absolute(b.im)
    top = select(p > q, p, q)
    field = bits(top).lshr(52)
    field = select(field > 2045, field.like(2045), field)
    return from_bits((field.like(2046) - field) << 52, top.fmt)


def _to_middle(a: Number) -> tuple[Expr, Expr]:
    """A power of two that keeps products with what is near 1 in range, and its inverse."""
    p, q = absolute(a.re), absolute(a.im)
    top = select(p > q, p, q)
    big, tiny = top > 2.0**1000, top < 2.0**-900
    return (
        select(big, top.like(2.0**-8), select(tiny, top.like(2.0**60), 1.0)),
        select(big, top.like(2.0**8), select(tiny, top.like(2.0**-60), 1.0)),
    )


def _sum_of_products(a: Expr, b: Expr, c: Expr, d: Expr) -> Expr:
    """a b + c d within about a rounding, where nothing is infinite (Kahan)."""
    second = c * d
    lost = fma(c, d, -second)
    total = fma(a, b, second) + lost
    return select(finite(total), total, a * b + c * d)


def _recovered(a: Number, b: Number, re: Expr, im: Expr) -> Number:
    """What Annex G puts in the place of two NaN."""
    lost = re.isnan() & im.isnan()
    none = b.zero & ~(a.re.isnan() & a.im.isnan())
    endless = copysign(re.like(INF), b.re)
    below = b.infinite & finite(a.re) & finite(a.im)
    above = a.infinite & finite(b.re) & finite(b.im)
    p, q = _units(a.re, above), _units(a.im, above)
    c, d = _units(b.re, below), _units(b.im, below)
    factor = select(above, re.like(INF), 0.0)
    known = lost & (above | below)
    top, side = factor * (p * c + q * d), factor * (q * c - p * d)
    re = select(lost & none, endless * a.re, select(known, top, re))
    im = select(lost & none, endless * a.im, select(known, side, im))
    return a.of(re, im)


def _units(x: Expr, where: Expr) -> Expr:
    """1 of an infinity and 0 of other numbers, with their signs."""
    return select(where, copysign(select(absolute(x).eq(INF), x.like(1.0), 0.0), x), x)
