"""sin, cos, tan.

The argument times 2/pi, modulo 4, is computed from the bits of 2/pi that matter at the
argument's exponent (Payne and Hanek), without branches: pieces of 2/pi are chosen by selects, so
that the whole range costs the same and vectorizes.
"""

from __future__ import annotations

import math

from . import coefficients as c
from .build import F64, Expr, bits, cast, const, fma, from_bits, horner, narrow, nearest, select, widen
from .exponential import absolute

HALF_PI = 0.5 * math.pi


def _reduce_f32(x: Expr) -> tuple[Expr, Expr]:
    """(r, quadrant) of non-negative f32 ``x``: x = quadrant pi/2 + r, r in f64 to about 2**-54.

    In a band of 32 exponents, bits of 2/pi above a weight give multiples of 4 and are left out;
    the first two pieces have 29 bits, so that their products with 24 bits are exact.
    """
    wide = widen(x)
    pieces = [const(value, "f64") for value in c.TWO_OVER_PI_f32[9:]]
    for band in (2, 1, 0):
        inside = wide < math.ldexp(1.0, 32 * band + 32)
        values = c.TWO_OVER_PI_f32[3 * band : 3 * band + 3]
        pieces = [select(inside, const(v, "f64"), p) for v, p in zip(values, pieces, strict=True)]
    first = wide * pieces[0]
    first = fma(nearest(first * 0.25), -4.0, first)
    exact = fma(wide, pieces[1], first)
    last = wide * pieces[2]
    shifted = (exact + last) + F64.magic
    whole = shifted - F64.magic
    r = ((exact - whole) + last) * HALF_PI
    return r, cast("trunci", bits(shifted), "i32")


def _sin_cos_f32(x: Expr) -> tuple[Expr, Expr, Expr]:
    r, quadrant = _reduce_f32(absolute(x))
    r = narrow(r)
    z = r * r
    sine = fma(r * z, horner(z, c.SIN_f32), r)
    cosine = fma(z * z, horner(z, c.COS_f32), fma(z, -0.5, 1.0))
    return sine, cosine, quadrant


def _flip(x: Expr, sign: Expr) -> Expr:
    """``x`` with its sign bit changed by the top bit of ``sign``."""
    top = -1 << (x.fmt.bits - 1)
    return from_bits(bits(x) ^ (sign & top), x.fmt)


def sin(x: Expr) -> Expr:
    sine, cosine, quadrant = _sin_cos(x)
    odd = (quadrant & 1).ne(0)
    turn = quadrant << (x.fmt.bits - 2)
    return _flip(select(odd, cosine, sine), turn ^ bits(x))


def cos(x: Expr) -> Expr:
    sine, cosine, quadrant = _sin_cos(x)
    odd = (quadrant & 1).ne(0)
    turn = (quadrant + 1) << (x.fmt.bits - 2)
    return _flip(select(odd, sine, cosine), turn)


def _sin_cos(x: Expr) -> tuple[Expr, Expr, Expr]:
    return _sin_cos_f32(x)

