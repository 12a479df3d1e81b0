"""Strips of several panels of rows that are read where they lie."""

from __future__ import annotations

from kcache_compiler.lower.gemm.in_place.results import ENDS
from kcache_compiler.lower.gemm.in_place.skipped import HALF_WORDS
from kcache_compiler.lower.gemm.in_place.tile import ROWS, emit_tiles, half_of, plain_kinds
from kcache_compiler.lower.gemm.micro_kernel import AHEAD
from kcache_compiler.lower.gemm.strip import bring_near, next_panel, shares
from kcache_compiler.mlir.text_builder import Code
from kcache_compiler.schedule.gemm_tiles import Form

_POINTER = "!llvm.ptr"


def group_strip(form: Form) -> str:
    """As ``strip``, of up to ``form.group_rows`` rows: ``first`` is the address to which the offsets of their
    halves, in a table of ``HALF_WORDS`` each at ``second``, are added.

    All panels of rows are multiplied by a panel of B, then by the next one. Each tile prefetches its share of
    the next panel.
    """
    numbers = [("rows", "i64"), ("columns", "i64"), ("k", "i64")]
    others = [("b", _POINTER), ("c", _POINTER), ("ldc", "i64"), ("load", "i1")]
    following = [("next", _POINTER), ("next_step", "i64")]
    arguments = [*numbers, *plain_kinds(ROWS), *others, *following, *AHEAD, *ENDS]
    code = Code(f"{form.name}_group_strip", arguments)
    half = half_of(form)
    with code.loop(0, "%columns", form.columns) as loop:
        panel = code.at("%b", code.mul(loop.counter, "%k"), form.packed)
        width = code.min(code.sub("%columns", loop.counter), form.columns)
        after = next_panel(code, form, loop.counter, panel, "%columns")
        with code.loop(0, "%rows", form.rows) as row:
            bring_near(code, form, loop.counter, "%next_step", row.counter)
            count = code.min(code.sub("%rows", row.counter), form.rows)
            entry = code.at("%second", code.mul(code.div(row.counter, half), HALF_WORDS), "i64")
            several = code.compare("sgt", count, half)
            other_half = code.at(entry, code.choose(several, code.const(HALF_WORDS), code.const(0)), "i64")
            halves = [code.at("%first", code.load(each), form.packed) for each in (entry, other_half)]
            offset = code.add(code.mul(row.counter, "%ldc"), loop.counter)
            target, other = (code.at(each, offset, form.wide) for each in ("%c", "%other"))
            places = (panel, target, code.at("%bias", loop.counter, form.wide), other)
            ahead = shares(code, form, after, row.counter)[0][0]
            emit_tiles(code, form, (count, halves[0], halves[1]), places, width, ahead)
    return code.text()
