"""The two products of attention on a panel of rows: scores, and weights times values."""

from __future__ import annotations

from kcache_compiler.lower.attention.blocking import AttentionForm
from kcache_compiler.lower.gemm.micro_kernel import row_counts, tile_name
from kcache_compiler.mlir.text_builder import Code, Name

_POINTER = "!llvm.ptr"


def _tiles(
    code: Code, form: AttentionForm, columns: Name, arguments: tuple[Name, Name, Name, Name, Name, Name]
) -> None:
    """Emit the tiles of a panel's rows; ``arguments`` are ``k, a, b, c, ldc, load`` of the first tile.

    If at most ``form.lanes`` columns remain, tiles of one vector compute them.
    """
    if form.narrow:
        with code.when(code.compare("sle", columns, form.lanes)):
            _tiles_of(code, form, 1, arguments)
        with code.otherwise():
            _tiles_of(code, form, 0, arguments)
    else:
        _tiles_of(code, form, 0, arguments)


def _tiles_of(
    code: Code, form: AttentionForm, vectors: int, arguments: tuple[Name, Name, Name, Name, Name, Name]
) -> None:
    """Emit the tiles of ``vectors`` vectors of columns; 0 stands for ``form.vectors``."""
    k, a, b, c, ldc, load = arguments
    full, *parts = row_counts(form)

    def call(rows: int, first: Name) -> None:
        code.call(
            tile_name(form, rows, vectors=vectors),
            (k, "i64"),
            (code.at(a, code.mul(first, form.row_step), form.wide), _POINTER),
            (b, _POINTER),
            (code.const(form.columns), "i64"),
            (code.at(c, code.mul(first, ldc), form.wide), _POINTER),
            (ldc, "i64"),
            (code.const((vectors or form.vectors) * form.lanes), "i64"),
            (load, "i1"),
        )

    with code.when(code.compare("eq", "%rows", full)):
        call(full, code.const(0))
    with code.otherwise():
        for rows in parts:
            with code.when(code.compare("ne", code.bits("%rows", rows), 0)):
                call(rows, code.bits("%rows", -2 * rows))


def scores(form: AttentionForm) -> str:
    """``(rows, count, depth, a, b, c)``: compute the scores of packed queries and ``count`` packed keys."""
    numbers = [(name, "i64") for name in ("rows", "count", "depth")]
    code = Code(f"{form.name}_scores", [*numbers, *((name, _POINTER) for name in "abc")])
    pieces = code.max(code.ceildiv("%depth", form.steps), 1)
    with code.loop(0, "%count", form.columns) as column, code.loop(0, pieces) as piece:
        start = code.mul(piece.counter, form.steps)
        k = code.min(code.sub("%depth", start), form.steps)
        a = code.at("%a", code.mul(piece.counter, form.rows * form.row_step), form.wide)
        panel = code.mul(column.counter, "%depth")
        b = code.at("%b", code.add(panel, code.mul(start, form.columns)), form.wide)
        c = code.at("%c", column.counter, form.wide)
        load = code.compare("ne", piece.counter, 0)
        left = code.sub("%count", column.counter)
        _tiles(code, form, left, (k, a, b, c, code.const(form.row_step), load))
    return code.text()


def mix(form: AttentionForm) -> str:
    """``(rows, count, columns, ldc, a, b, c)``: add the products of weights and ``count`` packed values."""
    numbers = [(name, "i64") for name in ("rows", "count", "columns", "ldc")]
    code = Code(f"{form.name}_mix", [*numbers, *((name, _POINTER) for name in "abc")])
    with code.loop(0, "%columns", form.columns) as column:
        b = code.at("%b", code.mul(column.counter, form.chunk), form.wide)
        c = code.at("%c", column.counter, form.wide)
        left = code.sub("%columns", column.counter)
        _tiles(code, form, left, ("%count", "%a", b, c, "%ldc", code.const(1, "i1")))
    return code.text()
