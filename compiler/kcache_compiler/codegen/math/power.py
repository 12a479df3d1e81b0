"""pow, by exp2(y log2|x|) with the logarithm to more bits than the result has."""

from __future__ import annotations

from . import coefficients as c
from .build import F64, Expr, bits, clamp, const, fma, from_bits, horner, narrow, select, trunc, widen
from .exponential import absolute, exp_of_sum, power_of_two
from .logarithm import log_pair, split
from .pair import Pair, multiply_float


def _finish(x: Expr, y: Expr, magnitude: Expr) -> Expr:
    """IEEE 754's table: signs, non-integer powers of negative numbers, powers of 1 and to 0."""
    fmt = x.fmt
    integer = trunc(y).eq(y)
    half = y * 0.5
    odd = integer & trunc(half).ne(half)
    sign = select(odd, bits(x) & (-1 << (fmt.bits - 1)), 0)
    result = from_bits(bits(magnitude) | sign, fmt)
    invalid = (x < 0.0) & (x > float("-inf")) & ~integer
    result = select(invalid | x.isnan() | y.isnan(), x.like(float("nan")), result)
    return select(x.eq(1.0) | y.eq(0.0), x.like(1.0), result)


def _pow_f32(x: Expr, y: Expr) -> Expr:
    """In f64: 2**-43 in the logarithm and 2**-34 in the power leave one rounding in f32."""
    a = widen(absolute(x))
    exponent = clamp(widen(y), -1e30, 1e30)
    part = split(a, subnormals=False)
    s = part.f / (part.f + 2.0)
    z = s * s
    log2 = fma(s, horner(z, c.LOG2_MIXED), part.k)
    inf = float("inf")
    log2 = select(a > 0.0, select(a < inf, log2, a), const(-inf, "f64"))
    v = clamp(exponent * log2, -160.0, 140.0)
    shifted = v + F64.magic
    r = v - (shifted - F64.magic)
    p = fma(r, horner(r, c.EXP2_MIXED), 1.0)
    whole = bits(shifted) - F64.bits_of(F64.magic)
    return _finish(x, y, narrow(p * power_of_two(whole, p)))


def _pow_f64(x: Expr, y: Expr) -> Expr:
    a = absolute(x)
    inf = float("inf")
    log = log_pair(a)
    high = select(a > 0.0, select(a < inf, log.high, a), const(-inf, "f64"))
    exponent = clamp(y, -1e300, 1e300)
    v = multiply_float(Pair(high, log.low), exponent)
    top = exponent * high
    inside = absolute(top) < 1000.0
    magnitude = exp_of_sum(select(inside, v.high, top), select(inside, v.low, 0.0))
    return _finish(x, y, magnitude)


def pow_(x: Expr, y: Expr) -> Expr:
    return _pow_f32(x, y) if x.type == "f32" else _pow_f64(x, y)
