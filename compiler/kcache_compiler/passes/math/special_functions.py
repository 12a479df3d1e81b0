"""The Hurwitz zeta function, polygamma and the Bessel function ``bessel_i1e``.

Zeta and polygamma use Euler and Maclaurin's formula, in f64:
zeta(s, q) = sum of (q + k)**-s for k < 10, and from a = q + 10 on an integral with correction terms.
The powers are exp(scale - s log(q + k)) with the logarithm to twice the precision, so that polygamma
can put n! into the exponent, where it cannot overflow. For negative q (integer s only) the terms
below and above zero are two more sums of the same kind:
zeta(s, -(n + f)) = zeta(s, 1 - f) + (-1)**s (zeta(s, f) - zeta(s, n + f + 1)).

These two loop, so they do not vectorize.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import (
    Expr,
    const,
    copysign,
    floor,
    fma,
    horner,
    loop,
    minimum,
    narrow,
    select,
    sqrt,
    trunc,
    widen,
)
from kcache_compiler.passes.math.double_word import Pair, add, divide, multiply, multiply_float, two_sum
from kcache_compiler.passes.math.exponential import absolute, exp_pair
from kcache_compiler.passes.math.gamma import FULL, MIXED, Precision, digamma, lgamma_double_word

INF = float("inf")
NAN = float("nan")
#: Terms summed one by one.
TERMS = 10.0


def _power(base: Pair, s: Expr, scale: Pair, p: Precision) -> Pair:
    """exp(scale - s log(base)) for base > 0."""
    log = p.log(base.high)
    log = Pair(log.high, log.low + base.low / base.high)
    top = s * select(base.high < INF, log.high, base.high)
    product = multiply_float(log, s)
    inside = absolute(top) < 1e15
    exponent = add(scale, Pair(select(inside, -product.high, -top), select(inside, -product.low, 0.0)))
    finite = absolute(exponent.high) < 1e15
    return exp_pair(Pair(select(finite, exponent.high, scale.high - top), select(finite, exponent.low, 0.0)))


def _shifted(q: Pair, by: Expr | float) -> Pair:
    total = two_sum(q.high, q.high.like(by))
    return Pair(total.high, total.low + q.low)


def _positive(s: Expr, q: Pair, scale: Pair, p: Precision) -> Pair:
    """exp(scale) zeta(s, q) for s > 1, q > 0."""

    def more(state: Sequence[Expr]) -> Expr:
        return state[0] < TERMS

    def term(state: Sequence[Expr]) -> Sequence[Expr]:
        index, high, low = state
        value = _power(_shifted(q, index), s, scale, p)
        total = two_sum(high, value.high)
        return [index + 1.0, total.high, low + (total.low + value.low)]

    zero = const(0.0, "f64")
    _, high, low = loop([zero, zero, zero], more, term)
    end = _shifted(q, TERMS)
    a = end.high
    w = 1.0 / a
    tail = const(c.BERNOULLI[-1], "f64")
    for j in range(len(c.BERNOULLI) - 2, -1, -1):
        tail = tail * (((s + (2.0 * j + 1)) * w) * ((s + (2.0 * j + 2)) * w)) + c.BERNOULLI[j]
    first = divide(Pair(s.like(1.0), zero), Pair(s - 1.0, zero))
    bracket = two_sum(first.high, w * ((s * w) * tail + 0.5))
    power = _power(end, s - 1.0, scale, p)
    rest = multiply(power, Pair(bracket.high, bracket.low + first.low))
    plain = power.high * bracket.high
    inside = absolute(plain) < 1e300
    rest = Pair(select(inside, rest.high, plain), select(inside, rest.low, 0.0))
    # Where s is so large that the corrections diverge, the rest is below exp(-60) of the sum.
    counts = s < a * 6.0
    total = two_sum(high, select(counts, rest.high, 0.0))
    return Pair(total.high, low + (total.low + select(counts, rest.low, 0.0)))


def _hurwitz(s: Expr, q: Expr, scale: Pair, p: Precision) -> Expr:
    """exp(scale) zeta(s, q) for s > 1, and q > 0 or s an integer and q no integer."""
    zero = const(0.0, "f64")
    positive = q > 0.0
    a = absolute(q)
    f = a - floor(a)
    sign = select(_even(s), s.like(1.0), -1.0)
    halfway = ~positive & f.eq(0.5) & (sign < 0.0)
    last = select(positive, s.like(1.0), 3.0)
    above, beyond = two_sum(s.like(1.0), -f), two_sum(a, s.like(1.0))

    def more(state: Sequence[Expr]) -> Expr:
        return state[0] < last

    def part(state: Sequence[Expr]) -> Sequence[Expr]:
        index, high, low = state
        first, second = index.eq(0.0), index.eq(1.0)
        base = Pair(
            select(positive, q, select(first, above.high, select(second, f, beyond.high))),
            select(positive | second, zero, select(first, above.low, beyond.low)),
        )
        weight = select(first, s.like(1.0), select(second, sign, -sign))
        value = _positive(s, base, scale, p)
        # Halfway between poles the first two are equal, however large.
        gone = halfway & (index < 2.0)
        total = two_sum(high, select(gone, zero, weight * value.high))
        return [index + 1.0, total.high, low + (total.low + select(gone, zero, weight * value.low))]

    _, high, low = loop([zero, zero, zero], more, part)
    result = select(absolute(high) < INF, high + low, high)
    # Of infinite parts that differ in sign, that of the nearer pole is the larger.
    result = select(high.isnan(), select(f < 0.5, sign * INF, INF), result)
    return select(q < INF, result, zero)


def _even(s: Expr) -> Expr:
    half = s * 0.5
    return trunc(half).eq(half)


def _integer(x: Expr) -> Expr:
    return trunc(x).eq(x)


def _zeta(s: Expr, q: Expr, scale: Pair, p: Precision) -> Expr:
    """With the values at the poles and outside the domain."""
    pole = (q <= 0.0) & _integer(q)
    outside = (s < 1.0) | ((q <= 0.0) & ~_integer(s)) | s.isnan() | q.isnan() | (pole & ~_even(s))
    usable = ~outside & (s > 1.0) & ~pole
    value = _hurwitz(select(usable, minimum(1e300, s), 2.0), select(usable, q, 1.0), scale, p)
    value = select(usable, value, select(outside, value.like(NAN), INF))
    return select(s.eq(1.0), value.like(INF), value)


def zeta(s: Expr, q: Expr) -> Expr:
    """NaN for s < 1 and, with q <= 0, for a non-integer s; infinite at s = 1 and at the poles of even s."""
    zero = const(0.0, "f64")
    if s.type == "f32":
        return narrow(_zeta(widen(s), widen(q), Pair(zero, zero), MIXED))
    return _zeta(s, q, Pair(zero, zero), FULL)


def polygamma(n: Expr, x: Expr) -> Expr:
    """NaN unless n is a natural number; digamma for n = 0."""
    if n.type == "f32":
        return narrow(_polygamma(widen(n), widen(x), widen(digamma(x)), MIXED))
    return _polygamma(n, x, digamma(x), FULL)


def _polygamma(n: Expr, x: Expr, zeroth: Expr, p: Precision) -> Expr:
    natural = (n > 0.0) & _integer(n)
    order = select(natural, n, 1.0)
    scale = lgamma_double_word(order + 1.0, None, p)
    value = _zeta(order + 1.0, x, scale, p)
    value = select(_even(order), -value, value)
    return select(n.eq(0.0), zeroth, select(natural, value, value.like(NAN)))


def bessel_i1e(x: Expr) -> Expr:
    """The modified Bessel function of the first kind and order 1, times exp(-|x|)."""
    if x.type == "f32":
        size = widen(absolute(x))
        return copysign(narrow(_i1e(size, c.I1E_LOW_MIXED, c.I1E_MIDDLE_MIXED, c.I1E_FAR_MIXED)), x)
    return copysign(_i1e(absolute(x), c.I1E_LOW_f64, c.I1E_MIDDLE_f64, c.I1E_FAR_f64), x)


def _i1e(a: Expr, low: tuple[float, ...], middle: tuple[float, ...], far: tuple[float, ...]) -> Expr:
    """For non-negative ``a``: centred polynomials on [0, 3] and [3, 8], and one in 1/a above 8."""
    first = a < 3.0
    t = select(first, a - 1.5, a - 5.5)
    total = select(first, a.like(low[-1]), middle[-1])
    for below, above in zip(low[-2::-1], middle[-2::-1], strict=True):
        total = fma(total, t, select(first, a.like(below), above))
    large = horner(16.0 / a - 1.0, far) / sqrt(a)
    return select(a <= 8.0, a * total, large)
