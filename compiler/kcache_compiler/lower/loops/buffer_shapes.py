"""Sizes and strides of buffers as formulas over the symbols, recovered from bufferized IR.

A size that no formula expresses depends on data: the program is rejected with ``UnsupportedOp``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula, add, apply, mul
from kcache_compiler.shapes.recovery import RecoveredSizes

_ARITH = {
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
    "arith.ceildivsi": "ceildiv",
    "arith.ceildivui": "ceildiv",
    "arith.maxsi": "max",
    "arith.maxui": "max",
    "arith.minsi": "min",
    "arith.minui": "min",
    "arith.remsi": "%",
    "arith.remui": "%",
}
_DIVIDE = ("arith.divsi", "arith.divui", "arith.floordivsi")
_SAME = ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui", "arith.trunci")


@dataclass(frozen=True, eq=False)
class BufferAccess:
    """An access to a buffer through an indexing map: sizes by axis, strides by loop."""

    results: tuple[mlir.AffineExpr, ...]
    sizes: tuple[Formula, ...]
    strides: tuple[Formula, ...]
    offset: Formula
    #: For each axis of the buffer, the loop that indexes it if no other loop does; ``dims`` also requires
    #: that the loop indexes no other axis.
    plain: tuple[int | None, ...]
    dims: tuple[int | None, ...]


class Shapes:
    """Memoized sizes and strides of buffers.

    ``known`` maps the function's arguments to their sizes; ``codes`` maps constants of the IR to formulas.
    """

    def __init__(
        self, argument_sizes: dict[mlir.Value, list[Formula]], codes: RecoveredSizes | None = None
    ) -> None:
        self.codes = codes or RecoveredSizes()
        self._sizes: dict[mlir.Value, list[Formula]] = dict(argument_sizes)
        #: Formulas of index values that were computed from dynamic sizes.
        self.numbers: dict[mlir.Value, Formula] = {}
        self._strides: dict[mlir.Value, list[Formula]] = {}
        self._renamed: dict[mlir.Value, mlir.Value] = {}
        #: Memoized accesses, by indexing map, sizes and strides, and the runtime checks that they need.
        self.accesses: dict[Hashable, BufferAccess] = {}
        self.checks: dict[Hashable, tuple[Check, ...]] = {}

    def rename(self, old: mlir.Value, new: mlir.Value) -> None:
        """Record that ``new`` replaces ``old`` in the IR."""
        if old in self._sizes:
            self._sizes[new] = self._sizes[old]
        if old in self._strides:
            self._strides[new] = self._strides[old]
        self._renamed[old] = new

    def current(self, buffer: mlir.Value) -> mlir.Value:
        """The value that replaced ``buffer``, or ``buffer`` itself."""
        return self._renamed.get(buffer, buffer)

    def formula(self, number: mlir.Value) -> Formula:
        """The formula of an integer or index value; raises ``UnsupportedOp`` when it depends on data."""
        literal = mlir.constant_int(number)
        if literal is not None:
            return self.codes(literal)
        if number in self.numbers:
            return self.numbers[number]
        operation = mlir.defining(number)
        name = "block argument" if operation is None else mlir.name_of(operation)
        if operation is not None:
            operands = list(operation.operands)
            if name in _ARITH:
                return apply(_ARITH[name], self.formula(operands[0]), self.formula(operands[1]))
            if name in _DIVIDE:
                a, b = self.formula(operands[0]), self.formula(operands[1])
                return apply("ceildiv", apply("-", a, apply("%", a, b)), b)
            if name in _SAME:
                return self.formula(operands[0])
            if name == "memref.dim":
                axis = self.formula(operands[1])
                return self.sizes(operands[0])[axis if isinstance(axis, int) else 0]
        location = "" if operation is None else mlir.location_of(operation)
        raise UnsupportedOp(name, "a size that depends on data", location)

    def sizes(self, buffer: mlir.Value) -> list[Formula]:
        if buffer not in self._sizes:
            self._sizes[buffer] = self._read_sizes(buffer)
        return self._sizes[buffer]

    def strides(self, buffer: mlir.Value) -> list[Formula]:
        """Strides in elements."""
        if buffer not in self._strides:
            self._strides[buffer] = self._read_strides(buffer)
        return self._strides[buffer]

    def _read_sizes(self, buffer: mlir.Value) -> list[Formula]:
        """Return the sizes of a buffer as formulas. Raises ``UnsupportedOp`` for a buffer of unknown size."""
        static = mlir.sizes_of(buffer.type)
        if None not in static:
            return [self.codes(size) for size in static if size is not None]
        operation = mlir.defining(buffer)
        name = "block argument" if operation is None else mlir.name_of(operation)
        if operation is None:
            raise UnsupportedOp(name, "a buffer of unknown size")
        operands = list(operation.operands)
        if name == "memref.cast":
            return self.sizes(operands[0])
        if name == "memref.alloc":
            dynamic = iter(operands)
        elif name == "memref.expand_shape":
            dynamic = iter(operands[1:])
        elif name == "memref.subview":
            segments = mlir.integers(operation.attributes["operandSegmentSizes"])
            start = segments[0] + segments[1]
            return self._subview_sizes(operation, operands[start : start + segments[2]])
        elif name == "memref.collapse_shape":
            return self._collapsed(operation)
        elif name == "memref.reinterpret_cast":
            segments = mlir.integers(operation.attributes["operandSegmentSizes"])
            start = segments[0] + segments[1]
            dynamic = iter(operands[start : start + segments[2]])
        else:
            raise UnsupportedOp(name, "a buffer of unknown size", mlir.location_of(operation))
        return [self.formula(next(dynamic)) if size is None else self.codes(size) for size in static]

    def _subview_sizes(self, operation: mlir.Op, dynamic: list[mlir.Value]) -> list[Formula]:
        static = mlir.integers(operation.attributes["static_sizes"])
        values = iter(dynamic)
        full = [self.codes(size) if size >= 0 else self.formula(next(values)) for size in static]
        axes = _kept_axes(operation)
        return [full[axis] for axis in axes]

    def _collapsed(self, operation: mlir.Op) -> list[Formula]:
        sizes = self.sizes(operation.operands[0])
        result: list[Formula] = []
        for group in mlir.groups_of(operation):
            size: Formula = 1
            for axis in group:
                size = mul(size, sizes[axis])
            result.append(size)
        return result

    def _read_strides(self, buffer: mlir.Value) -> list[Formula]:
        strides, _ = mlir.strides_of(buffer.type)
        if None not in strides and not self.codes:
            return [stride for stride in strides if stride is not None]
        operation = mlir.defining(buffer)
        name = "block argument" if operation is None else mlir.name_of(operation)
        if name == "memref.cast" and operation is not None:
            return self.strides(operation.operands[0])
        if name == "memref.subview" and operation is not None:
            source = self.strides(operation.operands[0])
            steps = mlir.integers(operation.attributes["static_strides"])
            if min(steps, default=1) >= 0:
                full = [mul(stride, self.codes(step)) for stride, step in zip(source, steps, strict=True)]
                return [full[axis] for axis in _kept_axes(operation)]
        if str(buffer.type).count("strided") == 0:
            return self._row_major(buffer)
        if None not in strides:
            return [self.codes(stride) for stride in strides if stride is not None]
        raise UnsupportedOp(name, "a buffer of unknown strides")

    def _row_major(self, buffer: mlir.Value) -> list[Formula]:
        return row_major(self.sizes(buffer))


def row_major(sizes: list[Formula]) -> list[Formula]:
    """Strides in elements of a contiguous buffer."""
    strides: list[Formula] = []
    stride: Formula = 1
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride = mul(stride, size)
    return strides


def _kept_axes(operation: mlir.Op) -> list[int]:
    """The axes of a subview's source that its result has; a rank-reducing subview drops unit axes."""
    source_sizes = mlir.integers(operation.attributes["static_sizes"])
    result_sizes = mlir.sizes_of(operation.results[0].type)
    if len(result_sizes) == len(source_sizes):
        return list(range(len(source_sizes)))
    axes: list[int] = []
    position = 0
    dropped = len(source_sizes) - len(result_sizes)
    for axis, size in enumerate(source_sizes):
        matches = position < len(result_sizes) and (
            result_sizes[position] == size or (result_sizes[position] is None and size < 0)
        )
        if (
            size == 1
            and dropped
            and not (matches and len(source_sizes) - axis == len(result_sizes) - position)
        ):
            dropped -= 1
            continue
        axes.append(axis)
        position += 1
    return axes


def affine(expression: mlir.AffineExpr, dims: int, codes: RecoveredSizes) -> tuple[list[Formula], Formula]:
    """Coefficients and constant of a linear affine expression; raises ``UnsupportedOp`` for others.

    Iterates over left operands, which nest as deeply as consecutive reversals; recurses into right operands.
    """
    root = expression
    pending: list[tuple[str, mlir.AffineExpr]] = []
    while len(parts := mlir.affine_parts(expression)) == 3:
        kind, expression, right = parts
        pending.append((kind, right))
    by_axis: list[Formula] = [0] * dims
    constant: Formula = 0
    match parts:
        case ("constant", number):
            constant = codes(number)
        case ("dim", position):
            by_axis[position] = 1
        case _:
            raise UnsupportedOp("linalg.generic", f"indexing expression {root}")
    for kind, right in reversed(pending):
        factors, number = affine(right, dims, codes)
        if kind == "add":
            by_axis = [add(x, y) for x, y in zip(by_axis, factors, strict=True)]
            constant = add(constant, number)
        elif any(factors):
            raise UnsupportedOp("linalg.generic", f"indexing expression {root}")
        else:
            by_axis, constant = [mul(x, number) for x in by_axis], mul(constant, number)
    return by_axis, constant


def linear(
    map_attribute: mlir.AffineMap, strides: list[Formula], dims: int, codes: RecoveredSizes
) -> tuple[list[Formula], Formula]:
    """Strides by loop axis and constant offset of an access through ``map_attribute``."""
    by_axis: list[Formula] = [0] * dims
    offset: Formula = 0
    for result, stride in zip(map_attribute.results, strides, strict=True):
        coefficients, constant = affine(result, dims, codes)
        offset = add(offset, mul(constant, stride))
        for axis, coefficient in enumerate(coefficients):
            by_axis[axis] = add(by_axis[axis], mul(coefficient, stride))
    return by_axis, offset
