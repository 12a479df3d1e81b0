"""Emits quantization and dequantization as StableHLO operations: the formulas of the specification.

``dequantize`` is ``(integer - zero_point) * scale``, with an exact difference; ``quantize`` divides, adds the
zero point, clamps to the bounds of the storage, rounds to the nearest integer, ties to even, and converts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcache_compiler.frontends.quantized.element import FLOATS, Quantized
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import RankedTensorType

    from kcache_compiler.mlir.types import Attribute, InsertionPoint, Location, Type, Value


class QuantizationEmitter:
    """Creates operations at an insertion point; adds their names to ``names``."""

    def __init__(self, point: InsertionPoint | None, location: Location, names: set[str]) -> None:
        self._native = mlir.native_ir()
        self._point = point
        self._location = location
        self._names = names

    def dequantize(self, value: Value, q: Quantized) -> Value:
        """Return the elements of ``value``, which has the carrier's type, in the expressed type."""
        if any(q.zero_points):
            wide = "i32" if q.width <= 16 else "i64"
            value = self._broadcast_binary("subtract", self.convert(value, wide), q.zero_points, q)
        value = self.convert(value, q.expressed)
        return value if set(q.scales) == {1.0} else self._broadcast_binary("multiply", value, q.scales, q)

    def quantize(self, value: Value, q: Quantized) -> Value:
        """Return the floats of ``value``, of the expressed type, in the carrier's type."""
        if set(q.scales) != {1.0}:
            value = self._broadcast_binary("divide", value, q.scales, q)
        if any(q.zero_points):
            value = self._broadcast_binary("add", value, q.zero_points, q)
        value = self._clamp(value, q, q.expressed)
        value = self.op("round_nearest_even", [value], value.type)
        value = self.convert(value, q.carrier)
        return self._clamp(value, q, q.carrier) if _needs_integer_clamp(q) else value

    def convert(self, value: Value, element: str) -> Value:
        """Return the value with elements of the type ``element``."""
        if str(lazy.tensor_of(value).element_type) == element:
            return value
        return self.op("convert", [value], self.like(lazy.tensor_of(value), element))

    def like(self, type: RankedTensorType, element: str) -> RankedTensorType:
        """Return the tensor type with the shape of ``type`` and elements of the type ``element``."""
        native = self._native
        shape = [
            native.ShapedType.get_dynamic_size() if type.is_dynamic_dim(i) else type.get_dim_size(i)
            for i in range(type.rank)
        ]
        return native.RankedTensorType.get(
            shape, native.Type.parse(element, type.context), type.encoding, self._location
        )

    def op(self, name: str, operands: list[Value], result: Type, **attributes: Attribute) -> Value:
        """Create an operation and return its result; the dialect defaults to ``stablehlo``."""
        full_name = name if "." in name else f"stablehlo.{name}"
        self._names.add(full_name)
        return self._native.Operation.create(
            full_name,
            results=[result],
            operands=operands,
            attributes=attributes,
            loc=self._location,
            ip=self._point,
        ).results[0]

    def _clamp(self, value: Value, q: Quantized, element: str) -> Value:
        low, high = (self._constant([bound], element, None) for bound in (q.low, q.high))
        return self.op("clamp", [low, value, high], value.type)

    def _broadcast_binary(self, name: str, value: Value, constants: Sequence[float], q: Quantized) -> Value:
        """Apply an operation to ``value`` and constants: one, or one per index along the axis."""
        type = lazy.tensor_of(value)
        element = str(type.element_type)
        is_splat = len(set(constants)) == 1
        if type.has_static_shape and is_splat:
            return self.op(name, [value, self._constant(constants[:1], element, type)], type)
        axis = self._native.DenseI64ArrayAttr.get(
            [] if is_splat or q.axis is None else [q.axis], type.context
        )
        constants = constants[:1] if is_splat else constants
        operand = self._constant(
            constants, element, None if is_splat else self._vector(constants, element, type)
        )
        if type.has_static_shape:
            broadcast = self.op("broadcast_in_dim", [operand], type, broadcast_dimensions=axis)
        else:
            operands = [operand, self._sizes(value)]
            broadcast = self.op("dynamic_broadcast_in_dim", operands, type, broadcast_dimensions=axis)
        return self.op(name, [value, broadcast], type)

    def _sizes(self, value: Value) -> Value:
        """Return the shape of a value as an i32 vector."""
        native, type = self._native, lazy.tensor_of(value)
        scalar, unit = (native.Type.parse(f"tensor<{size}i32>", type.context) for size in ("", "1x"))
        vector = native.Type.parse(f"tensor<{type.rank}xi32>", type.context)
        sizes: list[Value] = []
        for axis in range(type.rank):
            if type.is_dynamic_dim(axis):
                dimension = native.IntegerAttr.get(native.IntegerType.get_signless(64, type.context), axis)
                size = self.op("get_dimension_size", [value], scalar, dimension=dimension)
            else:
                size = self._constant([type.get_dim_size(axis)], "i32", scalar)
            sizes.append(self.op("reshape", [size], unit))
        dimension = native.IntegerAttr.get(native.IntegerType.get_signless(64, type.context), 0)
        return self.op("concatenate", sizes, vector, dimension=dimension)

    def _vector(self, numbers: Sequence[float], element: str, like: Type) -> Type:
        native = self._native
        return native.RankedTensorType.get(
            [len(numbers)], native.Type.parse(element, like.context), None, self._location
        )

    def _constant(self, numbers: Sequence[float], element: str, type: Type | None) -> Value:
        """Return a constant with the elements ``numbers``; one is a splat of ``type``, a scalar if None."""
        literals = [f"{number:.17e}" if element in FLOATS else str(number) for number in numbers]
        literal = literals[0] if len(literals) == 1 else f"[{', '.join(literals)}]"
        type_text = f"tensor<{element}>" if type is None else str(type)
        value = self._native.Attribute.parse(f"dense<{literal}> : {type_text}", self._location.context)
        return self.op("constant", [], value.type, value=value)


def _needs_integer_clamp(q: Quantized) -> bool:
    """Return whether values that were clamped as floats may lie outside the storage's bounds as integers.

    A bound may not be representable in the expressed type, and NaN converts to 0. The conversion saturates
    at the limits of the integer type itself.
    """
    exact = 1 << FLOATS[q.expressed][0]
    full_range = (q.low, q.high) == q.limits and q.width >= 8
    return not full_range and (q.low < -exact or q.high > exact or not q.low <= 0 <= q.high)
