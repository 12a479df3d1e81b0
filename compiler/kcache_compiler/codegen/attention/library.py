"""The loops of attention: spans of rows, chunks of keys, panels of rows, blocks of keys.

``run(begin, end, facts, q, k, v, scratch, closure, weigh, finish)`` computes cells ``begin`` to ``end``; a
cell is ``form.cell`` rows of one batch. For each panel of rows and block of keys: scores by the register tile
of contractions; ``weigh`` makes weights of them in place and keeps the maximum and the sum of each row; sums
so far shrink to the new maximum; weights times values are added. ``finish`` writes the rows of a span.

Where the program masks the keys beyond a row's own (``reach``), a block is left out if that changes nothing:
the masked score is so far below each row's maximum that its weight is 0, and the values are finite. Where the
mask is added to scores (``reaches`` is 2) these have to be finite, too: no query and no key is huge.
"""

from __future__ import annotations

from kcache_compiler.codegen.attention.form import AttentionForm, regions
from kcache_compiler.codegen.formula import Formula
from kcache_compiler.codegen.gemm import pack
from kcache_compiler.codegen.gemm.code import Code, Name
from kcache_compiler.codegen.gemm.library import library
from kcache_compiler.codegen.gemm.shape import BYTES, DEPTH
from kcache_compiler.codegen.gemm.tile import row_counts, spread, tile
from kcache_compiler.codegen.memory import stored_name

_POINTER = "!llvm.ptr"
#: What stands at which place of ``facts``. ``limit`` to ``key_scale`` are the bits of f64: the masked score,
#: the difference from which on a weight is 0, what queries and keys are multiplied by.
FACTS = (
    *("m", "keys", "depth", "columns", "reaches", "inner", "shift", "limit", "vanished"),
    *("query_scale", "key_scale", "batch_axes", "m_axes", "keys_axes", "depth_axes", "columns_axes"),
)
#: Numbers of an axis: its size, strides in queries, keys and values.
AXIS_WORDS = 4
_QUERIES, _KEYS, _VALUES = 1, 2, 3
#: The bits of 1.0 as f64.
_ONE = 0x3FF << 52


@library.register
def _(form: AttentionForm) -> str:
    parts = [pack.consecutive(form), pack.table(form), pack.pack_a(form), pack.pack_b(form)]
    parts += [tile(form, rows) for rows in row_counts(form)]
    parts += [
        _scores(form),
        _mix(form),
        _scale(form),
        _shrink(form),
        _finite(form),
        _tame(form),
        _settled(form),
    ]
    return "\n".join([*parts, _Run(form).text()])


def _tiles(
    code: Code, form: AttentionForm, arguments: tuple[Name, Name, Name, Name, Name, Name, Name]
) -> None:
    """The tiles that make up a panel's rows: ``k, a, b, step, c, ldc, load`` for the first of them."""
    k, a, b, step, c, ldc, load = arguments
    full, *parts = row_counts(form)

    def call(rows: int, first: Name) -> None:
        code.call(
            f"{form.name}_tile_{rows}",
            (k, "i64"),
            (code.at(a, code.mul(first, form.row_step), form.wide), _POINTER),
            (b, _POINTER),
            (step, "i64"),
            (code.at(c, code.mul(first, ldc), form.wide), _POINTER),
            (ldc, "i64"),
            (code.const(form.columns), "i64"),
            (load, "i1"),
        )

    with code.when(code.compare("eq", "%rows", full)):
        call(full, code.const(0))
    with code.otherwise():
        for rows in parts:
            with code.when(code.compare("ne", code.bits("%rows", rows), 0)):
                call(rows, code.bits("%rows", -2 * rows))


def _scores(form: AttentionForm) -> str:
    """``(rows, count, depth, a, b, c)``: scores of packed queries and ``count`` packed keys."""
    numbers = [(name, "i64") for name in ("rows", "count", "depth")]
    code = Code(f"{form.name}_scores", [*numbers, *((name, _POINTER) for name in "abc")])
    pieces = code.max(code.ceildiv("%depth", DEPTH), 1)
    with code.loop(0, "%count", form.columns) as column, code.loop(0, pieces) as piece:
        start = code.mul(piece.counter, DEPTH)
        k = code.min(code.sub("%depth", start), DEPTH)
        a = code.at("%a", code.mul(piece.counter, form.rows * form.row_step), form.wide)
        panel = code.mul(column.counter, "%depth")
        b = code.at("%b", code.add(panel, code.mul(start, form.columns)), form.wide)
        c = code.at("%c", column.counter, form.wide)
        load = code.compare("ne", piece.counter, 0)
        _tiles(code, form, (k, a, b, code.const(form.columns), c, code.const(form.row_step), load))
    return code.text()


def _mix(form: AttentionForm) -> str:
    """``(rows, count, columns, a, b, c)``: add the weights' products with ``count`` packed values."""
    numbers = [(name, "i64") for name in ("rows", "count", "columns")]
    code = Code(f"{form.name}_mix", [*numbers, *((name, _POINTER) for name in "abc")])
    with code.loop(0, "%columns", form.columns) as column:
        b = code.at("%b", code.mul(column.counter, form.chunk), form.wide)
        c = code.at("%c", column.counter, form.wide)
        step = code.const(form.columns)
        _tiles(code, form, ("%count", "%a", b, step, c, "%columns", code.const(1, "i1")))
    return code.text()


def _scale(form: AttentionForm) -> str:
    """``(from, count, bits)``: multiply so many elements, a multiple of vectors, by a number."""
    code = Code(f"{form.name}_scale", [("from", _POINTER), ("count", "i64"), ("bits", "i64")])
    one = code.const(_ONE)
    with code.when(code.compare("ne", "%bits", one)):
        factor = spread(code, _number(code, form, "%bits"), form.wide, form.lanes)
        with code.loop(0, "%count", form.lanes) as loop:
            place = code.at("%from", loop.counter, form.wide)
            value = code.load(place, form.vector, BYTES[form.wide])
            code.store(
                code.op(f"llvm.fmul {value}, {factor} : {form.vector}"), place, form.vector, BYTES[form.wide]
            )
    return code.text()


def _number(code: Code, form: AttentionForm, bits: Name) -> Name:
    double = code.op(f"arith.bitcast {bits} : i64 to f64")
    return double if form.wide == "f64" else code.op(f"arith.truncf {double} : f64 to {form.wide}")


def _shrink(form: AttentionForm) -> str:
    """``(rows, columns, shrinks, sums)``: multiply each row of the sums by its number."""
    numbers = [("rows", "i64"), ("columns", "i64"), ("shrinks", _POINTER), ("sums", _POINTER)]
    code = Code(f"{form.name}_shrink", numbers)
    with code.loop(0, "%rows") as row:
        number = code.load(code.at("%shrinks", row.counter, form.wide), form.wide, BYTES[form.wide])
        one = code.const("1.0", form.wide)
        with code.when(code.op(f"arith.cmpf une, {number}, {one} : {form.wide}")):
            factor = spread(code, number, form.wide, form.lanes)
            start = code.mul(row.counter, "%columns")
            with code.loop(0, "%columns", form.lanes) as loop:
                place = code.at("%sums", code.add(start, loop.counter), form.wide)
                value = code.load(place, form.vector, BYTES[form.wide])
                product = code.op(f"llvm.fmul {value}, {factor} : {form.vector}")
                code.store(product, place, form.vector, BYTES[form.wide])
    return code.text()


def _finite(form: AttentionForm) -> str:
    """``(from, count, columns) -> i1``: no infinity and no NaN among ``count`` packed values."""
    arguments = [("from", _POINTER), ("count", "i64"), ("columns", "i64")]
    code = Code(f"{form.name}_finite", arguments, "i1")
    zero = code.const("dense<0.0>", form.vector)
    size = code.mul("%count", form.columns)
    with code.loop(0, "%columns", form.columns, [(zero, form.vector)]) as panel:
        start = code.at("%from", code.mul(panel.counter, form.chunk), form.wide)
        with code.loop(0, size, form.lanes, [(panel.carried[0], form.vector)]) as loop:
            value = code.load(code.at(start, loop.counter, form.wide), form.vector, BYTES[form.wide])
            nothing = code.op(f"llvm.fmul {value}, {zero} : {form.vector}")
            loop.following.append(code.op(f"llvm.fadd {loop.carried[0]}, {nothing} : {form.vector}"))
        panel.following.append(loop.results[0])
    place = code.stack(form.lanes, form.wide)
    code.store(panel.results[0], place, form.vector, BYTES[form.wide])
    with code.loop(0, form.lanes, 1, [(code.const(1, "i1"), "i1")]) as lane:
        value = code.load(code.at(place, lane.counter, form.wide), form.wide, BYTES[form.wide])
        same = code.op(f"arith.cmpf oeq, {value}, {value} : {form.wide}")
        lane.following.append(code.both(lane.carried[0], same))
    return code.text(f"{lane.results[0]} : i1")


def _tame(form: AttentionForm) -> str:
    """``(from, count) -> i1``: each of so many elements, a multiple of vectors, is below 1e15 in size."""
    code = Code(f"{form.name}_tame", [("from", _POINTER), ("count", "i64")], "i1")
    mask, integers = f"vector<{form.lanes}xi1>", f"i{form.lanes}"
    limit, zero = code.const("dense<1.0e15>", form.vector), code.const(0, integers)
    with code.loop(0, "%count", form.lanes, [(zero, integers)]) as loop:
        value = code.load(code.at("%from", loop.counter, form.wide), form.vector, BYTES[form.wide])
        size = code.op(f"llvm.intr.fabs({value}) : ({form.vector}) -> {form.vector}")
        huge = code.op(f"arith.cmpf uge, {size}, {limit} : {form.vector}")
        found = code.op(f"llvm.bitcast {huge} : {mask} to {integers}")
        loop.following.append(code.op(f"arith.ori {loop.carried[0]}, {found} : {integers}"))
    none = code.op(f"arith.cmpi eq, {loop.results[0]}, {zero} : {integers}")
    return code.text(f"{none} : i1")


def _settled(form: AttentionForm) -> str:
    """``(rows, tops, limit, vanished) -> i1``: a score of ``limit`` has weight 0 in every row, for good."""
    arguments = [("rows", "i64"), ("tops", _POINTER), ("limit", "i64"), ("vanished", "i64")]
    code = Code(f"{form.name}_settled", arguments, "i1")
    limit, vanished = _number(code, form, "%limit"), _number(code, form, "%vanished")
    with code.loop(0, "%rows", 1, [(code.const(1, "i1"), "i1")]) as row:
        top = code.load(code.at("%tops", row.counter, form.wide), form.wide, BYTES[form.wide])
        below = code.op(f"arith.subf {limit}, {top} : {form.wide}")
        small = code.op(f"arith.cmpf olt, {below}, {vanished} : {form.wide}")
        row.following.append(code.both(row.carried[0], small))
    return code.text(f"{row.results[0]} : i1")


class _Run:
    """State while ``run`` is written."""

    def __init__(self, form: AttentionForm) -> None:
        self.form = form
        pointers = ("facts", "q", "k", "v", "scratch", "closure", "weigh", "finish")
        arguments = [("begin", "i64"), ("end", "i64"), *((name, _POINTER) for name in pointers)]
        self.code = Code(f"{form.name}_run", arguments, linkage="external")
        code = self.code
        self.facts = {name: code.load(code.at("%facts", place, "i64")) for place, name in enumerate(FACTS)}
        self.axes: dict[str, Name] = {}
        start: Name = code.const(len(FACTS))
        for kind in ("batch", "m", "keys", "depth", "columns"):
            self.axes[kind] = code.at("%facts", start, "i64")
            start = code.add(start, code.mul(self.facts[f"{kind}_axes"], AXIS_WORDS))
        self.columns = code.roundup(self.facts["columns"], form.columns)
        self.places: dict[str, Name] = {}
        offset: Name = code.const(0)
        self.sizes = regions(form, "depth", "columns")
        for name, size in self.sizes:
            self.places[name] = code.at("%scratch", offset, "i8")
            offset = code.add(offset, self._size(size))
        self.packed = code.stack(3, "i64")
        self.place = code.stack(1, "i64")

    def _size(self, size: Formula) -> Name:
        """Bytes of a region, as code."""
        code = self.code
        if isinstance(size, int):
            return code.const(size)
        if isinstance(size, str):
            return self.facts[size]
        operator, a, b = size[0], self._size(size[1]), self._size(size[2])
        if operator == "roundup":
            return code.mul(code.ceildiv(a, b), b)
        return {"+": code.add, "*": code.mul, "max": code.max, "ceildiv": code.ceildiv}[operator](a, b)

    def _table(self, place: Name, first: Name, count: Name, kind: str, column: int) -> None:
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

    def _base(self, name: str, kind: str, batch: Name, column: int) -> Name:
        code = self.code
        self._table(self.place, batch, code.const(1), "batch", column)
        return code.at(f"%{name}", code.load(self.place), stored_name(kind))

    def text(self) -> str:
        code, form, facts = self.code, self.form, self.facts
        none = code.const(-1)
        for slot in (0, 1):
            code.store(none, code.at(self.packed, slot, "i64"))
        places = self.places
        self._table(places["query_steps"], code.const(0), facts["depth"], "depth", _QUERIES)
        self._table(places["key_steps"], code.const(0), facts["depth"], "depth", _KEYS)
        self._table(places["value_columns"], code.const(0), facts["columns"], "columns", _VALUES)
        self.query_run = self._consecutive("query_steps", facts["depth"])
        self.key_run = self._consecutive("key_steps", facts["depth"])
        self._clear(places["queries"], self._size(dict(self.sizes)["queries"]))
        cells = code.ceildiv(facts["m"], form.cell)
        with code.loop(code.div("%begin", cells), code.ceildiv("%end", cells)) as batch:
            first = code.mul(batch.counter, cells)
            low = code.mul(code.max(code.sub("%begin", first), 0), form.cell)
            high = code.min(code.mul(code.sub("%end", first), form.cell), facts["m"])
            with code.loop(low, high, form.span) as span:
                stop = code.min(code.add(span.counter, form.span), high)
                self._span(batch.counter, span.counter, stop)
        return code.text()

    def _clear(self, base: Name, size: Name) -> None:
        """Zeros in so many bytes: what is packed leaves gaps."""
        code, form = self.code, self.form
        nothing, width = code.const("dense<0.0>", form.vector), BYTES[form.wide]
        with code.loop(0, code.div(size, width), form.lanes) as loop:
            code.store(nothing, code.at(base, loop.counter, form.wide), form.vector, width)

    def _consecutive(self, table: str, count: Name) -> Name:
        return self.code.op(
            f"llvm.call @{self.form.name}_consecutive({self.places[table]}, {count}) : (!llvm.ptr, i64) -> i1"
        )

    def _span(self, batch: Name, low: Name, high: Name) -> None:
        code, form, facts, places = self.code, self.form, self.facts, self.places
        width, wide = BYTES[form.wide], form.wide
        queries = self._base("q", form.a, batch, _QUERIES)
        keys = self._base("k", form.b, batch, _KEYS)
        values = self._base("v", form.b, batch, _VALUES)
        zero, least = (
            code.const("0.0", wide),
            code.const("0xFF800000" if wide == "f32" else "0xFFF0000000000000", wide),
        )
        rows = code.sub(high, low)
        with code.loop(0, rows) as row:
            code.store(least, code.at(places["tops"], row.counter, wide), wide, width)
            code.store(zero, code.at(places["totals"], row.counter, wide), wide, width)
        self._clear(places["sums"], code.mul(code.mul(rows, self.columns), width))
        with code.loop(0, facts["keys"], form.chunk) as chunk:
            there = code.min(code.sub(facts["keys"], chunk.counter), form.chunk)
            self._pack(batch, chunk.counter, there, keys, values)
            with code.loop(low, high, form.rows) as panel:
                count = code.min(code.sub(high, panel.counter), form.rows)
                self._pack_queries(queries, panel.counter, count)
                with code.loop(0, there, form.block) as block:
                    end = code.min(code.add(block.counter, form.block), there)
                    self._block(
                        batch,
                        code.sub(panel.counter, low),
                        panel.counter,
                        count,
                        chunk.counter,
                        block.counter,
                        end,
                    )
        self._given("finish", batch, low, high, pointers=("sums", "tops", "totals"))

    def _given(self, function: str, *numbers: Name, pointers: tuple[str, ...]) -> None:
        """Call what the kernel gave."""
        code = self.code
        passed = ", ".join([*numbers, *(self.places.get(name, name) for name in pointers)])
        kinds = ", ".join([_POINTER, *["i64"] * len(numbers), *[_POINTER] * len(pointers)])
        code.do(f"llvm.call %{function}(%closure, {passed}) : {_POINTER}, ({kinds}) -> ()")

    def _pack(self, batch: Name, chunk: Name, there: Name, keys: Name, values: Name) -> None:
        """Pack a chunk of keys and values, unless it is what was packed last."""
        code = self.code
        slots = [code.at(self.packed, slot, "i64") for slot in (0, 1)]
        other = [
            code.compare("ne", code.load(slot), now) for slot, now in zip(slots, (batch, chunk), strict=True)
        ]
        with code.when(code.either(*other)):
            for slot, now in zip(slots, (batch, chunk), strict=True):
                code.store(now, slot)
            self._table(self.places["key_places"], chunk, there, "keys", _KEYS)
            self._table(self.places["value_places"], chunk, there, "keys", _VALUES)
            self._pack_keys(keys, there)
            self._pack_values(values, there)

    def _pack_b(
        self, base: Name, columns: Name, steps: Name, k: Name, count: Name, run: Name, to: Name
    ) -> None:
        self.code.call(
            f"{self.form.name}_pack_b",
            *((base, _POINTER), (columns, _POINTER), (steps, _POINTER)),
            *((k, "i64"), (count, "i64"), (run, "i1"), (to, _POINTER)),
        )

    def _pack_keys(self, base: Name, there: Name) -> None:
        code, form, facts, places = self.code, self.form, self.facts, self.places
        with code.loop(0, there, form.columns) as column:
            columns = code.at(places["key_places"], column.counter, "i64")
            count = code.min(code.sub(there, column.counter), form.columns)
            to = code.at(places["keys"], code.mul(column.counter, facts["depth"]), form.wide)
            self._pack_b(base, columns, places["key_steps"], facts["depth"], count, self.key_run, to)
        size = code.mul(code.roundup(there, form.columns), facts["depth"])
        self._scaled(places["keys"], size, "key_scale")

    def _pack_values(self, base: Name, there: Name) -> None:
        code, form, facts, places = self.code, self.form, self.facts, self.places
        run = self._consecutive("value_places", there)
        with code.loop(0, facts["columns"], form.columns) as column:
            columns = code.at(places["value_columns"], column.counter, "i64")
            count = code.min(code.sub(facts["columns"], column.counter), form.columns)
            to = code.at(places["values"], code.mul(column.counter, form.chunk), form.wide)
            self._pack_b(base, columns, places["value_places"], there, count, run, to)
        with code.when(code.compare("ne", facts["reaches"], 0)), code.loop(0, there, form.block) as block:
            count = code.min(code.sub(there, block.counter), form.block)
            start = code.at(places["values"], code.mul(block.counter, form.columns), form.wide)
            given = f"{start}, {count}, {self.columns}"
            fine = code.op(f"llvm.call @{form.name}_finite({given}) : (!llvm.ptr, i64, i64) -> i1")
            packed = code.at(places["keys"], code.mul(block.counter, facts["depth"]), form.wide)
            size = code.mul(code.roundup(count, form.columns), facts["depth"])
            fine = code.both(fine, self._is_tame(packed, size))
            slot = code.at(places["finite"], code.div(block.counter, form.block), "i64")
            code.store(code.op(f"arith.extui {fine} : i1 to i64"), slot)

    def _is_tame(self, base: Name, count: Name) -> Name:
        """Nothing huge is among packed elements, or nobody asks."""
        code = self.code
        tame = code.op(f"llvm.call @{self.form.name}_tame({base}, {count}) : (!llvm.ptr, i64) -> i1")
        return code.either(tame, code.compare("ne", self.facts["reaches"], 2))

    def _scaled(self, base: Name, count: Name, fact: str) -> None:
        self.code.call(f"{self.form.name}_scale", (base, _POINTER), (count, "i64"), (self.facts[fact], "i64"))

    def _pack_queries(self, base: Name, row: Name, count: Name) -> None:
        code, form, facts, places = self.code, self.form, self.facts, self.places
        self._table(places["rows"], row, count, "m", _QUERIES)
        pieces = code.ceildiv(facts["depth"], DEPTH)
        with code.loop(0, pieces) as piece:
            start = code.mul(piece.counter, DEPTH)
            steps = code.at(places["query_steps"], start, "i64")
            k = code.min(code.sub(facts["depth"], start), DEPTH)
            to = code.at(places["queries"], code.mul(piece.counter, form.rows * form.row_step), form.wide)
            code.call(
                f"{form.name}_pack_a",
                *((base, _POINTER), (places["rows"], _POINTER), (steps, _POINTER)),
                *((k, "i64"), (count, "i64"), (self.query_run, "i1"), (to, _POINTER)),
            )
        size = code.mul(pieces, form.rows * form.row_step)
        self._scaled(places["queries"], size, "query_scale")
        tame = code.op(f"arith.extui {self._is_tame(places['queries'], size)} : i1 to i64")
        code.store(tame, code.at(self.packed, 2, "i64"))

    def _block(
        self, batch: Name, offset: Name, row: Name, count: Name, chunk: Name, low: Name, high: Name
    ) -> None:
        """Keys ``low`` to ``high`` of a chunk for a panel: those in reach, then the others if they matter."""
        code, form, facts = self.code, self.form, self.facts
        last = code.sub(code.add(row, count), 1)
        reach = code.sub(code.add(code.div(last, facts["inner"]), facts["shift"]), code.add(chunk, low))
        reach = code.roundup(code.max(reach, 0), form.columns)
        middle = code.min(code.add(low, reach), high)
        unlimited = code.compare("eq", facts["reaches"], 0)
        middle = code.choose(unlimited, high, middle)
        with code.when(code.compare("slt", low, middle)):
            self._keys(batch, offset, row, count, chunk, low, middle)
        with code.when(code.compare("slt", middle, high)):
            slot = code.at(self.places["finite"], code.div(low, form.block), "i64")
            tame = code.load(code.at(self.packed, 2, "i64"))
            fine = code.compare("ne", code.bits(code.load(slot), tame), 0)
            tops = code.at(self.places["tops"], offset, form.wide)
            done = code.op(
                f"llvm.call @{form.name}_settled({count}, {tops}, {facts['limit']}, {facts['vanished']}) : "
                "(i64, !llvm.ptr, i64, i64) -> i1"
            )
            with code.when(code.both(fine, done)):
                pass
            with code.otherwise():
                self._keys(batch, offset, row, count, chunk, middle, high)

    def _keys(
        self, batch: Name, offset: Name, row: Name, count: Name, chunk: Name, low: Name, high: Name
    ) -> None:
        code, form, facts, places = self.code, self.form, self.facts, self.places
        keys = code.sub(high, low)
        wide = form.wide
        packed = code.at(places["keys"], code.mul(low, facts["depth"]), wide)
        code.call(
            f"{form.name}_scores",
            *((count, "i64"), (keys, "i64"), (facts["depth"], "i64")),
            *((places["queries"], _POINTER), (packed, _POINTER), (places["tile"], _POINTER)),
        )
        tops, totals = (code.at(places[name], offset, wide) for name in ("tops", "totals"))
        first = code.add(chunk, low)
        self._given("weigh", batch, row, count, first, keys, pointers=("tile", tops, totals, "shrinks"))
        sums = code.at(places["sums"], code.mul(offset, self.columns), wide)
        code.call(
            f"{form.name}_shrink",
            *((count, "i64"), (self.columns, "i64"), (places["shrinks"], _POINTER), (sums, _POINTER)),
        )
        values = code.at(places["values"], code.mul(low, form.columns), wide)
        code.call(
            f"{form.name}_mix",
            *((count, "i64"), (keys, "i64"), (self.columns, "i64")),
            *((places["tile"], _POINTER), (values, _POINTER), (sums, _POINTER)),
        )
