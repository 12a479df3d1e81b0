"""Fused multiply-add on targets that have none, with the same bits.

f32: the product is exact in f64, the sum is rounded to odd, then to f32. f64: error-free
transformations and one addition rounded to odd (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums", 2008), valid while no intermediate overflows or falls below the normal
range; other operands take a multiplication and an addition. Only the math library asks for it,
inside those ranges.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit

#: Veltkamp's splitting constant for 53 bits, and magnitudes that it may take.
_SPLIT = float(2**27 + 1)
_LARGEST = 2.0**990


def emulate_fma(unit: Unit) -> None:
    """Replace ``math.fma`` when the target has no instruction for it."""
    if "fma" in unit.target.features or unit.target.triple.startswith("aarch64"):
        return
    for op in mlir.named(unit.module, "math.fma"):
        a, b, c = op.operands
        with mlir.before(op):
            result = _single(a, b, c) if str(a.type) == "f32" else _double(a, b, c)
        op.results[0].replace_all_uses_with(result)
        op.erase()


def _op(name: str, *operands: mlir.Value) -> mlir.Value:
    return mlir.value(name, list(operands), operands[0].type)


def _add(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    return _op("arith.addf", a, b)


def _sub(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    return _op("arith.subf", a, b)


def _mul(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    return _op("arith.mulf", a, b)


def _compare(predicate: int, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    return mlir.value("arith.cmpf", [a, b], mlir.type_of("i1"), predicate=mlir.int_attr(predicate))


def _two_sum(a: mlir.Value, b: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
    """The rounded sum and its error."""
    total = _add(a, b)
    other = _sub(total, a)
    return total, _add(_sub(a, _sub(total, other)), _sub(b, other))


def _odd_sum(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """``a + b`` rounded to odd; the rounded sum itself when it is not finite."""
    total, error = _two_sum(a, b)
    i64, i1 = mlir.type_of("i64"), mlir.type_of("i1")
    zero = mlir.float_constant(0, a.type)
    bits = mlir.value("arith.bitcast", [total], i64)
    one = mlir.constant(1)
    even = mlir.value(
        "arith.cmpi", [_op("arith.andi", bits, one), mlir.constant(0)], i1, predicate=mlir.int_attr(0)
    )
    inexact = _compare(6, error, zero)
    away = mlir.value("arith.xori", [_compare(4, error, zero), _compare(4, total, zero)], i1)
    step = mlir.value("arith.select", [away, mlir.constant(-1), one], i64)
    fix = mlir.value("arith.andi", [even, inexact], i1)
    moved = mlir.value("arith.select", [fix, _op("arith.addi", bits, step), bits], i64)
    return mlir.value("arith.bitcast", [moved], a.type)


def _single(a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
    wide = [mlir.value("arith.extf", [value], mlir.type_of("f64")) for value in (a, b, c)]
    return mlir.value("arith.truncf", [_odd_sum(_mul(wide[0], wide[1]), wide[2])], a.type)


def _halves(number: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
    scaled = _mul(number, mlir.float_constant(_SPLIT, number.type))
    high = _sub(scaled, _sub(scaled, number))
    return high, _sub(number, high)


def _two_product(a: mlir.Value, b: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
    """The rounded product and its error (Dekker)."""
    total = _mul(a, b)
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    error = _sub(_mul(ah, bh), total)
    error = _add(_add(error, _mul(ah, bl)), _mul(al, bh))
    return total, _add(error, _mul(al, bl))


def _double(a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
    high, low = _two_product(a, b)
    sum_high, sum_low = _two_sum(c, low)
    head, tail = _two_sum(high, sum_high)
    fused = _add(head, _odd_sum(sum_low, tail))
    plain = _add(high, c)
    largest = mlir.float_constant(_LARGEST, a.type)
    safe = None
    for value in (a, b, c, high):
        fits = _compare(4, _op("math.absf", value), largest)
        safe = fits if safe is None else mlir.value("arith.andi", [safe, fits], mlir.type_of("i1"))
    return mlir.value("arith.select", [safe, fused, plain], a.type)
