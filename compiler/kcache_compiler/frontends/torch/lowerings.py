"""Ops of the Torch dialect that are lowered here because torch-mlir has no lowering, or an incorrect one.

torch-mlir lowers ``aten.remainder`` to C's remainder, where PyTorch's has the sign of the divisor, divides
integers in f64, which is not exact above 2^53, and rounds quotients of floats twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from kcache_compiler.frontends.torch.complex import COMPLEX, CONVERSIONS
from kcache_compiler.frontends.torch.linalg import LINALG
from kcache_compiler.frontends.torch.loops.grouped_mm import GROUPED_PRODUCTS
from kcache_compiler.frontends.torch.loops.recurrent import RECURRENT
from kcache_compiler.frontends.torch.pointwise import POINTWISE
from kcache_compiler.frontends.torch.scatter import SCATTER
from kcache_compiler.frontends.torch.torch_op import FLOATS, TENSOR, TorchOp, name_of
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Module, Value

#: Returns the result, or a list of them if the operation has several; ``None`` leaves the operation
#: unchanged.
_Lowering: TypeAlias = "Callable[[TorchOp], Value | Sequence[Value] | None]"


def lower_ops(module: Module, registered: bool) -> None:
    """Lower the ops of ``LOWERINGS`` in place.

    ``registered``: the ops that torch-mlir has a class for; otherwise those it does not, and those that it
    folds or decomposes (``_BEFORE_CONTRACT``).
    """
    native = mlir.native_ir()
    with module.context:
        for operation in mlir.all_operations(module.operation):
            name = name_of(operation)
            lowering = LOWERINGS.get(name)
            if lowering is None or registered == (
                operation.name == "torch.operator" or name in _BEFORE_CONTRACT
            ):
                continue
            with native.InsertionPoint(operation), operation.location:
                result = lowering(TorchOp(operation))
            if result is None:
                continue
            results = cast("Sequence[Value]", result if len(operation.results) > 1 else [result])
            for old, new in zip(operation.results, results, strict=True):
                old.replace_all_uses_with(new)
            operation.erase()


def _remainder(op: TorchOp) -> Value:
    """Return the remainder with the sign of the divisor."""
    left, right = (op.tensor(operand) for operand in op.operation.operands)
    remainder = op.elementwise("remainder", [left, right])
    adjusted = op.elementwise("add", [remainder, right])
    return op.to_torch(op.elementwise("select", [_signs_differ(op, remainder, right), adjusted, remainder]))


def _signs_differ(op: TorchOp, remainder: Value, right: Value) -> Value:
    """Return where a remainder is nonzero and its sign differs from that of the divisor."""
    text = f"0.0 : {op.element}" if op.is_float else f"0 : {op.element}"
    zero = op.create("chlo.constant_like", [remainder], str(remainder.type), value=text)
    negative = [op.compare("LT", value, zero) for value in (remainder, right)]
    differ = op.elementwise("xor", negative, "i1")
    return op.elementwise("and", [differ, op.compare("NE", remainder, zero)], "i1")


def _fmod(op: TorchOp) -> Value:
    return op.to_torch(op.elementwise("remainder", [op.tensor(x) for x in op.operation.operands]))


def _divide(op: TorchOp) -> Value | None:
    """Divide with rounding down, or integers toward zero; other divisions are torch-mlir's."""
    *operands, mode = op.operation.operands
    if getattr(mode.owner, "name", "") != "torch.constant.str":
        return None
    down = lazy.string(lazy.definition(mode).attributes["value"]) == "floor"
    if op.is_float and not down:
        return None
    return _integer_or_float_quotient(op, operands, down)


def _floor_divide(op: TorchOp) -> Value:
    return _integer_or_float_quotient(op, op.operation.operands, down=True)


def _integer_or_float_quotient(op: TorchOp, operands: Sequence[Value], down: bool) -> Value:
    """Return the quotient rounded down, or of integers toward zero."""
    if op.is_float:
        return op.to_torch(_float_floor_divide(op, operands))
    left, right = (op.tensor(operand) for operand in operands)
    quotient = op.elementwise("divide", [left, right])
    if down:
        remainder = op.elementwise("remainder", [left, right])
        type = f"tensor<{op.element}>"
        unit = op.create("stablehlo.constant", (), type, value=f"dense<1> : {type}")
        decremented = op.elementwise("subtract", [quotient, unit])
        quotient = op.elementwise("select", [_signs_differ(op, remainder, right), decremented, quotient])
    return op.to_torch(quotient)


def _float_floor_divide(op: TorchOp, operands: Sequence[Value]) -> Value:
    """Floor the exact quotient as eager mode does: 8 for 8.1 by 0.9, though 8.1 / 0.9 rounds to 9."""
    with op.half_as_f32():
        floor = _exact_floor(op, *(op.tensor(operand) for operand in operands))
    return op.to_result_element(floor)


def _exact_floor(op: TorchOp, left: Value, right: Value) -> Value:
    """Return the floor of the exact quotient, computed from the remainder."""
    scalar = op.scalar
    remainder = op.elementwise("remainder", [left, right])
    quotient = op.elementwise("divide", [op.elementwise("subtract", [left, remainder]), right])
    decremented = op.elementwise("subtract", [quotient, scalar(1.0)])
    quotient = op.elementwise("select", [_signs_differ(op, remainder, right), decremented, quotient])
    floor = op.create("stablehlo.floor", [quotient], str(quotient.type))
    rounds_up = op.compare("GT", op.elementwise("subtract", [quotient, floor]), scalar(0.5))
    floor = op.elementwise("select", [rounds_up, op.elementwise("add", [floor, scalar(1.0)]), floor])
    rounded_quotient = op.elementwise("divide", [left, right])
    zero = op.elementwise("multiply", [rounded_quotient, scalar(0.0)])  # with the sign of the quotient
    floor = op.elementwise("select", [op.compare("NE", quotient, scalar(0.0)), floor, zero])
    is_nonzero = op.create(
        "chlo.broadcast_compare",
        [right, scalar(0.0)],
        str(right.type).replace(f"{op.element}>", "i1>"),
        comparison_direction="#chlo<comparison_direction NE>",
        compare_type="#chlo<comparison_type FLOAT>",
    )
    return op.elementwise("select", [is_nonzero, floor, rounded_quotient])


def _shift_left(op: TorchOp) -> Value | None:
    return _shift(op, "shift_left")


def _shift_right(op: TorchOp) -> Value | None:
    return _shift(op, "shift_right_logical" if op.element.startswith("u") else "shift_right_arithmetic")


def _shift(op: TorchOp, name: str) -> Value | None:
    """Shift with both operands broadcast: torch-mlir crashes if the first one must be."""
    if op.is_float:
        return None
    return op.to_torch(op.elementwise(name, [op.tensor(x) for x in op.operation.operands]))


def _comparison(direction: str) -> Callable[[TorchOp], Value | None]:
    """Return the lowering of a comparison in the promoted dtype; torch-mlir uses that of one operand."""

    def lower(op: TorchOp) -> Value | None:
        matches = [TENSOR.fullmatch(str(operand.type)) for operand in op.operation.operands]
        left, right = ((match[2], bool(match[1])) if match else None for match in matches)
        if left is None or right is None or (left[0] == right[0] and direction != "EQ"):
            return None
        result = op.element
        op.element = left[0].replace("si", "i") if left[0] == right[0] else _promote(left, right)
        comparison = op.compare(direction, *(op.tensor(operand) for operand in op.operation.operands))
        op.element = result
        return op.to_torch(comparison)

    return lower


def _comparison_to_scalar(direction: str) -> Callable[[TorchOp], Value | None]:
    """Return the lowering of a comparison with a scalar of a higher category, which torch-mlir converts."""

    def lower(op: TorchOp) -> Value | None:
        tensor, scalar = op.operation.operands
        category = {"torch.constant.int": 1, "torch.constant.float": 2}.get(
            getattr(scalar.owner, "name", ""), 0
        )
        match = TENSOR.fullmatch(str(tensor.type))
        if match is None or category <= _dtype_category(match[2]):
            return None
        result = op.element
        op.element = "f32" if category == 2 else "i64"
        comparison = op.compare(direction, op.tensor(tensor), op.tensor(scalar))
        op.element = result
        return op.to_torch(comparison)

    return lower


def _dtype_category(element: str) -> int:
    """Return 0 for booleans, 1 for integers, 2 for floats."""
    return 2 if element in FLOATS else int(element in _INTEGERS)


def _first_applicable(first: _Lowering, second: _Lowering) -> _Lowering:
    """Return a lowering that tries ``second`` where ``first`` does not apply."""

    def lower(op: TorchOp) -> Value | Sequence[Value] | None:
        result = first(op)
        return second(op) if result is None else result

    return lower


_INTEGERS = ("ui8", "si8", "si16", "si32", "si64")


def _promote(left: tuple[str, bool], right: tuple[str, bool]) -> str:
    """Return the promoted element type of two (element type, whether its rank is above 0)."""
    categories = [_dtype_category(element) for element, _ in (left, right)]
    (x, ranked), (y, other_ranked) = left, right
    if categories[0] == categories[1] and ranked == other_ranked:
        ordered = FLOATS if categories[0] == 2 else _INTEGERS
        common = {"bf16, f16": "f32", "si8, ui8": "si16"}.get(", ".join(sorted((x, y))))
        wider = common or max(x, y, key=ordered.index)
    elif categories[0] == categories[1]:
        wider = x if ranked else y
    else:
        wider = x if categories[0] > categories[1] else y
    return wider.replace("si", "i")


#: Ops that the backend contract would fold (``x == x`` to true, also for NaN) or decompose (conversions).
_BEFORE_CONTRACT = frozenset({"torch.aten.eq.Tensor", *CONVERSIONS})
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SHIFTS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
LOWERINGS: dict[str, _Lowering] = {
    "torch.aten.remainder.Scalar": _remainder,
    "torch.aten.remainder.Tensor": _remainder,
    "torch.aten.remainder.Scalar_Tensor": _remainder,
    "torch.aten.fmod.Scalar": _fmod,
    "torch.aten.fmod.Tensor": _fmod,
    "torch.aten.div.Tensor_mode": _divide,
    "torch.aten.div.Scalar_mode": _divide,
    "torch.aten.floor_divide": _floor_divide,
    "torch.aten.floor_divide.Scalar": _floor_divide,
    **{f"torch.aten.bitwise_left_shift.{overload}": _shift_left for overload in _SHIFTS},
    **{f"torch.aten.bitwise_right_shift.{overload}": _shift_right for overload in _SHIFTS},
    **{f"torch.aten.__lshift__.{overload}": _shift_left for overload in ("Tensor", "Scalar")},
    **{f"torch.aten.__rshift__.{overload}": _shift_right for overload in ("Tensor", "Scalar")},
    **{f"torch.aten.{name}.Tensor": _comparison(name.upper()) for name in _COMPARISONS},
    **{f"torch.aten.{name}.Scalar": _comparison_to_scalar(name.upper()) for name in _COMPARISONS},
    **POINTWISE,
    **{
        name: _first_applicable(lowering, POINTWISE[name]) if name in POINTWISE else lowering
        for name, lowering in COMPLEX.items()
    },
    **CONVERSIONS,
    **SCATTER,
    **LINALG,
    **RECURRENT,
    **GROUPED_PRODUCTS,
}
#: Ops that the backend contract must not decompose.
LOWERED_OPS = frozenset(LOWERINGS) - frozenset((*CONVERSIONS, *RECURRENT, *GROUPED_PRODUCTS))
