"""erf, erfc, erf_inv, and gelu, which is x times the distribution function of the normal distribution."""

from __future__ import annotations

import math

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import (
    Expr,
    bits,
    copysign,
    fma,
    horner,
    maximum,
    minimum,
    narrow,
    select,
    sqrt,
    widen,
)
from kcache_compiler.passes.math.double_word import divide, fast_sum, product
from kcache_compiler.passes.math.exponential import (
    LIFT,
    absolute,
    exp_of_sum,
    expm1_reduced,
    lifted,
    lifted_power,
    power_of_two,
    reduce,
    scale,
)
from kcache_compiler.passes.math.logarithm import log_mixed

#: (v / erfcx) d erfcx / dv for the v of ``_erfc_f32`` is about s v + t.
ERFCX_SLOPE = (0.45, 1.1)


def erf(x: Expr) -> Expr:
    a = absolute(x)
    if x.type == "f32":
        return copysign(_erf_f32(a), x)
    # x (1 + P(x^2)) to 1; beyond, 1 - erfc(|x|)
    small = fma(x, horner(x * x, c.ERF_SMALL_f64), x)
    return select(a < 1.0, small, copysign(1.0 - _erfc_large(minimum(6.0, a)), x))


def _erf_f32(a: Expr) -> Expr:
    """1 - exp(L) where L = log(erfc(a)) = a P(a) - a: near 0 nothing cancels, as exp(L) - 1 is computed."""
    a = minimum(3.95, a)
    part = reduce(fma(a, horner(a, c.ERF_LOG_f32), -a))
    power = power_of_two(part.exponent, a)
    return (1.0 - power) - power * expm1_reduced(part.r)


def _erfc_large(a: Expr) -> Expr:
    """exp(-a^2) erfcx(a) for f64 a >= 1/2, erfcx(a) = P((a - 2) / (a + 2)) / (1 + 2a)."""
    t = (a - 2.0) / (a + 2.0)
    coefficients = c.ERFCX_f64
    constant = a.like(coefficients[0])
    top = fast_sum(constant, t * horner(t, coefficients[1:]))
    one = a.like(1.0)
    doubled = a * 2.0
    bottom = fast_sum(doubled, one)
    ratio = divide(top, bottom)
    square = product(a, a)
    return exp_of_sum(-square.high, -square.low, ratio)


def _erfc_f32(a: Expr) -> Expr:
    """exp(-a^2) erfcx(a) for f32 a from 1/2 to 10.19, beyond which erfc is 0; erfcx(a) is v P(v - 3/8) for
    v = 1 / (1 + 7/8 a). The largest term of P joins last; what rounding took from v and a^2 is in ``rest``.
    """
    bottom = fma(a, 0.875, 1.0)
    v = 1.0 / bottom
    error = fma(-v, fma(a, 0.875, 1.0 - bottom), fma(-v, bottom, 1.0))
    w = v - 0.375
    first, below, *others = c.ERFCX_f32
    curve = horner(w, others)
    square = a * a
    part = reduce(-square)
    rest = expm1_reduced(part.r)
    lost = fma(error, fma(v, *ERFCX_SLOPE), part.tail - fma(a, a, -square))
    rest = rest + fma(lost, rest, lost)
    top = fast_sum(a.like(first), fma(w, curve, fma(fma(w, curve, first), rest, below)))
    return scale(fma(v, top.high, v * top.low), part.word)


def erfc(x: Expr) -> Expr:
    a = absolute(x)
    if x.type == "f32":
        small = 1.0 - fma(x, horner(x * x, c.ERFC_SMALL_f32), x)
        large = _erfc_f32(minimum(10.19, a))
        return select(a < 0.5, small, select(x < 0.0, 2.0 - large, large))
    tail = x * horner(x * x, c.ERF_SMALL_f64)
    head = 1.0 - x
    small = head + (((1.0 - head) - x) - tail)
    large = _erfc_large(minimum(28.0, a))
    return select(a < 0.5, small, select(x < 0.0, 2.0 - large, large))


#: From here on x times the normal distribution function of -x is nothing in f32.
_GELU_END = 14.4
_GELU_CENTER = 4.0


def gelu(x: Expr) -> Expr:
    """x P(x) for the distribution function P of the normal distribution, as max(x, 0) - a P(-a) with a = |x|.

    P(-a) = 2**(-a L(a) - a^2 log2(e)/2) / 2, L a polynomial: near 0 little is left to round. What rounding
    takes from the square joins late.
    The factor of P(-a) is not limited below 0: -inf times its 0 is the NaN that the operations give.
    """
    fmt = x.fmt
    below = maximum(-_GELU_END, -absolute(x))
    head, tail = c.HALF_LOG2E_f32
    curve = below * horner(-_GELU_CENTER - below, c.GELU_f32)
    square = below * below
    lost = fma(below, below, -square)
    shifted = fma(square, -head, curve) + lifted(fmt)
    k = shifted - lifted(fmt)
    rest = fma(lost, -head, fma(square, -tail, curve))
    r = fma(square, -head, -k) + rest
    power = fma(r, horner(r, c.EXP2_f32), 1.0) * lifted_power(bits(shifted), fmt) * 2.0 ** -(LIFT + 1)
    return fma(power, minimum(below, x), maximum(0.0, x))


def erf_inv(x: Expr) -> Expr:
    """A polynomial in x^2, or towards 1 in sqrt(-log(1 - |x|)), to about 2**-27; f64 takes one step
    of Halley's iteration from there, on erf or on erfc, whichever is the smaller.
    """
    if x.type == "f32":
        return copysign(narrow(_estimate(widen(absolute(x)))), x)
    a = absolute(x)
    y = _estimate(a)
    inner = a < 0.53
    small = fma(y, horner(y * y, c.ERF_SMALL_f64), y) - a
    # erf(y) - a = (1 - a) - erfc(y), and 1 - a is exact from 1/2 on.
    error = select(inner, small, (1.0 - a) - _erfc_large(y))
    slope = 2.0 / math.sqrt(math.pi)
    step = error / (exp_of_sum(-(y * y), y.like(0.0)) * slope)
    refined = y - step / fma(y, step, 1.0)
    refined = select(a < 1.0, refined, y)
    return copysign(select(a < 1e-8, a * (math.sqrt(math.pi) / 2.0), refined), x)


def _estimate(a: Expr) -> Expr:
    """erf_inv of non-negative ``a`` to about 2**-27, infinite at 1, NaN beyond."""
    center = a * horner(a * a, c.ERFINV_CENTER)
    rest = 1.0 - a
    v = sqrt(-log_mixed(select(rest > 0.0, rest, 1.0)))
    tail = horner(v - 3.0, c.ERFINV_TAIL)
    result = select(a < 0.75, center, tail)
    edge = select(a.eq(1.0), a.like(float("inf")), float("nan"))
    return select(a < 1.0, result, edge)
