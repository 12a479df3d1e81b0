"""Division by a floating-point constant as two products with the parts of its inverse.

The rounded inverse alone has a relative error that all quotients share: it adds up from layer to layer of a
network that divides its activations, and no mean over elements averages it out. With the part that rounding
cut off, a quotient is rounded almost as a division does (Brisebarre, Muller and Raina, "Accelerating
correctly rounded floating-point division when the divisor is known in advance", 2004), where a product and a
sum are rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith

#: Of f32 and f64: the NumPy type, and the exponent that bounds divisors for which both parts are normal.
_KINDS: dict[str, tuple[type[np.floating], int]] = {"f32": (np.float32, 100), "f64": (np.float64, 960)}


def inverse_parts(divisor: float, kind: str) -> tuple[float, float] | None:
    """Two numbers of type ``kind`` whose sum is nearly ``1 / divisor``, the second far smaller.

    Both have the sign of the divisor, so that infinities and zeros are divided as by a division. None where
    the inverse is exact, where a part is not normal, and for other types.
    """
    if kind not in _KINDS or divisor == 0 or not math.isfinite(divisor):
        return None
    number, exponent = _KINDS[kind]
    if not 2.0**-exponent <= abs(divisor) <= 2.0**exponent:
        return None
    inverse = 1 / Fraction(divisor)
    high = number(float(inverse))
    if abs(Fraction(float(high))) > abs(inverse):
        high = np.nextafter(high, number(0))
    low = float(number(float(inverse - Fraction(float(high)))))
    return None if low == 0 else (float(high), low)


def multiply_by_parts(division: mlir.Op, parts: tuple[float, float]) -> None:
    """Replace ``division`` by the sum of two products, for targets that round it once."""
    dividend, kind = division.operands[0], division.results[0].type
    fused = mlir.attribute("#arith.fastmath<contract>")
    with mlir.before(division):
        high, low = (mlir.float_constant(part, kind) for part in parts)
        rest = arith.mulf(dividend, low)
        product = arith.mulf(dividend, high, fastmath=fused)
        quotient = arith.addf(product, rest, fastmath=fused)
    division.results[0].replace_all_uses_with(quotient)
    division.erase()
