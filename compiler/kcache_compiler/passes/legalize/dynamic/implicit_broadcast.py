"""CHLO's broadcasting operations over dynamic sizes: operands are broadcast to one shape first."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.legalize.dynamic.size_checks import Requirements, origin

_PLAIN_CHLO = frozenset({"next_after", "polygamma", "zeta"})
Spread = Callable[[mlir.Op, mlir.Value, list[int], list[mlir.Value], Requirements], mlir.Value]


def apply_spread(op: mlir.Op, requirements: Requirements, spread: Spread) -> None:
    """Put the plain operation in the place of one that broadcasts."""
    operands = list(op.operands)
    rank = len(mlir.sizes_of(op.results[0].type))
    positions = [_places(op, operand, rank) for operand in operands]
    sizes = [_common(op, positions, axis) for axis in range(rank)]
    spread_operands = [
        spread(op, operand, axes, sizes, requirements)
        for operand, axes in zip(operands, positions, strict=True)
    ]
    name = mlir.name_of(op).removeprefix("chlo.broadcast_")
    attributes: dict[str, mlir.Attribute] = {}
    if name == "compare":
        for key in ("comparison_direction", "compare_type"):
            if key in op.attributes:
                text = str(op.attributes[key])
                attributes[key] = mlir.attribute(text.replace("#chlo<", "#stablehlo<"))
    plain = f"{'chlo' if name in _PLAIN_CHLO else 'stablehlo'}.{name}"
    result = mlir.create(plain, spread_operands, [op.results[0].type], attributes)
    op.results[0].replace_all_uses_with(result.results[0])
    op.erase()


def _places(op: mlir.Op, operand: mlir.Value, rank: int) -> list[int]:
    """The axes of the result that an operand's are: the last ones, or those that the operation says."""
    own = len(mlir.sizes_of(operand.type))
    largest = max(len(mlir.sizes_of(operand.type)) for operand in op.operands)
    if "broadcast_dimensions" in op.attributes and own < largest:
        return mlir.integers(op.attributes["broadcast_dimensions"])
    return list(range(rank - own, rank))


def _common(op: mlir.Op, positions: list[list[int]], axis: int) -> mlir.Value:
    """The size of an axis of the result: that of an operand whose own is not 1."""
    results: list[mlir.Value] = []
    for operand, axes in zip(op.operands, positions, strict=True):
        if axis in axes:
            number = axes.index(axis)
            static = mlir.sizes_of(operand.type)[number]
            if static is not None and static != 1:
                return mlir.constant(static, "index")
            if static is None:
                results.append(mlir.tensor_size(operand, number))
    if not results:
        return mlir.constant(1, "index")
    first = results[0]
    for other in results[1:]:
        if origin(first) != origin(other):
            # Equal, or one of them is 1; and the other may be 0.
            product = arith.muli(first, other)
            most = arith.maxsi(first, other)
            first = arith.minsi(product, most)
    return first
