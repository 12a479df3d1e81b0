"""MMA tiles: products of two tiles in shared memory by matrix instructions, accumulated in f32."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from kcache_compiler.lower.gpu.addresses import ahead, store, store_each
from kcache_compiler.lower.gpu.intrinsics import barrier, intrinsic, warp_barrier
from kcache_compiler.lower.gpu.matmul.blocking import Tiles
from kcache_compiler.lower.gpu.matmul.fma_tile import Shared, index, over, rest
from kcache_compiler.lower.gpu.matmul.loader import Loader
from kcache_compiler.lower.loops import memory
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import llvm

#: Bytes of an element; padding bytes between the lines of a tile, which reduce bank conflicts; elements of K
#: of one instruction.
_BYTES, _PAD, _STEP = 2, 16, 16

Terms = list[tuple[mlir.Value | int, int]]


@dataclass(frozen=True)
class Matrices:
    """A tile in shared memory at byte ``start``, with ``pitch`` bytes from one line to the next.

    A line is a row along K, or, if not ``along_k``, a step of K along rows.
    """

    shared: Shared
    start: mlir.Value
    pitch: int
    along_k: bool
    #: Whether this is A of the product, otherwise B.
    left: bool
    lane: mlir.Value
    #: Addresses of lines of this lane, by the dynamic terms of their offset, which dominate later uses.
    _lines: dict[Hashable, mlir.Value] = field(default_factory=dict[Hashable, mlir.Value], compare=False)

    def load(self, rows: Terms, depth: Terms) -> list[mlir.Value]:
        """Load 16 rows by 16 steps of K at ``rows`` and ``depth``: four registers of A, or twice two of B."""
        name = "ldmatrix.sync.aligned.m8n8.x4" + ("" if self.along_k else ".trans") + ".b16"
        word = mlir.type_of("!llvm.struct<(i32, i32, i32, i32)>")
        terms = self._place(rows, depth)
        constant = sum(value * factor for value, factor in terms if isinstance(value, int))
        dynamic_terms = tuple((value, factor) for value, factor in terms if not isinstance(value, int))
        if dynamic_terms not in self._lines:
            self._lines[dynamic_terms] = self.shared.at(
                memory.plus(self.start, index(*self._lane, *dynamic_terms))
            )
        return _parts(
            intrinsic(name, [ahead(self._lines[dynamic_terms], constant)], word), mlir.type_of("i32")
        )

    @property
    def _lane(self) -> Terms:
        """The offset of the line that this lane addresses.

        The four matrices are, for A, rows 0 and 8 at the first half of K, then at the second; for B, both
        halves of K at rows 0, then at rows 8. For an operand that is contiguous along rows, each lane
        addresses a step of K, and the matrix is loaded transposed.
        """
        low, middle, high = rest(self.lane, 8), rest(over(self.lane, 8), 2), over(self.lane, 16)
        first, second = (middle, high) if self.left else (high, middle)
        rows: Terms = [(first, 8)]
        depth: Terms = [(second, 8)]
        (rows if self.along_k else depth).append((low, 1))
        return self._place(rows, depth)

    def _place(self, rows: Terms, depth: Terms) -> Terms:
        slow, fast = (rows, depth) if self.along_k else (depth, rows)
        lines = [(value, factor * self.pitch) for value, factor in slow]
        return [*lines, *((value, factor * _BYTES) for value, factor in fast)]


def multiply(kind: str, a: list[mlir.Value], b: list[mlir.Value], c: list[mlir.Value]) -> list[mlir.Value]:
    """Add the products of 16 steps of K, of elements of ``kind``, to 16 x 8 sums ``c``."""
    result, wide = mlir.type_of("!llvm.struct<(f32, f32, f32, f32)>"), mlir.type_of("f32")
    if kind == "bf16":
        return _parts(intrinsic("mma.m16n8k16.row.col.bf16", [*a, *b, *c], result), wide)
    halves = [llvm.bitcast(mlir.type_of("vector<2xf16>"), register) for register in (*a, *b)]
    return _parts(intrinsic("mma.m16n8k16.row.col.f32.f32", [*halves, *c], result), wide)


def _parts(struct: mlir.Value, kind: mlir.Type) -> list[mlir.Value]:
    return [llvm.extractvalue(kind, struct, [place]) for place in range(4)]


class MatrixCore:
    """MMA tiles of f16 and bf16 by ``m16n8k16``; warps, in one or two rows, have parts of the tile."""

    def __init__(self, tiles: Tiles, thread: mlir.Value) -> None:
        tile = tiles.tile
        self.tile, self.wide, self.width = tile, mlir.type_of("f32"), 4
        self.kind = tiles.a.element
        self.warps_n = tile.threads // 32 // tile.warp_rows
        self.m, self.n = tile.m // tile.warp_rows, tile.n // self.warps_n
        self.along = (tiles.a.along_k, tiles.b.along_k)
        sides = list(zip(self.along, (tile.m, tile.n), strict=True))
        self.pitches = [(tile.k if along_k else rows) * _BYTES + _PAD for along_k, rows in sides]
        lines = [rows if along_k else tile.k for along_k, rows in sides]
        self.sizes = [pitch * line for pitch, line in zip(self.pitches, lines, strict=True)]
        self.stage = sum(self.sizes)
        self.lane, self.warp = rest(thread, 32), over(thread, 32)
        self.warp_m, self.warp_n = over(self.warp, self.warps_n), rest(self.warp, self.warps_n)

    @property
    def shared_bytes(self) -> int:
        return max(self.tile.stages * self.stage, self.tile.threads // 32 * self._own)

    @property
    def _own(self) -> int:
        """The bytes of a warp's sums of a pass."""
        return 16 * self._pitch

    @property
    def _pitch(self) -> int:
        return 4 * self.n + _PAD

    def start(self) -> list[mlir.Value]:
        """The initial sums."""
        return [mlir.float_constant(0, self.wide) for _ in range(self.m * self.n // 32)]

    def places(self, shared: Shared, side: int, stage: mlir.Value, loader: Loader) -> list[mlir.Value]:
        """The addresses of the chunks of an operand in a stage."""

        def place(row: mlir.Value, depth: mlir.Value) -> mlir.Value:
            slow, fast = (row, depth) if self.along[side] else (depth, row)
            terms = [(stage, self.stage), (side, self.sizes[0])]
            return shared.at(index(*terms, (slow, self.pitches[side]), (fast, _BYTES)))

        return loader.lines(place, self.pitches[side])

    def store_tiles(
        self, shared: Shared, side: int, stage: mlir.Value, loader: Loader, chunks: list[mlir.Value]
    ) -> None:
        """Store chunks of an operand in a stage."""
        for address, chunk in zip(self.places(shared, side, stage, loader), chunks, strict=True):
            store(address, chunk, loader.width)

    def step(self, shared: Shared, stage: mlir.Value, sums: list[mlir.Value]) -> list[mlir.Value]:
        """Add the products of the two tiles in ``stage``."""
        sums = list(sums)
        sides = [self._matrices(shared, stage, side) for side in range(2)]
        for deep in range(0, self.tile.k, _STEP):
            depth: Terms = [(deep, 1)]
            a = [sides[0].load([(self.warp_m, self.m), (i, 16)], depth) for i in range(self.m // 16)]
            b = [sides[1].load([(self.warp_n, self.n), (j, 16)], depth) for j in range(self.n // 16)]
            for i in range(self.m // 16):
                for j in range(self.n // 8):
                    pair = b[j // 2][2 * (j % 2) : 2 * (j % 2) + 2]
                    place = 4 * (i * (self.n // 8) + j)
                    sums[place : place + 4] = multiply(self.kind, a[i], pair, sums[place : place + 4])
        return sums

    def _matrices(self, shared: Shared, stage: mlir.Value, side: int) -> Matrices:
        start = index((stage, self.stage), (side, self.sizes[0]))
        return Matrices(shared, start, self.pitches[side], self.along[side], side == 0, self.lane)

    @property
    def passes(self) -> int:
        return self.m // 16

    def wait(self, number: int, left: bool) -> None:
        """Synchronize before the sums of a pass are stored in shared memory, and after (``left``).

        Each warp has its own memory for sums, which before held tiles of other warps.
        """
        if number or left:
            warp_barrier()
        elif self.tile.stages > 2:
            barrier()

    def store_sums(self, shared: Shared, number: int, sums: list[mlir.Value]) -> None:
        """Store the sums of a pass in shared memory: 16 rows of the warp."""
        lane = index((self.warp, self._own), (over(self.lane, 4), self._pitch), (rest(self.lane, 4), 8))
        first = shared.at(lane)
        for j in range(self.n // 8):
            for half in range(2):
                place = 4 * (number * (self.n // 8) + j) + 2 * half
                address = ahead(first, half * 8 * self._pitch + 32 * j)
                store_each(address, sums[place : place + 2], 8)

    @property
    def turns(self) -> int:
        """The elements of a pass that each thread finishes."""
        return 16 * self.n // 32

    def element(self, number: int, turn: mlir.Value) -> tuple[mlir.Value, mlir.Value, mlir.Value]:
        """An element of a pass: its row and column in the tile, and its offset in shared memory."""
        at = memory.plus(memory.times(turn, mlir.constant(32)), self.lane)
        row, column = over(at, self.n), rest(at, self.n)
        offset = index((self.warp, self._own), (row, self._pitch), (column, 4))
        row = index((self.warp_m, self.m), (number, 16), (row, 1))
        return row, index((self.warp_n, self.n), (column, 1)), offset
