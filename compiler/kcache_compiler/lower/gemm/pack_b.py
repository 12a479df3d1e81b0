"""Packed panels of B: a row of a tile's columns for each step of K."""

from __future__ import annotations

from kcache_compiler.lower.gemm.micro_kernel import spread
from kcache_compiler.lower.gemm.packing import (
    POINTER,
    arguments_of,
    element_at,
    lanes_below,
    load_packed,
    neighbors,
    paired,
    store_packed,
    transposed,
)
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

#: Steps of K that are copied concurrently.
STREAMS = 8
#: Maximum number of runs of contiguous columns in a vector for which they are copied run by run.
FEW_RUNS = 4


def pack_b(form: Form) -> str:
    """``(from, columns' offsets, k offsets, k, columns, k in a run, to)``: one panel of a tile's columns.

    Columns beyond the count become zeros.
    """
    code = Code(f"{form.name}_pack_b", arguments_of("columns"))
    with code.loop(0, form.vectors) as vector:
        first = code.mul(vector.counter, form.lanes)
        columns = code.at("%columns", first, "i64")
        width = code.max(code.min(code.sub("%count", first), form.lanes), 0)
        target = code.at("%to", first, form.packed)
        is_full = code.compare("eq", width, form.lanes)
        contiguous = code.op(
            f"llvm.call @{form.name}_consecutive({columns}, {width}) : (!llvm.ptr, i64) -> i1"
        )
        with code.when(code.both(is_full, contiguous)):
            _copy_rows(code, form, columns, target)
        with code.otherwise():
            _scattered(code, form, columns, width, target)
    return code.text()


def copy_b(form: Form) -> str:
    """``(from, k offsets, k, columns, to)``: whole panels of contiguous columns.

    A few steps of K at a time are copied along all columns: memory is read in few long streams.
    """
    pointers = [("from", POINTER), ("steps", POINTER)]
    code = Code(f"{form.name}_copy_b", [*pointers, ("k", "i64"), ("columns", "i64"), ("to", POINTER)])
    groups = code.div("%k", form.group)
    memory = stored_name(form.b)
    unrolled_groups = code.mul(code.div(groups, STREAMS), STREAMS)

    def rows(first: Name, count: int, last: bool = False) -> None:
        steps = [code.add(code.mul(first, form.group), number) for number in range(count * form.group - last)]
        sources = [code.at("%from", code.load(code.at("%steps", step, "i64")), memory) for step in steps]
        begin = code.at("%to", code.mul(first, form.columns), form.packed)
        with code.loop(0, "%columns", form.columns) as column:
            target = code.at(begin, code.mul(column.counter, form.steps), form.packed)
            for row in range(count):
                for vector in range(form.vectors):
                    start = code.add(column.counter, vector * form.lanes)
                    addresses = [
                        code.at(base, start, memory) for base in sources[row * form.group :][: form.group]
                    ]
                    place = code.at(target, row * form.columns + vector * form.lanes, form.packed)
                    store_packed(code, form, _joined(code, form, addresses), place)

    with code.loop(0, unrolled_groups, STREAMS) as loop:
        rows(loop.counter, STREAMS)
    with code.loop(unrolled_groups, groups) as loop:
        rows(loop.counter, 1)
    if form.pairs:
        with code.when(code.compare("ne", code.rem("%k", 2), 0)):
            rows(groups, 1, last=True)
    return code.text()


def _joined(code: Code, form: Form, places: list[Name]) -> Name:
    """Packed elements of contiguous columns; the second step of K of a pair may be missing."""
    if not form.pairs:
        return load_packed(code, form, form.b, places[0], form.lanes)
    narrow = f"vector<{form.lanes}xi16>"
    loaded = [code.load(place, narrow, 2) for place in places]
    if len(loaded) == 1:
        return code.op(f"arith.extui {loaded[0]} : {narrow} to {form.packed_vector}")
    return paired(code, loaded[0], loaded[1], form.lanes)


def _store_row(code: Code, form: Form, values: Name, target: Name, step: Name) -> None:
    store_packed(code, form, values, code.at(target, code.mul(step, form.columns), form.packed))


def _copy_rows(code: Code, form: Form, columns: Name, target: Name) -> None:
    """Pack contiguous columns: a vector of each step of K, or two interleaved vectors."""
    memory = stored_name(form.b)
    source = code.at("%from", code.load(columns), memory)

    def place(step: Name) -> Name:
        return code.at(source, code.load(code.at("%steps", step, "i64")), memory)

    with code.loop(0, code.div("%k", form.group)) as loop:
        step = code.mul(loop.counter, form.group)
        places = [place(code.add(step, number)) for number in range(form.group)]
        _store_row(code, form, _joined(code, form, places), target, loop.counter)
    if form.pairs:
        with code.when(code.compare("ne", code.rem("%k", 2), 0)):
            values = _joined(code, form, [place(code.sub("%k", 1))])
            _store_row(code, form, values, target, code.div("%k", 2))


def _scattered(code: Code, form: Form, columns: Name, width: Name, target: Name) -> None:
    """Pack other columns: by transposing squares along K, by a few contiguous runs, or element by element."""
    groups = code.div("%k", form.group)
    nonempty = code.compare("ne", width, 0)
    square = code.both(code.both(nonempty, "%run"), code.compare("sge", groups, form.lanes))
    with code.when(square):
        last = code.sub(groups, form.lanes)
        with code.loop(0, groups, form.lanes) as block:
            _transpose(code, form, columns, width, target, code.min(block.counter, last))
    is_packed = square
    if form.quick_masks:
        runs = _count_runs(code, columns, width)
        has_few_runs = code.both(nonempty, code.compare("sle", runs, FEW_RUNS))
        copies_runs = code.both(
            has_few_runs, code.choose(square, code.const(0, "i1"), code.const(1, "i1"), "i1")
        )
        with code.when(copies_runs):
            _copy_runs(code, form, columns, width, target, groups)
        is_packed = code.either(square, copies_runs)
    with code.loop(code.choose(is_packed, groups, code.const(0)), code.ceildiv("%k", form.group)) as loop:
        _gather(code, form, columns, width, target, loop.counter)


def _start(code: Code, columns: Name, lane: Name) -> Name:
    """The offset of lane 0 of the run that contains ``lane``."""
    return code.sub(code.load(code.at(columns, lane, "i64")), lane)


def _begins(code: Code, columns: Name, lane: Name) -> Name:
    """Whether a run begins at ``lane``."""
    previous_start = _start(code, columns, code.max(code.sub(lane, 1), 0))
    return code.either(
        code.compare("eq", lane, 0), code.compare("ne", _start(code, columns, lane), previous_start)
    )


def _count_runs(code: Code, columns: Name, width: Name) -> Name:
    with code.loop(0, width, carried=[(code.const(0), "i64")]) as loop:
        begins = code.choose(_begins(code, columns, loop.counter), code.const(1), code.const(0))
        loop.following.append(code.add(loop.carried[0], begins))
    return loop.results[0]


def _copy_runs(code: Code, form: Form, columns: Name, width: Name, target: Name, groups: Name) -> None:
    """Copy each contiguous run by masked loads of its lanes, merged with the lanes of earlier runs."""
    in_bounds = lanes_below(code, form, width)
    numbers = code.const(f"dense<{list(range(form.lanes))}>", f"vector<{form.lanes}xi64>")
    zero = code.const("dense<0>" if form.pairs else "dense<0.0>", form.packed_vector)
    places = f"vector<{form.lanes}xi64>"
    with code.loop(0, width) as lane, code.when(_begins(code, columns, lane.counter)):
        start = _start(code, columns, lane.counter)
        offsets = code.op(
            f"llvm.intr.masked.load {columns}, {in_bounds}, {code.const('dense<0>', places)} "
            f"{{alignment = 8 : i32}} : (!llvm.ptr, vector<{form.lanes}xi1>, {places}) -> {places}"
        )
        starts = code.op(f"arith.subi {offsets}, {numbers} : {places}")
        in_run = code.op(f"arith.cmpi eq, {starts}, {spread(code, start, 'i64', form.lanes)} : {places}")
        mask = code.op(f"arith.andi {in_run}, {in_bounds} : vector<{form.lanes}xi1>")
        source = code.at("%from", start, stored_name(form.b))
        first = code.compare("eq", lane.counter, 0)
        with code.loop(0, groups) as loop:
            place = code.at(target, code.mul(loop.counter, form.columns), form.packed)
            stored = code.load(place, form.packed_vector, BYTES[form.packed])
            accumulated = code.choose(first, zero, stored, form.packed_vector)
            loaded = neighbors(code, form, form.b, source, loop.counter, mask)
            kinds = f"vector<{form.lanes}xi1>, {form.packed_vector}"
            values = code.op(f"arith.select {mask}, {loaded}, {accumulated} : {kinds}")
            store_packed(code, form, values, place)


def _transpose(code: Code, form: Form, columns: Name, width: Name, target: Name, start: Name) -> None:
    """Transpose a square block: from a vector of steps of K per column to a vector of columns per step.

    Columns beyond the count become zeros.
    """
    zero = code.const("dense<0>" if form.pairs else "dense<0.0>", form.packed_vector)
    memory, lanes = stored_name(form.b), form.lanes
    k_offset = code.load(code.at("%steps", code.mul(start, form.group), "i64"))
    rows: list[Name] = []
    for lane in range(lanes):
        column = code.load(code.at(columns, code.min(code.const(lane), code.sub(width, 1)), "i64"))
        source = code.at("%from", code.add(column, k_offset), memory)
        values = load_packed(code, form, form.b, source, lanes)
        rows.append(code.choose(code.compare("sgt", width, lane), values, zero, form.packed_vector))
    for lane, values in enumerate(transposed(code, form, rows)):
        _store_row(code, form, values, target, code.add(start, lane))


def _gather(code: Code, form: Form, columns: Name, width: Name, target: Name, step: Name) -> None:
    zero = "dense<0>" if form.pairs else "dense<0.0>"
    _store_row(code, form, code.const(zero, form.packed_vector), target, step)
    row = code.at(target, code.mul(step, form.columns), form.packed)
    with code.loop(0, width) as loop:
        column = code.load(code.at(columns, loop.counter, "i64"))
        source = code.at("%from", column, stored_name(form.b))
        value = element_at(code, form, form.b, source, step)
        code.store(value, code.at(row, loop.counter, form.packed), form.packed, BYTES[form.packed])
