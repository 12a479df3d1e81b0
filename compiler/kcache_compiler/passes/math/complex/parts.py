"""What functions of complex numbers are made of: lengths, logarithms of lengths, growth, and sines."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kcache_compiler.passes.math import exponential
from kcache_compiler.passes.math.builder import Expr, bits, cast, clamp, copysign, fma, select
from kcache_compiler.passes.math.builder import sqrt as root
from kcache_compiler.passes.math.double_word import Pair, fast_sum, product, two_sum
from kcache_compiler.passes.math.exponential import absolute
from kcache_compiler.passes.math.logarithm import log_of_sum
from kcache_compiler.passes.math.trigonometry import flip, kernel_f64, reduce_24_bits, reduce_f64

INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Number:
    """A complex number of two f64; ``single``: each has the bits and the range of an f32."""

    re: Expr
    im: Expr
    single: bool

    def of(self, re: Expr, im: Expr) -> Number:
        """Another number; of as few bits."""
        return Number(re, im, self.single)

    def swapped(self) -> Number:
        return self.of(self.im, self.re)

    @property
    def infinite(self) -> Expr:
        return absolute(self.re).eq(INF) | absolute(self.im).eq(INF)

    @property
    def zero(self) -> Expr:
        return self.re.eq(0.0) & self.im.eq(0.0)

    @property
    def nan(self) -> Expr:
        return self.re.isnan() | self.im.isnan()


def finite(x: Expr) -> Expr:
    return absolute(x) < INF


def zero_like(x: Expr) -> Expr:
    """0 with the sign of ``x``."""
    return copysign(x.like(0.0), x)


@dataclass(frozen=True)
class Length:
    """|z| of a finite z: the square root of ``square`` times 2**-``scale``, of ``number`` = z 2**``scale``.

    ``step`` is 0, 1 or -1: the scale is -600 times it.
    """

    number: Number
    square: Pair
    step: Expr | None

    def power(self, exponent: int) -> Expr:
        """2**(exponent step)."""
        x = self.number.re
        if self.step is None:
            return x.like(1.0)
        up, down = math.ldexp(1.0, exponent), math.ldexp(1.0, -exponent)
        return select(self.step > 0.0, x.like(up), select(self.step < 0.0, x.like(down), 1.0))

    @property
    def scaled(self) -> Expr:
        """The length of ``number``."""
        return root(self.square.high)

    @property
    def value(self) -> Expr:
        return self.scaled * self.power(600)

    def log(self, doublings: float = 0.0) -> Expr:
        """log |z|, plus this many times log 2; of infinite numbers too."""
        double = self.square.high.like(2.0 * doublings)
        if self.step is not None:
            double = fma(self.step, 1200.0, double)
        return log_of_pair(self.square, double) * 0.5


def log_of_pair(x: Pair, doublings: Expr | None = None) -> Expr:
    """log of a sum, plus this many times log 2; far from 1 the second part does not count."""
    return log_of_sum(x.high, select(x.high < 2.0**60, x.low, 0.0), doublings)


def length(z: Number) -> Length:
    """Of the squares as a sum: infinite where z has no infinite part does not come about."""
    step = None
    number = z
    if not z.single:
        a, b = absolute(z.re), absolute(z.im)
        top = select(a > b, a, b)
        up = select(top < math.ldexp(1.0, -450), top.like(-1.0), 0.0)
        step = select(top > math.ldexp(1.0, 500), top.like(1.0), up)
        factor = select(step > 0.0, top.like(2.0**-600), select(step < 0.0, top.like(2.0**600), 1.0))
        number = z.of(z.re * factor, z.im * factor)
    first, second = product(number.re, number.re), product(number.im, number.im)
    total = two_sum(first.high, second.high)
    square = fast_sum(total.high, total.low + (first.low + second.low))
    high = select(z.infinite, square.high.like(INF), square.high)
    return Length(number, Pair(high, select(finite(high), square.low, 0.0)), step)


def sine_and_cosine(y: Expr, single: bool) -> tuple[Expr, Expr]:
    """Of ``y``, which has the bits and the range of an f32 where ``single``."""
    a = absolute(y)
    if single:
        short, word = reduce_24_bits(a)
        r, quadrant = Pair(short, y.like(0.0)), cast("extsi", word, "i64")
    else:
        r, quadrant = reduce_f64(a)
    sine, cosine = kernel_f64(r)
    odd = (quadrant & 1).ne(0)
    s = flip(select(odd, cosine.high, sine.high), (quadrant << 62) ^ bits(y))
    c = flip(select(odd, sine.high, cosine.high), (quadrant + 1) << 62)
    return s, c


@dataclass(frozen=True)
class Growth:
    """exp(x), to be multiplied with: the product may be in range where the exponential is not."""

    factor: Expr
    word: Expr | None
    lift: Expr | None

    def times(self, value: Expr) -> Expr:
        if self.word is None or self.lift is None:
            return value * self.factor
        return exponential.scale(value * self.lift * self.factor, self.word)


def growth(x: Expr, single: bool, low: Expr | None = None, halvings: int = 0) -> Growth:
    """exp(x + low) 2**-halvings; of f32 exp(700) times the least number that is not 0 is above all."""
    if single:
        e = exponential.exp(clamp(x, -700.0, 700.0)) * 0.5**halvings
        return Growth(e if low is None else fma(e, low, e), None, None)
    part = exponential.reduce(clamp(x, -1400.0, 1460.0))
    factor = exponential.expm1_reduced(part.r) + 1.0
    more = part.tail if low is None else part.tail + low
    factor = fma(factor, more, factor)
    # Sines may be as small as 2**-1074.
    big = x > 700.0
    lift = select(big, x.like(2.0**500), 1.0)
    return Growth(factor, select(big, part.word - (500 + halvings), part.word - halvings), lift)
