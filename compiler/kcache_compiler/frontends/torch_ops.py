"""Ops of the Torch dialect that are lowered here: torch-mlir has no lowering of them, or another meaning.

torch-mlir takes ``aten.remainder`` for C's remainder, where PyTorch's has the sign of the divisor, and
divides integers in f64, which is not exact above 2^53, and rounds quotients of floats twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends import context as mlir
from kcache_compiler.frontends.context import Native

_TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],([^>]+)>")
_CONSTANTS = ("torch.constant.int", "torch.constant.float", "torch.constant.bool")


def lower_ops(module: Native, registered: bool) -> None:
    """Lower the ops of ``_LOWERINGS`` in place: those that torch-mlir has an op for, or the others."""
    native = mlir.native_ir()
    with module.context:
        for operation in mlir.all_operations(module.operation):
            lowering = _LOWERINGS.get(name_of(operation))
            if lowering is None or registered == (operation.name == "torch.operator"):
                continue
            with native.InsertionPoint(operation), operation.location:
                result = lowering(_Site(operation))
            if result is not None:
                operation.results[0].replace_all_uses_with(result)
                operation.erase()


def name_of(operation: Native) -> str:
    """An op's name; that of what it stands for where torch-mlir has no op for it."""
    name: str = operation.name
    return operation.attributes["name"].value if name == "torch.operator" else name


class _Site:
    """Where an op is lowered: makes StableHLO and CHLO at the current insertion point."""

    def __init__(self, operation: Native) -> None:
        self.native = mlir.native_ir()
        self.operation = operation
        self.dims, self.element = self._type(operation.results[0])

    def _type(self, value: Native) -> tuple[str, str]:
        """Dimensions, as ``4x?x``, and element type of a tensor, as builtin types have them."""
        match = _TENSOR.fullmatch(str(value.type))
        if match is None:
            raise UnsupportedOp(
                name_of(self.operation),
                f"it has a value of type {value.type}; tensors need a known rank and element type",
                mlir.describe_location(self.operation.location),
            )
        dims = "".join(f"{size}x" for size in match[1].split(",") if size)
        return dims, match[2].replace("si", "i")

    def op(self, name: str, operands: Sequence[Native], type: str, **attributes: str) -> Native:
        parsed = {key: self.native.Attribute.parse(text) for key, text in attributes.items()}
        return self.native.Operation.create(
            name, results=[self.native.Type.parse(type)], operands=list(operands), attributes=parsed
        ).result

    def tensor(self, value: Native) -> Native:
        """An operand as a builtin tensor of the result's element type; numbers have rank 0."""
        if getattr(value.owner, "name", "") == "torch.prim.NumToTensor.Scalar":
            number = value.owner.operands[0]  # the tensor is of f32, whatever the number
            value = number if getattr(number.owner, "name", "") in _CONSTANTS else value
        if getattr(value.owner, "name", "") in _CONSTANTS:
            number = value.owner.attributes["value"].value
            text = repr(float(number)) if self.is_float else str(self._wrapped(int(number)))
            return self.op(
                "stablehlo.constant",
                (),
                f"tensor<{self.element}>",
                value=f"dense<{text}> : tensor<{self.element}>",
            )
        dims, element = self._type(value)
        whole = self.op("torch_c.to_builtin_tensor", [value], f"tensor<{dims}{element}>")
        return whole if element == self.element else self.convert(whole, dims)

    def _wrapped(self, number: int) -> int:
        """A number as PyTorch gives it to an integer type: modulo 2^n."""
        if self.element == "i1":
            return number
        signed, bits = not self.element.startswith("u"), int(self.element.lstrip("ui"))
        low = -(1 << bits - 1) if signed else 0
        return (number - low) % (1 << bits) + low

    def convert(self, value: Native, dims: str) -> Native:
        return self.op("stablehlo.convert", [value], f"tensor<{dims}{self.element}>")

    def elementwise(
        self, op: str, operands: Sequence[Native], element: str = "", **attributes: str
    ) -> Native:
        """An op with the result's shape; its operands are broadcast."""
        return self.op(
            f"chlo.broadcast_{op}", operands, f"tensor<{self.dims}{element or self.element}>", **attributes
        )

    def compare(self, direction: str, left: Native, right: Native) -> Native:
        return self.elementwise(
            "compare",
            [left, right],
            "i1",
            comparison_direction=f"#chlo<comparison_direction {direction}>",
            compare_type=f"#chlo<comparison_type {'FLOAT' if self.is_float else self._order}>",
        )

    @property
    def is_float(self) -> bool:
        return self.element in ("f16", "bf16", "f32", "f64")

    @property
    def _order(self) -> str:
        return "UNSIGNED" if self.element.startswith("ui") or self.element == "i1" else "SIGNED"

    def result(self, value: Native) -> Native:
        type = str(self.operation.results[0].type)
        return self.op("torch_c.from_builtin_tensor", [value], type)


def _remainder(site: _Site) -> Native:
    """With the sign of the divisor."""
    left, right = (site.tensor(operand) for operand in site.operation.operands)
    rest = site.elementwise("remainder", [left, right])
    moved = site.elementwise("add", [rest, right])
    return site.result(site.elementwise("select", [_signs_differ(site, rest, right), moved, rest]))


def _signs_differ(site: _Site, rest: Native, right: Native) -> Native:
    """Whether a remainder is not 0 and has another sign than the divisor."""
    text = f"0.0 : {site.element}" if site.is_float else f"0 : {site.element}"
    zero = site.op("chlo.constant_like", [rest], str(rest.type), value=text)
    negative = [site.compare("LT", value, zero) for value in (rest, right)]
    apart = site.elementwise("xor", negative, "i1")
    return site.elementwise("and", [apart, site.compare("NE", rest, zero)], "i1")


def _fmod(site: _Site) -> Native:
    return site.result(site.elementwise("remainder", [site.tensor(x) for x in site.operation.operands]))


def _divide(site: _Site) -> Native | None:
    """Division rounded down, or of integers to zero; others are torch-mlir's own."""
    *operands, mode = site.operation.operands
    if getattr(mode.owner, "name", "") != "torch.constant.str":
        return None
    down = mode.owner.attributes["value"].value == "floor"
    if site.is_float and not down:
        return None
    return _quotient(site, operands, down)


def _floor_divide(site: _Site) -> Native:
    return _quotient(site, site.operation.operands, down=True)


def _quotient(site: _Site, operands: Sequence[Native], down: bool) -> Native:
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


def _whole(site: _Site, operands: Sequence[Native]) -> Native:
    """As eager mode has it: of the exact quotient, 8 for 8.1 by 0.9, where 8.1 / 0.9 rounds to 9."""
    element = site.element
    site.element = "f32" if element in ("f16", "bf16") else element
    left, right = (site.tensor(operand) for operand in operands)

    def full(number: float) -> Native:
        type = f"tensor<{site.element}>"
        return site.op("stablehlo.constant", (), type, value=f"dense<{number!r}> : {type}")

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
    whole = site.elementwise("select", [divides, whole, plain])
    site.element = element
    return whole if str(whole.type).endswith(f"{element}>") else site.convert(whole, site.dims)


def _shift_left(site: _Site) -> Native | None:
    return _shifted(site, "shift_left")


def _shift_right(site: _Site) -> Native | None:
    return _shifted(site, "shift_right_logical" if site.element.startswith("u") else "shift_right_arithmetic")


def _shifted(site: _Site, op: str) -> Native | None:
    """Both operands broadcast: torch-mlir ends the process where the first one has to be."""
    if site.is_float:
        return None
    return site.result(site.elementwise(op, [site.tensor(x) for x in site.operation.operands]))


def _compared(direction: str) -> Callable[[_Site], Native | None]:
    """Of two dtypes in the one that PyTorch promotes them to; torch-mlir takes one operand's."""

    def lower(site: _Site) -> Native | None:
        found = [_TENSOR.fullmatch(str(operand.type)) for operand in site.operation.operands]
        left, right = ((match[2], bool(match[1])) if match else None for match in found)
        if left is None or right is None or left[0] == right[0]:
            return None
        result = site.element
        site.element = _promoted(left, right)
        made = site.compare(direction, *(site.tensor(operand) for operand in site.operation.operands))
        site.element = result
        return site.result(made)

    return lower


_FLOATS = ("f16", "bf16", "f32", "f64")
_INTEGERS = ("ui8", "si8", "si16", "si32", "si64")


def _promoted(left: tuple[str, bool], right: tuple[str, bool]) -> str:
    """The element type of two, each with whether it has a rank above 0."""
    kinds = [2 if element in _FLOATS else int(element in _INTEGERS) for element, _ in (left, right)]
    (x, ranked), (y, other) = left, right
    if kinds[0] == kinds[1] and ranked == other:
        order = _FLOATS if kinds[0] == 2 else _INTEGERS
        above = {"bf16, f16": "f32", "si8, ui8": "si16"}.get(", ".join(sorted((x, y))))
        wider = above or max(x, y, key=order.index)
    elif kinds[0] == kinds[1]:
        wider = x if ranked else y
    else:
        wider = x if kinds[0] > kinds[1] else y
    return wider.replace("si", "i")


def _chlo(name: str) -> Callable[[_Site], Native]:
    def lower(site: _Site) -> Native:
        operand = site.tensor(site.operation.operands[0])
        return site.result(site.op(name, [operand], f"tensor<{site.dims}{site.element}>"))

    return lower


_SHIFTS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
_LOWERINGS: dict[str, Callable[[_Site], Native | None]] = {
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
    **{f"torch.aten.{name}.Tensor": _compared(name.upper()) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "torch.aten.erfinv": _chlo("chlo.erf_inv"),
    "torch.aten.lgamma": _chlo("chlo.lgamma"),
    "torch.aten.digamma": _chlo("chlo.digamma"),
    "torch.aten.erfc": _chlo("chlo.erfc"),
}
#: What the backend contract has to leave alone.
LOWERED = frozenset(_LOWERINGS)
