"""Constant propagation for integers of rank 0."""

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
#: Operations that change only the shape or type of a number.
_SAME = (
    "stablehlo.reshape",
    "stablehlo.convert",
    "stablehlo.broadcast_in_dim",
    "stablehlo.optimization_barrier",
)


class Integers:
    """Constant values of integers and booleans (0 and 1) of rank 0, memoized."""

    def __init__(self) -> None:
        self._known: dict[mlir.Value, int] = {}

    def of(self, value: mlir.Value) -> int | None:
        """The constant value of ``value``, or None."""
        if value in self._known:
            return self._known[value]
        owner = mlir.defining(value)
        if owner is None or _bits(value.type) is None:
            return None
        number = self.result(owner, list(owner.operands))
        if number is not None:
            self._known[value] = number
        return number

    def constant(self, number: int, kind: mlir.Type) -> mlir.Value:
        """A constant at the current insertion point."""
        text = ("false", "true")[number] if str(mlir.element_type(kind)) == "i1" else str(number)
        value = mlir.value("stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{text}> : {kind}"))
        self._known[value] = number
        return value

    def result(self, operation: mlir.Op, operands: list[mlir.Value]) -> int | None:
        """The constant result of an operation with ``operands``, or None."""
        if len(operation.results) != 1 or _bits(operation.results[0].type) is None:
            return None
        kind, name = operation.results[0].type, mlir.name_of(operation)
        if name == "stablehlo.constant":
            (number,) = mlir.integers_of(operation)
            return _wrapped(number, kind)
        return _result(operation, [self.of(operand) for operand in operands])

    def after(self, block: mlir.Block, arguments: list[int | None]) -> list[int | None]:
        """The constant results of a region for constant arguments; None for others."""
        numbers_of: dict[mlir.Value, int | None] = dict(zip(list(block.arguments), arguments, strict=True))

        def of(value: mlir.Value) -> int | None:
            return numbers_of[value] if value in numbers_of else self.of(value)

        *operations, end = mlir.operations(block)
        for operation in operations:
            if len(operation.results) == 1 and _bits(operation.results[0].type) is not None:
                numbers = [of(operand) for operand in operation.operands]
                number = _result(operation, numbers) if numbers else self.result(operation, [])
                numbers_of[operation.results[0]] = number
        return [of(operand) for operand in end.operands]


def _result(operation: mlir.Op, numbers: list[int | None]) -> int | None:
    known_numbers = [number for number in numbers if number is not None]
    if len(known_numbers) < len(numbers) or not known_numbers or len(operation.operation.regions):
        return None
    result = _computed(operation, mlir.name_of(operation), known_numbers)
    return None if result is None else _wrapped(result, operation.results[0].type)


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
    """The bits of an integer of rank 0; None for other types."""
    if not mlir.is_tensor(kind) or mlir.sizes_of(kind):
        return None
    return _BITS.get(str(mlir.element_type(kind)))


def _wrapped(number: int, kind: mlir.Type) -> int:
    element = str(mlir.element_type(kind))
    bits = _BITS[element]
    number &= (1 << bits) - 1
    unsigned = element == "i1" or element.startswith("u")
    return number if unsigned or number < 1 << (bits - 1) else number - (1 << bits)
