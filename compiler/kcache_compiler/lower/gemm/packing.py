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
#: Minimum length of runs along K, on average, for which a row of A is packed run by run.
SHORT_RUN = 4
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

    ``axes`` has ``words`` numbers per axis: its size, and strides, of which that at ``column`` is used. The
    points of a run along the innermost axis are one stride apart.
    """
    arguments = [(name, "i64") for name in ("first", "count")]
    arguments += [("axes", POINTER)] + [(name, "i64") for name in ("number", "words", "column")]
    code = Code(f"{form.name}_table", [("table", POINTER), *arguments])
    outer = code.sub("%number", 1)
    innermost = code.at("%axes", code.mul(code.max(outer, 0), "%words"), "i64")
    is_single = code.compare("sle", "%number", 1)
    with code.when(is_single):
        stride = code.load(code.at("%axes", "%column", "i64"))
        with code.loop(0, "%count") as loop:
            offset = code.mul(code.add("%first", loop.counter), stride)
            code.store(offset, code.at("%table", loop.counter, "i64"))
    with code.otherwise():
        size = code.max(code.load(innermost), 1)  # there may be no point
        stride = code.load(code.at(innermost, "%column", "i64"))
        row, digit = code.div("%first", size), code.rem("%first", size)
        with code.loop(0, code.ceildiv(code.add(digit, "%count"), size)) as run:
            base = _outer_offset(code, code.add(row, run.counter), outer)
            before = code.sub(code.mul(run.counter, size), digit)
            last = code.min(code.add(before, size), "%count")
            with code.loop(code.max(before, 0), last) as loop:
                place = code.mul(code.sub(loop.counter, before), stride)
                code.store(code.add(base, place), code.at("%table", loop.counter, "i64"))
    return code.text()


def _outer_offset(code: Code, point: Name, axes: Name) -> Name:
    """The offset of ``point`` of the first ``axes`` axes of a ``table``."""
    with code.loop(0, axes, carried=[(point, "i64"), (code.const(0), "i64")]) as digits:
        number, offset = digits.carried
        axis = code.sub(code.sub(axes, 1), digits.counter)
        entry = code.at("%axes", code.mul(axis, "%words"), "i64")
        size = code.load(entry)
        stride = code.load(code.at(entry, "%column", "i64"))
        digit = code.rem(number, size)
        digits.following += [code.div(number, size), code.add(offset, code.mul(digit, stride))]
    return digits.results[1]


def runs(form: Form) -> str:
    """``(steps, k, runs) -> i64``: the runs of K along which elements of A are contiguous.

    Stores the first packed element of each run, then the end, and returns the number of runs; 0 if runs are
    short, or separate the elements of a pair: then elements are packed one by one.
    """
    code = Code(f"{form.name}_runs", [("steps", POINTER), ("k", "i64"), ("runs", POINTER)], "i64")
    groups = code.div("%k", form.group)

    def step(number: Name) -> Name:
        return code.load(code.at("%steps", number, "i64"))

    carried = [(code.const(0), "i64"), (code.const(1, "i1"), "i1")]
    with code.loop(0, code.mul(groups, form.group), carried=carried) as loop:
        count, whole = loop.carried
        previous = step(code.max(code.sub(loop.counter, 1), 0))
        follows = code.compare("eq", code.sub(step(loop.counter), previous), 1)
        first = code.compare("eq", loop.counter, 0)
        begins = code.either(first, code.op(f"arith.xori {follows}, {code.const(1, 'i1')} : i1"))
        with code.when(begins):
            code.store(code.div(loop.counter, form.group), code.at("%runs", count, "i64"))
        aligned = code.compare("eq", code.rem(loop.counter, form.group), 0)
        loop.following.append(code.choose(begins, code.add(count, 1), count))
        loop.following.append(code.both(whole, code.choose(begins, aligned, code.const(1, "i1"), "i1")))
    count, whole = loop.results
    code.store(groups, code.at("%runs", count, "i64"))
    suitable = code.both(whole, code.compare("sge", groups, code.mul(count, SHORT_RUN)))
    return code.text(f"{code.choose(suitable, count, code.const(0))} : i64")


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
    runs = [("runs", POINTER), ("n_runs", "i64")] if table == "rows" else [("run", "i1")]
    return [*pointers, ("k", "i64"), ("count", "i64"), *runs, ("to", POINTER)]


def store_packed(code: Code, form: Form, values: Name, address: Name) -> None:
    code.store(values, address, form.packed_vector, BYTES[form.packed])


def neighbors(code: Code, form: Form, kind: str, source: Name, step: Name, mask: Name) -> Name:
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
    """``(from, rows, k offsets, k, count of rows, runs of k, their number, to)``: packs rows of A.

    Contiguous rows are transposed in registers.
    """
    code = Code(f"{form.name}_pack_a", arguments_of("rows"))
    groups = code.div("%k", form.group)
    last = code.load(code.at("%rows", code.sub("%count", 1), "i64"))
    dense = code.compare("eq", code.sub(last, code.load("%rows")), code.sub("%count", 1))
    several = code.both(dense, code.compare("sgt", "%count", 1))
    possible = code.both(several, code.compare("sge", groups, form.lanes))
    checked = code.choose(possible, "%count", code.const(0))
    contiguous = code.op(f"llvm.call @{form.name}_consecutive(%rows, {checked}) : (!llvm.ptr, i64) -> i1")
    transposes = code.both(contiguous, possible)
    with code.when(transposes), code.loop(0, "%count", form.lanes) as row:
        source = code.at("%from", code.load(code.at("%rows", row.counter, "i64")), stored_name(form.a))
        target = code.at("%to", code.mul(row.counter, form.row_step), form.packed)
        rows_left = code.sub("%count", row.counter)
        last = code.sub(groups, form.lanes)
        with code.loop(0, groups, form.lanes) as block:
            _turn(code, form, source, target, code.min(block.counter, last), rows_left)
    in_runs = code.choose(transposes, code.const(0), "%n_runs")
    packed = code.either(transposes, code.compare("ne", in_runs, 0))
    first_group = code.choose(packed, groups, code.const(0))
    with code.loop(0, "%count") as row:
        _pack_row(code, form, row.counter, in_runs, first_group)
    return code.text()


def _pack_row(code: Code, form: Form, row: Name, in_runs: Name, first_group: Name) -> None:
    """Pack ``in_runs`` runs of a row of A, then its elements from ``first_group`` on."""
    memory = stored_name(form.a)
    source = code.at("%from", code.load(code.at("%rows", row, "i64")), memory)
    target = code.at("%to", code.mul(row, form.row_step), form.packed)
    with code.loop(0, in_runs) as run:
        entry = code.at("%runs", run.counter, "i64")
        start, end = code.load(entry), code.load(code.at(entry, 1, "i64"))
        offset = code.load(code.at("%steps", code.mul(start, form.group), "i64"))
        place = code.at(target, start, form.packed)
        _copy_run(code, form, code.at(source, offset, memory), place, code.sub(end, start))
    with code.loop(first_group, code.ceildiv("%k", form.group)) as loop:
        value = element_at(code, form, form.a, source, loop.counter)
        code.store(value, code.at(target, loop.counter, form.packed), form.packed, BYTES[form.packed])


def _copy_run(code: Code, form: Form, source: Name, target: Name, groups: Name) -> None:
    """Pack contiguous elements: in vectors, the last of which may overlap the one before, or one by one."""
    lanes, memory = form.lanes, stored_name(form.a)

    def copy(position: Name, count: int) -> None:
        place = code.at(source, code.mul(position, form.group), memory)
        values = load_packed(code, form, form.a, place, count)
        kind = form.packed_vector if count else form.packed
        code.store(values, code.at(target, position, form.packed), kind, BYTES[form.packed])

    fills_vector = code.compare("sge", groups, lanes)
    with code.when(fills_vector):
        last = code.sub(groups, lanes)
        with code.loop(0, groups, lanes) as loop:
            copy(code.min(loop.counter, last), lanes)
    with code.otherwise():
        if form.masked and not form.pairs:
            values = load_masked(code, form, memory, source, lanes_below(code, form, groups))
            store_packed(code, form, widened(code, form, form.a, values, lanes), target)
        else:
            with code.loop(0, groups) as loop:
                copy(loop.counter, 0)


def _turn(code: Code, form: Form, source: Name, target: Name, start: Name, rows_left: Name) -> None:
    """Transpose vectors of contiguous rows, one per step of K, to rows along K."""
    mask = lanes_below(code, form, rows_left)
    columns = [
        neighbors(code, form, form.a, source, code.add(start, step), mask) for step in range(form.lanes)
    ]
    for row, values in enumerate(transposed(code, form, columns)):
        with code.when(code.compare("sgt", rows_left, row)):
            place = code.at(target, code.add(start, row * form.row_step), form.packed)
            store_packed(code, form, values, place)
