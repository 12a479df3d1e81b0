"""Parallel radix sort of one long row by keys, in chunks.

Words are in memory that all workers share. For each digit of the keys, one launch computes the histogram of
every chunk, the next moves the words of each chunk to their positions, which follow from all histograms.
Words are distinct, so the result does not depend on the number of chunks. If few elements are read, each
chunk selects its least words, and a further launch the least of those.

A thread that gets all chunks of the first launch sorts the row like a short one, in fewer steps; the other
launches are then empty.
"""

from __future__ import annotations

from typing import Any

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer, plus, times
from kcache_compiler.lower.sort_scatter.keyed_sort import PLACES, Keyed, area_of, plan_keyed
from kcache_compiler.lower.sort_scatter.loop_builder import (
    MarkerOperands,
    Phase,
    Write,
    compare,
    if_then,
    logical_and,
    loop,
    minimum,
    minus,
)
from kcache_compiler.lower.sort_scatter.marker import MarkerLaunch, Walk
from kcache_compiler.lower.sort_scatter.radix import DIGITS, Words, digit_of, least_text, widened
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula, add, apply, mul

#: Minimum elements of a chunk, and maximum number of chunks: each reads the histograms of all.
CHUNK, CHUNKS = 1 << 16, 64


def long_phases(details: dict[str, Any], walks: list[Walk], checks: tuple[Check, ...] = ()) -> list[Phase]:
    """The launches of a single row that is, or may be, long; none for other rows."""
    rows, length = walks[0].sizes
    if rows != 1 or (isinstance(length, int) and not 2 * CHUNK <= length <= PLACES):
        return []
    chunks = _Chunks(details, length)
    steps = MarkerLaunch(chunks.count, CHUNK, plan_keyed(details, walks, checks).checks, shared=chunks.bytes)
    row = chunks.alone
    first = walks[-2].sizes[1]  # of a result; the last operand is the key
    if isinstance(first, int) and isinstance(length, int) and chunks.words.keeps_least(first, length):
        last = MarkerLaunch(1, 1, (), shared=chunks.bytes)
        return [(steps, row(chunks.keep)), (last, chunks.unless_done(chunks.gather))]
    digits = range(chunks.words.bits // 8)
    passes = [write for digit in digits for write in (chunks.counting(digit), chunks.moving(digit))]
    passes = [(steps, chunks.unless_done(write)) for write in (*passes, chunks.fetch)]
    return [(steps, row(chunks.note)), *passes]


class _Chunks:
    """The layout of shared memory: words twice, histograms of chunks, moved flags by digit, done flag."""

    def __init__(self, details: dict[str, Any], length: Formula) -> None:
        self.details, self.length = details, length
        self.words = Words(details["key"])
        self.chunk = apply("max", CHUNK, apply("ceildiv", length, CHUNKS))
        self.count = apply("ceildiv", length, self.chunk)
        self.table = mul(2, area_of(details, length))
        self.moved = add(self.table, mul(4 * DIGITS, self.count))
        self.done = add(self.moved, 8 * (self.words.bits // 8 + 1))
        self.bytes: Formula = apply("roundup", add(self.done, 8), 64)

    def _keyed(self, parts: MarkerOperands) -> Keyed:
        """The row, after emitting sizes before all loops."""
        for formula in (self.length, self.chunk, self.count, self.table, self.moved, self.done):
            parts.value(formula)
        return Keyed(parts, self.details)

    def _at(self, parts: MarkerOperands, offset: Formula, extra: int = 0) -> mlir.Value:
        assert parts.shared is not None
        place = plus(mlir.constant(extra), parts.value(offset))
        return memory.advance(parts.shared, mlir.type_of("i8"), place)

    def _bounds(
        self, parts: MarkerOperands, number: mlir.Value, length: mlir.Value
    ) -> tuple[mlir.Value, mlir.Value]:
        chunk = parts.value(self.chunk)
        low = times(number, chunk)
        return minimum(low, length), minimum(plus(low, chunk), length)

    def alone(self, write: Write) -> Write:
        """The first launch: sorts the whole row if the range includes all chunks."""

        def either_way(parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
            keyed = self._keyed(parts)
            done_flag = Pointer(self._at(parts, self.done), memory.i64(), [])
            moved = Pointer(self._at(parts, self.moved), memory.i64(), [])
            low, high = bounds
            zero, true = mlir.constant(0), mlir.constant(1)
            is_first = compare("eq", low, zero)
            is_whole = logical_and(is_first, compare("eq", high, parts.value(self.count)))
            shared = arith.select(is_whole, low, high)

            def row() -> None:
                memory.store(done_flag, zero, true)
                keyed.row(zero)

            def begin() -> None:
                memory.store(done_flag, zero, zero)
                memory.store(moved, zero, zero)

            if_then(is_first, begin)
            if_then(is_whole, row)
            write(parts, (low, shared))

        return either_way

    def unless_done(self, write: Write) -> Write:
        """A launch that is empty if one thread has sorted the whole row."""

        def shortened(parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
            done_flag = Pointer(self._at(parts, self.done), memory.i64(), [])
            is_done = compare("ne", memory.load(done_flag, mlir.constant(0)), mlir.constant(0))
            high = arith.select(is_done, *bounds)
            write(parts, (bounds[0], high))

        return shortened

    def note(self, parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
        """Store the words of all elements."""
        keyed = self._keyed(parts)
        inputs, _ = keyed.operands(mlir.constant(0))

        def chunk(number: mlir.Value) -> None:
            loop(*self._bounds(parts, number, keyed.length), lambda place: keyed.note(place, inputs))

        loop(*bounds, chunk)

    def counting(self, digit: int) -> Write:
        """The launch that computes the histograms of a digit."""

        def write(parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
            keyed = self._keyed(parts)
            arrays = [keyed.given[0].base, keyed.sorted[0].base]
            name = f"kcache_count_{self.words.bits}"
            shared = self._shared(parts, digit)

            def chunk(number: mlir.Value) -> None:
                operands = [*arrays, *shared, number, *self._bounds(parts, number, keyed.length)]
                keyed.call(name, operands, lambda words: count_text(words, name))

            loop(*bounds, chunk)

        return write

    def moving(self, digit: int) -> Write:
        """The launch that moves words by a digit, unless all words share it."""

        def write(parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
            keyed = self._keyed(parts)
            arrays = [pointer.base for pointer in (*keyed.given, *keyed.sorted)]
            name = f"kcache_move_{self.words.bits}"
            shared, sizes = self._shared(parts, digit), [parts.value(self.count), keyed.length]

            def chunk(number: mlir.Value) -> None:
                low, high = self._bounds(parts, number, keyed.length)
                operands = [*arrays, *shared, number, low, high, *sizes]
                keyed.call(name, operands, lambda words: move_text(words, name))

            loop(*bounds, chunk)

        return write

    def _shared(self, parts: MarkerOperands, digit: int) -> list[mlir.Value]:
        """The histograms, the moved flag, and the digit's first bit in a key."""
        shift = mlir.constant(self.words.shift + 8 * digit)
        return [self._at(parts, self.table), self._at(parts, self.moved, 8 * digit), shift]

    def fetch(self, parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
        """Gather elements by their positions."""
        keyed = self._keyed(parts)
        inputs, results = keyed.operands(mlir.constant(0))
        state = Pointer(self._at(parts, self.moved, self.words.bits), memory.i64(), [])
        moved = compare("ne", memory.load(state, mlir.constant(0)), mlir.constant(0))
        unsorted, ordered = keyed.given[-1], keyed.sorted[-1]
        base = arith.select(moved, ordered.base, unsorted.base)
        places = Pointer(base, unsorted.element, [])
        count = parts.value(keyed.first)

        def chunk(number: mlir.Value) -> None:
            loop(*self._bounds(parts, number, count), lambda at: keyed.fetch(at, places, inputs, results))

        loop(*bounds, chunk)

    def keep(self, parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
        """Select the least words of each chunk."""
        keyed = self._keyed(parts)
        inputs, _ = keyed.operands(mlir.constant(0))
        first = parts.value(keyed.first)

        def chunk(number: mlir.Value) -> None:
            low, high = self._bounds(parts, number, keyed.length)
            loop(low, high, lambda place: keyed.note(place, inputs))
            source, target = keyed.given[0], keyed.sorted[0]
            ends = [memory.shift(source, low), memory.shift(target, times(number, first))]
            keyed.call(self.words.least_name, [*ends, minus(high, low), first], least_text)

        loop(*bounds, chunk)

    def gather(self, parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]) -> None:
        """Select the least of all words, and gather elements by their positions."""
        keyed = self._keyed(parts)
        inputs, results = keyed.operands(mlir.constant(0))
        first = parts.value(keyed.first)
        source, target = keyed.sorted[0], keyed.given[0]

        def once(_: mlir.Value) -> None:
            count = times(parts.value(self.count), first)
            keyed.call(self.words.least_name, [source.base, target.base, count, first], least_text)
            loop(mlir.constant(0), first, lambda at: keyed.fetch(at, target, inputs, results))

        loop(*bounds, once)


_POINTER = "!llvm.ptr"


def count_text(words: Words, name: str) -> str:
    """``name(from, to, counts, moved, shift, chunk, low, high)``: the histogram of a chunk."""
    pointers = [(argument, _POINTER) for argument in ("from0", "to0", "counts", "moved")]
    code = Code(
        name, [*pointers, *((argument, "i64") for argument in ("shift", "chunk", "low", "high"))], small=False
    )
    tables = code.stack(2 * DIGITS, "i32")
    with code.loop(0, 2 * DIGITS) as values:
        code.store(code.const(0, "i32"), code.at(tables, values.counter, "i32"), "i32", 4)
    source = code.choose(code.compare("ne", code.load("%moved"), 0), "%to0", "%from0", _POINTER)

    def note(place: Name, odd: int) -> None:
        value = digit_of(code, code.load(code.at(source, place, "i64")), "%shift")
        at = code.at(tables, code.add(value, odd * DIGITS), "i32")
        count = code.load(at, "i32", 4)
        code.store(code.op(f"arith.addi {count}, {code.const(1, 'i32')} : i32"), at, "i32", 4)

    even = code.sub("%high", code.bits(code.sub("%high", "%low"), 1))
    with code.loop("%low", even, 2) as pair:
        note(pair.counter, 0)
        note(code.add(pair.counter, 1), 1)
    with code.loop(even, "%high") as last:
        note(last.counter, 0)
    chunk_counts = code.at("%counts", code.mul("%chunk", DIGITS), "i32")
    with code.loop(0, DIGITS) as values:
        a = code.load(code.at(tables, values.counter, "i32"), "i32", 4)
        b = code.load(code.at(tables, code.add(values.counter, DIGITS), "i32"), "i32", 4)
        code.store(
            code.op(f"arith.addi {a}, {b} : i32"), code.at(chunk_counts, values.counter, "i32"), "i32", 4
        )
    return code.text()


def move_text(words: Words, name: str) -> str:
    """``name(from..., to..., counts, moved, shift, chunk, low, high, chunks, n)``: move words of a chunk.

    The first chunk writes ``moved[1]``: whether the words are in ``to`` afterwards.
    """
    half = len(words.arrays)
    arrays = [f"{side}{number}" for side in ("from", "to") for number in range(half)]
    pointers = [(argument, _POINTER) for argument in (*arrays, "counts", "moved")]
    numbers = [(argument, "i64") for argument in ("shift", "chunk", "low", "high", "chunks", "n")]
    code = Code(name, [*pointers, *numbers], small=False)
    starts = code.stack(DIGITS, "i32")
    zero = code.const(0, "i32")
    with code.loop(0, DIGITS, carried=[(zero, "i32"), (code.const(0, "i1"), "i1")]) as value:
        totals = [(zero, "i32"), (zero, "i32")]
        with code.loop(0, "%chunks", carried=totals) as chunk:
            at = code.add(code.mul(chunk.counter, DIGITS), value.counter)
            count = code.load(code.at("%counts", at, "i32"), "i32", 4)
            earlier = code.choose(code.compare("slt", chunk.counter, "%chunk"), count, zero, "i32")
            chunk.following = [
                code.op(f"arith.addi {chunk.carried[0]}, {count} : i32"),
                code.op(f"arith.addi {chunk.carried[1]}, {earlier} : i32"),
            ]
        start = code.op(f"arith.addi {value.carried[0]}, {chunk.results[1]} : i32")
        code.store(start, code.at(starts, value.counter, "i32"), "i32", 4)
        everywhere = code.compare("eq", widened(code, chunk.results[0]), "%n")
        value.following = [
            code.op(f"arith.addi {value.carried[0]}, {chunk.results[0]} : i32"),
            code.either(value.carried[1], everywhere),
        ]
    moves = code.op(f"arith.xori {value.results[1]}, {code.const(1, 'i1')} : i1")
    moved = code.load("%moved")
    with code.when(code.compare("eq", "%chunk", 0)):
        moved_next = code.op(f"arith.xori {moved}, {code.op(f'arith.extui {moves} : i1 to i64')} : i64")
        code.store(moved_next, code.at("%moved", 1, "i64"))
    with code.when(moves):
        back = code.compare("ne", moved, 0)
        sides = [(f"%from{number}", f"%to{number}") for number in range(half)]
        sources = [code.choose(back, to, from_, _POINTER) for from_, to in sides]
        targets = [code.choose(back, from_, to, _POINTER) for from_, to in sides]
        with code.loop("%low", "%high") as word:
            parts = [
                code.load(code.at(source, word.counter, kind), kind, 4)
                for source, kind in zip(sources, words.arrays, strict=True)
            ]
            at = code.at(starts, digit_of(code, parts[0], "%shift"), "i32")
            place = code.load(at, "i32", 4)
            code.store(code.op(f"arith.addi {place}, {code.const(1, 'i32')} : i32"), at, "i32", 4)
            wide = widened(code, place)
            for target, part, kind in zip(targets, parts, words.arrays, strict=True):
                code.store(part, code.at(target, wide, kind), kind, 4)
    return code.text()
