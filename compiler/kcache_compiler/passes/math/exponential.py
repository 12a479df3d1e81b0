"""exp, exp2, expm1 and what follows from them: logistic, tanh.

x = k ln2 + r with |r| <= ln2/2; k stands in the low bits of x/ln2 + magic, so that no conversion
instruction is needed; exp(r) = 1 + r + r^2 Q(r). Multiplying by 2**k in two steps, or by one instruction
where there is one, keeps subnormal results rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import (
    Expr,
    Format,
    bits,
    clamp,
    const,
    copysign,
    estrin,
    fast,
    fma,
    from_bits,
    horner,
    ldexp,
    maximum,
    minimum,
    scales,
    select,
)
from kcache_compiler.passes.math.double_word import Pair, fast_sum, product, two_sum

_EXP = {"f32": c.EXP_f32, "f64": c.EXP_f64}
_EXP2 = {"f32": c.EXP2_f32, "f64": c.EXP2_f64}
_LN2 = {"f32": c.LN2_f32, "f64": c.LN2_f64}
_LOG2E = {"f32": c.LOG2E_f32[0], "f64": c.LOG2E_f64[0]}
#: Arguments beyond these give 0 and infinity.
_EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}
_EXP2_RANGE = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}


@dataclass(frozen=True)
class Reduced:
    """x = k ln2 + r + tail; ``k`` as a float, and in ``word``, an integer: see ``shifter``."""

    k: Expr
    word: Expr
    r: Expr
    tail: Expr

    @property
    def exponent(self) -> Expr:
        """k as an integer."""
        return exponent_of(self.word, self.k.fmt)


def shifter(fmt: Format) -> float:
    """Added to a float, leaves the nearest integer k in the bits of the sum, whose low bits are then the
    exponent fields of 2**(k / 2) twice over; what stands above them vanishes when they are shifted there.
    """
    return fmt.magic + 2 * fmt.bias


def exponent_of(word: Expr, fmt: Format) -> Expr:
    return word - fmt.bits_of(shifter(fmt))


def reduce(x: Expr, shift: float | None = None) -> Reduced:
    """Split ``x``, already within the range of exp. ``shift`` stands in the place of the ``shifter``."""
    fmt, (high, low) = x.fmt, _LN2[x.type]
    shift = shifter(fmt) if shift is None else shift
    shifted = fma(x, _LOG2E[x.type], shift)
    k = shifted - shift
    first = fma(k, -high, x)
    r = fma(k, -low, first)
    tail = fma(k, -low, first - r)
    return Reduced(k, bits(shifted), r, tail)


def power_of_two(exponent: Expr, like: Expr) -> Expr:
    """2**exponent for a biased exponent inside the normal range."""
    fmt = like.fmt
    return from_bits((exponent + fmt.bias) << fmt.mantissa, fmt)


def scale(value: Expr, word: Expr) -> Expr:
    """value * 2**k, rounded once, over and under the range too (|k| < 2 bias), for the ``word`` of k."""
    fmt = value.fmt
    if value.type == "f32" and scales():
        return ldexp(value, exponent_of(word, fmt))
    half = word >> 1
    powers = (from_bits(part << fmt.mantissa, fmt) for part in (half, word - half))
    return value * next(powers) * next(powers)


def _series(r: Expr) -> Expr:
    """(exp(r) - 1 - r) / r^2 for |r| <= ln2/2."""
    evaluate = estrin if r.type == "f64" else horner
    return evaluate(r, _EXP[r.type])


def expm1_reduced(r: Expr) -> Expr:
    """exp(r) - 1 for |r| <= ln2/2."""
    return fma(r * r, _series(r), r)


def exp(x: Expr) -> Expr:
    x = clamp(x, *_EXP_RANGE[x.type])
    if fast() and x.type == "f32":
        return _exp_fast(x)
    part = reduce(x)
    return scale(expm1_reduced(part.r) + 1.0, part.word)


def _exp_fast(x: Expr) -> Expr:
    """exp of f32 within its range: ln2 in one piece, and a term less."""
    fmt = x.fmt
    shifted = fma(x, _LOG2E["f32"], shifter(fmt))
    r = fma(shifted - shifter(fmt), -math.log(2.0), x)
    return scale(fma(r, horner(r, c.EXP_FAST_f32), 1.0), bits(shifted))


#: The binary exponent by which results below 1 are lifted while they are scaled: none is subnormal then.
LIFT = 64


def lifted(fmt: Format) -> float:
    """A ``shifter`` that leaves the exponent field of 2**(k + LIFT) in the lowest bits of the sum."""
    return fmt.magic + fmt.bias + LIFT


def lifted_power(word: Expr, fmt: Format) -> Expr:
    """2**(k + LIFT) for the ``word`` of -fmt.bias - LIFT < k < fmt.bias - LIFT that ``lifted`` left."""
    return from_bits(word << fmt.mantissa, fmt)


def exp_below(x: Expr) -> Expr:
    """exp of what is at most 0, or NaN: the same bits from fewer operations."""
    x = maximum(_EXP_RANGE[x.type][0], x)
    if fast() and x.type == "f32":
        return _exp_fast(x)
    if x.type != "f32" or scales():
        part = reduce(x)
        return scale(expm1_reduced(part.r) + 1.0, part.word)
    part = reduce(x, lifted(x.fmt))
    return (expm1_reduced(part.r) + 1.0) * lifted_power(part.word, x.fmt) * 2.0**-LIFT


def exp_distance(x: Expr) -> Expr:
    """exp of an f32 that is at most 0, or NaN, rounded three times: 15 operations where ``exp_below`` has 17.

    One polynomial gives exp(r) 2**-LIFT, whose product with 2**(k + LIFT) is the only one that may be
    subnormal.
    """
    part = reduce(maximum(_EXP_RANGE["f32"][0], x), lifted(x.fmt))
    coefficients = [each * 2.0**-LIFT for each in (1.0, 1.0, *_EXP["f32"])]
    return horner(part.r, coefficients) * lifted_power(part.word, x.fmt)


#: What ``exp_weight`` makes 0: weights are normal numbers otherwise, with which CPUs multiply fast.
VANISHING = -86.5


def exp_weight(x: Expr) -> Expr:
    """exp of what is at most 0, or NaN; 0 below ``VANISHING``. A weight beside another one that is 1."""
    fmt = x.fmt
    shift = fmt.magic + fmt.bias
    if fast():
        shifted = fma(x, _LOG2E["f32"], shift)
        r = fma(shifted - shift, -math.log(2.0), x)
        value, word = fma(r, horner(r, c.EXP_FAST_f32), 1.0), bits(shifted)
    else:
        part = reduce(x, shift)
        value, word = expm1_reduced(part.r) + 1.0, part.word
    return select(x < VANISHING, 0.0, value * from_bits(word << fmt.mantissa, fmt))


def exp2(x: Expr) -> Expr:
    fmt = x.fmt
    x = clamp(x, *_EXP2_RANGE[x.type])
    shifted = x + shifter(fmt)
    r = x - (shifted - shifter(fmt))
    return scale(fma(r, horner(r, _EXP2[x.type]), 1.0), bits(shifted))


def exp_of_sum(high: Expr, low: Expr, factor: Pair | None = None) -> Expr:
    """exp(high + low), times ``factor``, for a small ``low``, rounded about once."""
    part = reduce(clamp(high, *_EXP_RANGE[high.type]))
    r = part.r
    tail = part.tail + low
    curve = r * r * _series(r)
    # exp(r + tail) = exp(r) + tail exp(r).
    rest = curve + fma(tail, r + curve, tail)
    if factor is None:
        return scale(1.0 + (r + rest), part.word)
    carried = fma(factor.high, rest, factor.low)
    head = product(factor.high, r)
    total = fast_sum(factor.high, head.high)
    return scale(total.high + (total.low + (head.low + fma(factor.low, r, carried))), part.word)


def exp_pair(x: Pair) -> Pair:
    """exp of a sum to about 2**-57, short of underflow; on overflow the low part is no number."""
    part = reduce(clamp(x.high, *_EXP_RANGE[x.high.type]))
    r = part.r
    tail = part.tail + x.low
    curve = r * r * _series(r)
    head = fast_sum(r.like(1.0), r)
    total = fast_sum(head.high, head.low + (curve + fma(tail, r + curve, tail)))
    return Pair(scale(total.high, part.word), scale(total.low, part.word))


def expm1(x: Expr) -> Expr:
    """2**k (r + curve) + (2**k - 1), the larger terms first."""
    limit = {"f32": (-18.0, 89.0), "f64": (-40.0, 710.0)}[x.type]
    part = reduce(clamp(x, *limit))
    top = const(x.fmt.bias, part.exponent.type)
    over = part.exponent > top
    exponent = select(over, top, part.exponent)
    power = power_of_two(exponent, x)
    curve = fma(part.r * part.r, _series(part.r), part.tail)
    result = fma(power, curve, fma(power, part.r, power - 1.0))
    return copysign(select(over, result * 2.0, result), x)


def logistic(x: Expr) -> Expr:
    """exp(-|x|) never overflows, and is the numerator itself for negative x."""
    negative = x < 0.0
    a = absolute(x)
    if x.type == "f64":
        return _logistic_f64(x, negative, a)
    e = exp_below(-a)
    return select(negative, e, select(x.isnan(), x, 1.0)) / (e + 1.0)


def _logistic_f64(x: Expr, negative: Expr, a: Expr) -> Expr:
    """With the exponential as a sum and the quotient corrected by its remainder."""
    part = reduce(maximum(_EXP_RANGE["f64"][0], -a))
    total = fast_sum(x.like(1.0), expm1_reduced(part.r))
    e = Pair(scale(total.high, part.word), scale(total.low, part.word))
    bottom = fast_sum(x.like(1.0), e.high)
    high = select(negative, e.high, select(x.isnan(), x, 1.0))
    low = select(negative, e.low, 0.0)
    inverse = 1.0 / bottom.high
    q = high * inverse
    rest = fma(-q, bottom.high, high) + fma(-q, bottom.low + e.low, low)
    return fma(rest, inverse, q)


def tanh(x: Expr) -> Expr:
    """A polynomial to 0.55; beyond, 1 - 2 / (exp(2|x|) + 1), whose second term is the smaller."""
    bound = {"f32": 20.0, "f64": 44.0}[x.type]
    a = absolute(x)
    z = a * a
    small = fma(a * z, horner(z, {"f32": c.TANH_f32, "f64": c.TANH_f64}[x.type]), a)
    part = reduce(minimum(bound, a * 2.0))
    power = power_of_two(part.exponent, x)
    large = 1.0 - 2.0 / fma(power, expm1_reduced(part.r), power + 1.0)
    return copysign(select(a < 0.55, small, large), x)


def _halves(x: Expr) -> tuple[Pair, Expr, Expr]:
    """For non-negative x: p, w and the word of k - 1, with exp(x)/2 = p 2**(k-1), exp(-x)/2 = w 2**(k-1)."""
    limit = {"f32": 91.0, "f64": 713.0}[x.type]
    part = reduce(minimum(limit, x))
    one = part.r.like(1.0)
    head = fast_sum(one, part.r)
    p = fast_sum(head.high, fma(part.r * part.r, _series(part.r), part.tail + head.low))
    most = part.exponent.like(30)
    k = select(part.exponent > most, most, part.exponent)
    return p, power_of_two(k * -2, x) / p.high, part.word - 1


def sinh(x: Expr) -> Expr:
    """To 1 a polynomial; beyond, half the difference of the exponentials."""
    a = absolute(x)
    z = a * a
    small = fma(a * z, horner(z, {"f32": c.SINH_f32, "f64": c.SINH_f64}[x.type]), a)
    p, w, word = _halves(a)
    total = two_sum(p.high, -w)
    large = scale(total.high + (total.low + p.low), word)
    return copysign(select(a < 1.0, small, large), x)


def cosh(x: Expr) -> Expr:
    p, w, word = _halves(absolute(x))
    total = two_sum(p.high, w)
    return scale(total.high + (total.low + p.low), word)


def absolute(x: Expr) -> Expr:
    return from_bits(bits(x) & ((1 << (x.fmt.bits - 1)) - 1), x.fmt)
