"""Operations whose lowering by the toolchain gives other values than StableHLO: rewritten first."""

from __future__ import annotations

import re

from kcache_compiler.errors import LimitExceeded, UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.legalize.elementwise import (
    cast,
    element,
    elementwise,
    empty_like,
    rewrite_elementwise,
    signless_tensor,
)
from kcache_compiler.passes.legalize.semantics.arithmetic import (
    guard_divisions,
    integer_power,
    larger_or_smaller,
    saturate_scalar,
)
from kcache_compiler.passes.legalize.semantics.clamp_indices import clamp_indices
from kcache_compiler.passes.legalize.semantics.dilated_convolution import lower_dilated
from kcache_compiler.passes.legalize.semantics.empty_reductions import (
    lower_unreduced,
    lower_windows_of_padding,
)
from kcache_compiler.passes.legalize.semantics.equivalent_operations import state_padding, state_product
from kcache_compiler.passes.legalize.semantics.gather import lower_batched, lower_unmoved
from kcache_compiler.passes.stage import Sizes

#: Bytes of a constant with different elements; canonicalization lifts smaller ones already.
CONSTANT_LIMIT = 64 * 1024
_FLOATS = ("f16", "bf16", "f32", "f64")
_INFINITY = {"f16": "0x7C00", "bf16": "0x7F80", "f32": "0x7F800000", "f64": "0x7FF0000000000000"}
_SIGNED_ORDER = {
    "EQ": arith.CmpIPredicate.eq,
    "NE": arith.CmpIPredicate.ne,
    "LT": arith.CmpIPredicate.slt,
    "LE": arith.CmpIPredicate.sle,
    "GT": arith.CmpIPredicate.sgt,
    "GE": arith.CmpIPredicate.sge,
}


def preserve_semantics(module: mlir.Module, source: str, argument_sizes: Sizes) -> None:
    """Rewrite, in place, the operations of this file's table."""
    table = {
        "stablehlo.add": _add_booleans,
        "stablehlo.bitcast_convert": _bitcast_complex,
        "stablehlo.compare": _compare_total,
        "stablehlo.constant": _constant,
        "stablehlo.convert": _convert_to_integer,
        "stablehlo.convolution": _convolution,
        "stablehlo.dot_general": _product,
        "stablehlo.dynamic_slice": _slice,
        "stablehlo.dynamic_update_slice": _update,
        "stablehlo.gather": _gather,
        "stablehlo.maximum": larger_or_smaller,
        "stablehlo.minimum": larger_or_smaller,
        "stablehlo.pad": _pad_nothing,
        "stablehlo.power": integer_power,
        "stablehlo.reduce": _reduce,
        "stablehlo.reduce_precision": _precision,
        "stablehlo.reduce_window": _windows_of_nothing,
        "stablehlo.reshape": _reshape_to_itself,
        "stablehlo.set_dimension_size": _reject_dynamic_size,
    }
    mlir.on_each(module, {"stablehlo.dynamic_conv": state_padding, "stablehlo.einsum": state_product})
    _remove_empty_operations(module)
    mlir.on_each(module, table)
    guard_divisions(module)
    clamp_indices(module, source, argument_sizes)


def _remove_empty_operations(module: mlir.Module) -> None:
    """Take tensors without elements from nowhere: the toolchain's slices of them may begin behind the end."""
    empty: dict[mlir.Type, bool] = {}
    for op in mlir.walk(module):
        name = mlir.name_of(op)
        if not name.startswith("stablehlo.") or name == "stablehlo.custom_call" or len(op.results) != 1:
            continue
        kind = op.results[0].type
        if kind not in empty:
            sizes = mlir.sizes_of(kind) if mlir.is_tensor(kind) else []
            empty[kind] = None not in sizes and 0 in sizes
        if empty[kind] and not mlir.blocks_of(op):
            _take_nothing(op)


def _take_nothing(op: mlir.Op) -> None:
    with mlir.before(op):
        for result in op.results:
            nothing = mlir.empty_tensor(signless_tensor(result.type))
            result.replace_all_uses_with(cast(nothing, result.type))
    op.erase()


def _windows_of_nothing(op: mlir.Op) -> None:
    """Windows that see padding only, or none at all: the toolchain would copy behind the end of a buffer."""
    sizes = mlir.sizes_of(op.results[0].type)
    if 0 in sizes and None not in sizes:
        _take_nothing(op)
    elif 0 in mlir.sizes_of(op.operands[0].type):
        lower_windows_of_padding(op)


def _reshape_to_itself(op: mlir.Op) -> None:
    """The toolchain's legalization crashes on it when the type is unsigned."""
    if op.operands[0].type == op.results[0].type:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def _constant(op: mlir.Op) -> None:
    """A repeated value is a broadcast, so that it takes no memory; a large table belongs to the caller."""
    result = op.results[0]
    splat, size = mlir.constant_extent(op)
    if not splat and size > CONSTANT_LIMIT:
        raise LimitExceeded("bytes of a constant that is not an argument", size, CONSTANT_LIMIT)
    if splat and mlir.rank_of(result.type) and not mlir.computes_scalars(op):
        with mlir.before(op):
            scalar = mlir.splat_scalar(op)
            none = mlir.attribute("array<i64>")
            filled = mlir.value(
                "stablehlo.broadcast_in_dim", [scalar], result.type, broadcast_dimensions=none
            )
            result.replace_all_uses_with(filled)
        op.erase()


def _gather(op: mlir.Op) -> None:
    if lower_unmoved(op):
        return
    _signed_indices(op, 1)
    lower_batched(op)


def _slice(op: mlir.Op) -> None:
    """A slice of a scalar is the scalar."""
    if len(op.operands) == 1:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
        return
    _signed_indices(op, 1)


def _update(op: mlir.Op) -> None:
    """An update of no elements changes nothing, one of a scalar everything."""
    if 0 in mlir.sizes_of(op.operands[1].type) or len(op.operands) == 2:
        op.results[0].replace_all_uses_with(op.operands[len(op.operands) == 2])
        op.erase()
        return
    _signed_indices(op, 2)


def _signed_indices(op: mlir.Op, first: int) -> None:
    """Make unsigned indices signed by value: the toolchain would read a large one as negative."""
    for number in range(first, len(op.operands)):
        operand = op.operands[number]
        element_type = str(mlir.element_type(operand.type))
        if not element_type.startswith("ui"):
            continue
        shape = str(operand.type)
        with mlir.before(op):
            if element_type == "ui64":
                top = mlir.attribute(f"dense<{2**62}> : {shape}")
                limit = mlir.value("stablehlo.constant", (), operand.type, value=top)
                operand = mlir.value("stablehlo.minimum", [operand, limit], operand.type)
            wide = mlir.type_of(shape.replace(element_type, "i64"))
            op.operands[number] = mlir.value("stablehlo.convert", [operand], wide)


def _bitcast_complex(op: mlir.Op) -> None:
    """Of complex numbers to the same type: nothing; to another width they are expanded before."""
    if op.operands[0].type == op.results[0].type:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def _is_boolean(operand: mlir.Value) -> bool:
    return str(mlir.element_type(operand.type)) == "i1"


def _add_booleans(op: mlir.Op) -> None:
    """The sum of booleans is "or"."""
    if _is_boolean(op.results[0]):
        with mlir.before(op):
            op.results[0].replace_all_uses_with(
                mlir.value("stablehlo.or", list(op.operands), op.results[0].type)
            )
        op.erase()


def _count_booleans(op: mlir.Op) -> None:
    """Sums of products of booleans are "or" and "and": whether any product is not 0."""
    if not _is_boolean(op.results[0]):
        return
    kind = op.results[0].type
    with mlir.before(op):
        for number, operand in enumerate(list(op.operands)):
            wide = mlir.type_of(str(operand.type).replace("i1>", "i32>"))
            op.operands[number] = mlir.value("stablehlo.convert", [operand], wide)
    counts = mlir.type_of(str(kind).replace("i1>", "i32>"))
    with mlir.after(op):
        zero = mlir.value("stablehlo.constant", (), counts, value=mlir.attribute(f"dense<0> : {counts}"))
        differs = mlir.attribute("#stablehlo<comparison_direction NE>")
        result = mlir.create("stablehlo.compare", [zero, zero], [kind], {"comparison_direction": differs})
    op.results[0].replace_all_uses_with(result.results[0])
    op.results[0].set_type(counts)
    result.operands[0] = op.results[0]


def _widen_factors(op: mlir.Op) -> None:
    """Factors in the type of the sum: the toolchain would widen unsigned ones as signed numbers, and lowers
    no complex ones of another width.
    """
    wide = str(mlir.element_type(op.results[0].type))
    if not wide.startswith(("ui", "complex")):
        return
    with mlir.before(op):
        for number, operand in enumerate(list(op.operands)):
            narrow = str(mlir.element_type(operand.type))
            if narrow != wide:
                kind = mlir.type_of(str(operand.type).replace(f"{narrow}>", f"{wide}>"))
                op.operands[number] = mlir.value("stablehlo.convert", [operand], kind)


def _product(op: mlir.Op) -> None:
    """Drop an algorithm that only says what operands and result do: factors as they are, sums in the result's
    type. The toolchain lowers none.
    """
    _count_booleans(op)
    _widen_factors(op)
    if "algorithm" not in op.attributes:
        return
    types = [str(element(value.type)) for value in (*op.operands, op.results[0])]
    fields = ("lhs_precision_type", "rhs_precision_type", "accumulation_type")
    counts = ("lhs_component_count", "rhs_component_count", "num_primitive_operations")
    expected = [f"{field} = {kind}" for field, kind in zip(fields, types, strict=True)]
    expected += [f"{count} = 1" for count in counts]
    stated = re.split(r"[<>,]\s*", str(op.attributes["algorithm"]))
    if types[2] in ("f32", "f64") and set(expected) <= set(stated):
        del op.attributes["algorithm"]


def _reject_dynamic_size(op: mlir.Op) -> None:
    raise UnsupportedOp(mlir.name_of(op), "a size that depends on data", mlir.location_of(op))


def _convolution(op: mlir.Op) -> None:
    """Reverse the kernel itself: the toolchain forgets window reversal in grouped convolutions. Sums over no
    elements are 0: the toolchain would look behind the end of the padding. Dilated groups are ours.
    """
    _count_booleans(op)
    _widen_factors(op)
    if any(0 in mlir.sizes_of(operand.type) for operand in op.operands):
        _fill(op, [_zero_of(op)])
        return
    _reverse_window(op)
    lower_dilated(op)


def _reverse_window(op: mlir.Op) -> None:
    if "window_reversal" not in op.attributes:
        return
    flags = mlir.integers(op.attributes["window_reversal"])
    if any(flags):
        spatial = mlir.kernel_spatial_dimensions(op)
        axes = [axis for axis, flag in zip(spatial, flags, strict=True) if flag]
        kernel = op.operands[1]
        dimensions = mlir.attribute("array<i64: " + ", ".join(map(str, axes)) + ">")
        with mlir.before(op):
            op.operands[1] = mlir.value("stablehlo.reverse", [kernel], kernel.type, dimensions=dimensions)
    del op.attributes["window_reversal"]


def _zero_of(op: mlir.Op) -> mlir.Value:
    """A scalar 0 of the element of the result of ``op``, before it."""
    element_type = mlir.element_type(op.results[0].type)
    whole = mlir.type_of(f"tensor<{element_type}>")
    pair = str(element_type).startswith("complex")  # of which the bindings read no constant
    kind = mlir.type_of(f"tensor<{mlir.element_type(element_type)}>") if pair else whole
    number = "0.0" if "f" in str(mlir.element_type(kind)) else "0"
    with mlir.before(op):
        zero = mlir.value("stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{number}> : {kind}"))
        return mlir.value("stablehlo.complex", [zero, zero], whole) if pair else zero


def _reduce(op: mlir.Op) -> None:
    """A reduction of no elements is its initial value; one along no axis combines each element with it. The
    toolchain lowers neither.
    """
    count = len(op.operands) // 2
    sizes = mlir.sizes_of(op.operands[0].type)
    if 0 in sizes:
        _fill(op, list(op.operands)[count:])
    elif not mlir.integers(op.attributes["dimensions"]):
        lower_unreduced(op)


def _precision(op: mlir.Op) -> None:
    """Make NaN +inf where no mantissa bit is left to tell the two apart: the toolchain keeps NaN."""
    operand = op.operands[0]
    name = str(mlir.element_type(operand.type))
    if mlir.int_of(op.attributes["mantissa_bits"]) or name not in _FLOATS:
        return
    with mlir.before(op):
        if not mlir.computes_scalars(op):
            op.operands[0] = elementwise([operand], empty_like(operand, operand.type), _infinity_for_nan)
            return
        infinity = mlir.attribute(f"dense<{_INFINITY[name]}> : {operand.type}")
        positive = mlir.value("stablehlo.constant", (), operand.type, value=infinity)
        boolean = mlir.type_of(str(operand.type).replace(name, "i1"))
        direction = mlir.attribute("#stablehlo<comparison_direction NE>")
        is_nan = mlir.value("stablehlo.compare", [operand, operand], boolean, comparison_direction=direction)
        op.operands[0] = mlir.value("stablehlo.select", [is_nan, positive, operand], operand.type)


def _infinity_for_nan(scalars: list[mlir.Value]) -> mlir.Value:
    (scalar,) = scalars
    positive = mlir.float_constant(float("inf"), scalar.type)
    return arith.select(arith.cmpf(arith.CmpFPredicate.UNO, scalar, scalar), positive, scalar)


def _pad_nothing(op: mlir.Op) -> None:
    """Around no elements there is padding only; the toolchain would insert behind the end."""
    if 0 in mlir.sizes_of(op.operands[0].type):
        _fill(op, [op.operands[1]])


def _fill(op: mlir.Op, scalars: list[mlir.Value]) -> None:
    """Make each result of ``op`` one of ``scalars``, repeated."""
    if any(None in mlir.sizes_of(result.type) for result in op.results):
        raise UnsupportedOp(
            mlir.name_of(op), "no elements in a tensor of dynamic shape", mlir.location_of(op)
        )
    none = mlir.attribute("array<i64>")
    with mlir.before(op):
        for scalar, result in zip(scalars, op.results, strict=True):
            filled = mlir.value(
                "stablehlo.broadcast_in_dim", [scalar], result.type, broadcast_dimensions=none
            )
            result.replace_all_uses_with(filled)
    op.erase()


def _compare_total(op: mlir.Op) -> None:
    """Total order of floats: as sign and magnitude integers."""
    if "compare_type" not in op.attributes or "TOTALORDER" not in str(op.attributes["compare_type"]):
        return
    kind = op.operands[0].type
    if str(mlir.element_type(kind)) not in _FLOATS or mlir.computes_scalars(op):
        return
    direction = str(op.attributes["comparison_direction"]).split()[-1].rstrip(">")

    def body(scalars: list[mlir.Value]) -> mlir.Value:
        keys = [_total_key(scalar) for scalar in scalars]
        return arith.cmpi(_SIGNED_ORDER[direction], *keys)

    rewrite_elementwise(op, body)


def _total_key(scalar: mlir.Value) -> mlir.Value:
    """A signed integer in the total order of the float."""
    width = {"f32": 32, "f64": 64}.get(str(scalar.type), 16)
    kind = mlir.type_of(f"i{width}")
    bits = arith.bitcast(kind, scalar)
    sign = arith.shrsi(bits, mlir.constant(width - 1, str(kind)))
    flip = arith.shrui(sign, mlir.constant(1, str(kind)))
    return arith.xori(bits, flip)


def _convert_to_integer(op: mlir.Op) -> None:
    """Float to integer truncates and saturates; NaN becomes 0."""
    source, target = op.operands[0].type, op.results[0].type
    expected = str(mlir.element_type(target))
    if expected == "i1" or not expected.startswith(("i", "ui")):
        return
    if str(mlir.element_type(source)).startswith("complex"):
        part = mlir.type_of(
            str(source).replace(
                str(mlir.element_type(source)), str(mlir.element_type(mlir.element_type(source)))
            )
        )
        with mlir.before(op):
            op.operands[0] = mlir.value("stablehlo.real", [op.operands[0]], part)
        source = part
    if str(mlir.element_type(source)) not in _FLOATS:
        return
    if mlir.computes_scalars(op):
        saturate_scalar(op, expected)
        return
    signed = not expected.startswith("ui")
    rewrite_elementwise(op, lambda scalars: saturate(scalars[0], element(target), signed))


def saturate(scalar: mlir.Value, kind: mlir.Type, signed: bool) -> mlir.Value:
    """The integer nearest to ``scalar`` towards zero, within the range of ``kind``; 0 for NaN."""
    if str(scalar.type) in ("f16", "bf16"):
        scalar = arith.extf(mlir.type_of("f32"), scalar)
    width = int(str(kind).removeprefix("i"))
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1)) if signed else (0, 2**width)
    below = arith.cmpf(arith.CmpFPredicate.OLT, scalar, mlir.float_constant(low, scalar.type))
    above = arith.cmpf(arith.CmpFPredicate.OGE, scalar, mlir.float_constant(high, scalar.type))
    nan = arith.cmpf(arith.CmpFPredicate.UNO, scalar, scalar)
    outside = arith.ori(arith.ori(below, above), nan)
    inside = arith.select(outside, mlir.float_constant(0, scalar.type), scalar)
    whole = (arith.fptosi if signed else arith.fptoui)(kind, inside)
    whole = arith.select(below, mlir.constant(low, str(kind)), whole)
    top = mlir.constant(high - 1 if signed else -1, str(kind))
    return arith.select(above, top, whole)
