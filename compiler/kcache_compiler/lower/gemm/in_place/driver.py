"""The loops around tiles that read rows of A where they lie.

Rows are computed in chunks. The offsets of a chunk's rows are found once for all blocks of K. Of a padded
image, the rows of pixels that a chunk reads are copied with their zeros to scratch, where rows of A lie then.
Runs of K that read only rows of zeros above or below the image are not multiplied if B is finite. Rows that
are not equally far apart, such as those at the ends of two rows of pixels, are packed.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.driver import FACTS, Driver
from kcache_compiler.lower.gemm.in_place.results import ENDS
from kcache_compiler.lower.gemm.in_place.tile import DISTANCES, half_of, strip, tile, tile_rows
from kcache_compiler.lower.gemm.packing import SHORT_RUN
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, FEW_CELLS, FEW_COLUMNS, Form

_POINTER = "!llvm.ptr"
#: Words of ``facts`` after ``FACTS``: rows of a chunk, the distance of neighboring rows; for a padded image,
#: else 0, elements of a row of pixels with its zeros, and the last offset of a step of K; then ``IMAGE`` and
#: ``ENDS``.
PLACES = ("chunk", "step", "pitch", "reach")
#: Rows of pixels of an image with and without zeros, and zeros before them; elements before those of a row
#: of pixels, and these; strides of rows of pixels and of images. A row of an image with channels first is one
#: of each of its ``planes``, which are as far apart. A row has runs of ``pixel`` adjacent elements, which are
#: ``pixel_stride`` apart.
IMAGE = (
    *("padded_rows", "image_rows", "rows_before", "before", "inside", "row_stride", "image_stride"),
    *("planes", "plane_stride", "pixel", "pixel_stride"),
)
#: What tells in which rows of the image windows are.
ROW_WORDS = ("pitch", "padded_rows", "image_rows", "rows_before")
#: Rows of a chunk at most, whose offsets are on the stack.
CHUNK = 1024
#: A distance of rows at which they displace each other in the first-level cache, in bytes: these are packed.
CONFLICT = 4096
#: Bytes of B that stay in the second-level cache.
NEAR = 1 << 19
#: Words of a half: the offset of its first row; whether its rows are ``step`` apart; the row of the image at
#: which their windows begin, and the rows of the image, both ``ANY`` where windows begin in several rows.
HALF_WORDS, ANY = 4, 1 << 61


def most_rows(form: Form) -> int:
    """Rows of a chunk at most: whole panels."""
    return CHUNK // form.rows * form.rows


class InPlaceDriver(Driver):
    """Emits ``run``."""

    words = (*FACTS, *PLACES, *IMAGE, *(name for name, _ in ENDS))

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        code = self.code
        self.half = half_of(form)
        self.offsets = code.stack(most_rows(form), "i64")
        self.halves = code.stack(HALF_WORDS * (most_rows(form) // self.half + 1), "i64")
        #: For each run of the block of K, the first and the last row of a window that it reads.
        self.window_rows = code.stack(2 * (form.depth // SHORT_RUN), "i64")
        #: The first run that a half needs, and the end; of both halves.
        self.needed = code.stack(4, "i64")
        #: The run of K, and its offset, of packed rows.
        self.packed_run, self.packed_step = code.stack(2, "i64"), code.stack(1, "i64")
        zero = code.const(0)
        code.store(zero, self.packed_run)
        code.store(zero, self.packed_step)
        self.distances = self._distances(self.facts["step"])
        self.packed_distances = self._distances(code.const(form.row_step))
        self.low: Name = ""

    def _distances(self, step: Name) -> Name:
        """The table of distances of rows that are ``step`` elements apart."""
        code = self.code
        table = code.stack(len(DISTANCES), "i64")
        for place, rows in enumerate(DISTANCES):
            distance = code.mul(step, rows * BYTES[self.form.packed])
            code.store(distance, code.at(table, place, "i64"))
        return table

    def blocks(self) -> Name:
        code, form, facts = self.code, self.form, self.facts
        short = code.ceildiv(code.const(FEW_CELLS * form.cell), code.max(facts["m"], 1))
        least = code.min(code.min(short, 2), code.ceildiv(facts["n"], FEW_COLUMNS))
        return code.max(super().blocks(), least)

    def compute(self, batch: Name, low: Name, high: Name, column: Name, width: Name) -> None:
        code, facts = self.code, self.facts
        with code.loop(0, code.ceildiv(code.sub(high, low), facts["chunk"])) as chunk:
            first = code.add(low, code.mul(chunk.counter, facts["chunk"]))
            self.block(batch, first, code.min(code.add(first, facts["chunk"]), high), column, width)

    def begin(self, bases: dict[str, Name], low: Name, high: Name) -> None:
        """Find the rows of a chunk, and copy what they read of a padded image."""
        code, form, facts = self.code, self.form, self.facts
        self.low = low
        count = code.sub(high, low)
        self.table(self.offsets, low, count, "m", 1)
        code.call(
            f"{form.name}_halves",
            *((self.offsets, _POINTER), (count, "i64")),
            (facts["step"], "i64"),
            (code.choose(self._is_finite(bases["b"]), facts["pitch"], code.const(0)), "i64"),
            *((facts[name], "i64") for name in ROW_WORDS[1:]),
            (self.halves, _POINTER),
        )
        padded = code.compare("ne", facts["pitch"], 0)
        pitch = code.max(facts["pitch"], 1)
        first = code.div(code.load(self.offsets), pitch)
        last = code.load(code.at(self.offsets, code.sub(count, 1), "i64"))
        end = code.add(code.div(code.add(last, facts["reach"]), pitch), 1)
        with code.when(padded):
            words = ((facts[name], "i64") for name in ("pitch", *IMAGE))
            code.call(
                f"{form.name}_image",
                *((bases["a"], _POINTER), (first, "i64"), (end, "i64"), *words, (self.sums, _POINTER)),
            )
        place = code.at(self.sums, code.sub(code.const(0), code.mul(first, pitch)), form.packed)
        bases["a"] = code.choose(padded, place, bases["a"], _POINTER)

    def _is_finite(self, panels: Name) -> Name:
        """Whether zeros times the elements of B are zeros. Panels of one batch, as a padded image has."""
        code, form, facts = self.code, self.form, self.facts
        place = code.at(panels, code.mul(code.roundup(facts["n"], form.columns), facts["k"]), form.packed)
        times_zero = code.load(place, form.wide, BYTES[form.packed])
        return code.op(f"arith.cmpf oeq, {times_zero}, {code.const('0.0', form.wide)} : {form.wide}")

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
        """Add the products of rows of A to ``sums``, an address and a row stride."""
        code, form, facts = self.code, self.form, self.facts
        before = code.sub(row, self.low)
        entry = code.at(self.halves, code.mul(code.div(before, self.half), HALF_WORDS), "i64")
        several = code.compare("sgt", rows, self.half)
        next_entry = code.choose(several, code.const(HALF_WORDS), code.const(0))
        entries = (entry, code.at(entry, next_entry, "i64"))
        regular = code.bits(*(code.load(code.at(each, 1, "i64")) for each in entries))
        apart = code.rem(code.mul(facts["step"], BYTES[form.packed]), CONFLICT)
        spread_out = code.both(code.compare("ne", regular, 0), code.compare("ne", apart, 0))
        in_place = code.both(spread_out, code.compare("ne", runs, 0))
        first, second = (code.at(bases["a"], code.load(each), form.packed) for each in entries)
        following = code.at(first, code.mul(facts["step"], form.rows), form.packed)
        ahead = self._ahead(following, width, depth)
        ends = code.choose(self.last, facts["ends"], code.const(0))
        bias = code.at(self._pointer("bias"), self.column, form.wide)
        other = code.at(self._pointer("other"), self.offset, form.wide)

        def strip_of(
            count: Name,
            before: Name,
            halves: tuple[Name, Name],
            distances: Name,
            runs: tuple[Name, Name, Name],
        ) -> None:
            """Of ``count`` rows after ``before``; ``runs``: a table, their number, steps of K."""
            skipped = code.mul(before, sums[1])
            code.call(
                f"{form.name}_strip",
                *((count, "i64"), (width, "i64"), (depth, "i64")),
                *((each, _POINTER) for each in (*halves, distances, runs[0])),
                *((runs[1], "i64"), (runs[2], _POINTER), (self.panels, _POINTER)),
                *((code.at(sums[0], skipped, form.wide), _POINTER), (sums[1], "i64"), (load, "i1")),
                *((following, _POINTER), (code.mul(facts["step"], BYTES[form.packed]), "i64"), *ahead),
                *((ends, "i64"), (bias, _POINTER), (code.at(other, skipped, form.wide), _POINTER)),
            )

        with code.when(in_place):
            split, needed = self._needed(entries, runs)
            unfinished = code.either(self.last, code.op(f"arith.xori {load}, {code.const(1, 'i1')} : i1"))
            with code.loop(0, code.choose(split, code.const(2), code.const(1))) as part:
                low, high = (
                    code.load(code.at(needed, code.add(code.mul(part.counter, 2), at), "i64"))
                    for at in (0, 1)
                )
                place = code.choose(code.compare("eq", part.counter, 0), first, second, _POINTER)
                skipped = code.mul(part.counter, self.half)
                count = code.choose(split, code.min(code.sub(rows, skipped), self.half), rows)
                with code.when(code.either(code.compare("ne", low, high), unfinished)):
                    table = (code.at(self.runs_a, low, "i64"), code.sub(high, low), self.steps_a)
                    strip_of(count, skipped, (place, second), self.distances, table)
        with code.otherwise():
            self._pack(bases["a"], before, rows, depth, runs)
            code.store(depth, code.at(self.packed_run, 1, "i64"))
            panels = (self.panel, code.at(self.panel, self.half * form.row_step, form.packed))
            packed = (self.packed_run, code.const(1), self.packed_step)
            strip_of(rows, code.const(0), panels, self.packed_distances, packed)

    def _needed(self, entries: tuple[Name, Name], runs: Name) -> tuple[Name, Name]:
        """Whether only one half of a panel needs runs of the block, and a table: the first run and the end of
        each half then, else of both.
        """
        code, form = self.code, self.form
        for number, entry in enumerate(entries):
            arguments = ((entry, _POINTER), (self.window_rows, _POINTER), (runs, "i64"))
            code.call(f"{form.name}_needed", *arguments, (code.at(self.needed, 2 * number, "i64"), _POINTER))
        low, high, other_low, other_high = (code.load(code.at(self.needed, at, "i64")) for at in range(4))
        any_needed = [code.compare("ne", *bounds) for bounds in ((low, high), (other_low, other_high))]
        split = code.op(f"arith.xori {any_needed[0]}, {any_needed[1]} : i1")
        code.store(code.choose(split, low, code.min(low, other_low)), self.needed)
        code.store(code.choose(split, high, code.max(high, other_high)), code.at(self.needed, 1, "i64"))
        return split, self.needed

    def rows_of_a(self, start: Name, depth: Name) -> Name:
        code, runs = self.code, super().rows_of_a(start, depth)
        tables = ((self.runs_a, _POINTER), (runs, "i64"), (self.steps_a, _POINTER))
        pitch = (self.facts["pitch"], "i64")
        code.call(f"{self.form.name}_window_rows", *tables, pitch, (self.window_rows, _POINTER))
        return runs

    def _pointer(self, word: str) -> Name:
        return self.code.op(f"llvm.inttoptr {self.facts[word]} : i64 to {_POINTER}")

    def _ahead(self, following: Name, width: Name, depth: Name) -> list[tuple[Name, str]]:
        """What the tiles of a panel prefetch, as ``Driver.ahead``: the next panel if its rows are contiguous
        and B stays in the cache, else the next block of B.
        """
        code, form, facts = self.code, self.form, self.facts
        contiguous = code.compare("eq", facts["step"], facts["k"])
        small = code.compare("sle", code.mul(facts["n"], facts["k"]), NEAR // BYTES[form.packed])
        chosen = code.both(code.both(contiguous, small), code.compare("eq", facts["pitch"], 0))
        steps = code.mul(code.ceildiv(width, form.columns), code.max(depth, 1))
        stride = code.ceildiv(code.mul(facts["step"], form.rows * BYTES[form.packed]), steps)
        (ahead, _), (usual, _) = self.ahead
        address = code.choose(chosen, following, ahead, _POINTER)
        return [(address, _POINTER), (code.choose(chosen, stride, usual), "i64")]

    def _pack(self, base: Name, before: Name, rows: Name, depth: Name, runs: Name) -> None:
        code, form = self.code, self.form
        code.call(
            f"{form.name}_pack_a",
            *((base, _POINTER), (code.at(self.offsets, before, "i64"), _POINTER), (self.steps_a, _POINTER)),
            *((depth, "i64"), (rows, "i64"), (self.runs_a, _POINTER), (runs, "i64"), (self.panel, _POINTER)),
        )


def halves(form: Form) -> str:
    """``(offsets, count, step, ROW_WORDS, to)``: ``HALF_WORDS`` of each half panel."""
    numbers = [(name, "i64") for name in ("count", "step", *ROW_WORDS)]
    code = Code(f"{form.name}_halves", [("offsets", _POINTER), *numbers, ("to", _POINTER)])
    half, pitch, padded_rows = half_of(form), code.max("%pitch", 1), code.max("%padded_rows", 1)
    with code.loop(0, code.ceildiv("%count", half)) as loop:
        first = code.mul(loop.counter, half)
        entry = code.at("%offsets", first, "i64")
        place = code.load(entry)
        rows = code.min(code.sub("%count", first), half)
        with code.loop(1, rows, carried=[(code.const(1), "i64")]) as row:
            offset = code.load(code.at(entry, row.counter, "i64"))
            follows = code.compare("eq", code.sub(offset, place), code.mul(row.counter, "%step"))
            row.following.append(code.choose(follows, row.carried[0], code.const(0)))
        number = code.div(place, pitch)
        last = code.div(code.load(code.at(entry, code.sub(rows, 1), "i64")), pitch)
        single = code.both(code.compare("eq", number, last), code.compare("ne", "%pitch", 0))
        begin = code.sub(code.rem(number, padded_rows), "%rows_before")
        words = (place, row.results[0], code.choose(single, begin, code.const(ANY)))
        words += (code.choose(single, "%image_rows", code.const(2 * ANY)),)
        for at, word in enumerate(words):
            code.store(word, code.at("%to", code.add(code.mul(loop.counter, HALF_WORDS), at), "i64"))
    return code.text()


def window_rows(form: Form) -> str:
    """``(runs, n, steps, pitch, to)``: the first and the last row of a window that each run reads."""
    arguments = [("runs", _POINTER), ("n", "i64"), ("steps", _POINTER), ("pitch", "i64"), ("to", _POINTER)]
    code = Code(f"{form.name}_window_rows", arguments)
    pitch = code.max("%pitch", 1)
    with code.loop(0, "%n") as loop:
        run = code.at("%runs", loop.counter, "i64")
        ends = (code.load(run), code.sub(code.load(code.at(run, 1, "i64")), 1))
        for at, step in enumerate(ends):
            row = code.div(code.load(code.at("%steps", step, "i64")), pitch)
            code.store(row, code.at("%to", code.add(code.mul(loop.counter, 2), at), "i64"))
    return code.text()


def needed(form: Form) -> str:
    """``(half, window_rows, n, to)``: the first run that a half needs, and the end; 0 and 0 if it needs none.

    Runs before the first one and from the end on read only rows of zeros.
    """
    arguments = [("half", _POINTER), ("window_rows", _POINTER), ("n", "i64"), ("to", _POINTER)]
    code = Code(f"{form.name}_needed", arguments)
    begin, image_rows = (code.load(code.at("%half", at, "i64")) for at in (2, 3))

    def is_needed(run: Name) -> Name:
        entry = code.at("%window_rows", code.mul(run, 2), "i64")
        first, last = (code.add(begin, code.load(code.at(entry, at, "i64"))) for at in (0, 1))
        return code.both(code.compare("sge", last, 0), code.compare("slt", first, image_rows))

    end = code.at("%to", 1, "i64")
    with code.when(code.both(is_needed(code.const(0)), is_needed(code.sub("%n", 1)))):
        code.store(code.const(0), "%to")
        code.store("%n", end)
    with code.otherwise():
        with code.loop(0, "%n", carried=[("%n", "i64"), (code.const(0), "i64")]) as loop:
            low, high = loop.carried
            inside, following = is_needed(loop.counter), code.add(loop.counter, 1)
            loop.following.append(code.choose(inside, code.min(low, loop.counter), low))
            loop.following.append(code.choose(inside, following, high))
        low, high = loop.results
        code.store(code.choose(code.compare("eq", high, 0), code.const(0), low), "%to")
        code.store(high, end)
    return code.text()


def image(form: Form) -> str:
    """``(from, first, end, pitch, IMAGE, to)``: copies rows of pixels ``first`` to ``end``, counted through
    all images, with their zeros.
    """
    numbers = [(name, "i64") for name in ("first", "end", "pitch", *IMAGE)]
    code = Code(f"{form.name}_image", [("from", _POINTER), *numbers, ("to", _POINTER)])
    kind = stored_name(form.a)
    with code.loop("%first", "%end") as loop:
        number, place = code.div(loop.counter, "%padded_rows"), code.rem(loop.counter, "%padded_rows")
        row = code.sub(place, "%rows_before")
        target = code.at("%to", code.mul(code.sub(loop.counter, "%first"), "%pitch"), kind)
        offset = code.add(code.mul(number, "%image_stride"), code.mul(row, "%row_stride"))
        source = code.at("%from", offset, kind)
        with code.when(code.compare("ult", row, "%image_rows")):
            part = code.div("%pitch", "%planes")
            with code.loop(0, "%planes") as plane:
                start = code.at(target, code.mul(plane.counter, part), kind)
                pixels = code.at(source, code.mul(plane.counter, "%plane_stride"), kind)
                _row(code, form, start, code.const(0), "%before", "")
                inner = code.at(start, "%before", kind)
                with code.loop(0, code.div("%inside", "%pixel")) as run:
                    place = code.at(inner, code.mul(run.counter, "%pixel"), kind)
                    source = code.at(pixels, code.mul(run.counter, "%pixel_stride"), kind)
                    _row(code, form, place, code.const(0), "%pixel", source)
                _row(code, form, start, code.add("%before", "%inside"), part, "")
        with code.otherwise():
            _row(code, form, target, code.const(0), "%pitch", "")
    return code.text()


def _row(code: Code, form: Form, target: Name, low: Name, high: Name, source: Name) -> None:
    """Store elements of ``source``, or zeros where it is empty, from ``low`` to ``high``."""
    width, count = BYTES[form.packed], code.sub(high, low)
    vectors = code.mul(code.div(count, form.lanes), form.lanes)
    for begin, end, lanes in ((low, code.add(low, vectors), form.lanes), (code.add(low, vectors), high, 1)):
        kind = form.vector if lanes > 1 else form.wide
        zero = code.const("dense<0.0>" if lanes > 1 else "0.0", kind)
        with code.loop(begin, end, lanes) as loop:
            value = code.load(code.at(source, loop.counter, form.packed), kind, width) if source else zero
            code.store(value, code.at(target, loop.counter, form.packed), kind, width)


def in_place_parts(form: Form) -> list[str]:
    """The functions of an in-place form besides those that pack."""
    tiles = [tile(form, rows) for rows in tile_rows(form)]
    narrow = [tile(form, form.rows, vectors=1)] if form.narrow else []
    parts = [halves(form), window_rows(form), needed(form), image(form)]
    return [*parts, *tiles, *narrow, strip(form), InPlaceDriver(form).text()]
