"""An operation of the Torch dialect during its lowering: operands and results as StableHLO values."""

from __future__ import annotations

import contextlib
import math
import re
import struct
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Op, Value

TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],(complex<f\d+>|[^>]+)>")
CONSTANTS = ("torch.constant.int", "torch.constant.float", "torch.constant.bool")
FLOATS = ("f16", "bf16", "f32", "f64")


def name_of(operation: Op) -> str:
    """Return the name of an operation, for ``torch.operator`` the name that it holds."""
    name: str = operation.name
    return lazy.string(operation.attributes["name"]) if name == "torch.operator" else name


class TorchOp:
    """An operation that is lowered. Creates StableHLO and CHLO operations at the current insertion point."""

    def __init__(self, operation: Op) -> None:
        self.native = mlir.native_ir()
        self.operation = operation
        self.dims, self.element = self._type(operation.results[0])

    def _type(self, value: Value) -> tuple[str, str]:
        """Return the dimensions, as ``4x?x``, and the builtin element type of a tensor."""
        match = TENSOR.fullmatch(str(value.type))
        if match is None:
            raise UnsupportedOp(
                name_of(self.operation),
                f"it has a value of type {value.type}: tensors need a rank and an element type",
                mlir.describe_location(self.operation.location),
            )
        dims = "".join(f"{size}x" for size in match[1].split(",") if size)
        return dims, match[2].replace("si", "i")

    def create(self, name: str, operands: Sequence[Value], type: str, **attributes: str) -> Value:
        """Create an operation with one result; ``attributes`` are parsed."""
        parsed = {key: self.native.Attribute.parse(text) for key, text in attributes.items()}
        return self.native.Operation.create(
            name, results=[self.native.Type.parse(type)], operands=list(operands), attributes=parsed
        ).result

    def tensor(self, value: Value) -> Value:
        """Return an operand as a builtin tensor of the result's element type; scalars have rank 0."""
        if getattr(value.owner, "name", "") == "torch.prim.NumToTensor.Scalar":
            number = lazy.definition(value).operands[0]  # the tensor is f32, whatever the scalar
            value = number if getattr(number.owner, "name", "") in CONSTANTS else value
        if getattr(value.owner, "name", "") in CONSTANTS:
            number = lazy.number(lazy.definition(value).attributes["value"])
            text = float_text(number, self.element) if self.is_float else str(self._wrap(int(number)))
            return self.create(
                "stablehlo.constant",
                (),
                f"tensor<{self.element}>",
                value=f"dense<{text}> : tensor<{self.element}>",
            )
        tensor = self.builtin_tensor(value)
        dims, element = self._type(value)
        return tensor if element == self.element else self.convert(tensor, dims)

    def builtin_tensor(self, value: Value) -> Value:
        """Return a tensor as a builtin one of its own element type."""
        dims, element = self._type(value)
        return self.create("torch_c.to_builtin_tensor", [value], f"tensor<{dims}{element}>")

    def scalar(self, value: float) -> Value:
        """Return a constant of the current element type, of rank 0."""
        type = f"tensor<{self.element}>"
        return self.create(
            "stablehlo.constant", (), type, value=f"dense<{float_text(value, self.element)}> : {type}"
        )

    @contextlib.contextmanager
    def half_as_f32(self) -> Generator[None]:
        """Use f32 as the element type in this context for f16 and bf16, as eager mode does."""
        element = self.element
        self.element = "f32" if element in ("f16", "bf16") else element
        try:
            yield
        finally:
            self.element = element

    def to_result_element(self, value: Value) -> Value:
        """Convert a value that was computed as f32 (``half_as_f32``) to the result's element type."""
        return value if str(value.type).endswith(f"{self.element}>") else self.convert(value, self.dims)

    def _wrap(self, number: int) -> int:
        """Return an integer modulo 2^n, as PyTorch converts it to an integer type."""
        if self.element == "i1":
            return number
        signed, bits = not self.element.startswith("u"), int(self.element.lstrip("ui"))
        low = -(1 << bits - 1) if signed else 0
        return (number - low) % (1 << bits) + low

    def convert(self, value: Value, dims: str) -> Value:
        """Convert a value to the current element type."""
        return self.create("stablehlo.convert", [value], f"tensor<{dims}{self.element}>")

    def elementwise(self, op: str, operands: Sequence[Value], element: str = "", **attributes: str) -> Value:
        """Create a broadcasting CHLO operation with the shape of the result."""
        return self.create(
            f"chlo.broadcast_{op}", operands, f"tensor<{self.dims}{element or self.element}>", **attributes
        )

    def compare(self, direction: str, left: Value, right: Value) -> Value:
        """Compare elementwise with broadcasting."""
        return self.elementwise(
            "compare",
            [left, right],
            "i1",
            comparison_direction=f"#chlo<comparison_direction {direction}>",
            compare_type=f"#chlo<comparison_type {'FLOAT' if self.is_float else self._integer_comparison}>",
        )

    @property
    def is_float(self) -> bool:
        """Whether the current element type is a float."""
        return self.element in FLOATS

    @property
    def _integer_comparison(self) -> str:
        """The comparison type of integers and booleans."""
        return "UNSIGNED" if self.element.startswith("ui") or self.element == "i1" else "SIGNED"

    def to_torch(self, value: Value) -> Value:
        """Convert a builtin tensor to the Torch type of the result."""
        type = str(self.operation.results[0].type)
        return self.create("torch_c.from_builtin_tensor", [value], type)


def integer_constants(value: Value) -> list[int] | None:
    """Return the integers or booleans of a constant or a list of constants, otherwise None."""
    owner = lazy.definition(value)
    name = getattr(owner, "name", "")
    if name == "torch.prim.ListConstruct":
        elements = [integer_constants(operand) for operand in owner.operands]
        return None if None in elements else [number for numbers in elements for number in numbers or ()]
    if name in ("torch.constant.int", "torch.constant.bool"):
        return [int(lazy.number(owner.attributes["value"]))]
    return None


def float_text(number: float, element: str) -> str:
    """Return a float as an MLIR literal of an element type; infinities and NaN are hexadecimal."""
    if math.isfinite(number):
        digits, sign, exponent = repr(float(number)).partition("e")
        return (digits if "." in digits else f"{digits}.0") + sign + exponent
    if element == "bf16":
        return f"0x{struct.pack('>f', number)[:2].hex().upper()}"
    code = {"f16": ">e", "f32": ">f", "f64": ">d"}[element]
    return f"0x{struct.pack(code, number).hex().upper()}"
