"""Exact functions: rounding, signs, kinds of number, neighbors, remainders, integer powers."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.passes.math import builder as build
from kcache_compiler.passes.math.builder import (
    Expr,
    bits,
    cast,
    const,
    copysign,
    from_bits,
    loop,
    nearest,
    select,
    trunc,
)
from kcache_compiler.passes.math.exponential import absolute

INF = float("inf")
NAN = float("nan")


def round_away(x: Expr) -> Expr:
    """To the nearest integer, ties away from zero."""
    a = absolute(x)
    whole = trunc(a)
    return copysign(select((a - whole) >= 0.5, whole + 1.0, whole), x)


def floor(x: Expr) -> Expr:
    return build.floor(x)


def ceil(x: Expr) -> Expr:
    return build.unary("ceil", x)


def roundeven(x: Expr) -> Expr:
    return nearest(x)


def sign(x: Expr) -> Expr:
    """-1, 1, or x itself where it is a zero or NaN."""
    return select(x > 0.0, x.like(1.0), select(x < 0.0, x.like(-1.0), x))


def isfinite(x: Expr) -> Expr:
    return _magnitude(x) < x.fmt.inf_bits


def isinf(x: Expr) -> Expr:
    return _magnitude(x).eq(x.fmt.inf_bits)


def isnan(x: Expr) -> Expr:
    return _magnitude(x) > x.fmt.inf_bits


def isnormal(x: Expr) -> Expr:
    smallest = 1 << x.fmt.mantissa
    return (_magnitude(x) - smallest).ult(x.fmt.inf_bits - smallest)


def _magnitude(x: Expr) -> Expr:
    return bits(x) & ((1 << (x.fmt.bits - 1)) - 1)


def clampf(x: Expr, low: Expr, high: Expr) -> Expr:
    """min(max(x, low), high), NaN if x is."""
    return build.minimum(high, build.maximum(low, x))


def next_after(x: Expr, y: Expr) -> Expr:
    """The neighbor of x towards y; y where they are equal."""
    fmt = x.fmt
    top = -1 << (fmt.bits - 1)
    i, j = bits(x), bits(y)
    a, b = _magnitude(x), _magnitude(y)
    shrink = (a > b) | ((i ^ j) < 0)
    step = i + select(shrink, i.like(-1), 1)
    step = select(a.eq(0), (j & top) | 1, step)
    equal = i.eq(j) | (a.eq(0) & b.eq(0))
    bad = (a > fmt.inf_bits) | (b > fmt.inf_bits)
    quiet = fmt.inf_bits | (1 << (fmt.mantissa - 1))
    return from_bits(select(bad, i.like(quiet), select(equal, j, step)), fmt)


def rem(x: Expr, y: Expr) -> Expr:
    """x - trunc(x / y) y, exactly, with the sign of x (C's fmod): long division on the significands.

    Each turn of the loop takes the next bits of the quotient: (r << n) mod m in integers.
    """
    fmt = x.fmt
    # The rest of 64 bits after a remainder of mantissa + 1.
    return _rem(x, y, 63 - fmt.mantissa)


def _rem(x: Expr, y: Expr, chunk: int) -> Expr:
    fmt = x.fmt
    (r, ex), (m, ey) = _significand(x), _significand(y)
    wide = [cast("extui", v, "i64") if fmt.bits == 32 else v for v in (r, m)]
    r, m = wide
    m = select(m.eq(0), m.like(1), m)
    shift = ex - ey
    # A smaller exponent means that |x| < |y| or that they are within one bit: one subtraction at most.
    start = select(shift < 0, r, r.urem(m))

    def more(state: Sequence[Expr]) -> Expr:
        return (state[1] > 0) & state[0].ne(0)

    def step(state: Sequence[Expr]) -> Sequence[Expr]:
        rest, left = state
        count = select(left > chunk, left.like(chunk), left)
        return [(rest << _as(count, "i64")).urem(m), left - count]

    rest, _ = loop([start, shift], more, step)
    return _assemble(x, y, rest, select(shift < 0, ex, ey))


def _as(value: Expr, type_: str) -> Expr:
    if value.type == type_:
        return value
    return cast("extsi" if int(type_[1:]) > int(value.type[1:]) else "trunci", value, type_)


def _significand(x: Expr) -> tuple[Expr, Expr]:
    """|x| = m 2**(e - constant), subnormals with e = 1."""
    fmt = x.fmt
    a = _magnitude(x)
    field = a.lshr(fmt.mantissa)
    fraction = a & ((1 << fmt.mantissa) - 1)
    tiny = field.eq(0)
    return select(tiny, fraction, fraction | (1 << fmt.mantissa)), select(tiny, field.like(1), field)


def _assemble(x: Expr, y: Expr, rest: Expr, exponent: Expr) -> Expr:
    """The float rest 2**(exponent - constant), rest below 2**(mantissa + 1), and the special cases."""
    fmt = x.fmt
    # Two exact steps: the integer as a separate float, then its distance from the exponent.
    whole = cast("uitofp", rest, fmt.name)
    power = exponent - (fmt.bias + fmt.mantissa)
    low = power < (1 - fmt.bias)
    first = select(low, power + fmt.mantissa * 2, power)
    value = whole * from_bits((first + fmt.bias) << fmt.mantissa, fmt)
    value = select(low, value * 2.0 ** (-2 * fmt.mantissa), value)
    value = select(absolute(x) < absolute(y), absolute(x), value)
    invalid = ~(absolute(x) < INF) | y.eq(0.0) | y.isnan()
    return select(invalid, x.like(NAN), copysign(value, x))


def ipowi(x: Expr, n: Expr) -> Expr:
    """x**n modulo 2**bits; for negative n what truncation of 1/x**|n| gives: 0, except for x = 1 and -1.

    0 to a negative power is 0.
    """
    negative = n < 0
    # For x = -1 only the parity of n counts, and -n has it too.
    count = select(negative, n & 1, n)
    power = upowi(x, count)
    unit = x.eq(1) | x.eq(-1)
    return select(negative & ~unit, x.like(0), power)


def upowi(x: Expr, n: Expr) -> Expr:
    """x**n modulo 2**bits, both unsigned."""

    def more(state: Sequence[Expr]) -> Expr:
        return state[2].ne(0)

    return loop([const(1, x.type), x, n], more, _square_and_multiply)[0]


def ipow(x: Expr, n: Expr) -> Expr:
    """The same as ``ipowi`` without a loop, so that it vectorizes: by every bit of the exponent."""
    power = upow(x, n)
    unit = select(x.eq(-1), x.like(1), x).eq(1)
    return select(n < 0, select(unit, power, x.like(0)), power)


def upow(x: Expr, n: Expr) -> Expr:
    """The same as ``upowi`` without a loop."""
    width = int(x.type.removeprefix("i"))
    result, square = const(1, x.type), x
    for bit in range(width):
        mask = const(-(2**bit) if bit == width - 1 else 2**bit, x.type)
        result = select((n & mask).ne(0), result * square, result)
        if bit < width - 1:
            square = square * square
    return result


def _square_and_multiply(state: Sequence[Expr]) -> Sequence[Expr]:
    result, base, left = state
    odd = (left & 1).ne(0)
    return [select(odd, result * base, result), base * base, left.lshr(1)]
