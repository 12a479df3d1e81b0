"""What threads of attention do with tiles in shared memory: scores of queries and keys, sums of values.

A warp has rows of its own. Four neighbouring lanes share each of them: every lane has some of its scores and
some of its sums in registers, so that what is known of a row passes by two shuffles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kcache_compiler.lower.gpu.addresses import ahead, load_each, store, store_each
from kcache_compiler.lower.gpu.intrinsics import intrinsic, warp_barrier
from kcache_compiler.lower.gpu.kernel import no_unroll_annotation
from kcache_compiler.lower.gpu.matmul.fma_tile import Shared, index, over, rest
from kcache_compiler.lower.gpu.matmul.mma_tile import Matrices, multiply
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import i64
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm, scf
from kcache_compiler.mlir.dialects import math as math_dialect

#: A step of a loop: its counter, and values that are carried.
Body: TypeAlias = Callable[[mlir.Value, list[mlir.Value]], list[mlir.Value]]
#: Which of a thread's rows: known as the kernel is written, or as it runs.
Number: TypeAlias = "int | mlir.Value"
#: The weights of a row, its maximum, its total, and what its sums shrink by.
Weighed: TypeAlias = tuple[list[mlir.Value], mlir.Value, mlir.Value, mlir.Value]
#: These for the number of a row, its scores, and its maximum and total before.
Weigh: TypeAlias = Callable[[Number, list[mlir.Value], mlir.Value, mlir.Value], Weighed]
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

    def row(self, number: Number) -> mlir.Value:
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

    def each_row(
        self, scores: list[mlir.Value], carried: list[mlir.Value], weigh: Weigh
    ) -> tuple[list[mlir.Value], list[mlir.Value]]:
        """Weights for ``mix``, and the maxima, totals and sums that ``carried`` become before it."""
        weights, carried, own = list(scores), list(carried), self.own
        for number in range(own):
            line = [place for place, _ in self.line("scores", number)]
            mine = [scores[place] for place in line]
            found, top, total, shrink = weigh(number, mine, carried[number], carried[own + number])
            carried[number], carried[own + number] = top, total
            for place, weight in zip(line, found, strict=True):
                weights[place] = weight
            self._shrink(carried, number, shrink)
        return weights, carried

    def in_turns(
        self, scores: list[mlir.Value], carried: list[mlir.Value], weigh: Weigh
    ) -> tuple[list[mlir.Value], list[mlir.Value]]:
        """The same, where rows may share instructions: ``weigh`` gets numbers that the kernel counts."""
        return self.each_row(scores, carried, weigh)

    def _shrink(self, carried: list[mlir.Value], number: int, factor: mlir.Value) -> None:
        """Multiply the sums of a row, which follow maxima and totals."""
        for place, _ in self.line("sums", number):
            at = 2 * self.own + place
            carried[at] = arith.mulf(carried[at], factor)

    @abstractmethod
    def mix(
        self, values: Staged, stage: mlir.Value, weights: list[mlir.Value], sums: list[mlir.Value]
    ) -> list[mlir.Value]:
        """Sums plus the values in ``stage``, weighted by what ``each_row`` or ``in_turns`` left."""


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
        return llvm.bitcast(mlir.type_of("i32"), pair)


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

    def _steps(
        self,
        count: int,
        step: int,
        values: list[mlir.Value],
        body: Body,
        annotation: mlir.Attribute | None = None,
    ) -> list[mlir.Value]:
        """A loop that counts in 32 bits, one register; its body gets 64."""
        bounds = mlir.constant(0, "i32"), mlir.constant(count, "i32")
        made = mlir.for_loop(bounds, mlir.constant(step, "i32"), values, annotation)
        block = mlir.block_of(made)
        with mlir.at_end(block):
            number, *inside = list(block.arguments)
            at = arith.extui(i64(), number)
            scf.yield_(body(at, inside))
        return list(made.results)

    def _fma(self, a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
        return math_dialect.fma(a, b, c)

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

        return self._steps(self.depth, self.vector, scores, step)

    @property
    def _pitch(self) -> int:
        """Elements from one row of weights to the next."""
        return self.keys + self.pad

    def _line_of(self, number: Number, first: mlir.Value) -> mlir.Value:
        """The address of element ``first`` of the weights of a row."""
        row = index((self.row(0), self._pitch * self.width), (self.scratch_at, 1), (first, self.width))
        if isinstance(number, int):
            return ahead(self.shared.at(row), 8 * number * self._pitch * self.width)
        return self.shared.at(memory.plus(row, index((number, 8 * self._pitch * self.width))))

    def _keep(self, number: Number, weights: list[mlir.Value]) -> None:
        """The weights of a row to the memory of the warp."""
        start = self._line_of(number, self.first("scores"))
        for weight, (_, key) in zip(weights, self.line("scores", 0), strict=True):
            store(ahead(start, key * self.width), weight, self.width)

    def in_turns(
        self, scores: list[mlir.Value], carried: list[mlir.Value], weigh: Weigh
    ) -> tuple[list[mlir.Value], list[mlir.Value]]:
        """Half of the rows, then the others by the same instructions: they are what takes time to compile.

        Scores wait where the weights of their row will be, those of a lane side by side. What is carried for
        rows goes around, so that the first are those whose turn it is.
        """
        own, count, half = self.own, self.keys // QUAD, self.own // 2
        mine = memory.times(self.quad, mlir.constant(count))
        for number in range(own):
            store_each(self._line_of(number, mine), scores[number * count : (number + 1) * count], 16)

        def turn(first: mlir.Value, values: list[mlir.Value]) -> list[mlir.Value]:
            rows = [index((first, 1), (number, 1)) for number in range(half)]
            waiting = [load_each(self._line_of(row, mine), count, self.type, 16) for row in rows]
            warp_barrier()
            made: list[tuple[mlir.Value, ...]] = []
            for number, row in enumerate(rows):
                weights, *others = weigh(row, waiting[number], values[number], values[own + number])
                self._keep(row, weights)
                made.append(tuple(others))
            groups = [values[at : at + own] for at in range(0, 3 * own, own)]
            return [
                one
                for group, new in zip(groups, zip(*made, strict=True), strict=True)
                for one in (*group[half:], *new)
            ]

        shrinks = [mlir.float_constant(0, self.type)] * own
        left = self._steps(own, half, [*carried[: 2 * own], *shrinks], turn, no_unroll_annotation())
        carried = [*left[: 2 * own], *carried[2 * own :]]
        for number, shrink in enumerate(left[2 * own :]):
            self._shrink(carried, number, shrink)
        return [], carried

    def mix(
        self, values: Staged, stage: mlir.Value, weights: list[mlir.Value], sums: list[mlir.Value]
    ) -> list[mlir.Value]:
        start, pitch = mlir.constant(self.scratch_at), self._pitch
        mine = self.row(0)
        for number in range(self.own if weights else 0):
            self._keep(number, [weights[place] for place, _ in self.line("scores", number)])
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

        return self._steps(self.keys, self.vector, sums, step)
