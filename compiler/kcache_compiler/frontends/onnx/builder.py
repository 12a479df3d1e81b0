"""Builds StableHLO operations as text, with NumPy's broadcasting as in ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.onnx.emitter import (
    COMPLEX,
    FLOATS,
    HALF_PRECISION,
    Array,
    Dims,
    Emitter,
    Value,
    constant_value,
    i64_array,
)

#: StableHLO op of a reduction's combiner -> its identity element.
_IDENTITY = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf, "or": 0.0, "and": 1.0}


def broadcast_dims(*shapes: Dims) -> Dims:
    """Return the common shape by NumPy's rule. Raises ``InvalidProgram`` if there is none."""
    rank = max(map(len, shapes), default=0)
    dims = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and dims[axis] not in (1, size):
                texts = " and ".join(str(list(s)) for s in shapes)
                raise InvalidProgram(f"shapes {texts} do not broadcast")
            if size != 1:
                dims[axis] = size
    return tuple(dims)


class Builder(Emitter):
    """An emitter with a method for each operation."""

    def broadcast_in_dim(self, x: Value, axes: Sequence[int], dims: Dims) -> Value:
        """Broadcast ``x``, whose axis i is axis ``axes[i]`` of the result."""
        if x.dims == dims and tuple(axes) == tuple(range(len(dims))):
            return x
        return self.emit(
            "stablehlo.broadcast_in_dim", [x], x.element, dims, f"broadcast_dimensions = {i64_array(axes)}"
        )

    def broadcast(self, x: Value, dims: Dims) -> Value:
        """Broadcast ``x`` to ``dims`` by NumPy's rule."""
        if x.constant is not None and x.constant.size == 1 and not x.name and dims:
            return self.full(x.constant.reshape(-1)[0], x.element, dims)
        return self.broadcast_in_dim(x, range(len(dims) - x.rank, len(dims)), dims)

    def reshape(self, x: Value, dims: Dims) -> Value:
        """Reshape in row-major order. Raises ``InvalidProgram`` if the number of elements differs."""
        if math.prod(dims) != math.prod(x.dims):
            raise InvalidProgram(f"a tensor of shape {list(x.dims)} does not reshape to {list(dims)}")
        return x if x.dims == dims else self.emit("stablehlo.reshape", [x], x.element, dims)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Permute axes: axis i of the result is axis ``order[i]`` of ``x``."""
        if list(order) == list(range(x.rank)):
            return x
        dims = tuple(x.dims[axis] for axis in order)
        return self.emit("stablehlo.transpose", [x], x.element, dims, f"permutation = {i64_array(order)}")

    def slice(self, x: Value, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Value:
        """Slice from ``starts`` to ``stops`` with strides ``steps``, one of each per axis."""
        dims = tuple(
            max(0, -(-(stop - start) // step)) for start, stop, step in zip(starts, stops, steps, strict=True)
        )
        if dims == x.dims and all(step == 1 for step in steps):
            return x
        properties = (
            f"start_indices = {i64_array(starts)}, limit_indices = {i64_array(stops)}, "
            f"strides = {i64_array(steps)}"
        )
        return self.emit("stablehlo.slice", [x], x.element, dims, properties)

    def slice_axis(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Slice one axis."""
        starts, stops, steps = [0] * x.rank, list(x.dims), [1] * x.rank
        starts[axis], stops[axis], steps[axis] = start, stop, step
        return self.slice(x, starts, stops, steps)

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """Concatenate along ``axis``."""
        if len(parts) == 1:
            return parts[0]
        for part in parts:
            if part.rank != parts[0].rank or any(
                a != b for i, (a, b) in enumerate(zip(part.dims, parts[0].dims, strict=True)) if i != axis
            ):
                shapes = ", ".join(str(list(p.dims)) for p in parts)
                raise InvalidProgram(f"shapes {shapes} do not concatenate along axis {axis}")
        dims = list(parts[0].dims)
        dims[axis] = sum(part.dims[axis] for part in parts)
        return self.emit(
            "stablehlo.concatenate", parts, parts[0].element, tuple(dims), f"dimension = {axis} : i64"
        )

    def pad(
        self,
        x: Value,
        value: Value,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
    ) -> Value:
        """Pad with a scalar at the edges, where negative widths remove elements, and between elements."""
        between = list(interior or [0] * x.rank)
        if not any(low) and not any(high) and not any(between):
            return x
        dims = tuple(
            size + before + after + max(0, size - 1) * inside
            for size, before, after, inside in zip(x.dims, low, high, between, strict=True)
        )
        if min(dims, default=0) < 0:
            raise InvalidProgram(f"pads remove more elements than the shape {list(x.dims)} has")
        properties = (
            f"edge_padding_low = {i64_array(low)}, edge_padding_high = {i64_array(high)}, "
            f"interior_padding = {i64_array(between)}"
        )
        return self.emit("stablehlo.pad", [x, value], x.element, dims, properties)

    def reverse(self, x: Value, axes: Sequence[int]) -> Value:
        """Reverse the order of elements along some axes."""
        return self.emit("stablehlo.reverse", [x], x.element, x.dims, f"dimensions = {i64_array(axes)}")

    def iota(self, element: str, dims: Dims, axis: int) -> Value:
        """Emit the indices along ``axis``."""
        return self.emit("stablehlo.iota", [], element, dims, f"iota_dimension = {axis} : i64")

    def unary(self, op: str, x: Value, element: str | None = None) -> Value:
        """Emit an operation of one operand; its dialect defaults to ``stablehlo``."""
        return self.emit(op if "." in op else f"stablehlo.{op}", [x], element or x.element, x.dims)

    def binary(self, op: str, x: Value, y: Value) -> Value:
        """Emit an operation of two operands, which broadcast together."""
        x, y = self.broadcast_together(x, y)
        return self.emit(op if "." in op else f"stablehlo.{op}", [x, y], x.element, x.dims)

    def broadcast_together(self, *values: Value) -> tuple[Value, ...]:
        """Broadcast all values to their common shape. Raises ``InvalidProgram`` if their elements differ."""
        elements = {v.element for v in values}
        if len(elements) > 1:
            raise InvalidProgram(
                f"operands of types {', '.join(v.type for v in values)} differ in element type"
            )
        dims = broadcast_dims(*(v.dims for v in values))
        return tuple(self.broadcast(v, dims) for v in values)

    def scalar(self, op: str, x: Value, number: complex) -> Value:
        """Emit an operation of ``x`` and a constant."""
        return self.binary(op, x, self.full(number, x.element, x.dims))

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        """Compare with the direction EQ, NE, LT, LE, GT or GE."""
        x, y = self.broadcast_together(x, y)
        return self.emit(
            "stablehlo.compare",
            [x, y],
            "i1",
            x.dims,
            f"comparison_direction = #stablehlo<comparison_direction {direction}>",
        )

    def compare_to(self, direction: str, x: Value, number: float) -> Value:
        """Compare with a constant."""
        return self.compare(direction, x, self.full(number, x.element, x.dims))

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """Emit ``x`` where the condition is true, otherwise ``y``."""
        x, y = self.broadcast_together(x, y)
        dims = broadcast_dims(condition.dims, x.dims)
        operands = [self.broadcast(v, dims) for v in (condition, x, y)]
        return self.emit("stablehlo.select", operands, x.element, dims)

    def convert(self, x: Value, element: str) -> Value:
        """Convert elements with StableHLO's semantics."""
        return x if x.element == element else self.unary("convert", x, element)

    def combiner(self, op: str, element: str) -> str:
        """Return the region of a reduction or scatter that applies one operation."""
        x, y = self.parameter(element, ()), self.parameter(element, ())
        return self.region([x, y], lambda: [self.binary(op, x, y)])

    def identity_element(self, op: str, element: str) -> Value:
        """Return the initial value of a reduction by ``op``."""
        number = _IDENTITY[op]
        if element not in FLOATS and element not in COMPLEX and math.isinf(number):
            number = _min_value(element) if number < 0 else _max_value(element)
        return self.full(number, element)

    def reduce(self, op: str, x: Value, axes: Sequence[int], keep: bool = False) -> Value:
        """Reduce along axes; ``keep`` retains them with size 1.

        Sums and products of half-precision floats accumulate in f32 and are rounded once.
        """
        if axes and self._accumulates_wide(op, x):
            return self.convert(self.reduce(op, self.convert(x, "f32"), axes, keep), x.element)
        if axes:
            dims = tuple(d for i, d in enumerate(x.dims) if i not in axes)
            init = self.identity_element(op, x.element)
            body = self.combiner(op, x.element)
            properties = f"dimensions = {i64_array(sorted(axes))}"
            reduced = self.emit_many("stablehlo.reduce", [x, init], [(x.element, dims)], properties, [body])[
                0
            ]
        else:
            reduced = x
        return self.restore_axes(reduced, x.dims, axes) if keep else reduced

    def restore_axes(self, reduced: Value, dims: Dims, axes: Sequence[int]) -> Value:
        """Restore reduced axes with size 1."""
        return self.reshape(reduced, tuple(1 if i in axes else d for i, d in enumerate(dims)))

    def mean(self, x: Value, axes: Sequence[int], keep: bool = False) -> Value:
        """Divide the sum by the count; 32-bit integers accumulate in 64 bits, f16 and bf16 in f32."""
        wide = self.convert(
            x, {"i32": "i64", "ui32": "i64", "f16": "f32", "bf16": "f32"}.get(x.element, x.element)
        )
        total = self.reduce("add", wide, axes, keep)
        mean = self.scalar("divide", total, math.prod(x.dims[a] for a in axes))
        return self.convert(mean, x.element)

    def window(self, op: str, x: Value, window: Window) -> Value:
        """Reduce windows. Sums and products of half-precision floats accumulate in f32."""
        if self._accumulates_wide(op, x):
            return self.convert(self._reduce_window(op, self.convert(x, "f32"), window), x.element)
        return self._reduce_window(op, x, window)

    @staticmethod
    def _accumulates_wide(op: str, x: Value) -> bool:
        return x.element in HALF_PRECISION and op in ("add", "multiply")

    def _reduce_window(self, op: str, x: Value, window: Window) -> Value:
        dims = window.output_dims(x.dims)
        body = self.combiner(op, x.element)
        properties = (
            f"window_dimensions = {i64_array(window.sizes)}, window_strides = {i64_array(window.strides)}, "
            f"base_dilations = {i64_array([1] * x.rank)}, window_dilations = {i64_array(window.dilations)}, "
            f"padding = {padding(window.pads)}"
        )
        operands = [x, self.identity_element(op, x.element)]
        return self.emit_many("stablehlo.reduce_window", operands, [(x.element, dims)], properties, [body])[0]

    def dot(
        self,
        x: Value,
        y: Value,
        batch: tuple[Sequence[int], Sequence[int]],
        contracting: tuple[Sequence[int], Sequence[int]],
    ) -> Value:
        """Contract: the result has the batch axes, then the free axes of ``x``, then those of ``y``.

        ``batch`` and ``contracting`` are axes of (x, y). Half-precision floats accumulate in f32.
        """
        for x_axis, y_axis in zip((*batch[0], *contracting[0]), (*batch[1], *contracting[1]), strict=True):
            if x.dims[x_axis] != y.dims[y_axis]:
                raise InvalidProgram(
                    f"shapes {list(x.dims)} and {list(y.dims)} differ in a contracted size: "
                    f"{x.dims[x_axis]} and "
                    f"{y.dims[y_axis]}"
                )
        dims = (
            *(x.dims[a] for a in batch[0]),
            *(d for a, d in enumerate(x.dims) if a not in (*batch[0], *contracting[0])),
            *(d for a, d in enumerate(y.dims) if a not in (*batch[1], *contracting[1])),
        )
        numbers = (
            f"lhs_batching_dimensions = {list(batch[0])}, rhs_batching_dimensions = {list(batch[1])}, "
            f"lhs_contracting_dimensions = {list(contracting[0])}, rhs_contracting_dimensions = "
            f"{list(contracting[1])}"
        )
        properties = f"dot_dimension_numbers = #stablehlo.dot<{numbers}>"
        accumulator = "f32" if x.element in HALF_PRECISION else x.element
        return self.convert(
            self.emit("stablehlo.dot_general", [x, y], accumulator, dims, properties), x.element
        )

    def literal(self, array: Array) -> Value:
        """Return known elements as a value."""
        return constant_value(array)


class Window:
    """Windows over all axes of a tensor: sizes, strides, dilations and (low, high) pads."""

    def __init__(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[tuple[int, int]],
    ) -> None:
        self.sizes, self.strides, self.dilations, self.pads = sizes, strides, dilations, pads

    def output_dims(self, dims: Dims) -> Dims:
        """Return the number of windows along each axis."""
        counts: list[int] = []
        for size, window, stride, dilation, (low, high) in zip(
            dims, self.sizes, self.strides, self.dilations, self.pads, strict=True
        ):
            slack = size + low + high - (dilation * (window - 1) + 1)
            counts.append(0 if slack < 0 else slack // stride + 1)
        return tuple(counts)


def padding(pads: Sequence[tuple[int, int]]) -> str:
    """Return the attribute of (low, high) pads."""
    type = f"tensor<{len(pads)}x2xi64>"
    return f"dense<{[list(p) for p in pads]}> : {type}" if pads else f"dense<> : {type}"


def _width(element: str) -> int:
    return int(element.lstrip("ui"))


def _min_value(element: str) -> int:
    return 0 if element == "i1" or element.startswith("u") else -(1 << _width(element) - 1)


def _max_value(element: str) -> int:
    if element == "i1":
        return 1
    return (1 << _width(element)) - 1 if element.startswith("u") else (1 << _width(element) - 1) - 1


def limits_of(element: str) -> tuple[int, int]:
    """Return the smallest and largest value of an integer type."""
    return _min_value(element), _max_value(element)


__all__ = ["Builder", "Window", "broadcast_dims", "limits_of", "padding"]
