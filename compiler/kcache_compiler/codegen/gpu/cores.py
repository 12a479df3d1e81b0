"""Tiles in shared memory, and what threads do with two of them by plain multiply-adds."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.gpu.intrinsics import barrier
from kcache_compiler.codegen.gpu.tiles import Loader, Tiles
from kcache_compiler.codegen.memory import i64

#: Elements between the rows of a tile beyond its own, so that threads meet in few banks.
_PLAIN_PAD = 4
#: Neighbouring elements of a thread of plain arithmetic, and rows of it that one pass leaves.
_GROUP = 4


@dataclass
class Shared:
    """Shared memory by byte offset."""

    base: mlir.Value

    def at(self, offset: mlir.Value) -> mlir.Value:
        dynamic = -(2**31)
        return mlir.value(
            "llvm.getelementptr",
            [self.base, offset],
            self.base.type,
            rawConstantIndices=mlir.attribute(f"array<i32: {dynamic}>"),
            elem_type=mlir.type_attr(mlir.type_of("i8")),
        )

    def store(self, offset: mlir.Value, number: mlir.Value, alignment: int) -> None:
        mlir.create(
            "llvm.store", [number, self.at(offset)], attributes={"alignment": mlir.int_attr(alignment)}
        )

    def load(self, offset: mlir.Value, kind: mlir.Type, alignment: int) -> mlir.Value:
        return mlir.value("llvm.load", [self.at(offset)], kind, alignment=mlir.int_attr(alignment))


def index(*terms: tuple[mlir.Value | int, int]) -> mlir.Value:
    """A sum of products with constants, as i64."""
    total: mlir.Value | None = None
    known = 0
    for value, factor in terms:
        if isinstance(value, int):
            known += value * factor
            continue
        one = value if factor == 1 else memory.times(value, mlir.constant(factor))
        total = one if total is None else memory.plus(total, one)
    if total is None:
        return mlir.constant(known)
    return memory.plus(total, mlir.constant(known)) if known else total


def over(number: mlir.Value, divisor: int) -> mlir.Value:
    return mlir.value("arith.divui", [number, mlir.constant(divisor)], i64())


def rest(number: mlir.Value, divisor: int) -> mlir.Value:
    return mlir.value("arith.remui", [number, mlir.constant(divisor)], i64())


class PlainCore:
    """Each thread ``own`` by ``own`` elements, by fused multiply-adds in the type of the sums."""

    def __init__(self, tiles: Tiles, thread: mlir.Value) -> None:
        self.tile, self.wide = tiles.tile, mlir.type_of(tiles.wide)
        self.width = memory.element_bytes(self.wide)
        self.pitch = max(self.tile.m, self.tile.n) + _PLAIN_PAD
        self.half = self.tile.k * self.pitch * self.width
        self.across = self.tile.n // self.tile.own
        self.thread = thread
        self.row, self.column = over(thread, self.across), rest(thread, self.across)

    @property
    def shared_bytes(self) -> int:
        return max(4 * self.half, self.staged[0] * self.tile.n * self.width)

    def start(self) -> list[mlir.Value]:
        """Sums of nothing."""
        return [mlir.float_constant(0, self.wide) for _ in range(self.tile.own**2)]

    def keep(
        self, shared: Shared, side: int, stage: mlir.Value, loader: Loader, chunks: list[mlir.Value]
    ) -> None:
        """Chunks of an operand to one of the two stages."""
        element = loader.start.element
        for (row, depth), chunk in zip(loader.places, chunks, strict=True):
            for lane in range(loader.lanes):
                raw = chunk
                if loader.lanes > 1:
                    kind = memory.stored_type(element)
                    raw = mlir.value("llvm.extractelement", [chunk, mlir.constant(lane)], kind)
                number = memory.from_memory(raw, element)
                if number.type != self.wide:
                    number = mlir.value("arith.extf", [number], self.wide)
                along = loader.operand.along_k
                where = index(
                    (stage, 2 * self.half),
                    (side, self.half),
                    (depth, self.pitch * self.width),
                    (row, self.width),
                    (lane, self.pitch * self.width if along else self.width),
                )
                shared.store(where, number, self.width)

    def step(self, shared: Shared, stage: mlir.Value, sums: list[mlir.Value]) -> list[mlir.Value]:
        """All products of the two tiles in ``stage``."""
        own, line = self.tile.own, self.pitch * self.width
        kinds = [self.wide] * len(sums)
        deeper = 16 // own
        bounds = [mlir.constant(0), mlir.constant(self.tile.k), mlir.constant(deeper)]
        made = mlir.create("scf.for", [*bounds, *sums], kinds, regions=1)
        block = mlir.new_block(made, 0, [i64(), *kinds])
        with mlir.at_end(block):
            k, *sums = list(block.arguments)
            base = index((stage, 2 * self.half), (k, line))
            at_a = memory.plus(base, index((self.row, own * self.width)))
            at_b = memory.plus(base, index((1, self.half), (self.column, _GROUP * self.width)))
            for deep in range(deeper):
                a = [self._load(shared, at_a, deep * line + i * self.width) for i in range(own)]
                b = [self._load(shared, at_b, deep * line + self._column(j) * self.width) for j in range(own)]
                for i in range(own):
                    for j in range(own):
                        place = i * own + j
                        sums[place] = mlir.value("math.fma", [a[i], b[j], sums[place]], self.wide)
            mlir.create("scf.yield", sums)
        return list(made.results)

    def _load(self, shared: Shared, base: mlir.Value, offset: int) -> mlir.Value:
        return shared.load(memory.plus(base, mlir.constant(offset)), self.wide, self.width)

    def _column(self, number: int) -> int:
        """Where the thread's element ``number`` of a row is, from its first: groups lie all threads apart."""
        return number // _GROUP * _GROUP * self.across + number % _GROUP

    @property
    def passes(self) -> int:
        return self.tile.own // _GROUP

    def wait(self, number: int, left: bool) -> None:
        """Around the sums of a pass in shared memory: before they are written, and after (``left``)."""
        if number or left:  # the products end with a barrier
            barrier()

    @property
    def staged(self) -> tuple[int, int]:
        """Rows of C that one pass leaves in shared memory, and elements from one to the next."""
        return self.tile.m // self.passes, self.tile.n

    @property
    def turns(self) -> int:
        """Elements of a pass that each thread finishes."""
        return self.staged[0] * self.tile.n // self.tile.threads

    def element(self, number: int, turn: mlir.Value) -> tuple[mlir.Value, mlir.Value, mlir.Value]:
        """One of them: its row and column in the tile, and where it lies in shared memory."""
        at = memory.plus(memory.times(turn, mlir.constant(self.tile.threads)), self.thread)
        row, column = over(at, self.tile.n), rest(at, self.tile.n)
        where = index((row, self.tile.n * self.width), (column, self.width))
        return self._row_of(number, row), column, where

    def leave(self, shared: Shared, number: int, sums: list[mlir.Value]) -> None:
        """The sums of a pass to shared memory: so many rows of each thread."""
        own, line = self.tile.own, self.tile.n * self.width
        for i in range(_GROUP):
            for j in range(own):
                where = index(
                    (self.row, _GROUP * line),
                    (self.column, _GROUP * self.width),
                    (i, line),
                    (self._column(j), self.width),
                )
                shared.store(where, sums[(number * _GROUP + i) * own + j], self.width)

    def _row_of(self, number: int, row: mlir.Value) -> mlir.Value:
        """The row of the tile that a staged row is."""
        return index((over(row, _GROUP), self.tile.own), (number, _GROUP), (rest(row, _GROUP), 1))
