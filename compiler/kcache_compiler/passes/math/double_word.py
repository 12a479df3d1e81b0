"""Unevaluated sums of two floats: error-free transformations and the few operations built on them.

Sources: Dekker (1971), Knuth's two-sum, and products by fused multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.passes.math.builder import Expr, fma


@dataclass(frozen=True)
class Pair:
    """high + low, |low| about half a unit in the last place of high or less."""

    high: Expr
    low: Expr

    def __neg__(self) -> Pair:
        return Pair(-self.high, -self.low)


def two_sum(a: Expr, b: Expr) -> Pair:
    """a + b exactly."""
    total = a + b
    back = total - a
    return Pair(total, (a - (total - back)) + (b - back))


def fast_sum(a: Expr, b: Expr) -> Pair:
    """a + b exactly where |a| >= |b| or a is 0."""
    total = a + b
    return Pair(total, b - (total - a))


def product(a: Expr, b: Expr) -> Pair:
    """a * b exactly, short of underflow."""
    high = a * b
    return Pair(high, fma(a, b, -high))


def add(a: Pair, b: Pair) -> Pair:
    total = two_sum(a.high, b.high)
    return fast_sum(total.high, total.low + (a.low + b.low))


def multiply(a: Pair, b: Pair) -> Pair:
    high = a.high * b.high
    return fast_sum(high, fma(a.high, b.high, -high) + fma(a.high, b.low, a.low * b.high))


def multiply_float(a: Pair, b: Expr) -> Pair:
    high = a.high * b
    return fast_sum(high, fma(a.high, b, -high) + a.low * b)


def divide(a: Pair, b: Pair) -> Pair:
    """One division; the quotient to nearly twice the precision, for divisors whose inverse is normal."""
    inverse = 1.0 / b.high
    high = a.high * inverse
    rest = fma(-high, b.high, a.high) + fma(-high, b.low, a.low)
    return fast_sum(high, rest * inverse)


def literal(values: tuple[float, ...], like: Expr) -> Pair:
    return Pair(like.like(values[0]), like.like(values[1]))
