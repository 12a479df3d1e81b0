"""Panels of B: a row of a tile's columns for each step of K."""

from __future__ import annotations

from kcache_compiler.lower.gemm.micro_kernel import spread
from kcache_compiler.lower.gemm.packing import (
    POINTER,
    arguments_of,
    element_at,
    lanes_below,
    load_packed,
    neighbours,
    paired,
    store_packed,
    transposed,
)
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

#: Steps of K that are copied at a time.
STREAMS = 8
#: Runs of neighbours in a vector of columns up to which they are copied run by run.
FEW_RUNS = 4


def pack_b(form: Form) -> str:
    """``(from, columns' offsets, k offsets, k, columns, k in a run, to)``: one panel of a tile's columns.

    Columns that are not there become zeros.
    """
    code = Code(f"{form.name}_pack_b", arguments_of("columns"))
    with code.loop(0, form.vectors) as vector:
        first = code.mul(vector.counter, form.lanes)
        columns = code.at("%columns", first, "i64")
        there = code.max(code.min(code.sub("%count", first), form.lanes), 0)
        target = code.at("%to", first, form.packed)
        whole = code.compare("eq", there, form.lanes)
        follow = code.op(f"llvm.call @{form.name}_consecutive({columns}, {there}) : (!llvm.ptr, i64) -> i1")
        with code.when(code.both(whole, follow)):
            _copy_rows(code, form, columns, target)
        with code.otherwise():
            _scattered(code, form, columns, there, target)
    return code.text()


def copy_b(form: Form) -> str:
    """``(from, k offsets, k, columns, to)``: whole panels of columns that are neighbours.

    Some steps of K at a time go along all the columns: memory is read in few long streams.
    """
    pointers = [("from", POINTER), ("steps", POINTER)]
    code = Code(f"{form.name}_copy_b", [*pointers, ("k", "i64"), ("columns", "i64"), ("to", POINTER)])
    whole = code.div("%k", form.group)
    memory = stored_name(form.b)
    many = code.mul(code.div(whole, STREAMS), STREAMS)

    def rows(first: Name, count: int, last: bool = False) -> None:
        steps = [code.add(code.mul(first, form.group), number) for number in range(count * form.group - last)]
        sources = [code.at("%from", code.load(code.at("%steps", step, "i64")), memory) for step in steps]
        begin = code.at("%to", code.mul(first, form.columns), form.packed)
        with code.loop(0, "%columns", form.columns) as column:
            target = code.at(begin, code.mul(column.counter, form.steps), form.packed)
            for row in range(count):
                for vector in range(form.vectors):
                    start = code.add(column.counter, vector * form.lanes)
                    here = [code.at(one, start, memory) for one in sources[row * form.group :][: form.group]]
                    place = code.at(target, row * form.columns + vector * form.lanes, form.packed)
                    store_packed(code, form, _joined(code, form, here), place)

    with code.loop(0, many, STREAMS) as loop:
        rows(loop.counter, STREAMS)
    with code.loop(many, whole) as loop:
        rows(loop.counter, 1)
    if form.pairs:
        with code.when(code.compare("ne", code.rem("%k", 2), 0)):
            rows(whole, 1, last=True)
    return code.text()


def _joined(code: Code, form: Form, places: list[Name]) -> Name:
    """Packed elements of neighbours; of pairs the second step of K may be missing."""
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
    """Columns that are neighbours: a vector of each step of K, or two such interleaved."""
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


def _scattered(code: Code, form: Form, columns: Name, there: Name, target: Name) -> None:
    """Columns that are no neighbours: by squares along K, by a few runs of neighbours, or one by one."""
    whole = code.div("%k", form.group)
    some = code.compare("ne", there, 0)
    square = code.both(code.both(some, "%run"), code.compare("sge", whole, form.lanes))
    with code.when(square):
        last = code.sub(whole, form.lanes)
        with code.loop(0, whole, form.lanes) as block:
            _transpose(code, form, columns, there, target, code.min(block.counter, last))
    done = square
    if form.quick_masks:
        runs = _count_runs(code, columns, there)
        few = code.both(some, code.compare("sle", runs, FEW_RUNS))
        parted = code.both(few, code.choose(square, code.const(0, "i1"), code.const(1, "i1"), "i1"))
        with code.when(parted):
            _copy_runs(code, form, columns, there, target, whole)
        done = code.either(square, parted)
    with code.loop(code.choose(done, whole, code.const(0)), code.ceildiv("%k", form.group)) as loop:
        _gather(code, form, columns, there, target, loop.counter)


def _start(code: Code, columns: Name, lane: Name) -> Name:
    """Where the run of ``lane`` would have its first lane."""
    return code.sub(code.load(code.at(columns, lane, "i64")), lane)


def _begins(code: Code, columns: Name, lane: Name) -> Name:
    """Whether a run begins at ``lane``."""
    before = _start(code, columns, code.max(code.sub(lane, 1), 0))
    return code.either(code.compare("eq", lane, 0), code.compare("ne", _start(code, columns, lane), before))


def _count_runs(code: Code, columns: Name, there: Name) -> Name:
    with code.loop(0, there, carried=[(code.const(0), "i64")]) as loop:
        more = code.choose(_begins(code, columns, loop.counter), code.const(1), code.const(0))
        loop.following.append(code.add(loop.carried[0], more))
    return loop.results[0]


def _copy_runs(code: Code, form: Form, columns: Name, there: Name, target: Name, whole: Name) -> None:
    """Each run of neighbours by loads of its lanes alone, added to what is there of the runs before."""
    below = lanes_below(code, form, there)
    numbers = code.const(f"dense<{list(range(form.lanes))}>", f"vector<{form.lanes}xi64>")
    zero = code.const("dense<0>" if form.pairs else "dense<0.0>", form.packed_vector)
    places = f"vector<{form.lanes}xi64>"
    with code.loop(0, there) as lane, code.when(_begins(code, columns, lane.counter)):
        start = _start(code, columns, lane.counter)
        offsets = code.op(
            f"llvm.intr.masked.load {columns}, {below}, {code.const('dense<0>', places)} "
            f"{{alignment = 8 : i32}} : (!llvm.ptr, vector<{form.lanes}xi1>, {places}) -> {places}"
        )
        starts = code.op(f"arith.subi {offsets}, {numbers} : {places}")
        same = code.op(f"arith.cmpi eq, {starts}, {spread(code, start, 'i64', form.lanes)} : {places}")
        mask = code.op(f"arith.andi {same}, {below} : vector<{form.lanes}xi1>")
        source = code.at("%from", start, stored_name(form.b))
        first = code.compare("eq", lane.counter, 0)
        with code.loop(0, whole) as loop:
            place = code.at(target, code.mul(loop.counter, form.columns), form.packed)
            before = code.load(place, form.packed_vector, BYTES[form.packed])
            kept = code.choose(first, zero, before, form.packed_vector)
            found = neighbours(code, form, form.b, source, loop.counter, mask)
            kinds = f"vector<{form.lanes}xi1>, {form.packed_vector}"
            values = code.op(f"arith.select {mask}, {found}, {kept} : {kinds}")
            store_packed(code, form, values, place)


def _transpose(code: Code, form: Form, columns: Name, there: Name, target: Name, start: Name) -> None:
    """A square block: a vector of each column's next steps of K becomes a vector of each step's columns.

    Of those that are not there it becomes zeros.
    """
    zero = code.const("dense<0>" if form.pairs else "dense<0.0>", form.packed_vector)
    memory, lanes = stored_name(form.b), form.lanes
    along = code.load(code.at("%steps", code.mul(start, form.group), "i64"))
    rows: list[Name] = []
    for lane in range(lanes):
        column = code.load(code.at(columns, code.min(code.const(lane), code.sub(there, 1)), "i64"))
        source = code.at("%from", code.add(column, along), memory)
        values = load_packed(code, form, form.b, source, lanes)
        rows.append(code.choose(code.compare("sgt", there, lane), values, zero, form.packed_vector))
    for lane, values in enumerate(transposed(code, form, rows)):
        _store_row(code, form, values, target, code.add(start, lane))


def _gather(code: Code, form: Form, columns: Name, there: Name, target: Name, step: Name) -> None:
    zero = "dense<0>" if form.pairs else "dense<0.0>"
    _store_row(code, form, code.const(zero, form.packed_vector), target, step)
    row = code.at(target, code.mul(step, form.columns), form.packed)
    with code.loop(0, there) as loop:
        column = code.load(code.at(columns, loop.counter, "i64"))
        source = code.at("%from", column, stored_name(form.b))
        value = element_at(code, form, form.b, source, step)
        code.store(value, code.at(row, loop.counter, form.packed), form.packed, BYTES[form.packed])
