"""Packing: copies panels of A and B in the order in which the micro-kernel reads them, and widens them.

Elements are addressed through tables of offsets, one of the rows or columns and one of the steps of K, so
that the same code handles every layout: transposed operands, merged axes, windows of a convolution.
Contiguous runs are copied by vectors, runs along K are transposed in registers.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.micro_kernel import spread
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

POINTER = "!llvm.ptr"
#: Bytes by memory type.
BYTES_OF = {"f64": 8, "f32": 4, "i16": 2}


def consecutive(form: Form) -> str:
    """``(table, count) -> i1``: whether each entry is one more than the previous one."""
    code = Code(f"{form.name}_consecutive", (("table", POINTER), ("count", "i64")), "i1")
    with code.loop(1, "%count", carried=[(code.const(1, "i1"), "i1")]) as loop:
        current = code.load(code.at("%table", loop.counter, "i64"))
        previous = code.load(code.at("%table", code.sub(loop.counter, 1), "i64"))
        step = code.compare("eq", code.sub(current, previous), 1)
        loop.following.append(code.both(loop.carried[0], step))
    return code.text(f"{loop.results[0]} : i1")


def table(form: Form) -> str:
    """``(table, first, count, axes, number, words, column)``: offsets of the points ``first`` and following.

    ``axes`` has ``words`` numbers per axis: its size, and strides, of which that at ``column`` is used.
    """
    arguments = [(name, "i64") for name in ("first", "count")]
    arguments += [("axes", POINTER)] + [(name, "i64") for name in ("number", "words", "column")]
    code = Code(f"{form.name}_table", [("table", POINTER), *arguments])
    single = code.compare("eq", "%number", 1)
    with code.when(single):
        stride = code.load(code.at("%axes", "%column", "i64"))
        with code.loop(0, "%count") as loop:
            offset = code.mul(code.add("%first", loop.counter), stride)
            code.store(offset, code.at("%table", loop.counter, "i64"))
    with code.otherwise(), code.loop(0, "%count") as loop:
        point = code.add("%first", loop.counter)
        with code.loop(0, "%number", carried=[(point, "i64"), (code.const(0), "i64")]) as digits:
            number, offset = digits.carried
            axis = code.sub(code.sub("%number", 1), digits.counter)
            entry = code.at("%axes", code.mul(axis, "%words"), "i64")
            size = code.load(entry)
            stride = code.load(code.at(entry, "%column", "i64"))
            digit = code.rem(number, size)
            digits.following += [code.div(number, size), code.add(offset, code.mul(digit, stride))]
        code.store(digits.results[1], code.at("%table", loop.counter, "i64"))
    return code.text()


def lanes_below(code: Code, form: Form, count: Name) -> Name:
    """A mask of the first ``count`` lanes."""
    kind = f"vector<{form.lanes}xi64>"
    numbers = code.const(f"dense<{list(range(form.lanes))}>", kind)
    return code.op(f"arith.cmpi slt, {numbers}, {spread(code, count, 'i64', form.lanes)} : {kind}")


def load_masked(code: Code, form: Form, memory: str, address: Name, mask: Name) -> Name:
    kind = f"vector<{form.lanes}x{memory}>"
    zeros = code.const("dense<0>" if memory == "i16" else "dense<0.0>", kind)
    return code.op(
        f"llvm.intr.masked.load {address}, {mask}, {zeros} {{alignment = {BYTES_OF[memory]} : i32}} : "
        f"(!llvm.ptr, vector<{form.lanes}xi1>, {kind}) -> {kind}"
    )


def paired(code: Code, low: Name, high: Name, lanes: int) -> Name:
    """Interleave 16-bit elements in pairs, the ``low`` ones first in memory."""
    narrow, wide = (f"vector<{lanes}x{kind}>" if lanes else kind for kind in ("i16", "i32"))
    first, second = (code.op(f"arith.extui {value} : {narrow} to {wide}") for value in (low, high))
    distance = code.const("dense<16>" if lanes else 16, wide)
    moved = code.op(f"arith.shli {second}, {distance} : {wide}")
    return code.op(f"arith.ori {first}, {moved} : {wide}")


def element_at(code: Code, form: Form, kind: str, source: Name, step: Name) -> Name:
    """Packed element ``step`` along K of the row or column at ``source``."""
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
    return paired(code, low, code.choose(alone, code.const(0, "i16"), second, "i16"), 0)


def load_packed(code: Code, form: Form, kind: str, address: Name, lanes: int) -> Name:
    """Load an element of a panel, or a vector of ``lanes``, from ``address``."""

    def shaped(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    if form.pairs:
        return code.load(address, shaped("i32"), BYTES[kind])
    raw = code.load(address, shaped(stored_name(kind)), BYTES[kind])
    return widened(code, form, kind, raw, lanes)


def widened(code: Code, form: Form, kind: str, raw: Name, lanes: int) -> Name:
    """``raw`` of type ``kind``, converted to ``form.wide``."""

    def shaped(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    if kind == form.wide:
        return raw
    wide = shaped(form.wide)
    if kind == "bf16":
        extended = code.op(f"arith.extui {raw} : {shaped('i16')} to {shaped('i32')}")
        distance = code.const("dense<16>" if lanes else 16, shaped("i32"))
        moved = code.op(f"arith.shli {extended}, {distance} : {shaped('i32')}")
        single = code.op(f"arith.bitcast {moved} : {shaped('i32')} to {shaped('f32')}")
        return single if form.wide == "f32" else code.op(f"arith.extf {single} : {shaped('f32')} to {wide}")
    if kind == "f16":
        raw = code.op(f"arith.bitcast {raw} : {shaped('i16')} to {shaped('f16')}")
    return code.op(f"arith.extf {raw} : {shaped(kind)} to {wide}")


def transposed(code: Code, form: Form, rows: list[Name]) -> list[Name]:
    """Transpose a square of as many vectors as each has lanes."""
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


def arguments_of(table: str) -> list[tuple[str, str]]:
    pointers = [(name, POINTER) for name in ("from", table, "steps")]
    return [*pointers, ("k", "i64"), ("count", "i64"), ("run", "i1"), ("to", POINTER)]


def store_packed(code: Code, form: Form, values: Name, address: Name) -> None:
    code.store(values, address, form.packed_vector, BYTES[form.packed])


def neighbours(code: Code, form: Form, kind: str, source: Name, step: Name, mask: Name) -> Name:
    """Packed elements at ``step`` of K of contiguous rows or columns from ``source`` on, under a mask."""
    memory, lanes = stored_name(kind), form.lanes

    def read(number: Name) -> Name:
        place = code.at(source, code.load(code.at("%steps", number, "i64")), memory)
        return load_masked(code, form, memory, place, mask)

    if form.pairs:
        first = code.mul(step, 2)
        return paired(code, read(first), read(code.add(first, 1)), lanes)
    return widened(code, form, kind, read(step), lanes)


def pack_a(form: Form) -> str:
    """``(from, rows' offsets, k offsets, k, rows, k in a run, to)``: rows of A, ``row_step`` apart.

    Contiguous rows are transposed in registers.
    """
    code = Code(f"{form.name}_pack_a", arguments_of("rows"))
    contiguous = code.op(f"llvm.call @{form.name}_consecutive(%rows, %count) : (!llvm.ptr, i64) -> i1")
    groups = code.div("%k", form.group)
    several = code.compare("sgt", "%count", 1)
    transposes = code.both(code.both(contiguous, several), code.compare("sge", groups, form.lanes))
    first_group = code.choose(transposes, groups, code.const(0))
    with code.when(transposes), code.loop(0, "%count", form.lanes) as row:
        source = code.at("%from", code.load(code.at("%rows", row.counter, "i64")), stored_name(form.a))
        target = code.at("%to", code.mul(row.counter, form.row_step), form.packed)
        rows_left = code.sub("%count", row.counter)
        last = code.sub(groups, form.lanes)
        with code.loop(0, groups, form.lanes) as block:
            _turn(code, form, source, target, code.min(block.counter, last), rows_left)
    with code.loop(0, "%count") as row:
        _pack_row(code, form, row.counter, first_group, groups)
    return code.text()


def _pack_row(code: Code, form: Form, row: Name, first_group: Name, groups: Name) -> None:
    """Pack a row of A from ``first_group`` on."""
    memory, lanes, group = stored_name(form.a), form.lanes, form.group
    source = code.at("%from", code.load(code.at("%rows", row, "i64")), memory)
    target = code.at("%to", code.mul(row, form.row_step), form.packed)
    is_unpacked = code.compare("eq", first_group, 0)
    long_enough = code.both(code.both("%run", is_unpacked), code.compare("sge", groups, lanes))
    with code.when(long_enough):
        start = code.at(source, code.load("%steps"), memory)
        last = code.sub(groups, lanes)
        with code.loop(0, code.ceildiv(groups, lanes)) as loop:
            position = code.min(code.mul(loop.counter, lanes), last)
            values = load_packed(code, form, form.a, code.at(start, code.mul(position, group), memory), lanes)
            store_packed(code, form, values, code.at(target, position, form.packed))
    first = code.choose(long_enough, groups, first_group)
    with code.loop(first, code.ceildiv("%k", group)) as loop:
        value = element_at(code, form, form.a, source, loop.counter)
        code.store(value, code.at(target, loop.counter, form.packed), form.packed, BYTES[form.packed])


def _turn(code: Code, form: Form, source: Name, target: Name, start: Name, rows_left: Name) -> None:
    """Transpose vectors of contiguous rows, one per step of K, to rows along K."""
    mask = lanes_below(code, form, rows_left)
    columns = [
        neighbours(code, form, form.a, source, code.add(start, step), mask) for step in range(form.lanes)
    ]
    for row, values in enumerate(transposed(code, form, columns)):
        with code.when(code.compare("sgt", rows_left, row)):
            place = code.at(target, code.add(start, row * form.row_step), form.packed)
            store_packed(code, form, values, place)
