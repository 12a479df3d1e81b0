"""Lowers ``chlo.scan`` with dynamic sizes to a while loop over slices.

The toolchain's own legalization writes reshapes to dynamic shapes, which StableHLO does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.stablehlo.function_text import FunctionText, replace_by_call
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import RankedTensorType

    from kcache_compiler.mlir.types import Module, Op


def lower_dynamic_scans(module: Module, operations: list[Op]) -> None:
    """Replace each scan with dynamic sizes by a call of a function with a loop."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for index, operation in enumerate(operations):
            values = (*operation.operands, *operation.results)
            if all(lazy.tensor_of(value).has_static_shape for value in values):
                continue
            scan = _ScanLowering.read(operation, FunctionText(f"kcache.scan.{index}", operation))
            definition = scan.definition()
            _outline_body(module, operation, scan.step)
            replace_by_call(module, operation, scan.text.name, definition)


def _outline_body(module: Module, operation: Op, name: str) -> None:
    """Move the region of a scan to a private function called ``name``."""
    native = mlir.native_ir()
    block = operation.regions[0].blocks[0]
    terminator = list(block.operations)[-1]
    results = list(terminator.operands)
    types = (
        [lazy.tensor_of(argument) for argument in block.arguments],
        [lazy.tensor_of(result) for result in results],
    )
    func, at_end = mlir.native_func(), native.InsertionPoint(module.body)
    function = func.FuncOp(name, native.FunctionType.get(*types), visibility="private", ip=at_end)
    with native.InsertionPoint(terminator):
        func.return_(results)
    terminator.operation.erase()
    block.append_to(function.regions[0])


def _zero(element: str) -> str:
    if element == "i1":
        return "false"
    if element.startswith("complex"):
        return "(0.0, 0.0)"
    return "0" if element.startswith(("i", "ui")) else "0.0"


@dataclass
class _ScanLowering:
    """A scan of the first ``inputs`` arguments along ``axis``; the other arguments are carried."""

    text: FunctionText
    step: str
    arguments: list[RankedTensorType]
    results: list[RankedTensorType]
    #: Operand and result types of the step.
    step_inputs: list[RankedTensorType]
    step_outputs: list[RankedTensorType]
    inputs: int
    axis: int
    reverse: bool
    #: The values that are sliced.
    sources: list[str] = field(default_factory=list[str])

    @staticmethod
    def read(operation: Op, text: FunctionText) -> _ScanLowering:
        """Return the description of an operation. Raises ``UnsupportedOp`` for scans without inputs."""
        native = mlir.native_ir()
        attributes = operation.attributes
        inputs: int = next(iter(lazy.integers(attributes["operandSegmentSizes"])))
        axis = native.IntegerAttr(attributes["dimension"]).value
        block = operation.regions[0].blocks[0]
        reverse = "is_reverse" in attributes and lazy.boolean(attributes["is_reverse"])
        if not inputs:
            location = mlir.describe_location(operation.location)
            raise UnsupportedOp("chlo.scan", "a scan with dynamic sizes needs an input", location)
        arguments = [lazy.tensor_of(operand) for operand in operation.operands]
        results = [lazy.tensor_of(result) for result in operation.results]
        step_inputs = [lazy.tensor_of(argument) for argument in block.arguments]
        step_outputs = [lazy.tensor_of(operand) for operand in list(block.operations)[-1].operands]
        step = f"{text.name}.step"
        return _ScanLowering(
            text, step, arguments, results, step_inputs, step_outputs, inputs, axis, bool(reverse)
        )

    def definition(self) -> str:
        """Return the text of the function, and of the declaration of its step."""
        text, count = self.text, self.inputs
        sizes = [text.sizes(text.names[index], self.arguments[index], "i32") for index in range(count)]
        stacked = self.results[: len(self.results) - (len(self.arguments) - count)]
        shapes = [self._shape(type, sizes) for type in stacked]
        zero, one = text.scalar(0, "i32"), text.scalar(1, "i32")
        trip_count = sizes[0][self.axis]
        length = trip_count
        if self._may_be_empty:
            length = text.emit(f"stablehlo.add {trip_count}, {one} : tensor<i32>")[0]
        for shape in shapes:
            shape[self.axis] = length
        outputs = [self._zeros(type, shape) for type, shape in zip(stacked, shapes, strict=True)]
        self.sources = [self._padded_input(index) for index in range(count)]
        last = text.emit(f"stablehlo.subtract {trip_count}, {one} : tensor<i32>")[0]
        types = ["tensor<i32>", *map(str, stacked), *map(str, self.arguments[count:])]
        names = [f"%l{index}" for index in range(len(types))]
        body = self._body(names, types, sizes, shapes, (zero, one, last))
        initial = [zero, *outputs, *text.names[count:]]
        results = self._loop(names, types, initial, trip_count, body)[1:]
        if self._may_be_empty:
            for index, (type, shape) in enumerate(zip(stacked, shapes, strict=True)):
                cut = [trip_count if axis == self.axis else size for axis, size in enumerate(shape)]
                results[index] = text.leading_slice(results[index], str(type), cut, str(type))
        return text.function(results)

    def _body(
        self,
        names: list[str],
        types: list[str],
        sizes: list[list[str]],
        shapes: list[list[str]],
        scalars: tuple[str, str, str],
    ) -> str:
        """Return the text of an iteration: slices of the inputs, a call of the step, updates of the outputs.

        ``names`` and ``types`` are the loop's values: the counter, the stacked outputs, the carried values.
        ``scalars`` are 0, 1 and the last index.
        """
        text = self.text
        zero, one, last = scalars
        stacked = self.results[: len(shapes)]
        with text.region() as lines:
            index = names[0]
            if self.reverse:
                index = text.emit(f"stablehlo.subtract {last}, {index} : tensor<i32>")[0]
            slices = [
                self._slice_of(number, sizes[number], index, zero, one) for number in range(self.inputs)
            ]
            values = self._call_step([*slices, *names[1 + len(stacked) :]])
            updates = [
                self._update(output, type, shape, value, str(slice_type), index, zero, one)
                for output, type, shape, value, slice_type in zip(
                    names[1:], stacked, shapes, values, self.step_outputs, strict=False
                )
            ]
            counter = text.emit(f"stablehlo.add {names[0]}, {one} : tensor<i32>")[0]
            returned = ", ".join([counter, *updates, *values[len(stacked) :]])
            text.terminate(f"stablehlo.return {returned} : {', '.join(types)}")
        return "\n".join(lines)

    def _loop(
        self, names: list[str], types: list[str], initial: list[str], trip_count: str, body: str
    ) -> list[str]:
        """Emit the while loop; return the names of its results."""
        parameters = ", ".join(f"{name}: {type}" for name, type in zip(names, types, strict=True))
        condition = (
            f"^bb0({parameters}):\n"
            f"%go = stablehlo.compare LT, {names[0]}, {trip_count} : (tensor<i32>, tensor<i32>) -> tensor<i1>"
            "\nstablehlo.return %go : tensor<i1>"
        )
        listed = ", ".join(types)
        return self.text.emit(
            f'"stablehlo.while"({", ".join(initial)}) ({{\n{condition}\n}}, '
            f"{{\n^bb0({parameters}):\n{body}\n}}) : ({listed}) -> ({listed})",
            len(types),
        )

    @property
    def _may_be_empty(self) -> bool:
        """Whether the trip count may be 0: arrays then get one more element, which slices of one need."""
        return self.arguments[0].shape[self.axis] < 0

    def _padded_input(self, scalar: int) -> str:
        """Emit an input, padded by one element if the scan may be empty."""
        if not self._may_be_empty:
            return self.text.names[scalar]
        type = self.arguments[scalar]
        element = str(type.element_type)
        filler = self.text.emit(f"stablehlo.constant dense<{_zero(element)}> : tensor<{element}>")[0]
        zeros, high = [0] * type.rank, [int(axis == self.axis) for axis in range(type.rank)]
        edges = f"low = {zeros}, high = {high}, interior = {zeros}"
        signature = f"({type}, tensor<{element}>) -> {type}"
        return self.text.emit(f"stablehlo.pad {self.text.names[scalar]}, {filler}, {edges} : {signature}")[0]

    def _shape(self, type: RankedTensorType, sizes: list[list[str]]) -> list[str]:
        """Return the sizes of a stacked result, each a constant or the size of an input."""
        shape: list[str] = []
        for axis, size in enumerate(type.shape):
            matching = (
                input_sizes[axis]
                for input_sizes, argument in zip(sizes, self.arguments, strict=False)
                if argument.rank == type.rank and argument.shape[axis] < 0
            )
            source = sizes[0][self.axis] if axis == self.axis else next(matching, "")
            if size < 0 and not source:
                raise UnsupportedOp("chlo.scan", "a dynamic size of its result is not the size of an input")
            shape.append(source if size < 0 else self.text.scalar(size, "i32"))
        return shape

    def _zeros(self, type: RankedTensorType, shape: list[str]) -> str:
        """Emit a tensor of zeros with the sizes ``shape``."""
        element = str(type.element_type)
        zero = self.text.emit(f"stablehlo.constant dense<{_zero(element)}> : tensor<{element}>")[0]
        sizes = self.text.vector(shape)
        signature = f"(tensor<{element}>, tensor<{len(shape)}xi32>) -> {type}"
        return self.text.emit(f"stablehlo.dynamic_broadcast_in_dim {zero}, {sizes}, dims = [] : {signature}")[
            0
        ]

    def _slice_of(self, scalar: int, sizes: list[str], index: str, zero: str, one: str) -> str:
        """Emit the slice of input ``number`` at ``index``, with the shape that the step expects."""
        text, type = self.text, self.arguments[scalar]
        starts = text.vector([index if axis == self.axis else zero for axis in range(type.rank)])
        shape = text.vector([one if axis == self.axis else size for axis, size in enumerate(sizes)])
        vector = f"tensor<{type.rank}xi32>"
        limits = text.emit(f"stablehlo.add {starts}, {shape} : {vector}")[0]
        strides = text.emit(f"stablehlo.constant dense<1> : {vector}")[0]
        slice_shape = [1 if axis == self.axis else size for axis, size in enumerate(type.shape)]
        slice_type = text.type(str(type.element_type), slice_shape)
        operands = f"{self.sources[scalar]}, {starts}, {limits}, {strides}"
        signature = f"({type}, {vector}, {vector}, {vector}) -> {slice_type}"
        (value,) = text.emit(f'"stablehlo.real_dynamic_slice"({operands}) : {signature}')
        remaining = [size for axis, size in enumerate(sizes) if axis != self.axis]
        return self._reshape(value, slice_type, self.step_inputs[scalar], remaining)

    def _reshape(self, value: str, type: str, result: RankedTensorType, sizes: list[str]) -> str:
        """Emit a reshape of ``value``, of type ``type``, to the type ``result`` with ``sizes``."""
        if result.has_static_shape:
            return self.text.emit(f"stablehlo.reshape {value} : ({type}) -> {result}")[0]
        shape = self.text.vector(sizes)
        signature = f"({type}, tensor<{len(sizes)}xi32>) -> {result}"
        return self.text.emit(f"stablehlo.dynamic_reshape {value}, {shape} : {signature}")[0]

    def _call_step(self, operands: list[str]) -> list[str]:
        """Emit a call of the step."""
        inputs, outputs = ", ".join(map(str, self.step_inputs)), ", ".join(map(str, self.step_outputs))
        self.text.declare(f'func.func private @"{self.step}"({inputs}) -> ({outputs})')
        call = f'func.call @"{self.step}"({", ".join(operands)}) : ({inputs}) -> ({outputs})'
        return self.text.emit(call, len(self.step_outputs))

    def _update(
        self,
        output: str,
        type: RankedTensorType,
        shape: list[str],
        value: str,
        slice_type: str,
        index: str,
        zero: str,
        one: str,
    ) -> str:
        """Emit ``output`` with ``value`` at ``index``."""
        native = mlir.native_ir()
        sizes = [1 if axis == self.axis else size for axis, size in enumerate(type.shape)]
        update_type = native.RankedTensorType(
            native.Type.parse(self.text.type(str(type.element_type), sizes))
        )
        slice_sizes = [one if axis == self.axis else size for axis, size in enumerate(shape)]
        update = self._reshape(value, slice_type, update_type, slice_sizes)
        starts = [index if axis == self.axis else zero for axis in range(type.rank)]
        signature = ", ".join([str(type), str(update_type), *["tensor<i32>"] * type.rank])
        operands = ", ".join([output, update, *starts])
        return self.text.emit(f'"stablehlo.dynamic_update_slice"({operands}) : ({signature}) -> {type}')[0]
