"""Ops of the Torch dialect that are lowered here: torch-mlir has no lowering of them, or another meaning.

torch-mlir takes ``aten.remainder`` for C's remainder, where PyTorch's has the sign of the divisor, and
divides integers in f64, which is not exact above 2^53, and rounds quotients of floats twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kcache_compiler.frontends.torch.complex import COMPLEX, CONVERSIONS
from kcache_compiler.frontends.torch.linalg import LINALG
from kcache_compiler.frontends.torch.pointwise import POINTWISE
from kcache_compiler.frontends.torch.scatter import SCATTER
from kcache_compiler.frontends.torch.site import FLOATS, TENSOR, Site, name_of
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: The result, or a list of them where the operation has several; ``None`` leaves the operation as it is.
_Lowering: TypeAlias = Callable[[Site], Native | None]


def lower_ops(module: Native, registered: bool) -> None:
    """Lower the ops of ``_LOWERINGS`` in place: those that torch-mlir has an op for, or the others and what
    it folds or takes apart (``_EARLY``).
    """
    native = mlir.native_ir()
    with module.context:
        for operation in mlir.all_operations(module.operation):
            name = name_of(operation)
            lowering = _LOWERINGS.get(name)
            if lowering is None or registered == (operation.name == "torch.operator" or name in _EARLY):
                continue
            with native.InsertionPoint(operation), operation.location:
                result = lowering(Site(operation))
            if result is None:
                continue
            results: Sequence[Native] = result if len(operation.results) > 1 else [result]
            for old, new in zip(operation.results, results, strict=True):
                old.replace_all_uses_with(new)
            operation.erase()


def _remainder(site: Site) -> Native:
    """With the sign of the divisor."""
    left, right = (site.tensor(operand) for operand in site.operation.operands)
    rest = site.elementwise("remainder", [left, right])
    moved = site.elementwise("add", [rest, right])
    return site.result(site.elementwise("select", [_signs_differ(site, rest, right), moved, rest]))


def _signs_differ(site: Site, rest: Native, right: Native) -> Native:
    """Whether a remainder is not 0 and has another sign than the divisor."""
    text = f"0.0 : {site.element}" if site.is_float else f"0 : {site.element}"
    zero = site.op("chlo.constant_like", [rest], str(rest.type), value=text)
    negative = [site.compare("LT", value, zero) for value in (rest, right)]
    apart = site.elementwise("xor", negative, "i1")
    return site.elementwise("and", [apart, site.compare("NE", rest, zero)], "i1")


def _fmod(site: Site) -> Native:
    return site.result(site.elementwise("remainder", [site.tensor(x) for x in site.operation.operands]))


def _divide(site: Site) -> Native | None:
    """Division rounded down, or of integers to zero; others are torch-mlir's own."""
    *operands, mode = site.operation.operands
    if getattr(mode.owner, "name", "") != "torch.constant.str":
        return None
    down = mode.owner.attributes["value"].value == "floor"
    if site.is_float and not down:
        return None
    return _quotient(site, operands, down)


def _floor_divide(site: Site) -> Native:
    return _quotient(site, site.operation.operands, down=True)


def _quotient(site: Site, operands: Sequence[Native], down: bool) -> Native:
    if site.is_float:
        return site.result(_whole(site, operands))
    left, right = (site.tensor(operand) for operand in operands)
    quotient = site.elementwise("divide", [left, right])
    if down:
        rest = site.elementwise("remainder", [left, right])
        type = f"tensor<{site.element}>"
        one = site.op("stablehlo.constant", (), type, value=f"dense<1> : {type}")
        lower = site.elementwise("subtract", [quotient, one])
        quotient = site.elementwise("select", [_signs_differ(site, rest, right), lower, quotient])
    return site.result(quotient)


def _whole(site: Site, operands: Sequence[Native]) -> Native:
    """As eager mode has it: of the exact quotient, 8 for 8.1 by 0.9, where 8.1 / 0.9 rounds to 9."""
    with site.widened():
        whole = _wide_whole(site, *(site.tensor(operand) for operand in operands))
    return site.narrowed(whole)


def _wide_whole(site: Site, left: Native, right: Native) -> Native:
    full = site.number
    rest = site.elementwise("remainder", [left, right])
    quotient = site.elementwise("divide", [site.elementwise("subtract", [left, rest]), right])
    lower = site.elementwise("subtract", [quotient, full(1.0)])
    quotient = site.elementwise("select", [_signs_differ(site, rest, right), lower, quotient])
    whole = site.op("stablehlo.floor", [quotient], str(quotient.type))
    far = site.compare("GT", site.elementwise("subtract", [quotient, whole]), full(0.5))
    whole = site.elementwise("select", [far, site.elementwise("add", [whole, full(1.0)]), whole])
    plain = site.elementwise("divide", [left, right])
    zero = site.elementwise("multiply", [plain, full(0.0)])  # with the quotient's sign
    whole = site.elementwise("select", [site.compare("NE", quotient, full(0.0)), whole, zero])
    divides = site.op(
        "chlo.broadcast_compare",
        [right, full(0.0)],
        str(right.type).replace(f"{site.element}>", "i1>"),
        comparison_direction="#chlo<comparison_direction NE>",
        compare_type="#chlo<comparison_type FLOAT>",
    )
    return site.elementwise("select", [divides, whole, plain])


def _shift_left(site: Site) -> Native | None:
    return _shifted(site, "shift_left")


def _shift_right(site: Site) -> Native | None:
    return _shifted(site, "shift_right_logical" if site.element.startswith("u") else "shift_right_arithmetic")


def _shifted(site: Site, op: str) -> Native | None:
    """Both operands broadcast: torch-mlir ends the process where the first one has to be."""
    if site.is_float:
        return None
    return site.result(site.elementwise(op, [site.tensor(x) for x in site.operation.operands]))


def _compared(direction: str) -> Callable[[Site], Native | None]:
    """Of two dtypes in the one that PyTorch promotes them to; torch-mlir takes one operand's."""

    def lower(site: Site) -> Native | None:
        found = [TENSOR.fullmatch(str(operand.type)) for operand in site.operation.operands]
        left, right = ((match[2], bool(match[1])) if match else None for match in found)
        if left is None or right is None or (left[0] == right[0] and direction != "EQ"):
            return None
        result = site.element
        site.element = left[0].replace("si", "i") if left[0] == right[0] else _promoted(left, right)
        made = site.compare(direction, *(site.tensor(operand) for operand in site.operation.operands))
        site.element = result
        return site.result(made)

    return lower


def _compared_to_number(direction: str) -> Callable[[Site], Native | None]:
    """Of a tensor and a number of another kind: torch-mlir takes the number for one of the tensor's."""

    def lower(site: Site) -> Native | None:
        tensor, number = site.operation.operands
        kind = {"torch.constant.int": 1, "torch.constant.float": 2}.get(getattr(number.owner, "name", ""), 0)
        match = TENSOR.fullmatch(str(tensor.type))
        if match is None or kind <= _kind(match[2]):
            return None
        result = site.element
        site.element = "f32" if kind == 2 else "i64"
        made = site.compare(direction, site.tensor(tensor), site.tensor(number))
        site.element = result
        return site.result(made)

    return lower


def _kind(element: str) -> int:
    """0 for truth values, 1 for integers, 2 for floats."""
    return 2 if element in FLOATS else int(element in _INTEGERS)


def _either(first: _Lowering, second: _Lowering) -> _Lowering:
    """The second one where the first does not apply."""

    def lower(site: Site) -> Native | None:
        found = first(site)
        return second(site) if found is None else found

    return lower


_INTEGERS = ("ui8", "si8", "si16", "si32", "si64")


def _promoted(left: tuple[str, bool], right: tuple[str, bool]) -> str:
    """The element type of two, each with whether it has a rank above 0."""
    kinds = [_kind(element) for element, _ in (left, right)]
    (x, ranked), (y, other) = left, right
    if kinds[0] == kinds[1] and ranked == other:
        order = FLOATS if kinds[0] == 2 else _INTEGERS
        above = {"bf16, f16": "f32", "si8, ui8": "si16"}.get(", ".join(sorted((x, y))))
        wider = above or max(x, y, key=order.index)
    elif kinds[0] == kinds[1]:
        wider = x if ranked else y
    else:
        wider = x if kinds[0] > kinds[1] else y
    return wider.replace("si", "i")


#: ``x == x`` is folded to true, of NaN too; conversions are taken apart.
_EARLY = frozenset({"torch.aten.eq.Tensor", *CONVERSIONS})
_ORDER = ("eq", "ne", "lt", "le", "gt", "ge")
_SHIFTS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
_LOWERINGS: dict[str, _Lowering] = {
    "torch.aten.remainder.Scalar": _remainder,
    "torch.aten.remainder.Tensor": _remainder,
    "torch.aten.remainder.Scalar_Tensor": _remainder,
    "torch.aten.fmod.Scalar": _fmod,
    "torch.aten.fmod.Tensor": _fmod,
    "torch.aten.div.Tensor_mode": _divide,
    "torch.aten.div.Scalar_mode": _divide,
    "torch.aten.floor_divide": _floor_divide,
    "torch.aten.floor_divide.Scalar": _floor_divide,
    **{f"torch.aten.bitwise_left_shift.{kind}": _shift_left for kind in _SHIFTS},
    **{f"torch.aten.bitwise_right_shift.{kind}": _shift_right for kind in _SHIFTS},
    **{f"torch.aten.__lshift__.{kind}": _shift_left for kind in ("Tensor", "Scalar")},
    **{f"torch.aten.__rshift__.{kind}": _shift_right for kind in ("Tensor", "Scalar")},
    **{f"torch.aten.{name}.Tensor": _compared(name.upper()) for name in _ORDER},
    **{f"torch.aten.{name}.Scalar": _compared_to_number(name.upper()) for name in _ORDER},
    **POINTWISE,
    **{name: _either(how, POINTWISE[name]) if name in POINTWISE else how for name, how in COMPLEX.items()},
    **CONVERSIONS,
    **SCATTER,
    **LINALG,
}
#: What the backend contract has to leave alone.
LOWERED = frozenset(_LOWERINGS) - frozenset(CONVERSIONS)
