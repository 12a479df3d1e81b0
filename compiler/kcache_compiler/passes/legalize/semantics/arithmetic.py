"""Arithmetic that MLIR leaves undefined, or that the toolchain lowers for few values.

Powers of integers: the toolchain looks at six bits of an exponent. The larger and the smaller complex number:
it looks at no imaginary part. Conversions from float to integer inside of functions on scalars, such as a
reduction's. Divisions of integers in linalg programs: a CPU traps on a division by 0, and on one of the least
integer by -1. Such a division becomes one by 1: the second then wraps, and remainders of both are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.legalize.elementwise import element, rewrite_elementwise

_INTEGERS = frozenset({"i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"})
#: ``arith.cmpi``: equal, different, signed less.
_CMPI = {"EQ": arith.CmpIPredicate.eq, "NE": arith.CmpIPredicate.ne, "LT": arith.CmpIPredicate.slt}


def larger_or_smaller(op: mlir.Op) -> None:
    """Complex numbers in the order of their real parts, then of the imaginary ones."""
    kind = op.results[0].type
    number = str(mlir.element_type(kind))
    if not number.startswith("complex"):
        return
    part = mlir.type_of(str(kind).replace(number, str(mlir.element_type(mlir.element_type(kind)))))
    truth = mlir.type_of(str(kind).replace(number, "i1"))
    way = "GE" if mlir.name_of(op) == "stablehlo.maximum" else "LE"
    with mlir.before(op):
        first, second = op.operands
        real, imaginary = (
            [mlir.value(f"stablehlo.{which}", [half], part) for half in (first, second)]
            for which in ("real", "imag")
        )
        equal, outer, inner = (
            _compared(direction, pair, truth)
            for direction, pair in (("EQ", real), (way, real), (way, imaginary))
        )
        chosen = mlir.value("stablehlo.select", [equal, inner, outer], truth)
        result = mlir.value("stablehlo.select", [chosen, first, second], kind)
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _compared(direction: str, pair: list[mlir.Value], truth: mlir.Type) -> mlir.Value:
    expected = mlir.attribute(f"#stablehlo<comparison_direction {direction}>")
    return mlir.value("stablehlo.compare", pair, truth, comparison_direction=expected)


def integer_power(op: mlir.Op) -> None:
    """By every bit of the exponent; what has a negative one is 0, but for 1 and -1."""
    kind = op.results[0].type
    name = str(mlir.element_type(kind))
    if name not in _INTEGERS:
        return
    if not mlir.computes_scalars(op):
        unit = element(kind)
        write = _Writer(
            lambda number: mlir.constant(number, str(unit)),
            lambda call, pair: (arith.muli if call == "multiply" else arith.andi)(*pair),
            lambda way, pair: arith.cmpi(_CMPI[way], *pair),
            arith.select,
        )
        rewrite_elementwise(op, lambda scalars: _power(write, scalars[0], scalars[1], name))
        return
    truth = mlir.type_of(str(kind).replace(name, "i1"))

    def constant(number: int) -> mlir.Value:
        number = number % 2 ** int(name[2:]) if name.startswith("ui") else number
        return mlir.value("stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{number}> : {kind}"))

    write = _Writer(
        constant,
        lambda call, pair: mlir.value(f"stablehlo.{call}", pair, pair[0].type),
        lambda way, pair: _compared(way, pair, truth),
        lambda when, yes, no: mlir.value("stablehlo.select", [when, yes, no], yes.type),
    )
    with mlir.before(op):
        op.results[0].replace_all_uses_with(_power(write, op.operands[0], op.operands[1], name))
    op.erase()


@dataclass(frozen=True)
class _Writer:
    """Operations on scalars, as values or as tensors of rank 0."""

    constant: Callable[[int], mlir.Value]
    call: Callable[[str, list[mlir.Value]], mlir.Value]
    ask: Callable[[str, list[mlir.Value]], mlir.Value]
    #: The second where the first is true, else the third.
    choose: Callable[[mlir.Value, mlir.Value, mlir.Value], mlir.Value]


def _power(write: _Writer, base: mlir.Value, exponent: mlir.Value, name: str) -> mlir.Value:
    width, signed = int(name.lstrip("ui")), not name.startswith("ui")
    zero, one = write.constant(0), write.constant(1)
    result, square = one, base
    for bit in range(width):
        mask = write.constant(-(2**bit) if bit == width - 1 else 2**bit)
        here = write.ask("NE", [write.call("and", [exponent, mask]), zero])
        result = write.choose(here, write.call("multiply", [result, square]), result)
        if bit < width - 1:
            square = write.call("multiply", [square, square])
    if not signed:
        return result
    units = write.choose(write.ask("EQ", [base, write.constant(-1)]), one, base)
    kept = write.choose(write.ask("EQ", [units, one]), result, zero)
    return write.choose(write.ask("LT", [exponent, zero]), kept, result)


def saturate_scalar(op: mlir.Op, expected: str) -> None:
    """Replace a conversion from float to ``expected``: it truncates, stops at the bounds, makes 0 of NaN."""
    width, signed = int(expected.lstrip("ui")), not expected.startswith("ui")
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1)) if signed else (0, 2**width)
    wide, kind = mlir.type_of("tensor<f32>"), op.results[0].type
    boolean = mlir.type_of("tensor<i1>")

    def number(value: int, type: mlir.Type) -> mlir.Value:
        text = f"{value}.0" if "f" in str(type) else str(value)
        return mlir.value("stablehlo.constant", (), type, value=mlir.attribute(f"dense<{text}> : {type}"))

    def compared(direction: str, bound: mlir.Value) -> mlir.Value:
        attribute = mlir.attribute(f"#stablehlo<comparison_direction {direction}>")
        return mlir.value("stablehlo.compare", [scalar, bound], boolean, comparison_direction=attribute)

    def chosen(when: mlir.Value, value: mlir.Value, other: mlir.Value) -> mlir.Value:
        return mlir.value("stablehlo.select", [when, value, other], other.type)

    with mlir.before(op):
        scalar = op.operands[0]
        if str(mlir.element_type(scalar.type)) in ("f16", "bf16"):
            scalar = mlir.value("stablehlo.convert", [scalar], wide)
        below, above = compared("LT", number(low, scalar.type)), compared("GE", number(high, scalar.type))
        outside = mlir.value("stablehlo.or", [below, above], boolean)
        outside = mlir.value("stablehlo.or", [outside, compared("NE", scalar)], boolean)
        inside = chosen(outside, number(0, scalar.type), scalar)
        whole = mlir.value("stablehlo.convert", [inside], kind)
        whole = chosen(below, number(low, kind), whole)
        whole = chosen(above, number(high - 1, kind), whole)
    op.results[0].replace_all_uses_with(whole)
    op.erase()


_SIGNED = ("arith.divsi", "arith.remsi", "arith.ceildivsi", "arith.floordivsi")
_UNSIGNED = ("arith.divui", "arith.remui", "arith.ceildivui")
_INDEX_BITS = 64


def guard_divisions(module: mlir.Module) -> None:
    """Guard divisions of elements in place; divisions of sizes are formulas and checked elsewhere."""
    for op in mlir.named(module, *_SIGNED, *_UNSIGNED):
        if _in_a_body(op) or _is_of_data(op):
            _guard(op)


def _in_a_body(op: mlir.Op) -> bool:
    parent = op.operation.parent
    while parent is not None and mlir.name_of(parent) not in ("linalg.generic", "func.func"):
        parent = parent.operation.parent
    return parent is not None and mlir.name_of(parent) == "linalg.generic"


def _is_of_data(op: mlir.Op) -> bool:
    """Whether a scalar is computed from an element of a tensor."""
    pending, seen = [op], {op}
    while pending:
        for operand in pending.pop().operands:
            owner = mlir.defining(operand)
            if owner is None or owner in seen:
                continue
            if mlir.name_of(owner) == "tensor.extract":
                return True
            if mlir.name_of(owner).startswith("arith."):
                seen.add(owner)
                pending.append(owner)
    return False


def _guard(op: mlir.Op) -> None:
    left, right = op.operands
    kind, literal = str(right.type), mlir.constant_int(right)
    signed = mlir.name_of(op) in _SIGNED
    if not (kind == "index" or kind[1:].isdigit()) or (literal and not (signed and literal == -1)):
        return
    with mlir.before(op):
        wrong = _equal(right, 0, kind)
        if signed:
            least = -(1 << (_INDEX_BITS if kind == "index" else int(kind[1:])) - 1)
            both = arith.andi(_equal(right, -1, kind), _equal(left, least, kind))
            wrong = arith.ori(wrong, both)
        one = mlir.constant(1, kind)
        op.operands[1] = arith.select(wrong, one, right)


def _equal(value: mlir.Value, number: int, kind: str) -> mlir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, value, mlir.constant(number, kind))
