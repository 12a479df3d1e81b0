"""Sort: a stable merge sort of each row, with any comparator.

Runs of a few elements are sorted by insertion, then pairs of runs are merged between the result and a second
buffer, starting with the one for which the last merge ends in the result. A merge takes the second element of
a pair only if the comparator orders it before the first.

One long row is sorted in chunks that are distributed over threads, whose length is that of a run after some
merges; then the merges of each width are distributed. Runs and merges are the same in every case, so the
result does not depend on threads, even for inconsistent comparators.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer, plus
from kcache_compiler.lower.sort_scatter.loop_builder import (
    MarkerOperands,
    Phase,
    compare,
    if_else_values,
    if_then,
    logical_and,
    loop,
    minimum,
    minus,
    while_loop,
)
from kcache_compiler.lower.sort_scatter.marker import MarkerLaunch, Walk
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula, apply, mul

#: Elements that are sorted by insertion.
_RUN = 16
#: The cost of an element in about ten merges, in elementary operations.
_WORK = 64
#: Merges inside of a chunk, an even number, and its elements; merge widths that are distributed over threads.
_INSIDE = 10
CHUNK = _RUN << _INSIDE
_SHARED = 10


def plan_sort(details: dict[str, Any], walks: list[Walk], checks: tuple[Check, ...]) -> MarkerLaunch:
    """The launch, whose steps are independent rows."""
    del details
    rows, length = walks[0].sizes
    work: Formula = mul(_WORK, length)
    return MarkerLaunch(rows, work, checks)


def write_sort(parts: MarkerOperands, details: dict[str, Any], bounds: tuple[mlir.Value, mlir.Value]) -> None:
    """Emit the loop over rows."""
    del details
    sort = _Sort(parts)
    loop(*bounds, sort.row)


def sort_phases(details: dict[str, Any], walks: list[Walk], checks: tuple[Check, ...]) -> list[Phase]:
    """The launches of a single row that is, or may be, long; none for other rows."""
    del details
    rows, length = walks[0].sizes
    if rows != 1 or (isinstance(length, int) and length < 2 * CHUNK):
        return []
    first = MarkerLaunch(apply("ceildiv", length, CHUNK), _WORK * CHUNK, checks)
    phases: list[Phase] = [(first, _chunks)]
    for level in range(_SHARED):
        width = CHUNK << level
        if not isinstance(length, int) or width < length:
            pairs = MarkerLaunch(apply("ceildiv", length, 2 * width), 2 * width, ())
            phases.append((pairs, partial(_pairs, level)))
    if not isinstance(length, int) or length > CHUNK << _SHARED:
        phases.append((MarkerLaunch(1, 1, ()), _rest))
    return phases


def _chunks(parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
    sort = _Sort(parts)
    loop(*bounds, sort.chunk)


def _pairs(level: int, parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
    _Sort(parts).pairs(level, bounds)


def _rest(parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
    sort = _Sort(parts)
    loop(*bounds, sort.rest)


class _Sort:
    """Emits a stable merge sort of rows: insertion sort of short runs, which are then merged."""

    def __init__(self, parts: MarkerOperands) -> None:
        self.parts = parts
        self.count = parts.inputs // 2
        self.length = parts.value(parts.walks[0].sizes[1])
        for walk in parts.walks:
            for stride in walk.strides:
                parts.value(stride)
        self.starts = [parts.start(number) for number in range(parts.inputs + 2 * self.count)]

    def row(self, number: mlir.Value) -> None:
        """Emit the sort of one row."""
        sources, bases, spare_bases = self._buffers(number)
        zero = mlir.constant(0)
        self._runs(sources, self._pointers(bases), zero, self.length)
        self._merges(bases, spare_bases, zero, self.length, mlir.constant(_RUN), self.length)

    def chunk(self, number: mlir.Value) -> None:
        """Emit the sort of a chunk of the only row."""
        sources, bases, spare_bases = self._buffers(mlir.constant(0))
        low = memory.times(number, mlir.constant(CHUNK))
        high = minimum(plus(low, mlir.constant(CHUNK)), self.length)
        self._runs(sources, self._pointers(bases), low, high)
        limit = minimum(mlir.constant(CHUNK), self.length)
        self._merges(bases, spare_bases, low, high, mlir.constant(_RUN), limit)

    def pairs(self, level: int, bounds: tuple[mlir.Value, mlir.Value]) -> None:
        """Emit the merges of runs of ``CHUNK << level`` elements, if there are several."""
        _, *sides = self._buffers(mlir.constant(0))
        sources, targets = (self._pointers(side) for side in (sides if level % 2 == 0 else sides[::-1]))
        width = mlir.constant(CHUNK << level)
        has_pairs = compare("lt", width, self.length)
        high = arith.select(has_pairs, bounds[1], bounds[0])

        def pair(number: mlir.Value) -> None:
            begin = memory.times(number, plus(width, width))
            self._pair(sources, targets, begin, width, self.length)

        loop(bounds[0], high, pair)

    def rest(self, _: mlir.Value) -> None:
        """Emit the merges of wider runs."""
        _sources, bases, spare_bases = self._buffers(mlir.constant(0))
        self._merges(
            bases, spare_bases, mlir.constant(0), self.length, mlir.constant(CHUNK << _SHARED), self.length
        )

    def _buffers(self, number: mlir.Value) -> tuple[list[Pointer], list[mlir.Value], list[mlir.Value]]:
        """The operands of a row, the buffers of its initial runs, and the other buffers.

        The initial buffers are chosen so that the last merge ends in the result.
        """
        sources, results, spares = (
            [self._row(self.count * group + operand, number) for operand in range(self.count)]
            for group in (0, 2, 3)
        )
        even = self._even()
        bases = [arith.select(even, a.base, b.base) for a, b in zip(results, spares, strict=True)]
        spare_bases = [arith.select(even, b.base, a.base) for a, b in zip(results, spares, strict=True)]
        return sources, bases, spare_bases

    def _row(self, operand: int, number: mlir.Value) -> Pointer:
        start, strides = self.starts[operand], self.parts.walks[operand].strides
        base = memory.shift(start, memory.times(number, self.parts.value(strides[0])))
        return Pointer(base, start.element, [self.parts.value(strides[1])])

    def _even(self) -> mlir.Value:
        """Whether the number of merge passes over the row is even."""

        def double(values: list[mlir.Value]) -> list[mlir.Value]:
            width, even = values
            flipped = arith.xori(even, mlir.constant(-1, "i1"))
            return [plus(width, width), flipped]

        start = [mlir.constant(_RUN), mlir.constant(-1, "i1")]
        return while_loop(start, lambda values: compare("lt", values[0], self.length), double)[1]

    def _first(self, firsts: list[mlir.Value], seconds: list[mlir.Value]) -> mlir.Value:
        """Whether the comparator orders ``firsts`` before ``seconds``."""
        return self.parts.apply([*firsts, *seconds, *firsts, *seconds, None])[-1]

    def _runs(
        self, sources: list[Pointer], targets: list[Pointer], low: mlir.Value, high: mlir.Value
    ) -> None:
        """Emit the sorted runs of ``low <= i < high`` in ``targets``."""

        def insert(place: mlir.Value) -> None:
            """Move the element at ``place`` to its position in the sorted part of its run."""
            elements = [memory.load(source, memory.times(place, source.steps[0])) for source in sources]
            run_offset = arith.andi(place, mlir.constant(_RUN - 1))
            start = minus(place, run_offset)

            def further(values: list[mlir.Value]) -> mlir.Value:
                (at,) = values
                previous = minus(at, mlir.constant(1))

                def ask() -> list[mlir.Value]:
                    return [self._first(elements, [memory.load(target, previous) for target in targets])]

                truth = mlir.type_of("i1")
                has_previous = compare("gt", at, start)
                return if_else_values(has_previous, [truth], ask, lambda: [mlir.constant(0, "i1")])[0]

            def move(values: list[mlir.Value]) -> list[mlir.Value]:
                (at,) = values
                previous = minus(at, mlir.constant(1))
                for target in targets:
                    memory.store(target, at, memory.load(target, previous))
                return [previous]

            (spot,) = while_loop([place], further, move)
            for target, element in zip(targets, elements, strict=True):
                memory.store(target, spot, element)

        loop(low, high, insert)

    def _merges(
        self,
        bases: list[mlir.Value],
        spare_bases: list[mlir.Value],
        low: mlir.Value,
        high: mlir.Value,
        width: mlir.Value,
        limit: mlir.Value,
    ) -> None:
        """Emit merges of ``low`` to ``high``, from runs of ``width`` up to ``limit``."""
        count = self.count

        def pass_over(values: list[mlir.Value]) -> list[mlir.Value]:
            width = values[0]
            sources, targets = (self._pointers(side) for side in (values[1 : count + 1], values[count + 1 :]))
            twice = plus(width, width)

            def pair(begin: list[mlir.Value]) -> list[mlir.Value]:
                self._pair(sources, targets, begin[0], width, high)
                return [plus(begin[0], twice)]

            while_loop([low], lambda begin: compare("lt", begin[0], high), pair)
            return [twice, *values[count + 1 :], *values[1 : count + 1]]

        while_loop([width, *bases, *spare_bases], lambda values: compare("lt", values[0], limit), pass_over)

    def _pair(
        self,
        sources: list[Pointer],
        targets: list[Pointer],
        begin: mlir.Value,
        width: mlir.Value,
        high: mlir.Value,
    ) -> None:
        middle = minimum(plus(begin, width), high)
        end = minimum(plus(begin, plus(width, width)), high)
        self._merge(sources, targets, begin, middle, end)

    def _pointers(self, bases: list[mlir.Value]) -> list[Pointer]:
        elements = [start.element for start in self.starts[: self.count]]
        return [Pointer(base, element, []) for base, element in zip(bases, elements, strict=True)]

    def _merge(
        self,
        sources: list[Pointer],
        targets: list[Pointer],
        begin: mlir.Value,
        middle: mlir.Value,
        end: mlir.Value,
    ) -> None:
        """Emit the stable merge of two adjacent sorted runs, split at ``middle``, into ``targets``."""

        def open_both(values: list[mlir.Value]) -> mlir.Value:
            return logical_and(compare("lt", values[0], middle), compare("lt", values[1], end))

        def step(values: list[mlir.Value]) -> list[mlir.Value]:
            left, right, at = values
            left_elements = [memory.load(source, left) for source in sources]
            right_elements = [memory.load(source, right) for source in sources]
            swap = self._first(right_elements, left_elements)
            for target, a, b in zip(targets, left_elements, right_elements, strict=True):
                raw = [memory.to_carried(value) for value in (b, a)]  # a select of bf16 would call a library
                chosen = arith.select(swap, *raw)
                memory.store(target, at, memory.from_carried(chosen, a.type))
            moved = arith.extui(left.type, swap)
            one = mlir.constant(1)
            return [plus(left, minus(one, moved)), plus(right, moved), plus(at, one)]

        left, right, at = while_loop([begin, middle, begin], open_both, step)
        self._copy(sources, targets, left, middle, at)
        self._copy(sources, targets, right, end, plus(at, minus(middle, left)))

    def _copy(
        self,
        sources: list[Pointer],
        targets: list[Pointer],
        begin: mlir.Value,
        end: mlir.Value,
        at: mlir.Value,
    ) -> None:
        """Copy ``begin <= i < end`` of the sources to ``at``."""
        shift = minus(at, begin)

        def one_element(place: mlir.Value) -> None:
            for source, target in zip(sources, targets, strict=True):
                memory.store(target, plus(place, shift), memory.load(source, place))

        if_then(compare("lt", begin, end), lambda: loop(begin, end, one_element))
