"""Integers of rank 0 that follow from the constants of a program."""

from __future__ import annotations

import operator
from collections.abc import Callable

from kcache_compiler.mlir import operations as mlir

_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "ui8": 8, "ui16": 16, "ui32": 32, "ui64": 64}
_PAIRS: dict[str, Callable[[int, int], int]] = {
    "stablehlo.add": operator.add,
    "stablehlo.subtract": operator.sub,
    "stablehlo.multiply": operator.mul,
    "stablehlo.maximum": max,
    "stablehlo.minimum": min,
    "stablehlo.and": lambda a, b: a & b,
    "stablehlo.or": lambda a, b: a | b,
    "stablehlo.xor": lambda a, b: a ^ b,
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
#: The same number in another shape, or of another type.
_SAME = (
    "stablehlo.reshape",
    "stablehlo.convert",
    "stablehlo.broadcast_in_dim",
    "stablehlo.optimization_barrier",
)


class Integers:
    """What is known so far, of values by themselves and of operations on them. Booleans are 0 and 1."""

    def __init__(self) -> None:
        self._known: dict[mlir.Value, int] = {}

    def of(self, value: mlir.Value) -> int | None:
        """None where it is not known."""
        if value in self._known:
            return self._known[value]
        owner = mlir.defining(value)
        if owner is None or _bits(value.type) is None:
            return None
        found = self.result(owner, list(owner.operands))
        if found is not None:
            self._known[value] = found
        return found

    def constant(self, number: int, kind: mlir.Type) -> mlir.Value:
        """A constant at the current insertion point."""
        text = ("false", "true")[number] if str(mlir.element_type(kind)) == "i1" else str(number)
        made = mlir.value("stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{text}> : {kind}"))
        self._known[made] = number
        return made

    def result(self, operation: mlir.Op, operands: list[mlir.Value]) -> int | None:
        """Of an operation, if it had ``operands``."""
        if len(operation.results) != 1 or _bits(operation.results[0].type) is None:
            return None
        kind, name = operation.results[0].type, mlir.name_of(operation)
        if name == "stablehlo.constant":
            (number,) = mlir.integers_of(operation)
            return _wrapped(number, kind)
        return _result(operation, [self.of(operand) for operand in operands])

    def after(self, block: mlir.Block, arguments: list[int | None]) -> list[int | None]:
        """What a region returns for what is known of its arguments."""
        known: dict[mlir.Value, int | None] = dict(zip(list(block.arguments), arguments, strict=True))

        def of(value: mlir.Value) -> int | None:
            return known[value] if value in known else self.of(value)

        *operations, end = mlir.operations(block)
        for operation in operations:
            if len(operation.results) == 1 and _bits(operation.results[0].type) is not None:
                numbers = [of(operand) for operand in operation.operands]
                number = _result(operation, numbers) if numbers else self.result(operation, [])
                known[operation.results[0]] = number
        return [of(operand) for operand in end.operands]


def _result(operation: mlir.Op, numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers) or not known or len(operation.operation.regions):
        return None
    found = _computed(operation, mlir.name_of(operation), known)
    return None if found is None else _wrapped(found, operation.results[0].type)


def _computed(operation: mlir.Op, name: str, numbers: list[int]) -> int | None:
    match name, numbers:
        case "stablehlo.compare", [a, b]:
            text = str(operation.attributes["comparison_direction"])
            return int(_COMPARISONS[text.removesuffix(">").split()[-1]](a, b))
        case "stablehlo.select", [condition, a, b]:
            return a if condition else b
        case "stablehlo.not", [a]:
            return ~a
        case "stablehlo.negate", [a]:
            return -a
        case _, [a] if name in _SAME:
            boolean = str(mlir.element_type(operation.results[0].type)) == "i1"
            return int(a != 0) if boolean else a
        case _, [a, b] if name in _PAIRS:
            return _PAIRS[name](a, b)
        case _:
            return None


def _bits(kind: mlir.Type) -> int | None:
    """Of an integer of rank 0; None for other types."""
    if not mlir.is_tensor(kind) or mlir.sizes_of(kind):
        return None
    return _BITS.get(str(mlir.element_type(kind)))


def _wrapped(number: int, kind: mlir.Type) -> int:
    element = str(mlir.element_type(kind))
    bits = _BITS[element]
    number &= (1 << bits) - 1
    unsigned = element == "i1" or element.startswith("u")
    return number if unsigned or number < 1 << (bits - 1) else number - (1 << bits)
