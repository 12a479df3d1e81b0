"""lgamma and digamma, in f64 (f32 by way of f64 with shorter polynomials).

Positive arguments: a polynomial on [1, 2] with the function's zeros divided out, one step of the
recurrence below 1 and on [2, 3), Stirling's series from 3 on with its rest as a minimax polynomial
in 1/x^2. Negative ones by reflection, carried to twice the precision where f64 is wanted, since
the zeros between the poles are differences of large terms.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import Expr, copysign, fma, horner, narrow, nearest, select, widen
from kcache_compiler.passes.math.double_word import (
    Pair,
    add,
    divide,
    literal,
    multiply,
    multiply_float,
    two_sum,
)
from kcache_compiler.passes.math.exponential import absolute
from kcache_compiler.passes.math.logarithm import log_mixed, log_pair
from kcache_compiler.passes.math.trigonometry import kernel_f64 as kernel

INF = float("inf")
PI = (2 * c.HALF_PI_f64[0], 2 * c.HALF_PI_f64[1])


@dataclass(frozen=True)
class Precision:
    """Which polynomials to take, and whether logarithms carry a low part."""

    lgamma: tuple[float, ...]
    stirling: tuple[float, ...]
    digamma: tuple[float, ...]
    digamma_rest: tuple[float, ...]
    full: bool

    def log(self, x: Expr) -> Pair:
        return log_pair(x) if self.full else Pair(log_mixed(x), x.like(0.0))


FULL = Precision(c.LGAMMA_f64, c.STIRLING_f64, c.DIGAMMA_f64, c.DIGAMMA_REST_f64, full=True)
MIXED = Precision(c.LGAMMA_MIXED, c.STIRLING_MIXED, c.DIGAMMA_MIXED, c.DIGAMMA_REST_MIXED, full=False)


def lgamma(x: Expr) -> Expr:
    if x.type == "f32":
        return narrow(_lgamma(widen(x), MIXED))
    return _lgamma(x, FULL)


def digamma(x: Expr) -> Expr:
    if x.type == "f32":
        return narrow(_digamma(widen(x), MIXED))
    return _digamma(x, FULL)


@dataclass(frozen=True)
class SinCosPi:
    """Sine and cosine of pi times the signed distance of x from the nearest integer; whether x is one."""

    sine: Pair
    cosine: Pair
    integer: Expr


def sincospi(x: Expr, full: bool) -> SinCosPi:
    """Sine and cosine of pi x for ``x`` at least 0, up to one sign that both share."""
    d = x - nearest(x)
    a = absolute(d)
    outer = a > 0.25
    inner = select(outer, 0.5 - a, a)
    angle = multiply_float(literal(PI, x), inner) if full else Pair(inner * PI[0], x.like(0.0))
    sine, cosine = kernel(angle)
    s = Pair(select(outer, cosine.high, sine.high), select(outer, cosine.low, sine.low))
    co = Pair(select(outer, sine.high, cosine.high), select(outer, sine.low, cosine.low))
    # The sign of d is put on the sine; adding it to both parts keeps the sum.
    minus = d < 0.0
    s = Pair(select(minus, -s.high, s.high), select(minus, -s.low, s.low))
    return SinCosPi(s, co, d.eq(0.0))


def lgamma_double_word(a: Expr, negative: Expr | None, p: Precision) -> Pair:
    """log gamma(a) of positive ``a``; where ``negative``, log gamma(1 + a) for a < 1."""
    low, below_two, three = a < 1.0, a < 2.0, a >= 3.0
    middle = a - 1.0
    u = select(low, a, select(below_two, middle, middle - 1.0))
    v = u - 1.0
    polynomial = u * v * horner(u - 0.5, p.lgamma)
    argument = select(three, a, select(low, a, select(below_two, a.like(1.0), middle)))
    factor = select(three, a - 0.5, select(low, a.like(-1.0), 1.0))
    if negative is not None:
        factor = select(low & negative, a.like(0.0), factor)
    w = 1.0 / a
    stirling = w * horner(w * w, p.stirling)
    constant = c.HALF_LOG_2PI
    base = two_sum(a.like(constant[0]), -a)
    start = select(three, base.high, polynomial)
    rest = select(three, base.low + (constant[1] + stirling), 0.0)
    log = p.log(argument)
    return add(multiply_float(log, factor), Pair(start, rest)) if p.full else _plain(log, factor, start, rest)


def _plain(log: Pair, factor: Expr, start: Expr, rest: Expr) -> Pair:
    return Pair(fma(log.high, factor, start + rest), start.like(0.0))


def _lgamma(x: Expr, p: Precision) -> Expr:
    a = absolute(x)
    # The tiniest negative numbers are as the positive ones: -log|x|.
    negative = x < -1e-290
    positive = lgamma_double_word(a, negative, p)
    angle = sincospi(a, p.full)
    sine = Pair(absolute(angle.sine.high), copysign(angle.sine.low, angle.sine.low * angle.sine.high))
    # gamma(x) gamma(1 - x) = pi / sin(pi x), and gamma(1 + a) = a gamma(a) from 1 on.
    grown = multiply_float(sine, select(a < 1.0, a.like(1.0), a))
    usable = select(grown.high > 0.0, grown.high, 1.0)
    log = p.log(usable)
    log = Pair(log.high, log.low + grown.low / usable)
    reflected = add(add(literal(c.LOG_PI, x), -log), -positive)
    huge = a > 1e20
    large = a * (p.log(a).high - 1.0)
    result = select(
        negative, reflected.high + reflected.low, select(huge, large, positive.high + positive.low)
    )
    # Beyond 2**52 every negative number is an integer: a pole.
    pole = a.eq(0.0) | (negative & angle.integer) | a.eq(INF)
    return select(x.isnan(), x, select(pole, x.like(INF), result))


def _digamma(x: Expr, p: Precision) -> Expr:
    """Where x is negative, digamma(1 + a) + pi cot(pi a), a = -x."""
    a = absolute(x)
    negative = x < 0.0
    low, below_two, three = a < 1.0, a < 2.0, a >= 3.0
    zero, tail = c.DIGAMMA_ZERO
    y = select(low | below_two, a, a - 1.0)
    root = select(low, a.like(zero - 1.0), zero)
    near = ((y - root) - tail) * horner(select(low, a - 0.5, y - 1.5), p.digamma)
    w = 1.0 / a
    # digamma(a) on the positive side: -1/a below 1, +1/(a-1) on [2, 3); digamma(1+a) has 1/a more.
    step = 1.0 / select(low, a, select(below_two, a.like(1.0), a - 1.0))
    shift = select(low, -step, select(below_two, a.like(0.0), step))
    shift = select(negative, select(low, a.like(0.0), shift + w), shift)
    square = w * w
    half = select(negative, w * 0.5, w * -0.5)
    far = half - square * horner(square, p.digamma_rest)
    log = p.log(a)
    start = select(three, log.high, near)
    rest = select(three, log.low + far, shift)
    value = two_sum(start, rest)
    angle = sincospi(a, p.full)
    bottom = Pair(select(angle.integer, a.like(1.0), angle.sine.high), angle.sine.low)
    cot = divide(angle.cosine, bottom)
    reflected = add(multiply(cot, literal(PI, x)) if p.full else Pair(cot.high * PI[0], a.like(0.0)), value)
    result = select(negative, reflected.high + reflected.low, value.high + value.low)
    pole = (x <= 0.0) & (angle.integer | a.eq(INF))
    result = select(a < 1e-290, -1.0 / x, select(a.eq(INF), a, result))
    return select(pole | x.isnan(), x.like(float("nan")), result)
