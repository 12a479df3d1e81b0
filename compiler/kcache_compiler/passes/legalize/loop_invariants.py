"""Hoists loop-invariant operations of StableHLO out of ``while``.

A canonical graph places views at their uses: a transpose of a tensor from outside that a loop slices would be
computed in every iteration. Hoisted are operations that compute from values outside of the loop a result of
no more bytes, and transposes of which the loop reads slices. Constants, ``iota`` and broadcasts stay, which
fuse with what reads them; a hoisted operation gets copies of them.
"""

from __future__ import annotations

import math

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.types import DTYPE_BYTES

#: Elements of a result from which on its operation is hoisted for its own sake.
LEAST_ELEMENTS = 64

_GENERATED = ("constant", "iota", "broadcast_in_dim")
_VIEWS = ("reshape", "transpose")
_COMPUTING = (
    *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "concatenate", "convert", "cosine"),
    *("divide", "dot_general", "exponential", "exponential_minus_one", "floor", "is_finite", "log"),
    *("log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "pad", "power"),
    *("reduce", "remainder", "reverse", "rsqrt", "select", "sign", "sine", "slice", "sqrt", "subtract"),
    *("tan", "tanh", "xor"),
)
#: Operations that read elements of a view from memory.
_GATHERING = ("stablehlo.dynamic_slice", "stablehlo.gather")


def hoist_invariants(module: mlir.Module) -> None:
    """Move invariant operations before their loop, inner loops first."""
    for loop in reversed(mlir.named(module, "stablehlo.while")):
        _read_from_outside(loop)
        for block in mlir.blocks_of(loop):
            _Hoisting(loop, block).run()


def _read_from_outside(loop: mlir.Op) -> None:
    """Replace uses of carried values that no iteration changes, as scans of JAX have, by initial values."""
    returned = mlir.last(mlir.block_of(loop, 1))
    for number, argument in enumerate(mlir.block_of(loop, 1).arguments):
        if returned.operands[number] != argument:
            continue
        for block in mlir.blocks_of(loop):
            for user, position in list(mlir.uses(block.arguments[number])):
                if user != returned:
                    user.operands[position] = loop.operands[number]


class _Hoisting:
    """The operations of one block of a loop."""

    def __init__(self, loop: mlir.Op, block: mlir.Block) -> None:
        self._loop = loop
        self._operations = mlir.operations(block)
        self._inside = set(self._operations)
        self._arguments = set(block.arguments)
        #: Operations that may be hoisted -> the values outside that they depend on.
        self._leaves: dict[mlir.Op, frozenset[mlir.Value]] = {}

    def run(self) -> None:
        for op in self._operations:
            leaves = self._leaves_of(op)
            if leaves is not None:
                self._leaves[op] = leaves
        for op in self._operations:
            if op in self._leaves and op in self._inside and self._is_worth_it(op):
                self._hoist(op)

    def _leaves_of(self, op: mlir.Op) -> frozenset[mlir.Value] | None:
        """The values outside that a pure operation depends on; None if it depends on the iteration."""
        name = mlir.name_of(op).removeprefix("stablehlo.")
        if name not in (*_GENERATED, *_VIEWS, *_COMPUTING):
            return None
        leaves: set[mlir.Value] = set()
        for value in [*op.operands, *(mlir.outside_values(op) if mlir.has_regions(op) else ())]:
            owner = mlir.defining(value)
            if value in self._arguments or (owner in self._inside and owner not in self._leaves):
                return None
            leaves |= {value} if owner is None or owner not in self._inside else self._leaves[owner]
        return frozenset(leaves)

    def _is_worth_it(self, op: mlir.Op) -> bool:
        name = mlir.name_of(op).removeprefix("stablehlo.")
        if name == "transpose":
            return bool(self._leaves[op]) and any(map(_is_gathered, op.results))
        if name in _GENERATED or name in _VIEWS:
            return False
        kinds = [result.type for result in op.results]
        sizes = [_bytes(kind) for kind in kinds]
        read = [_bytes(value.type) for value in self._leaves[op]]
        if None in sizes or None in read or _elements(kinds[0]) < LEAST_ELEMENTS:
            return False
        return sum(size or 0 for size in sizes) <= sum(size or 0 for size in read)

    def _hoist(self, op: mlir.Op) -> None:
        """Move an operation before the loop, after the operations that it reads."""
        for number, operand in enumerate(list(op.operands)):
            op.operands[number] = self._outside(operand)
        for inner in mlir.walk(op)[1:]:
            for number, operand in enumerate(list(inner.operands)):
                owner = mlir.defining(operand)
                if owner is not None and owner in self._inside:
                    inner.operands[number] = self._outside(operand)
        op.move_before(self._loop)
        self._inside.discard(op)

    def _outside(self, value: mlir.Value) -> mlir.Value:
        owner = mlir.defining(value)
        if owner is None or owner not in self._inside:
            return value
        if mlir.name_of(owner).removeprefix("stablehlo.") not in _GENERATED:
            self._hoist(owner)
            return value
        operands = [self._outside(operand) for operand in owner.operands]
        with mlir.before(self._loop):
            copy = mlir.clone(owner)
        for number, operand in enumerate(operands):
            copy.operands[number] = operand
        return copy.results[0]


def _is_gathered(value: mlir.Value) -> bool:
    """Whether an operation reads slices of a value, or of a view of it."""
    return any(
        mlir.name_of(user) in _GATHERING
        or (mlir.name_of(user) == "stablehlo.reshape" and _is_gathered(user.results[0]))
        for user, number in mlir.uses(value)
        if number == 0
    )


def _elements(kind: mlir.Type) -> int:
    return math.prod(size or 0 for size in mlir.sizes_of(kind))


def _bytes(kind: mlir.Type) -> int | None:
    """The bytes of a tensor of static size and a plain element type; None for other types."""
    if not mlir.is_tensor(kind) or None in mlir.sizes_of(kind):
        return None
    width = DTYPE_BYTES.get(str(mlir.element_type(kind)))
    return None if width is None else _elements(kind) * width
