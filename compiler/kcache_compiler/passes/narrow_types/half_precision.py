"""Narrow floats made of f32: f16 and bf16 arithmetic, and conversions that round once.

Every operation on f16 and bf16 is done in f32 and rounded back, which is exact for one operation
(f32 has more than twice their precision). Conversions that would round twice (f64 or wide
integers to a narrow float) go through a value rounded to odd, which keeps the second rounding
right (Boldo and Melquiond, "When double rounding is odd", 2005). Targets without F16C convert f16
with integer operations.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.narrow_types.order_sensitive import keep_marked
from kcache_compiler.passes.stage import Unit

NARROW = ("f16", "bf16")
EMULATE = "func.func(arith-emulate-unsupported-floats{source-types=f16,bf16 target-type=f32})"


_ON_F32 = ("absf", "ceil", "copysign", "floor", "round", "roundeven", "trunc")


def math_on_f32(unit: Unit) -> None:
    """Do exact math operations on narrow floats in f32, and rounding half away from zero by truncation."""
    for op in mlir.named(unit.module, *(f"math.{name}" for name in _ON_F32)):
        kind = op.results[0].type
        name = mlir.name_of(op)
        if str(kind) not in NARROW and name != "math.round":
            continue
        with mlir.before(op):
            operands = [_wide(operand) for operand in op.operands]
            result = (
                _round(operands[0]) if name == "math.round" else mlir.value(name, operands, operands[0].type)
            )
            if str(kind) in NARROW:
                result = mlir.value("arith.truncf", [result], kind)
        op.results[0].replace_all_uses_with(result)
        op.erase()


def _wide(operand: mlir.Value) -> mlir.Value:
    return (
        mlir.value("arith.extf", [operand], mlir.type_of("f32")) if str(operand.type) in NARROW else operand
    )


def _round(number: mlir.Value) -> mlir.Value:
    """Nearest integer, halves away from zero."""
    kind = number.type
    whole = mlir.value("math.trunc", [number], kind)
    rest = mlir.value("math.absf", [mlir.value("arith.subf", [number, whole], kind)], kind)
    half = mlir.float_constant(0.5, kind)
    up = mlir.value("arith.cmpf", [rest, half], mlir.type_of("i1"), predicate=mlir.int_attr(3))
    one = mlir.value("math.copysign", [mlir.float_constant(1, kind), number], kind)
    return mlir.value("arith.select", [up, mlir.value("arith.addf", [whole, one], kind), whole], kind)


def round_once(unit: Unit) -> None:
    """Rewrite conversions from f64 and integers to narrow floats, and from narrow floats to integers."""
    for op in mlir.named(
        unit.module, "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui"
    ):
        name, source, target = mlir.name_of(op), op.operands[0], op.results[0].type
        if name.startswith("arith.fpto"):
            if str(source.type) in NARROW:
                with mlir.before(op):
                    op.operands[0] = mlir.value("arith.extf", [source], mlir.type_of("f32"))
            continue
        if str(target) not in NARROW or str(source.type) in (*NARROW, "f32"):
            continue
        with mlir.before(op):
            wide = source if name == "arith.truncf" else _exact_f64(name, source)
            narrow = mlir.value("arith.truncf", [_to_odd(wide)], target)
        op.results[0].replace_all_uses_with(narrow)
        op.erase()


def _exact_f64(name: str, source: mlir.Value) -> mlir.Value:
    """An f64 that rounds to any narrow float as the integer ``source`` does."""
    width = int(str(source.type).removeprefix("i"))
    if width > 53:
        source = _sticky(source, name == "arith.sitofp")
    return mlir.value(name, [source], mlir.type_of("f64"))


def _sticky(source: mlir.Value, signed: bool) -> mlir.Value:
    """A 64-bit integer of at most 53 significant bits: large ones keep the low bits as one sticky bit."""
    kind = source.type
    low = mlir.constant((1 << 12) - 1, str(kind))
    bits = mlir.value("arith.andi", [source, low], kind)
    zero = mlir.constant(0, str(kind))
    lost = mlir.value("arith.cmpi", [bits, zero], mlir.type_of("i1"), predicate=mlir.int_attr(1))
    mark = mlir.value("arith.select", [lost, mlir.constant(1 << 12, str(kind)), zero], kind)
    high = mlir.value("arith.andi", [source, mlir.constant(-(1 << 12), str(kind))], kind)
    marked = mlir.value("arith.ori", [high, mark], kind)
    top = mlir.value("arith.shrsi" if signed else "arith.shrui", [source, mlir.constant(53, str(kind))], kind)
    moved = mlir.value("arith.addi", [top, mlir.constant(1 if signed else 0, str(kind))], kind)
    limit = mlir.constant(1 if signed else 0, str(kind))
    large = mlir.value("arith.cmpi", [moved, limit], mlir.type_of("i1"), predicate=mlir.int_attr(8))
    return mlir.value("arith.select", [large, marked, source], kind)


def _to_odd(wide: mlir.Value) -> mlir.Value:
    """The f64 ``wide`` as f32 rounded to odd: truncated, and the last bit set when inexact."""
    f32, f64, i32, i1 = (mlir.type_of(kind) for kind in ("f32", "f64", "i32", "i1"))
    nearest = mlir.value("arith.truncf", [wide], f32)
    back = mlir.value("arith.extf", [nearest], f64)
    inexact = mlir.value("arith.cmpf", [back, wide], i1, predicate=mlir.int_attr(6))
    bits = mlir.value("arith.bitcast", [nearest], i32)
    size = mlir.value("math.absf", [back], f64)
    original = mlir.value("math.absf", [wide], f64)
    above = mlir.value("arith.cmpf", [size, original], i1, predicate=mlir.int_attr(2))
    one, zero = mlir.constant(1, "i32"), mlir.constant(0, "i32")
    down = mlir.value("arith.select", [above, one, zero], i32)
    truncated = mlir.value("arith.subi", [bits, down], i32)
    sticky = mlir.value("arith.select", [inexact, one, zero], i32)
    return mlir.value("arith.bitcast", [mlir.value("arith.ori", [truncated, sticky], i32)], f32)


def keep_roundings(unit: Unit) -> None:
    """Under strict numerics, round every result to its narrow type, though the next operation widens it.

    The emulation lets such pairs of conversions fall away: values would depend on what shares a loop. Under
    the others those stay of which something of a whole row is subtracted, as a maximum before exponentials.
    """
    if unit.options.numerics != "strict":
        keep_marked(unit)
        for generic in mlir.named(unit.module, "linalg.generic"):
            _keep_distances(generic)
        return
    for op in mlir.named(unit.module, "arith.extf", "arith.truncf"):
        op.attributes["fastmath"] = mlir.attribute("#arith.fastmath<none>")


def _keep_distances(generic: mlir.Op) -> None:
    """A maximum is one of rounded elements: the distance of one that is not may be as large as a rounding."""
    block = mlir.block_of(generic)
    maps = mlir.indexing_maps(generic)
    rows = {
        argument
        for argument, place in zip(block.arguments, maps, strict=True)
        if str(argument.type) in NARROW
        and sum(mlir.plain_dim(axis) is not None for axis in place.results) < place.n_dims
    }
    for op in mlir.operations(block) if rows else []:
        if mlir.name_of(op) != "arith.subf":
            continue
        pair = [mlir.defining(operand) for operand in op.operands]
        widened = [one for one in pair if one is not None and mlir.name_of(one) == "arith.extf"]
        if len(widened) == 2 and any(one.operands[0] in rows for one in widened):
            for one in widened:
                one.attributes["fastmath"] = mlir.attribute("#arith.fastmath<none>")


def select_as_integers(unit: Unit) -> None:
    """Choose between narrow floats as integers: the selection needs no arithmetic."""
    for op in mlir.named(unit.module, "arith.select"):
        kind = op.results[0].type
        if str(kind) not in NARROW:
            continue
        with mlir.before(op):
            bits = [_as("i16", operand) for operand in list(op.operands)[1:]]
            chosen = mlir.value("arith.select", [op.operands[0], *bits], mlir.type_of("i16"))
            op.results[0].replace_all_uses_with(_as(str(kind), chosen))
        op.erase()


def convert_half_in_software(unit: Unit) -> None:
    """On targets without conversion instructions, make f16 conversions of integer operations."""
    if "f16c" in unit.target.features or unit.target.triple.startswith("aarch64"):
        return
    for op in mlir.named(unit.module, "arith.extf", "arith.truncf"):
        wide, half = op.operands[0], op.results[0]
        extends = mlir.name_of(op) == "arith.extf"
        if str((wide if extends else half).type) != "f16":
            continue
        with mlir.before(op):
            half.replace_all_uses_with(_extend(wide, half.type) if extends else _truncate(wide))
        op.erase()


def _i32(op: str, *operands: mlir.Value) -> mlir.Value:
    return mlir.value(f"arith.{op}", list(operands), mlir.type_of("i32"))


def _const(number: int) -> mlir.Value:
    return mlir.constant(number, "i32")


def _compare(predicate: int, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    return mlir.value("arith.cmpi", [a, b], mlir.type_of("i1"), predicate=mlir.int_attr(predicate))


def _as(kind: str, operand: mlir.Value) -> mlir.Value:
    return mlir.value("arith.bitcast", [operand], mlir.type_of(kind))


def _extend(half: mlir.Value, wanted: mlir.Type) -> mlir.Value:
    bits = mlir.value("arith.extui", [_as("i16", half)], mlir.type_of("i32"))
    shifted = _i32("shli", _i32("andi", bits, _const(0x7FFF)), _const(13))
    exponent = _i32("andi", shifted, _const(0x7C00 << 13))
    normal = _i32("addi", shifted, _const(112 << 23))
    special = _i32("addi", normal, _const(112 << 23))
    tiny = _as("f32", _i32("addi", normal, _const(1 << 23)))
    magic = _as("f32", _const(113 << 23))
    subnormal = _as("i32", mlir.value("arith.subf", [tiny, magic], mlir.type_of("f32")))
    finite = _i32("select", _compare(0, exponent, _const(0)), subnormal, normal)
    magnitude = _i32("select", _compare(0, exponent, _const(0x7C00 << 13)), special, finite)
    sign = _i32("shli", _i32("andi", bits, _const(0x8000)), _const(16))
    result = _as("f32", _i32("ori", magnitude, sign))
    return result if str(wanted) == "f32" else mlir.value("arith.extf", [result], wanted)


def _truncate(single: mlir.Value) -> mlir.Value:
    bits = _as("i32", single)
    sign = _i32("andi", _i32("shrui", bits, _const(16)), _const(0x8000))
    size = _i32("andi", bits, _const(0x7FFFFFFF))
    odd = _i32("andi", _i32("shrui", size, _const(13)), _const(1))
    rounded = _i32("addi", _i32("addi", size, _const(0xFFF - (112 << 23))), odd)
    normal = _i32("shrui", rounded, _const(13))
    magic = _const(126 << 23)
    total = mlir.value("arith.addf", [_as("f32", size), _as("f32", magic)], mlir.type_of("f32"))
    subnormal = _i32("subi", _as("i32", total), magic)
    finite = _i32("select", _compare(6, size, _const(113 << 23)), subnormal, normal)
    nan = _compare(8, size, _const(0x7F800000))
    special = _i32("select", nan, _const(0x7E00), _const(0x7C00))
    magnitude = _i32("select", _compare(9, size, _const(143 << 23)), special, finite)
    half = mlir.value("arith.trunci", [_i32("ori", magnitude, sign)], mlir.type_of("i16"))
    return _as("f16", half)
