"""Finds the integer arguments of ``main`` that are sizes of tensors and turns them into dimensions.

``jax.export`` passes the symbols of a function's shapes as such arguments, and so do programs whose sizes are
chosen per call. A size that is read from memory depends on data; a dimension of an argument does not. So such
an argument becomes one without elements whose dimensions are the sizes: ``tensor<i64>`` becomes
``tensor<?x0xi64>``, ``tensor<2xi32>`` becomes ``tensor<?x?x0xi32>``. Callers of the kernel pass integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import BlockArgument, RankedTensorType

    from kcache_compiler.mlir.types import Module, Op, Value

#: Operation -> indices of the operands that are sizes.
_SIZE_OPERANDS: dict[str, tuple[int, ...]] = {
    "stablehlo.dynamic_broadcast_in_dim": (1,),
    "stablehlo.dynamic_conv": (2,),
    "stablehlo.dynamic_gather": (2,),
    "stablehlo.dynamic_iota": (0,),
    "stablehlo.dynamic_pad": (2, 3, 4),
    "stablehlo.dynamic_reshape": (1,),
    "stablehlo.real_dynamic_slice": (2, 3),
}
#: Operations whose size operands matter even if the types of the results are static.
_NOT_IMPLIED_BY_RESULT = frozenset({"stablehlo.dynamic_pad", "stablehlo.dynamic_conv"})
#: Target of a custom call -> number of trailing operands that are sizes.
_TRAILING_SIZES = {
    "stablehlo.dynamic_reduce_window": 5,
    "stablehlo.dynamic_top_k": 1,
    "stablehlo.dynamic_approx_top_k": 1,
}
_ASSERTION = "shape_assertion"
_RESULT_SHAPES = "indices_of_shape_operands"

#: Operations that compute sizes from sizes.
_ARITHMETIC = frozenset(
    f"stablehlo.{op}"
    for op in (
        *(
            "abs",
            "add",
            "clamp",
            "divide",
            "maximum",
            "minimum",
            "multiply",
            "negate",
            "power",
            "remainder",
            "sign",
        ),
        *("subtract", "and", "not", "or", "xor", "compare", "select"),
        *("broadcast_in_dim", "concatenate", "convert", "optimization_barrier", "reduce", "reshape", "slice"),
    )
)
#: Largest number of sizes in one argument.
_MAX_SIZES = 8
_INTEGERS = frozenset({"i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"})


def convert_size_arguments(
    module: Module, entry: Op, functions: dict[str, Op], names: set[str]
) -> tuple[int, ...]:
    """Convert the arguments of ``entry`` that are sizes to dimensions; return the indices of these arguments.

    ``names`` are the names of the operations in the module. Nothing changes if all sizes are static or read
    from dimensions.
    """
    if names.isdisjoint(_SIZE_OPERANDS) and "stablehlo.custom_call" not in names:
        return ()
    block = entry.regions[0].blocks[0]
    search = _SizeArgumentSearch(entry, functions)
    candidates = search.run(
        [operation for function in functions.values() for operation in mlir.all_operations(function)]
    )
    for argument, value in search.invariants:
        argument.replace_all_uses_with(value)
    chosen = tuple(
        i for i in sorted(candidates) if _size_count(lazy.tensor_of(block.arguments[i])) is not None
    )
    if chosen:
        _rewrite_signature(module, entry, chosen)
        names.update({"stablehlo.get_dimension_size", "stablehlo.convert", "stablehlo.reshape"})
    return chosen


def _size_count(type: RankedTensorType) -> int | None:
    """Return how many sizes an argument of this type holds, 0 for a scalar; None if it cannot hold sizes."""
    shape = getattr(type, "shape", None)
    if shape is None or str(type.element_type) not in _INTEGERS or type.rank > 1 or not type.has_static_shape:
        return None
    length = shape[0] if type.rank else 0
    return length if type.rank == 0 or 0 < length <= _MAX_SIZES else None


class _SizeArgumentSearch:
    """Finds the arguments of the entry function from which the sizes of a program are computed."""

    def __init__(self, entry: Op, functions: dict[str, Op]) -> None:
        self._entry = entry
        self._functions = functions
        self._calls: dict[str, list[Op]] = {}
        #: Loop-invariant arguments of while loops, with their initial values.
        self.invariants: list[tuple[Value, Value]] = []

    def run(self, operations: list[Op]) -> set[int]:
        """Return the indices of the arguments that are sizes."""
        for operation in operations:
            if operation.name == "func.call":
                self._calls.setdefault(lazy.string(operation.attributes["callee"]), []).append(operation)
        sizes: set[int] = set()
        for operation in operations:
            operands = list(_size_operands(operation))
            if not operands:
                continue
            arguments = self._arguments(operands)
            if operation.name == "stablehlo.real_dynamic_slice" and arguments:
                start = self._arguments([operation.operands[1]], bounds=False)
                # The difference of two offsets is a size even if the offsets themselves are data.
                arguments = arguments - start if arguments & start else arguments | start
            sizes |= arguments
        return sizes

    def _arguments(self, values: list[Value], bounds: bool = True) -> set[int]:
        """Return the indices of the entry's arguments from which these integers are computed.

        Without ``bounds``, the bounds of ``stablehlo.clamp`` do not count.
        """
        arguments: set[int] = set()
        native = mlir.native_ir()
        pending, visited = list(values), set["Value"]()
        while pending:
            value = pending.pop()
            if value in visited:
                continue
            visited.add(value)
            if isinstance(value.owner, native.Block):
                pending.extend(self._incoming_values(native.BlockArgument(value), arguments))
                continue
            operation = lazy.definition(value).operation
            if operation.name == "stablehlo.clamp" and not bounds:
                pending.append(operation.operands[1])
            elif operation.name in _ARITHMETIC:
                pending.extend(operation.operands)
            elif operation.name == "func.call":
                returned = (
                    self._functions[lazy.string(operation.attributes["callee"])]
                    .regions[0]
                    .blocks[0]
                    .operations
                )
                number: int = native.OpResult(value).result_number
                pending.append(returned[len(returned) - 1].operands[number])
        return arguments

    def _incoming_values(self, value: BlockArgument, arguments: set[int]) -> Iterator[Value]:
        """Yield the values that a block argument may hold; add arguments of the entry to ``arguments``."""
        parent = value.owner.owner.operation
        number = value.arg_number
        if parent == self._entry.operation:
            arguments.add(number)
        elif parent.name == "func.func":
            for call in self._calls.get(lazy.string(parent.attributes["sym_name"]), ()):
                yield call.operands[number]
        elif parent.name == "stablehlo.while":
            body = parent.regions[1].blocks[0]
            if body.operations[len(body.operations) - 1].operands[number] == body.arguments[number]:
                self.invariants.append((value, parent.operands[number]))
                yield parent.operands[number]


def _size_operands(operation: Op) -> Iterator[Value]:
    """Yield the operands of an operation that are sizes."""
    name = operation.name
    if name in _SIZE_OPERANDS:
        implied = name not in _NOT_IMPLIED_BY_RESULT and all(
            lazy.tensor_of(result).has_static_shape for result in operation.results
        )
        if not implied:
            yield from (
                operation.operands[index] for index in _SIZE_OPERANDS[name] if index < len(operation.operands)
            )
    elif name == "stablehlo.custom_call":
        yield from _size_operands_of_call(operation)


def _size_operands_of_call(call: Op) -> Iterator[Value]:
    attributes = call.attributes
    target: str = lazy.string(attributes["call_target_name"])
    operands = list(call.operands)
    if target == _ASSERTION:
        yield from operands
    elif target in _TRAILING_SIZES:
        yield from operands[-_TRAILING_SIZES[target] :]
    elif _RESULT_SHAPES in attributes:
        yield from (
            operands[index] for index in lazy.integers(attributes[_RESULT_SHAPES]) if index < len(operands)
        )


def _rewrite_signature(module: Module, entry: Op, chosen: tuple[int, ...]) -> None:
    """Change the types of the chosen arguments, and the type of the function."""
    native = mlir.native_ir()
    block = entry.regions[0].blocks[0]
    with module.context, native.Location.unknown(), native.InsertionPoint.at_block_begin(block):
        for index in chosen:
            _read_sizes(block.arguments[index])
        type = lazy.function_type(entry)
        inputs = [argument.type for argument in block.arguments]
        entry.attributes["function_type"] = native.TypeAttr.get(native.FunctionType.get(inputs, type.results))


def _read_sizes(argument: Value) -> None:
    """Change ``argument`` to dimensions; its users read the sizes of these dimensions."""
    native = mlir.native_ir()
    type, dynamic = lazy.tensor_of(argument), native.ShapedType.get_dynamic_size()
    count, element = (type.shape[0] if type.rank else 1), type.element_type
    argument.set_type(native.RankedTensorType.get([*[dynamic] * count, 0], element))
    size = native.RankedTensorType.get([], native.IntegerType.get_signless(32))
    scalar, vector = native.RankedTensorType.get([], element), native.RankedTensorType.get([1], element)
    sizes: list[Value] = []
    reads: list[Op] = []
    for axis in range(count):
        dimension = native.IntegerAttr.get(native.IntegerType.get_signless(64), axis)
        read = native.Operation.create(
            "stablehlo.get_dimension_size", [size], [argument], {"dimension": dimension}
        )
        reads.append(read)
        value = read.result
        if scalar != size:
            value = native.Operation.create("stablehlo.convert", [scalar], [value]).result
        sizes.append(value)
    if type.rank:
        vectors = [native.Operation.create("stablehlo.reshape", [vector], [value]).result for value in sizes]
        dimension = native.IntegerAttr.get(native.IntegerType.get_signless(64), 0)
        joined = native.Operation.create("stablehlo.concatenate", [type], vectors, {"dimension": dimension})
        sizes = [joined.result]
    argument.replace_all_uses_with(sizes[0])
    for read in reads:
        read.operands[0] = argument
