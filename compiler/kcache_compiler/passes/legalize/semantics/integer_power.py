"""Powers of integers, and the larger and smaller complex number. The toolchain lowers them for few values:
it looks at six bits of an exponent, and at no imaginary part.
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
