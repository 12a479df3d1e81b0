"""Packing: panels of A and B in the order in which the micro-kernel reads them, widened on the way.

Elements are found through tables of offsets, one of the rows or columns and one of the steps of K, so that
every layout is the same code: transposed operands, several axes in one, windows of a convolution. Runs of
neighbours are copied by vectors, runs along K are transposed in registers.
"""

from __future__ import annotations

from kcache_compiler.codegen.gemm.code import Code, Name
from kcache_compiler.codegen.gemm.shape import BYTES, DEPTH, Form
from kcache_compiler.codegen.gemm.tile import spread
from kcache_compiler.codegen.memory import stored_name

_POINTER = "!llvm.ptr"
#: Steps of K that are copied at a time.
STREAMS = 8
#: Bytes of what stands in memory.
BYTES_OF = {"f64": 8, "f32": 4, "i16": 2}


def consecutive(form: Form) -> str:
    """``(table, count) -> i1``: each entry is one more than the entry before."""
    code = Code(f"{form.name}_consecutive", (("table", _POINTER), ("count", "i64")), "i1")
    with code.loop(1, "%count", carried=[(code.const(1, "i1"), "i1")]) as loop:
        here = code.load(code.at("%table", loop.counter, "i64"))
        before = code.load(code.at("%table", code.sub(loop.counter, 1), "i64"))
        step = code.compare("eq", code.sub(here, before), 1)
        loop.following.append(code.both(loop.carried[0], step))
    return code.text(f"{loop.results[0]} : i1")


def table(form: Form) -> str:
    """``(table, first, count, axes, number, words, column)``: offsets of the points ``first`` and following.

    ``axes`` has for each axis ``words`` numbers: its size, and strides of which ``column`` is taken.
    """
    arguments = [(name, "i64") for name in ("first", "count")]
    arguments += [("axes", _POINTER)] + [(name, "i64") for name in ("number", "words", "column")]
    code = Code(f"{form.name}_table", [("table", _POINTER), *arguments])
    single = code.compare("eq", "%number", 1)
    with code.when(single):
        stride = code.load(code.at("%axes", "%column", "i64"))
        with code.loop(0, "%count") as loop:
            offset = code.mul(code.add("%first", loop.counter), stride)
            code.store(offset, code.at("%table", loop.counter, "i64"))
    with code.otherwise(), code.loop(0, "%count") as loop:
        point = code.add("%first", loop.counter)
        with code.loop(0, "%number", carried=[(point, "i64"), (code.const(0), "i64")]) as digits:
            rest, offset = digits.carried
            axis = code.sub(code.sub("%number", 1), digits.counter)
            entry = code.at("%axes", code.mul(axis, "%words"), "i64")
            size = code.load(entry)
            stride = code.load(code.at(entry, "%column", "i64"))
            digit = code.rem(rest, size)
            digits.following += [code.div(rest, size), code.add(offset, code.mul(digit, stride))]
        code.store(digits.results[1], code.at("%table", loop.counter, "i64"))
    return code.text()


def pack_a(form: Form) -> str:
    """``(from, rows' offsets, k offsets, k, rows, k in a run, to)``: rows of A, ``row_step`` apart.

    Rows that are neighbours are transposed in registers; up to a multiple of the lanes of rows is written.
    """
    code = Code(f"{form.name}_pack_a", _arguments("rows"))
    near = code.op(f"llvm.call @{form.name}_consecutive(%rows, %count) : (!llvm.ptr, i64) -> i1")
    whole = code.div("%k", form.group)
    blocks = code.div(whole, form.lanes)
    several = code.compare("sgt", "%count", 1)
    turned = code.both(code.both(near, several), code.compare("ne", blocks, 0))
    done = code.mul(code.choose(turned, blocks, code.const(0)), form.lanes)
    with code.when(turned), code.loop(0, "%count", form.lanes) as row:
        source = code.at("%from", code.load(code.at("%rows", row.counter, "i64")), stored_name(form.a))
        target = code.at("%to", code.mul(row.counter, form.row_step), form.packed)
        mask = lanes_below(code, form, code.sub("%count", row.counter))
        with code.loop(0, blocks) as block:
            _turn(code, form, source, target, code.mul(block.counter, form.lanes), mask)
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
            _store(code, form, values, code.at(target, position, form.packed))
    first = code.choose(long_enough, whole, done)
    with code.loop(first, code.ceildiv("%k", group)) as loop:
        value = _element(code, form, form.a, source, loop.counter)
        code.store(value, code.at(target, loop.counter, form.packed), form.packed, BYTES[form.packed])


def lanes_below(code: Code, form: Form, count: Name) -> Name:
    """A mask of the first ``count`` lanes."""
    kind = f"vector<{form.lanes}xi64>"
    numbers = code.const(f"dense<{list(range(form.lanes))}>", kind)
    return code.op(f"arith.cmpi slt, {numbers}, {spread(code, count, 'i64', form.lanes)} : {kind}")


def _turn(code: Code, form: Form, source: Name, target: Name, start: Name, mask: Name) -> None:
    """Neighbours in vectors, one for each step of K, become rows along K."""
    columns = [
        _neighbours(code, form, form.a, source, code.add(start, step), mask) for step in range(form.lanes)
    ]
    for row, values in enumerate(transposed(code, form, columns)):
        place = code.at(target, code.add(start, row * form.row_step), form.packed)
        _store(code, form, values, place)


def _neighbours(code: Code, form: Form, kind: str, source: Name, step: Name, mask: Name) -> Name:
    """Packed elements of step ``step`` of K of neighbours from ``source`` on, those of a mask."""
    memory, lanes = stored_name(kind), form.lanes

    def read(number: Name) -> Name:
        place = code.at(source, code.load(code.at("%steps", number, "i64")), memory)
        return load_masked(code, form, memory, place, mask)

    if form.pairs:
        first = code.mul(step, 2)
        return _paired(code, read(first), read(code.add(first, 1)), lanes)
    return widened(code, form, kind, read(step), lanes)


def load_masked(code: Code, form: Form, memory: str, address: Name, mask: Name) -> Name:
    kind = f"vector<{form.lanes}x{memory}>"
    nothing = code.const("dense<0>" if memory == "i16" else "dense<0.0>", kind)
    return code.op(
        f"llvm.intr.masked.load {address}, {mask}, {nothing} {{alignment = {BYTES_OF[memory]} : i32}} : "
        f"(!llvm.ptr, vector<{form.lanes}xi1>, {kind}) -> {kind}"
    )


def copy_b(form: Form) -> str:
    """``(from, k offsets, k, columns, to)``: whole panels of columns that are neighbours.

    Some steps of K at a time go along all the columns: memory is read in few long streams.
    """
    pointers = [("from", _POINTER), ("steps", _POINTER)]
    code = Code(f"{form.name}_copy_b", [*pointers, ("k", "i64"), ("columns", "i64"), ("to", _POINTER)])
    whole = code.div("%k", form.group)
    memory = stored_name(form.b)
    many = code.mul(code.div(whole, STREAMS), STREAMS)

    def rows(first: Name, count: int, last: bool = False) -> None:
        steps = [code.add(code.mul(first, form.group), number) for number in range(count * form.group - last)]
        sources = [code.at("%from", code.load(code.at("%steps", step, "i64")), memory) for step in steps]
        begin = code.at("%to", code.mul(first, form.columns), form.packed)
        with code.loop(0, "%columns", form.columns) as column:
            target = code.at(begin, code.mul(column.counter, DEPTH), form.packed)
            for row in range(count):
                for vector in range(form.vectors):
                    start = code.add(column.counter, vector * form.lanes)
                    here = [code.at(one, start, memory) for one in sources[row * form.group :][: form.group]]
                    place = code.at(target, row * form.columns + vector * form.lanes, form.packed)
                    _store(code, form, _joined(code, form, here), place)

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
    return _paired(code, loaded[0], loaded[1], form.lanes)


def pack_b(form: Form) -> str:
    """``(from, columns' offsets, k offsets, k, columns, k in a run, to)``: one panel of a tile's columns.

    Columns that are not there become zeros.
    """
    code = Code(f"{form.name}_pack_b", _arguments("columns"))
    steps = code.ceildiv("%k", form.group)
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
            square = code.both(whole, "%run")
            blocks = code.choose(square, code.div("%k", form.lanes * form.group), code.const(0))
            with code.loop(0, blocks) as block:
                _transpose(code, form, columns, target, code.mul(block.counter, form.lanes))
            with code.loop(code.mul(blocks, form.lanes), steps) as loop:
                _gather(code, form, columns, there, target, loop.counter)
    return code.text()


def _arguments(table: str) -> list[tuple[str, str]]:
    pointers = [(name, _POINTER) for name in ("from", table, "steps")]
    return [*pointers, ("k", "i64"), ("count", "i64"), ("run", "i1"), ("to", _POINTER)]


def _store(code: Code, form: Form, values: Name, address: Name) -> None:
    code.store(values, address, form.packed_vector, BYTES[form.packed])


def _store_row(code: Code, form: Form, values: Name, target: Name, step: Name) -> None:
    _store(code, form, values, code.at(target, code.mul(step, form.columns), form.packed))


def _copy_rows(code: Code, form: Form, columns: Name, target: Name) -> None:
    """Columns that are neighbours: a vector of each step of K, or two such interleaved."""
    memory = stored_name(form.b)
    source = code.at("%from", code.load(columns), memory)

    def row(step: Name) -> Name:
        offset = code.load(code.at("%steps", step, "i64"))
        return code.at(source, offset, memory)

    if not form.pairs:
        with code.loop(0, "%k") as loop:
            values = load_packed(code, form, form.b, row(loop.counter), form.lanes)
            _store_row(code, form, values, target, loop.counter)
        return
    narrow = f"vector<{form.lanes}xi16>"
    with code.loop(0, code.div("%k", 2)) as loop:
        step = code.mul(loop.counter, 2)
        low, high = (code.load(row(one), narrow, 2) for one in (step, code.add(step, 1)))
        _store_row(code, form, _paired(code, low, high, form.lanes), target, loop.counter)
    with code.when(code.compare("ne", code.rem("%k", 2), 0)):
        low = code.load(row(code.sub("%k", 1)), narrow, 2)
        value = code.op(f"arith.extui {low} : {narrow} to {form.packed_vector}")
        _store_row(code, form, value, target, code.div("%k", 2))


def _paired(code: Code, low: Name, high: Name, lanes: int) -> Name:
    """Elements of 16 bits two by two, the ``low`` ones first in memory."""
    narrow, wide = (f"vector<{lanes}x{kind}>" if lanes else kind for kind in ("i16", "i32"))
    first, second = (code.op(f"arith.extui {value} : {narrow} to {wide}") for value in (low, high))
    distance = code.const("dense<16>" if lanes else 16, wide)
    moved = code.op(f"arith.shli {second}, {distance} : {wide}")
    return code.op(f"arith.ori {first}, {moved} : {wide}")


def _transpose(code: Code, form: Form, columns: Name, target: Name, start: Name) -> None:
    """A square block: a vector of each column's next steps of K becomes a vector of each step's columns."""
    memory, lanes = stored_name(form.b), form.lanes
    along = code.load(code.at("%steps", code.mul(start, form.group), "i64"))
    rows: list[Name] = []
    for lane in range(lanes):
        column = code.load(code.at(columns, lane, "i64"))
        source = code.at("%from", code.add(column, along), memory)
        rows.append(load_packed(code, form, form.b, source, lanes))
    for lane, values in enumerate(transposed(code, form, rows)):
        _store_row(code, form, values, target, code.add(start, lane))


def transposed(code: Code, form: Form, rows: list[Name]) -> list[Name]:
    """As many vectors as each has lanes."""
    lanes, rows = form.lanes, list(rows)
    stride = 1
    while stride < lanes:
        for number in range(lanes):
            if number & stride:
                continue
            upper, lower = rows[number], rows[number | stride]
            first = [lane if not lane & stride else lanes + lane - stride for lane in range(lanes)]
            second = [lane + stride if not lane & stride else lanes + lane for lane in range(lanes)]
            rows[number], rows[number | stride] = (
                code.op(f"llvm.shufflevector {upper}, {lower} {order} : {form.packed_vector}")
                for order in (first, second)
            )
        stride *= 2
    return rows


def _gather(code: Code, form: Form, columns: Name, there: Name, target: Name, step: Name) -> None:
    zero = "dense<0>" if form.pairs else "dense<0.0>"
    _store_row(code, form, code.const(zero, form.packed_vector), target, step)
    row = code.at(target, code.mul(step, form.columns), form.packed)
    with code.loop(0, there) as loop:
        column = code.load(code.at(columns, loop.counter, "i64"))
        source = code.at("%from", column, stored_name(form.b))
        value = _element(code, form, form.b, source, step)
        code.store(value, code.at(row, loop.counter, form.packed), form.packed, BYTES[form.packed])


def _element(code: Code, form: Form, kind: str, source: Name, step: Name) -> Name:
    """Packed element ``step`` along K of what begins at ``source``."""
    memory = stored_name(kind)

    def address(number: Name) -> Name:
        return code.at(source, code.load(code.at("%steps", number, "i64")), memory)

    if not form.pairs:
        return load_packed(code, form, kind, address(step), 0)
    first = code.mul(step, 2)
    last = code.sub("%k", 1)
    low = code.load(address(first), "i16", 2)
    second = code.load(address(code.min(code.add(first, 1), last)), "i16", 2)
    alone = code.compare("eq", first, last)
    return _paired(code, low, code.choose(alone, code.const(0, "i16"), second, "i16"), 0)


def load_packed(code: Code, form: Form, kind: str, address: Name, lanes: int) -> Name:
    """What lies at ``address`` as an element of a panel, or as ``lanes`` of them."""

    def shaped(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    if form.pairs:
        return code.load(address, shaped("i32"), BYTES[kind])
    raw = code.load(address, shaped(stored_name(kind)), BYTES[kind])
    return widened(code, form, kind, raw, lanes)


def widened(code: Code, form: Form, kind: str, raw: Name, lanes: int) -> Name:
    """What was loaded of ``kind`` as ``wide``."""

    def shaped(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    if kind == form.wide:
        return raw
    wide = shaped(form.wide)
    if kind == "bf16":
        whole = code.op(f"arith.extui {raw} : {shaped('i16')} to {shaped('i32')}")
        distance = code.const("dense<16>" if lanes else 16, shaped("i32"))
        moved = code.op(f"arith.shli {whole}, {distance} : {shaped('i32')}")
        single = code.op(f"arith.bitcast {moved} : {shaped('i32')} to {shaped('f32')}")
        return single if form.wide == "f32" else code.op(f"arith.extf {single} : {shaped('f32')} to {wide}")
    if kind == "f16":
        raw = code.op(f"arith.bitcast {raw} : {shaped('i16')} to {shaped('f16')}")
    return code.op(f"arith.extf {raw} : {shaped(kind)} to {wide}")
