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
        bring_near(code, form, loop.counter)
        ahead: list[tuple[Name, str]] = []
        if form.prepacked:
            steps_before = code.mul(code.div(loop.counter, form.columns), "%k")
            ahead.append((code.at("%ahead", code.mul(steps_before, "%stride"), "i8"), _POINTER))
            ahead.append(("%stride", "i64"))
        if spare is None:
            _tiles(code, form, panel, (target, "%ldc"), width, ahead)
        else:
            is_full = code.compare("eq", width, form.columns)
            with code.when(is_full):
                _tiles(code, form, panel, (target, "%ldc"), width, ahead)
            with code.otherwise():
                with code.when("%load"):
                    copy_block(code, form, (target, "%ldc"), (spare, code.const(form.columns)), width)
                _tiles(code, form, panel, (spare, code.const(form.columns)), width, ahead)
                copy_block(code, form, (spare, code.const(form.columns)), (target, "%ldc"), width)
    return code.text()


def bring_near(code: Code, form: Form, column: Name, step: Name = "%step") -> None:
    """Prefetch a cache line of each row of the next panel, the next line with each tile of columns.

    Rows are ``step`` bytes apart.
    """
    line = code.at("%next", code.mul(code.div(column, form.columns), LINE), "i8")
    for row in range(form.rows):
        code.prefetch(code.at(line, code.mul(step, row), "i8"), level=2)


def copy_block(
    code: Code, form: Form, source: tuple[Name, Name], target: tuple[Name, Name], columns: Name
) -> None:
    with code.loop(0, "%rows") as row, code.loop(0, columns) as column:
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
    panel: Name,
    stored: tuple[Name, Name],
    width: Name,
    ahead: list[tuple[Name, str]],
) -> None:
    """Emit the tiles of the panel's rows: the full tile, or one per bit of their number.

    They are ``stored`` at an address, with a row stride. A full tile of at most a vector of columns computes
    no others.
    """
    full, *parts = row_counts(form)
    target, ldc = stored

    def call(rows: int, first: Name, vectors: int = 0) -> None:
        a = code.at("%a", code.mul(first, form.row_step), form.packed)
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

    with code.when(code.compare("eq", "%rows", full)):
        call_full()
    with code.otherwise():
        for rows in parts:
            with code.when(code.compare("ne", code.bits("%rows", rows), 0)):
                call(rows, code.bits("%rows", -2 * rows))
