"""The StableHLO operations that ONNX's are made of, with NumPy's broadcasting where ONNX has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.onnx.emitter import (
    COMPLEX,
    FLOATS,
    HALVES,
    Array,
    Dims,
    Emitter,
    Value,
    i64s,
    known,
    tensor,
)

#: A reduction: StableHLO op of the combiner, and the element that changes nothing, for floats and integers.
_NEUTRAL = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf, "or": 0.0, "and": 1.0}


def broadcast_dims(*shapes: Dims) -> Dims:
    """Return the common shape by NumPy's rule; raises ``InvalidProgram`` where there is none."""
    rank = max(map(len, shapes), default=0)
    dims = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and dims[axis] not in (1, size):
                shown = " and ".join(str(list(s)) for s in shapes)
                raise InvalidProgram(f"shapes {shown} do not broadcast")
            if size != 1:
                dims[axis] = size
    return tuple(dims)


class Build(Emitter):
    """An emitter with a method for each operation."""

    # -- shapes

    def broadcast_in_dim(self, x: Value, where: Sequence[int], dims: Dims) -> Value:
        """Show dim i of ``x`` as dim ``where[i]`` of the result."""
        if x.dims == dims and tuple(where) == tuple(range(len(dims))):
            return x
        return self.emit(
            "stablehlo.broadcast_in_dim", [x], x.element, dims, f"broadcast_dimensions = {i64s(where)}"
        )

    def broadcast(self, x: Value, dims: Dims) -> Value:
        """Show ``x`` in a larger shape by NumPy's rule."""
        if x.known is not None and x.known.size == 1 and not x.name and dims:
            return self.full(x.known.reshape(-1)[0], x.element, dims)
        return self.broadcast_in_dim(x, range(len(dims) - x.rank, len(dims)), dims)

    def reshape(self, x: Value, dims: Dims) -> Value:
        """Return the same elements in row-major order under other dims."""
        if math.prod(dims) != math.prod(x.dims):
            raise InvalidProgram(f"a tensor of shape {list(x.dims)} does not reshape to {list(dims)}")
        return x if x.dims == dims else self.emit("stablehlo.reshape", [x], x.element, dims)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Return ``x`` with dim ``order[i]`` at i."""
        if list(order) == list(range(x.rank)):
            return x
        dims = tuple(x.dims[axis] for axis in order)
        return self.emit("stablehlo.transpose", [x], x.element, dims, f"permutation = {i64s(order)}")

    def slice(self, x: Value, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Value:
        """Return every ``steps``-th element from ``starts`` to before ``stops``, an entry for each dim."""
        dims = tuple(
            max(0, -(-(stop - start) // step)) for start, stop, step in zip(starts, stops, steps, strict=True)
        )
        if dims == x.dims and all(step == 1 for step in steps):
            return x
        properties = f"start_indices = {i64s(starts)}, limit_indices = {i64s(stops)}, strides = {i64s(steps)}"
        return self.emit("stablehlo.slice", [x], x.element, dims, properties)

    def along(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Slice one axis."""
        starts, stops, steps = [0] * x.rank, list(x.dims), [1] * x.rank
        starts[axis], stops[axis], steps[axis] = start, stop, step
        return self.slice(x, starts, stops, steps)

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """Join along ``axis``."""
        if len(parts) == 1:
            return parts[0]
        for part in parts:
            if part.rank != parts[0].rank or any(
                a != b for i, (a, b) in enumerate(zip(part.dims, parts[0].dims, strict=True)) if i != axis
            ):
                shapes = ", ".join(str(list(p.dims)) for p in parts)
                raise InvalidProgram(f"shapes {shapes} do not join along axis {axis}")
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
        """Pad with a scalar, ``interior`` times between elements; negative counts cut."""
        between = list(interior or [0] * x.rank)
        if not any(low) and not any(high) and not any(between):
            return x
        dims = tuple(
            size + before + after + max(0, size - 1) * inside
            for size, before, after, inside in zip(x.dims, low, high, between, strict=True)
        )
        if min(dims, default=0) < 0:
            raise InvalidProgram(f"pads cut more than there is of shape {list(x.dims)}")
        properties = (
            f"edge_padding_low = {i64s(low)}, edge_padding_high = {i64s(high)}, "
            f"interior_padding = {i64s(between)}"
        )
        return self.emit("stablehlo.pad", [x, value], x.element, dims, properties)

    def reverse(self, x: Value, axes: Sequence[int]) -> Value:
        """Turn axes around."""
        return self.emit("stablehlo.reverse", [x], x.element, x.dims, f"dimensions = {i64s(axes)}")

    def iota(self, element: str, dims: Dims, axis: int) -> Value:
        """Return the index along ``axis`` at every place."""
        return self.emit("stablehlo.iota", [], element, dims, f"iota_dimension = {axis} : i64")

    # -- element by element

    def unary(self, op: str, x: Value, element: str | None = None) -> Value:
        """Emit an op of one operand, ``stablehlo`` unless it names its dialect."""
        return self.emit(op if "." in op else f"stablehlo.{op}", [x], element or x.element, x.dims)

    def binary(self, op: str, x: Value, y: Value) -> Value:
        """Emit an op of two operands that broadcast."""
        x, y = self.same(x, y)
        return self.emit(op if "." in op else f"stablehlo.{op}", [x, y], x.element, x.dims)

    def same(self, *values: Value) -> tuple[Value, ...]:
        """Show all values in their common shape; raises where elements differ."""
        elements = {v.element for v in values}
        if len(elements) > 1:
            raise InvalidProgram(f"operands of types {', '.join(v.type for v in values)}: elements differ")
        dims = broadcast_dims(*(v.dims for v in values))
        return tuple(self.broadcast(v, dims) for v in values)

    def scalar(self, op: str, x: Value, number: complex) -> Value:
        """Emit an op of ``x`` and a constant."""
        return self.binary(op, x, self.full(number, x.element, x.dims))

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        """Compare: EQ, NE, LT, LE, GT or GE."""
        x, y = self.same(x, y)
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
        """Take ``x`` where the condition holds, else ``y``."""
        x, y = self.same(x, y)
        dims = broadcast_dims(condition.dims, x.dims)
        operands = [self.broadcast(v, dims) for v in (condition, x, y)]
        return self.emit("stablehlo.select", operands, x.element, dims)

    def convert(self, x: Value, element: str) -> Value:
        """Convert elements as StableHLO does."""
        return x if x.element == element else self.unary("convert", x, element)

    # -- over axes

    def combiner(self, op: str, element: str) -> str:
        """Return the region of a reduction or scatter by one op."""
        x, y = self.parameter(element, ()), self.parameter(element, ())
        return self.region([x, y], lambda: [self.binary(op, x, y)])

    def neutral(self, op: str, element: str) -> Value:
        """Return what a reduction by ``op`` starts from."""
        number = _NEUTRAL[op]
        if element not in FLOATS and element not in COMPLEX and math.isinf(number):
            number = _least(element) if number < 0 else _greatest(element)
        return self.full(number, element)

    def reduce(self, op: str, x: Value, axes: Sequence[int], keep: bool = False) -> Value:
        """Combine along axes; ``keep`` leaves them with size 1.

        Sums and products of halves are in f32, rounded once.
        """
        if axes and self._rounds_once(op, x):
            return self.convert(self.reduce(op, self.convert(x, "f32"), axes, keep), x.element)
        if axes:
            dims = tuple(d for i, d in enumerate(x.dims) if i not in axes)
            init = self.neutral(op, x.element)
            body = self.combiner(op, x.element)
            properties = f"dimensions = {i64s(sorted(axes))}"
            reduced = self.emit_many("stablehlo.reduce", [x, init], [(x.element, dims)], properties, [body])[
                0
            ]
        else:
            reduced = x
        return self.kept(reduced, x.dims, axes) if keep else reduced

    def kept(self, reduced: Value, dims: Dims, axes: Sequence[int]) -> Value:
        """Put reduced axes back with size 1."""
        return self.reshape(reduced, tuple(1 if i in axes else d for i, d in enumerate(dims)))

    def mean(self, x: Value, axes: Sequence[int], keep: bool = False) -> Value:
        """Divide the sum by the count; 32-bit integers are summed in 64 bits, halves in f32."""
        wide = self.convert(
            x, {"i32": "i64", "ui32": "i64", "f16": "f32", "bf16": "f32"}.get(x.element, x.element)
        )
        total = self.reduce("add", wide, axes, keep)
        mean = self.scalar("divide", total, math.prod(x.dims[a] for a in axes))
        return self.convert(mean, x.element)

    def window(self, op: str, x: Value, window: Window) -> Value:
        """Combine over windows. Sums and products of halves are in f32, rounded once."""
        if self._rounds_once(op, x):
            return self.convert(self._windows(op, self.convert(x, "f32"), window), x.element)
        return self._windows(op, x, window)

    @staticmethod
    def _rounds_once(op: str, x: Value) -> bool:
        return x.element in HALVES and op in ("add", "multiply")

    def _windows(self, op: str, x: Value, window: Window) -> Value:
        dims = window.results(x.dims)
        body = self.combiner(op, x.element)
        properties = (
            f"window_dimensions = {i64s(window.sizes)}, window_strides = {i64s(window.strides)}, "
            f"base_dilations = {i64s([1] * x.rank)}, window_dilations = {i64s(window.dilations)}, "
            f"padding = {padding(window.pads)}"
        )
        operands = [x, self.neutral(op, x.element)]
        return self.emit_many("stablehlo.reduce_window", operands, [(x.element, dims)], properties, [body])[0]

    def dot(
        self,
        x: Value,
        y: Value,
        batch: tuple[Sequence[int], Sequence[int]],
        over: tuple[Sequence[int], Sequence[int]],
    ) -> Value:
        """Contract: batch dims first, then the free ones of ``x``, then those of ``y``.

        Sums of halves are in f32, rounded once.
        """
        for one, other in zip((*batch[0], *over[0]), (*batch[1], *over[1]), strict=True):
            if x.dims[one] != y.dims[other]:
                raise InvalidProgram(
                    f"shapes {list(x.dims)} and {list(y.dims)} do not multiply: {x.dims[one]} against "
                    f"{y.dims[other]}"
                )
        dims = (
            *(x.dims[a] for a in batch[0]),
            *(d for a, d in enumerate(x.dims) if a not in (*batch[0], *over[0])),
            *(d for a, d in enumerate(y.dims) if a not in (*batch[1], *over[1])),
        )
        numbers = (
            f"lhs_batching_dimensions = {list(batch[0])}, rhs_batching_dimensions = {list(batch[1])}, "
            f"lhs_contracting_dimensions = {list(over[0])}, rhs_contracting_dimensions = {list(over[1])}"
        )
        properties = f"dot_dimension_numbers = #stablehlo.dot<{numbers}>"
        total = "f32" if x.element in HALVES else x.element
        return self.convert(self.emit("stablehlo.dot_general", [x, y], total, dims, properties), x.element)

    def literal(self, array: Array) -> Value:
        """Return known elements as a value."""
        return known(array)


class Window:
    """Windows over all dims of a tensor: sizes, strides, dilations and (before, after) pads."""

    def __init__(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[tuple[int, int]],
    ) -> None:
        self.sizes, self.strides, self.dilations, self.pads = sizes, strides, dilations, pads

    def results(self, dims: Dims) -> Dims:
        """Return how many windows fit along each dim."""
        counts: list[int] = []
        for size, window, stride, dilation, (low, high) in zip(
            dims, self.sizes, self.strides, self.dilations, self.pads, strict=True
        ):
            room = size + low + high - (dilation * (window - 1) + 1)
            counts.append(0 if room < 0 else room // stride + 1)
        return tuple(counts)


def padding(pads: Sequence[tuple[int, int]]) -> str:
    """Return the attribute of (before, after) pads."""
    type = f"tensor<{len(pads)}x2xi64>"
    return f"dense<{[list(p) for p in pads]}> : {type}" if pads else f"dense<> : {type}"


def _width(element: str) -> int:
    return int(element.lstrip("ui"))


def _least(element: str) -> int:
    return 0 if element == "i1" or element.startswith("u") else -(1 << _width(element) - 1)


def _greatest(element: str) -> int:
    if element == "i1":
        return 1
    return (1 << _width(element)) - 1 if element.startswith("u") else (1 << _width(element) - 1) - 1


def limits_of(element: str) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    return _least(element), _greatest(element)


__all__ = ["Build", "Callable", "Window", "broadcast_dims", "limits_of", "padding", "tensor"]
