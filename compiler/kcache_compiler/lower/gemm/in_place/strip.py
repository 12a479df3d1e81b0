"""Strips: rows of A that are read unpacked times a block of packed columns of B.

A tile of few rows covers several panels of B, so that it has sums enough to hide the latency of a
multiply-add.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.in_place.results import ENDS
from kcache_compiler.lower.gemm.in_place.tile import ROWS, emit_tiles, plain, plain_kinds, tile, tile_name
from kcache_compiler.lower.gemm.micro_kernel import AHEAD
from kcache_compiler.lower.gemm.strip import prefetch_next_panel
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import Form

_POINTER = "!llvm.ptr"
_RESULT = (("b", _POINTER), ("c", _POINTER), ("ldc", "i64"), ("load", "i1"))
#: Panels of B that a strip computes together.
PANELS = 4


def panel_counts(form: Form) -> dict[int, int]:
    """The panels of a tile of few rows, by its rows: two where 32 registers hold the sums of up to 5 rows.

    Tiles of more rows, and of 3 to 5 where there are 16 registers, have sums enough for a single panel.
    """
    return {1: PANELS, 2: PANELS // 2} | (dict.fromkeys((3, 4, 5), PANELS // 2) if form.masked else {})


def strip(form: Form) -> str:
    """``(rows, columns, k, ROWS, b, c, ldc, load, whole, next, next_step, ahead, stride, ENDS)``: rows of A
    times a block of packed B; prefetches as ``strip.strip``. ``whole``: of A without padding.
    """
    numbers = [("rows", "i64"), ("columns", "i64"), ("k", "i64")]
    others = [("b", _POINTER), ("c", _POINTER), ("ldc", "i64"), ("load", "i1")]
    following = [("whole", "i1"), ("next", _POINTER), ("next_step", "i64")]
    code = Code(f"{form.name}_strip", [*numbers, *plain_kinds(ROWS), *others, *following, *AHEAD, *ENDS])
    wide = wide_columns(code, form, "%rows")
    call_few_rows(code, form, wide, "%rows", plain(ROWS), ("%c", "%other"))
    with code.loop(wide, "%columns", form.columns) as loop:
        panel = code.at("%b", code.mul(loop.counter, "%k"), form.packed)
        target = code.at("%c", loop.counter, form.wide)
        width = code.min(code.sub("%columns", loop.counter), form.columns)
        prefetch_next_panel(code, form, loop.counter, "%next_step")
        steps_before = code.mul(code.div(loop.counter, form.columns), "%k")
        ahead = code.at("%ahead", code.mul(steps_before, "%stride"), "i8")
        bias, other = (code.at(each, loop.counter, form.wide) for each in ("%bias", "%other"))
        places = (panel, target, bias, other)
        emit_tiles(code, form, ("%rows", "%first", "%second"), places, width, ahead)
    return code.text()


def few_rows_parts(form: Form) -> list[str]:
    """The tiles of few rows, and the function that calls them."""
    tiles = [tile(form, rows, panels * form.vectors) for rows, panels in panel_counts(form).items()]
    return [*tiles, _few_rows(form)]


def wide_columns(code: Code, form: Form, rows: Name) -> Name:
    """The number of ``%columns`` that ``FORM_few_rows`` computes: whole panels, none of more rows.

    Parts of panels of a padded image have few rows, too: they prefetch as the rest of the panel does.
    """
    few = code.both("%whole", code.compare("sle", rows, max(panel_counts(form))))
    width = PANELS * form.columns
    return code.choose(few, code.mul(code.div("%columns", width), width), code.const(0))


def call_few_rows(
    code: Code, form: Form, wide: Name, rows: Name, words: list[tuple[Name, str]], places: tuple[Name, Name]
) -> None:
    """Call ``FORM_few_rows`` for the first ``wide`` columns, if any; ``words`` are those of ``ROWS``,
    ``places`` the addresses of C and of what is added to it.
    """
    target, other = places
    with code.when(code.compare("ne", wide, 0)):
        code.call(
            f"{form.name}_few_rows",
            *((rows, "i64"), (wide, "i64"), ("%k", "i64"), *words),
            *(("%b", _POINTER), (target, _POINTER), ("%ldc", "i64"), ("%load", "i1")),
            *(("%ends", "i64"), ("%bias", _POINTER), (other, _POINTER)),
        )


def _few_rows(form: Form) -> str:
    """``(rows, columns, k, ROWS, b, c, ldc, load, ENDS)``: a few rows of A times whole panels of B."""
    numbers = [("rows", "i64"), ("columns", "i64"), ("k", "i64")]
    code = Code(f"{form.name}_few_rows", [*numbers, *plain_kinds(ROWS), *_RESULT, *ENDS])
    distance = code.mul("%k", form.columns)
    for rows, panels in panel_counts(form).items():
        width = panels * form.columns
        with code.when(code.compare("eq", "%rows", rows)), code.loop(0, "%columns", width) as loop:
            panel = code.at("%b", code.mul(loop.counter, "%k"), form.packed)
            place, bias, other = (
                code.at(each, loop.counter, form.wide) for each in ("%c", "%bias", "%other")
            )
            code.call(
                tile_name(form, rows, panels * form.vectors),
                *(*plain(ROWS), (panel, _POINTER), (place, _POINTER)),
                *(("%ldc", "i64"), (code.const(width), "i64"), ("%load", "i1"), (distance, "i64")),
                *(("%ends", "i64"), (bias, _POINTER), (other, _POINTER)),
            )
    return code.text()
