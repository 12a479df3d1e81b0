"""Panels of A: rows along K, ``row_step`` apart."""

from __future__ import annotations

from kcache_compiler.lower.gemm.packing import (
    arguments_of,
    element_at,
    lanes_below,
    load_packed,
    neighbours,
    store_packed,
    transposed,
)
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form


def pack_a(form: Form) -> str:
    """``(from, rows' offsets, k offsets, k, rows, k in a run, to)``: rows of A, ``row_step`` apart.

    Rows that are neighbours are transposed in registers.
    """
    code = Code(f"{form.name}_pack_a", arguments_of("rows"))
    near = code.op(f"llvm.call @{form.name}_consecutive(%rows, %count) : (!llvm.ptr, i64) -> i1")
    whole = code.div("%k", form.group)
    several = code.compare("sgt", "%count", 1)
    turned = code.both(code.both(near, several), code.compare("sge", whole, form.lanes))
    done = code.choose(turned, whole, code.const(0))
    with code.when(turned), code.loop(0, "%count", form.lanes) as row:
        source = code.at("%from", code.load(code.at("%rows", row.counter, "i64")), stored_name(form.a))
        target = code.at("%to", code.mul(row.counter, form.row_step), form.packed)
        there = code.sub("%count", row.counter)
        last = code.sub(whole, form.lanes)
        with code.loop(0, whole, form.lanes) as block:
            _turn(code, form, source, target, code.min(block.counter, last), there)
    with code.loop(0, "%count") as row:
        _pack_row(code, form, row.counter, done, whole)
    return code.text()


def _pack_row(code: Code, form: Form, row: Name, done: Name, whole: Name) -> None:
    """A row of A from step ``done`` on."""
    memory, lanes, group = stored_name(form.a), form.lanes, form.group
    source = code.at("%from", code.load(code.at("%rows", row, "i64")), memory)
    target = code.at("%to", code.mul(row, form.row_step), form.packed)
    begins = code.compare("eq", done, 0)
    long_enough = code.both(code.both("%run", begins), code.compare("sge", whole, lanes))
    with code.when(long_enough):
        start = code.at(source, code.load("%steps"), memory)
        last = code.sub(whole, lanes)
        with code.loop(0, code.ceildiv(whole, lanes)) as loop:
            position = code.min(code.mul(loop.counter, lanes), last)
            values = load_packed(code, form, form.a, code.at(start, code.mul(position, group), memory), lanes)
            store_packed(code, form, values, code.at(target, position, form.packed))
    first = code.choose(long_enough, whole, done)
    with code.loop(first, code.ceildiv("%k", group)) as loop:
        value = element_at(code, form, form.a, source, loop.counter)
        code.store(value, code.at(target, loop.counter, form.packed), form.packed, BYTES[form.packed])


def _turn(code: Code, form: Form, source: Name, target: Name, start: Name, there: Name) -> None:
    """Neighbours in vectors, one for each step of K, become rows along K."""
    mask = lanes_below(code, form, there)
    columns = [
        neighbours(code, form, form.a, source, code.add(start, step), mask) for step in range(form.lanes)
    ]
    for row, values in enumerate(transposed(code, form, columns)):
        with code.when(code.compare("sgt", there, row)):
            place = code.at(target, code.add(start, row * form.row_step), form.packed)
            store_packed(code, form, values, place)
