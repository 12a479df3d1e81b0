"""exp and what follows from it: expm1, logistic, sinh, cosh, tanh, sin, cos, tan."""

from __future__ import annotations

from kcache_compiler.passes.math import exponential
from kcache_compiler.passes.math.builder import Expr, copysign, fma, minimum, select
from kcache_compiler.passes.math.complex.parts import (
    INF,
    NAN,
    Number,
    finite,
    growth,
    sine_and_cosine,
    zero_like,
)
from kcache_compiler.passes.math.exponential import absolute

#: Where exp(-2 x) is below the rounding of 1.
_FAR = 22.0


def exp(z: Number) -> Number:
    sine, cosine = sine_and_cosine(z.im, z.single)
    grown = growth(z.re, z.single)
    re, im = grown.times(cosine), grown.times(sine)
    return _limits(z, re, im)


def _limits(z: Number, re: Expr, im: Expr) -> Number:
    """Of exp: real numbers, and those of infinite parts."""
    wild = ~finite(z.im)
    vanishes = z.re.eq(-INF) & wild
    re = select(vanishes, re.like(0.0), select(z.re.eq(INF) & wild, re.like(INF), re))
    im = select(vanishes, zero_like(z.im), select(z.im.eq(0.0), z.im, im))
    return z.of(re, im)


def expm1(z: Number) -> Number:
    """exp(x) cos y - 1 = expm1(x) cos y - (1 - cos y)."""
    sine, cosine = sine_and_cosine(z.im, z.single)
    grown = exp(z)
    versine = select(cosine > 0.5, sine * sine / (cosine + 1.0), 1.0 - cosine)
    near = fma(exponential.expm1(z.re), cosine, -versine)
    re = select(z.re > 40.0, grown.re, select(finite(z.im), near, grown.re - 1.0))
    return z.of(re, grown.im)


def logistic(z: Number) -> Number:
    """1 / (1 + exp(-z)) by exp(-|x|), so that nothing overflows.

    With e = exp(-|x|), |1 + exp(-z)|^2 = (1 - e)^2 + 2 e (1 + cos y), which has no term below 0.
    """
    sine, cosine = sine_and_cosine(z.im, z.single)
    e = exponential.exp(-absolute(z.re))
    still = absolute(z.re).eq(INF) & ~finite(z.im)
    sine = select(still, zero_like(z.im), sine)
    cosine = select(still, cosine.like(1.0), cosine)
    rest = -exponential.expm1(-absolute(z.re))
    half = select(cosine < -0.5, sine * sine / (1.0 - cosine), cosine + 1.0)
    bottom = fma(rest, rest, e * half * 2.0)
    top = select(z.re < 0.0, e * (half - rest), fma(e, half, rest))
    return z.of(top / bottom, e * sine / bottom)


def _halves(z: Number) -> tuple[Expr, Expr, Expr, Expr]:
    """sinh x cos y, cosh x sin y, cosh x cos y, sinh x sin y."""
    sine, cosine = sine_and_cosine(z.im, z.single)
    a = absolute(z.re)
    near = minimum(40.0, a)
    odd, even = copysign(exponential.sinh(near), z.re), exponential.cosh(near)
    grown = growth(a, z.single, halvings=1)
    far = a > 40.0
    sign = copysign(a.like(1.0), z.re)
    return (
        select(far, grown.times(sign * cosine), odd * cosine),
        select(far, grown.times(sine), even * sine),
        select(far, grown.times(cosine), even * cosine),
        select(far, grown.times(sign * sine), odd * sine),
    )


def sinh(z: Number) -> Number:
    re, im, _, _ = _halves(z)
    wild = ~finite(z.im)
    re = select(wild & (z.re.eq(0.0) | absolute(z.re).eq(INF)), z.re, re)
    return z.of(re, select(z.im.eq(0.0), z.im, im))


def cosh(z: Number) -> Number:
    _, _, re, im = _halves(z)
    wild = ~finite(z.im)
    re = select(wild & absolute(z.re).eq(INF), re.like(INF), re)
    none = (z.im.eq(0.0) & ~finite(z.re)) | (z.re.eq(0.0) & wild)
    return z.of(re, select(none, zero_like(z.re) * copysign(z.im.like(1.0), z.im), im))


def tanh(z: Number) -> Number:
    """(sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y)."""
    sine, cosine = sine_and_cosine(z.im, z.single)
    a = absolute(z.re)
    near = minimum(_FAR, a)
    odd, even = exponential.sinh(near), exponential.cosh(near)
    bottom = fma(odd, odd, cosine * cosine)
    far = a > _FAR
    both = sine * cosine
    re = copysign(select(far, a.like(1.0), odd * even / bottom), z.re)
    im = select(far, both * 4.0 * exponential.exp(a * -2.0), both / bottom)
    wild = ~finite(z.im)
    edge = select(z.re.eq(0.0) | a.eq(INF), re, NAN)
    re = select(wild, select(z.re.eq(0.0), z.re, edge), re)
    im = select(wild & a.eq(INF), zero_like(z.im), select(z.im.eq(0.0), z.im, im))
    return z.of(re, im)


def sin(z: Number) -> Number:
    """-i sinh(i z)."""
    return sinh(z.swapped()).swapped()


def cos(z: Number) -> Number:
    """cosh(i z)."""
    result = cosh(z.swapped())
    return z.of(result.re, -result.im)


def tan(z: Number) -> Number:
    """-i tanh(i z)."""
    return tanh(z.swapped()).swapped()
