"""Loads of operand tiles: each thread loads chunks, at a constant stride if possible."""

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
    """The layout of an operand: sizes of its rows, strides, and its contiguous axis."""

    row_sizes: tuple[Formula, ...]
    row_steps: tuple[Formula, ...]
    k_steps: tuple[Formula, ...]
    batch_steps: tuple[Formula, ...]
    #: Contiguous along K; otherwise along the rows, or neither.
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
    """The layout of an operand from sizes and strides; ``anywhere``: its alignment is unknown."""
    along_k = list(k[1][-1:]) == [1]
    contiguous = along_k or list(rows[1][-1:]) == [1]
    lanes = BYTES // memory.element_bytes(mlir.type_of(element)) if contiguous and not anywhere else 1
    if lanes > 1:
        strides = [*batch[1], *rows[1], *k[1], offset, (k if along_k else rows)[0][-1]]
        strides.remove(1)
        while lanes > 1 and not all(isinstance(stride, int) and stride % lanes == 0 for stride in strides):
            lanes //= 2
    return Walked(tuple(rows[0]), tuple(rows[1]), tuple(k[1]), tuple(batch[1]), along_k, lanes)


def chunk_lanes(operand: Walked, rows: int, depth: int, threads: int) -> int:
    """The elements of a chunk of a tile, for which each thread has the same number of chunks."""
    return gcd(operand.lanes, rows * depth // threads)


def fits(size: Formula, tile: int) -> bool:
    """Whether the axis is divided into whole tiles."""
    return isinstance(size, int) and size % tile == 0


@dataclass
class Loader:
    """Loads a tile of an operand: each thread loads its chunks to registers or shared memory.

    A tile has ``rows`` elements along m or n from ``first``, a multiple of ``rows``, and ``depth`` along k; a
    chunk is contiguous in the operand. The chunks of a thread are ``apart`` lines apart, unless that is None.
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
        #: The offset of each chunk's row, and whether the row is in bounds; None: always.
        self.offsets: list[mlir.Value] = []
        self.inside: list[mlir.Value | None] = []
        for row, _ in self.places:
            at = memory.plus(self.first, row)
            self.inside.append(None if limit is None else compare("lt", at, limit))
            if not self.offsets or self._line is None:
                self.offsets.append(self._dot(split(at, None, sizes, value), operand.row_steps))

    def _place(self, number: int, per: int) -> tuple[mlir.Value, mlir.Value]:
        """The row and depth of a chunk in the tile."""
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
        """The elements between consecutive chunks of a thread; None if not constant."""
        operand = self.operand
        single_axes = len(operand.row_steps) == 1 and len(self.k_sizes) == 1
        step = (operand.row_steps if operand.along_k else operand.k_steps)[-1] if single_axes else None
        return None if self.apart is None or not isinstance(step, int) else self.apart * step

    @property
    def _is_uniform(self) -> bool:
        """Whether the chunks have a constant stride and either all or none of them are in bounds."""
        same_depth = self.operand.along_k or fits(product(self.k_sizes), self.depth)
        return self._line is not None and same_depth and all(in_bounds is None for in_bounds in self.inside)

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
        """The addresses of the chunks: ``place`` of row and depth, with ``step`` bytes between lines."""
        if self.apart is None:
            return [place(row, depth) for row, depth in self.places]
        first = place(*self.places[0])
        return [ahead(first, number * self.apart * step) for number in range(self.count)]

    def copy(self, base: mlir.Value, k: mlir.Value, places: Sequence[mlir.Value]) -> None:
        """Copy the chunks at ``k``, a multiple of ``depth``, to ``places`` in shared memory asynchronously.

        Elements out of bounds become zeros.
        """
        offsets, legal = self._wheres(base, k), self._legal(k)
        numbers = [mlir.constant(self.width, "i32"), mlir.constant(0, "i32")]
        if self._is_uniform:
            byte_count, offset = numbers[0], offsets[0]
            if legal[0] is not None:
                offset = arith.select(legal[0], offset, mlir.constant(0))
                byte_count = arith.select(legal[0], *numbers)
            for source, place in zip(self._sources(offset), places, strict=True):
                copy_async(place, source, self.width, byte_count)
            return
        for offset, allowed, place in zip(offsets, legal, places, strict=True):
            byte_count = numbers[0]
            if allowed is not None:
                offset = arith.select(allowed, offset, mlir.constant(0))
                byte_count = arith.select(allowed, *numbers)
            copy_async(place, self._source(offset), self.width, byte_count)

    def load(self, base: mlir.Value, k: mlir.Value) -> list[mlir.Value]:
        """Load the chunks at ``k`` of the matrix at element ``base``; zeros out of bounds."""
        stored = memory.stored_type(self.start.element)
        kind = stored if self.lanes == 1 else mlir.type_of(f"vector<{self.lanes}x{stored}>")

        def read(place: mlir.Value) -> mlir.Value:
            return llvm.load(kind, place, alignment=self.width)

        def zeros(count: int) -> list[mlir.Value]:
            return [llvm.mlir_zero(kind)] * count

        if self._is_uniform:

            def load_all() -> list[mlir.Value]:
                return [read(source) for source in self._sources(self._wheres(base, k)[0])]

            (legal, *_) = self._legal(k)
            kinds = [kind] * self.count
            return (
                load_all()
                if legal is None
                else if_else_values(legal, kinds, load_all, lambda: zeros(self.count))
            )
        chunks: list[mlir.Value] = []
        for number, legal in enumerate(self._legal(k)):

            def load_one(number: int = number) -> list[mlir.Value]:
                return [read(self._source(self._where(base, k, number)))]

            chunks += (
                load_one() if legal is None else if_else_values(legal, [kind], load_one, lambda: zeros(1))
            )
        return chunks

    def _legal(self, k: mlir.Value) -> list[mlir.Value | None]:
        """Whether each chunk is in bounds; None: always."""
        size = product(self.k_sizes)
        limit, constant_k = self.kernel.value(size), mlir.constant_int(k)
        conditions: list[mlir.Value | None] = []
        if fits(size, self.depth):
            is_inside = constant_k is not None and isinstance(size, int) and constant_k < size
            deep = None if is_inside else compare("lt", k, limit)
            return [_both(row_inside, deep) for row_inside in self.inside]
        for (_, depth), row_inside in zip(self.places, self.inside, strict=True):
            conditions.append(_both(row_inside, compare("lt", memory.plus(k, depth), limit)))
        return conditions

    def _wheres(self, base: mlir.Value, k: mlir.Value) -> list[mlir.Value]:
        """The element offsets of the chunks."""
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

    def _source(self, offset: mlir.Value) -> mlir.Value:
        return memory.advance(self.start.base, memory.stored_type(self.start.element), offset)

    def _sources(self, offset: mlir.Value) -> list[mlir.Value]:
        """The addresses of all chunks from the offset of the first."""
        assert self._line is not None
        step = self._line * memory.element_bytes(self.start.element)
        first = self._source(offset)
        return [ahead(first, number * step) for number in range(self.count)]


def _both(a: mlir.Value | None, b: mlir.Value | None) -> mlir.Value | None:
    return b if a is None else a if b is None else logical_and(a, b)
