"""One operation as a program: its operands are arguments, its sizes stay what they are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native
from kcache_compiler.types import SMALL

#: Elements of buffers; others are converted at the boundary.
_BUFFERS = frozenset(
    [f"{sign}{width}" for sign in ("i", "ui") for width in (8, 16, 32, 64)]
    + ["i1", "bf16", "f16", "f32", "f64", "complex<f32>", "complex<f64>", *SMALL]
)
_SMALL = re.compile(r"u?i\d+|f\d+E\w+|tf32")
_QUANTIZED = re.compile(r"!quant\.uniform<\w+:(\w+)")
#: Elements of a value that may say a size, and how far back it is made.
_FEW = 64
_DEPTH = 40
_NO_SIZES = frozenset({"func.call", "stablehlo.composite", "stablehlo.custom_call"})


class NotAloneError(Exception):
    """The operation takes or gives what no argument can be."""


@dataclass(frozen=True)
class Alone:
    """A program of one operation; ``others`` are the names of those that make its sizes."""

    text: str
    others: frozenset[str]


def alone(operation: Native) -> Alone:
    """The operation as a module's text. Raises ``NotAloneError``."""
    native = mlir.native_ir()
    with operation.context, native.Location.unknown():
        module = native.Module.create()
        function = native.Operation.create(
            "func.func",
            attributes={"sym_name": native.StringAttr.get("main"), "function_type": _type(native, [], [])},
            regions=1,
            ip=native.InsertionPoint(module.body),
        )
        block = function.regions[0].blocks.append()
        copy = _Copy(native, block)
        made = copy.of(operation)
        results = [copy.wide(result) for result in made.results]
        native.Operation.create("func.return", operands=results, ip=native.InsertionPoint(block))
        arguments = [argument.type for argument in block.arguments]
        function.attributes["function_type"] = _type(native, arguments, [one.type for one in results])
        return Alone(module.operation.get_asm(), frozenset(copy.others - {operation.name}))


def _type(native: Native, arguments: list[Native], results: list[Native]) -> Native:
    return native.TypeAttr.get(native.FunctionType.get(arguments, results))


class _Copy:
    """Copies operations into a block, with what their sizes are made of."""

    def __init__(self, native: Native, block: Native) -> None:
        self.native = native
        self.block = block
        self.others: set[str] = set()
        self._values: dict[Native, Native] = {}

    def of(self, operation: Native, depth: int = 0) -> Native:
        """A copy at the block's end."""
        inner = mlir.all_operations(operation)
        own = {value for child in inner for value in child.results}
        for holder in (operation, *inner):
            own |= {value for region in holder.regions for block in region for value in block.arguments}
        captured = [value for child in inner for value in child.operands if value not in own]
        outside = {value: self._operand(value, depth) for value in (*operation.operands, *captured)}
        copy = operation.operation.clone(ip=self.native.InsertionPoint(self.block))
        for one in (copy, *mlir.all_operations(copy)):
            for index, value in enumerate(list(one.operands)):
                if value in outside:
                    one.operands[index] = outside[value]
        return copy

    def _operand(self, value: Native, depth: int) -> Native:
        if value not in self._values:
            owner = None if isinstance(value.owner, self.native.Block) else value.owner.operation
            if owner is not None and depth < _DEPTH and self._says_sizes(owner, value):
                index = list(owner.results).index(value)
                self._values[value] = self.of(owner, depth + 1).results[index]
                self.others.add(owner.name)
            else:
                self._values[value] = self._argument(value.type)
        return self._values[value]

    def _says_sizes(self, owner: Native, value: Native) -> bool:
        kind = value.type
        if owner.name in _NO_SIZES or list(owner.regions) or not self._is_small(kind):
            return False
        return owner.name == "stablehlo.constant" or "i" in str(kind.element_type).split("<")[0]

    def _is_small(self, kind: Native) -> bool:
        if not isinstance(kind, self.native.RankedTensorType) or not kind.has_static_shape:
            return False
        count = 1
        for size in kind.shape:
            count *= size
        return count <= _FEW

    def _argument(self, kind: Native) -> Native:
        """A new argument; converted where no buffer has such elements."""
        wide = self._widened(kind)
        given = self.block.add_argument(wide or kind, self.native.Location.unknown())
        return given if wide is None else self._converted(given, kind, "uniform_quantize")

    def wide(self, value: Native) -> Native:
        """The value as a result that a buffer can have."""
        kind = self._widened(value.type)
        return value if kind is None else self._converted(value, kind, "uniform_dequantize")

    def _converted(self, value: Native, kind: Native, quantized: str) -> Native:
        op = quantized if "!quant" in f"{value.type}{kind}" else "convert"
        return self.native.Operation.create(
            f"stablehlo.{op}",
            results=[kind],
            operands=[value],
            ip=self.native.InsertionPoint(self.block),
        ).results[0]

    def _widened(self, kind: Native) -> Native | None:
        if not isinstance(kind, self.native.RankedTensorType):
            raise NotAloneError
        element = str(kind.element_type)
        if element in _BUFFERS:
            return None
        quantized = _QUANTIZED.match(element)
        if quantized is None and _SMALL.fullmatch(element) is None:
            raise NotAloneError
        name = quantized[1] if quantized else "i32" if element.startswith(("i", "u")) else "f32"
        shape = "".join(f"{'?' if kind.is_dynamic_dim(i) else kind.shape[i]}x" for i in range(kind.rank))
        return self.native.Type.parse(f"tensor<{shape}{name}>")
