"""A module with quantized types to one with storage integers, in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.prescan import is_bytecode
from kcache_compiler.frontends.quantized.constraints import check_operation
from kcache_compiler.frontends.quantized.element import Quantized, quantized
from kcache_compiler.frontends.quantized.emit import Emitter
from kcache_compiler.frontends.quantized.operations import COMBINING, COMPUTED, CONVERSIONS, CONVERTS, MOVED
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_NEGATIVE = re.compile(r"-(\d+)")


@dataclass(frozen=True)
class Boundary:
    """Of each argument and result of the entry, what its integers stand for, or None."""

    arguments: tuple[Quantized | None, ...]
    results: tuple[Quantized | None, ...]


def may_be_quantized(source: bytes, module: Native, names: set[str]) -> bool:
    """Whether a program may have quantized values; ``names`` are its operations.

    The types of a portable artifact have no names in its bytes: they are looked for as they are printed.
    """
    if b"quant" in source or not names.isdisjoint(CONVERTS):
        return True
    if not is_bytecode(source):
        return False
    printed: bytes = module.operation.get_asm(
        binary=True, large_elements_limit=1, large_resource_limit=1, assume_verified=True
    )
    return b"!quant" in printed


def legalize_quantized(module: Native, entry: Native, names: set[str]) -> Boundary:
    """Replace all quantized types; ``names`` are the operations that occur, and grows.

    Raises ``InvalidProgram`` for constraints that are broken, and ``UnsupportedOp``.
    """
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        operations = mlir.all_operations(module.operation)
        found = _Found(operations)
        kind = native.FunctionType(entry.attributes["function_type"].value)
        boundary = Boundary(tuple(map(quantized, kind.inputs)), tuple(map(quantized, kind.results)))
        if not found.values and not found.tuples:
            return boundary
        for operation in operations:
            found.check(operation)
        rewriter = _Rewriter(native, found.values, names)
        for value, q in found.values.items():
            value.set_type(rewriter.carried(value.type, q))
        for value in found.tuples:
            value.set_type(rewriter.converted(value.type))
        functions = [operation for operation in operations if operation.name == "func.func"]
        for operation in operations:
            rewriter.rewrite(operation)
        for function in functions:
            rewriter.sign(function, function == entry)
    return boundary


class _Found:
    """The quantized values of a module."""

    def __init__(self, operations: list[Native]) -> None:
        self.values: dict[Native, Quantized] = {}
        self.tuples: list[Native] = []
        self._types: dict[Native, Quantized | None] = {}
        for operation in operations:
            for value in operation.results:
                self._look(value)
            for region in operation.regions:
                for block in region:
                    for value in block.arguments:
                        self._look(value)

    def _look(self, value: Native) -> None:
        type = value.type
        if type not in self._types:
            self._types[type] = quantized(type)
        q = self._types[type]
        if q is not None:
            self.values[value] = q
        elif isinstance(type, mlir.native_ir().TupleType) and "!quant" in str(type):
            self.tuples.append(value)

    def check(self, operation: Native) -> None:
        """Raise for an operation that takes no quantized values, or breaks a constraint on them."""
        touched = [value for value in (*operation.operands, *operation.results) if value in self.values]
        if not touched:
            return
        name = operation.name
        if name not in COMPUTED | MOVED | CONVERSIONS:
            raise UnsupportedOp(
                name, "it takes no quantized values", mlir.describe_location(operation.location)
            )
        check_operation(operation, self.values)


class _Rewriter:
    """Rewrites operations in their order; what stands for a value is a quantized value too."""

    def __init__(self, native: Native, values: Mapping[Native, Quantized], names: set[str]) -> None:
        self._native = native
        self._values = dict(values)
        self._names = names
        self._special: dict[str, Callable[[Native], None]] = {
            "stablehlo.uniform_quantize": self._uniform_quantize,
            "stablehlo.uniform_dequantize": self._uniform_dequantize,
            "stablehlo.constant": self._constant,
            "stablehlo.bitcast_convert": self._bitcast,
        }

    # -- types

    def carried(self, type: Native, q: Quantized) -> Native:
        """The type of a tensor whose elements are carried as integers."""
        return self._before(None).like(type, q.carrier)

    def converted(self, type: Native) -> Native:
        """The same for tuples too."""
        native = self._native
        if isinstance(type, native.TupleType):
            members = [self.converted(type.get_type(i)) for i in range(type.num_types)]
            return native.TupleType.get_tuple(members)
        q = quantized(type)
        return type if q is None else self.carried(type, q)

    def _before(self, operation: Native | None) -> Emitter:
        native = self._native
        if operation is None:
            return Emitter(None, native.Location.unknown(), self._names)
        return Emitter(native.InsertionPoint(operation), operation.location, self._names)

    def _after(self, operation: Native) -> Emitter:
        point = self._native.InsertionPoint.after(operation)
        return Emitter(point, operation.location, self._names)

    # -- operations

    def rewrite(self, operation: Native) -> None:
        """Put floats or integers in the place of quantized operands and results."""
        special = self._special.get(operation.name)
        if special is not None:
            special(operation)
        elif operation.name in COMPUTED:
            self._compute(operation)
        elif operation.name in COMBINING:
            self._widen(operation)

    def _compute(self, operation: Native) -> None:
        given = [self._values.get(value) for value in operation.operands]
        made = [self._values.get(value) for value in operation.results]
        if not any(given) and not any(made):
            return
        before = self._before(operation)
        for index, q in enumerate(given):
            if q is not None:
                operation.operands[index] = before.dequantize(operation.operands[index], q)
        if operation.name == "stablehlo.compare" and "compare_type" in operation.attributes:
            del operation.attributes["compare_type"]
        after = self._after(operation)
        for result, q in zip(operation.results, made, strict=True):
            if q is not None:
                uses = list(result.uses)
                result.set_type(after.like(result.type, q.expressed))
                made_again = after.quantize(result, q)
                self._values[made_again] = q
                _redirect(uses, made_again)

    def _widen(self, operation: Native) -> None:
        """Quantize operands again where the function takes elements that are quantized otherwise."""
        parameters = list(operation.regions[len(operation.regions) - 1].blocks[0].arguments)
        emitter = self._before(operation)
        for index, value in enumerate(list(operation.operands)):
            place = _parameter(operation.name, index, len(parameters))
            given = self._values.get(value)
            wanted = None if place is None else self._values.get(parameters[place])
            if given is not None and wanted is not None and given != wanted:
                operation.operands[index] = emitter.quantize(emitter.dequantize(value, given), wanted)

    def _uniform_quantize(self, operation: Native) -> None:
        source, emitter = operation.operands[0], self._before(operation)
        given, wanted = self._values.get(source), self._values[operation.results[0]]
        value = source if given is None else emitter.dequantize(source, given)
        self._replace(operation, emitter.quantize(value, wanted))

    def _uniform_dequantize(self, operation: Native) -> None:
        source = operation.operands[0]
        self._replace(operation, self._before(operation).dequantize(source, self._values[source]))

    def _constant(self, operation: Native) -> None:
        q = self._values.get(operation.results[0])
        if q is None:
            return
        emitter, type = self._before(operation), operation.results[0].type
        value = _carried(operation.attributes["value"], type, q)
        self._replace(operation, emitter.op("constant", [], type, value=value))

    def _bitcast(self, operation: Native) -> None:
        source, result = operation.operands[0], operation.results[0]
        given, wanted = self._values.get(source), self._values.get(result)
        if given is not None and given.carrier != given.storage:
            operation.operands[0] = self._before(operation).convert(source, given.storage)
        if wanted is not None and wanted.carrier != wanted.storage:
            uses, after = list(result.uses), self._after(operation)
            result.set_type(after.like(result.type, wanted.storage))
            carried = after.convert(result, wanted.carrier)
            self._values[carried] = wanted
            _redirect(uses, carried)

    def _replace(self, operation: Native, value: Native) -> None:
        # What is made next may lie where the erased result lay, and would be taken for it.
        q = self._values.pop(operation.results[0], None)
        if q is not None:
            self._values[value] = q
        operation.results[0].replace_all_uses_with(value)
        operation.erase()

    # -- functions

    def sign(self, function: Native, is_entry: bool) -> None:
        """Give a function the type that its block has now; the entry's buffers have the storage's type."""
        native = self._native
        kind = native.FunctionType(function.attributes["function_type"].value)
        inputs, results = [[*map(self.converted, types)] for types in (kind.inputs, kind.results)]
        if is_entry and len(function.regions[0].blocks):
            inputs = self._entered([*map(quantized, kind.inputs)], function.regions[0].blocks[0], inputs)
            returned = [op for op in mlir.child_operations(function) if op.name == "func.return"]
            results = self._returned([*map(quantized, kind.results)], returned, results)
        function.attributes["function_type"] = native.TypeAttr.get(native.FunctionType.get(inputs, results))

    def _entered(self, elements: list[Quantized | None], block: Native, types: list[Native]) -> list[Native]:
        emitter = Emitter(
            self._native.InsertionPoint.at_block_begin(block), self._native.Location.unknown(), self._names
        )
        for index, q in enumerate(elements):
            if q is None or q.carrier == q.storage:
                continue
            argument = block.arguments[index]
            uses = list(argument.uses)
            types[index] = emitter.like(types[index], q.storage)
            argument.set_type(types[index])
            _redirect(uses, emitter.convert(argument, q.carrier))
        return types

    def _returned(
        self, elements: list[Quantized | None], returns: list[Native], types: list[Native]
    ) -> list[Native]:
        for index, q in enumerate(elements):
            if q is None or q.carrier == q.storage:
                continue
            types[index] = self._before(None).like(types[index], q.storage)
            for operation in returns:
                emitter = self._before(operation)
                operation.operands[index] = emitter.convert(operation.operands[index], q.storage)
        return types


def _redirect(uses: list[Native], value: Native) -> None:
    for use in uses:
        use.owner.operands[use.operand_number] = value


def _carried(value: Native, type: Native, q: Quantized) -> Native:
    """The attribute of a constant as the carrier has it; its elements are signless, as wide as storage."""
    body = str(value).rpartition(" : ")[0]
    if body.startswith('dense<"0x') and q.width < 8:
        packed = bytes.fromhex(body[len('dense<"0x') : -2])
        mask, sign = (1 << q.width) - 1, 1 << q.width - 1 if q.low < 0 else 0
        body = f'dense<"0x{bytes((((byte & mask) ^ sign) - sign) & 0xFF for byte in packed).hex()}">'
    elif q.storage.startswith("u"):
        body = _NEGATIVE.sub(lambda match: str((1 << q.width) - int(match[1])), body)
    return mlir.native_ir().Attribute.parse(f"{body} : {type}")


def _parameter(name: str, index: int, count: int) -> int | None:
    """Which parameter of the function takes an operand's elements, if one does."""
    if name in ("stablehlo.reduce", "stablehlo.reduce_window"):
        return index
    if name == "stablehlo.select_and_scatter":
        return 0 if index else None
    half = count // 2
    return index if index < half else index - 1 if index > half else None
