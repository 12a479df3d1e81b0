"""The loops around the micro-kernel: cells of the grid, blocks of columns and of K, panels of rows.

``run(begin, end, facts, a, b, c, scratch, closure, epilogue)`` computes cells ``begin`` to ``end``. A cell
is ``form.cell`` rows of one block of columns of one batch; cells of one block of columns follow each other,
so that packed B serves them all. After the last block of K each panel of rows, still in the cache, is
given to ``epilogue``.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.few_rows import is_direct, write_direct
from kcache_compiler.lower.gemm.strip import LINE
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, LONE_COLUMNS, SUMMED_TILES, Form

_POINTER = "!llvm.ptr"
#: What stands at which place of ``facts``, and how many numbers describe an axis after them.
FACTS = ("m", "n", "k", "ldc", "load", "batch_axes", "m_axes", "n_axes", "k_axes")
AXIS_WORDS = 4


class Driver:
    """State while ``run`` is written."""

    def __init__(self, form: Form) -> None:
        self.form = form
        pointers = [(name, _POINTER) for name in ("facts", "a", "b", "c", "scratch", "closure", "epilogue")]
        bounds = [("begin", "i64"), ("end", "i64")]
        self.code = Code(f"{form.name}_run", [*bounds, *pointers], linkage="external")
        code = self.code
        self.facts = {name: code.load(code.at("%facts", place, "i64")) for place, name in enumerate(FACTS)}
        self.columns = code.stack(form.width, "i64")
        self.steps_a, self.steps_b = code.stack(form.depth, "i64"), code.stack(form.depth, "i64")
        self.rows = code.stack(form.rows, "i64")
        self.place = code.stack(3, "i64")
        self.panel = code.stack(form.rows * form.row_step, form.packed)
        self.sums = code.at("%scratch", form.packed_bytes, "i8")
        self.axes: dict[str, Name] = {}
        start: Name = code.const(len(FACTS))
        for kind in ("batch", "m", "n", "k"):
            self.axes[kind] = code.at("%facts", start, "i64")
            start = code.add(start, code.mul(self.facts[f"{kind}_axes"], AXIS_WORDS))
        self.step_m = self.single_step("m", 1)

    def text(self) -> str:
        code = self.code
        if self.form.direct:
            few = is_direct(self)
            with code.when(few):
                write_direct(self)
            with code.otherwise():
                self._packed()
        else:
            self._packed()
        return code.text()

    def blocks(self) -> Name:
        """How many blocks of columns there are."""
        code, columns = self.code, self.facts["n"]
        shared = code.min(code.ceildiv(columns, LONE_COLUMNS), 2)
        return code.max(code.max(code.ceildiv(columns, self.form.width), shared), 1)

    def _packed(self) -> None:
        code, form, facts = self.code, self.form, self.facts
        cells = code.ceildiv(facts["m"], form.cell)
        blocks = self.blocks()
        wide = code.roundup(code.ceildiv(facts["n"], blocks), form.columns)
        with code.loop(code.div("%begin", cells), code.ceildiv("%end", cells)) as group:
            first = code.mul(group.counter, cells)
            low = code.mul(code.max(code.sub("%begin", first), 0), form.cell)
            high = code.min(code.mul(code.sub("%end", first), form.cell), facts["m"])
            column = code.mul(code.rem(group.counter, blocks), wide)
            there = code.min(code.sub(facts["n"], column), wide)
            batch = code.div(group.counter, blocks)
            if form.summed:
                part = form.rows * SUMMED_TILES
                with code.loop(low, high, part) as rows:
                    stop = code.min(code.add(rows.counter, part), high)
                    self._block(batch, rows.counter, stop, column, there)
            else:
                self._block(batch, low, high, column, there)

    def single_step(self, kind: str, column: int) -> Name:
        """The stride of the only axis of a kind; 0 where there are several or none."""
        code = self.code
        single = code.compare("eq", self.facts[f"{kind}_axes"], 1)
        stride = code.load(code.at(self.axes[kind], column, "i64"))
        return code.choose(single, stride, code.const(0))

    def table(self, place: Name, first: Name, count: Name, kind: str, column: int) -> None:
        self.code.call(
            f"{self.form.name}_table",
            (place, _POINTER),
            (first, "i64"),
            (count, "i64"),
            (self.axes[kind], _POINTER),
            (self.facts[f"{kind}_axes"], "i64"),
            (self.code.const(AXIS_WORDS), "i64"),
            (self.code.const(column), "i64"),
        )

    def bases(self, batch: Name) -> dict[str, Name]:
        """Where A, B and C of a batch begin."""
        code, form = self.code, self.form
        found: dict[str, Name] = {}
        for number, (name, kind) in enumerate((("a", form.a), ("b", form.b), ("c", form.c))):
            slot = code.at(self.place, number, "i64")
            self.table(slot, batch, code.const(1), "batch", number + 1)
            found[name] = code.at(f"%{name}", code.load(slot), stored_name(kind))
        return found

    def _block(self, batch: Name, low: Name, high: Name, column: Name, there: Name) -> None:
        """Rows ``low`` to ``high`` of a block of columns."""
        code, form, facts = self.code, self.form, self.facts
        bases = self.bases(batch)
        self.table(self.columns, column, there, "n", 2)
        follow = self.run(self.columns, there)
        pieces = code.max(code.ceildiv(facts["k"], form.depth), 1)
        deep = code.ceildiv(facts["k"], pieces)
        if form.pairs:
            deep = code.roundup(deep, form.group)
        with code.loop(0, pieces) as piece:
            start = code.mul(piece.counter, deep)
            depth = code.min(code.sub(facts["k"], start), deep)
            self.table(self.steps_a, start, depth, "k", 1)
            self.table(self.steps_b, start, depth, "k", 2)
            run_a, run_b = self.run(self.steps_a, depth), self.run(self.steps_b, depth)
            packed = self._pack_b(bases["b"], there, depth, run_b, follow, code.sub(high, low))
            more = code.compare("ne", piece.counter, 0)
            load = code.either(more, code.compare("ne", facts["load"], 0))
            last = code.compare("eq", code.add(piece.counter, 1), pieces)
            ends = code.both(last, self.followed())
            with code.loop(low, high, form.rows) as row:
                rows = code.min(code.sub(high, row.counter), form.rows)
                target, step = code.add(code.mul(row.counter, facts["ldc"]), column), facts["ldc"]
                stored = code.at(bases["c"], target, stored_name(form.c))
                begun = code.mul(code.sub(row.counter, low), form.width)
                own = (code.at(self.sums, begun, form.wide), code.const(form.width))
                sums = own if form.summed else (stored, step)
                begins = code.choose(code.compare("eq", row.counter, low), packed, code.const(0))
                self._panel(bases, row.counter, rows, (begins, there), depth, run_a, load, sums)
                if form.summed:
                    with code.when(last):
                        self._finish(rows, there, own[0], stored)
                with code.when(ends):
                    stop = code.add(row.counter, rows)
                    self.end(batch, row.counter, stop, column, code.add(column, there))

    def followed(self) -> Name:
        given = self.code.op(f"llvm.ptrtoint %epilogue : {_POINTER} to i64")
        return self.code.compare("ne", given, 0)

    def end(self, *numbers: Name) -> None:
        """The epilogue of a part: its batch, rows from and to, columns from and to."""
        kinds = ", ".join([_POINTER, *["i64"] * len(numbers)])
        self.code.do(f"llvm.call %epilogue(%closure, {', '.join(numbers)}) : {_POINTER}, ({kinds}) -> ()")

    def run(self, table: Name, count: Name) -> Name:
        return self.code.op(
            f"llvm.call @{self.form.name}_consecutive({table}, {count}) : (!llvm.ptr, i64) -> i1"
        )

    def _pack_b(self, base: Name, there: Name, depth: Name, run: Name, follow: Name, height: Name) -> Name:
        """``follow``: the columns are neighbours; whole panels of such are copied row by row.

        Or by the first rows' tiles: the columns that are left to these. There must be as many rows, and rows
        of B whole lines apart: what begins inside a line was slower so (257x511x1001 by 15 %).
        """
        code, form = self.code, self.form
        whole = code.mul(code.div(there, form.columns), form.columns)
        copied = code.choose(follow, whole, code.const(0))
        left = code.const(0)
        if form.direct:
            step = self.single_step("k", 2)
            lines = code.compare("eq", code.rem(step, LINE // BYTES[form.b]), 0)
            wanted = code.both(code.compare("ne", step, 0), code.compare("sge", height, form.rows))
            left = code.choose(code.both(lines, wanted), copied, left)
        with code.when(code.compare("ne", copied, left)):
            code.call(
                f"{form.name}_copy_b",
                (code.at(base, code.load(self.columns), stored_name(form.b)), _POINTER),
                (self.steps_b, _POINTER),
                (depth, "i64"),
                (copied, "i64"),
                ("%scratch", _POINTER),
            )
        with code.loop(copied, there, form.columns) as column:
            code.call(
                f"{form.name}_pack_b",
                (base, _POINTER),
                (code.at(self.columns, column.counter, "i64"), _POINTER),
                (self.steps_b, _POINTER),
                (depth, "i64"),
                (code.min(code.sub(there, column.counter), form.columns), "i64"),
                (run, "i1"),
                (code.at("%scratch", code.mul(column.counter, form.steps), form.packed), _POINTER),
            )
        return left

    def _finish(self, rows: Name, there: Name, sums: Name, stored: Name) -> None:
        self.code.call(
            f"{self.form.name}_finish",
            *(
                (rows, "i64"),
                (there, "i64"),
                (sums, _POINTER),
                (stored, _POINTER),
                (self.facts["ldc"], "i64"),
            ),
        )

    def _panel(
        self,
        bases: dict[str, Name],
        row: Name,
        rows: Name,
        columns: tuple[Name, Name],
        depth: Name,
        run: Name,
        load: Name,
        sums: tuple[Name, Name],
    ) -> None:
        """Pack rows of A and add their products to ``sums``, an address and the step of its rows.

        The first of ``columns``, a number that may be 0, are packed meanwhile.
        """
        code, form = self.code, self.form
        self.pack_a(bases["a"], row, rows, depth, run, self.panel)
        begun = code.add(code.load(self.rows), code.load(self.steps_a))
        ahead = code.at(bases["a"], code.add(begun, code.mul(self.step_m, form.rows)), stored_name(form.a))
        after = ((ahead, _POINTER), (code.mul(self.step_m, BYTES[form.a]), "i64"))
        steps = code.ceildiv(depth, form.group)
        begins, there = columns
        if form.direct:
            source = code.at(bases["b"], code.load(self.columns), stored_name(form.b))
            code.call(
                f"{form.name}_first",
                *((begins, "i64"), (steps, "i64"), (self.panel, _POINTER), ("%scratch", _POINTER)),
                *((sums[0], _POINTER), (sums[1], "i64"), (load, "i1"), *after),
                *((source, _POINTER), (self.steps_b, _POINTER)),
            )
        packed = code.at("%scratch", code.mul(begins, form.steps), form.packed)
        code.call(
            f"{form.name}_strip",
            *((rows, "i64"), (code.sub(there, begins), "i64"), (steps, "i64")),
            *((self.panel, _POINTER), (packed, _POINTER), (code.at(sums[0], begins, form.wide), _POINTER)),
            *((sums[1], "i64"), (load, "i1"), *after),
        )

    def pack_a(self, base: Name, row: Name, rows: Name, depth: Name, run: Name, to: Name) -> None:
        code, form = self.code, self.form
        self.table(self.rows, row, rows, "m", 1)
        code.call(
            f"{form.name}_pack_a",
            (base, _POINTER),
            (self.rows, _POINTER),
            (self.steps_a, _POINTER),
            (depth, "i64"),
            (rows, "i64"),
            (run, "i1"),
            (to, _POINTER),
        )
