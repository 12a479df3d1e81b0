"""The launch of a sort by keys: sorts the words of a row, then gathers elements by their positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.sort_scatter.bitonic import FEW, network_text
from kcache_compiler.lower.sort_scatter.loop_builder import (
    MarkerOperands,
    compare,
    if_else_values,
    logical_and,
    loop,
)
from kcache_compiler.lower.sort_scatter.marker import MarkerLaunch, Walk
from kcache_compiler.lower.sort_scatter.radix import Words, counted_text, least_text, sort_text
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula, apply, mul

#: The cost of an element, in elementary operations.
_WORK = 32
#: The mask of a word's position.
PLACES = (1 << 32) - 1


def plan_keyed(details: dict[str, Any], walks: list[Walk], checks: tuple[Check, ...]) -> MarkerLaunch:
    """The launch, whose steps are independent rows."""
    rows, length = walks[0].sizes
    places = Check(length, PLACES, equal=False)
    if not places.holds:
        checks = (*checks, places)
    return MarkerLaunch(rows, mul(_WORK, length), checks, scratch=mul(2, half_of(details, length)))


def half_of(details: dict[str, Any], length: Formula) -> Formula:
    """The bytes of the words of a row, including the padding of a sorting network."""
    words = Words(details["key"])
    least = 0 if isinstance(length, int) and length > FEW else words.bytes * FEW
    return apply("roundup", apply("max", least, mul(words.bytes, length)), 64)


def write_keyed(
    parts: MarkerOperands, details: dict[str, Any], bounds: tuple[mlir.Value, mlir.Value]
) -> None:
    """Emit the loop over rows."""
    loop(*bounds, Keyed(parts, details).row)


class Keyed:
    """Emits the sort of rows in scratch memory, which has two halves of ``half_of`` bytes."""

    def __init__(self, parts: MarkerOperands, details: dict[str, Any]) -> None:
        self.parts = parts
        self.sources: list[int] = details["results"]
        self.words = Words(details["key"])
        self.size, self.first = parts.walks[0].sizes[1], parts.walks[parts.inputs].sizes[1]
        self.length = parts.value(self.size)
        for walk in parts.walks:
            for formula in (*walk.sizes, *walk.strides):
                parts.value(formula)
        self.starts = [parts.start(number) for number in range(parts.inputs + len(self.sources))]
        self.given, self.sorted = (
            self._arrays(parts.value(offset)) for offset in (0, half_of(details, self.size))
        )

    def _arrays(self, offset: mlir.Value) -> list[Pointer]:
        """The arrays of words, or of keys and positions, at ``offset`` bytes of scratch memory."""
        assert self.parts.scratch is not None
        kinds = [mlir.type_of(kind) for kind in self.words.arrays]
        arrays = [Pointer(memory.advance(self.parts.scratch, mlir.type_of("i8"), offset), kinds[0], [])]
        for kind in kinds[1:]:
            arrays.append(Pointer(memory.shift(arrays[0], self.length), kind, []))
        return arrays

    def row(self, number: mlir.Value) -> None:
        """Emit the sort of one row."""
        inputs, results = self.operands(number)
        loop(mlir.constant(0), self.length, lambda place: self.note(place, inputs))
        places = self._order()[-1]

        count = self.parts.value(self.first)
        loop(mlir.constant(0), count, lambda at: self.fetch(at, places, inputs, results))

    def fetch(self, at: mlir.Value, places: Pointer, inputs: list[Pointer], results: list[Pointer]) -> None:
        """Store element ``at`` of all results, whose word is in ``places``."""
        word = memory.load(places, at)
        place = memory.wide(word) if self.words.bits == 64 else logical_and(word, mlir.constant(PLACES))
        for result, source in zip(results, self.sources, strict=True):
            to = memory.times(at, result.steps[0])
            if source < 0:
                memory.store(result, to, memory.narrow(place, result.element))
            else:
                input_row = inputs[source]
                memory.store(result, to, memory.load(input_row, memory.times(place, input_row.steps[0])))

    def operands(self, number: mlir.Value) -> tuple[list[Pointer], list[Pointer]]:
        """The inputs and results of a row."""
        rows = [self._row(operand, number) for operand in range(len(self.starts))]
        return rows[: self.parts.inputs], rows[self.parts.inputs :]

    def _row(self, operand: int, number: mlir.Value) -> Pointer:
        start, strides = self.starts[operand], self.parts.walks[operand].strides
        base = memory.shift(start, memory.times(number, self.parts.value(strides[0])))
        return Pointer(base, start.element, [self.parts.value(strides[1])])

    def note(self, place: mlir.Value, inputs: list[Pointer]) -> None:
        """Store the word of an element."""
        arguments = list(mlir.block_of(self.parts.generic).arguments)
        elements = [
            memory.load(input_row, memory.times(place, input_row.steps[0])) if list(argument.uses) else None
            for input_row, argument in zip(inputs, arguments, strict=False)
        ]
        key = self.parts.apply([*elements, *[None] * (len(arguments) - len(elements))])[-1]
        if self.words.bits == 64:
            memory.store(self.given[0], place, key)
            memory.store(self.given[1], place, memory.narrow(place, self.given[1].element))
            return
        high = arith.shli(memory.wide(key), mlir.constant(self.words.shift))
        memory.store(self.given[0], place, arith.ori(high, place))

    def _order(self) -> list[Pointer]:
        """Sort the words; returns the arrays that hold them afterwards."""
        words, size, first = self.words, self.size, self.first
        from_, to = ([pointer.base for pointer in side] for side in (self.given, self.sorted))
        if isinstance(size, int) and isinstance(first, int) and words.keeps_least(first, size):
            least = [*from_, *to, self.length, mlir.constant(first)]
            self.call(words.least_name, least, least_text)
            return self.sorted
        if isinstance(size, int):
            moved = self._few() if size <= FEW else self._many()
        else:
            small = compare("le", self.length, mlir.constant(FEW))
            (moved,) = if_else_values(
                small, [mlir.type_of("i1")], lambda: [self._few()], lambda: [self._many()]
            )
        return [
            Pointer(arith.select(moved, b.base, a.base), a.element, [])
            for a, b in zip(self.given, self.sorted, strict=True)
        ]

    def _few(self) -> mlir.Value:
        """Sort a few words; returns whether they moved to the other arrays."""
        bases = [pointer.base for pointer in self.given]
        if self.words.bits == 64:
            bases += [pointer.base for pointer in self.sorted]
            self.call(self.words.few_name, [*bases, self.length], counted_text)
            return mlir.constant(-1, "i1")
        self.call(self.words.few_name, [*bases, self.length], network_text)
        return mlir.constant(0, "i1")

    def _many(self) -> mlir.Value:
        bases = [pointer.base for pointer in (*self.given, *self.sorted)]
        return self.call(self.words.name, [*bases, self.length], sort_text, "i1")

    def call(
        self, name: str, operands: list[mlir.Value], text: Callable[[Words], str], result: str = ""
    ) -> mlir.Value:
        self.parts.library[name] = text(self.words)
        return mlir.call_llvm(name, operands, result)
