"""Packing: panels of A and B in the order in which the micro-kernel reads them, widened on the way.

Elements are found through tables of offsets, one of the rows or columns and one of the steps of K, so that
every layout is the same code: transposed operands, several axes in one, windows of a convolution. Runs of
neighbours are copied by vectors, runs along K are transposed in registers.
"""

from __future__ import annotations

from kcache_compiler.codegen.gemm.code import Code, Name
from kcache_compiler.codegen.gemm.shape import BYTES, Form
from kcache_compiler.codegen.memory import stored_name

_POINTER = "!llvm.ptr"


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
    """``(from, rows' offsets, k offsets, k, rows, k in a run, to)``: rows of A, ``row_step`` apart."""
    code = Code(f"{form.name}_pack_a", _arguments("rows"))
    memory, lanes, group = stored_name(form.a), form.lanes, form.group
    whole = code.div("%k", group)
    with code.loop(0, "%count") as row:
        offset = code.load(code.at("%rows", row.counter, "i64"))
        source = code.at("%from", offset, memory)
        target = code.at("%to", code.mul(row.counter, form.row_step), form.packed)
        long_enough = code.both("%run", code.compare("sge", whole, lanes))
        with code.when(long_enough):
            start = code.at(source, code.load("%steps"), memory)
            last = code.sub(whole, lanes)
            with code.loop(0, code.ceildiv(whole, lanes)) as loop:
                position = code.min(code.mul(loop.counter, lanes), last)
                values = load_packed(
                    code, form, form.a, code.at(start, code.mul(position, group), memory), lanes
                )
                _store(code, form, values, code.at(target, position, form.packed))
        first = code.choose(long_enough, whole, code.const(0))
        with code.loop(first, code.ceildiv("%k", group)) as loop:
            value = _element(code, form, form.a, source, loop.counter)
            code.store(value, code.at(target, loop.counter, form.packed), form.packed, BYTES[form.packed])
    return code.text()


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
    for lane, values in enumerate(rows):
        _store_row(code, form, values, target, code.add(start, lane))


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
