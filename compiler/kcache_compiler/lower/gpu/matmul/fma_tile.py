"""Tiles in shared memory, and FMA tiles: products by fused multiply-adds."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.lower.gpu import addresses as places
from kcache_compiler.lower.gpu.addresses import ahead, load_each, store, store_each
from kcache_compiler.lower.gpu.intrinsics import barrier
from kcache_compiler.lower.gpu.matmul.blocking import Tiles
from kcache_compiler.lower.gpu.matmul.loader import Loader
from kcache_compiler.lower.loops import memory
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm, scf
from kcache_compiler.mlir.dialects import math as math_dialect

#: Padding elements between the rows of a tile, which reduces bank conflicts.
_PLAIN_PAD = 4
#: Contiguous elements of a thread, and rows of a thread that one pass stores.
_GROUP = 4
#: Bytes of the widest load and store.
_BYTES = 16


@dataclass
class Shared:
    """Shared memory by byte offset."""

    base: mlir.Value

    def at(self, offset: mlir.Value) -> mlir.Value:
        return places.at(self.base, offset)

    def store(self, offset: mlir.Value, number: mlir.Value, alignment: int) -> None:
        store(self.at(offset), number, alignment)

    def load(self, offset: mlir.Value, kind: mlir.Type, alignment: int) -> mlir.Value:
        return places.load(self.at(offset), kind, alignment)


def index(*terms: tuple[mlir.Value | int, int]) -> mlir.Value:
    """A sum of products with constants, as i64."""
    total: mlir.Value | None = None
    constant = 0
    for value, factor in terms:
        if isinstance(value, int):
            constant += value * factor
            continue
        term = value if factor == 1 else memory.times(value, mlir.constant(factor))
        total = term if total is None else memory.plus(total, term)
    if total is None:
        return mlir.constant(constant)
    return memory.plus(total, mlir.constant(constant)) if constant else total


def over(number: mlir.Value, divisor: int) -> mlir.Value:
    return arith.divui(number, mlir.constant(divisor))


def rest(number: mlir.Value, divisor: int) -> mlir.Value:
    return arith.remui(number, mlir.constant(divisor))


class PlainCore:
    """FMA tiles: each thread computes ``own`` by ``own`` elements in the type of the sums."""

    def __init__(self, tiles: Tiles, thread: mlir.Value) -> None:
        self.tile, self.wide = tiles.tile, mlir.type_of(tiles.wide)
        self.width = memory.element_bytes(self.wide)
        self.lines = [(rows + _PLAIN_PAD) * self.width for rows in (self.tile.m, self.tile.n)]
        self.half, half_b = (self.tile.k * line for line in self.lines)
        self.stage = self.half + half_b
        self.across = self.tile.n // self.tile.own
        self.thread = thread
        self.row, self.column = over(thread, self.across), rest(thread, self.across)

    @property
    def shared_bytes(self) -> int:
        return max(2 * self.stage, self.staged[0] * self.tile.n * self.width)

    def start(self) -> list[mlir.Value]:
        """The initial sums."""
        return [mlir.float_constant(0, self.wide) for _ in range(self.tile.own**2)]

    def store_tiles(
        self, shared: Shared, side: int, stage: mlir.Value, loader: Loader, chunks: list[mlir.Value]
    ) -> None:
        """Store chunks of an operand in one of the two stages."""
        element, along_k, line = loader.start.element, loader.operand.along_k, self.lines[side]

        def place(row: mlir.Value, depth: mlir.Value) -> mlir.Value:
            stages = [(stage, self.stage), (side, self.half)]
            return shared.at(index(*stages, (depth, line), (row, self.width)))

        addresses = loader.lines(place, self.width if along_k else line)
        for address, chunk in zip(addresses, chunks, strict=True):
            if element == self.wide and not along_k:
                store(address, chunk, loader.width)
                continue
            numbers = [self._number(chunk, element, lane, loader.lanes) for lane in range(loader.lanes)]
            if not along_k:
                store_each(address, numbers, min(_BYTES, loader.lanes * self.width))
                continue
            for lane, number in enumerate(numbers):
                store(ahead(address, lane * line), number, self.width)

    def _number(self, chunk: mlir.Value, element: mlir.Type, lane: int, lanes: int) -> mlir.Value:
        """An element of a chunk, converted to the type of the sums."""
        raw = chunk
        if lanes > 1:
            raw = llvm.extractelement(chunk, mlir.constant(lane))
        number = memory.from_memory(raw, element)
        return number if number.type == self.wide else arith.extf(self.wide, number)

    def step(self, shared: Shared, stage: mlir.Value, sums: list[mlir.Value]) -> list[mlir.Value]:
        """Add the products of the two tiles in ``stage``."""
        side, (line_a, line_b) = self.tile.own, self.lines
        deeper = 16 // side
        bounds = mlir.constant(0), mlir.constant(self.tile.k)
        loop = mlir.for_loop(bounds, mlir.constant(deeper), sums)
        block = mlir.block_of(loop)
        with mlir.at_end(block):
            k, *sums = list(block.arguments)
            first = (stage, self.stage)
            at_a = shared.at(index(first, (k, line_a), (self.row, side * self.width)))
            at_b = shared.at(index(first, (k, line_b), (1, self.half), (self.column, _GROUP * self.width)))
            for deep in range(deeper):
                a = load_each(ahead(at_a, deep * line_a), side, self.wide, _BYTES)
                b = [
                    element
                    for j in range(0, side, _GROUP)
                    for element in load_each(
                        ahead(at_b, deep * line_b + self._column(j) * self.width), _GROUP, self.wide, _BYTES
                    )
                ]
                for i in range(side):
                    for j in range(side):
                        place = i * side + j
                        sums[place] = math_dialect.fma(a[i], b[j], sums[place])
            scf.yield_(sums)
        return list(loop.results)

    def _column(self, number: int) -> int:
        """The column offset of the thread's element ``number``: groups of threads are interleaved."""
        return number // _GROUP * _GROUP * self.across + number % _GROUP

    @property
    def passes(self) -> int:
        return self.tile.own // _GROUP

    def wait(self, number: int, left: bool) -> None:
        """Synchronize before the sums of a pass are stored in shared memory, and after (``left``)."""
        if number or left:  # the products end with a barrier
            barrier()

    @property
    def staged(self) -> tuple[int, int]:
        """The rows of C that one pass stores in shared memory, and their stride in elements."""
        return self.tile.m // self.passes, self.tile.n

    @property
    def turns(self) -> int:
        """The elements of a pass that each thread finishes."""
        return self.staged[0] * self.tile.n // self.tile.threads

    def element(self, number: int, turn: mlir.Value) -> tuple[mlir.Value, mlir.Value, mlir.Value]:
        """An element of a pass: its row and column in the tile, and its offset in shared memory."""
        at = memory.plus(memory.times(turn, mlir.constant(self.tile.threads)), self.thread)
        row, column = over(at, self.tile.n), rest(at, self.tile.n)
        offset = index((row, self.tile.n * self.width), (column, self.width))
        return self._row_of(number, row), column, offset

    def store_sums(self, shared: Shared, number: int, sums: list[mlir.Value]) -> None:
        """Store the sums of a pass in shared memory."""
        side, line = self.tile.own, self.tile.n * self.width
        first = shared.at(index((self.row, _GROUP * line), (self.column, _GROUP * self.width)))
        for i in range(_GROUP):
            row_sums = sums[(number * _GROUP + i) * side :]
            for j in range(0, side, _GROUP):
                address = ahead(first, i * line + self._column(j) * self.width)
                store_each(address, row_sums[j : j + _GROUP], _BYTES)

    def _row_of(self, number: int, row: mlir.Value) -> mlir.Value:
        """The row of the tile for a staged row."""
        return index((over(row, _GROUP), self.tile.own), (number, _GROUP), (rest(row, _GROUP), 1))
