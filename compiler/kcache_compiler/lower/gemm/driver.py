"""The loops around the micro-kernel: cells of the grid, blocks of columns and of K, panels of rows.

``run(begin, end, facts, a, b, c, scratch, closure, epilogue)`` computes cells ``begin`` to ``end``. A cell
is ``form.cell`` rows of one block of columns of one batch; the cells of a block of columns are consecutive
and share the packed panel of B. After the last block of K, ``epilogue`` processes each panel of rows while
it is in the cache.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.amx import configure, release
from kcache_compiler.lower.gemm.few_rows import is_direct, write_direct
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, FEW_COLUMNS, LONE_COLUMNS, Form

_POINTER = "!llvm.ptr"
#: The layout of ``facts``, and the number of words of each axis that follows them.
FACTS = ("m", "n", "k", "ldc", "load", "batch_axes", "m_axes", "n_axes", "k_axes")
AXIS_WORDS = 4


class Driver:
    """Emits ``run``."""

    #: The words of ``facts`` before those of axes.
    words = FACTS

    def __init__(self, form: Form) -> None:
        self.form = form
        pointers = [(name, _POINTER) for name in ("facts", "a", "b", "c", "scratch", "closure", "epilogue")]
        bounds = [("begin", "i64"), ("end", "i64")]
        self.code = Code(f"{form.name}_run", [*bounds, *pointers], linkage="external")
        code = self.code
        self.facts = {
            name: code.load(code.at("%facts", place, "i64")) for place, name in enumerate(self.words)
        }
        self.columns = code.stack(form.width, "i64")
        self.steps_a, self.steps_b = code.stack(form.depth, "i64"), code.stack(form.depth, "i64")
        self.rows = code.stack(form.rows, "i64")
        self.runs_a = code.stack(form.depth + 1, "i64")
        self.place = code.stack(3, "i64")
        self.panel = code.stack(form.group_rows * form.row_step, form.packed)
        self.sums = code.at("%scratch", form.packed_bytes, "i8")
        #: The packed panels of the block.
        self.panels: Name = "%scratch"
        #: Of prepacked B, what a panel of rows prefetches from, and its bytes for each step of K of a tile.
        self.ahead: list[tuple[Name, str]] = []
        #: Of prepacked B, the panels of the next block, and the first row and the end of those computed.
        self.following: Name = ""
        self.bounds: tuple[Name, Name] = ("", "")
        #: The column and the element of C, of its batch, at which a panel of rows begins; whether its block
        #: of K is the last one.
        self.column: Name = ""
        self.offset: Name = ""
        self.last: Name = ""
        self.axes: dict[str, Name] = {}
        start: Name = code.const(len(self.words))
        for kind in ("batch", "m", "n", "k"):
            self.axes[kind] = code.at("%facts", start, "i64")
            start = code.add(start, code.mul(self.facts[f"{kind}_axes"], AXIS_WORDS))
        self.step_m = self.single_step("m", 1)

    def text(self) -> str:
        """Return the LLVM IR of the driver: the loops over the cells of a contraction."""
        code = self.code
        if self.form.direct:
            is_direct_product = is_direct(self)
            with code.when(is_direct_product):
                write_direct(self)
            with code.otherwise():
                self._packed()
        elif self.form.matrix:
            configure(code)
            self._packed()
            release(code)
        else:
            self._packed()
        return code.text()

    def blocks(self) -> Name:
        """The number of blocks of columns."""
        code, columns = self.code, self.facts["n"]
        least: Name = code.const(1)
        if not self.form.prepacked:
            least = code.max(code.min(code.ceildiv(columns, LONE_COLUMNS), 2), 1)
        if self.form.direct:
            few = code.ceildiv(code.const(self.form.rows + 1), code.max(self.facts["m"], 1))
            least = code.max(least, code.min(code.min(few, 2), code.ceildiv(columns, FEW_COLUMNS)))
        return code.max(code.ceildiv(columns, self.form.width), least)

    def _packed(self) -> None:
        code, form, facts = self.code, self.form, self.facts
        cell = self.panel_rows()
        cells = code.ceildiv(facts["m"], cell)
        blocks = self.blocks()
        block_width = code.roundup(code.ceildiv(facts["n"], blocks), form.columns)
        with code.loop(code.div("%begin", cells), code.ceildiv("%end", cells)) as group:
            first = code.mul(group.counter, cells)
            low = code.mul(code.max(code.sub("%begin", first), 0), cell)
            high = code.min(code.mul(code.sub("%end", first), cell), facts["m"])
            column = code.mul(code.rem(group.counter, blocks), block_width)
            width = code.min(code.sub(facts["n"], column), block_width)
            batch = code.div(group.counter, blocks)
            self.compute(batch, low, high, column, width)

    def compute(self, batch: Name, low: Name, high: Name, column: Name, width: Name) -> None:
        """Emit rows ``low`` to ``high`` of a block of columns, in chunks where sums are in scratch."""
        code, form = self.code, self.form
        if not form.summed:
            self.block(batch, low, high, column, width)
            return
        with code.loop(low, high, form.summed_rows) as rows:
            stop = code.min(code.add(rows.counter, form.summed_rows), high)
            self.block(batch, rows.counter, stop, column, width)

    def panel_rows(self) -> Name:
        """Rows of a panel of A, and of a cell."""
        return self.code.const(self.form.cell)

    def single_step(self, kind: str, column: int) -> Name:
        """The stride of the only axis of a kind; 0 if there are several or none."""
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
        """The start addresses of A, B and C of a batch."""
        code, form = self.code, self.form
        addresses: dict[str, Name] = {}
        stored_b = form.packed if form.prepacked else stored_name(form.b)
        stored = (("a", stored_name(form.a)), ("b", stored_b), ("c", stored_name(form.c)))
        for number, (name, kind) in enumerate(stored):
            slot = code.at(self.place, number, "i64")
            self.table(slot, batch, code.const(1), "batch", number + 1)
            addresses[name] = code.at(f"%{name}", code.load(slot), kind)
        return addresses

    def begin(self, bases: dict[str, Name], low: Name, high: Name) -> None:
        """Prepare rows ``low`` to ``high`` of A, of which ``bases`` are the addresses."""

    def block(self, batch: Name, low: Name, high: Name, column: Name, width: Name) -> None:
        """Compute rows ``low`` to ``high`` of a block of columns."""
        code, form, facts = self.code, self.form, self.facts
        bases = self.bases(batch)
        self.begin(bases, low, high)
        contiguous: Name = ""
        if not form.prepacked:
            self.table(self.columns, column, width, "n", 2)
            contiguous = self.run(self.columns, width)
        following: Name = ""
        pieces = code.max(code.ceildiv(facts["k"], form.depth), 1)
        piece_depth = code.ceildiv(facts["k"], pieces)
        if form.pairs:
            piece_depth = code.roundup(piece_depth, form.group)
        with code.loop(0, pieces) as piece:
            start = code.mul(piece.counter, piece_depth)
            depth = code.min(code.sub(facts["k"], start), piece_depth)
            runs_a = self.rows_of_a(start, depth)
            if form.prepacked:
                self.panels = self._prepacked(bases["b"], column, start, depth)
                following = self._next_block(bases["b"], column, code.add(column, width), start, piece_depth)
            else:
                self.table(self.steps_b, start, depth, "k", 2)
                run_b = self.run(self.steps_b, depth)
                self._pack_b(bases["b"], width, depth, run_b, contiguous)
            is_later_piece = code.compare("ne", piece.counter, 0)
            load = code.either(is_later_piece, code.compare("ne", facts["load"], 0))
            last = code.compare("eq", code.add(piece.counter, 1), pieces)
            ends = code.both(last, self.followed())
            self.last, self.column = last, column
            together = self.panel_rows() if form.together == 1 else code.const(form.group_rows)
            with code.loop(0, code.ceildiv(code.sub(high, low), together)) as group:
                row = code.add(low, code.mul(group.counter, together))
                rows = code.min(code.sub(high, row), together)
                target, step = code.add(code.mul(row, facts["ldc"]), column), facts["ldc"]
                stored = code.at(bases["c"], target, stored_name(form.c))
                self.offset = target
                sums_offset = code.mul(code.sub(row, low), form.width)
                scratch_sums = (code.at(self.sums, sums_offset, form.wide), code.const(form.width))
                sums = scratch_sums if form.summed else (stored, step)
                if form.prepacked:
                    self.following, self.bounds = following, (low, high)
                    self.ahead = self.prefetched(row, rows, width, depth)
                self.multiply(bases, row, rows, width, depth, runs_a, load, sums)
                if form.summed:
                    with code.when(last):
                        self._finish(rows, width, scratch_sums[0], stored)
                with code.when(ends):
                    stop = code.add(row, rows)
                    self.end(batch, row, stop, column, code.add(column, width))

    def followed(self) -> Name:
        epilogue_address = self.code.op(f"llvm.ptrtoint %epilogue : {_POINTER} to i64")
        return self.code.compare("ne", epilogue_address, 0)

    def end(self, *numbers: Name) -> None:
        """Call the epilogue on a part of C: batch, first and last row, first and last column."""
        kinds = ", ".join([_POINTER, *["i64"] * len(numbers)])
        self.code.do(f"llvm.call %epilogue(%closure, {', '.join(numbers)}) : {_POINTER}, ({kinds}) -> ()")

    def run(self, table: Name, count: Name) -> Name:
        return self.code.op(
            f"llvm.call @{self.form.name}_consecutive({table}, {count}) : (!llvm.ptr, i64) -> i1"
        )

    def rows_of_a(self, start: Name, depth: Name) -> Name:
        """Prepare the tables of A for a block of K; returns the number of runs."""
        self.table(self.steps_a, start, depth, "k", 1)
        arguments = f"({self.steps_a}, {depth}, {self.runs_a}) : (!llvm.ptr, i64, !llvm.ptr) -> i64"
        return self.code.op(f"llvm.call @{self.form.name}_runs{arguments}")

    def _prepacked(self, base: Name, column: Name, start: Name, depth: Name) -> Name:
        """The panels from ``column`` on of the block of K that begins at ``start``."""
        code, form = self.code, self.form
        padded = code.roundup(self.facts["n"], form.columns)
        before = code.mul(code.div(start, form.group), padded)
        offset = code.add(before, code.mul(column, code.ceildiv(depth, form.group)))
        return code.at(base, offset, form.packed)

    def _next_block(self, base: Name, column: Name, end: Name, start: Name, piece: Name) -> Name:
        """The panels that are read after the columns from ``column`` to ``end`` of the block of K that begins
        at ``start``, of ``piece`` steps; after the last block what follows in memory.
        """
        code, form, facts = self.code, self.form, self.facts
        following = code.add(start, piece)
        below = code.compare("slt", following, facts["k"])
        first = code.choose(below, following, code.const(0))
        depth = code.min(code.sub(facts["k"], first), piece)
        panels = self._prepacked(base, code.choose(below, column, end), first, depth)
        padded = code.roundup(facts["n"], form.columns)
        stop = code.at(base, code.mul(padded, code.ceildiv(facts["k"], form.group)), form.packed)
        inside = code.either(below, code.compare("slt", end, facts["n"]))
        return code.choose(inside, panels, stop, _POINTER)

    def prefetched(self, row: Name, rows: Name, width: Name, depth: Name) -> list[tuple[Name, str]]:
        """What tiles of ``rows`` from ``row`` on prefetch: the address of B and bytes for each step of K."""
        code, form, (low, high) = self.code, self.form, self.bounds
        if form.together == 1:
            return self.share(self.following, code.sub(row, low), code.sub(high, low), width, depth)
        is_last = code.compare("sge", code.add(row, rows), high)
        stride = code.ceildiv(code.const(form.columns * BYTES[form.packed]), code.ceildiv(rows, form.rows))
        return [(code.choose(is_last, self.following, self.panels, _POINTER), _POINTER), (stride, "i64")]

    def share(
        self, panels: Name, row: Name, height: Name, width: Name, depth: Name
    ) -> list[tuple[Name, str]]:
        """What the tiles of the panel at ``row`` prefetch of the next block: its address, and the bytes for
        each step of K of a tile. All panels of ``height`` rows prefetch the whole block.
        """
        code, form = self.code, self.form
        panel = self.panel_rows()
        stride = code.ceildiv(code.const(form.columns * BYTES[form.packed]), code.ceildiv(height, panel))
        steps = code.mul(code.ceildiv(width, form.columns), code.ceildiv(depth, form.group))
        before = code.mul(code.mul(code.div(row, panel), stride), steps)
        return [(code.at(panels, before, "i8"), _POINTER), (stride, "i64")]

    def _pack_b(self, base: Name, width: Name, depth: Name, run: Name, contiguous: Name) -> None:
        """Pack columns of B. If they are ``contiguous``, whole panels are copied row by row."""
        code, form = self.code, self.form
        full_panels = code.mul(code.div(width, form.columns), form.columns)
        copied = code.choose(contiguous, full_panels, code.const(0))
        with code.when(code.compare("ne", copied, 0)):
            code.call(
                f"{form.name}_copy_b",
                (code.at(base, code.load(self.columns), stored_name(form.b)), _POINTER),
                (self.steps_b, _POINTER),
                (depth, "i64"),
                (copied, "i64"),
                ("%scratch", _POINTER),
            )
        with code.loop(copied, width, form.columns) as column:
            code.call(
                f"{form.name}_pack_b",
                (base, _POINTER),
                (code.at(self.columns, column.counter, "i64"), _POINTER),
                (self.steps_b, _POINTER),
                (depth, "i64"),
                (code.min(code.sub(width, column.counter), form.columns), "i64"),
                (run, "i1"),
                (code.at("%scratch", code.mul(column.counter, form.steps), form.packed), _POINTER),
            )

    def _finish(self, rows: Name, width: Name, sums: Name, stored: Name) -> None:
        self.code.call(
            f"{self.form.name}_finish",
            *(
                (rows, "i64"),
                (width, "i64"),
                (sums, _POINTER),
                (stored, _POINTER),
                (self.facts["ldc"], "i64"),
            ),
        )

    def multiply(
        self,
        bases: dict[str, Name],
        row: Name,
        rows: Name,
        width: Name,
        depth: Name,
        runs: Name,
        load: Name,
        sums: tuple[Name, Name],
    ) -> None:
        """Pack rows of A and add their products with ``width`` columns to ``sums``, an address and a row
        stride.
        """
        code, form = self.code, self.form
        if form.together == 1:
            self.pack_a(bases["a"], row, rows, depth, runs, self.panel)
        else:
            with code.loop(0, rows, form.rows) as panel:
                count = code.min(code.sub(rows, panel.counter), form.rows)
                place = code.at(self.panel, code.mul(panel.counter, form.row_step), form.packed)
                self.pack_a(bases["a"], code.add(row, panel.counter), count, depth, runs, place)
        offset = code.add(code.load(self.rows), code.load(self.steps_a))
        next_panel = code.at(
            bases["a"], code.add(offset, code.mul(self.step_m, form.rows)), stored_name(form.a)
        )
        prefetch_arguments = ((next_panel, _POINTER), (code.mul(self.step_m, BYTES[form.a]), "i64"))
        steps = code.ceildiv(depth, form.group)
        code.call(
            f"{form.name}_strip",
            *((rows, "i64"), (width, "i64"), (steps, "i64")),
            *((self.panel, _POINTER), (self.panels, _POINTER), (sums[0], _POINTER)),
            *((sums[1], "i64"), (load, "i1"), *prefetch_arguments, *self.ahead),
        )

    def pack_a(self, base: Name, row: Name, rows: Name, depth: Name, runs: Name, to: Name) -> None:
        code, form = self.code, self.form
        self.table(self.rows, row, rows, "m", 1)
        code.call(
            f"{form.name}_pack_a",
            (base, _POINTER),
            (self.rows, _POINTER),
            (self.steps_a, _POINTER),
            (depth, "i64"),
            (rows, "i64"),
            (self.runs_a, _POINTER),
            (runs, "i64"),
            (to, _POINTER),
        )
