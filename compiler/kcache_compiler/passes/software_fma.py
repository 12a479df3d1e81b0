"""Fused multiply-add on targets that have none, with the same bits.

f32: the product is exact in f64, the sum is rounded to odd, then to f32. f64: error-free
transformations and one addition rounded to odd (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums", 2008), valid while no intermediate overflows or falls below the normal
range; other operands take a multiplication and an addition. Only the math library asks for it,
inside those ranges.
"""

from __future__ import annotations

from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, math

#: Veltkamp's splitting constant for 53 bits, and magnitudes that it may take.
_SPLIT = float(2**27 + 1)
_LARGEST = 2.0**990


def has_fma(target: Target) -> bool:
    """Whether the target has an instruction that multiplies and adds in one rounding."""
    return target.has_fma


def emulate_fma(module: mlir.Module, target: Target) -> None:
    """Replace ``math.fma`` when the target has no instruction for it."""
    if has_fma(target):
        return
    for op in mlir.named(module, "math.fma"):
        a, b, c = op.operands
        with mlir.before(op):
            result = _single(a, b, c) if str(a.type) == "f32" else _double(a, b, c)
        op.results[0].replace_all_uses_with(result)
        op.erase()


def _two_sum(a: mlir.Value, b: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
    """The rounded sum and its error."""
    total = arith.addf(a, b)
    other = arith.subf(total, a)
    return total, arith.addf(arith.subf(a, arith.subf(total, other)), arith.subf(b, other))


def _odd_sum(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """``a + b`` rounded to odd; the rounded sum itself when it is not finite."""
    total, error = _two_sum(a, b)
    zero = mlir.float_constant(0, a.type)
    bits = arith.bitcast(mlir.type_of("i64"), total)
    one = mlir.constant(1)
    even = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(bits, one), mlir.constant(0))
    inexact = arith.cmpf(arith.CmpFPredicate.ONE, error, zero)
    negative_error = arith.cmpf(arith.CmpFPredicate.OLT, error, zero)
    negative_total = arith.cmpf(arith.CmpFPredicate.OLT, total, zero)
    away = arith.xori(negative_error, negative_total)
    step = arith.select(away, mlir.constant(-1), one)
    fix = arith.andi(even, inexact)
    moved = arith.select(fix, arith.addi(bits, step), bits)
    return arith.bitcast(a.type, moved)


def _single(a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
    wide = [arith.extf(mlir.type_of("f64"), value) for value in (a, b, c)]
    return arith.truncf(a.type, _odd_sum(arith.mulf(wide[0], wide[1]), wide[2]))


def _split(number: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
    """The high and the low half of the digits (Veltkamp)."""
    scaled = arith.mulf(number, mlir.float_constant(_SPLIT, number.type))
    high = arith.subf(scaled, arith.subf(scaled, number))
    return high, arith.subf(number, high)


def _two_product(a: mlir.Value, b: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
    """The rounded product and its error (Dekker)."""
    total = arith.mulf(a, b)
    (ah, al), (bh, bl) = _split(a), _split(b)
    error = arith.subf(arith.mulf(ah, bh), total)
    error = arith.addf(arith.addf(error, arith.mulf(ah, bl)), arith.mulf(al, bh))
    return total, arith.addf(error, arith.mulf(al, bl))


def _double(a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
    high, low = _two_product(a, b)
    sum_high, sum_low = _two_sum(c, low)
    head, tail = _two_sum(high, sum_high)
    fused = arith.addf(head, _odd_sum(sum_low, tail))
    plain = arith.addf(high, c)
    largest = mlir.float_constant(_LARGEST, a.type)
    safe = None
    for value in (a, b, c, high):
        fits = arith.cmpf(arith.CmpFPredicate.OLT, math.absf(value), largest)
        safe = fits if safe is None else arith.andi(safe, fits)
    return arith.select(safe, fused, plain)
