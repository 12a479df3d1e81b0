"""Arguments of ``main`` that are sizes: integers by which the program says how large its tensors are.

``jax.export`` writes them for the symbols of a function's shapes, and so do programs that choose a size when
they are called. A size that is an integer in memory depends on data; one that is the length of an axis does
not. So such an argument becomes one without elements, the axes of which are the sizes: ``tensor<i64>`` is
``tensor<?x0xi64>``, ``tensor<2xi32>`` is ``tensor<?x?x0xi32>``. Whoever calls the kernel gives integers.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: Operations -> operands that say how large something is.
_SHAPES: dict[str, tuple[int, ...]] = {
    "stablehlo.dynamic_broadcast_in_dim": (1,),
    "stablehlo.dynamic_conv": (2,),
    "stablehlo.dynamic_gather": (2,),
    "stablehlo.dynamic_iota": (0,),
    "stablehlo.dynamic_pad": (2, 3, 4),
    "stablehlo.dynamic_reshape": (1,),
    "stablehlo.real_dynamic_slice": (2, 3),
}
#: Those whose results' types do not say as much.
_AMOUNTS = frozenset({"stablehlo.dynamic_pad", "stablehlo.dynamic_conv"})
#: Custom calls -> how many of their last operands are sizes.
_CALLS = {
    "stablehlo.dynamic_reduce_window": 5,
    "stablehlo.dynamic_top_k": 1,
    "stablehlo.dynamic_approx_top_k": 1,
}
_ASSERTION = "shape_assertion"
_RESULT_SHAPES = "indices_of_shape_operands"

#: What computes sizes of sizes.
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
#: Sizes of one argument: a shape has no more axes in practice.
_MOST = 8
_INTEGERS = frozenset({"i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"})


def name_sizes(
    module: Native, entry: Native, functions: dict[str, Native], names: set[str]
) -> tuple[int, ...]:
    """Give ``entry`` axes in place of the integers that are sizes; return the indices of these arguments.

    ``names`` are the operations that occur. Nothing changes where the sizes of all values are stated or read
    from axes.
    """
    if names.isdisjoint(_SHAPES) and "stablehlo.custom_call" not in names:
        return ()
    block = entry.regions[0].blocks[0]
    search = _Search(entry, functions)
    found = search.run([one for function in functions.values() for one in mlir.all_operations(function)])
    for argument, value in search.carried:
        argument.replace_all_uses_with(value)
    chosen = tuple(i for i in sorted(found) if _length(block.arguments[i].type) is not None)
    if chosen:
        _rewrite(module, entry, chosen)
        names.update({"stablehlo.get_dimension_size", "stablehlo.convert", "stablehlo.reshape"})
    return chosen


def _length(kind: Native) -> int | None:
    """How many sizes an argument of this type may be, 0 for one that is no list; None: it is no size."""
    shape = getattr(kind, "shape", None)
    if shape is None or str(kind.element_type) not in _INTEGERS or kind.rank > 1 or not kind.has_static_shape:
        return None
    length = shape[0] if kind.rank else 0
    return length if kind.rank == 0 or 0 < length <= _MOST else None


class _Search:
    """Which arguments of the entry the sizes of a program are made of."""

    def __init__(self, entry: Native, functions: dict[str, Native]) -> None:
        self._entry = entry
        self._functions = functions
        self._calls: dict[str, list[Native]] = {}
        #: Arguments of loops' regions, and what they are in every turn.
        self.carried: list[tuple[Native, Native]] = []

    def run(self, operations: list[Native]) -> set[int]:
        """The indices of these arguments."""
        for operation in operations:
            if operation.name == "func.call":
                self._calls.setdefault(operation.attributes["callee"].value, []).append(operation)
        sizes: set[int] = set()
        for operation in operations:
            wanted = list(_sizes_of(operation))
            if not wanted:
                continue
            found = self._arguments(wanted)
            if operation.name == "stablehlo.real_dynamic_slice" and found:
                begin = self._arguments([operation.operands[1]], bounds=False)
                # A place that is data, and one that is so far behind it, are a size apart.
                found = found - begin if found & begin else found | begin
            sizes |= found
        return sizes

    def _arguments(self, values: list[Native], bounds: bool = True) -> set[int]:
        """The arguments of the entry that these integers are computed of; without ``bounds``, but those that
        only say between which numbers one is.
        """
        found: set[int] = set()
        native = mlir.native_ir()
        pending, seen = list(values), set[Native]()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            owner = value.owner
            if isinstance(owner, native.Block):
                pending.extend(self._outside(native.BlockArgument(value), found))
            elif owner.operation.name == "stablehlo.clamp" and not bounds:
                pending.append(owner.operands[1])
            elif owner.operation.name in _ARITHMETIC:
                pending.extend(owner.operands)
            elif owner.operation.name == "func.call":
                returned = self._functions[owner.attributes["callee"].value].regions[0].blocks[0].operations
                pending.append(returned[len(returned) - 1].operands[native.OpResult(value).result_number])
        return found

    def _outside(self, value: Native, found: set[int]) -> Iterator[Native]:
        """What an argument of a block is given."""
        parent = value.owner.owner.operation
        number: int = value.arg_number
        if parent == self._entry.operation:
            found.add(number)
        elif parent.name == "func.func":
            for call in self._calls.get(parent.attributes["sym_name"].value, ()):
                yield call.operands[number]
        elif parent.name == "stablehlo.while":
            body = parent.regions[1].blocks[0]
            if body.operations[len(body.operations) - 1].operands[number] == body.arguments[number]:
                self.carried.append((value, parent.operands[number]))
                yield parent.operands[number]


def _sizes_of(operation: Native) -> Iterator[Native]:
    """The operands of an operation that say how large something is."""
    name = operation.name
    if name in _SHAPES:
        stated = name not in _AMOUNTS and all(result.type.has_static_shape for result in operation.results)
        if not stated:
            yield from (
                operation.operands[index] for index in _SHAPES[name] if index < len(operation.operands)
            )
    elif name == "stablehlo.custom_call":
        yield from _sizes_of_call(operation)


def _sizes_of_call(call: Native) -> Iterator[Native]:
    attributes = call.attributes
    target: str = attributes["call_target_name"].value
    operands = list(call.operands)
    if target == _ASSERTION:
        yield from operands
    elif target in _CALLS:
        yield from operands[-_CALLS[target] :]
    elif _RESULT_SHAPES in attributes:
        yield from (operands[index] for index in attributes[_RESULT_SHAPES] if index < len(operands))


def _rewrite(module: Native, entry: Native, chosen: tuple[int, ...]) -> None:
    native = mlir.native_ir()
    block = entry.regions[0].blocks[0]
    with module.context, native.Location.unknown(), native.InsertionPoint.at_block_begin(block):
        for index in chosen:
            _read(block.arguments[index])
        kind = entry.attributes["function_type"].value
        inputs = [argument.type for argument in block.arguments]
        entry.attributes["function_type"] = native.TypeAttr.get(native.FunctionType.get(inputs, kind.results))


def _read(argument: Native) -> None:
    """Make ``argument`` one of axes; its users get their lengths."""
    native = mlir.native_ir()
    kind, dynamic = argument.type, native.ShapedType.get_dynamic_size()
    count, element = (kind.shape[0] if kind.rank else 1), kind.element_type
    argument.set_type(native.RankedTensorType.get([*[dynamic] * count, 0], element))
    size = native.RankedTensorType.get([], native.IntegerType.get_signless(32))
    scalar, one = native.RankedTensorType.get([], element), native.RankedTensorType.get([1], element)
    made: list[Native] = []
    reads: list[Native] = []
    for axis in range(count):
        dimension = native.IntegerAttr.get(native.IntegerType.get_signless(64), axis)
        read = native.Operation.create(
            "stablehlo.get_dimension_size", [size], [argument], {"dimension": dimension}
        )
        reads.append(read)
        value = read.result
        if scalar != size:
            value = native.Operation.create("stablehlo.convert", [scalar], [value]).result
        made.append(value)
    if kind.rank:
        parts = [native.Operation.create("stablehlo.reshape", [one], [value]).result for value in made]
        dimension = native.IntegerAttr.get(native.IntegerType.get_signless(64), 0)
        whole = native.Operation.create("stablehlo.concatenate", [kind], parts, {"dimension": dimension})
        made = [whole.result]
    argument.replace_all_uses_with(made[0])
    for read in reads:
        read.operands[0] = argument
