"""Products of attention on tiles in shared memory: scores of queries and keys, sums of values.

Each warp owns rows, or, if there are few rows, all rows and a part of the keys of a step. Four neighboring
lanes share a row: each lane holds some of its scores and sums in registers, so that a reduction over a row
needs two shuffles.
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
from kcache_compiler.lower.gpu.matmul.mma_tile import Matrices, Terms, multiply
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import i64
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm, scf
from kcache_compiler.mlir.dialects import math as math_dialect

#: Emits one iteration for the counter and the loop-carried values.
Body: TypeAlias = Callable[[mlir.Value, list[mlir.Value]], list[mlir.Value]]
#: The number of one of a thread's rows, static or dynamic.
Number: TypeAlias = "int | mlir.Value"
#: The weights of a row, its maximum, its total, and the factor of its sums.
Weighed: TypeAlias = tuple[list[mlir.Value], mlir.Value, mlir.Value, mlir.Value]
#: Computes these from the number of a row, its scores, and its previous maximum and total.
Weigh: TypeAlias = Callable[[Number, list[mlir.Value], mlir.Value, mlir.Value], Weighed]
WARPS = 4
THREADS = 32 * WARPS
#: Lanes of a row.
QUAD = 4


@dataclass(frozen=True)
class Staged:
    """The tile of an operand: offset in shared memory, bytes of a stage, elements per line, orientation."""

    offset: int
    size: int
    pitch: int
    along_k: bool

    def start(self, stage: mlir.Value) -> mlir.Value:
        return index((stage, self.size), (self.offset, 1))


class Core(ABC):
    """Register tile of a thread: ``own`` rows with scores of ``keys`` keys and sums of ``columns`` columns.

    ``depth`` elements of queries and keys are multiplied at a time. The keys of a step are divided among
    ``key_warps`` warps, 1 or all, which then have the same rows.
    """

    #: Padding elements between lines of a tile.
    pad: int

    def __init__(self, wide: str, own: int, keys: int, depth: int, columns: int, key_warps: int = 1) -> None:
        self.wide, self.own, self.keys, self.depth, self.columns = wide, own, keys, depth, columns
        self.key_warps = key_warps

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.lines // self.key_warps

    @property
    def lines(self) -> int:
        """Rows of all warps, each with maxima, totals and sums of its own."""
        return 8 * self.own * WARPS

    @property
    def warp_keys(self) -> int:
        """Keys of a warp and step."""
        return self.keys // self.key_warps

    @property
    def scores(self) -> int:
        """Scores of a thread."""
        return self.own * self.warp_keys // QUAD

    @property
    def sums(self) -> int:
        return self.own * self.columns // QUAD

    @property
    def scratch(self) -> int:
        """Bytes of shared memory in addition to the tiles."""
        return 0

    def begin(self, shared: Shared, thread: mlir.Value, scratch: int) -> None:
        """Emit the setup before the first product; scratch memory begins at byte ``scratch``."""
        self.shared, self.scratch_at = shared, scratch
        self.lane, self.warp = rest(thread, 32), over(thread, 32)
        self.quad, self.group = rest(self.lane, QUAD), over(self.lane, QUAD)

    def row(self, number: Number) -> mlir.Value:
        """The number in the block of row ``number`` of this thread."""
        if self.key_warps > 1:
            return index((self.group, 1), (number, 8))
        return self.line_of_warp(number)

    def line_of_warp(self, number: Number) -> mlir.Value:
        """The number of row ``number`` of this thread among the rows of all warps."""
        return index((self.warp, 8 * self.own), (self.group, 1), (number, 8))

    @property
    def _first_key(self) -> Terms:
        """The first key of this warp in a step, as terms of an index."""
        return [(self.warp, self.warp_keys)] if self.key_warps > 1 else []

    @property
    def _rows(self) -> list[int]:
        """The offsets of the rows of this thread from its first."""
        return [8 * number for number in range(self.own)]

    @abstractmethod
    def first(self, kind: str) -> mlir.Value:
        """The first key or column of this lane's ``scores`` or ``sums``."""

    @abstractmethod
    def line(self, kind: str, number: int) -> list[tuple[int, int]]:
        """The registers of row ``number`` of scores or sums, with the offsets of their keys or columns."""

    @property
    @abstractmethod
    def together(self) -> int:
        """The number of contiguous columns of sums."""

    @abstractmethod
    def multiply(
        self, queries: Staged, keys: Staged, stage: mlir.Value, scores: list[mlir.Value]
    ) -> list[mlir.Value]:
        """Scores plus the products of queries (of stage 0) with the keys in ``stage``."""

    def each_row(
        self, scores: list[mlir.Value], carried: list[mlir.Value], weigh: Weigh
    ) -> tuple[list[mlir.Value], list[mlir.Value]]:
        """The weights for ``mix``, and the updated maxima, totals and sums of ``carried``."""
        weights, carried, own = list(scores), list(carried), self.own
        for number in range(own):
            line = [place for place, _ in self.line("scores", number)]
            row_scores = [scores[place] for place in line]
            row_weights, top, total, shrink = weigh(
                number, row_scores, carried[number], carried[own + number]
            )
            carried[number], carried[own + number] = top, total
            for place, weight in zip(line, row_weights, strict=True):
                weights[place] = weight
            self._shrink(carried, number, shrink)
        return weights, carried

    def in_turns(
        self, scores: list[mlir.Value], carried: list[mlir.Value], weigh: Weigh
    ) -> tuple[list[mlir.Value], list[mlir.Value]]:
        """``each_row``, optionally as a loop over rows, in which ``weigh`` gets dynamic row numbers."""
        return self.each_row(scores, carried, weigh)

    def _shrink(self, carried: list[mlir.Value], number: int, factor: mlir.Value) -> None:
        """Multiply the sums of a row, which follow maxima and totals in ``carried``."""
        for place, _ in self.line("sums", number):
            position = 2 * self.own + place
            carried[position] = arith.mulf(carried[position], factor)

    @abstractmethod
    def mix(
        self, values: Staged, stage: mlir.Value, weights: list[mlir.Value], sums: list[mlir.Value]
    ) -> list[mlir.Value]:
        """Add the values in ``stage``, weighted by the results of ``each_row`` or ``in_turns``."""


class MatrixRows(Core):
    """MMA tiles by ``mma.m16n8k16``: the result has the layout of the left operand of the next product."""

    pad = 8

    def __init__(self, kind: str, keys: int, depth: int, columns: int, key_warps: int = 1) -> None:
        super().__init__("f32", 2, keys, depth, columns, key_warps)
        self.kind = kind

    def first(self, kind: str) -> mlir.Value:
        return index((self.quad, 2), *(self._first_key if kind == "scores" else []))

    def line(self, kind: str, number: int) -> list[tuple[int, int]]:
        count = self.warp_keys if kind == "scores" else self.columns
        return [
            (4 * block + 2 * number + part, 8 * block + part)
            for block in range(count // 8)
            for part in range(2)
        ]

    @property
    def together(self) -> int:
        return 2

    def _tile(self, staged: Staged, stage: mlir.Value, is_left: bool) -> Matrices:
        return Matrices(
            self.shared, staged.start(stage), 2 * staged.pitch, staged.along_k, is_left, self.lane
        )

    def multiply(
        self, queries: Staged, keys: Staged, stage: mlir.Value, scores: list[mlir.Value]
    ) -> list[mlir.Value]:
        scores = list(scores)
        left, right = self._tile(queries, mlir.constant(0), True), self._tile(keys, stage, False)
        rows: Terms = [] if self.key_warps > 1 else [(self.warp, 16)]
        for deep in range(0, self.depth, 16):
            a = left.load(rows, [(deep, 1)])
            for block in range(self.warp_keys // 16):
                b = right.load([*self._first_key, (block, 16)], [(deep, 1)])
                self._pair(a, b, scores, 8 * block)
        return scores

    def mix(
        self, values: Staged, stage: mlir.Value, weights: list[mlir.Value], sums: list[mlir.Value]
    ) -> list[mlir.Value]:
        sums = list(sums)
        right = self._tile(values, stage, False)
        for step in range(self.warp_keys // 16):
            first = 8 * step
            a = [self._packed(weights[first + 2 * n], weights[first + 2 * n + 1]) for n in range(4)]
            for block in range(self.columns // 16):
                b = right.load([(block, 16)], [*self._first_key, (16 * step, 1)])
                self._pair(a, b, sums, 8 * block)
        return sums

    def _pair(self, a: list[mlir.Value], b: list[mlir.Value], c: list[mlir.Value], at: int) -> None:
        """Multiply by two blocks of eight columns."""
        for half in range(2):
            place = at + 4 * half
            c[place : place + 4] = multiply(self.kind, a, b[2 * half : 2 * half + 2], c[place : place + 4])

    def _packed(self, low: mlir.Value, high: mlir.Value) -> mlir.Value:
        """Pack two weights into one register of the left operand."""
        short = "bf16" if self.kind == "bf16" else "f16"
        pair = intrinsic(f"ff2{short}x2.rn", [high, low], mlir.type_of(f"vector<2x{short}>"))
        assert pair is not None
        return llvm.bitcast(mlir.type_of("i32"), pair)


class PlainRows(Core):
    """FMA tiles in the type of the sums; weights pass through shared memory of their warp.

    A block barrier separates this from the previous iteration.
    """

    def __init__(self, wide: str, own: int, keys: int, depth: int, columns: int, key_warps: int = 1) -> None:
        super().__init__(wide, own, keys, depth, columns, key_warps)
        self.type = mlir.type_of(wide)
        self.width = memory.element_bytes(self.type)
        self.vector = 16 // self.width
        self.pad = self.vector

    @property
    def scratch(self) -> int:
        return self.lines * (self.warp_keys + self.pad) * self.width

    def first(self, kind: str) -> mlir.Value:
        if kind == "scores":
            return index((self.quad, 1), *self._first_key)
        return index((self.quad, self.vector))

    def line(self, kind: str, number: int) -> list[tuple[int, int]]:
        if kind == "scores":
            count = self.warp_keys // QUAD
            return [(number * count + c, QUAD * c) for c in range(count)]
        count, step = self.columns // QUAD, self.vector
        return [(number * count + c, c // step * step * QUAD + c % step) for c in range(count)]

    @property
    def together(self) -> int:
        return self.vector

    def _read(self, place: mlir.Value) -> list[mlir.Value]:
        """Load 16 bytes of contiguous elements from shared memory."""
        return load_each(place, self.vector, self.type, 16)

    def _places(
        self, start: mlir.Value, first: mlir.Value, lines: list[int], pitch: int, at: mlir.Value
    ) -> list[mlir.Value]:
        """Addresses of elements ``at`` of lines at offsets ``lines`` from the line ``first``."""
        offset = memory.plus(start, index((first, pitch * self.width), (at, self.width)))
        address = self.shared.at(offset)
        return [ahead(address, line * pitch * self.width) for line in lines]

    def _steps(
        self,
        count: int,
        step: int,
        values: list[mlir.Value],
        body: Body,
        annotation: mlir.Attribute | None = None,
    ) -> list[mlir.Value]:
        """Emit a loop with a 32-bit counter, which needs one register; its body gets 64 bits."""
        bounds = mlir.constant(0, "i32"), mlir.constant(count, "i32")
        loop = mlir.for_loop(bounds, mlir.constant(step, "i32"), values, annotation)
        block = mlir.block_of(loop)
        with mlir.at_end(block):
            number, *carried = list(block.arguments)
            counter = arith.extui(i64(), number)
            scf.yield_(body(counter, carried))
        return list(loop.results)

    def _fma(self, a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
        return math_dialect.fma(a, b, c)

    def multiply(
        self, queries: Staged, keys: Staged, stage: mlir.Value, scores: list[mlir.Value]
    ) -> list[mlir.Value]:
        """Return ``scores`` plus the products of the tiles of queries and keys, by multiply-adds."""
        first_row, first_key = self.row(0), self.first("scores")
        rows, key_offsets = self._rows, [key for _, key in self.line("scores", 0)]

        def step(at: mlir.Value, accumulators: list[mlir.Value]) -> list[mlir.Value]:
            start = queries.start(mlir.constant(0))
            a = [self._read(address) for address in self._places(start, first_row, rows, queries.pitch, at)]
            b = [
                self._read(address)
                for address in self._places(keys.start(stage), first_key, key_offsets, keys.pitch, at)
            ]
            for n in range(self.vector):
                for i, a_values in enumerate(a):
                    for j, key in enumerate(b):
                        place = i * len(b) + j
                        accumulators[place] = self._fma(a_values[n], key[n], accumulators[place])
            return accumulators

        return self._steps(self.depth, self.vector, scores, step)

    @property
    def _pitch(self) -> int:
        """Elements from one row of weights to the next."""
        return self.warp_keys + self.pad

    def _line_of(self, number: Number, first: mlir.Value) -> mlir.Value:
        """The address of element ``first`` of the weights of a row."""
        row = index(
            (self.line_of_warp(0), self._pitch * self.width), (self.scratch_at, 1), (first, self.width)
        )
        if isinstance(number, int):
            return ahead(self.shared.at(row), 8 * number * self._pitch * self.width)
        return self.shared.at(memory.plus(row, index((number, 8 * self._pitch * self.width))))

    def _keep(self, number: Number, weights: list[mlir.Value]) -> None:
        """Store the weights of a row in shared memory of the warp."""
        start = self._line_of(number, self.quad)
        for weight, (_, key) in zip(weights, self.line("scores", 0), strict=True):
            store(ahead(start, key * self.width), weight, self.width)

    def in_turns(
        self, scores: list[mlir.Value], carried: list[mlir.Value], weigh: Weigh
    ) -> tuple[list[mlir.Value], list[mlir.Value]]:
        """Process the rows in two halves by the same instructions, which halves compile time.

        Scores are stored where the weights of their row will be, contiguous per lane. Loop-carried values are
        rotated, so that the current rows are first.
        """
        own, count, half = self.own, self.warp_keys // QUAD, self.own // 2
        bytes_together = min(16, count * self.width)
        first_score = memory.times(self.quad, mlir.constant(count))
        for number in range(own):
            row_scores = scores[number * count : (number + 1) * count]
            store_each(self._line_of(number, first_score), row_scores, bytes_together)

        def half_step(first: mlir.Value, values: list[mlir.Value]) -> list[mlir.Value]:
            rows = [index((first, 1), (number, 1)) for number in range(half)]
            row_scores = [
                load_each(self._line_of(row, first_score), count, self.type, bytes_together) for row in rows
            ]
            warp_barrier()
            new_states: list[tuple[mlir.Value, ...]] = []
            for number, row in enumerate(rows):
                weights, *state = weigh(row, row_scores[number], values[number], values[own + number])
                self._keep(row, weights)
                new_states.append(tuple(state))
            groups = [values[at : at + own] for at in range(0, 3 * own, own)]
            return [
                value
                for group, new in zip(groups, zip(*new_states, strict=True), strict=True)
                for value in (*group[half:], *new)
            ]

        shrinks = [mlir.float_constant(0, self.type)] * own
        results = self._steps(own, half, [*carried[: 2 * own], *shrinks], half_step, no_unroll_annotation())
        carried = [*results[: 2 * own], *carried[2 * own :]]
        for number, shrink in enumerate(results[2 * own :]):
            self._shrink(carried, number, shrink)
        return [], carried

    def mix(
        self, values: Staged, stage: mlir.Value, weights: list[mlir.Value], sums: list[mlir.Value]
    ) -> list[mlir.Value]:
        """Return ``sums`` plus the products of ``weights`` and the tile of values, by multiply-adds.

        The weights of a warp go through shared memory, because each thread reads those of whole rows.
        """
        start, pitch = mlir.constant(self.scratch_at), self._pitch
        first_row = self.line_of_warp(0)
        for number in range(self.own if weights else 0):
            self._keep(number, [weights[place] for place, _ in self.line("scores", number)])
        warp_barrier()
        column = self.first("sums")
        groups = [offset for place, offset in self.line("sums", 0) if place % self.vector == 0]

        def step(at: mlir.Value, accumulators: list[mlir.Value]) -> list[mlir.Value]:
            a = [self._read(address) for address in self._places(start, first_row, self._rows, pitch, at)]
            first = index((at, 1), *self._first_key)
            lines = self._places(values.start(stage), first, list(range(self.vector)), values.pitch, column)
            for n, line in enumerate(lines):
                b = [element for offset in groups for element in self._read(ahead(line, offset * self.width))]
                for i, a_values in enumerate(a):
                    for j, value in enumerate(b):
                        place = i * len(b) + j
                        accumulators[place] = self._fma(a_values[n], value, accumulators[place])
            return accumulators

        return self._steps(self.warp_keys, self.vector, sums, step)
