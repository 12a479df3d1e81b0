"""log, log2, log10, log1p.

x = 2**k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f + tail, where the tail is at
most a quarter of the whole, so that its rounding counts little. f32 takes a polynomial in f,
f64 the series of atanh(s), s = f / (2 + f), which halves the degree for one division.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import coefficients as c
from .build import Expr, bits, copysign, fma, from_bits, horner, select, to_float

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


def log1p(x: Expr) -> Expr:
    high, low = _LN2[x.type]
    fmt = x.fmt
    u = x + 1.0
    # u + lost = 1 + x exactly (two-sum).
    back = u - x
    lost = (x - (u - back)) + (1.0 - back)
    part = split(u, subnormals=False)
    cap = select(part.exponent > 60, part.exponent.like(60), part.exponent)
    c_ = lost * from_bits((fmt.bias - cap) << fmt.mantissa, fmt)
    f = part.f + c_
    rest = fma(part.k, low, tail(f) + (c_ - (f - part.f)))
    result = fma(part.k, high, f + rest)
    return copysign(special(u, select(x < float("inf"), result, x)), x)


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
