"""Scaling and rescaling of packed operands, sums and maxima of attention, and tests for huge elements."""

from __future__ import annotations

from kcache_compiler.lower.attention.blocking import AttentionForm
from kcache_compiler.lower.gemm.micro_kernel import spread
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES

_POINTER = "!llvm.ptr"
#: The bits of 1.0 as f64.
_ONE = 0x3FF << 52


def scale(form: AttentionForm) -> str:
    """``(from, count, bits)``: multiply ``count`` elements, whole vectors, by the f64 of ``bits``."""
    code = Code(f"{form.name}_scale", [("from", _POINTER), ("count", "i64"), ("bits", "i64")])
    one_bits = code.const(_ONE)
    with code.when(code.compare("ne", "%bits", one_bits)):
        factor = spread(code, _number(code, form, "%bits"), form.wide, form.lanes)
        with code.loop(0, "%count", form.lanes) as loop:
            place = code.at("%from", loop.counter, form.wide)
            value = code.load(place, form.vector, BYTES[form.wide])
            code.store(
                code.op(f"llvm.fmul {value}, {factor} : {form.vector}"), place, form.vector, BYTES[form.wide]
            )
    return code.text()


def _number(code: Code, form: AttentionForm, bits: Name) -> Name:
    double = code.op(f"arith.bitcast {bits} : i64 to f64")
    return double if form.wide == "f64" else code.op(f"arith.truncf {double} : f64 to {form.wide}")


def shrink(form: AttentionForm) -> str:
    """``(rows, columns, shrinks, sums)``: multiply each row of the sums by its factor in ``shrinks``."""
    numbers = [("rows", "i64"), ("columns", "i64"), ("shrinks", _POINTER), ("sums", _POINTER)]
    code = Code(f"{form.name}_shrink", numbers)
    with code.loop(0, "%rows") as row:
        number = code.load(code.at("%shrinks", row.counter, form.wide), form.wide, BYTES[form.wide])
        one = code.const("1.0", form.wide)
        with code.when(code.op(f"arith.cmpf une, {number}, {one} : {form.wide}")):
            factor = spread(code, number, form.wide, form.lanes)
            start = code.mul(row.counter, "%columns")
            with code.loop(0, "%columns", form.lanes) as loop:
                place = code.at("%sums", code.add(start, loop.counter), form.wide)
                value = code.load(place, form.vector, BYTES[form.wide])
                product = code.op(f"llvm.fmul {value}, {factor} : {form.vector}")
                code.store(product, place, form.vector, BYTES[form.wide])
    return code.text()


def finite(form: AttentionForm) -> str:
    """``(from, count, columns) -> i1``: whether ``count`` packed values are finite."""
    arguments = [("from", _POINTER), ("count", "i64"), ("columns", "i64")]
    code = Code(f"{form.name}_finite", arguments, "i1")
    zero = code.const("dense<0.0>", form.vector)
    size = code.mul("%count", form.columns)
    with code.loop(0, "%columns", form.columns, [(zero, form.vector)]) as panel:
        start = code.at("%from", code.mul(panel.counter, form.chunk), form.wide)
        with code.loop(0, size, form.lanes, [(panel.carried[0], form.vector)]) as loop:
            value = code.load(code.at(start, loop.counter, form.wide), form.vector, BYTES[form.wide])
            product = code.op(f"llvm.fmul {value}, {zero} : {form.vector}")
            loop.following.append(code.op(f"llvm.fadd {loop.carried[0]}, {product} : {form.vector}"))
        panel.following.append(loop.results[0])
    place = code.stack(form.lanes, form.wide)
    code.store(panel.results[0], place, form.vector, BYTES[form.wide])
    with code.loop(0, form.lanes, 1, [(code.const(1, "i1"), "i1")]) as lane:
        value = code.load(code.at(place, lane.counter, form.wide), form.wide, BYTES[form.wide])
        is_number = code.op(f"arith.cmpf oeq, {value}, {value} : {form.wide}")
        lane.following.append(code.both(lane.carried[0], is_number))
    return code.text(f"{lane.results[0]} : i1")


def tame(form: AttentionForm) -> str:
    """``(from, count) -> i1``: whether ``count`` elements, whole vectors, are below 1e15 in magnitude."""
    code = Code(f"{form.name}_tame", [("from", _POINTER), ("count", "i64")], "i1")
    mask, integers = f"vector<{form.lanes}xi1>", f"i{form.lanes}"
    limit, zero = code.const("dense<1.0e15>", form.vector), code.const(0, integers)
    with code.loop(0, "%count", form.lanes, [(zero, integers)]) as loop:
        value = code.load(code.at("%from", loop.counter, form.wide), form.vector, BYTES[form.wide])
        size = code.op(f"llvm.intr.fabs({value}) : ({form.vector}) -> {form.vector}")
        huge = code.op(f"arith.cmpf uge, {size}, {limit} : {form.vector}")
        huge_bits = code.op(f"llvm.bitcast {huge} : {mask} to {integers}")
        loop.following.append(code.op(f"arith.ori {loop.carried[0]}, {huge_bits} : {integers}"))
    none = code.op(f"arith.cmpi eq, {loop.results[0]}, {zero} : {integers}")
    return code.text(f"{none} : i1")


def settled(form: AttentionForm) -> str:
    """``(rows, tops, limit, vanished) -> i1``: whether a score of ``limit`` has weight 0 in every row."""
    arguments = [("rows", "i64"), ("tops", _POINTER), ("limit", "i64"), ("vanished", "i64")]
    code = Code(f"{form.name}_settled", arguments, "i1")
    limit, vanished = _number(code, form, "%limit"), _number(code, form, "%vanished")
    with code.loop(0, "%rows", 1, [(code.const(1, "i1"), "i1")]) as row:
        top = code.load(code.at("%tops", row.counter, form.wide), form.wide, BYTES[form.wide])
        difference = code.op(f"arith.subf {limit}, {top} : {form.wide}")
        small = code.op(f"arith.cmpf olt, {difference}, {vanished} : {form.wide}")
        row.following.append(code.both(row.carried[0], small))
    return code.text(f"{row.results[0]} : i1")
