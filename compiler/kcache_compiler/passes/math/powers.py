"""sqrt, rsqrt, cbrt, and pow, by exp2(y log2|x|) with the logarithm to more bits than the result has."""

from __future__ import annotations

import math

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import (
    F64,
    Expr,
    bits,
    cast,
    clamp,
    const,
    copysign,
    fma,
    from_bits,
    horner,
    narrow,
    select,
    trunc,
    widen,
)
from kcache_compiler.passes.math.builder import sqrt as _sqrt
from kcache_compiler.passes.math.double_word import Pair, multiply_float, two_sum
from kcache_compiler.passes.math.exponential import absolute, exp_of_sum, power_of_two
from kcache_compiler.passes.math.logarithm import log_pair, split


def sqrt(x: Expr) -> Expr:
    return _sqrt(x)


def rsqrt(x: Expr) -> Expr:
    """Two correctly rounded operations; subnormals and -0 need no special case."""
    return 1.0 / _sqrt(x)


def cbrt(x: Expr) -> Expr:
    """x = 8**q m with 1 <= m < 8; y = m**(-1/3) by a polynomial and division-free iterations; m y^2."""
    if x.type == "f32":
        return copysign(narrow(_cbrt(widen(absolute(x)), False)), x)
    return copysign(_cbrt(absolute(x), True), x)


def _cbrt(a: Expr, exact: bool) -> Expr:
    """Return the f64 cube root of ``a``, which is not negative.

    ``exact``: one more iteration, and subnormals.
    """
    fmt = a.fmt
    tiny = a < math.ldexp(1.0, -1022)
    scaled = select(tiny, a * math.ldexp(1.0, 54), a) if exact else a
    # Biased by 3072, so that the quotient by 3 is of a positive number; / 3 is * 21846 >> 16 there.
    exponent = cast("trunci", bits(scaled) >> fmt.mantissa, "i32") - 1023
    third = (((exponent + 3072) * 21846) >> 16) - 1024
    whole = cast("extsi", third, "i64")
    m = from_bits(bits(scaled) - ((whole * 3) << fmt.mantissa), fmt)
    y = horner(m, c.CBRT)
    # (1 - h)**(-1/3) = 1 + h/3 + 2 h^2/9 + 14 h^3/81 + ...
    h = fma(-(m * y), y * y, 1.0)
    y = fma(y * h, horner(h, (1 / 3, 2 / 9, 14 / 81)), y)
    root = m * y * y
    if exact:
        h = fma(-(m * y), y * y, 1.0)
        y = fma(y, h * (1 / 3), y)
        root = m * y * y
        square = root * root
        rest = fma(-square, root, m) - fma(root, root, -square) * root
        root = fma(rest * y, y * (1 / 3), root)
        whole = select(tiny, whole - 18, whole)
    result = root * power_of_two(whole, a)
    usable = (a > 0.0) & (a < float("inf"))
    return select(usable, result, a)


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


def _magnitude_f32(a: Expr, exponent: Expr) -> Expr:
    """a**exponent in f64, for f64 ``a`` that was f32: 2**-43 in the logarithm and 2**-34 in the power
    leave one rounding in f32.
    """
    part = split(a, subnormals=False)
    s = part.f / (part.f + 2.0)
    z = s * s
    log2 = fma(s, horner(z, c.LOG2_MIXED), part.k)
    v = clamp(exponent * _at_ends(a, log2), -160.0, 140.0)
    shifted = v + F64.magic
    r = v - (shifted - F64.magic)
    p = fma(r, horner(r, c.EXP2_MIXED), 1.0)
    whole = bits(shifted) - F64.bits_of(F64.magic)
    return narrow(p * power_of_two(whole, p))


def _at_ends(a: Expr, log: Expr) -> Expr:
    """The logarithm, also of 0 and infinity."""
    inf = float("inf")
    return select(a > 0.0, select(a < inf, log, a), const(-inf, "f64"))


def _magnitude_f64(a: Expr, exponent: Pair) -> Expr:
    log = log_pair(a)
    high = _at_ends(a, log.high)
    v = multiply_float(Pair(high, log.low), exponent.high)
    top = exponent.high * high
    inside = absolute(top) < 1000.0
    rest = v.low + exponent.low * high
    return exp_of_sum(select(inside, v.high, top), select(inside, rest, 0.0))


def pow_(x: Expr, y: Expr) -> Expr:
    a = absolute(x)
    if x.type == "f32":
        return _finish(x, y, _magnitude_f32(widen(a), clamp(widen(y), -1e30, 1e30)))
    exponent = clamp(y, -1e300, 1e300)
    return _finish(x, y, _magnitude_f64(a, Pair(exponent, y.like(0.0))))


def fpowi(x: Expr, n: Expr) -> Expr:
    """x to an integer power. An i64 may have more bits than f64, so it is taken as two parts."""
    wide = n if n.type == "i64" else cast("extsi", n, "i64")
    high = cast("sitofp", wide >> 32 << 32, "f64")
    low = cast("sitofp", wide & 0xFFFFFFFF, "f64")
    a = absolute(x)
    if x.type == "f32":
        magnitude = _magnitude_f32(widen(a), high + low)
    else:
        magnitude = _magnitude_f64(a, two_sum(high, low))
    sign = select((n & 1).ne(0), bits(x) & (-1 << (x.fmt.bits - 1)), 0)
    result = from_bits(bits(magnitude) | sign, x.fmt)
    return select(n.eq(0), x.like(1.0), select(x.isnan(), x, result))
