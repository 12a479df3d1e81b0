"""Sums that are complete become elements of C, rounded once to its narrower type."""

from __future__ import annotations

from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

_POINTER = "!llvm.ptr"


def finish(form: Form) -> str:
    """``(rows, n, sums, c, ldc)``; ``sums`` has rows of ``form.width``."""
    arguments = [("rows", "i64"), ("n", "i64"), ("sums", _POINTER), ("c", _POINTER), ("ldc", "i64")]
    code = Code(f"{form.name}_finish", arguments)
    whole = code.mul(code.div("%n", form.lanes), form.lanes)
    with code.loop(0, "%rows") as row:
        source = code.at("%sums", code.mul(row.counter, form.width), form.wide)
        target = code.at("%c", code.mul(row.counter, "%ldc"), "i16")
        for low, high, lanes in (("0", whole, form.lanes), (whole, "%n", 0)):
            with code.loop(0 if low == "0" else low, high, lanes or 1) as loop:
                kind = form.vector if lanes else form.wide
                value = code.load(code.at(source, loop.counter, form.wide), kind, BYTES[form.wide])
                narrow = _narrow(code, form, value, lanes)
                kind = f"vector<{lanes}xi16>" if lanes else "i16"
                code.store(narrow, code.at(target, loop.counter, "i16"), kind, BYTES[form.c])
    return code.text()


def _narrow(code: Code, form: Form, value: Name, lanes: int) -> Name:
    """The bits of ``value``, an f32 or a vector of them, rounded to ``form.c``; ties to even."""

    def shaped(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    def const(number: int) -> Name:
        return code.const(f"dense<{number}>" if lanes else number, shaped("i32"))

    if form.c == "f16":
        half = code.op(f"arith.truncf {value} : {shaped('f32')} to {shaped('f16')}")
        return code.op(f"arith.bitcast {half} : {shaped('f16')} to {shaped('i16')}")
    kind = shaped("i32")
    bits = code.op(f"arith.bitcast {value} : {shaped('f32')} to {kind}")
    high = code.op(f"arith.shrui {bits}, {const(16)} : {kind}")
    odd = code.op(f"arith.andi {high}, {const(1)} : {kind}")
    half = code.op(f"arith.addi {odd}, {const(0x7FFF)} : {kind}")
    near = code.op(f"arith.shrui {code.op(f'arith.addi {bits}, {half} : {kind}')}, {const(16)} : {kind}")
    quiet = code.op(f"arith.ori {high}, {const(0x40)} : {kind}")
    unordered = code.op(f"arith.cmpf uno, {value}, {value} : {shaped('f32')}")
    mask = shaped("i1")
    chosen = code.op(
        f"arith.select {unordered}, {quiet}, {near} : {mask}, {kind}"
        if lanes
        else f"arith.select {unordered}, {quiet}, {near} : {kind}"
    )
    return code.op(f"arith.trunci {chosen} : {kind} to {shaped('i16')}")
