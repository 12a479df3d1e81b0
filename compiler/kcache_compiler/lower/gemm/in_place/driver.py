"""The loops around tiles that read rows of A unpacked.

Rows are computed in chunks. The offsets of a chunk's rows are found once for all blocks of K. Of a padded
image, the rows of pixels that a chunk reads are copied with their zeros to scratch, where rows of A lie then.
Some of these zeros are not multiplied (``skipped.py``). Rows that are not equally far apart, such as those at
the ends of two rows of pixels, are packed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kcache_compiler.lower.gemm.driver import FACTS, Driver
from kcache_compiler.lower.gemm.in_place.group import GROUP_WORDS, group_strip, panel_tiles
from kcache_compiler.lower.gemm.in_place.results import ENDS
from kcache_compiler.lower.gemm.in_place.skipped import (
    HALF_WORDS,
    MOST_PARTS,
    PADDING,
    PART_WORDS,
    block_windows,
    block_words,
    needed_runs,
    panel_halves,
    parts,
)
from kcache_compiler.lower.gemm.in_place.strip import few_rows_parts, strip
from kcache_compiler.lower.gemm.in_place.tile import DISTANCES, half_of, tile, tile_rows
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, FEW_CELLS, FEW_COLUMNS, Form

_POINTER = "!llvm.ptr"
#: Words of ``facts`` after ``FACTS``: rows of a chunk and of a panel, the distance of neighboring rows; for a
#: padded image, else 0, elements of a row of pixels with its zeros, and the last offset of a step of K; then
#: ``IMAGE`` and ``ENDS``.
PLACES = ("chunk", "panel", "step", "pitch", "reach")
#: Rows of pixels of an image with and without zeros, and zeros before them; elements before those of a row
#: of pixels, and these; strides of rows of pixels and of images. A row of an image with channels first is one
#: of each of its ``planes``, which are as far apart. A row has runs of ``pixel`` adjacent elements, which are
#: ``pixel_stride`` apart.
IMAGE = (
    *("padded_rows", "image_rows", "rows_before", "before", "inside", "row_stride", "image_stride"),
    *("planes", "plane_stride", "pixel", "pixel_stride"),
)
#: Rows of a chunk at most, whose offsets are on the stack.
CHUNK = 1024
#: A distance of rows at which they displace each other in the first-level cache, in bytes: these are packed.
CONFLICT = 4096
#: Bytes of B that stay in the second-level cache.
NEAR = 1 << 19


def most_rows(form: Form) -> int:
    """Rows of a chunk at most: whole panels."""
    return CHUNK // form.rows * form.rows


#: Emits a part of a panel: its rows, the rows before them, the addresses of its halves, distances, and its
#: runs: a table, their number, and offsets of steps of K.
_Emit = Callable[[Name, Name, tuple[Name, Name], Name, tuple[Name, Name, Name]], None]


@dataclass(frozen=True)
class _Panel:
    """Rows of a panel: the rows of the chunk before them, their number, the words and the addresses of their
    halves, and whether they are read unpacked.
    """

    before: Name
    rows: Name
    entries: tuple[Name, Name]
    in_place: Name
    first: Name
    second: Name


class InPlaceDriver(Driver):
    """Emits ``run``."""

    words = (*FACTS, *PLACES, *IMAGE, *(name for name, _ in ENDS))

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        code = self.code
        self.half = half_of(form)
        self.offsets = code.stack(most_rows(form), "i64")
        self.halves = code.stack(HALF_WORDS * (most_rows(form) // self.half + 1), "i64")
        #: Where runs of the block of K are in a window; parts of a panel.
        self.windows = code.stack(block_words(form), "i64")
        self.parts = code.stack(MOST_PARTS * PART_WORDS, "i64")
        #: Parts of a group of panels, and their number.
        self.group, self.count = "", ""
        if form.together > 1:
            self.group = code.stack(form.together * MOST_PARTS * len(GROUP_WORDS), "i64")
            self.count = code.stack(1, "i64")
        #: The run of K, and its offset, of packed rows.
        self.packed_run, self.packed_step = code.stack(2, "i64"), code.stack(1, "i64")
        zero = code.const(0)
        code.store(zero, self.packed_run)
        code.store(zero, self.packed_step)
        self.distances = self._distances(self.facts["step"])
        self.packed_distances = self._distances(code.const(form.row_step))
        self.low: Name = ""

    def panel_rows(self) -> Name:
        return self.facts["panel"]

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
            *((facts["panel"], "i64"), (facts["step"], "i64")),
            (code.choose(self._is_finite(bases["b"]), facts["pitch"], code.const(0)), "i64"),
            *((facts[name], "i64") for name in PADDING[1:]),
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
        if self.form.together == 1:
            self._multiply_panel(bases, row, rows, width, depth, runs, load, sums)
        else:
            self._multiply_group(bases, row, rows, width, depth, runs, load, sums)

    def _entry(self, row: Name) -> Name:
        """The words of the first half of the panel that begins at ``row``."""
        code = self.code
        number = code.mul(code.div(code.sub(row, self.low), self.facts["panel"]), 2)
        return code.at(self.halves, code.mul(number, HALF_WORDS), "i64")

    def _multiply_panel(
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
        """Emit the product of a panel of rows of A, read in place where possible, and a block of columns."""
        code, form, facts = self.code, self.form, self.facts
        panel = self._panel_of(bases, row, rows, runs)
        following = code.at(panel.first, code.mul(facts["step"], facts["panel"]), form.packed)
        ahead = self._ahead(following, width, depth)
        ends, bias, other = self._ends()
        whole = code.compare("eq", facts["pitch"], 0)

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
                (whole, "i1"),
                *((following, _POINTER), (code.mul(facts["step"], BYTES[form.packed]), "i64"), *ahead),
                *((ends, "i64"), (bias, _POINTER), (code.at(other, skipped, form.wide), _POINTER)),
            )

        self._each_part(bases["a"], panel, depth, runs, load, self.panel, strip_of)

    def _multiply_group(
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
        """Of several panels: a table of the parts of all of them, and one call."""
        code, form, facts = self.code, self.form, self.facts
        code.store(code.const(0), self.count)
        with code.loop(0, rows, form.rows) as loop:
            number = code.min(code.sub(rows, loop.counter), form.rows)
            panel = self._panel_of(bases, code.add(row, loop.counter), number, runs)
            packed = code.at(self.panel, code.mul(loop.counter, form.row_step), form.packed)

            def append(
                count: Name,
                before: Name,
                halves: tuple[Name, Name],
                distances: Name,
                runs: tuple[Name, Name, Name],
            ) -> None:
                number, begin = code.load(self.count), code.add(loop.counter, before)
                words = (begin, count, *halves, distances, *runs)
                for at, (word, kind) in enumerate(zip(words, GROUP_WORDS, strict=True)):
                    place = code.at(self.group, code.add(code.mul(number, len(GROUP_WORDS)), at), "i64")
                    code.store(word, place, kind)
                code.store(code.add(number, 1), self.count)

            self._each_part(bases["a"], panel, depth, runs, load, packed, append)
        first = code.at(bases["a"], code.load(self._entry(row)), form.packed)
        following = code.at(first, code.mul(facts["step"], rows), form.packed)
        ends, bias, other = self._ends()
        whole = code.compare("eq", facts["pitch"], 0)
        code.call(
            f"{form.name}_group_strip",
            *((self.group, _POINTER), (code.load(self.count), "i64"), (width, "i64"), (depth, "i64")),
            *((self.panels, _POINTER), (sums[0], _POINTER), (sums[1], "i64"), (load, "i1"), (whole, "i1")),
            *((following, _POINTER), (code.mul(facts["step"], BYTES[form.packed]), "i64"), *self.ahead),
            *((ends, "i64"), (bias, _POINTER), (other, _POINTER)),
        )

    def _ends(self) -> tuple[Name, Name, Name]:
        """The values of ``ENDS`` for the rows and columns that are computed."""
        code, form = self.code, self.form
        ends = code.choose(self.last, self.facts["ends"], code.const(0))
        bias = code.at(self._pointer("bias"), self.column, form.wide)
        return ends, bias, code.at(self._pointer("other"), self.offset, form.wide)

    def _panel_of(self, bases: dict[str, Name], row: Name, rows: Name, runs: Name) -> _Panel:
        code, form, facts = self.code, self.form, self.facts
        before = code.sub(row, self.low)
        entry = self._entry(row)
        several = code.compare("sgt", rows, self.half)
        next_entry = code.choose(several, code.const(HALF_WORDS), code.const(0))
        entries = (entry, code.at(entry, next_entry, "i64"))
        regular = code.bits(*(code.load(code.at(each, 1, "i64")) for each in entries))
        apart = code.rem(code.mul(facts["step"], BYTES[form.packed]), CONFLICT)
        spread_out = code.both(code.compare("ne", regular, 0), code.compare("ne", apart, 0))
        in_place = code.both(spread_out, code.compare("ne", runs, 0))
        first, second = (code.at(bases["a"], code.load(each), form.packed) for each in entries)
        return _Panel(before, rows, entries, in_place, first, second)

    def _each_part(
        self, base: Name, panel: _Panel, depth: Name, runs: Name, load: Name, packed: Name, emit: _Emit
    ) -> None:
        """``emit`` the parts of a panel, which is packed at ``packed`` unless it is read unpacked."""
        code, form, facts = self.code, self.form, self.facts
        with code.when(panel.in_place):
            reaches = code.either(
                *(code.compare("ne", code.load(code.at(each, 2, "i64")), 0) for each in panel.entries)
            )
            with (
                code.when(reaches),
                code.loop(0, self._parts(panel.entries[0], panel.rows, runs, load)) as part,
            ):
                words = code.at(self.parts, code.mul(part.counter, PART_WORDS), "i64")
                begin, count, low, high = (code.load(code.at(words, at, "i64")) for at in range(PART_WORDS))
                upper = code.compare("slt", begin, self.half)
                inner = code.sub(begin, code.choose(upper, code.const(0), code.const(self.half)))
                half = code.choose(upper, panel.first, panel.second, _POINTER)
                place = code.at(half, code.mul(inner, facts["step"]), form.packed)
                table = (code.at(self.runs_a, low, "i64"), code.sub(high, low), self.steps_a)
                emit(count, begin, (place, panel.second), self.distances, table)
            with code.otherwise():
                table = (self.runs_a, runs, self.steps_a)
                emit(panel.rows, code.const(0), (panel.first, panel.second), self.distances, table)
        with code.otherwise():
            self._pack(base, panel.before, panel.rows, depth, runs, packed)
            code.store(depth, code.at(self.packed_run, 1, "i64"))
            halves = (packed, code.at(packed, self.half * form.row_step, form.packed))
            table = (self.packed_run, code.const(1), self.packed_step)
            emit(panel.rows, code.const(0), halves, self.packed_distances, table)

    def _parts(self, entry: Name, rows: Name, runs: Name, load: Name) -> Name:
        """The number of parts of a panel that reaches into the padding; their words are in ``parts``."""
        code, facts = self.code, self.facts
        unfinished = code.either(self.last, code.op(f"arith.xori {load}, {code.const(1, 'i1')} : i1"))
        numbers = [runs, *(facts[name] for name in ("step", "before", "inside"))]
        names = ", ".join([entry, rows, self.windows, *numbers, unfinished, self.parts])
        kinds = f"{_POINTER}, i64, {_POINTER}, i64, i64, i64, i64, i1, {_POINTER}"
        return code.op(f"llvm.call @{self.form.name}_parts({names}) : ({kinds}) -> i64")

    def rows_of_a(self, start: Name, depth: Name) -> Name:
        code, runs = self.code, super().rows_of_a(start, depth)
        pitch = self.facts["pitch"]
        with code.when(code.compare("ne", pitch, 0)):
            tables = ((self.runs_a, _POINTER), (runs, "i64"), (self.steps_a, _POINTER))
            code.call(f"{self.form.name}_block_windows", *tables, (pitch, "i64"), (self.windows, _POINTER))
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

    def _pack(self, base: Name, before: Name, rows: Name, depth: Name, runs: Name, to: Name) -> None:
        code, form = self.code, self.form
        code.call(
            f"{form.name}_pack_a",
            *((base, _POINTER), (code.at(self.offsets, before, "i64"), _POINTER), (self.steps_a, _POINTER)),
            *((depth, "i64"), (rows, "i64"), (self.runs_a, _POINTER), (runs, "i64"), (to, _POINTER)),
        )


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
    narrow += [tile(form, rows, vectors) for rows in tile_rows(form) for vectors in form.narrower]
    strips = [panel_tiles(form), group_strip(form)] if form.together > 1 else [strip(form)]
    tables = [panel_halves(form), block_windows(form), needed_runs(form), parts(form), image(form)]
    return [*tables, *tiles, *narrow, *few_rows_parts(form), *strips, InPlaceDriver(form).text()]
