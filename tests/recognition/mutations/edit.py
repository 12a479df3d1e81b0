"""Small edits of native modules, for both rewriters."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch_mlir import ir as _ir  # pyright: ignore

from kcache_compiler.mlir.context import child_operations, new_context, parse_module

ir: Any = _ir

COMMUTATIVE = frozenset(
    f"stablehlo.{op}" for op in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
)
UNARY = frozenset(
    f"stablehlo.{op}"
    for op in (
        *("abs", "cbrt", "ceil", "convert", "cosine", "exponential", "exponential_minus_one", "floor", "log"),
        *(
            "log_plus_one",
            "logistic",
            "negate",
            "rsqrt",
            "sign",
            "sine",
            "sqrt",
            "tanh",
            "round_nearest_even",
        ),
    )
)
BINARY = COMMUTATIVE | {
    f"stablehlo.{op}" for op in ("subtract", "divide", "power", "remainder", "atan2", "compare")
}
ELEMENTWISE = (
    UNARY | BINARY | {"stablehlo.select", "stablehlo.clamp", "stablehlo.not", "chlo.erf", "chlo.erfc"}
)
TERMINATORS = ("func.return", "stablehlo.return")


class _Contexts:
    """One context for many modules, for making one takes longer than parsing; it keeps all it ever saw."""

    most = 50

    def __init__(self) -> None:
        self.left = 0
        self.context: Any = None

    def __call__(self) -> Any:
        if not self.left:
            self.left, self.context = self.most, new_context()
        self.left -= 1
        return self.context


_contexts = _Contexts()


def parse(text: str | bytes) -> Any:
    """Return a module."""
    return parse_module(text, _contexts())


@contextmanager
def editing(module: Any) -> Iterator[None]:
    """Create operations without locations while it lasts."""
    with module.context, ir.Location.unknown():
        yield


def functions(module: Any) -> list[Any]:
    """Return the functions that have bodies."""
    return [op for op in child_operations(module.operation) if op.name == "func.func"]


def main_of(module: Any) -> Any:
    """Return the entry function."""
    return next(f for f in functions(module) if name_of(f) == "main")


def name_of(function: Any) -> str:
    """Return a function's symbol."""
    return function.attributes["sym_name"].value


def body(function: Any) -> Any:
    """Return the one block of a function."""
    return function.regions[0].blocks[0]


def blocks(module: Any) -> list[Any]:
    """Return all blocks that hold operations of programs: of functions, and of regions inside."""
    all_blocks: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name != "builtin.module":
            all_blocks.extend(block for region in operation.regions for block in region.blocks)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return all_blocks


def operations(block: Any) -> list[Any]:
    """Return the operations of a block, its terminator last."""
    return [view.operation for view in block.operations]


def everywhere(module: Any) -> list[Any]:
    """Return all operations in all blocks but terminators."""
    return [op for block in blocks(module) for op in operations(block) if op.name not in TERMINATORS]


def producers(operation: Any) -> Iterator[Any]:
    """Yield the operations whose results this one or its regions read; some of them may be inside it."""
    for value in reads(operation):
        if not isinstance(value.owner, ir.Block):
            yield value.owner.operation


def reads(operation: Any) -> list[Any]:
    """Return all values that an operation and its regions read."""
    operands: list[Any] = []

    def visit(inner: Any) -> Any:
        operands.extend(inner.operands)
        return ir.WalkResult.ADVANCE

    operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return operands


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of static shape."""
    return isinstance(value.type, ir.RankedTensorType) and value.type.has_static_shape


def shape(value: Any) -> list[int]:
    """Return the sizes of a static tensor."""
    return list(value.type.shape)


def is_float(value: Any) -> bool:
    """Whether a value is a tensor of floats."""
    return is_tensor(value) and isinstance(value.type.element_type, ir.FloatType)


def tensor(dims: Sequence[int], like: Any) -> Any:
    """Return the tensor type of ``dims`` with the elements of the value ``like``."""
    return ir.RankedTensorType.get(list(dims), like.type.element_type)


def values(block: Any) -> list[Any]:
    """Return the static tensors of a block: its arguments and results of its operations."""
    all_values = list(block.arguments)
    for operation in operations(block):
        all_values.extend(operation.results)
    return [value for value in all_values if is_tensor(value)]


def after(value: Any, block: Any) -> Any:
    """Return where code may stand that reads ``value``, as early as possible."""
    if isinstance(value.owner, ir.Block):
        return ir.InsertionPoint.at_block_begin(value.owner)
    rest = operations(block)
    return ir.InsertionPoint(rest[rest.index(value.owner.operation) + 1])


def make(
    name: str, operands: Sequence[Any], result: Any, where: Any, attributes: dict[str, str] | None = None
) -> Any:
    """Create an operation of one result and return the result; attributes are given as text."""
    parsed = {key: ir.Attribute.parse(text) for key, text in (attributes or {}).items()}
    operation = ir.Operation.create(
        name, results=[result], operands=list(operands), attributes=parsed, ip=where
    )
    return operation.results[0]


def ints(numbers: Sequence[int]) -> str:
    """Return the text of an array attribute."""
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"


def transpose(value: Any, order: Sequence[int], where: Any) -> Any:
    """Create a transposition."""
    dims = shape(value)
    type = tensor([dims[d] for d in order], value)
    return make("stablehlo.transpose", [value], type, where, {"permutation": ints(order)})


def reshape(value: Any, dims: Sequence[int], where: Any) -> Any:
    """Create a reshape."""
    return make("stablehlo.reshape", [value], tensor(dims, value), where)


def broadcast(value: Any, where_to: Sequence[int], type: Any, where: Any) -> Any:
    """Create a broadcast."""
    attributes = {"broadcast_dimensions": ints(where_to)}
    return make("stablehlo.broadcast_in_dim", [value], type, where, attributes)


def uses(value: Any) -> list[tuple[Any, int]]:
    """Return (operation, operand number) of every use."""
    return [(use.owner.operation, use.operand_number) for use in value.uses]


def redirect(sites: Sequence[tuple[Any, int]], value: Any) -> None:
    """Make these uses read ``value``."""
    for operation, number in sites:
        operation.operands[number] = value


def some(rng: random.Random, items: Sequence[Any], chance: float = 0.6) -> list[Any]:
    """Return a random part of a sequence, not empty unless it is."""
    chosen = [item for item in items if rng.random() < chance]
    return chosen or ([rng.choice(items)] if items else [])
