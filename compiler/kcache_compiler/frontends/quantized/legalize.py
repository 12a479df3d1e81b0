"""Replaces the quantized types of a module by storage integers, in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.prescan import is_bytecode
from kcache_compiler.frontends.quantized.constraints import (
    COMBINING,
    COMPUTED,
    CONVERSIONS,
    FORWARDING,
    QUANTIZE_OPS,
    check_operation,
)
from kcache_compiler.frontends.quantized.element import Quantized, quantized
from kcache_compiler.frontends.quantized.emit import QuantizationEmitter
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import OpOperand

    from kcache_compiler.mlir.types import Attribute, Block, Module, Op, Type, Value

_NEGATIVE = re.compile(r"-(\d+)")


@dataclass(frozen=True)
class Boundary:
    """The quantized element type, or None, of each argument and result of the entry function."""

    arguments: tuple[Quantized | None, ...]
    results: tuple[Quantized | None, ...]


def may_be_quantized(source: bytes, module: Module, names: set[str]) -> bool:
    """Return whether a program may have quantized values; ``names`` are the names of its operations.

    The bytes of a portable artifact do not name its types, so its printed types are searched.
    """
    if b"quant" in source or not names.isdisjoint(QUANTIZE_OPS):
        return True
    if not is_bytecode(source):
        return False
    printed = module.operation.get_asm(
        binary=True, large_elements_limit=1, large_resource_limit=1, assume_verified=True
    )
    return b"!quant" in printed


def legalize_quantized(module: Module, entry: Op, names: set[str]) -> Boundary:
    """Replace all quantized types of a module; return those of the entry's arguments and results.

    ``names`` are the names of the operations in the module; those of new operations are added. Raises
    ``InvalidProgram`` for violated constraints, and ``UnsupportedOp``.
    """
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        operations = mlir.all_operations(module.operation)
        quantized_values = _QuantizedValues(operations)
        type = lazy.function_type(entry)
        boundary = Boundary(tuple(map(quantized, type.inputs)), tuple(map(quantized, type.results)))
        if not quantized_values.values and not quantized_values.tuples:
            return boundary
        for operation in operations:
            quantized_values.check(operation)
        rewriter = _QuantizationRewriter(quantized_values.values, names)
        for value, q in quantized_values.values.items():
            value.set_type(rewriter.carrier_type(value.type, q))
        for value in quantized_values.tuples:
            value.set_type(rewriter.converted_type(value.type))
        functions = [operation for operation in operations if operation.name == "func.func"]
        for operation in operations:
            rewriter.rewrite(operation)
        for function in functions:
            rewriter.update_signature(function, function == entry)
    return boundary


class _QuantizedValues:
    """The quantized values of a module, and its tuples with quantized members."""

    def __init__(self, operations: list[Op]) -> None:
        self.values: dict[Value, Quantized] = {}
        self.tuples: list[Value] = []
        self._types: dict[Type, Quantized | None] = {}
        for operation in operations:
            for value in operation.results:
                self._add(value)
            for region in operation.regions:
                for block in region:
                    for value in block.arguments:
                        self._add(value)

    def _add(self, value: Value) -> None:
        type = value.type
        if type not in self._types:
            self._types[type] = quantized(type)
        q = self._types[type]
        if q is not None:
            self.values[value] = q
        elif isinstance(type, mlir.native_ir().TupleType) and "!quant" in str(type):
            self.tuples.append(value)

    def check(self, operation: Op) -> None:
        """Raise for an operation that does not accept quantized values, or violates a constraint on them."""
        values = [value for value in (*operation.operands, *operation.results) if value in self.values]
        if not values:
            return
        name = operation.name
        if name not in COMPUTED | FORWARDING | CONVERSIONS:
            raise UnsupportedOp(
                name, "it does not accept quantized values", mlir.describe_location(operation.location)
            )
        check_operation(operation, self.values)


class _QuantizationRewriter:
    """Rewrites operations in order. New values that hold quantized elements are tracked as well."""

    def __init__(self, values: Mapping[Value, Quantized], names: set[str]) -> None:
        self._native = mlir.native_ir()
        self._values = dict(values)
        self._names = names
        self._special: dict[str, Callable[[Op], None]] = {
            "stablehlo.uniform_quantize": self._uniform_quantize,
            "stablehlo.uniform_dequantize": self._uniform_dequantize,
            "stablehlo.constant": self._constant,
            "stablehlo.bitcast_convert": self._bitcast_convert,
        }

    def carrier_type(self, type: Type, q: Quantized) -> Type:
        """Return the tensor type whose elements are the carrier's integers."""
        return self._emitter_before(None).like(lazy.tensor(type), q.carrier)

    def converted_type(self, type: Type) -> Type:
        """Return the type without quantized elements, also for tuples."""
        native = self._native
        if isinstance(type, native.TupleType):
            members = [self.converted_type(type.get_type(i)) for i in range(type.num_types)]
            return native.TupleType.get_tuple(members)
        q = quantized(type)
        return type if q is None else self.carrier_type(type, q)

    def _emitter_before(self, operation: Op | None) -> QuantizationEmitter:
        native = self._native
        if operation is None:
            return QuantizationEmitter(None, native.Location.unknown(), self._names)
        return QuantizationEmitter(native.InsertionPoint(operation), operation.location, self._names)

    def _emitter_after(self, operation: Op) -> QuantizationEmitter:
        point = self._native.InsertionPoint.after(operation)
        return QuantizationEmitter(point, operation.location, self._names)

    def rewrite(self, operation: Op) -> None:
        """Replace the quantized operands and results of an operation by floats or integers."""
        special = self._special.get(operation.name)
        if special is not None:
            special(operation)
        elif operation.name in COMPUTED:
            self._compute(operation)
        elif operation.name in COMBINING:
            self._requantize_operands(operation)

    def _compute(self, operation: Op) -> None:
        """Apply an operation to dequantized operands and quantize its results."""
        operand_types = [self._values.get(value) for value in operation.operands]
        result_types = [self._values.get(value) for value in operation.results]
        if not any(operand_types) and not any(result_types):
            return
        before = self._emitter_before(operation)
        for index, q in enumerate(operand_types):
            if q is not None:
                operation.operands[index] = before.dequantize(operation.operands[index], q)
        if operation.name == "stablehlo.compare" and "compare_type" in operation.attributes:
            del operation.attributes["compare_type"]
        after = self._emitter_after(operation)
        for result, q in zip(operation.results, result_types, strict=True):
            if q is not None:
                uses = list(result.uses)
                result.set_type(after.like(lazy.tensor_of(result), q.expressed))
                quantized_result = after.quantize(result, q)
                self._values[quantized_result] = q
                _replace_uses(uses, quantized_result)

    def _requantize_operands(self, operation: Op) -> None:
        """Requantize operands whose quantization differs from that of the region's parameters."""
        parameters = list(operation.regions[len(operation.regions) - 1].blocks[0].arguments)
        emitter = self._emitter_before(operation)
        for index, value in enumerate(list(operation.operands)):
            parameter = _parameter_index(operation.name, index, len(parameters))
            source = self._values.get(value)
            target = None if parameter is None else self._values.get(parameters[parameter])
            if source is not None and target is not None and source != target:
                operation.operands[index] = emitter.quantize(emitter.dequantize(value, source), target)

    def _uniform_quantize(self, operation: Op) -> None:
        source, emitter = operation.operands[0], self._emitter_before(operation)
        source_type, target_type = self._values.get(source), self._values[operation.results[0]]
        value = source if source_type is None else emitter.dequantize(source, source_type)
        self._replace(operation, emitter.quantize(value, target_type))

    def _uniform_dequantize(self, operation: Op) -> None:
        source = operation.operands[0]
        self._replace(operation, self._emitter_before(operation).dequantize(source, self._values[source]))

    def _constant(self, operation: Op) -> None:
        q = self._values.get(operation.results[0])
        if q is None:
            return
        emitter, type = self._emitter_before(operation), operation.results[0].type
        value = _carrier_constant(operation.attributes["value"], type, q)
        self._replace(operation, emitter.op("constant", [], type, value=value))

    def _bitcast_convert(self, operation: Op) -> None:
        source, result = operation.operands[0], operation.results[0]
        source_type, result_type = self._values.get(source), self._values.get(result)
        if source_type is not None and source_type.carrier != source_type.storage:
            operation.operands[0] = self._emitter_before(operation).convert(source, source_type.storage)
        if result_type is not None and result_type.carrier != result_type.storage:
            uses, after = list(result.uses), self._emitter_after(operation)
            result.set_type(after.like(lazy.tensor_of(result), result_type.storage))
            carried = after.convert(result, result_type.carrier)
            self._values[carried] = result_type
            _replace_uses(uses, carried)

    def _replace(self, operation: Op, value: Value) -> None:
        # A value that is created next may have the address of the erased result, which identifies it.
        q = self._values.pop(operation.results[0], None)
        if q is not None:
            self._values[value] = q
        operation.results[0].replace_all_uses_with(value)
        operation.erase()

    def update_signature(self, function: Op, is_entry: bool) -> None:
        """Update the type of a function from its block; the entry's buffers have the storage type."""
        native = self._native
        type = lazy.function_type(function)
        inputs, results = [[*map(self.converted_type, types)] for types in (type.inputs, type.results)]
        if is_entry and len(function.regions[0].blocks):
            inputs = self._convert_arguments(
                [*map(quantized, type.inputs)], function.regions[0].blocks[0], inputs
            )
            returned = [op for op in mlir.child_operations(function) if op.name == "func.return"]
            results = self._convert_results([*map(quantized, type.results)], returned, results)
        function.attributes["function_type"] = native.TypeAttr.get(native.FunctionType.get(inputs, results))

    def _convert_arguments(
        self, elements: list[Quantized | None], block: Block, types: list[Type]
    ) -> list[Type]:
        """Give arguments the storage type and convert them to the carrier's type; return the new types."""
        emitter = QuantizationEmitter(
            self._native.InsertionPoint.at_block_begin(block), self._native.Location.unknown(), self._names
        )
        for index, q in enumerate(elements):
            if q is None or q.carrier == q.storage:
                continue
            argument = block.arguments[index]
            uses = list(argument.uses)
            types[index] = emitter.like(lazy.tensor(types[index]), q.storage)
            argument.set_type(types[index])
            _replace_uses(uses, emitter.convert(argument, q.carrier))
        return types

    def _convert_results(
        self, elements: list[Quantized | None], returns: list[Op], types: list[Type]
    ) -> list[Type]:
        """Convert returned values to the storage type; return the new types."""
        for index, q in enumerate(elements):
            if q is None or q.carrier == q.storage:
                continue
            types[index] = self._emitter_before(None).like(lazy.tensor(types[index]), q.storage)
            for operation in returns:
                emitter = self._emitter_before(operation)
                operation.operands[index] = emitter.convert(operation.operands[index], q.storage)
        return types


def _replace_uses(uses: list[OpOperand], value: Value) -> None:
    for use in uses:
        use.owner.operands[use.operand_number] = value


def _carrier_constant(value: Attribute, type: Type, q: Quantized) -> Attribute:
    """Return a constant's value in the carrier's type; its elements are signless, as wide as storage."""
    body = str(value).rpartition(" : ")[0]
    if body.startswith('dense<"0x') and q.width < 8:
        packed = bytes.fromhex(body[len('dense<"0x') : -2])
        mask, sign = (1 << q.width) - 1, 1 << q.width - 1 if q.low < 0 else 0
        body = f'dense<"0x{bytes((((byte & mask) ^ sign) - sign) & 0xFF for byte in packed).hex()}">'
    elif q.storage.startswith("u"):
        body = _NEGATIVE.sub(lambda match: str((1 << q.width) - int(match[1])), body)
    return mlir.native_ir().Attribute.parse(f"{body} : {type}")


def _parameter_index(name: str, index: int, count: int) -> int | None:
    """Return the parameter of the region that receives the elements of an operand, if any."""
    if name in ("stablehlo.reduce", "stablehlo.reduce_window"):
        return index
    if name == "stablehlo.select_and_scatter":
        return 0 if index else None
    half = count // 2
    return index if index < half else index - 1 if index > half else None
