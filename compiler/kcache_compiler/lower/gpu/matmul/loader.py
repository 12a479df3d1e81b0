"""Tiles of an operand on their way from memory: each thread its chunks, equal steps apart where possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from kcache_compiler.lower.gpu.addresses import ahead
from kcache_compiler.lower.gpu.intrinsics import copy_async
from kcache_compiler.lower.gpu.kernel import Kernel, split
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.sort_scatter.loop_builder import compare, if_else_values, logical_and
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm
from kcache_compiler.shapes.formula import Formula, product

#: Bytes of one load of a thread.
BYTES = 16


@dataclass(frozen=True)
class Walked:
    """How an operand is walked: sizes of its rows, steps in memory, and along which of both memory runs."""

    row_sizes: tuple[Formula, ...]
    row_steps: tuple[Formula, ...]
    k_steps: tuple[Formula, ...]
    batch_steps: tuple[Formula, ...]
    #: Memory runs along K; otherwise along the rows, or neither.
    along_k: bool
    #: Elements of one load.
    lanes: int


def walk(
    rows: tuple[Sequence[Formula], Sequence[Formula]],
    k: tuple[Sequence[Formula], Sequence[Formula]],
    batch: tuple[Sequence[Formula], Sequence[Formula]],
    offset: Formula,
    element: str,
    anywhere: bool,
) -> Walked:
    """An operand by sizes and steps; ``anywhere``: it begins at no known multiple of 16 bytes."""
    along_k = list(k[1][-1:]) == [1]
    runs = along_k or list(rows[1][-1:]) == [1]
    lanes = BYTES // memory.element_bytes(mlir.type_of(element)) if runs and not anywhere else 1
    if lanes > 1:
        others = [*batch[1], *rows[1], *k[1], offset, (k if along_k else rows)[0][-1]]
        others.remove(1)
        while lanes > 1 and not all(isinstance(one, int) and one % lanes == 0 for one in others):
            lanes //= 2
    return Walked(tuple(rows[0]), tuple(rows[1]), tuple(k[1]), tuple(batch[1]), along_k, lanes)


def chunk_lanes(operand: Walked, rows: int, depth: int, threads: int) -> int:
    """Elements of a chunk of a tile: so many that each thread has the same number of chunks."""
    return gcd(operand.lanes, rows * depth // threads)


def fits(size: Formula, tile: int) -> bool:
    """Tiles end where the axis does."""
    return isinstance(size, int) and size % tile == 0


@dataclass
class Loader:
    """Loads a tile of an operand: each thread its chunks, in registers until they go to shared memory.

    ``rows`` elements along m or n from ``first`` on, a multiple of them, and ``depth`` along k; a chunk lies
    along the operand's own memory. The chunks of a thread are ``apart`` lines from one to the next, unless
    that is None.
    """

    kernel: Kernel
    operand: Walked
    start: Pointer
    rows: int
    depth: int
    threads: int
    k_sizes: list[Formula]
    thread: mlir.Value
    first: mlir.Value

    def __post_init__(self) -> None:
        operand, value = self.operand, self.kernel.value
        lanes = self.lanes = chunk_lanes(operand, self.rows, self.depth, self.threads)
        across, fast = (self.rows, self.depth) if operand.along_k else (self.depth, self.rows)
        self.count = across * fast // lanes // self.threads
        per = fast // lanes
        self.apart = self.threads // per if self.threads % per == 0 else None
        self.places: list[tuple[mlir.Value, mlir.Value]] = []
        for number in range(self.count):
            self.places.append(self._place(number, per))
        sizes = list(operand.row_sizes)
        limit = None if fits(product(sizes), self.rows) else value(product(sizes))
        #: Of each chunk where its row begins, and whether it is a row; None: it is.
        self.offsets: list[mlir.Value] = []
        self.inside: list[mlir.Value | None] = []
        for row, _ in self.places:
            at = memory.plus(self.first, row)
            self.inside.append(None if limit is None else compare("lt", at, limit))
            if not self.offsets or self._line is None:
                self.offsets.append(self._dot(split(at, None, sizes, value), operand.row_steps))

    def _place(self, number: int, per: int) -> tuple[mlir.Value, mlir.Value]:
        """Row and depth of a chunk in the tile."""
        if number and self.apart is not None:
            row, depth = self.places[0]
            away = mlir.constant(number * self.apart)
            if self.operand.along_k:
                return memory.plus(row, away), depth
            return row, memory.plus(depth, away)
        chunk = memory.plus(self.thread, mlir.constant(number * self.threads))
        slow = arith.divui(chunk, mlir.constant(per))
        fast = arith.remui(chunk, mlir.constant(per))
        fast = memory.times(fast, mlir.constant(self.lanes))
        return (slow, fast) if self.operand.along_k else (fast, slow)

    @property
    def _line(self) -> int | None:
        """Elements from the memory of a chunk to that of the next; None where they lie anyhow."""
        operand = self.operand
        alike = len(operand.row_steps) == 1 and len(self.k_sizes) == 1
        step = (operand.row_steps if operand.along_k else operand.k_steps)[-1] if alike else None
        return None if self.apart is None or not isinstance(step, int) else self.apart * step

    @property
    def _is_uniform(self) -> bool:
        """The chunks are equal steps apart, and all of them or none lie inside of the operand."""
        alike = self.operand.along_k or fits(product(self.k_sizes), self.depth)
        return self._line is not None and alike and all(one is None for one in self.inside)

    def _dot(self, counters: list[mlir.Value], steps: Sequence[Formula]) -> mlir.Value:
        total = mlir.constant(0)
        for counter, step in zip(counters, steps, strict=True):
            total = memory.plus(total, memory.times(counter, self.kernel.value(step)))
        return total

    @property
    def width(self) -> int:
        """Bytes of a chunk."""
        return self.lanes * memory.element_bytes(self.start.element)

    def lines(self, place: Callable[[mlir.Value, mlir.Value], mlir.Value], step: int) -> list[mlir.Value]:
        """Addresses that ``place`` makes of row and depth of the chunks, ``step`` bytes from line to line."""
        if self.apart is None:
            return [place(*one) for one in self.places]
        first = place(*self.places[0])
        return [ahead(first, number * self.apart * step) for number in range(self.count)]

    def copy(self, base: mlir.Value, k: mlir.Value, places: Sequence[mlir.Value]) -> None:
        """Copy the chunks from ``k`` on to ``places`` in shared memory, later; zeros from outside. ``k`` is a
        multiple of ``depth``.
        """
        here, legal = self._wheres(base, k), self._legal(k)
        numbers = [mlir.constant(self.width, "i32"), mlir.constant(0, "i32")]
        if self._is_uniform:
            wanted, where = numbers[0], here[0]
            if legal[0] is not None:
                where = arith.select(legal[0], where, mlir.constant(0))
                wanted = arith.select(legal[0], *numbers)
            for source, place in zip(self._sources(where), places, strict=True):
                copy_async(place, source, self.width, wanted)
            return
        for where, allowed, place in zip(here, legal, places, strict=True):
            wanted = numbers[0]
            if allowed is not None:
                where = arith.select(allowed, where, mlir.constant(0))
                wanted = arith.select(allowed, *numbers)
            copy_async(place, self._source(where), self.width, wanted)

    def load(self, base: mlir.Value, k: mlir.Value) -> list[mlir.Value]:
        """The chunks from ``k`` on of the matrix at element ``base``; zeros from outside."""
        stored = memory.stored_type(self.start.element)
        kind = stored if self.lanes == 1 else mlir.type_of(f"vector<{self.lanes}x{stored}>")

        def read(place: mlir.Value) -> mlir.Value:
            return llvm.load(kind, place, alignment=self.width)

        def nothing(count: int) -> list[mlir.Value]:
            return [llvm.mlir_zero(kind)] * count

        if self._is_uniform:

            def all_of_them() -> list[mlir.Value]:
                return [read(one) for one in self._sources(self._wheres(base, k)[0])]

            (legal, *_) = self._legal(k)
            kinds = [kind] * self.count
            return (
                all_of_them()
                if legal is None
                else if_else_values(legal, kinds, all_of_them, lambda: nothing(self.count))
            )
        found: list[mlir.Value] = []
        for number, legal in enumerate(self._legal(k)):

            def one(number: int = number) -> list[mlir.Value]:
                return [read(self._source(self._where(base, k, number)))]

            found += one() if legal is None else if_else_values(legal, [kind], one, lambda: nothing(1))
        return found

    def _legal(self, k: mlir.Value) -> list[mlir.Value | None]:
        """Of each chunk whether it lies inside of the operand; None: it does."""
        size = product(self.k_sizes)
        limit, known = self.kernel.value(size), mlir.constant_int(k)
        found: list[mlir.Value | None] = []
        if fits(size, self.depth):
            here = known is not None and isinstance(size, int) and known < size
            deep = None if here else compare("lt", k, limit)
            return [_both(inside, deep) for inside in self.inside]
        for (_, depth), inside in zip(self.places, self.inside, strict=True):
            found.append(_both(inside, compare("lt", memory.plus(k, depth), limit)))
        return found

    def _wheres(self, base: mlir.Value, k: mlir.Value) -> list[mlir.Value]:
        """The elements that the chunks begin with."""
        first = self._where(base, k, 0)
        if self._line is None:
            return [first, *(self._where(base, k, number) for number in range(1, self.count))]
        lines = [mlir.constant(number * self._line) for number in range(1, self.count)]
        return [first, *(memory.plus(first, line) for line in lines)]

    def _where(self, base: mlir.Value, k: mlir.Value, number: int) -> mlir.Value:
        if number and self._line is not None:
            return memory.plus(self._where(base, k, 0), mlir.constant(number * self._line))
        at = memory.plus(k, self.places[number][1])
        moved = self._dot(split(at, None, self.k_sizes, self.kernel.value), self.operand.k_steps)
        return memory.plus(memory.plus(base, self.offsets[number]), moved)

    def _source(self, where: mlir.Value) -> mlir.Value:
        return memory.advance(self.start.base, memory.stored_type(self.start.element), where)

    def _sources(self, where: mlir.Value) -> list[mlir.Value]:
        """The addresses of all chunks from that of the first."""
        assert self._line is not None
        step = self._line * memory.element_bytes(self.start.element)
        first = self._source(where)
        return [ahead(first, number * step) for number in range(self.count)]


def _both(a: mlir.Value | None, b: mlir.Value | None) -> mlir.Value | None:
    return b if a is None else a if b is None else logical_and(a, b)
