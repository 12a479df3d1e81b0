"""Strips of several panels of rows.

A panel of B is multiplied by all of them, one after another, so that it comes from the first-level cache but
for the first time.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.in_place.results import ENDS
from kcache_compiler.lower.gemm.in_place.strip import call_few_rows, wide_columns
from kcache_compiler.lower.gemm.in_place.tile import ROWS, emit_tiles, plain_kinds
from kcache_compiler.lower.gemm.micro_kernel import AHEAD
from kcache_compiler.lower.gemm.strip import next_panel, prefetch_next_panel, shares
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

_POINTER = "!llvm.ptr"
#: The types of the words of a part of a group: the rows of the group before it, its rows, and ``ROWS``.
GROUP_WORDS = ("i64", "i64", *(kind for _, kind in plain_kinds(ROWS)))
#: Steps of K and bytes of a block of B up to which its panels are read for each panel of rows.
MAX_K_STEPS, MAX_B_BYTES = 128, 1 << 16
_RESULT = (("b", _POINTER), ("c", _POINTER), ("ldc", "i64"), ("load", "i1"))


def panel_tiles(form: Form) -> str:
    """``(rows, width, ROWS, b, c, ldc, load, AHEAD, ENDS)``: the tiles of a panel of rows and one of B."""
    numbers = [("rows", "i64"), ("width", "i64")]
    code = Code(f"{form.name}_panel_tiles", [*numbers, *plain_kinds(ROWS), *_RESULT, *AHEAD, *ENDS])
    places = ("%b", "%c", "%bias", "%other")
    emit_tiles(code, form, ("%rows", "%first", "%second"), places, "%width", "%ahead")
    return code.text()


def group_strip(form: Form) -> str:
    """``(parts, count, columns, k, b, c, ldc, load, whole, next, next_step, AHEAD, ENDS)``: as ``strip``,
    of the parts of panels in a table of ``GROUP_WORDS``.

    Each tile prefetches its share of the next panel of B. With few steps of K and a small B, all panels of B
    are multiplied by a panel of rows instead, so that its results are written in order.
    """
    numbers = [("parts", _POINTER), ("count", "i64"), ("columns", "i64"), ("k", "i64")]
    following = [("whole", "i1"), ("next", _POINTER), ("next_step", "i64")]
    code = Code(f"{form.name}_group_strip", [*numbers, *_RESULT, *following, *AHEAD, *ENDS])
    size = code.mul(code.mul("%columns", "%k"), BYTES[form.packed])
    small = code.both(code.compare("sle", "%k", MAX_K_STEPS), code.compare("sle", size, MAX_B_BYTES))
    begin, few, *words = _words(code, "%parts")
    alone = code.compare("eq", "%count", 1)
    wide = code.choose(alone, wide_columns(code, form, few), code.const(0))
    before = code.mul(begin, "%ldc")
    places = (code.at("%c", before, form.wide), code.at("%other", before, form.wide))
    call_few_rows(code, form, wide, few, list(zip(words, GROUP_WORDS[2:], strict=True)), places)
    rows, columns = (0, "%count", 1), (wide, "%columns", form.columns)
    with code.when(small), code.loop(*rows) as part, code.loop(*columns) as column:
        _part(code, form, part.counter, column.counter)
    with code.otherwise(), code.loop(*columns) as column, code.loop(*rows) as part:
        _part(code, form, part.counter, column.counter)
    return code.text()


def _words(code: Code, entry: Name) -> list[Name]:
    """The words of a part."""
    return [code.load(code.at(entry, at, "i64"), kind) for at, kind in enumerate(GROUP_WORDS)]


def _part(code: Code, form: Form, part: Name, column: Name) -> None:
    """Emit the products of a part and the panel of B at ``column``."""
    entry = code.at("%parts", code.mul(part, len(GROUP_WORDS)), "i64")
    begin, rows, *words = _words(code, entry)
    prefetch_next_panel(code, form, column, "%next_step", begin)
    panel = code.at("%b", code.mul(column, "%k"), form.packed)
    width = code.min(code.sub("%columns", column), form.columns)
    after = next_panel(code, form, column, panel, "%columns")
    offset = code.add(code.mul(begin, "%ldc"), column)
    target, other = (code.at(each, offset, form.wide) for each in ("%c", "%other"))
    code.call(
        f"{form.name}_panel_tiles",
        *((rows, "i64"), (width, "i64"), *zip(words, GROUP_WORDS[2:], strict=True)),
        *((panel, _POINTER), (target, _POINTER), ("%ldc", "i64"), ("%load", "i1")),
        *shares(code, form, after, begin),
        *(("%ends", "i64"), (code.at("%bias", column, form.wide), _POINTER), (other, _POINTER)),
    )
