"""The loops of attention: spans of rows, chunks of keys, panels of rows, blocks of keys.

``run(begin, end, facts, q, k, v, scratch, closure, weigh, finish)`` computes cells ``begin`` to ``end``; a
cell is ``form.cell`` rows of one batch. For each panel of rows and block of keys, the register tile of
contractions computes the scores; ``weigh`` replaces them by weights in place and updates the maximum and the
total of each row; the sums are rescaled to the new maximum; the products of weights and values are added.
``finish`` writes the rows of a span.

If the program has a causal mask (``reach``), a block of masked keys is skipped when this does not change the
result: the masked score is so far below each row's maximum that its weight is 0, and the values are finite.
If the mask is added to scores (``reaches`` is 2), these must also be finite: no query and no key is huge.
"""

from __future__ import annotations

from kcache_compiler.lower.attention.blocking import AttentionForm, regions
from kcache_compiler.lower.gemm.micro_kernel import LINE
from kcache_compiler.lower.gemm.packing import BYTES_OF
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES
from kcache_compiler.shapes.formula import Formula

_POINTER = "!llvm.ptr"
#: The layout of ``facts``. ``limit`` to ``key_scale`` are the bits of f64: the masked score, the difference
#: to the maximum below which a weight is 0, and the factors of queries and keys.
FACTS = (
    *("m", "keys", "depth", "columns", "reaches", "inner", "shift", "limit", "vanished"),
    *("query_scale", "key_scale", "batch_axes", "m_axes", "keys_axes", "depth_axes", "columns_axes"),
)
#: Words of an axis: its size, and its strides in queries, keys and values.
AXIS_WORDS = 4
_QUERIES, _KEYS, _VALUES = 1, 2, 3


class Run:
    """Emits ``run``."""

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
        self.place, self.tame = code.stack(1, "i64"), code.stack(1, "i64")
        self.runs = code.stack(form.steps + 1, "i64")

    def _size(self, size: Formula) -> Name:
        """Emit the bytes of a region."""
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
        """Return the LLVM IR of the function.

        It has loops over batches and spans of query rows, for the cells from ``%begin`` to ``%end``.
        """
        code, form, facts = self.code, self.form, self.facts
        none = code.const(-1)
        for slot in (0, 1):
            code.store(none, code.at(self.packed, slot, "i64"))
        places = self.places
        self._table(places["query_steps"], code.const(0), facts["depth"], "depth", _QUERIES)
        self._table(places["key_steps"], code.const(0), facts["depth"], "depth", _KEYS)
        self._table(places["value_columns"], code.const(0), facts["columns"], "columns", _VALUES)
        self.key_run = self._consecutive("key_steps", facts["depth"])
        if form.prefetches:
            contiguous = code.both(self.key_run, self._consecutive("query_steps", facts["depth"]))
            contiguous = code.both(contiguous, self._consecutive("value_columns", facts["columns"]))
            single = code.compare("sle", facts["keys"], form.chunk)
            self.prefetched = code.both(contiguous, single)
            self.last = code.sub(code.ceildiv("%end", code.ceildiv(facts["m"], form.cell)), 1)
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
        """Fill ``size`` bytes with zeros: packing leaves gaps."""
        code, form = self.code, self.form
        zeros, width = code.const("dense<0.0>", form.vector), BYTES[form.wide]
        with code.loop(0, code.div(size, width), form.lanes) as loop:
            code.store(zeros, code.at(base, loop.counter, form.wide), form.vector, width)

    def _consecutive(self, table: str, count: Name) -> Name:
        return self.code.op(
            f"llvm.call @{self.form.name}_consecutive({self.places[table]}, {count}) : (!llvm.ptr, i64) -> i1"
        )

    def _span(self, batch: Name, low: Name, high: Name) -> None:
        """Emit the attention of the rows ``low`` to ``high`` of a batch.

        Each chunk of keys and values is packed, and each panel of rows updates its maxima, totals and sums
        with it; at the end the results are stored.
        """
        code, form, facts, places = self.code, self.form, self.facts, self.places
        width, wide = BYTES[form.wide], form.wide
        queries = self._base("q", form.a, batch, _QUERIES)
        keys = self._base("k", form.b, batch, _KEYS)
        values = self._base("v", form.b, batch, _VALUES)
        zero, least = (
            code.const("0.0", wide),
            code.const("0xFF800000" if wide == "f32" else "0xFFF0000000000000", wide),
        )
        following: tuple[Name, ...] = ()
        if form.prefetches:
            number = code.min(code.add(batch, 1), self.last)
            operands = (("q", form.a, _QUERIES), ("k", form.b, _KEYS), ("v", form.b, _VALUES))
            following = tuple(self._base(name, kind, number, column) for name, kind, column in operands)
        rows = code.sub(high, low)
        with code.loop(0, rows) as row:
            code.store(least, code.at(places["tops"], row.counter, wide), wide, width)
            code.store(zero, code.at(places["totals"], row.counter, wide), wide, width)
        self._clear(places["sums"], code.mul(code.mul(rows, self.columns), width))
        with code.loop(0, facts["keys"], form.chunk) as chunk:
            keys_in_chunk = code.min(code.sub(facts["keys"], chunk.counter), form.chunk)
            self._pack(batch, chunk.counter, keys_in_chunk, keys, values)
            with code.loop(low, high, form.rows) as panel:
                count = code.min(code.sub(high, panel.counter), form.rows)
                self._pack_queries(queries, panel.counter, count)
                if form.prefetches:
                    with code.when(self.prefetched):
                        self._prefetch(following, panel.counter, count)
                with code.loop(0, keys_in_chunk, form.block) as block:
                    end = code.min(code.add(block.counter, form.block), keys_in_chunk)
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
        """Call a function pointer that the kernel passed."""
        code = self.code
        passed = ", ".join([*numbers, *(self.places.get(name, name) for name in pointers)])
        kinds = ", ".join([_POINTER, *["i64"] * len(numbers), *[_POINTER] * len(pointers)])
        code.do(f"llvm.call %{function}(%closure, {passed}) : {_POINTER}, ({kinds}) -> ()")

    def _pack(self, batch: Name, chunk: Name, keys_in_chunk: Name, key_base: Name, value_base: Name) -> None:
        """Pack a chunk of keys and values, unless it is the last packed one."""
        code = self.code
        slots = [code.at(self.packed, slot, "i64") for slot in (0, 1)]
        changed = [
            code.compare("ne", code.load(slot), current)
            for slot, current in zip(slots, (batch, chunk), strict=True)
        ]
        with code.when(code.either(*changed)):
            for slot, current in zip(slots, (batch, chunk), strict=True):
                code.store(current, slot)
            self._table(self.places["key_places"], chunk, keys_in_chunk, "keys", _KEYS)
            self._table(self.places["value_places"], chunk, keys_in_chunk, "keys", _VALUES)
            self._pack_keys(key_base, keys_in_chunk)
            self._pack_values(value_base, keys_in_chunk)

    def _pack_b(
        self, base: Name, columns: Name, steps: Name, k: Name, count: Name, run: Name, to: Name
    ) -> None:
        self.code.call(
            f"{self.form.name}_pack_b",
            *((base, _POINTER), (columns, _POINTER), (steps, _POINTER)),
            *((k, "i64"), (count, "i64"), (run, "i1"), (to, _POINTER)),
        )

    def _pack_keys(self, base: Name, keys_in_chunk: Name) -> None:
        code, form, facts, places = self.code, self.form, self.facts, self.places
        with code.loop(0, keys_in_chunk, form.columns) as column:
            columns = code.at(places["key_places"], column.counter, "i64")
            count = code.min(code.sub(keys_in_chunk, column.counter), form.columns)
            to = code.at(places["keys"], code.mul(column.counter, facts["depth"]), form.wide)
            self._pack_b(base, columns, places["key_steps"], facts["depth"], count, self.key_run, to)
        size = code.mul(code.roundup(keys_in_chunk, form.columns), facts["depth"])
        self._scaled(places["keys"], size, "key_scale")

    def _pack_values(self, base: Name, keys_in_chunk: Name) -> None:
        code, form, facts, places = self.code, self.form, self.facts, self.places
        run = self._consecutive("value_places", keys_in_chunk)
        with code.loop(0, facts["columns"], form.columns) as column:
            columns = code.at(places["value_columns"], column.counter, "i64")
            count = code.min(code.sub(facts["columns"], column.counter), form.columns)
            to = code.at(places["values"], code.mul(column.counter, form.chunk), form.wide)
            self._pack_b(base, columns, places["value_places"], keys_in_chunk, count, run, to)
        with (
            code.when(code.compare("ne", facts["reaches"], 0)),
            code.loop(0, keys_in_chunk, form.block) as block,
        ):
            count = code.min(code.sub(keys_in_chunk, block.counter), form.block)
            start = code.at(places["values"], code.mul(block.counter, form.columns), form.wide)
            arguments = f"{start}, {count}, {self.columns}"
            is_finite = code.op(f"llvm.call @{form.name}_finite({arguments}) : (!llvm.ptr, i64, i64) -> i1")
            packed = code.at(places["keys"], code.mul(block.counter, facts["depth"]), form.wide)
            size = code.mul(code.roundup(count, form.columns), facts["depth"])
            is_finite = code.both(is_finite, self._is_tame(packed, size))
            slot = code.at(places["finite"], code.div(block.counter, form.block), "i64")
            code.store(code.op(f"arith.extui {is_finite} : i1 to i64"), slot)

    def _is_tame(self, base: Name, count: Name) -> Name:
        """Whether no packed element is huge, or the mask is not added to scores."""
        code, slot = self.code, self.tame
        code.store(code.const(1), slot)
        with code.when(code.compare("eq", self.facts["reaches"], 2)):
            tame = code.op(f"llvm.call @{self.form.name}_tame({base}, {count}) : (!llvm.ptr, i64) -> i1")
            code.store(code.op(f"arith.extui {tame} : i1 to i64"), slot)
        return code.compare("ne", code.load(slot), 0)

    def _scaled(self, base: Name, count: Name, fact: str) -> None:
        self.code.call(f"{self.form.name}_scale", (base, _POINTER), (count, "i64"), (self.facts[fact], "i64"))

    def _pack_queries(self, base: Name, row: Name, count: Name) -> None:
        code, form, facts, places = self.code, self.form, self.facts, self.places
        self._table(places["rows"], row, count, "m", _QUERIES)
        pieces = code.ceildiv(facts["depth"], form.steps)
        with code.loop(0, pieces) as piece:
            start = code.mul(piece.counter, form.steps)
            steps = code.at(places["query_steps"], start, "i64")
            k = code.min(code.sub(facts["depth"], start), form.steps)
            to = code.at(places["queries"], code.mul(piece.counter, form.rows * form.row_step), form.wide)
            kinds = "(!llvm.ptr, i64, !llvm.ptr) -> i64"
            runs = code.op(f"llvm.call @{form.name}_runs({steps}, {k}, {self.runs}) : {kinds}")
            code.call(
                f"{form.name}_pack_a",
                *((base, _POINTER), (places["rows"], _POINTER), (steps, _POINTER)),
                *((k, "i64"), (count, "i64"), (self.runs, _POINTER), (runs, "i64"), (to, _POINTER)),
            )
        size = code.mul(pieces, form.rows * form.row_step)
        self._scaled(places["queries"], size, "query_scale")
        tame = code.op(f"arith.extui {self._is_tame(places['queries'], size)} : i1 to i64")
        code.store(tame, code.at(self.packed, 2, "i64"))

    def _prefetch(self, following: tuple[Name, ...], row: Name, count: Name) -> None:
        """Prefetch what the next batch reads into the second-level cache: the queries of these rows, and an
        equal share of keys and values.
        """
        code, facts, places = self.code, self.facts, self.places
        m, keys = facts["m"], facts["keys"]
        first = code.div(code.mul(row, keys), m)
        end = code.div(code.mul(code.add(row, count), keys), m)
        queries, keys_base, values = following
        for base, kind, table, low, high, size in (
            (queries, self.form.a, "rows", code.const(0), count, "depth"),
            (keys_base, self.form.b, "key_places", first, end, "depth"),
            (values, self.form.b, "value_places", first, end, "columns"),
        ):
            memory = stored_name(kind)
            width = code.mul(facts[size], BYTES_OF[memory])
            with code.loop(low, high) as entry:
                place = code.load(code.at(places[table], entry.counter, "i64"))
                start = code.at(base, place, memory)
                with code.loop(0, width, LINE) as line:
                    code.prefetch(code.at(start, line.counter, "i8"), level=2)

    def _block(
        self, batch: Name, offset: Name, row: Name, count: Name, chunk: Name, low: Name, high: Name
    ) -> None:
        """Process keys ``low`` to ``high`` of a chunk for a panel; skips masked keys without effect."""
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
            is_finite = code.compare("ne", code.bits(code.load(slot), tame), 0)
            tops = code.at(self.places["tops"], offset, form.wide)
            is_settled = code.op(
                f"llvm.call @{form.name}_settled({count}, {tops}, {facts['limit']}, {facts['vanished']}) : "
                "(i64, !llvm.ptr, i64, i64) -> i1"
            )
            with code.when(code.both(is_finite, is_settled)):
                pass
            with code.otherwise():
                self._keys(batch, offset, row, count, chunk, middle, high)

    def _keys(
        self, batch: Name, offset: Name, row: Name, count: Name, chunk: Name, low: Name, high: Name
    ) -> None:
        """Emit the update of maxima, totals and sums of rows with the keys ``low`` to ``high`` of a chunk."""
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
            *((count, "i64"), (keys, "i64"), (facts["columns"], "i64"), (self.columns, "i64")),
            *((places["tile"], _POINTER), (values, _POINTER), (sums, _POINTER)),
        )
