"""sin, cos, tan, atan, atan2, asin, acos.

The argument times 2/pi, modulo 4, is computed from the bits of 2/pi that matter at the
argument's exponent (Payne and Hanek), without branches: pieces of 2/pi are chosen by selects, so
that the whole range costs the same and vectorizes.
"""

from __future__ import annotations

import math

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import (
    F64,
    Expr,
    bits,
    cast,
    const,
    copysign,
    fma,
    from_bits,
    horner,
    maximum,
    narrow,
    nearest,
    select,
    sqrt,
    widen,
)
from kcache_compiler.passes.math.double_word import (
    Pair,
    divide,
    fast_sum,
    literal,
    multiply,
    product,
    two_sum,
)
from kcache_compiler.passes.math.exponential import absolute

HALF_PI = 0.5 * math.pi


def _reduce_f32(x: Expr) -> tuple[Expr, Expr]:
    """(r, quadrant) of non-negative f32 ``x``."""
    return reduce_24_bits(widen(x))


def reduce_24_bits(wide: Expr) -> tuple[Expr, Expr]:
    """(r, quadrant) of a non-negative f32 as f64: quadrant pi/2 + r, r in f64 to about 2**-54.

    In a band of 32 exponents, bits of 2/pi above a weight give multiples of 4 and are left out;
    the first two pieces have 29 bits, so that their products with 24 bits are exact.
    """
    pieces = [const(value, "f64") for value in c.TWO_OVER_PI_f32[9:]]
    for band in (2, 1, 0):
        inside = wide < math.ldexp(1.0, 32 * band + 32)
        values = c.TWO_OVER_PI_f32[3 * band : 3 * band + 3]
        pieces = [select(inside, const(v, "f64"), p) for v, p in zip(values, pieces, strict=True)]
    first = wide * pieces[0]
    first = fma(nearest(first * 0.25), -4.0, first)
    exact = fma(wide, pieces[1], first)
    last = wide * pieces[2]
    shifted = (exact + last) + F64.magic
    whole = shifted - F64.magic
    r = ((exact - whole) + last) * HALF_PI
    return r, cast("trunci", bits(shifted), "i32")


def _window_f64(x: Expr) -> list[Expr]:
    """The five pieces of 2/pi (times 2**200) from the band of 53 exponents in which ``x`` >= 1 lies.

    A barrel shifter of selects over the table: no memory is read, so that loops vectorize everywhere.
    """
    exponent = cast("trunci", bits(x) >> 52, "i32") - 1023
    band = (exponent * 1237) >> 16
    pieces = [const(value, "f64") for value in c.TWO_OVER_PI_f64]
    for step in (16, 8, 4, 2, 1):
        taken = (band & step).ne(0)
        width = step - 1 + 5
        pieces = [
            select(taken, pieces[i + step], pieces[i]) if i + step < len(pieces) else pieces[i]
            for i in range(min(width, len(pieces)))
        ]
    return pieces


def _modulo_4(x: Expr) -> Expr:
    return fma(nearest(x * 0.25), -4.0, x)


def reduce_f64(x: Expr) -> tuple[Pair, Expr]:
    """(r, quadrant) of non-negative ``x``: x = quadrant pi/2 + r, r to about 2**-110."""
    small = x < 0.78
    scaled = maximum(0.5, x) * math.ldexp(1.0, -200)
    window = _window_f64(maximum(1.0, x))
    first, second, third, fourth = (product(scaled, piece) for piece in window[:4])
    # The error of the product of an infinity must not hide that it is one.
    parts = [_modulo_4(first.high), _modulo_4(first.low), _modulo_4(second.high), second.low, third.high]
    guess = ((parts[0] + parts[1]) + parts[2]) + (parts[3] + parts[4])
    shifted = guess + F64.magic
    whole = shifted - F64.magic
    total = two_sum((parts[0] + parts[1]) - whole, parts[2])
    lost = [total.low]
    for part in (parts[4], parts[3]):
        total = two_sum(total.high, part)
        lost.append(total.low)
    lost += [fourth.high, third.low]
    rest = Pair(lost[0], lost[0].like(0.0))
    for part in lost[1:]:
        step = two_sum(rest.high, part)
        rest = Pair(step.high, rest.low + step.low)
    fraction = two_sum(total.high, rest.high)
    fraction = Pair(fraction.high, fraction.low + (rest.low + (fourth.low + scaled * window[4])))
    r = multiply(fraction, literal(c.HALF_PI_f64, x))
    zero = x.like(0.0)
    quadrant = select(small, bits(zero), bits(shifted))
    return Pair(select(small, x, r.high), select(small, zero, r.low)), quadrant


def kernel_f64(r: Pair) -> tuple[Pair, Pair]:
    """sine and cosine of r, |r| <= pi/4, each as a sum."""
    z = r.high * r.high
    sine = fast_sum(r.high, fma(r.high * z, horner(z, c.SIN_f64), fma(z * -0.5, r.low, r.low)))
    half = z * -0.5
    top = half + 1.0
    rest = (1.0 - top) + half
    square = fma(r.high, r.high, -z)
    cosine = fast_sum(top, fma(z * z, horner(z, c.COS_f64), rest - fma(square, 0.5, r.high * r.low)))
    return sine, cosine


def _sin_cos_f32(x: Expr) -> tuple[Expr, Expr, Expr]:
    r, quadrant = _reduce_f32(absolute(x))
    r = narrow(r)
    z = r * r
    sine = fma(r * z, horner(z, c.SIN_f32), r)
    cosine = fma(z * z, horner(z, c.COS_f32), fma(z, -0.5, 1.0))
    return sine, cosine, quadrant


def _sin_cos_f64(x: Expr) -> tuple[Expr, Expr, Expr]:
    r, quadrant = reduce_f64(absolute(x))
    sine, cosine = kernel_f64(r)
    return sine.high, cosine.high, quadrant


def flip(x: Expr, sign: Expr) -> Expr:
    """``x`` with its sign bit changed by the top bit of ``sign``."""
    top = -1 << (x.fmt.bits - 1)
    return from_bits(bits(x) ^ (sign & top), x.fmt)


def sin(x: Expr) -> Expr:
    sine, cosine, quadrant = _sin_cos(x)
    odd = (quadrant & 1).ne(0)
    turn = quadrant << (x.fmt.bits - 2)
    return flip(select(odd, cosine, sine), turn ^ bits(x))


def cos(x: Expr) -> Expr:
    sine, cosine, quadrant = _sin_cos(x)
    odd = (quadrant & 1).ne(0)
    turn = (quadrant + 1) << (x.fmt.bits - 2)
    return flip(select(odd, sine, cosine), turn)


def tan(x: Expr) -> Expr:
    """sin / cos of the reduced argument: f32 in f64, f64 as a quotient of sums."""
    turn, result = _tan_f32(absolute(x)) if x.type == "f32" else _tan_f64(absolute(x))
    return flip(result, (turn << (x.fmt.bits - 1)) ^ bits(x))


def _tan_f32(x: Expr) -> tuple[Expr, Expr]:
    r, quadrant = _reduce_f32(x)
    z = r * r
    sine = fma(r * z, horner(z, c.SIN_f32), r)
    cosine = fma(z * z, horner(z, c.COS_f32), fma(z, -0.5, 1.0))
    odd = (quadrant & 1).ne(0)
    return quadrant, narrow(select(odd, cosine, sine) / select(odd, sine, cosine))


def _tan_f64(x: Expr) -> tuple[Expr, Expr]:
    r, quadrant = reduce_f64(x)
    sine, cosine = kernel_f64(r)
    odd = (quadrant & 1).ne(0)
    top = Pair(select(odd, cosine.high, sine.high), select(odd, cosine.low, sine.low))
    bottom = Pair(select(odd, sine.high, cosine.high), select(odd, sine.low, cosine.low))
    return quadrant, divide(top, bottom).high


def _sin_cos(x: Expr) -> tuple[Expr, Expr, Expr]:
    return _sin_cos_f32(x) if x.type == "f32" else _sin_cos_f64(x)


def atan(x: Expr) -> Expr:
    """Beyond 1, pi/2 - atan(1/x)."""
    a = absolute(x)
    above = a > 1.0
    result = _octant(select(above, 1.0 / a, a), above, x.like(0.0))
    return copysign(result, x)


def _octant(q: Expr, above: Expr, base: Expr) -> Expr:
    """atan(q) for 0 <= q <= 1, or pi/2 - atan(q) where ``above``; ``base`` gives the format."""
    z = q * q
    tail = q * z * horner(z, {"f32": c.ATAN_f32, "f64": c.ATAN_f64}[base.type])
    return select(above, _complement(_HALF_PI[base.type], q, tail), q + tail)


_HALF_PI = {"f32": c.HALF_PI_f32, "f64": c.HALF_PI_f64}


def _complement(constant: tuple[float, ...], head: Expr, tail: Expr) -> Expr:
    """constant - (head + tail), rounded about once."""
    top = constant[0] - head
    lost = (constant[0] - top) - head
    return top + (lost - tail + constant[1])


def atan2(y: Expr, x: Expr) -> Expr:
    """The full table of IEEE 754: signed zeros and infinities in every combination."""
    a, b = absolute(y), absolute(x)
    steep = a > b
    low, high = select(steep, b, a), select(steep, a, b)
    inf = float("inf")
    q = select(high.eq(0.0), high, select(low.eq(inf), high.like(1.0), low / high))
    z = q * q
    tail = q * z * horner(z, {"f32": c.ATAN_f32, "f64": c.ATAN_f64}[x.type])
    half = _HALF_PI[x.type]
    left = bits(x) < 0
    # The base is 0, pi/2 or pi, and the angle is taken from it or added to it.
    doubled = (half[0] * 2, half[1] * 2)
    acute = select(steep, _complement(half, q, tail), q + tail)
    plus = q + half[0]
    obtuse = select(
        steep,
        plus + (((half[0] - plus) + q) + (tail + half[1])),
        _complement(doubled, q, tail),
    )
    result = select(left, obtuse, acute)
    return copysign(select(x.isnan() | y.isnan(), x + y, result), y)


def asin(x: Expr) -> Expr:
    a = absolute(x)
    outer = a > 0.5
    z = select(outer, fma(a, -0.5, 0.5), a * a)
    root = select(outer, sqrt(z), a)
    tail = root * z * horner(z, _ASIN[x.type])
    result = select(outer, _complement(_HALF_PI[x.type], root * 2.0, tail * 2.0), root + tail)
    return copysign(result, x)


def acos(x: Expr) -> Expr:
    a = absolute(x)
    outer = a > 0.5
    z = select(outer, fma(a, -0.5, 0.5), a * a)
    half = _HALF_PI[x.type]
    root = select(outer, sqrt(z), x)
    tail = root * z * horner(z, _ASIN[x.type])
    near = (root + tail) * 2.0
    far = _complement((half[0] * 2, half[1] * 2), root * 2.0, tail * 2.0)
    return select(outer, select(x > 0.0, near, far), _complement(half, root, tail))


_ASIN = {"f32": c.ASIN_f32, "f64": c.ASIN_f64}
