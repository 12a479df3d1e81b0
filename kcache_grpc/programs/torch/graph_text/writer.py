"""Writes one function of a program: the operations of a list of nodes, in MLIR's generic form.

Operations and types are those of the Torch dialect.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from kcache_grpc.errors import ArgumentError, UnsupportedOp

torch: Any = import_module("torch")

Node = Any
#: An SSA value and its type.
Value = tuple[str, str]

_INT, _FLOAT, _BOOL, _NONE, _STR = "!torch.int", "!torch.float", "!torch.bool", "!torch.none", "!torch.str"
aten: Any = torch.ops.aten
#: Written by ``scripts/generate_torch_operations.py``: a name a line; "+" before those that torch-mlir does
#: not define and that the service lowers all the same.
_FILE = Path(__file__).with_name("torch_operations.txt")
#: Overloads that take a tensor and are called with a scalar -> the overload for scalars.
_SCALAR = {
    "torch.aten.mul.Tensor": aten.mul.Scalar,
    "torch.aten.div.Tensor": aten.div.Scalar,
    "torch.aten.add.Tensor": aten.add.Scalar,
    "torch.aten.sub.Tensor": aten.sub.Scalar,
}
#: Element types of tensors; signs are those of the Torch dialect.
ELEMENT_TYPES: dict[Any, str] = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.uint8: "ui8",
    torch.int8: "si8",
    torch.int16: "si16",
    torch.int32: "si32",
    torch.int64: "si64",
    torch.bool: "i1",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fn: "f8E4M3FN",
}
#: ``c10::ScalarType``, ``c10::Layout`` and ``c10::MemoryFormat``, as schemas pass them.
NUMBERS: dict[Any, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.strided: 0,
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


class FunctionWriter:
    """Writes the operations of nodes, whose sizes ``size`` evaluates."""

    def __init__(self, size: Callable[[Any], int | float | bool]) -> None:
        self._size = size
        self._lines: list[str] = []
        self._values: dict[Node, Value] = {}
        self._results: dict[Node, list[Value]] = {}
        self._constants: dict[tuple[str, str], Value] = {}
        self._count = 0
        self._parameters: list[str] = []

    @property
    def lines(self) -> int:
        """The number of lines of the function's body so far."""
        return len(self._lines)

    def parameter(self, node: Node, order: Sequence[int] | None) -> None:
        """A parameter for a tensor, whose axes come in ``order``."""
        value = node.meta["val"]
        sizes = self._sizes(value)
        permuted = sizes if order is None else [sizes[axis] for axis in order]
        kind = tensor_type(permuted, value.dtype)
        name = f"%arg{len(self._parameters)}"
        self._parameters.append(f"{name}: {kind}")
        argument = (name, kind)
        if order is not None:
            inverse = sorted(range(len(order)), key=order.__getitem__)
            argument = self._permute(argument, inverse, tensor_type(sizes, value.dtype))
        self._values[node] = argument

    def text(self, name: str, outputs: Sequence[Node], orders: Sequence[Sequence[int] | None]) -> str:
        """The function, which returns ``outputs`` with their axes in ``orders``."""
        results = [self._output(node, order) for node, order in zip(outputs, orders, strict=True)]
        types = ", ".join(kind for _, kind in results)
        names = ", ".join(value for value, _ in results)
        body = "\n".join(f"    {line}" for line in self._lines)
        signature = f"{', '.join(self._parameters)}) -> ({types})"
        return f"  func.func @{name}({signature} {{\n{body}\n    func.return {names} : {types}\n  }}\n"

    def _output(self, node: Node, order: Sequence[int] | None) -> Value:
        value = self._values[node]
        if order is None:
            return value
        tensor = node.meta["val"]
        sizes = self._sizes(tensor)
        return self._permute(value, order, tensor_type([sizes[axis] for axis in order], tensor.dtype))

    def _permute(self, value: Value, order: Sequence[int], kind: str) -> Value:
        axes = self._list([self._constant(axis, "int") for axis in order], "!torch.list<int>")
        return self._operation("torch.aten.permute", [value, axes], [kind])[0]

    def write(self, node: Node) -> None:
        """The operations of a node. Raises ``UnsupportedOp``, ``ArgumentError``."""
        if node.target is operator.getitem:
            self._values[node] = self._element(node.args[0], node.args[1])
            return
        overload = overload_of(node)
        schema = overload._schema
        operands: list[Value] = []
        for position, parameter in enumerate(schema.arguments):
            if position < len(node.args):
                argument = node.args[position]
            else:
                argument = node.kwargs.get(parameter.name, parameter.default_value)
            operands.append(self._argument(argument, str(parameter.real_type), node))
        self._bind(node, operation_name(schema), operands, len(schema.returns))

    def _bind(self, node: Node, name: str, operands: Sequence[Value], returns: int) -> None:
        value = node.meta["val"]
        if returns == 1 and isinstance(value, (list, tuple)):
            [packed] = self._operation(name, operands, ["!torch.list<vtensor>"])
            kinds = [self._type(tensor) for tensor in cast("Sequence[Any]", value)]
            self._results[node] = self._operation("torch.prim.ListUnpack", [packed], kinds)
        elif returns == 1:
            [self._values[node]] = self._operation(name, operands, [self._type(value)])
        else:
            self._results[node] = self._operation(name, operands, [self._type(tensor) for tensor in value])

    def _element(self, node: Node, index: int) -> Value:
        return self._results[node][index]

    def _sizes(self, tensor: Any) -> list[int]:
        return [size if type(size) is int else int(self._size(size)) for size in tensor.shape]

    def _type(self, tensor: Any) -> str:
        if tensor is None:
            return _NONE
        return tensor_type(self._sizes(tensor), tensor.dtype)

    def _operation(self, name: str, operands: Sequence[Value], kinds: Sequence[str]) -> list[Value]:
        results = [(f"%{self._count + index}", kind) for index, kind in enumerate(kinds)]
        self._count += len(kinds)
        attributes = ""
        if not is_defined(name) and not name.startswith("torch.prim."):
            attributes, name = f' {{name = "{name}"}}', "torch.operator"
        values = ", ".join(value for value, _ in operands)
        types = ", ".join(kind for _, kind in operands)
        outputs = ", ".join(value for value, _ in results)
        self._lines.append(f'{outputs} = "{name}"({values}){attributes} : ({types}) -> ({", ".join(kinds)})')
        return results

    def _argument(self, argument: Any, kind: str, node: Node) -> Value:
        """An operand of the type that a schema names, such as ``Optional[List[int]]``."""
        if kind.startswith("Optional["):
            if argument is None:
                return self._constant(None, "")
            kind = kind[len("Optional[") : -1]
        if kind.startswith("List["):
            return self._sequence(argument, kind[len("List[") : -1], node)
        if isinstance(argument, torch.fx.Node):
            known = self._values.get(argument)
            if known is not None:
                return known
            argument = self._scalar(argument)
        if kind == "Tensor":
            return self._tensor(argument, node)
        return self._constant(argument, kind)

    def _scalar(self, node: Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) or value is None:
            raise ArgumentError(f"the program reads {node.name}, which is no part of it")
        return value if isinstance(value, (bool, int, float)) else self._size(value)

    def _tensor(self, argument: Any, node: Node) -> Value:
        if argument is None:
            return self._constant(None, "")
        if not isinstance(argument, (bool, int, float)):
            raise UnsupportedOp(
                f"unsupported op torch.{node.target}: an operand is a {type(argument).__name__}",
                op=f"torch.{node.target}",
            )
        dtype = torch.tensor(argument).dtype
        constant = self._constant(argument, "number")
        return self._operation("torch.prim.NumToTensor.Scalar", [constant], [tensor_type((), dtype)])[0]

    def _sequence(self, argument: Any, kind: str, node: Node) -> Value:
        if isinstance(argument, (int, float)):  # a schema such as int[2] takes one number for all
            raise UnsupportedOp(
                f"unsupported op torch.{node.target}: an operand is a number in place of a list",
                op=f"torch.{node.target}",
            )
        elements = [self._argument(element, kind, node) for element in cast("Sequence[Any]", argument)]
        inner = kind.removeprefix("Optional[").removesuffix("]")
        name = {"Tensor": "vtensor", "SymInt": "int", "number": "Scalar"}.get(inner, inner)
        if name not in ("vtensor", "int", "float", "bool", "str"):
            raise UnsupportedOp(
                f"unsupported op torch.{node.target}: an operand is a list of {kind}",
                op=f"torch.{node.target}",
            )
        return self._list(elements, f"!torch.list<{f'optional<{name}>' if inner != kind else name}>")

    def _list(self, elements: Sequence[Value], kind: str) -> Value:
        return self._operation("torch.prim.ListConstruct", elements, [kind])[0]

    def _constant(self, value: Any, kind: str) -> Value:
        """A constant of a schema's type; values of PyTorch's enumerations are numbers."""
        value = NUMBERS.get(value, value) if _is_enumerator(value) else value
        if kind == "float" and isinstance(value, int):
            value = float(value)
        attribute, operation, result = _literal(value, kind)
        known = self._constants.get((operation, attribute))
        if known is None:
            name = f"%{self._count}"
            self._count += 1
            text = f" {{value = {attribute}}}" if attribute else ""
            self._lines.append(f'{name} = "torch.constant.{operation}"(){text} : () -> {result}')
            known = self._constants[operation, attribute] = (name, result)
        return known


def _is_enumerator(value: Any) -> bool:
    return isinstance(value, (torch.dtype, torch.layout, torch.memory_format))


def _literal(value: Any, kind: str) -> tuple[str, str, str]:
    """Attribute, operation and type of a constant."""
    if value is None:
        return "", "none", _NONE
    if isinstance(value, torch.device) or kind == "Device":
        return json.dumps(str(value)), "device", "!torch.Device"
    if isinstance(value, bool) and kind in ("bool", ""):
        return ("true" if value else "false"), "bool", _BOOL
    if isinstance(value, int):
        return f"{int(value)} : i64", "int", _INT
    if isinstance(value, float):
        return f"{_float(value)} : f64", "float", _FLOAT
    if isinstance(value, str):
        return json.dumps(value), "str", _STR
    raise ArgumentError(f"a constant of the program is a {type(value).__name__}: {value!r}")


def _float(value: float) -> str:
    if math.isfinite(value):
        return format(value, ".17e")
    return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"


@functools.cache
def _names() -> tuple[frozenset[str], frozenset[str]]:
    lines = _FILE.read_text().splitlines()
    return (
        frozenset(f"torch.{line}" for line in lines if not line.startswith("+")),
        frozenset(f"torch.{line[1:]}" for line in lines if line.startswith("+")),
    )


def operation_name(schema: Any) -> str:
    """The dialect's name of an operator, such as ``torch.aten.add.Tensor``."""
    name = f"torch.{schema.name.replace('::', '.')}"
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def is_defined(name: str) -> bool:
    """Whether the dialect defines an operation; others are written as ``torch.operator``."""
    return name in _names()[0]


def is_known(name: str) -> bool:
    """Whether the service may lower an operation."""
    defined, lowered = _names()
    return name in defined or name in lowered


def overload_of(node: Any) -> Any:
    """The overload that is written for a node: that for scalars where PyTorch traced that for tensors."""
    target = node.target
    if target is aten.lift_fresh_copy.default:
        return aten.clone.default
    if target is aten._unsafe_index_put.default:
        return aten.index_put.default
    if target is aten.squeeze.dims and all(axis >= 0 for axis in node.args[1]):
        return torch.ops.prims.squeeze.default
    scalar = _SCALAR.get(operation_name(target._schema))
    if scalar is not None and len(node.args) > 1 and _is_scalar(node.args[1]):
        return scalar
    return target


def _is_scalar(value: Any) -> bool:
    if isinstance(value, torch.fx.Node):
        return not isinstance(value.meta.get("val"), torch.Tensor)
    return isinstance(value, (bool, int, float, complex))


def tensor_type(sizes: Sequence[int], dtype: Any) -> str:
    """Such as ``!torch.vtensor<[2,3],f32>``."""
    return f"!torch.vtensor<[{','.join(map(str, sizes))}],{ELEMENT_TYPES[dtype]}>"
