"""The micro-kernel of rows of A that are read unpacked.

The rows of a tile are in two halves. Rows of a half are ``step`` elements apart, as are pixels of a row of
an image; the halves may be anywhere. K is in runs of contiguous elements, as are the pixels and channels that
a row of a window covers. A tile needs the addresses of the halves, the step, and the offsets of the runs: few
enough numbers for registers.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.in_place.results import ENDS, OTHER, write_results
from kcache_compiler.lower.gemm.micro_kernel import (
    AHEAD,
    BYTES_AHEAD,
    LINE,
    STEPS_OF_LINE,
    column_masks,
    multiply_add,
    spread,
)
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

_POINTER = "!llvm.ptr"
_CONSTANT = "!llvm.ptr {llvm.noalias, llvm.readonly}"
#: The rows whose distances from the first one of a half are in the table of distances, and for each row its
#: entry and the power of two by which an address multiplies it.
DISTANCES = (1, 3, 5)
_SCALED = {1: (0, 1), 2: (0, 2), 3: (1, 1), 4: (0, 4), 5: (2, 1), 6: (1, 2)}
#: Where A is: its halves, distances of rows in bytes, runs of K, their number, and offsets of steps of K.
ROWS = (
    ("first", _CONSTANT),
    ("second", _CONSTANT),
    ("distances", _CONSTANT),
    ("runs", _CONSTANT),
    ("n_runs", "i64"),
    ("steps", _CONSTANT),
)
_RESULT = (("c", _POINTER), ("ldc", "i64"), ("n", "i64"), ("load", "i1"))


def half_of(form: Form) -> int:
    """Rows of a half."""
    return form.rows // 2


def lower_panel(form: Form) -> int:
    """Rows of the panels of products whose rows two threads share more evenly so; as many as of others where
    there are none.
    """
    return form.rows - 1 if form.together == 1 and form.rows > 2 else form.rows


def tile_rows(form: Form) -> list[int]:
    """The row counts of tiles: a full tile, that of a lower panel, a half, one less, and powers of two that
    compose the others.
    """
    half = half_of(form)
    powers = [1 << bit for bit in reversed(range(8)) if 1 << bit < half]
    above = range(form.rows - 1, half, -1) if form.together > 1 else [lower_panel(form)]
    above = [rows for rows in above if half < rows < form.rows]
    return [form.rows, *above, half, *([] if half - 1 in powers else [half - 1]), *powers]


def tile_name(form: Form, rows: int, vectors: int = 0) -> str:
    return f"{form.name}_tile_{rows}" + (f"x{vectors}" if vectors else "")


def plain(arguments: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """``arguments`` as operands of a call: attributes belong to the function."""
    return [(f"%{name}", kind.split(" ")[0]) for name, kind in arguments]


def tile(form: Form, rows: int, vectors: int = 0) -> str:
    """``(ROWS, b, c, ldc, n, load, ahead, stride, ENDS)``: as ``micro_kernel.tile`` with prepacked B.

    The first rows are those from ``first`` on, up to a half, then those from ``second`` on. A tile of several
    panels, which has all their columns, prefetches no B: its argument ``distance`` is the number of elements
    from a panel to the next.
    """
    several = vectors > form.vectors
    following = (("distance", "i64"),) if several else AHEAD
    code = Code(tile_name(form, rows, vectors), [*ROWS, ("b", _CONSTANT), *_RESULT, *following, *ENDS])
    vectors = vectors or form.vectors
    columns = [vector * form.lanes for vector in range(vectors)]
    starts = [code.at("%c", code.mul("%ldc", row), form.wide) for row in range(rows)]
    addresses = [code.at(start, column, form.wide) for start in starts for column in columns]
    lines = [column for column in columns if column * BYTES[form.wide] % LINE == 0]
    for start in starts if rows > 1 else ():
        for column in lines:
            code.prefetch(code.at(start, column, form.wide))
    if form.together > 1:
        _prefetch_other(code, form, rows, lines)
    results = _Sums(code, form, rows, columns).results()
    masks = column_masks(code, form, columns) if form.masked and not several else []
    if not masks:
        write_results(code, form, addresses, columns, results, [])
        return code.text()
    with code.when(code.compare("eq", "%n", vectors * form.lanes)):
        write_results(code, form, addresses, columns, results, [])
    with code.otherwise():
        write_results(code, form, addresses, columns, results, masks)
    return code.text()


def _prefetch_other(code: Code, form: Form, rows: int, columns: list[int]) -> None:
    """Prefetch what is added to the results: the panels of a group read a line of each of many rows."""
    with code.when(code.compare("ne", code.bits("%ends", OTHER), 0)):
        for row in range(rows):
            start = code.at("%other", code.mul("%ldc", row), form.wide)
            for column in columns:
                code.prefetch(code.at(start, column, form.wide))


class _Sums:
    """Emits the loops over K of a tile."""

    def __init__(self, code: Code, form: Form, rows: int, columns: list[int]) -> None:
        self.code, self.form, self.rows, self.columns = code, form, rows, columns
        #: Elements of B before each panel but the first.
        self.panels = [code.mul("%distance", panel) for panel in range(1, 1 + columns[-1] // form.columns)]
        entries = [code.load(code.at("%distances", place, "i64")) for place in range(len(DISTANCES))]
        self.distances = [
            code.mul(entries[entry], times)
            for entry, times in (_SCALED[row] for row in range(1, half_of(form)))
        ]

    def results(self) -> list[Name]:
        code, form = self.code, self.form
        zero = (code.const("dense<0.0>", form.vector), form.vector)
        with code.loop(0, "%n_runs", carried=[zero] * (self.rows * len(self.columns))) as run:
            entry = code.at("%runs", run.counter, "i64")
            begin, end = code.load(entry), code.load(code.at(entry, 1, "i64"))
            place = code.load(code.at("%steps", begin, "i64"))
            halves = [
                code.at(each, code.sub(place, begin), form.packed)
                for each in ("%first", "%second")[: -(-self.rows // half_of(form))]
            ]
            run.following += self._run(begin, end, halves, run.carried)
        return run.results

    def _run(self, begin: Name, end: Name, halves: list[Name], sums: list[Name]) -> list[Name]:
        """``sums`` with the products of steps ``begin`` to ``end``.

        An empty assembly statement hides how addresses of A change from step to step: LLVM would keep the
        address of each row, more than there are registers. So each load adds the distance of its row.
        """
        code, form = self.code, self.form
        places, count = [code.at(half, begin, form.packed) for half in halves], len(halves)
        for steps in dict.fromkeys((form.unroll, 1)):
            stop = end
            if steps > 1:
                stop = code.add(begin, code.mul(code.div(code.sub(end, begin), steps), steps))
            carried = [*((each, _POINTER) for each in places), *((each, form.vector) for each in sums)]
            with code.loop(begin, stop, steps, carried=carried) as loop:
                loop.following += self._steps(loop.counter, steps, loop.carried[:count], loop.carried[count:])
            begin, places, sums = stop, loop.results[:count], loop.results[count:]
        return sums

    def _steps(self, counter: Name, steps: int, places: list[Name], sums: list[Name]) -> list[Name]:
        """``places`` of A after ``steps`` steps of K from ``counter`` on; ``sums`` with their products."""
        code, form = self.code, self.form
        places = [
            code.op(f'llvm.inline_asm "", "=r,0" {each} : ({_POINTER}) -> {_POINTER}') for each in places
        ]
        for step in range(steps):
            number = code.add(counter, step) if step else counter
            if step % STEPS_OF_LINE == 0 and not self.panels:
                code.prefetch(code.at("%ahead", code.mul(number, "%stride"), "i8"), level=2)
            start = code.at("%b", code.mul(number, form.columns), form.packed)
            starts = [start, *(code.at(start, before, form.packed) for before in self.panels)]
            reached = [code.at(place, step, form.packed) for place in places] if step else places
            sums = self._step(starts, reached, sums)
        return [*(code.at(place, steps, form.packed) for place in places), *sums]

    def _step(self, starts: list[Name], places: list[Name], sums: list[Name]) -> list[Name]:
        """``sums`` with the products of a step of K; B is at ``starts``, one for a panel, A at ``places``."""
        code, form, width = self.code, self.form, BYTES[self.form.packed]
        packed: list[Name] = []
        for column in self.columns:
            panel, before = divmod(column, form.columns)
            packed.append(code.load(code.at(starts[panel], before, form.packed), form.packed_vector, width))
        for line in range(0, form.columns * width if form.streams and not self.panels else 0, LINE):
            code.prefetch(code.at(starts[0], BYTES_AHEAD + line, "i8"))
        results: list[Name] = []
        for row in range(self.rows):
            half, number = divmod(row, half_of(form))
            place = code.at(places[half], self.distances[number - 1], "i8") if number else places[half]
            factor = spread(code, code.load(place, form.packed, width), form.packed, form.lanes)
            for values in packed:
                results.append(multiply_add(code, form, factor, values, sums[len(results)]))
        return results


def plain_kinds(arguments: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(name, kind.split(" ")[0]) for name, kind in arguments]


def emit_tiles(
    code: Code,
    form: Form,
    read: tuple[Name, Name, Name],
    places: tuple[Name, Name, Name, Name],
    width: Name,
    ahead: Name,
) -> None:
    """Emit the tiles of the rows: a full one, one of more than a half where there is one, or a half and one
    per bit of the number that is left.

    ``read`` are the number of rows and the addresses of their halves; ``places`` are the addresses of B, of
    C, of the bias, and of what is added to C.
    """
    calls, (number, start, _) = _Calls(code, form, read, places, width, ahead), read
    full, *less = tile_rows(form)
    half = half_of(form)
    above = [rows for rows in less if rows > half]
    zero = code.const(0)
    with code.when(code.compare("eq", number, full)):
        if form.narrow:
            with code.when(code.compare("sle", width, form.lanes)):
                calls.of_vectors(full, zero, start, 1)
            with code.otherwise():
                calls.of_width(full, zero, start)
        else:
            calls.of_width(full, zero, start)
    with code.otherwise():
        for rows in above:
            with code.when(code.compare("eq", number, rows)):
                calls.of_width(rows, zero, start)
        if above:
            composed = code.compare("slt", number, min(above))
            with code.when(composed):
                calls.of_halves(zero)
        else:
            calls.of_halves(zero)


class _Calls:
    """Emits the calls of tiles for the rows of a panel; arguments as of ``emit_tiles``."""

    def __init__(
        self,
        code: Code,
        form: Form,
        read: tuple[Name, Name, Name],
        places: tuple[Name, Name, Name, Name],
        width: Name,
        ahead: Name,
    ) -> None:
        self.code, self.form = code, form
        self.number, self.first, self.second = read
        self.places, self.width, self.ahead = places, width, ahead

    def of_halves(self, zero: Name) -> None:
        """Call the tiles of at most a half, or of a half and of what is left of the other one."""
        code, half = self.code, half_of(self.form)
        with code.when(code.compare("sge", self.number, half)):
            self.of_width(half, zero, self.first)
            self._remaining(code.sub(self.number, half), half, self.second)
        with code.otherwise():
            with code.when(code.compare("eq", self.number, half - 1)):
                self.of_width(half - 1, zero, self.first)
            with code.otherwise():
                self._remaining(self.number, 0, self.first)

    def _remaining(self, count: Name, before: int, first: Name) -> None:
        """Call a tile per bit of ``count``, of rows from ``first`` on."""
        code, half = self.code, half_of(self.form)
        for rows in tile_rows(self.form):
            if rows < half and rows.bit_count() == 1:
                with code.when(code.compare("ne", code.bits(count, rows), 0)):
                    done = code.bits(count, -2 * rows)
                    place = code.at(first, code.mul(done, code.load("%distances")), "i8")
                    self.of_width(rows, code.add(done, before), place)

    def of_width(self, rows: int, before: Name, first: Name) -> None:
        """Call the tile with as many vectors as there are columns."""
        code, form = self.code, self.form
        for vectors in form.narrower:
            with code.when(code.compare("eq", self.width, vectors * form.lanes)):
                self.of_vectors(rows, before, first, vectors)
        if form.narrower:
            with code.when(code.compare("eq", self.width, form.columns)):
                self.of_vectors(rows, before, first)
        else:
            self.of_vectors(rows, before, first)

    def of_vectors(self, rows: int, before: Name, first: Name, vectors: int = 0) -> None:
        """Call the tile of this many rows, of which ``before`` precede in C, and vectors; 0 is a full one."""
        code, form = self.code, self.form
        panel, target, bias, other = self.places
        offset = code.mul(before, "%ldc")
        place, added = (code.at(each, offset, form.wide) for each in (target, other))
        code.call(
            tile_name(form, rows, vectors),
            *((first, _POINTER), (self.second, _POINTER), *plain(ROWS)[2:], (panel, _POINTER)),
            *((place, _POINTER), ("%ldc", "i64"), (self.width, "i64"), ("%load", "i1")),
            *((self.ahead, _POINTER), ("%stride", "i64")),
            *(("%ends", "i64"), (bias, _POINTER), (added, _POINTER)),
        )
