"""One operation as a separate program: its operands become arguments, but sizes are still computed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kcache_compiler.mlir import context as mlir
from kcache_compiler.types import SMALL

if TYPE_CHECKING:
    from torch_mlir import ir

#: Element types of buffers; others are converted at the boundary.
_BUFFER_TYPES = frozenset(
    [f"{sign}{width}" for sign in ("i", "ui") for width in (8, 16, 32, 64)]
    + ["i1", "bf16", "f16", "f32", "f64", "complex<f32>", "complex<f64>", *SMALL]
)
_NARROW_TYPE = re.compile(r"u?i\d+|f\d+E\w+|tf32")
_QUANTIZED = re.compile(r"!quant\.uniform<\w+:(\w+)")
#: Most elements of a value that may hold sizes, and most operations in a chain that computes it.
_MAX_ELEMENTS = 64
_MAX_DEPTH = 40
_NOT_CLONED = frozenset({"func.call", "stablehlo.composite", "stablehlo.custom_call"})


class NotExtractableError(Exception):
    """An operand or a result of the operation cannot be an argument or a result of a kernel."""


@dataclass(frozen=True)
class SingleOperation:
    """The module of one operation, and the names of the operations in it that compute sizes."""

    text: str
    size_operations: frozenset[str]


def single_operation(operation: ir.Operation) -> SingleOperation:
    """Return an operation as the text of a module. Raises ``NotExtractableError``."""
    native = mlir.native_ir()
    with operation.context, native.Location.unknown():
        module = native.Module.create()
        func, at_end = mlir.native_func(), native.InsertionPoint(module.body)
        function = func.FuncOp("main", native.FunctionType.get([], []), ip=at_end)
        block = function.regions[0].blocks.append()
        extractor = _Extractor(block)
        clone = extractor.clone(operation)
        results = [extractor.as_result(result) for result in clone.results]
        with native.InsertionPoint(block):
            func.return_(results)
        arguments = [argument.type for argument in block.arguments]
        kind = native.FunctionType.get(arguments, [result.type for result in results])
        function.attributes["function_type"] = native.TypeAttr.get(kind)
        return SingleOperation(
            module.operation.get_asm(), frozenset(extractor.size_operations - {operation.name})
        )


class _Extractor:
    """Clones operations into a block, with the operations that compute their sizes."""

    def __init__(self, block: ir.Block) -> None:
        self.native = mlir.native_ir()
        self.block = block
        self.size_operations: set[str] = set()
        self._values: dict[ir.Value, ir.Value] = {}

    def clone(self, operation: ir.Operation, depth: int = 0) -> ir.Operation:
        """Append a clone to the block and return it."""
        inner = mlir.all_operations(operation)
        own = {value for child in inner for value in child.results}
        for parent in (operation, *inner):
            own |= {value for region in parent.regions for block in region for value in block.arguments}
        captured = [value for child in inner for value in child.operands if value not in own]
        outside = {value: self._operand(value, depth) for value in (*operation.operands, *captured)}
        copy = operation.operation.clone(ip=self.native.InsertionPoint(self.block))
        for cloned in (copy, *mlir.all_operations(copy)):
            for index, value in enumerate(list(cloned.operands)):
                if value in outside:
                    cloned.operands[index] = outside[value]
        return copy

    def _operand(self, value: ir.Value, depth: int) -> ir.Value:
        if value not in self._values:
            is_argument = isinstance(value.owner, self.native.Block)
            owner = None if is_argument else cast("ir.Operation", value.owner).operation
            if owner is not None and depth < _MAX_DEPTH and self._may_hold_sizes(owner, value):
                index = list(owner.results).index(value)
                self._values[value] = self.clone(owner, depth + 1).results[index]
                self.size_operations.add(owner.name)
            else:
                self._values[value] = self._argument(value.type)
        return self._values[value]

    def _may_hold_sizes(self, owner: ir.Operation, value: ir.Value) -> bool:
        kind = self._tensor(value.type)
        if owner.name in _NOT_CLONED or len(owner.regions) or kind is None or not _is_small(kind):
            return False
        return owner.name == "stablehlo.constant" or "i" in str(kind.element_type).split("<")[0]

    def _tensor(self, kind: ir.Type) -> ir.RankedTensorType | None:
        return kind if isinstance(kind, self.native.RankedTensorType) else None

    def _argument(self, kind: ir.Type) -> ir.Value:
        """A new argument; one of a buffer type is converted if the operand has another type."""
        buffer_type = self._buffer_type(kind)
        argument = self.block.add_argument(buffer_type or kind, self.native.Location.unknown())
        return argument if buffer_type is None else self._convert(argument, kind, "uniform_quantize")

    def as_result(self, value: ir.Value) -> ir.Value:
        """Return a value converted to a buffer type."""
        kind = self._buffer_type(value.type)
        return value if kind is None else self._convert(value, kind, "uniform_dequantize")

    def _convert(self, value: ir.Value, kind: ir.Type, quantized: str) -> ir.Value:
        op = quantized if "!quant" in f"{value.type}{kind}" else "convert"
        return self.native.Operation.create(
            f"stablehlo.{op}",
            results=[kind],
            operands=[value],
            ip=self.native.InsertionPoint(self.block),
        ).results[0]

    def _buffer_type(self, kind: ir.Type) -> ir.Type | None:
        tensor = self._tensor(kind)
        if tensor is None:
            raise NotExtractableError
        element = str(tensor.element_type)
        if element in _BUFFER_TYPES:
            return None
        quantized = _QUANTIZED.match(element)
        if quantized is None and _NARROW_TYPE.fullmatch(element) is None:
            raise NotExtractableError
        name = quantized[1] if quantized else "i32" if element.startswith(("i", "u")) else "f32"
        shape = "".join(
            f"{'?' if tensor.is_dynamic_dim(i) else tensor.shape[i]}x" for i in range(tensor.rank)
        )
        return self.native.Type.parse(f"tensor<{shape}{name}>")


def _is_small(kind: ir.RankedTensorType) -> bool:
    return kind.has_static_shape and math.prod(kind.shape) <= _MAX_ELEMENTS
