"""Strips: a packed panel of A times a block of packed columns of B, tile by tile."""

from __future__ import annotations

from kcache_compiler.lower.gemm.micro_kernel import AHEAD, LINE, row_counts, tile_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

_POINTER = "!llvm.ptr"


def strip(form: Form) -> str:
    """``(rows, n, k, a, b, c, ldc, load, next, step)``: a packed panel of A times a block of packed B.

    Prefetches the next panel: rows from ``next`` on, ``step`` bytes apart. That of prepacked B also has the
    arguments ``ahead`` and ``stride``: prefetches B from ``ahead`` on, ``stride`` bytes with each step of K
    of each tile.
    """
    numbers = [(name, "i64") for name in ("rows", "n", "k")]
    pointers = [(name, _POINTER) for name in ("a", "b", "c")]
    prefetch_arguments = [("next", _POINTER), ("step", "i64")]
    if form.prepacked:
        prefetch_arguments += AHEAD
    code = Code(
        f"{form.name}_strip", [*numbers, *pointers, ("ldc", "i64"), ("load", "i1"), *prefetch_arguments]
    )
    spare = None if form.masked else code.stack(form.rows * form.columns, form.wide)
    with code.loop(0, "%n", form.columns) as loop:
        depth = "%k" if form.prepacked else form.steps
        panel = code.at("%b", code.mul(loop.counter, depth), form.packed)
        target = code.at("%c", loop.counter, form.wide)
        width = code.min(code.sub("%n", loop.counter), form.columns)
        if form.together > 1:
            _panels(code, form, loop.counter, (panel, target), width, spare)
        else:
            prefetch_next_panel(code, form, loop.counter)
            ahead: list[tuple[Name, str]] = []
            if form.prepacked:
                steps_before = code.mul(code.div(loop.counter, form.columns), "%k")
                ahead.append((code.at("%ahead", code.mul(steps_before, "%stride"), "i8"), _POINTER))
                ahead.append(("%stride", "i64"))
            _panel(code, form, ("%rows", "%a", panel, target), width, spare, ahead)
    return code.text()


def _panels(
    code: Code, form: Form, column: Name, places: tuple[Name, Name], width: Name, spare: Name | None
) -> None:
    """Emit the tiles of all panels of A for a panel of B, whose address and that of C are ``places``.

    Each tile prefetches its share of the next panel of B.
    """
    panel, target = places
    following = "%b"
    if form.prepacked:
        following = next_panel(code, form, column, panel, "%n")
    with code.loop(0, "%rows", form.rows) as row:
        prefetch_next_panel(code, form, column, first=row.counter)
        count = code.min(code.sub("%rows", row.counter), form.rows)
        a = code.at("%a", code.mul(row.counter, form.row_step), form.packed)
        c = code.at(target, code.mul(row.counter, "%ldc"), form.wide)
        ahead = shares(code, form, following, row.counter) if form.prepacked else []
        _panel(code, form, (count, a, panel, c), width, spare, ahead)


def next_panel(code: Code, form: Form, column: Name, panel: Name, columns: Name) -> Name:
    """The panel of B after that of ``column``: ``%ahead`` after the last one."""
    ends = code.compare("sge", code.add(column, form.columns), columns)
    following = code.at(panel, code.mul("%k", form.columns), form.packed)
    return code.choose(ends, "%ahead", following, _POINTER)


def shares(code: Code, form: Form, panel: Name, row: Name) -> list[tuple[Name, str]]:
    """What the tiles of the panel of A at ``row`` prefetch of a ``panel`` of B."""
    steps_before = code.mul(code.div(row, form.rows), "%k")
    address = code.at(panel, code.mul(steps_before, "%stride"), "i8")
    return [(address, _POINTER), ("%stride", "i64")]


def _panel(
    code: Code,
    form: Form,
    places: tuple[Name, Name, Name, Name],
    width: Name,
    spare: Name | None,
    ahead: list[tuple[Name, str]],
) -> None:
    """Emit the tiles of a panel of A; ``places``: the number of its rows, the addresses of A, B and C."""
    rows, a, panel, target = places
    if spare is None:
        _tiles(code, form, (rows, a, panel), (target, "%ldc"), width, ahead)
        return
    beside = (spare, code.const(form.columns))
    with code.when(code.compare("eq", width, form.columns)):
        _tiles(code, form, (rows, a, panel), (target, "%ldc"), width, ahead)
    with code.otherwise():
        with code.when("%load"):
            copy_block(code, form, (target, "%ldc"), beside, (rows, width))
        _tiles(code, form, (rows, a, panel), beside, width, ahead)
        copy_block(code, form, beside, (target, "%ldc"), (rows, width))


def prefetch_next_panel(code: Code, form: Form, column: Name, step: Name = "%step", first: Name = "") -> None:
    """Prefetch a cache line of each row of the next panel, the next line with each tile of columns.

    Rows are ``step`` bytes apart; that of ``first``, if it is not empty, is the first row of the panel.
    """
    start = code.at("%next", code.mul(first, step), "i8") if first else "%next"
    line = code.at(start, code.mul(code.div(column, form.columns), LINE), "i8")
    for row in range(form.rows):
        code.prefetch(code.at(line, code.mul(step, row), "i8"), level=2)


def copy_block(
    code: Code, form: Form, source: tuple[Name, Name], target: tuple[Name, Name], sizes: tuple[Name, Name]
) -> None:
    rows, columns = sizes
    with code.loop(0, rows) as row, code.loop(0, columns) as column:
        load_address, store_address = (
            code.at(base, code.add(code.mul(row.counter, step), column.counter), form.wide)
            for base, step in (source, target)
        )
        code.store(
            code.load(load_address, form.wide, BYTES[form.wide]), store_address, form.wide, BYTES[form.wide]
        )


def _tiles(
    code: Code,
    form: Form,
    read: tuple[Name, Name, Name],
    stored: tuple[Name, Name],
    width: Name,
    ahead: list[tuple[Name, str]],
) -> None:
    """Emit the tiles of the panel's rows: the full tile, or one per bit of their number.

    ``read`` are this number and the addresses of the panels of A and of B. Results are ``stored`` at an
    address, with a row stride. A full tile of at most a vector of columns computes no others.
    """
    full, *parts = row_counts(form)
    (count, start, panel), (target, ldc) = read, stored

    def call(rows: int, first: Name, vectors: int = 0) -> None:
        a = code.at(start, code.mul(first, form.row_step), form.packed)
        c = code.at(target, code.mul(first, ldc), form.wide)
        code.call(
            tile_name(form, rows, vectors=vectors),
            ("%k", "i64"),
            (a, _POINTER),
            (panel, _POINTER),
            (code.const(form.columns), "i64"),
            (c, _POINTER),
            (ldc, "i64"),
            (width, "i64"),
            ("%load", "i1"),
            *ahead,
        )

    def call_full() -> None:
        if not form.narrow:
            call(full, code.const(0))
            return
        with code.when(code.compare("sle", width, form.lanes)):
            call(full, code.const(0), 1)
        with code.otherwise():
            call(full, code.const(0))

    with code.when(code.compare("eq", count, full)):
        call_full()
    with code.otherwise():
        for rows in parts:
            with code.when(code.compare("ne", code.bits(count, rows), 0)):
                call(rows, code.bits(count, -2 * rows))
