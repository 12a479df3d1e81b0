"""Scatter: each element of the updates, in order, is combined with an element of the operand.

Windows are clipped to the operand, and to the slice of the operand that the caller computes: every thread
iterates over all index vectors and writes its own part of the operand. Updates of one element are therefore
applied in order, with any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.sort_scatter.loop_builder import (
    MarkerOperands,
    compare,
    if_then,
    logical_and,
    loop,
    maximum,
    minimum,
    minus,
)
from kcache_compiler.lower.sort_scatter.marker import MarkerLaunch, Walk, zero_constant
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula, mul, product

#: Minimum number of elements of a window: with fewer, threads would mostly read indices.
_NARROW = 8


@dataclass(frozen=True)
class _Numbers:
    """Dimension numbers, in the form that the loops use."""

    #: Axes of the updates that iterate over index vectors, and the corresponding axes of the indices.
    scattered: tuple[int, ...]
    places: tuple[int, ...]
    #: The axis of index vectors in the indices; None if each is one element.
    vector: int | None
    #: For each axis of the operand: the window axis of the updates, or None.
    windows: tuple[int | None, ...]
    #: For each axis of the operand: the element of the index vector, or the batch loop, that indexes it.
    indexed: tuple[int | None, ...]
    batched: tuple[int | None, ...]


def _numbers(details: dict[str, Any], operand: Walk, updates: Walk) -> _Numbers:
    window = details["update_window_dims"]
    scattered = tuple(axis for axis in range(len(updates.sizes)) if axis not in window)
    vector = details["index_vector_dim"]
    places = tuple(axis for axis in range(details["rank"]) if axis != vector)
    without_window = {*details["inserted_window_dims"], *details["input_batching_dims"]}
    window_axes = iter(sorted(window))
    windows = tuple(
        None if axis in without_window else next(window_axes) for axis in range(len(operand.sizes))
    )
    moved = details["scatter_dims_to_operand_dims"]
    indexed = tuple(moved.index(axis) if axis in moved else None for axis in range(len(operand.sizes)))
    batches = dict(zip(details["input_batching_dims"], details["scatter_indices_batching_dims"], strict=True))
    batched = tuple(
        places.index(batches[axis]) if axis in batches else None for axis in range(len(operand.sizes))
    )
    vector_axis = vector if vector < details["rank"] else None
    return _Numbers(scattered, places, vector_axis, windows, indexed, batched)


def _roles(details: dict[str, Any], walks: list[Walk]) -> _Numbers:
    return _numbers(details, walks[-1], walks[1])


def plan_scatter(details: dict[str, Any], walks: list[Walk], checks: tuple[Check, ...]) -> MarkerLaunch:
    """The launch, which is sliced along one axis of the operand."""
    numbers, operand, updates = _roles(details, walks), walks[-1], walks[1]
    axis = _sliced(numbers, operand)
    if axis is None:
        return MarkerLaunch(1, 1, checks, alone=True)
    windows = [updates.sizes[window] for window in numbers.windows if window is not None]
    wide = _size(product(windows)) >= _NARROW or numbers.windows[axis] is not None
    work: Formula = 1
    for place, size in enumerate(updates.sizes):
        if place != numbers.windows[axis]:
            work = mul(work, size)
    return MarkerLaunch(operand.sizes[axis], work, checks, alone=not wide)


def _size(size: Formula) -> int:
    """A size for comparisons; dynamic sizes count as large."""
    return size if isinstance(size, int) else 4096


def _sliced(numbers: _Numbers, operand: Walk) -> int | None:
    """The axis of the operand to slice: an axis that is not indexed, else a batch axis, else the longest."""
    axes = range(len(operand.sizes))
    if not axes:
        return None

    def preference(axis: int) -> tuple[int, int, int]:
        is_invariant = numbers.windows[axis] is not None and numbers.indexed[axis] is None
        size = _size(operand.sizes[axis])
        rank = 2 if is_invariant and size >= 2 * _NARROW else 1 if numbers.batched[axis] is not None else 0
        return rank, size, -axis

    return max(axes, key=preference)


def write_scatter(
    parts: MarkerOperands, details: dict[str, Any], bounds: tuple[mlir.Value, mlir.Value]
) -> None:
    """Emit the loops over index vectors, then over the part of the window that is in bounds."""
    _Scatter(parts, _roles(details, parts.walks), bool(details["unsigned"]), bounds).write()


class _Scatter:
    """Emits the loops of a scatter over index vectors, clipped to the part of the operand of a thread."""

    def __init__(
        self, parts: MarkerOperands, numbers: _Numbers, unsigned: bool, bounds: tuple[mlir.Value, mlir.Value]
    ) -> None:
        self.parts = parts
        self.numbers = numbers
        self.unsigned = unsigned
        self.count = parts.inputs - 2
        self.operand, self.updates = parts.walks[-1], parts.walks[1]
        axis = _sliced(numbers, self.operand)
        self.limits = [(mlir.constant(0), parts.value(size)) for size in self.operand.sizes]
        if axis is not None:
            self.limits[axis] = bounds
        for walk in parts.walks:
            for formula in (*walk.sizes, *walk.strides):
                parts.value(formula)
        self.starts = [parts.start(number) for number in range(len(parts.walks))]

    def write(self) -> None:
        self._leading({})

    def _leading(self, counters: dict[int, mlir.Value]) -> None:
        """Emit the loops over the axes of the updates up to the last that iterates over index vectors."""
        axis = len(counters)
        if axis > max(self.numbers.scattered, default=-1):
            self._window(counters)
            return
        low, high = mlir.constant(0), self.parts.value(self.updates.sizes[axis])
        if axis in self.numbers.windows:
            moved = self.numbers.windows.index(axis)
            if self.numbers.indexed[moved] is None:
                low, high = self.limits[moved][0], minimum(high, self.limits[moved][1])
        loop(low, high, lambda counter: self._leading({**counters, axis: counter}))

    def _window(self, counters: dict[int, mlir.Value]) -> None:
        """Emit the window of one index vector, if it is in bounds."""
        places = [self._place(axis, counters) for axis in range(len(self.operand.sizes))]
        in_bounds: mlir.Value | None = None
        for axis, place in enumerate(places):
            update = self.numbers.windows[axis]
            if update is not None and update in counters:
                places[axis] = place = memory.plus(place, counters[update])
            elif update is not None:
                continue
            low, high = self.limits[axis]
            axis_in_bounds = logical_and(compare("ge", place, low), compare("lt", place, high))
            in_bounds = axis_in_bounds if in_bounds is None else logical_and(in_bounds, axis_in_bounds)
        if in_bounds is None:
            self._cells(0, places, counters)
        else:
            if_then(in_bounds, lambda: self._cells(0, places, counters))

    def _place(self, axis: int, counters: dict[int, mlir.Value]) -> mlir.Value:
        """The start of an index vector's window along an axis of the operand."""
        element, batch = self.numbers.indexed[axis], self.numbers.batched[axis]
        if batch is not None:
            return counters[self.numbers.scattered[batch]]
        if element is None:
            return mlir.constant(0)
        offset = mlir.constant(0)
        for update, place in zip(self.numbers.scattered, self.numbers.places, strict=True):
            offset = memory.plus(offset, memory.times(counters[update], self._stride(0, place)))
        if self.numbers.vector is not None:
            step = memory.times(mlir.constant(element), self._stride(0, self.numbers.vector))
            offset = memory.plus(offset, step)
        return self._wide(memory.load(self.starts[0], offset))

    def _wide(self, index: mlir.Value) -> mlir.Value:
        """An index as i64; unsigned values beyond its range stay out of bounds."""
        if str(index.type) != "i64":
            extend = arith.extui if self.unsigned else arith.extsi
            return extend(memory.i64(), index)
        if not self.unsigned:
            return index
        beyond = mlir.constant(2**62)
        return arith.select(compare("lt", index, mlir.constant(0)), beyond, minimum(index, beyond))

    def _stride(self, number: int, axis: int) -> mlir.Value:
        return self.parts.value(self.parts.walks[number].strides[axis])

    def _cells(self, axis: int, places: list[mlir.Value], counters: dict[int, mlir.Value]) -> None:
        """Emit the remaining loops over the window, from operand axis ``axis`` inwards."""
        if axis == len(places):
            self._combine(places, counters)
            return
        update = self.numbers.windows[axis]
        if update is None or update in counters:
            self._cells(axis + 1, places, counters)
            return
        low, high = (minus(limit, places[axis]) for limit in self.limits[axis])
        first = maximum(mlir.constant(0), low)
        last = minimum(self.parts.value(self.updates.sizes[update]), high)

        def cell(counter: mlir.Value) -> None:
            moved = [*places[:axis], memory.plus(places[axis], counter), *places[axis + 1 :]]
            self._cells(axis + 1, moved, {**counters, update: counter})

        loop(first, last, cell)

    def _combine(self, places: list[mlir.Value], counters: dict[int, mlir.Value]) -> None:
        index_argument = mlir.block_of(self.parts.generic).arguments[0]
        values: list[mlir.Value | None] = [zero_constant(index_argument.type)]
        offsets: list[mlir.Value] = []
        values += [
            memory.load(self.starts[number], self._offset(number, list(counters.items())))
            for number in range(1, self.count + 1)
        ]
        values.append(None)
        for number in range(self.parts.inputs, self.parts.inputs + self.count):
            offsets.append(self._offset(number, list(enumerate(places))))
            values.append(memory.load(self.starts[number], offsets[-1]))
        results = self.parts.apply(values)
        for number, (offset, result) in enumerate(zip(offsets, results, strict=True), self.parts.inputs):
            memory.store(self.starts[number], offset, result)

    def _offset(self, number: int, indices: list[tuple[int, mlir.Value]]) -> mlir.Value:
        offset = mlir.constant(0)
        for axis, index in indices:
            offset = memory.plus(offset, memory.times(index, self._stride(number, axis)))
        return offset
