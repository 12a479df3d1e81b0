"""log, log1p, powers."""

from __future__ import annotations

import math

from kcache_compiler.passes.math.builder import Expr, fma, select
from kcache_compiler.passes.math.complex.parts import (
    INF,
    NAN,
    Length,
    Number,
    finite,
    growth,
    length,
    log_of_pair,
    sine_and_cosine,
)
from kcache_compiler.passes.math.double_word import product, two_sum
from kcache_compiler.passes.math.exponential import absolute
from kcache_compiler.passes.math.logarithm import log_pair
from kcache_compiler.passes.math.trigonometry import atan2 as angle


def log(z: Number) -> Number:
    return z.of(length(z).log(), angle(z.im, z.re))


def log1p(z: Number) -> Number:
    """Near -1 of 1 + z, which is exact there; else of |1 + z|^2 - 1 = 2x + x^2 + y^2 as a sum."""
    one = z.re.like(1.0)
    shifted = z.re + 1.0
    exact = (z.re > -2.0) & (z.re < -0.5)
    apart = length(z.of(shifted, z.im))
    first, second = product(z.re, z.re), product(z.im, z.im)
    near = two_sum(z.re * 2.0, first.high)
    total = two_sum(near.high, second.high)
    low = near.low + total.low + (first.low + second.low)
    above = two_sum(one, total.high)
    lost = above.low + low
    whole = two_sum(above.high, lost)
    a, b = absolute(z.re), absolute(z.im)
    inside = (a < 2.0**100) & (b < 2.0**100) & ~exact
    re = select(inside, log_of_pair(whole) * 0.5, apart.log())
    return z.of(re, angle(z.im, shifted))


def power(z: Number, w: Number) -> Number:
    """exp(w log z); 1 where w is 0, else of 0: 0 where w's real part is above 0, infinite where below."""
    size = length(z)
    log_of, lost = _log_pair(size, z)
    turn = angle(z.im, z.re)
    c, d = w.re, w.im
    grows = _times(c, log_of)
    shrinks = _times(d, turn)
    exact = finite(grows) & finite(shrinks)
    tail = fma(c, log_of, -grows) + c * lost - fma(d, turn, -shrinks)
    total = two_sum(grows, -shrinks)
    high = select(exact, total.high, grows - shrinks)
    low = select(exact & (absolute(high) < 2000.0), total.low + tail, 0.0)
    whole = _times(d, log_of) + _times(c, turn)
    sine, cosine = sine_and_cosine(whole, False)
    grown = growth(high, z.single, low)
    re, im = grown.times(cosine), grown.times(sine)
    wild = ~finite(whole)
    re = select(wild & high.eq(-INF), re.like(0.0), select(wild & high.eq(INF), re.like(INF), re))
    im = select(wild & high.eq(-INF), im.like(0.0), im)
    return _powers_of_zero(z, w, re, im)


def _powers_of_zero(z: Number, w: Number, re: Expr, im: Expr) -> Number:
    above, below = w.re > 0.0, w.re < 0.0
    edge = select(above, re.like(0.0), select(below, re.like(INF), NAN))
    re = select(z.zero, edge, re)
    im = select(z.zero, select(above, im.like(0.0), NAN), im)
    return z.of(select(w.zero, re.like(1.0), re), select(w.zero, im.like(0.0), im))


def _times(a: Expr, b: Expr) -> Expr:
    """0 where ``a`` is, whatever ``b``."""
    return select(a.eq(0.0), a, a * b)


def _log_pair(size: Length, z: Number) -> tuple[Expr, Expr]:
    """log |z| as a sum, of infinities without a second part."""
    single = size.log()
    usable = finite(single)
    square = select(usable, size.square.high, 1.0)
    pair = log_pair(square)
    low = pair.low + size.square.low / square
    if size.step is not None:
        high, more = math.log(2.0), 2.3190468138462996e-17
        steps = size.step * 1200.0
        shift = product(steps, steps.like(high))
        total = two_sum(pair.high, shift.high)
        pair, low = total, total.low + low + (shift.low + steps * more)
    return select(usable, pair.high * 0.5, single), select(usable, low * 0.5, 0.0)
