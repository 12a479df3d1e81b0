"""Which products of a panel are those of zeros of the padding: they are not computed if B is finite.

A block of K reads each row of A in runs of contiguous elements, each in one row of the padded image or in
several. A half of a panel needs no run that reads rows of zeros above or below the image only, and not its
first or last row where the whole block reads zeros beside the image.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.in_place.tile import half_of
from kcache_compiler.lower.gemm.packing import SHORT_RUN
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import Form

_POINTER = "!llvm.ptr"
#: What tells where windows are in the image.
PADDING = ("pitch", "reach", "padded_rows", "image_rows", "rows_before", "before", "inside", "planes")
#: Words of a half: the offset of its first row; whether its rows are ``step`` apart; whether windows reach
#: into the padding; the row of the image at which they begin, and the rows of the image, both ``ANY`` where
#: windows begin in several rows; the element of the padded row where the first window begins, or ``ANY``.
HALF_WORDS, ANY = 6, 1 << 61
#: Words of a part of a panel: its first row and the number of rows, the first run and the end. There are at
#: most ``MOST_PARTS``.
PART_WORDS, MOST_PARTS = 4, 4
#: Words of the table of a block of K before those of runs: the first and the last element of a padded row.
BLOCK_WORDS = 2
#: Sums of a tile that hide the latency of a multiply-add. A half without its first or last row, if these are
#: fewer sums, takes as long as the whole half.
LEAST_SUMS = 8


def panel_halves(form: Form) -> str:
    """``(offsets, count, panel, step, PADDING, to)``: ``HALF_WORDS`` of both halves of each panel of
    ``panel`` rows; those of a half without rows are of no use.
    """
    numbers = [(name, "i64") for name in ("count", "panel", "step", *PADDING)]
    code = Code(f"{form.name}_halves", [("offsets", _POINTER), *numbers, ("to", _POINTER)])
    half = half_of(form)
    with code.loop(0, code.mul(code.ceildiv("%count", "%panel"), 2)) as loop:
        before, begin = (
            code.mul(code.div(loop.counter, 2), "%panel"),
            code.mul(code.rem(loop.counter, 2), half),
        )
        first = code.min(code.add(before, begin), code.sub("%count", 1))
        entry = code.at("%offsets", first, "i64")
        place = code.load(entry)
        within = code.min(code.sub("%panel", begin), half)
        rows = code.max(code.min(code.sub("%count", first), within), 1)
        with code.loop(1, rows, carried=[(code.const(1), "i64")]) as row:
            offset = code.load(code.at(entry, row.counter, "i64"))
            follows = code.compare("eq", code.sub(offset, place), code.mul(row.counter, "%step"))
            row.following.append(code.choose(follows, row.carried[0], code.const(0)))
        to = code.at("%to", code.mul(loop.counter, HALF_WORDS), "i64")
        for at, word in enumerate((place, row.results[0])):
            code.store(word, code.at(to, at, "i64"))
        with code.when(code.compare("ne", "%pitch", 0)):
            last = code.load(code.at(entry, code.sub(rows, 1), "i64"))
            for at, word in enumerate(_padding_words(code, place, last), 2):
                code.store(word, code.at(to, at, "i64"))
        with code.otherwise():
            code.store(code.const(0), code.at(to, 2, "i64"))
    return code.text()


def _padding_words(code: Code, first: Name, last: Name) -> tuple[Name, ...]:
    """The last words of a half whose first and last row are at these offsets of a padded image."""
    number, column = code.div(first, "%pitch"), code.rem(first, "%pitch")
    single = code.compare("eq", number, code.div(last, "%pitch"))
    begin = code.sub(code.rem(number, "%padded_rows"), "%rows_before")
    end_row = code.add(begin, code.div("%reach", "%pitch"))
    end = code.add(code.rem(last, "%pitch"), code.rem("%reach", "%pitch"))
    above = code.either(code.compare("slt", begin, 0), code.compare("sge", end_row, "%image_rows"))
    inside = code.add("%before", "%inside")
    beside = code.either(code.compare("slt", column, "%before"), code.compare("sge", end, inside))
    adjacent = code.both(single, code.compare("eq", "%planes", 1))
    reaches = code.either(code.both(single, above), code.both(adjacent, beside))
    unknown = code.const(ANY)
    return (
        code.choose(reaches, code.const(1), code.const(0)),
        code.choose(single, begin, unknown),
        code.choose(single, "%image_rows", code.const(2 * ANY)),
        code.choose(adjacent, column, unknown),
    )


def block_words(form: Form) -> int:
    """Words of the table of a block of K at most: its first and its last run may be parts of runs."""
    return BLOCK_WORDS + 2 * (form.depth // SHORT_RUN + 1)


def block_windows(form: Form) -> str:
    """``(runs, n, steps, pitch, to)``: ``BLOCK_WORDS``, then the first and the last row of each run."""
    arguments = [("runs", _POINTER), ("n", "i64"), ("steps", _POINTER), ("pitch", "i64"), ("to", _POINTER)]
    code = Code(f"{form.name}_block_windows", arguments)
    with code.loop(0, "%n", carried=[("%pitch", "i64"), (code.const(0), "i64")]) as loop:
        run = code.at("%runs", loop.counter, "i64")
        ends = (code.load(run), code.sub(code.load(code.at(run, 1, "i64")), 1))
        first, last = (code.load(code.at("%steps", step, "i64")) for step in ends)
        words = code.add(code.mul(loop.counter, 2), BLOCK_WORDS)
        for at, offset in enumerate((first, last)):
            code.store(code.div(offset, "%pitch"), code.at("%to", code.add(words, at), "i64"))
        loop.following.append(code.min(loop.carried[0], code.rem(first, "%pitch")))
        loop.following.append(code.max(loop.carried[1], code.rem(last, "%pitch")))
    for at, word in enumerate(loop.results):
        code.store(word, code.at("%to", at, "i64"))
    return code.text()


def needed_runs(form: Form) -> str:
    """``(half, windows, n, to)``: the first run that a half needs, and the end; 0 and 0 if it needs none."""
    arguments = [("half", _POINTER), ("windows", _POINTER), ("n", "i64"), ("to", _POINTER)]
    code = Code(f"{form.name}_needed_runs", arguments)
    begin, image_rows = (code.load(code.at("%half", at, "i64")) for at in (3, 4))
    with code.loop(0, "%n", carried=[("%n", "i64"), (code.const(0), "i64")]) as loop:
        low, high = loop.carried
        entry = code.at("%windows", code.add(code.mul(loop.counter, 2), BLOCK_WORDS), "i64")
        first, last = (code.add(begin, code.load(code.at(entry, at, "i64"))) for at in (0, 1))
        inside = code.both(code.compare("sge", last, 0), code.compare("slt", first, image_rows))
        loop.following.append(code.choose(inside, code.min(low, loop.counter), low))
        loop.following.append(code.choose(inside, code.add(loop.counter, 1), high))
    low, high = loop.results
    code.store(code.choose(code.compare("eq", high, 0), code.const(0), low), "%to")
    code.store(high, code.at("%to", 1, "i64"))
    return code.text()


class _Half:
    """What a half of a panel needs of a block of K: runs, and whether one of its rows is zeros."""

    def __init__(self, code: Code, form: Form, number: int, several: Name) -> None:
        self.first = number * half_of(form)
        entry = code.at(
            "%halves", code.choose(several, code.const(number * HALF_WORDS), code.const(0)), "i64"
        )
        bounds = code.stack(2, "i64")
        arguments = ((entry, _POINTER), ("%windows", _POINTER), ("%n", "i64"), (bounds, _POINTER))
        code.call(f"{form.name}_needed_runs", *arguments)
        self.low, self.high = code.load(bounds), code.load(code.at(bounds, 1, "i64"))
        self.any = code.compare("ne", self.low, self.high)
        half = half_of(form)
        self.rows = code.min(code.sub("%rows", self.first), half)
        column, begin, end = (
            code.load(address)
            for address in (code.at(entry, 5, "i64"), "%windows", code.at("%windows", 1, "i64"))
        )
        before = code.sub(code.sub("%before", end), column)
        inside = code.sub(code.sub(code.add("%before", "%inside"), begin), column)
        self.leading = code.both(code.compare("sgt", before, 0), code.compare("sle", before, "%step"))
        trailing = code.both(
            code.compare("sgt", inside, code.mul("%step", half - 2)),
            code.compare("sle", inside, code.mul("%step", half - 1)),
        )
        whole = code.both(self.any, code.compare("eq", self.rows, half))
        if (half - 1) * form.vectors < LEAST_SUMS:
            whole = code.const(0, "i1")
        self.narrow = code.both(code.op(f"arith.xori {self.leading}, {trailing} : i1"), whole)


def parts(form: Form) -> str:
    """``(halves, rows, windows, n, step, before, inside, unfinished, to) -> i64``: ``PART_WORDS`` of each
    part, and the number of parts.

    Parts without runs are left out unless the panel is ``unfinished``: its results must be stored.
    """
    numbers = [(name, "i64") for name in ("n", "step", "before", "inside")]
    arguments = [("halves", _POINTER), ("rows", "i64"), ("windows", _POINTER), *numbers]
    code = Code(f"{form.name}_parts", [*arguments, ("unfinished", "i1"), ("to", _POINTER)], "i64")
    half, count, zero = half_of(form), code.stack(1, "i64"), code.const(0)
    code.store(zero, count)
    several = code.compare("sgt", "%rows", half)
    both = [_Half(code, form, number, several) for number in (0, 1)]
    first, second = both

    def append(row: Name, rows: Name, low: Name, high: Name) -> None:
        number = code.load(count)
        for at, word in enumerate((row, rows, low, high)):
            code.store(word, code.at("%to", code.add(code.mul(number, PART_WORDS), at), "i64"))
        code.store(code.add(number, 1), count)

    differ = code.op(f"arith.xori {first.any}, {second.any} : i1")
    with code.when(code.either(differ, code.either(first.narrow, second.narrow))):
        for part in both:
            exists = code.compare("sgt", part.rows, 0)
            with code.when(code.both(exists, code.either(part.any, "%unfinished"))):
                skipped = code.choose(code.both(part.narrow, part.leading), code.const(1), zero)
                rows = code.choose(part.narrow, code.const(half - 1), part.rows)
                append(code.add(skipped, part.first), rows, part.low, part.high)
            with code.when(code.both(exists, code.both(part.narrow, "%unfinished"))):
                row = code.choose(part.leading, zero, code.const(half - 1))
                append(code.add(row, part.first), code.const(1), zero, zero)
    with code.otherwise(), code.when(code.either(first.any, "%unfinished")):
        append(zero, "%rows", code.min(first.low, second.low), code.max(first.high, second.high))
    return code.text(f"{code.load(count)} : i64")
