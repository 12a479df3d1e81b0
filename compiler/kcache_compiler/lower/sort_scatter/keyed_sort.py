"""The launch of a sort by keys: sorts the words of a row, then gathers elements by their positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.loops.segment import carry
from kcache_compiler.lower.sort_scatter.bitonic import PADDING, network_name, network_text
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
from kcache_compiler.mlir.dialects import arith, scf
from kcache_compiler.passes.legalize.comparators import FLOATS
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula, apply, mul

#: The cost of an element, in elementary operations.
_WORK = 32
#: The mask of a word's position.
PLACES = (1 << 32) - 1
#: Maximum number of words that are sorted by a network, if the target has their minimum, and if not.
FEW, FEW_EMULATED = 2048, 512


def plan_keyed(details: dict[str, Any], walks: list[Walk], checks: tuple[Check, ...]) -> MarkerLaunch:
    """The launch, whose steps are independent rows."""
    rows, length = walks[0].sizes
    places = Check(length, PLACES, equal=False)
    if not places.holds:
        checks = (*checks, places)
    return MarkerLaunch(rows, mul(_WORK, length), checks, scratch=mul(2, area_of(details, length)))


def area_of(details: dict[str, Any], length: Formula) -> Formula:
    """The bytes of the words of a row, including the padding of a row, if only of none, for a network."""
    words = Words(details["key"])
    is_long = isinstance(length, int) and length > MOST
    padded = length if is_long else apply("roundup", apply("max", 1, length), PADDING)
    return apply("roundup", mul(words.bytes, padded), 64)


def write_keyed(
    parts: MarkerOperands, details: dict[str, Any], bounds: tuple[mlir.Value, mlir.Value]
) -> None:
    """Emit the loop over rows."""
    loop(*bounds, Keyed(parts, details).row)


class Keyed:
    """Emits the sort of rows in scratch memory, which has two areas of ``area_of`` bytes."""

    def __init__(self, parts: MarkerOperands, details: dict[str, Any]) -> None:
        self.parts = parts
        self.details = details
        self.few = FEW if parts.vector_bytes >= 64 and details["key"] < 64 else FEW_EMULATED
        self.sources: list[int] = details["results"]
        self.words = Words(details["key"])
        self.size, self.first = parts.walks[0].sizes[1], parts.walks[parts.inputs].sizes[1]
        self.length = parts.value(self.size)
        for walk in parts.walks:
            for formula in (*walk.sizes, *walk.strides):
                parts.value(formula)
        self.starts = [parts.start(number) for number in range(parts.inputs + len(self.sources))]
        self.given, self.sorted = (
            self._arrays(parts.value(offset)) for offset in (0, area_of(details, self.size))
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
        if not self._sorts_values(inputs):
            self._row_by_words(inputs, results)
            return
        is_long = compare("gt", self.length, mlir.constant(self._most()))
        (by_words,) = if_else_values(
            is_long, [is_long.type], lambda: [is_long], lambda: [self._store_keys(inputs)]
        )
        choice = mlir.if_else(by_words, [])
        with mlir.at_end(mlir.block_of(choice, 0)):
            self._row_by_words(inputs, results)
            scf.yield_([])
        with mlir.at_end(mlir.block_of(choice, 1)):
            self._sort_keys(results)
            scf.yield_([])

    def _row_by_words(self, inputs: list[Pointer], results: list[Pointer]) -> None:
        loop(mlir.constant(0), self.length, lambda place: self.note(place, inputs))
        places = self._order()[-1]

        count = self.parts.value(self.first)
        loop(mlir.constant(0), count, lambda at: self.fetch(at, places, inputs, results))

    def _sorts_values(self, inputs: list[Pointer]) -> bool:
        """Whether rows may be sorted as keys without positions."""
        if not sorts_values(self.details, inputs):
            return False
        if not isinstance(self.size, int):
            return True
        return LEAST <= self.size <= self._most() and not self._keeps_least()

    def _most(self) -> int:
        return most(self.details, self.parts.vector_bytes)

    def _keeps_least(self) -> bool:
        size, first = self.size, self.first
        return isinstance(size, int) and isinstance(first, int) and self.words.keeps_least(first, size)

    def _keys(self) -> Pointer:
        """The keys of a row without positions."""
        bits = network_bits(self.details)
        return Pointer(self.given[0].base, mlir.type_of(f"i{bits}"), [])

    def _store_keys(self, inputs: list[Pointer]) -> mlir.Value:
        """Store the keys of a row; returns whether an element is not the one of its key."""
        (row,), keys, bits = inputs, self._keys(), self.details["key"]
        zero = mlir.constant(0, f"i{bits}")

        def store(place: mlir.Value, state: dict[str, mlir.Value]) -> dict[str, mlir.Value]:
            element = memory.load(row, memory.times(place, row.steps[0]))
            key = self._key([element])
            memory.store(keys, place, stored(key))
            other = element_of(key, element.type, self.details)
            return {"differ": arith.ori(state["differ"], difference(element, other, bits))}

        differ = carry((mlir.constant(0), self.length), 1, {"differ": zero}, store)["differ"]
        return arith.cmpi(arith.CmpIPredicate.ne, differ, zero)

    def _sort_keys(self, results: list[Pointer]) -> None:
        """Sort the keys of a row, and store their elements."""
        (result,), keys = results, self._keys()
        bits = network_bits(self.details)
        self._sort_by_network(keys.base, bits)

        def store(at: mlir.Value) -> None:
            key = memory.narrow(memory.load(keys, at), mlir.type_of(f"i{self.details['key']}"))
            element = element_of(key, result.element, self.details)
            memory.store(result, memory.times(at, result.steps[0]), element)

        loop(mlir.constant(0), self.parts.value(self.first), store)

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
        key = self._key(self._elements(place, inputs))
        if self.words.bits == 64:
            memory.store(self.given[0], place, key)
            memory.store(self.given[1], place, memory.narrow(place, self.given[1].element))
            return
        high = arith.shli(memory.wide(key), mlir.constant(self.words.shift))
        memory.store(self.given[0], place, arith.ori(high, place))

    def _elements(self, place: mlir.Value, inputs: list[Pointer]) -> list[mlir.Value | None]:
        """The elements at ``place``; None of operands that the key does not use."""
        arguments = mlir.block_of(self.parts.generic).arguments
        return [
            memory.load(input_row, memory.times(place, input_row.steps[0])) if list(argument.uses) else None
            for input_row, argument in zip(inputs, arguments, strict=False)
        ]

    def _key(self, elements: list[mlir.Value | None]) -> mlir.Value:
        count = len(list(mlir.block_of(self.parts.generic).arguments))
        return self.parts.apply([*elements, *[None] * (count - len(elements))])[-1]

    def _order(self) -> list[Pointer]:
        """Sort the words; returns the arrays that hold them afterwards."""
        words, size = self.words, self.size
        from_, to = ([pointer.base for pointer in side] for side in (self.given, self.sorted))
        if self._keeps_least():
            least = [*from_, *to, self.length, self.parts.value(self.first)]
            self.call(words.least_name, least, least_text)
            return self.sorted
        if isinstance(size, int):
            moved = self._few() if size <= self.few else self._many()
        else:
            small = compare("le", self.length, mlir.constant(self.few))
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
        self._sort_by_network(bases[0], 64)
        return mlir.constant(0, "i1")

    def _sort_by_network(self, base: mlir.Value, bits: int) -> None:
        """Sort the integers at ``base``, as many as a row has elements."""
        self.parts.library[network_name(bits)] = network_text(bits)
        mlir.call_llvm(network_name(bits), [base, self.length], "")

    def _many(self) -> mlir.Value:
        bases = [pointer.base for pointer in (*self.given, *self.sorted)]
        return self.call(self.words.name, [*bases, self.length], sort_text, "i1")

    def call(
        self, name: str, operands: list[mlir.Value], text: Callable[[Words], str], result: str = ""
    ) -> mlir.Value:
        self.parts.library[name] = text(self.words)
        return mlir.call_llvm(name, operands, result)


#: Minimum and maximum number of elements of a row that is sorted as keys only.
LEAST, MOST = 17, 1 << 16
#: The maximum by bits of a key (at least 8), for vectors of up to 16 and 32 bytes, and longer ones: a radix
#: sort takes a pass for each byte of a key, and the network more instructions for shorter vectors.
_MOST = {
    8: (512, 512, 512),
    16: (1 << 11, 1 << 12, MOST),
    32: (1 << 14, MOST, MOST),
    64: (1 << 10, 1 << 12, MOST),
}


def sorts_values(details: dict[str, Any], inputs: list[Pointer]) -> bool:
    """Whether the only result of a keyed sort is its only operand, of elements as wide as the key."""
    if len(inputs) != 1 or details["results"] != [0]:
        return False
    element, bits = str(inputs[0].element), details["key"]
    return element == f"i{bits}" or FLOATS.get(element, (0,))[0] == bits


def most(details: dict[str, Any], vector_bytes: int) -> int:
    """The maximum number of elements of a row that is sorted as keys only on a target with such vectors."""
    short, middle, long = _MOST[max(8, details["key"])]
    return long if vector_bytes > 32 else middle if vector_bytes > 16 else short


def element_of(key: mlir.Value, element: mlir.Type, details: dict[str, Any]) -> mlir.Value:
    """The element of a key, an integer of as many bits: one of those that have it."""
    bits = details["key"]
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def constant(number: int) -> mlir.Value:
        return mlir.constant(number, f"i{bits}")

    if details["descending"]:
        key = arith.xori(key, constant(-1))
    if details["order"] != "UNSIGNED":
        key = arith.xori(key, constant(least))
    if str(element) not in FLOATS:
        return key
    sign = arith.shrsi(key, constant(bits - 1))
    if details["order"] == "TOTALORDER":
        key = arith.xori(key, arith.andi(sign, constant(most)))
    else:
        key = arith.ori(arith.subi(arith.xori(key, sign), sign), arith.andi(sign, constant(least)))
    return arith.bitcast(element, key)


def difference(element: mlir.Value, other: mlir.Value, bits: int) -> mlir.Value:
    """Nonzero if the bits of two elements differ."""
    kind = mlir.type_of(f"i{bits}")
    values = [value if value.type == kind else arith.bitcast(kind, value) for value in (element, other)]
    return arith.xori(*values)


def stored(key: mlir.Value) -> mlir.Value:
    """A key as an integer of the network, of 32 or 64 bits."""
    kind = mlir.type_of("i32")
    return key if str(key.type) in ("i32", "i64") else arith.extui(kind, key)


def network_bits(details: dict[str, Any]) -> int:
    return max(32, details["key"])
