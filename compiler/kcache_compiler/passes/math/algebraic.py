"""sqrt, rsqrt, cbrt."""

from __future__ import annotations

import math

from kcache_compiler.passes.math import coefficients as c
from kcache_compiler.passes.math.builder import (
    Expr,
    bits,
    cast,
    copysign,
    fma,
    from_bits,
    horner,
    narrow,
    select,
    widen,
)
from kcache_compiler.passes.math.builder import sqrt as _sqrt
from kcache_compiler.passes.math.exponential import absolute, power_of_two


def sqrt(x: Expr) -> Expr:
    return _sqrt(x)


def rsqrt(x: Expr) -> Expr:
    """Two correctly rounded operations; subnormals and -0 come out right by themselves."""
    return 1.0 / _sqrt(x)


def cbrt(x: Expr) -> Expr:
    """x = 8**q m with 1 <= m < 8; y = m**(-1/3) by a polynomial and division-free iterations; m y^2."""
    if x.type == "f32":
        return copysign(narrow(_cbrt(widen(absolute(x)), False)), x)
    return copysign(_cbrt(absolute(x), True), x)


def _cbrt(a: Expr, exact: bool) -> Expr:
    fmt = a.fmt
    tiny = a < math.ldexp(1.0, -1022)
    scaled = select(tiny, a * math.ldexp(1.0, 54), a) if exact else a
    # Biased by 3072, so that the quotient by 3 is of a positive number; / 3 is * 21846 >> 16 there.
    exponent = cast("trunci", bits(scaled) >> fmt.mantissa, "i32") - 1023
    third = (((exponent + 3072) * 21846) >> 16) - 1024
    whole = cast("extsi", third, "i64")
    m = from_bits(bits(scaled) - ((whole * 3) << fmt.mantissa), fmt)
    y = horner(m, c.CBRT)
    # (1 - h)**(-1/3) = 1 + h/3 + 2 h^2/9 + 14 h^3/81 + ...
    h = fma(-(m * y), y * y, 1.0)
    y = fma(y * h, horner(h, (1 / 3, 2 / 9, 14 / 81)), y)
    root = m * y * y
    if exact:
        h = fma(-(m * y), y * y, 1.0)
        y = fma(y, h * (1 / 3), y)
        root = m * y * y
        square = root * root
        rest = fma(-square, root, m) - fma(root, root, -square) * root
        root = fma(rest * y, y * (1 / 3), root)
        whole = select(tiny, whole - 18, whole)
    result = root * power_of_two(whole, a)
    usable = (a > 0.0) & (a < float("inf"))
    return select(usable, result, a)
