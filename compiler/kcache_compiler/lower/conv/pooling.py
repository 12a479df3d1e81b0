"""The launch of a pooling of rows: maxima along columns first, then along rows.

A row of the image is read once for each tap along columns, in whole vectors; their maxima are in scratch with
the neutral constant around them, from which taps along a row are read, with a stride of two as the even and
the odd elements of two vectors. Rows outside of the image are a row of neutral constants.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kcache_compiler.lower.conv.channels_last_match import BYTES
from kcache_compiler.lower.conv.channels_pooling import channels_text
from kcache_compiler.lower.conv.pooling_match import ChannelsPool, Pool, read_pool
from kcache_compiler.lower.gemm.objects import lowered
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, slice_function
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.passes.stage import Unit

_POINTER = "!llvm.ptr"


def outline_pooling(unit: Unit, generics: list[mlir.Op], name: str, shapes: Shapes) -> Outlined | None:
    """The slice function of a pooling, of the fill of its results and of its padding; None for others."""
    pool = read_pool(generics, shapes, unit.target.vector_bytes)
    if pool is None:
        return None
    outlined = Outlined(name, pool, (mlir.name_of(pool.combiner),), [pool.image, pool.result], [])
    outlined.spared = [mlir.definition(value) for value in pool.spared]
    function, entry = slice_function(unit.module, outlined, {pool.result})
    channels_last = isinstance(pool, ChannelsPool)
    text = channels_text(pool, f"{name}_pool") if channels_last else _Rows(pool, f"{name}_pool").text()
    mlir.splice(unit.module, str(lowered(text)))
    with mlir.at_end(entry):
        begin, end, _, image, result = entry.arguments
        mlir.call_llvm(f"{name}_pool", [begin, end, image, result])
        func.return_([mlir.constant(0, "i32")])
    function.verify()
    return outlined


class _Rows:
    """Emits ``(begin, end, x, y)``: rows of results, counted through all outer axes."""

    def __init__(self, pool: Pool, name: str) -> None:
        self.pool = pool
        self.width = BYTES[pool.kind]
        numbers = [("begin", "i64"), ("end", "i64")]
        self.code = Code(name, [*numbers, ("x", _POINTER), ("y", _POINTER)])
        attributes = pool.combiner.attributes
        self.flags = (
            str(attributes["fastmath"]).removeprefix("#arith.") + " " if "fastmath" in attributes else ""
        )
        #: Maxima along columns of the rows that are computed together; a row of neutral constants.
        self.maxima = self.code.stack(pool.together * pool.width, pool.kind)
        self.outside = self.code.stack(pool.columns.image, pool.kind)

    def text(self) -> str:
        code, pool = self.code, self.pool
        neutral = "0xFF800000" if pool.kind == "f32" else "0xFFF0000000000000"
        if pool.neutral > 0:
            neutral = neutral.replace("0xFF", "0x7F", 1)
        if pool.pads_rows:
            self._fill(self.outside, pool.columns.image, neutral)
        if pool.is_apart:
            with code.loop("%begin", "%end") as row:
                self._reduce_pairs(row.counter)
            return code.text()
        self._fill(self.maxima, pool.together * pool.width, neutral)
        with code.loop("%begin", "%end", pool.together) as group:
            count = code.min(code.sub("%end", group.counter), pool.together)
            with code.loop(0, count) as row:
                target = code.at(self.maxima, code.mul(row.counter, pool.width), pool.kind)
                self._reduce_columns(code.add(group.counter, row.counter), target)
            with code.loop(0, count) as row:
                source = code.at(self.maxima, code.mul(row.counter, pool.width), pool.kind)
                self._reduce_row(code.add(group.counter, row.counter), source)
        return code.text()

    def _fill(self, place: Name, count: int, literal: str) -> None:
        code, pool = self.code, self.pool
        constant = code.const(literal, pool.kind)
        with code.loop(0, count) as loop:
            code.store(constant, code.at(place, loop.counter, pool.kind), pool.kind, self.width)

    def _place(self, number: Name, base: Name, side: int) -> Name:
        """The start of the outer axes at row ``number`` of the image, or of the results (``side`` 1)."""
        code, pool = self.code, self.pool
        point = code.div(number, pool.rows.results)
        for size, *strides in reversed(pool.outer):
            index, point = code.rem(point, size), code.div(point, size)
            base = code.at(base, code.mul(index, strides[side]), pool.kind)
        return base

    def _rows_of(self, number: Name) -> list[Name]:
        """The rows of the image that row ``number`` of results depends on."""
        code, pool = self.code, self.pool
        rows, row, image = pool.rows, code.rem(number, pool.rows.results), self._place(number, "%x", 0)
        sources: list[Name] = []
        for tap in range(rows.taps):
            place = code.add(code.mul(row, rows.stride), tap * rows.dilation - rows.before)
            source = code.at(image, code.mul(place, pool.x), pool.kind)
            if pool.pads_rows:
                inside = code.compare("ult", place, rows.image)
                source = code.choose(inside, source, self.outside, _POINTER)
            sources.append(source)
        return sources

    def _result(self, number: Name) -> Name:
        code, pool = self.code, self.pool
        row = code.rem(number, pool.rows.results)
        return code.at(self._place(number, "%y", 1), code.mul(row, pool.y), pool.kind)

    def _reduce_columns(self, number: Name, target: Name) -> None:
        """Store the maxima of the taps along columns for each element of a row."""
        code, pool = self.code, self.pool
        sources = self._rows_of(number)
        target = code.at(target, pool.columns.before, pool.kind)
        with self._vectors(pool.columns.image, pool.read) as column:
            total = self._greatest(sources, column, pool.read)
            self._store(total, target, column, pool.read)

    def _reduce_row(self, number: Name, source: Name) -> None:
        """Store the results of a row."""
        code, pool = self.code, self.pool
        columns, result = pool.columns, self._result(number)
        with self._vectors(columns.results, pool.lanes) as column:
            start = code.at(source, code.mul(column, columns.stride), pool.kind)
            split: dict[int, tuple[Name, Name]] = {}
            total: Name = ""
            for tap in range(columns.taps):
                values = self._strided(start, tap * columns.dilation, split)
                total = self._combined(values, total, pool.lanes) if total else values
            self._store(total, result, column, pool.lanes)

    def _reduce_pairs(self, number: Name) -> None:
        """Store the results of a row whose windows are pairs of elements, in registers."""
        code, pool = self.code, self.pool
        sources, result = self._rows_of(number), self._result(number)
        with self._vectors(pool.columns.results, pool.lanes) as column:
            start = code.mul(column, 2)
            low, high = (
                self._greatest(sources, code.add(start, step), pool.lanes) for step in (0, pool.lanes)
            )
            even, odd = self._every_other(low, high, 0), self._every_other(low, high, 1)
            self._store(self._combined(odd, even, pool.lanes), result, column, pool.lanes)

    def _greatest(self, sources: list[Name], column: Name, lanes: int) -> Name:
        """The maxima of the elements of rows from ``column`` on."""
        first, *others = (self._load(source, column, lanes) for source in sources)
        for values in others:
            first = self._combined(values, first, lanes)
        return first

    def _strided(self, start: Name, tap: int, split: dict[int, tuple[Name, Name]]) -> Name:
        """Every element, or every other one, from ``tap`` on.

        ``split``: even and odd elements that were read before, by where they begin.
        """
        if self.pool.columns.stride == 1:
            return self._load(start, tap, self.pool.lanes)
        first = tap // 2 * 2
        if first not in split:
            lanes = self.pool.lanes
            low, high = (self._load(start, first + number * lanes, lanes) for number in range(2))
            split[first] = self._every_other(low, high, 0), self._every_other(low, high, 1)
        return split[first][tap % 2]

    def _every_other(self, low: Name, high: Name, first: int) -> Name:
        lanes = list(range(first, 2 * self.pool.lanes, 2))
        return self.code.op(f"llvm.shufflevector {low}, {high} {lanes} : {self._vector(self.pool.lanes)}")

    @contextmanager
    def _vectors(self, size: int, lanes: int) -> Generator[Name, None, None]:
        """A loop over the first elements of vectors, of which the last one may overlap the one before."""
        code = self.code
        with code.loop(0, size, lanes) as loop:
            yield code.min(loop.counter, size - lanes) if size % lanes else loop.counter

    def _vector(self, lanes: int) -> str:
        return f"vector<{lanes}x{self.pool.kind}>"

    def _load(self, base: Name, offset: Name | int, lanes: int) -> Name:
        return self.code.load(self.code.at(base, offset, self.pool.kind), self._vector(lanes), self.width)

    def _store(self, value: Name, base: Name, offset: Name, lanes: int) -> None:
        place = self.code.at(base, offset, self.pool.kind)
        self.code.store(value, place, self._vector(lanes), self.width)

    def _combined(self, value: Name, total: Name, lanes: int) -> Name:
        name = mlir.name_of(self.pool.combiner)
        return self.code.op(f"{name} {value}, {total} {self.flags}: {self._vector(lanes)}")
