"""Functions as text, with the operands and results of an operation, whose sizes may be dynamic.

Operations are replaced by calls of such functions, or by other operations.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from torch_mlir.ir import RankedTensorType

    from kcache_compiler.mlir.types import Attribute, Module, Op


class FunctionText:
    """Builds the text of a private function. ``names`` and ``types`` are those of its arguments."""

    def __init__(self, name: str, operation: Op) -> None:
        self.name = name
        self.types = [str(value.type) for value in operation.operands]
        self.names = [f"%a{index}" for index in range(len(self.types))]
        self._results = [str(value.type) for value in operation.results]
        self._lines: list[str] = []
        self._value_count = 0
        self._declarations: list[str] = []
        #: The element type of the sizes that were emitted last.
        self._size_element = "i32"

    def function(self, values: Sequence[str]) -> str:
        """Return the text of a function that returns ``values``, and of its declarations."""
        arguments = ", ".join(f"{name}: {type}" for name, type in zip(self.names, self.types, strict=True))
        body = "\n".join(self._lines)
        results = ", ".join(self._results)
        returned = f"return {', '.join(values)} : {results}" if values else "return"
        signature = f'func.func private @"{self.name}"({arguments}) -> ({results})'
        return "\n".join([f"{signature} {{\n{body}\n{returned}\n}}", *self._declarations])

    def emit(self, text: str, count: int = 1) -> list[str]:
        """Add an operation with ``count`` results; return their names."""
        name = f"%v{self._value_count}"
        self._value_count += 1
        self._lines.append(f"{name}:{count} = {text}")
        return [f"{name}#{index}" for index in range(count)]

    def terminate(self, text: str) -> None:
        """Add an operation without results."""
        self._lines.append(text)

    def declare(self, text: str) -> None:
        """Add the declaration of a function of the program."""
        self._declarations.append(text)

    @contextmanager
    def region(self) -> Generator[list[str], None, None]:
        """Collect the operations that this context emits in the returned list, as a region."""
        enclosing, self._lines = self._lines, []
        yield self._lines
        self._lines = enclosing

    def calling_region(
        self, function: str, parameter_types: Sequence[str], result_types: Sequence[str]
    ) -> str:
        """Return a region that calls a function of the program on its parameters."""
        types, results = ", ".join(parameter_types), ", ".join(result_types)
        self.declare(f'func.func private @"{function}"({types}) -> ({results})')
        names = [f"%p{index}" for index in range(len(parameter_types))]
        arguments = ", ".join(f"{name}: {type}" for name, type in zip(names, parameter_types, strict=True))
        returned = ", ".join(f"%r#{index}" for index in range(len(result_types)))
        return (
            f"\n^bb0({arguments}):\n"
            f'%r:{len(result_types)} = func.call @"{function}"({", ".join(names)}) '
            f": ({types}) -> ({results})\n"
            f"stablehlo.return {returned} : {results}\n"
        )

    @staticmethod
    def type(element: str, shape: Sequence[int]) -> str:
        """Return a tensor type; negative sizes are dynamic."""
        return f"tensor<{''.join(f'{size}x' if size >= 0 else '?x' for size in shape)}{element}>"

    def scalar(self, scalar: int, element: str) -> str:
        """Emit a scalar constant."""
        self._size_element = element
        return self.emit(f"stablehlo.constant dense<{scalar}> : tensor<{element}>")[0]

    def sizes(self, name: str, type: RankedTensorType, element: str) -> list[str]:
        """Emit the sizes of a value, each a scalar of ``element``."""
        return [self._size(name, type, axis, element) for axis in range(type.rank)]

    def _size(self, name: str, type: RankedTensorType, axis: int, element: str) -> str:
        self._size_element = element
        if type.shape[axis] >= 0:
            return self.scalar(type.shape[axis], element)
        text = f"stablehlo.get_dimension_size {name}, dim = {axis} : ({type}) -> tensor<i32>"
        (size,) = self.emit(text)
        if element == "i32":
            return size
        return self.emit(f"stablehlo.convert {size} : (tensor<i32>) -> tensor<{element}>")[0]

    def vector(self, scalars: Sequence[str]) -> str:
        """Emit a vector of the sizes ``scalars``."""
        if not scalars:
            return self.emit(f"stablehlo.constant dense<> : tensor<0x{self._size_element}>")[0]
        unit, vector = f"tensor<1x{self._size_element}>", f"tensor<{len(scalars)}x{self._size_element}>"
        vectors = [
            self.emit(f"stablehlo.reshape {scalar} : (tensor<{self._size_element}>) -> {unit}")[0]
            for scalar in scalars
        ]
        types = ", ".join([unit] * len(vectors))
        return self.emit(f"stablehlo.concatenate {', '.join(vectors)}, dim = 0 : ({types}) -> {vector}")[0]

    def iota(self, sizes: Sequence[str], type: RankedTensorType, axis: int, element: str) -> str:
        """Emit the indices along ``axis`` of a value of type ``type``."""
        result = self.type(element, list(type.shape))
        if type.has_static_shape:
            return self.emit(f"stablehlo.iota dim = {axis} : {result}")[0]
        shape = self.vector(sizes)
        signature = f"(tensor<{len(sizes)}x{self._size_element}>) -> {result}"
        return self.emit(f"stablehlo.dynamic_iota {shape}, dim = {axis} : {signature}")[0]

    def leading_slice(self, value: str, type: str, sizes: Sequence[str], result: str) -> str:
        """Emit the first ``sizes`` elements along each axis of a value of type ``type``."""
        vector = f"tensor<{len(sizes)}x{self._size_element}>"
        zeros, ones = (self.emit(f"stablehlo.constant dense<{n}> : {vector}")[0] for n in (0, 1))
        limits = self.vector(sizes)
        signature = f"({type}, {vector}, {vector}, {vector}) -> {result}"
        return self.emit(f'"stablehlo.real_dynamic_slice"({value}, {zeros}, {limits}, {ones}) : {signature}')[
            0
        ]


def replace_operation(operation: Op, name: str, attributes: dict[str, Attribute]) -> None:
    """Replace an operation by one called ``name`` with the same operands and result types."""
    native = mlir.native_ir()
    new = native.Operation.create(
        name,
        results=[result.type for result in operation.results],
        operands=list(operation.operands),
        attributes=attributes,
        loc=operation.location,
        ip=native.InsertionPoint(operation),
    )
    _replace_results(operation, new)


def replace_by_call(module: Module, operation: Op, name: str, definition: str) -> None:
    """Replace an operation by a call of the function ``name``, the first one in the text ``definition``.

    The current context and location must be set. The function is appended to ``module``.
    """
    native = mlir.native_ir()
    parsed = native.Module.parse(definition)
    module.body.append(next(iter(parsed.body.operations)).operation.clone())
    types = [result.type for result in operation.results]
    with native.InsertionPoint(operation):
        call = mlir.native_func().CallOp(types, name, list(operation.operands)).operation
    _replace_results(operation, call)


def _replace_results(operation: Op, new: Op) -> None:
    for old_result, new_result in zip(operation.results, new.results, strict=True):
        old_result.replace_all_uses_with(new_result)
    operation.erase()
