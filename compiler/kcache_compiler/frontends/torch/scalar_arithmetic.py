"""Arithmetic of constants, done: what torch-mlir leaves to be computed when a program runs.

It writes every number of a program as an f64 or i64 constant that is converted, and every length as a
formula. Only constants whose elements are all one number are folded, and only by what works element by
element: what that gives does not depend on a size, so no two programs meet that are equal at one size alone.
What is computed from sizes, as bounds of slices are, is folded where the sizes are stated.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

Number = float | int

#: ``arith.cmpi`` by the number of its predicate.
_COMPARE: dict[int, Callable[[int, int], bool]] = {
    0: operator.eq,
    1: operator.ne,
    2: operator.lt,
    3: operator.le,
    4: operator.gt,
    5: operator.ge,
}
#: Ops that give their first operand's number in another shape or element type.
_MOVES = frozenset(
    {
        "stablehlo.convert",
        "stablehlo.reshape",
        "stablehlo.broadcast_in_dim",
        "tensor.from_elements",
        "tensor.cast",
    }
)
_CONSTANTS = frozenset({"stablehlo.constant", "arith.constant", "chlo.constant"})
#: Bits of a mantissa of f64.
_MANTISSA = 53
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "negate": lambda a: -a,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
}


def _same(size: int) -> int:
    return size


def _quotient(left: int, right: int) -> int:
    """Rounded to zero."""
    return left // right if (left < 0) == (right < 0) else -(-left // right)


def _remainder(left: int, right: int) -> int:
    return left - right * _quotient(left, right)


def _floor(left: int, right: int) -> int:
    return left // right


def _both(left: int, right: int) -> int:
    return left & right


def _either(left: int, right: int) -> int:
    return left | right


def _ceiling(left: int, right: int) -> int:
    return -(-left // right)


def _choice(condition: int, left: int, right: int) -> int:
    return left if condition else right


#: Ops on sizes: plain numbers, in no tensor.
_SIZES: dict[str, Callable[..., int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.divsi": _quotient,
    "arith.remsi": _remainder,
    "arith.floordivsi": _floor,
    "arith.ceildivsi": _ceiling,
    "arith.index_cast": _same,
    "arith.extsi": _same,
    "arith.select": _choice,
    "arith.andi": _both,
    "arith.ori": _either,
}


class Scalars:
    """The numbers that values of a module are known to be, in every element."""

    def __init__(self) -> None:
        self._known: dict[Native, Number] = {}
        self._lists: dict[Native, tuple[int, ...]] = {}

    def number(self, value: Native) -> Number | None:
        """The number that every element of ``value`` is, if that is known."""
        return self._known.get(value)

    def sizes(self, value: Native) -> tuple[int, ...] | None:
        """The elements of a list of sizes, if they are known."""
        number = self._known.get(value)
        if isinstance(number, int) and list(value.type.shape) == [1]:
            return (number,)
        return self._lists.get(value)

    def fold(self, module: Native) -> None:
        """Replace by constants what is computed from constants, in place."""
        for operation in mlir.all_operations(module.operation):
            if operation.name == "tensor.from_elements":
                self._list(operation)
            number = self._evaluate(operation)
            if number is not None:
                result = operation.results[0]
                if operation.name != "stablehlo.constant":
                    result = _replace(operation, number) or result
                self._known[result] = number

    def _list(self, operation: Native) -> None:
        numbers = [self._known.get(operand) for operand in operation.operands]
        sizes = tuple(number for number in numbers if isinstance(number, int))
        if len(sizes) == len(numbers):
            self._lists[operation.results[0]] = sizes

    def _evaluate(self, operation: Native) -> Number | None:
        name = operation.name
        if len(operation.results) != 1 or operation.regions:
            return None
        element = _element(operation.results[0].type)
        if element is None:
            return None
        if name in _CONSTANTS or name == "chlo.constant_like":
            return _stated(operation)
        if name == "tensor.dim":
            return _stated_size(operation.operands[0].type, self._known.get(operation.operands[1]))
        operands = [self._known.get(operand) for operand in operation.operands]
        numbers = [operand for operand in operands if operand is not None]
        if not numbers or len(numbers) != len(operands):
            return None
        try:
            if name == "arith.cmpi":
                left, right = map(int, numbers)
                return int(_COMPARE[operation.attributes["predicate"].value](left, right))
            return _rounded(_computed(name, numbers, element), element)
        except (ArithmeticError, LookupError, ValueError):
            return None


def _computed(name: str, numbers: Sequence[Number], element: Native) -> Number | None:
    """In f64, whose rounding to a narrower float is that of the exact result (and of rsqrt, nearly)."""
    op = name.removeprefix("stablehlo.").removeprefix("chlo.broadcast_")
    if name in _MOVES and len(numbers) == 1:
        return numbers[0]
    if name in _SIZES:
        return _SIZES[name](*map(int, numbers))
    if op in _UNARY and len(numbers) == 1 and _is_float(element):
        return _UNARY[op](numbers[0])
    if op in _BINARY and len(numbers) == 2 and (_is_float(element) or op != "divide"):
        return _BINARY[op](*numbers)
    return None


def _stated_size(type: Native, axis: Number | None) -> int | None:
    native = mlir.native_ir()
    if (
        not isinstance(type, native.RankedTensorType)
        or not isinstance(axis, int)
        or type.is_dynamic_dim(axis)
    ):
        return None
    size: int = type.get_dim_size(axis)
    return size


def _element(type: Native) -> Native | None:
    """The element type of a value that could be one number: floats and signless integers."""
    native = mlir.native_ir()
    element = type.element_type if isinstance(type, native.RankedTensorType) else type
    if _is_float(element) or isinstance(element, native.IndexType):
        return element
    return element if isinstance(element, native.IntegerType) and element.is_signless else None


def _is_float(element: Native) -> bool:
    return str(element) in ("f16", "bf16", "f32", "f64")


def _rounded(number: Number | None, element: Native) -> Number | None:
    """A number as ``stablehlo.convert`` gives it; None where the element type has none like it."""
    native = mlir.native_ir()
    if number is None:
        return None
    if _is_float(element):
        loc = native.Location.unknown(element.context)
        return native.FloatAttr.get(element, _wide(number, element), loc=loc).value
    if isinstance(number, float) and not math.isfinite(number):
        return None
    width = element.width if isinstance(element, native.IntegerType) else 64
    if width == 1:
        return int(number != 0)
    whole, bound = int(number), 1 << (width - 1)
    return whole if -bound <= whole < bound else None


def _wide(number: Number, element: Native) -> float:
    """A number as the f64 that rounds to ``element`` as the number itself does.

    Of an integer that f64 has not, a narrower type gets the neighbour with an odd mantissa: no midpoint of
    that type, and on the integer's side of one.
    """
    if isinstance(number, float) or str(element) == "f64":
        return float(number)
    size = abs(number)
    lost = max(0, size.bit_length() - _MANTISSA)
    kept = size >> lost
    if kept << lost != size:
        kept |= 1
    return math.copysign(float(kept << lost), number)


def _stated(operation: Native) -> Number | None:
    """The number of a constant, if all of its elements are the same."""
    native = mlir.native_ir()
    attribute = operation.attributes["value"]
    if isinstance(attribute, native.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    if isinstance(attribute, (native.FloatAttr, native.IntegerAttr, native.BoolAttr)):
        value: Number = attribute.value
        return value if isinstance(attribute, native.FloatAttr) else int(value)
    return None


def _replace(operation: Native, number: Number) -> Native | None:
    """Put a constant in an operation's place and return it; None where its shape is open."""
    native = mlir.native_ir()
    type = operation.results[0].type
    if not isinstance(type, native.RankedTensorType) or not type.has_static_shape:
        return None
    element = type.element_type
    if isinstance(element, native.IndexType):
        return None
    with operation.location, native.InsertionPoint(operation):
        value = (
            native.FloatAttr.get(element, float(number))
            if _is_float(element)
            else native.IntegerAttr.get(element, -number if element.width == 1 else number)
        )
        attributes = {"value": native.DenseElementsAttr.get_splat(type, value)}
        new = native.Operation.create("stablehlo.constant", results=[type], attributes=attributes)
    operation.results[0].replace_all_uses_with(new.result)
    operation.erase()
    return new.result
