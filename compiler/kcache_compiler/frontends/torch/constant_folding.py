"""Folds the arithmetic of constants that torch-mlir emits.

torch-mlir emits every scalar of a program as an f64 or i64 constant that is converted, and every size as a
formula. Only splat constants are folded, and only by elementwise ops: their result does not depend on a size,
so programs do not become equal that are equal at one size only. Values computed from sizes, as bounds of
slices are, are folded where the sizes are static.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Module, Op, Type, Value

Number = float | int

#: Name of a predicate of ``arith.cmpi`` -> its function.
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
#: Ops whose result has the value of their operand, in another shape or element type.
_VALUE_PRESERVING = frozenset(
    {
        "stablehlo.convert",
        "stablehlo.reshape",
        "stablehlo.broadcast_in_dim",
        "tensor.from_elements",
        "tensor.cast",
    }
)
_CONSTANTS = frozenset({"stablehlo.constant", "arith.constant", "chlo.constant"})
#: Bits of the significand of f64.
_F64_MANTISSA_BITS = 53
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


def _identity(size: int) -> int:
    return size


def _truncated_quotient(left: int, right: int) -> int:
    """Return the quotient rounded toward zero."""
    return left // right if (left < 0) == (right < 0) else -(-left // right)


def _remainder(left: int, right: int) -> int:
    return left - right * _truncated_quotient(left, right)


def _floor_quotient(left: int, right: int) -> int:
    return left // right


def _bitwise_and(left: int, right: int) -> int:
    return left & right


def _bitwise_or(left: int, right: int) -> int:
    return left | right


def _ceil_quotient(left: int, right: int) -> int:
    return -(-left // right)


def _select(condition: int, left: int, right: int) -> int:
    return left if condition else right


#: Ops on integers outside of tensors, with which sizes are computed.
_INTEGER_OPS: dict[str, Callable[..., int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.divsi": _truncated_quotient,
    "arith.remsi": _remainder,
    "arith.floordivsi": _floor_quotient,
    "arith.ceildivsi": _ceil_quotient,
    "arith.index_cast": _identity,
    "arith.extsi": _identity,
    "arith.select": _select,
    "arith.andi": _bitwise_and,
    "arith.ori": _bitwise_or,
}


#: Operations that have a value although their operands may have none.
_OF_TYPES = frozenset({"chlo.constant_like", "tensor.dim"})


class ConstantFolder:
    """Folds constants and records the values that are splats of a known number."""

    def __init__(self) -> None:
        self._values: dict[Value, Number] = {}
        self._lists: dict[Value, tuple[int, ...]] = {}
        #: The element types of those types that were asked for.
        self._elements: dict[Type, Type | None] = {}

    def scalar(self, value: Value) -> Number | None:
        """Return the value of all elements of ``value`` if it is known, otherwise None."""
        return self._values.get(value)

    def sizes(self, value: Value) -> tuple[int, ...] | None:
        """Return the elements of a vector of sizes if they are known, otherwise None."""
        number = self._values.get(value)
        if isinstance(number, int) and list(lazy.tensor_of(value).shape) == [1]:
            return (number,)
        return self._lists.get(value)

    def fold(self, module: Module) -> None:
        """Replace values that are computed from constants by constants, in place."""
        for operation in mlir.all_operations(module.operation):
            if operation.name == "tensor.from_elements":
                self._record_list(operation)
            number = self._evaluate(operation)
            if number is not None:
                result = operation.results[0]
                if operation.name != "stablehlo.constant":
                    result = _replace_by_constant(operation, number) or result
                self._values[result] = number

    def _record_list(self, operation: Op) -> None:
        numbers = [self._values.get(operand) for operand in operation.operands]
        sizes = tuple(number for number in numbers if isinstance(number, int))
        if len(sizes) == len(numbers):
            self._lists[operation.results[0]] = sizes

    def _evaluate(self, operation: Op) -> Number | None:
        """Return the value of an operation whose operands are known scalars; None if it cannot be folded."""
        name = operation.name
        known = self._values
        if not (name in _CONSTANTS or name in _OF_TYPES or all(each in known for each in operation.operands)):
            return None
        if len(operation.results) != 1 or operation.regions:
            return None
        element = self._element(operation.results[0].type)
        if element is None:
            return None
        if name in _CONSTANTS or name == "chlo.constant_like":
            return _splat_value(operation)
        if name == "tensor.dim":
            return _static_size(operation.operands[0].type, self._values.get(operation.operands[1]))
        operands = [self._values.get(operand) for operand in operation.operands]
        numbers = [operand for operand in operands if operand is not None]
        if not numbers or len(numbers) != len(operands):
            return None
        try:
            if name == "arith.cmpi":
                left, right = map(int, numbers)
                return int(_COMPARISONS[_predicate(operation)](left, right))
            return _convert(_compute(name, numbers, element), element)
        except (ArithmeticError, LookupError, ValueError):
            return None

    def _element(self, type: Type) -> Type | None:
        if type not in self._elements:
            self._elements[type] = _element(type)
        return self._elements[type]


def _predicate(comparison: Op) -> str:
    """Return the name of the predicate of an ``arith.cmpi``."""
    from torch_mlir.dialects import arith

    return arith.CmpIPredicate(lazy.integer(comparison.attributes["predicate"])).name


def _compute(name: str, numbers: Sequence[Number], element: Type) -> Number | None:
    """Return the result in f64, whose rounding to a narrower float is exact (for rsqrt, nearly)."""
    op = name.removeprefix("stablehlo.").removeprefix("chlo.broadcast_")
    if name in _VALUE_PRESERVING and len(numbers) == 1:
        return numbers[0]
    if name in _INTEGER_OPS:
        return _INTEGER_OPS[name](*map(int, numbers))
    if op in _UNARY and len(numbers) == 1 and _is_float(element):
        return _UNARY[op](numbers[0])
    if op in _BINARY and len(numbers) == 2 and (_is_float(element) or op != "divide"):
        return _BINARY[op](*numbers)
    return None


def _static_size(type: Type, axis: Number | None) -> int | None:
    tensor = lazy.ranked(type)
    if tensor is None or not isinstance(axis, int) or tensor.is_dynamic_dim(axis):
        return None
    return tensor.get_dim_size(axis)


def _element(type: Type) -> Type | None:
    """Return the element type of a possible scalar, a float or signless integer, otherwise None."""
    tensor = lazy.ranked(type)
    element = type if tensor is None else tensor.element_type
    if _is_float(element) or isinstance(element, mlir.native_ir().IndexType):
        return element
    integer = lazy.integer_type(element)
    return element if integer is not None and integer.is_signless else None


def _is_float(element: Type) -> bool:
    return str(element) in ("f16", "bf16", "f32", "f64")


def _convert(number: Number | None, element: Type) -> Number | None:
    """Return a number as ``stablehlo.convert`` converts it, None if the element type cannot hold it."""
    native = mlir.native_ir()
    if number is None:
        return None
    if _is_float(element):
        location = native.Location.unknown(element.context)
        return native.FloatAttr.get(element, _to_f64(number, element), loc=location).value
    if isinstance(number, float) and not math.isfinite(number):
        return None
    integer_type = lazy.integer_type(element)
    width = 64 if integer_type is None else integer_type.width
    if width == 1:
        return int(number != 0)
    integer, bound = int(number), 1 << (width - 1)
    return integer if -bound <= integer < bound else None


def _to_f64(number: Number, element: Type) -> float:
    """Return a number as the f64 that rounds to ``element`` as the number itself does.

    An integer that f64 cannot represent becomes its neighbor with an odd significand, which is not a midpoint
    of a narrower type and lies on the same side of one.
    """
    if isinstance(number, float) or str(element) == "f64":
        return float(number)
    magnitude = abs(number)
    dropped_bits = max(0, magnitude.bit_length() - _F64_MANTISSA_BITS)
    significand = magnitude >> dropped_bits
    if significand << dropped_bits != magnitude:
        significand |= 1
    return math.copysign(float(significand << dropped_bits), number)


def _splat_value(operation: Op) -> Number | None:
    """Return the value of a constant if all its elements are equal, otherwise None."""
    native = mlir.native_ir()
    attribute = operation.attributes["value"]
    if isinstance(attribute, native.DenseElementsAttr):
        elements = lazy.elements(attribute)
        if not elements.is_splat:
            return None
        attribute = elements.get_splat_value()
    if isinstance(attribute, native.FloatAttr):
        return lazy.number(attribute)
    if isinstance(attribute, (native.IntegerAttr, native.BoolAttr)):
        return int(lazy.number(attribute))
    return None


def _replace_by_constant(operation: Op, number: Number) -> Value | None:
    """Replace an operation by a constant and return it; None if its shape is dynamic."""
    native = mlir.native_ir()
    type = lazy.ranked(operation.results[0].type)
    if type is None or not type.has_static_shape:
        return None
    element = type.element_type
    if isinstance(element, native.IndexType):
        return None
    integer_type = lazy.integer_type(element)
    literal = -number if integer_type is not None and integer_type.width == 1 else number
    with operation.location, native.InsertionPoint(operation):
        value = (
            native.FloatAttr.get(element, float(number))
            if _is_float(element)
            else native.IntegerAttr.get(element, int(literal))
        )
        attributes = {"value": native.DenseElementsAttr.get_splat(type, value)}
        new = native.Operation.create("stablehlo.constant", results=[type], attributes=attributes)
    operation.results[0].replace_all_uses_with(new.result)
    operation.erase()
    return new.result
