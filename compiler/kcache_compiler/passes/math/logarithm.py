"""log, log2, log10, log1p.

x = 2**k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f + tail, where the tail is at
most a quarter of the whole, so that its rounding counts little. f32 takes a polynomial in f,
f64 the series of atanh(s), s = f / (2 + f), which halves the degree for one division.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import (
    Expr,
    bits,
    copysign,
    fma,
    from_bits,
    horner,
    select,
    sqrt,
    to_float,
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

_LN2 = {"f32": c.LN2_f32, "f64": c.LN2_f64}
_LOG2E = {"f32": c.LOG2E_f32, "f64": c.LOG2E_f64}
_LOG10E = {"f32": c.LOG10E_f32, "f64": c.LOG10E_f64}
_LOG10_2 = {"f32": c.LOG10_2_f32, "f64": c.LOG10_2_f64}


@dataclass(frozen=True)
class Split:
    """x = 2**k (1 + f); ``k`` as a float, ``exponent`` as an integer."""

    k: Expr
    exponent: Expr
    f: Expr


def split(x: Expr, subnormals: bool = True) -> Split:
    """Take a positive finite ``x`` apart, subnormals too."""
    fmt = x.fmt
    tiny = x < math.ldexp(1.0, 1 - fmt.bias)
    scaled = select(tiny, x * math.ldexp(1.0, fmt.mantissa + 2), x) if subnormals else x
    whole = bits(scaled)
    exponent = (whole - fmt.bits_of(math.sqrt(0.5))) >> fmt.mantissa
    m = from_bits(whole - (exponent << fmt.mantissa), fmt)
    if subnormals:
        exponent = select(tiny, exponent - (fmt.mantissa + 2), exponent)
    return Split(to_float(exponent, fmt), exponent, m - 1.0)


def tail(f: Expr) -> Expr:
    """log(1 + f) - f."""
    if f.type == "f32":
        return f * f * fma(f, horner(f, c.LOG_f32), -0.5)
    s = f / (f + 2.0)
    square = f * f * 0.5
    z = s * s
    return fma(s, fma(z, horner(z, c.LOG_f64), square), -square)


def special(x: Expr, result: Expr) -> Expr:
    """The value of a logarithm at 0, negative numbers, infinity and NaN."""
    inf = float("inf")
    edge = select(x.eq(0.0), x.like(-inf), float("nan"))
    return select(x > 0.0, select(x < inf, result, x), edge)


def log(x: Expr) -> Expr:
    high, low = _LN2[x.type]
    part = split(x)
    rest = fma(part.k, low, tail(part.f))
    return special(x, fma(part.k, high, part.f + rest))


def log_of_sum(u: Expr, lost: Expr, doublings: Expr | None = None) -> Expr:
    """log(u + lost) for normal u, |lost| within a rounding of u; plus ``doublings`` times log 2."""
    high, low = _LN2[u.type]
    fmt = u.fmt
    part = split(u, subnormals=False)
    cap = select(part.exponent > 60, part.exponent.like(60), part.exponent)
    carry = lost * from_bits((fmt.bias - cap) << fmt.mantissa, fmt)
    f = part.f + carry
    k = part.k if doublings is None else part.k + doublings
    rest = fma(k, low, tail(f) + (carry - (f - part.f)))
    return special(u, fma(k, high, f + rest))


def log1p(x: Expr) -> Expr:
    u = two_sum(x, x.like(1.0))
    result = log_of_sum(u.high, u.low)
    return copysign(select(x < float("inf"), result, special(x, x)), x)


def asinh(x: Expr) -> Expr:
    """To 1/2 a polynomial; beyond, log(x + sqrt(x^2 + 1)) with the sum carried to twice the precision."""
    a = absolute(x)
    z = a * a
    small = fma(a * z, horner(z, {"f32": c.ASINH_f32, "f64": c.ASINH_f64}[x.type]), a)
    huge = a > math.ldexp(1.0, x.fmt.mantissa + 5)
    base = select(huge, a.like(1.0), a)
    square = product(base, base)
    inner = two_sum(square.high, base.like(1.0))
    root = _root(Pair(inner.high, inner.low + square.low))
    total = two_sum(base, root.high)
    high = select(huge, a, total.high)
    low = select(huge, a.like(0.0), total.low + root.low)
    large = log_of_sum(high, low, select(huge, a.like(1.0), 0.0))
    return copysign(select(a < 0.5, small, large), x)


def _root(x: Pair) -> Pair:
    """The square root of a positive sum."""
    high = sqrt(x.high)
    rest = fma(-high, high, x.high) + x.low
    return Pair(high, rest * 0.5 / high)


def acosh(x: Expr) -> Expr:
    """log1p(d + sqrt(2d + d^2)), d = x - 1."""
    huge = x > math.ldexp(1.0, x.fmt.mantissa + 5)
    d = select(huge, x.like(1.0), x - 1.0)
    square = product(d, d)
    inner = two_sum(d * 2.0, square.high)
    root = _root(Pair(inner.high, inner.low + square.low))
    first = two_sum(d, root.high)
    u = two_sum(first.high, x.like(1.0))
    high = select(huge, x, u.high)
    low = select(huge, x.like(0.0), u.low + (first.low + root.low))
    result = log_of_sum(high, low, select(huge, x.like(1.0), 0.0))
    return select(x > 1.0, result, select(x.eq(1.0), x.like(0.0), float("nan")))


def atanh(x: Expr) -> Expr:
    """To 1/2 a polynomial; beyond, half of log((1 + x) / (1 - x))."""
    a = absolute(x)
    z = a * a
    small = fma(a * z, horner(z, {"f32": c.ATANH_f32, "f64": c.ATANH_f64}[x.type]), a)
    one = a.like(1.0)
    top = fast_sum(one, a)
    q = divide(top, Pair(1.0 - a, a.like(0.0)))
    large = log_of_sum(q.high, q.low) * 0.5
    large = select(a < 1.0, large, select(a.eq(1.0), a.like(float("inf")), float("nan")))
    return copysign(select(a < 0.5, small, large), x)


def _scaled_log(x: Expr, factor: tuple[float, ...], step: tuple[float, ...]) -> Expr:
    """k step + (f + tail) factor, with both constants as head and tail."""
    part = split(x)
    high, low = factor
    product = part.f * high
    rest = fma(part.f, high, -product) + fma(part.f, low, tail(part.f) * high)
    if step[1]:
        rest = fma(part.k, step[1], rest)
    whole = part.k * step[0]
    total = whole + product
    lost = product - (total - whole)
    return special(x, total + (rest + lost))


def log2(x: Expr) -> Expr:
    return _scaled_log(x, _LOG2E[x.type], (1.0, 0.0))


def log10(x: Expr) -> Expr:
    return _scaled_log(x, _LOG10E[x.type], _LOG10_2[x.type])


def log_pair(x: Expr) -> Pair:
    """log of positive finite f64 ``x`` to about 2**-65 of itself."""
    part = split(x)
    f = part.f
    two = f.like(2.0)
    s = divide(Pair(f, f.like(0.0)), fast_sum(two, f))
    z = multiply(s, s)
    ratio = literal(c.TWO_THIRDS, x)
    inner = fast_sum(ratio.high, z.high * horner(z.high, c.LOG_PAIR_f64))
    inner = Pair(inner.high, inner.low + ratio.low)
    cubic = multiply(multiply(z, inner), s)
    head = fast_sum(s.high * 2.0, cubic.high)
    high, low = c.LN2_f64
    whole = fast_sum(part.k * high, head.high)
    rest = fma(part.k, low, whole.low + (head.low + (fma(s.low, 2.0, cubic.low))))
    return fast_sum(whole.high, rest)


def log_mixed(x: Expr) -> Expr:
    """log of normal positive f64 ``x`` to about 2**-43 of itself."""
    part = split(x, subnormals=False)
    s = part.f / (part.f + 2.0)
    z = s * s
    return fma(s, horner(z, c.LOG2_MIXED), part.k) * c.LN2_FULL[0]
