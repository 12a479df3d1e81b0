"""What threads of attention do with tiles in shared memory: scores of queries and keys, sums of values.

A warp has rows of its own. Four neighbouring lanes share each of them: every lane has some of its scores and
some of its sums in registers, so that what is known of a row passes by two shuffles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.gpu.cores import Shared, index, over, rest
from kcache_compiler.codegen.gpu.intrinsics import intrinsic, warp_barrier
from kcache_compiler.codegen.gpu.matrix_core import Matrices, multiply
from kcache_compiler.codegen.gpu.places import ahead, load_each, store
from kcache_compiler.codegen.memory import i64

#: A step of a loop: its counter, and values that are carried.
Body: TypeAlias = Callable[[mlir.Value, list[mlir.Value]], list[mlir.Value]]
WARPS = 4
THREADS = 32 * WARPS
#: Lanes of a row.
QUAD = 4


@dataclass(frozen=True)
class Staged:
    """An operand's tile: bytes from the start of shared memory, of one stage, between lines; how it lies."""

    offset: int
    size: int
    pitch: int
    along_k: bool

    def start(self, stage: mlir.Value) -> mlir.Value:
        return index((stage, self.size), (self.offset, 1))


class Core(ABC):
    """``own`` rows of a thread, scores of ``keys`` keys each, sums of ``columns`` columns; ``depth`` of
    queries and keys at a time.
    """

    #: Elements between lines of a tile beyond its own.
    pad: int

    def __init__(self, wide: str, own: int, keys: int, depth: int, columns: int) -> None:
        self.wide, self.own, self.keys, self.depth, self.columns = wide, own, keys, depth, columns

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return 8 * self.own * WARPS

    @property
    def scores(self) -> int:
        """Scores of a thread."""
        return self.own * self.keys // QUAD

    @property
    def sums(self) -> int:
        return self.own * self.columns // QUAD

    @property
    def scratch(self) -> int:
        """Bytes of shared memory besides the tiles."""
        return 0

    def begin(self, shared: Shared, thread: mlir.Value, scratch: int) -> None:
        """Before the first product; the scratch begins at byte ``scratch``."""
        self.shared, self.scratch_at = shared, scratch
        self.lane, self.warp = rest(thread, 32), over(thread, 32)
        self.quad, self.group = rest(self.lane, QUAD), over(self.lane, QUAD)

    def row(self, number: int) -> mlir.Value:
        """The row of the block that row ``number`` of this thread is."""
        return index((self.warp, 8 * self.own), (self.group, 1), (number, 8))

    @property
    def _rows(self) -> list[int]:
        """How far the rows of this thread are from the first."""
        return [8 * number for number in range(self.own)]

    @abstractmethod
    def first(self, kind: str) -> mlir.Value:
        """The first of the keys or columns that this lane has of ``scores`` or ``sums``."""

    @abstractmethod
    def line(self, kind: str, number: int) -> list[tuple[int, int]]:
        """Places of row ``number`` in the registers of scores or sums, with how far their keys or columns are
        from the first.
        """

    @property
    @abstractmethod
    def together(self) -> int:
        """Columns of sums that are neighbours."""

    @abstractmethod
    def multiply(
        self, queries: Staged, keys: Staged, stage: mlir.Value, scores: list[mlir.Value]
    ) -> list[mlir.Value]:
        """Scores plus the products of queries (of stage 0) with the keys in ``stage``."""

    @abstractmethod
    def mix(
        self, values: Staged, stage: mlir.Value, weights: list[mlir.Value], sums: list[mlir.Value]
    ) -> list[mlir.Value]:
        """Sums plus the weighted values in ``stage``."""


class MatrixRows(Core):
    """By ``mma.m16n8k16``: the sums of a product lie as the left operand of the next one does."""

    pad = 8

    def __init__(self, kind: str, keys: int, depth: int, columns: int) -> None:
        super().__init__("f32", 2, keys, depth, columns)
        self.kind = kind

    def first(self, kind: str) -> mlir.Value:
        return index((self.quad, 2))

    def line(self, kind: str, number: int) -> list[tuple[int, int]]:
        count = self.keys if kind == "scores" else self.columns
        return [
            (4 * block + 2 * number + part, 8 * block + part)
            for block in range(count // 8)
            for part in range(2)
        ]

    @property
    def together(self) -> int:
        return 2

    def _tile(self, staged: Staged, stage: mlir.Value, left: bool) -> Matrices:
        return Matrices(self.shared, staged.start(stage), 2 * staged.pitch, staged.along_k, left, self.lane)

    def multiply(
        self, queries: Staged, keys: Staged, stage: mlir.Value, scores: list[mlir.Value]
    ) -> list[mlir.Value]:
        scores = list(scores)
        left, right = self._tile(queries, mlir.constant(0), True), self._tile(keys, stage, False)
        for deep in range(0, self.depth, 16):
            a = left.load([(self.warp, 16)], [(deep, 1)])
            for block in range(self.keys // 16):
                self._pair(a, right.load([(block, 16)], [(deep, 1)]), scores, 8 * block)
        return scores

    def mix(
        self, values: Staged, stage: mlir.Value, weights: list[mlir.Value], sums: list[mlir.Value]
    ) -> list[mlir.Value]:
        sums = list(sums)
        right = self._tile(values, stage, False)
        for step in range(self.keys // 16):
            first = 8 * step
            a = [self._packed(weights[first + 2 * n], weights[first + 2 * n + 1]) for n in range(4)]
            for block in range(self.columns // 16):
                self._pair(a, right.load([(block, 16)], [(16 * step, 1)]), sums, 8 * block)
        return sums

    def _pair(self, a: list[mlir.Value], b: list[mlir.Value], c: list[mlir.Value], at: int) -> None:
        """The products with two blocks of eight columns."""
        for half in range(2):
            place = at + 4 * half
            c[place : place + 4] = multiply(self.kind, a, b[2 * half : 2 * half + 2], c[place : place + 4])

    def _packed(self, low: mlir.Value, high: mlir.Value) -> mlir.Value:
        """Two weights as one register of the left operand."""
        short = "bf16" if self.kind == "bf16" else "f16"
        pair = intrinsic(f"ff2{short}x2.rn", [high, low], mlir.type_of(f"vector<2x{short}>"))
        assert pair is not None
        return mlir.value("llvm.bitcast", [pair], mlir.type_of("i32"))


class PlainRows(Core):
    """By fused multiply-adds in the type of the sums; weights go through memory of their warp.

    A barrier of the block stands between that and the step before.
    """

    def __init__(self, wide: str, own: int, keys: int, depth: int, columns: int) -> None:
        super().__init__(wide, own, keys, depth, columns)
        self.type = mlir.type_of(wide)
        self.width = memory.element_bytes(self.type)
        self.vector = 16 // self.width
        self.pad = self.vector

    @property
    def scratch(self) -> int:
        return self.rows * (self.keys + self.pad) * self.width

    def first(self, kind: str) -> mlir.Value:
        return self.quad if kind == "scores" else index((self.quad, self.vector))

    def line(self, kind: str, number: int) -> list[tuple[int, int]]:
        if kind == "scores":
            count = self.keys // QUAD
            return [(number * count + c, QUAD * c) for c in range(count)]
        count, step = self.columns // QUAD, self.vector
        return [(number * count + c, c // step * step * QUAD + c % step) for c in range(count)]

    @property
    def together(self) -> int:
        return self.vector

    def _read(self, place: mlir.Value) -> list[mlir.Value]:
        """Neighbours in a line of shared memory, 16 bytes."""
        return load_each(place, self.vector, self.type, 16)

    def _places(
        self, start: mlir.Value, first: mlir.Value, lines: list[int], pitch: int, at: mlir.Value
    ) -> list[mlir.Value]:
        """Addresses of elements ``at`` of lines that are so far from the line ``first``."""
        where = memory.plus(start, index((first, pitch * self.width), (at, self.width)))
        place = self.shared.at(where)
        return [ahead(place, line * pitch * self.width) for line in lines]

    def _steps(self, count: int, values: list[mlir.Value], body: Body) -> list[mlir.Value]:
        kinds = [self.type] * len(values)
        bounds = [mlir.constant(0), mlir.constant(count), mlir.constant(self.vector)]
        made = mlir.create("scf.for", [*bounds, *values], kinds, regions=1)
        block = mlir.new_block(made, 0, [i64(), *kinds])
        with mlir.at_end(block):
            at, *inside = list(block.arguments)
            mlir.create("scf.yield", body(at, inside))
        return list(made.results)

    def _fma(self, a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
        return mlir.value("math.fma", [a, b, c], self.type)

    def multiply(
        self, queries: Staged, keys: Staged, stage: mlir.Value, scores: list[mlir.Value]
    ) -> list[mlir.Value]:
        mine, theirs = self.row(0), self.first("scores")
        rows, others = self._rows, [key for _, key in self.line("scores", 0)]

        def step(at: mlir.Value, found: list[mlir.Value]) -> list[mlir.Value]:
            start = queries.start(mlir.constant(0))
            a = [self._read(one) for one in self._places(start, mine, rows, queries.pitch, at)]
            b = [self._read(one) for one in self._places(keys.start(stage), theirs, others, keys.pitch, at)]
            for n in range(self.vector):
                for i, row in enumerate(a):
                    for j, key in enumerate(b):
                        place = i * len(b) + j
                        found[place] = self._fma(row[n], key[n], found[place])
            return found

        return self._steps(self.depth, scores, step)

    def mix(
        self, values: Staged, stage: mlir.Value, weights: list[mlir.Value], sums: list[mlir.Value]
    ) -> list[mlir.Value]:
        start, pitch = mlir.constant(self.scratch_at), self.keys + self.pad
        mine = self.row(0)
        firsts = self._places(start, mine, self._rows, pitch, self.first("scores"))
        for number, first in enumerate(firsts):
            for place, key in self.line("scores", number):
                store(ahead(first, key * self.width), weights[place], self.width)
        warp_barrier()
        column = self.first("sums")
        groups = [away for place, away in self.line("sums", 0) if place % self.vector == 0]

        def step(at: mlir.Value, found: list[mlir.Value]) -> list[mlir.Value]:
            a = [self._read(one) for one in self._places(start, mine, self._rows, pitch, at)]
            lines = self._places(values.start(stage), at, list(range(self.vector)), values.pitch, column)
            for n, line in enumerate(lines):
                b = [one for away in groups for one in self._read(ahead(line, away * self.width))]
                for i, row in enumerate(a):
                    for j, value in enumerate(b):
                        place = i * len(b) + j
                        found[place] = self._fma(row[n], value, found[place])
            return found

        return self._steps(self.keys, sums, step)
