"""Where an op of the Torch dialect is lowered: its operands and results as StableHLO has them."""

from __future__ import annotations

import contextlib
import math
import re
import struct
from collections.abc import Generator, Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],(complex<f\d+>|[^>]+)>")
CONSTANTS = ("torch.constant.int", "torch.constant.float", "torch.constant.bool")
FLOATS = ("f16", "bf16", "f32", "f64")


def name_of(operation: Native) -> str:
    """An op's name; that of what it stands for where torch-mlir has no op for it."""
    name: str = operation.name
    return operation.attributes["name"].value if name == "torch.operator" else name


class Site:
    """Where an op is lowered: makes StableHLO and CHLO at the current insertion point."""

    def __init__(self, operation: Native) -> None:
        self.native = mlir.native_ir()
        self.operation = operation
        self.dims, self.element = self._type(operation.results[0])

    def _type(self, value: Native) -> tuple[str, str]:
        """Dimensions, as ``4x?x``, and element type of a tensor, as builtin types have them."""
        match = TENSOR.fullmatch(str(value.type))
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
            value = number if getattr(number.owner, "name", "") in CONSTANTS else value
        if getattr(value.owner, "name", "") in CONSTANTS:
            number = value.owner.attributes["value"].value
            text = float_text(number, self.element) if self.is_float else str(self._wrapped(int(number)))
            return self.op(
                "stablehlo.constant",
                (),
                f"tensor<{self.element}>",
                value=f"dense<{text}> : tensor<{self.element}>",
            )
        whole = self.whole(value)
        dims, element = self._type(value)
        return whole if element == self.element else self.convert(whole, dims)

    def whole(self, value: Native) -> Native:
        """A tensor as a builtin one, of its own element type."""
        dims, element = self._type(value)
        return self.op("torch_c.to_builtin_tensor", [value], f"tensor<{dims}{element}>")

    def number(self, number: float) -> Native:
        """A number of the element type, of rank 0."""
        type = f"tensor<{self.element}>"
        return self.op(
            "stablehlo.constant", (), type, value=f"dense<{float_text(number, self.element)}> : {type}"
        )

    @contextlib.contextmanager
    def widened(self) -> Generator[None]:
        """Computes in f32 what is of f16 and bf16, as eager mode does."""
        element = self.element
        self.element = "f32" if element in ("f16", "bf16") else element
        yield
        self.element = element

    def narrowed(self, value: Native) -> Native:
        """What was computed so, in the result's element type."""
        return value if str(value.type).endswith(f"{self.element}>") else self.convert(value, self.dims)

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
        return self.element in FLOATS

    @property
    def _order(self) -> str:
        return "UNSIGNED" if self.element.startswith("ui") or self.element == "i1" else "SIGNED"

    def result(self, value: Native) -> Native:
        type = str(self.operation.results[0].type)
        return self.op("torch_c.from_builtin_tensor", [value], type)


def whole_numbers(value: Native) -> list[int] | None:
    """A constant, or a list of constants, where all are whole numbers or truth values."""
    owner = value.owner
    name = getattr(owner, "name", "")
    if name == "torch.prim.ListConstruct":
        found = [whole_numbers(operand) for operand in owner.operands]
        return None if None in found else [number for one in found for number in one or ()]
    if name in ("torch.constant.int", "torch.constant.bool"):
        return [int(owner.attributes["value"].value)]
    return None


def float_text(number: float, element: str) -> str:
    """A number as a literal of an element type: with a point, and infinities and NaN as bits, which is how
    MLIR has them.
    """
    if math.isfinite(number):
        digits, sign, exponent = repr(float(number)).partition("e")
        return (digits if "." in digits else f"{digits}.0") + sign + exponent
    if element == "bf16":
        return f"0x{struct.pack('>f', number)[:2].hex().upper()}"
    code = {"f16": ">e", "f32": ">f", "f64": ">d"}[element]
    return f"0x{struct.pack(code, number).hex().upper()}"
