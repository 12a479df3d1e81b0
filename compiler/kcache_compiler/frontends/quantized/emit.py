"""Storage integers to floats and back, in operations of StableHLO: the formulas of the specification.

``dequantize`` is ``(integer - zero_point) * scale``, the difference exact; ``quantize`` divides, adds the
zero point, clamps to the storage's bounds, rounds to the nearest whole number, ties to even, and converts.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.frontends.quantized.element import FLOATS, Quantized
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native


class Emitter:
    """Writes operations at one place of a module; ``names`` collects which they are."""

    def __init__(self, point: Native, location: Native, names: set[str]) -> None:
        self._native = mlir.native_ir()
        self._point = point
        self._location = location
        self._names = names

    def dequantize(self, value: Native, q: Quantized) -> Native:
        """Floats of the expressed type, of a value that has the carrier's type."""
        if any(q.zero_points):
            wide = "i32" if q.width <= 16 else "i64"
            value = self._with("subtract", self.convert(value, wide), q.zero_points, q)
        value = self.convert(value, q.expressed)
        return value if set(q.scales) == {1.0} else self._with("multiply", value, q.scales, q)

    def quantize(self, value: Native, q: Quantized) -> Native:
        """Integers of the carrier's type, of floats of the expressed type."""
        if set(q.scales) != {1.0}:
            value = self._with("divide", value, q.scales, q)
        if any(q.zero_points):
            value = self._with("add", value, q.zero_points, q)
        value = self._clamp(value, q, q.expressed)
        value = self.op("round_nearest_even", [value], value.type)
        value = self.convert(value, q.carrier)
        return self._clamp(value, q, q.carrier) if _may_pass(q) else value

    def convert(self, value: Native, element: str) -> Native:
        """The value with other elements."""
        if str(value.type.element_type) == element:
            return value
        return self.op("convert", [value], self.like(value.type, element))

    def like(self, type: Native, element: str) -> Native:
        """A tensor type of the same shape."""
        native = self._native
        shape = [
            native.ShapedType.get_dynamic_size() if type.is_dynamic_dim(i) else type.get_dim_size(i)
            for i in range(type.rank)
        ]
        return native.RankedTensorType.get(
            shape, native.Type.parse(element, type.context), type.encoding, self._location
        )

    def op(self, name: str, operands: list[Native], result: Native, **attributes: Native) -> Native:
        """The result of a new operation."""
        full = name if "." in name else f"stablehlo.{name}"
        self._names.add(full)
        return self._native.Operation.create(
            full,
            results=[result],
            operands=operands,
            attributes=attributes,
            loc=self._location,
            ip=self._point,
        ).results[0]

    def _clamp(self, value: Native, q: Quantized, element: str) -> Native:
        low, high = (self._constant([bound], element, None) for bound in (q.low, q.high))
        return self.op("clamp", [low, value, high], value.type)

    def _with(self, name: str, value: Native, numbers: Sequence[float], q: Quantized) -> Native:
        """An operation with one number for all, or one for each slice along the axis."""
        type = value.type
        element = str(type.element_type)
        one = len(set(numbers)) == 1
        if type.has_static_shape and one:
            return self.op(name, [value, self._constant(numbers[:1], element, type)], type)
        axis = self._native.DenseI64ArrayAttr.get([] if one else [q.axis], type.context)
        numbers = numbers[:1] if one else numbers
        given = self._constant(numbers, element, None if one else self._vector(numbers, element, type))
        if type.has_static_shape:
            spread = self.op("broadcast_in_dim", [given], type, broadcast_dimensions=axis)
        else:
            operands = [given, self._sizes(value)]
            spread = self.op("dynamic_broadcast_in_dim", operands, type, broadcast_dimensions=axis)
        return self.op(name, [value, spread], type)

    def _sizes(self, value: Native) -> Native:
        """The sizes of a value, as a vector."""
        native, type = self._native, value.type
        one, row = (native.Type.parse(f"tensor<{size}i32>", type.context) for size in ("", "1x"))
        whole = native.Type.parse(f"tensor<{type.rank}xi32>", type.context)
        sizes: list[Native] = []
        for axis in range(type.rank):
            if type.is_dynamic_dim(axis):
                number = native.IntegerAttr.get(native.IntegerType.get_signless(64, type.context), axis)
                size = self.op("get_dimension_size", [value], one, dimension=number)
            else:
                size = self._constant([type.get_dim_size(axis)], "i32", one)
            sizes.append(self.op("reshape", [size], row))
        number = native.IntegerAttr.get(native.IntegerType.get_signless(64, type.context), 0)
        return self.op("concatenate", sizes, whole, dimension=number)

    def _vector(self, numbers: Sequence[float], element: str, like: Native) -> Native:
        native = self._native
        return native.RankedTensorType.get(
            [len(numbers)], native.Type.parse(element, like.context), None, self._location
        )

    def _constant(self, numbers: Sequence[float], element: str, type: Native | None) -> Native:
        """One number for all elements of ``type``, a scalar if None; or each of its elements."""
        texts = [f"{number:.17e}" if element in FLOATS else str(number) for number in numbers]
        written = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        kind = f"tensor<{element}>" if type is None else str(type)
        value = self._native.Attribute.parse(f"dense<{written}> : {kind}", self._location.context)
        return self.op("constant", [], value.type, value=value)


def _may_pass(q: Quantized) -> bool:
    """Whether what was clamped as floats may lie outside of the storage's bounds as integers.

    A bound may be no number of the expressed type; NaN becomes 0. Conversion stops at the bounds of the
    integer type itself.
    """
    exact = 1 << FLOATS[q.expressed][0]
    whole = (q.low, q.high) == q.limits and q.width >= 8
    return not whole and (q.low < -exact or q.high > exact or not q.low <= 0 <= q.high)
