"""What threads do with two tiles in shared memory: plain multiply-adds, or matrix instructions."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.gpu.intrinsics import intrinsic
from kcache_compiler.codegen.gpu.tiles import Loader, Tiles
from kcache_compiler.codegen.memory import i64

#: Elements between the rows of a tile beyond its own, so that threads meet in few banks.
_PAD, _PLAIN_PAD = 8, 4
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
    total = mlir.constant(0)
    for value, factor in terms:
        one = (
            mlir.constant(value * factor)
            if isinstance(value, int)
            else memory.times(value, mlir.constant(factor))
        )
        total = memory.plus(total, one)
    return total


def over(number: mlir.Value, divisor: int) -> mlir.Value:
    return mlir.value("arith.divui", [number, mlir.constant(divisor)], i64())


def rest(number: mlir.Value, divisor: int) -> mlir.Value:
    return mlir.value("arith.remui", [number, mlir.constant(divisor)], i64())


class PlainCore:
    """Each thread ``own`` by ``own`` elements, by fused multiply-adds in the type of the sums."""

    def __init__(self, tiles: Tiles, thread: mlir.Value) -> None:
        self.tile, self.wide = tiles.tile, mlir.type_of(tiles.wide)
        self.width = memory.element_bytes(self.wide)
        self.pitch = self.tile.m + _PLAIN_PAD
        self.half = self.tile.k * self.pitch * self.width
        self.across = self.tile.n // self.tile.own
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

    @property
    def staged(self) -> tuple[int, int]:
        """Rows of C that one pass leaves in shared memory, and elements from one to the next."""
        return self.tile.m // self.passes, self.tile.n

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

    def row_of(self, number: int, row: mlir.Value) -> mlir.Value:
        """The row of the tile that a staged row is."""
        return index((over(row, _GROUP), self.tile.own), (number, _GROUP), (rest(row, _GROUP), 1))


class MatrixCore:
    """Warps in two rows, each with a part of the tile, by ``mma.m16n8k16`` in f32."""

    def __init__(self, tiles: Tiles, thread: mlir.Value) -> None:
        tile = tiles.tile
        self.tile, self.wide, self.width = tile, mlir.type_of("f32"), 4
        self.kind = tiles.a.element
        self.warps_n = tile.threads // 32 // 2
        self.m, self.n = tile.m // 2, tile.n // self.warps_n
        self.along = (tiles.a.along_k, tiles.b.along_k)
        self.pitches = [
            tile.k + _PAD if along else rows + _PAD
            for along, rows in zip(self.along, (tile.m, tile.n), strict=True)
        ]
        lines = [rows if along else tile.k for along, rows in zip(self.along, (tile.m, tile.n), strict=True)]
        self.bytes = [2 * pitch * line for pitch, line in zip(self.pitches, lines, strict=True)]
        self.stage = sum(self.bytes)
        self.lane, warp = rest(thread, 32), over(thread, 32)
        self.warp_m, self.warp_n = over(warp, self.warps_n), rest(warp, self.warps_n)

    @property
    def shared_bytes(self) -> int:
        return max(2 * self.stage, 32 * (self.tile.n + _PAD) * 4)

    def start(self) -> list[mlir.Value]:
        """Sums of nothing."""
        return [mlir.float_constant(0, self.wide) for _ in range(self.m * self.n // 32)]

    def keep(
        self, shared: Shared, side: int, stage: mlir.Value, loader: Loader, chunks: list[mlir.Value]
    ) -> None:
        """Chunks of an operand to one of the two stages."""
        pitch, along = self.pitches[side], self.along[side]
        for (row, depth), chunk in zip(loader.places, chunks, strict=True):
            slow, fast = (row, depth) if along else (depth, row)
            where = index((stage, self.stage), (side, self.bytes[0]), (slow, 2 * pitch), (fast, 2))
            shared.store(where, chunk, 2 * loader.lanes)

    def step(self, shared: Shared, stage: mlir.Value, sums: list[mlir.Value]) -> list[mlir.Value]:
        """All products of the two tiles in ``stage``."""
        sums = list(sums)
        for deep in range(0, self.tile.k, 16):
            a = [self._fragment(shared, stage, 0, i, deep) for i in range(self.m // 16)]
            b = [self._fragment(shared, stage, 1, j, deep) for j in range(self.n // 16)]
            for i in range(self.m // 16):
                for j in range(self.n // 8):
                    pair = b[j // 2][2 * (j % 2) : 2 * (j % 2) + 2]
                    place = 4 * (i * (self.n // 8) + j)
                    sums[place : place + 4] = self._multiply(a[i], pair, sums[place : place + 4])
        return sums

    def _fragment(
        self, shared: Shared, stage: mlir.Value, side: int, block: int, deep: int
    ) -> list[mlir.Value]:
        """Sixteen rows by sixteen of K: four registers of A, or twice two of B."""
        low, middle, high = rest(self.lane, 8), rest(over(self.lane, 8), 2), over(self.lane, 16)
        along, pitch = self.along[side], self.pitches[side]
        first, second = (middle, high) if side == 0 else (high, middle)
        # The four matrices: of A rows 0, 8 at K 0, then at K 8; of B K 0, 8 at rows 0, then at rows 8. Of an
        # operand that lies along rows each lane addresses a line of K, and the matrix comes transposed.
        row = [(first, 8), (block, 16)]
        depth = [(second, 8), (deep, 1)]
        (row if along else depth).append((low, 1))
        row.append((self.warp_m if side == 0 else self.warp_n, self.m if side == 0 else self.n))
        slow, fast = (row, depth) if along else (depth, row)
        where = index((stage, self.stage), (side, self.bytes[0]))
        where = memory.plus(where, index(*((value, factor * 2 * pitch) for value, factor in slow)))
        where = memory.plus(where, index(*((value, factor * 2) for value, factor in fast)))
        name = "ldmatrix.sync.aligned.m8n8.x4" + ("" if along else ".trans") + ".b16"
        word = mlir.type_of("!llvm.struct<(i32, i32, i32, i32)>")
        return _parts(intrinsic(name, [shared.at(where)], word), mlir.type_of("i32"))

    def _multiply(self, a: list[mlir.Value], b: list[mlir.Value], c: list[mlir.Value]) -> list[mlir.Value]:
        result = mlir.type_of("!llvm.struct<(f32, f32, f32, f32)>")
        if self.kind == "bf16":
            return _parts(intrinsic("mma.m16n8k16.row.col.bf16", [*a, *b, *c], result), self.wide)
        halves = [mlir.value("llvm.bitcast", [one], mlir.type_of("vector<2xf16>")) for one in (*a, *b)]
        return _parts(intrinsic("mma.m16n8k16.row.col.f32.f32", [*halves, *c], result), self.wide)

    @property
    def passes(self) -> int:
        return self.m // 16

    @property
    def staged(self) -> tuple[int, int]:
        """Rows of C that one pass leaves in shared memory, and elements from one to the next."""
        return 32, self.tile.n + _PAD

    def leave(self, shared: Shared, number: int, sums: list[mlir.Value]) -> None:
        """The sums of a pass to shared memory: of each row of warps sixteen rows."""
        pitch = self.tile.n + _PAD
        for j in range(self.n // 8):
            for half in range(2):
                for part in range(2):
                    where = index(
                        (self.warp_m, 16 * pitch * 4),
                        (over(self.lane, 4), pitch * 4),
                        (half, 8 * pitch * 4),
                        (self.warp_n, self.n * 4),
                        (rest(self.lane, 4), 8),
                        (j, 32),
                        (part, 4),
                    )
                    shared.store(where, sums[4 * (number * (self.n // 8) + j) + 2 * half + part], 4)

    def row_of(self, number: int, row: mlir.Value) -> mlir.Value:
        """The row of the tile that a staged row is."""
        return index((over(row, 16), self.m), (number, 16), (rest(row, 16), 1))


def _parts(struct: mlir.Value | None, kind: mlir.Type) -> list[mlir.Value]:
    return [
        mlir.value("llvm.extractvalue", [struct], kind, position=mlir.attribute(f"array<i64: {place}>"))
        for place in range(4)
    ]


def core_of(tiles: Tiles, thread: mlir.Value) -> PlainCore | MatrixCore:
    """The core of a plan."""
    return PlainCore(tiles, thread) if tiles.tile.own else MatrixCore(tiles, thread)
