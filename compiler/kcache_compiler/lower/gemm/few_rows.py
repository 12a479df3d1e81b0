"""Products of few rows: B is read once, without packing, in few long streams along its rows.

Packing B would cost as much as it saves. All rows of A are packed; the grid is split along columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcache_compiler.lower.gemm.micro_kernel import multiply_add, row_counts, spread, tile, tile_name
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, ROW_VECTORS, Form

if TYPE_CHECKING:
    from kcache_compiler.lower.gemm.driver import Driver

_POINTER = "!llvm.ptr"
#: Steps of K that a tile sums, the rows of B that are read concurrently: ``SHALLOW``, or, for up to
#: ``FEW_ROWS`` rows, which are memory-bound, ``LONG`` for fewer and longer streams.
SHALLOW, LONG, FEW_ROWS = 32, 8, 4
#: Vectors of the tiles of one row that compute the columns after those of ``ROW_VECTORS``.
NARROWER = (4, 2, 1)
#: Elements of C in a part, and its minimum number of columns.
NEAR, NARROW = 4096, 512
#: Prefetch distance in rows of B for a single row: hardware prefetching stops at the end of a page. Code for
#: 256-bit registers has no prefetches: with them, a Zen 3 reads at 0.75 to 0.9 of its speed.
AHEAD = 2048


def direct_parts(form: Form) -> list[str]:
    """The tiles of direct products, and the functions that call them."""
    tiles = [tile(form, rows, direct=True) for rows in row_counts(form)]
    tiles += [tile(form, 1, direct=True, vectors=vectors) for vectors in (ROW_VECTORS, *NARROWER)]
    return [*tiles, _row(form), _strip(form)]


def _row(form: Form) -> str:
    """``(n, a, b, step, c, load)``: a row of ``LONG`` elements times as many rows of B.

    The rows are read concurrently, a vector of each at a time.
    """
    pointers = [("a", _POINTER), ("b", _POINTER), ("step", "i64"), ("c", _POINTER)]
    code = Code(f"{form.name}_row", [("n", "i64"), *pointers, ("load", "i1")])
    width, kind = BYTES[form.wide], form.vector
    elements = [code.load(code.at("%a", k, form.packed), form.packed, width) for k in range(LONG)]
    factors = [spread(code, element, form.packed, form.lanes) for element in elements]
    sources = [code.at("%b", code.mul("%step", k), form.packed) for k in range(LONG)]

    def columns(load: bool) -> None:
        with code.loop(0, "%n", form.lanes) as loop:
            total = code.const("dense<0.0>", kind)
            place = code.at("%c", loop.counter, form.wide)
            if not form.fused and load:
                total = code.load(place, kind, width)
            for source, factor in zip(sources, factors, strict=True):
                start = code.at(source, loop.counter, form.packed)
                if form.bits != 256:
                    code.prefetch(code.at(start, AHEAD // width, form.packed), level=2)
                total = multiply_add(code, form, factor, code.load(start, kind, width), total)
            if form.fused and load:
                total = code.op(f"arith.addf {code.load(place, kind, width)}, {total} : {kind}")
            code.store(total, place, kind, width)

    with code.when("%load"):
        columns(True)
    with code.otherwise():
        columns(False)
    return code.text()


def _strip(form: Form) -> str:
    """``(rows, n, k, a, b, step, c, ldc, load, alone)``: packed rows of A times unpacked B.

    ``step`` is the row stride of B, ``n`` a multiple of the tile's columns, of a vector's if ``alone``: A has
    a single row.
    """
    numbers = [(name, "i64") for name in ("rows", "n", "k")]
    pointers = [("a", _POINTER), ("b", _POINTER), ("step", "i64"), ("c", _POINTER)]
    code = Code(f"{form.name}_direct", [*numbers, *pointers, ("ldc", "i64"), ("load", "i1"), ("alone", "i1")])
    full, *parts = row_counts(form)

    def one_tile(rows: int, first: Name, column: Name, vectors: int = 0) -> None:
        target = code.at("%c", code.add(code.mul(first, "%ldc"), column), form.wide)
        width = code.const((vectors or form.vectors) * form.lanes)
        code.call(
            tile_name(form, rows, True, vectors),
            *(("%k", "i64"), (code.at("%a", code.mul(first, form.row_step), form.packed), _POINTER)),
            *((code.at("%b", column, form.packed), _POINTER), ("%step", "i64")),
            *((target, _POINTER), ("%ldc", "i64"), (width, "i64"), ("%load", "i1")),
        )

    def columns(rows: int, first: Name) -> None:
        with code.loop(0, "%n", form.columns) as loop:
            one_tile(rows, first, loop.counter)

    def columns_of_one_row() -> None:
        first, width = code.const(0), ROW_VECTORS * form.lanes
        with code.loop(0, code.mul(code.div("%n", width), width), width) as loop:
            one_tile(1, first, loop.counter, ROW_VECTORS)
        for vectors in NARROWER:
            width = vectors * form.lanes
            with code.when(code.compare("ne", code.bits("%n", width), 0)):
                one_tile(1, first, code.bits("%n", -2 * width), vectors)

    with code.when("%alone"):
        with code.when(code.compare("eq", "%k", LONG)):
            pointers = [("%a", _POINTER), ("%b", _POINTER), ("%step", "i64"), ("%c", _POINTER)]
            code.call(f"{form.name}_row", ("%n", "i64"), *pointers, ("%load", "i1"))
        with code.otherwise():
            columns_of_one_row()
    with code.otherwise():
        with code.when(code.compare("eq", "%rows", full)):
            columns(full, code.const(0))
        with code.otherwise():
            for rows in parts:
                with code.when(code.compare("ne", code.bits("%rows", rows), 0)):
                    columns(rows, code.bits("%rows", -2 * rows))
    return code.text()


def is_direct(driver: Driver) -> Name:
    """Whether A has few rows and the rows of B are contiguous in memory."""
    code, facts = driver.code, driver.facts
    has_few_rows = code.compare("sle", facts["m"], driver.form.few * driver.form.rows)
    single_axes = code.both(
        *(code.compare("eq", facts[f"{kind}_axes"], 1) for kind in ("n", "k")),
    )
    contiguous = code.compare("eq", driver.single_step("n", 2), 1)
    return code.both(has_few_rows, code.both(single_axes, contiguous))


def write_direct(driver: Driver) -> None:
    """Emit cells ``begin`` to ``end``: columns of batches.

    Cells are whole tiles, also for a single row: the remainder of columns depends on sizes only.
    """
    code, facts = driver.code, driver.facts
    cells = code.max(code.ceildiv(facts["m"], driver.form.cell), 1)
    blocks = code.mul(driver.blocks(), cells)
    cell_width = code.roundup(code.ceildiv(facts["n"], blocks), ROW_VECTORS * driver.form.lanes)
    rows = code.max(facts["m"], 1)
    part_width = code.max(code.mul(code.div(code.div(code.const(NEAR), rows), NARROW), NARROW), NARROW)
    with code.loop(code.div("%begin", blocks), code.ceildiv("%end", blocks)) as batch:
        first = code.mul(batch.counter, blocks)
        low = code.mul(code.max(code.sub("%begin", first), 0), cell_width)
        high = code.min(code.mul(code.sub("%end", first), cell_width), facts["n"])
        bases = driver.bases(batch.counter)
        count = code.ceildiv(code.max(code.sub(high, low), 0), part_width)
        with code.loop(0, count) as part:
            column = code.add(low, code.mul(part.counter, part_width))
            width = code.min(code.sub(high, column), part_width)
            _Columns(driver, bases, column, width).write()
            with code.when(driver.followed()):
                driver.end(batch.counter, code.const(0), facts["m"], column, code.add(column, width))


class _Columns:
    """Emits a range of columns."""

    def __init__(self, driver: Driver, bases: dict[str, Name], column: Name, width: Name) -> None:
        self.driver, self.code, self.form, self.facts = driver, driver.code, driver.form, driver.facts
        self.bases, self.column, self.there = bases, column, width
        code, form = self.code, self.form
        self.alone = code.compare("eq", self.facts["m"], 1)
        tile_width = code.choose(self.alone, code.const(form.lanes), code.const(form.columns))
        self.whole = code.mul(code.div(width, tile_width), tile_width)
        bound = code.compare("sle", self.facts["m"], FEW_ROWS)
        self.shallow = code.choose(bound, code.const(LONG), code.const(SHALLOW))
        self.ragged = code.compare("ne", self.whole, width)
        self.step = driver.single_step("k", 2)
        self.edge = code.at("%scratch", (form.few + 1) * form.rows * form.row_step, form.packed)

    def write(self) -> None:
        code, facts, driver, piece_depth = self.code, self.facts, self.driver, self.form.steps
        with code.loop(0, code.max(facts["k"], 1), piece_depth) as piece:
            depth = code.max(code.min(code.sub(facts["k"], piece.counter), piece_depth), 0)
            runs = driver.rows_of_a(piece.counter, depth)
            load = code.either(code.compare("ne", piece.counter, 0), code.compare("ne", facts["load"], 0))
            with code.loop(0, facts["m"], self.form.rows) as row:
                rows, panel, _ = self._panel(row.counter)
                driver.pack_a(self.bases["a"], row.counter, rows, depth, runs, panel)
            with code.loop(0, code.ceildiv(code.max(depth, 1), self.shallow)) as part:
                part_start = code.mul(part.counter, self.shallow)
                steps = code.max(code.min(code.sub(depth, part_start), self.shallow), 0)
                part_load = code.either(load, code.compare("ne", part_start, 0))
                start = code.mul(code.add(piece.counter, part_start), self.step)
                with code.loop(0, facts["m"], self.form.rows) as row:
                    self._tiles(row.counter, part_start, steps, start, part_load)
            with code.when(self.ragged):
                self._last_columns(piece.counter, depth, load)

    def _panel(self, row: Name) -> tuple[Name, Name, Name]:
        """The number of rows from ``row`` on, their packed panel, and their first element of C."""
        code, form = self.code, self.form
        rows = code.min(code.sub(self.facts["m"], row), form.rows)
        panel = code.at("%scratch", code.mul(row, form.row_step), form.packed)
        place = code.add(code.mul(row, self.facts["ldc"]), self.column)
        return rows, panel, code.at(self.bases["c"], place, stored_name(form.c))

    def _tiles(self, row: Name, part: Name, steps: Name, start: Name, load: Name) -> None:
        code, form = self.code, self.form
        rows, panel, target = self._panel(row)
        source = code.at(self.bases["b"], code.add(start, self.column), stored_name(form.b))
        code.call(
            f"{form.name}_direct",
            *((rows, "i64"), (self.whole, "i64"), (steps, "i64")),
            *((code.at(panel, part, form.packed), _POINTER), (source, _POINTER), (self.step, "i64")),
            *((target, _POINTER), (self.facts["ldc"], "i64"), (load, "i1"), (self.alone, "i1")),
        )

    def _last_columns(self, piece: Name, depth: Name, load: Name) -> None:
        """Emit the remainder of columns, which is packed."""
        code, form, driver = self.code, self.form, self.driver
        remainder = code.sub(self.there, self.whole)
        driver.table(driver.columns, code.add(self.column, self.whole), remainder, "n", 2)
        driver.table(driver.steps_b, piece, depth, "k", 2)
        with code.loop(0, remainder, form.columns) as column:
            offsets = code.at(driver.columns, column.counter, "i64")
            count = code.min(code.sub(remainder, column.counter), form.columns)
            panel = code.at(self.edge, code.mul(column.counter, form.steps), form.packed)
            code.call(
                f"{form.name}_pack_b",
                *((self.bases["b"], _POINTER), (offsets, _POINTER), (driver.steps_b, _POINTER)),
                *((depth, "i64"), (count, "i64"), (code.const(0, "i1"), "i1"), (panel, _POINTER)),
            )
        with code.loop(0, self.facts["m"], form.rows) as row:
            rows, panel, target = self._panel(row.counter)
            code.call(
                f"{form.name}_strip",
                *((rows, "i64"), (remainder, "i64"), (depth, "i64")),
                *((panel, _POINTER), (self.edge, _POINTER)),
                *((code.at(target, self.whole, stored_name(form.c)), _POINTER), (self.facts["ldc"], "i64")),
                *((load, "i1"), (panel, _POINTER), (code.const(0), "i64")),
            )
