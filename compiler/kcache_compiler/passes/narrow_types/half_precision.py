"""Narrow floats made of f32: f16 and bf16 arithmetic, and conversions that round once.

Every operation on f16 and bf16 is done in f32 and rounded back, which is exact for one operation
(f32 has more than twice their precision). Conversions that would round twice (f64 or wide
integers to a narrow float) go through a value rounded to odd, which keeps the second rounding
right (Boldo and Melquiond, "When double rounding is odd", 2005). Targets without F16C convert f16
with integer operations.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, math
from kcache_compiler.passes.narrow_types.order_sensitive import keep_marked_roundings
from kcache_compiler.types import CompileOptions

Float, Integer = arith.CmpFPredicate, arith.CmpIPredicate
NARROW = ("f16", "bf16")
EMULATE = "func.func(arith-emulate-unsupported-floats{source-types=f16,bf16 target-type=f32})"


def math_on_f32(module: mlir.Module) -> None:
    """Do exact math operations on narrow floats in f32, and rounding half away from zero by truncation."""
    for op in mlir.named(module, *_ON_F32):
        kind = op.results[0].type
        name = mlir.name_of(op)
        if str(kind) not in NARROW and name != "math.round":
            continue
        with mlir.before(op):
            result = _ON_F32[name](*(_wide(operand) for operand in op.operands))
            if str(kind) in NARROW:
                result = arith.truncf(kind, result)
        op.results[0].replace_all_uses_with(result)
        op.erase()


def _wide(operand: mlir.Value) -> mlir.Value:
    return arith.extf(mlir.type_of("f32"), operand) if str(operand.type) in NARROW else operand


def _round(number: mlir.Value) -> mlir.Value:
    """Nearest integer, halves away from zero."""
    kind = number.type
    whole = math.trunc(number)
    rest = math.absf(arith.subf(number, whole))
    half = mlir.float_constant(0.5, kind)
    up = arith.cmpf(Float.OGE, rest, half)
    one = math.copysign(mlir.float_constant(1, kind), number)
    return arith.select(up, arith.addf(whole, one), whole)


_ON_F32: dict[str, Callable[..., mlir.Value]] = {
    "math.absf": math.absf,
    "math.ceil": math.ceil,
    "math.copysign": math.copysign,
    "math.floor": math.floor,
    "math.round": _round,
    "math.roundeven": math.roundeven,
    "math.trunc": math.trunc,
}


def round_once(module: mlir.Module) -> None:
    """Rewrite conversions of f64 and integers to narrow floats, of narrow floats to integers, of bf16 to f64.

    LLVM converts the last one through f32 too. Where the bf16 is defined in another block, it first rounds it
    by a function that no library has (``__truncsfbf2``).
    """
    names = ("extf", "truncf", "sitofp", "uitofp", "fptosi", "fptoui")
    for op in mlir.named(module, *(f"arith.{name}" for name in names)):
        name, source, target = mlir.name_of(op), op.operands[0], op.results[0].type
        to_f64 = name == "arith.extf" and (str(source.type), str(target)) == ("bf16", "f64")
        if to_f64 or (name.startswith("arith.fpto") and str(source.type) in NARROW):
            with mlir.before(op):
                op.operands[0] = arith.extf(mlir.type_of("f32"), source)
            continue
        if name.startswith(("arith.fpto", "arith.extf")):
            continue
        if str(target) not in NARROW or str(source.type) in (*NARROW, "f32"):
            continue
        with mlir.before(op):
            wide = source if name == "arith.truncf" else _exact_f64(name, source)
            narrow = arith.truncf(target, _to_odd(wide))
        op.results[0].replace_all_uses_with(narrow)
        op.erase()


def _exact_f64(name: str, source: mlir.Value) -> mlir.Value:
    """An f64 that rounds to any narrow float as the integer ``source`` does."""
    width = int(str(source.type).removeprefix("i"))
    if width > 53:
        source = _sticky(source, name == "arith.sitofp")
    return (arith.sitofp if name == "arith.sitofp" else arith.uitofp)(mlir.type_of("f64"), source)


def _sticky(source: mlir.Value, signed: bool) -> mlir.Value:
    """A 64-bit integer of at most 53 significant bits: large ones keep the low bits as one sticky bit."""
    kind = source.type
    low = mlir.constant((1 << 12) - 1, str(kind))
    bits = arith.andi(source, low)
    zero = mlir.constant(0, str(kind))
    lost = arith.cmpi(Integer.ne, bits, zero)
    mark = arith.select(lost, mlir.constant(1 << 12, str(kind)), zero)
    high = arith.andi(source, mlir.constant(-(1 << 12), str(kind)))
    marked = arith.ori(high, mark)
    top = (arith.shrsi if signed else arith.shrui)(source, mlir.constant(53, str(kind)))
    moved = arith.addi(top, mlir.constant(1 if signed else 0, str(kind)))
    limit = mlir.constant(1 if signed else 0, str(kind))
    large = arith.cmpi(Integer.ugt, moved, limit)
    return arith.select(large, marked, source)


def _to_odd(wide: mlir.Value) -> mlir.Value:
    """The f64 ``wide`` as f32 rounded to odd: truncated, and the last bit set when inexact."""
    f32, f64, i32 = (mlir.type_of(kind) for kind in ("f32", "f64", "i32"))
    nearest = arith.truncf(f32, wide)
    back = arith.extf(f64, nearest)
    inexact = arith.cmpf(Float.ONE, back, wide)
    bits = arith.bitcast(i32, nearest)
    size = math.absf(back)
    original = math.absf(wide)
    above = arith.cmpf(Float.OGT, size, original)
    one, zero = mlir.constant(1, "i32"), mlir.constant(0, "i32")
    down = arith.select(above, one, zero)
    truncated = arith.subi(bits, down)
    sticky = arith.select(inexact, one, zero)
    return arith.bitcast(f32, arith.ori(truncated, sticky))


def keep_roundings(module: mlir.Module, source: str, options: CompileOptions) -> None:
    """Under strict numerics, round every result to its narrow type, though the next operation widens it.

    The emulation lets such pairs of conversions fall away: values would depend on what shares a loop. Under
    the others those stay of which something of a whole row is subtracted, as a maximum before exponentials.
    """
    if options.numerics != "strict":
        keep_marked_roundings(module, source)
        for generic in mlir.named(module, "linalg.generic"):
            _keep_row_differences(generic)
        return
    for op in mlir.named(module, "arith.extf", "arith.truncf"):
        op.attributes["fastmath"] = mlir.attribute("#arith.fastmath<none>")


def _keep_row_differences(generic: mlir.Op) -> None:
    """A maximum is one of rounded elements: the distance of one that is not may be as large as a rounding."""
    block = mlir.block_of(generic)
    maps = mlir.indexing_maps(generic)
    rows = {
        argument
        for argument, position in zip(block.arguments, maps, strict=True)
        if str(argument.type) in NARROW
        and sum(mlir.plain_dim(axis) is not None for axis in position.results) < position.n_dims
    }
    for op in mlir.operations(block) if rows else []:
        if mlir.name_of(op) != "arith.subf":
            continue
        pair = [mlir.defining(operand) for operand in op.operands]
        widened = [
            operation
            for operation in pair
            if operation is not None and mlir.name_of(operation) == "arith.extf"
        ]
        if len(widened) == 2 and any(operation.operands[0] in rows for operation in widened):
            for extension in widened:
                extension.attributes["fastmath"] = mlir.attribute("#arith.fastmath<none>")


def select_as_integers(module: mlir.Module) -> None:
    """Select between half precision values as integers: a selection needs no arithmetic."""
    for op in mlir.named(module, "arith.select"):
        kind = op.results[0].type
        if str(kind) not in NARROW:
            continue
        with mlir.before(op):
            bits = [_as("i16", operand) for operand in list(op.operands)[1:]]
            chosen = arith.select(op.operands[0], *bits)
            op.results[0].replace_all_uses_with(_as(str(kind), chosen))
        op.erase()


def converts_in_software(target: Target) -> bool:
    """Whether a CPU has no instructions that convert f16."""
    return not target.converts_f16


def convert_half_in_software(module: mlir.Module, target: Target) -> None:
    """Convert f16 by integer operations on targets without conversion instructions."""
    if not converts_in_software(target):
        return
    for op in mlir.named(module, "arith.extf", "arith.truncf"):
        wide, half = op.operands[0], op.results[0]
        extends = mlir.name_of(op) == "arith.extf"
        if str((wide if extends else half).type) != "f16":
            continue
        with mlir.before(op):
            half.replace_all_uses_with(_extend(wide, half.type) if extends else _truncate(wide))
        op.erase()


def _const(number: int) -> mlir.Value:
    return mlir.constant(number, "i32")


def _as(kind: str, operand: mlir.Value) -> mlir.Value:
    return arith.bitcast(mlir.type_of(kind), operand)


def _extend(half: mlir.Value, expected: mlir.Type) -> mlir.Value:
    bits = arith.extui(mlir.type_of("i32"), _as("i16", half))
    shifted = arith.shli(arith.andi(bits, _const(0x7FFF)), _const(13))
    exponent = arith.andi(shifted, _const(0x7C00 << 13))
    normal = arith.addi(shifted, _const(112 << 23))
    special = arith.addi(normal, _const(112 << 23))
    tiny = _as("f32", arith.addi(normal, _const(1 << 23)))
    magic = _as("f32", _const(113 << 23))
    subnormal = _as("i32", arith.subf(tiny, magic))
    finite = arith.select(arith.cmpi(Integer.eq, exponent, _const(0)), subnormal, normal)
    magnitude = arith.select(arith.cmpi(Integer.eq, exponent, _const(0x7C00 << 13)), special, finite)
    sign = arith.shli(arith.andi(bits, _const(0x8000)), _const(16))
    result = _as("f32", arith.ori(magnitude, sign))
    return result if str(expected) == "f32" else arith.extf(expected, result)


def _truncate(single: mlir.Value) -> mlir.Value:
    bits = _as("i32", single)
    sign = arith.andi(arith.shrui(bits, _const(16)), _const(0x8000))
    size = arith.andi(bits, _const(0x7FFFFFFF))
    odd = arith.andi(arith.shrui(size, _const(13)), _const(1))
    rounded = arith.addi(arith.addi(size, _const(0xFFF - (112 << 23))), odd)
    normal = arith.shrui(rounded, _const(13))
    magic = _const(126 << 23)
    total = arith.addf(_as("f32", size), _as("f32", magic))
    subnormal = arith.subi(_as("i32", total), magic)
    finite = arith.select(arith.cmpi(Integer.ult, size, _const(113 << 23)), subnormal, normal)
    nan = arith.cmpi(Integer.ugt, size, _const(0x7F800000))
    special = arith.select(nan, _const(0x7E00), _const(0x7C00))
    magnitude = arith.select(arith.cmpi(Integer.uge, size, _const(143 << 23)), special, finite)
    half = arith.trunci(mlir.type_of("i16"), arith.ori(magnitude, sign))
    return _as("f16", half)
