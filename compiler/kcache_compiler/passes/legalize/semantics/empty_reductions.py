"""Reductions along no axis, and windows that see padding only."""

from __future__ import annotations

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir


def lower_unreduced(op: mlir.Op) -> None:
    """Give a reduction along no axis one of size 1 to reduce."""
    count = len(op.operands) // 2
    if None in mlir.sizes_of(op.operands[0].type):
        raise UnsupportedOp(
            mlir.name_of(op), "a reduction along no axis of dynamic size", mlir.location_of(op)
        )
    rank = mlir.rank_of(op.operands[0].type)
    with mlir.before(op):
        for number in range(count):
            operand = op.operands[number]
            kind = mlir.type_of(str(operand.type)[:-1].replace("tensor<", "tensor<1x", 1) + ">")
            axes = mlir.attribute(
                f"array<i64: {', '.join(str(axis + 1) for axis in range(rank))}>" if rank else "array<i64>"
            )
            op.operands[number] = mlir.value(
                "stablehlo.broadcast_in_dim", [operand], kind, broadcast_dimensions=axes
            )
    op.attributes["dimensions"] = mlir.attribute("array<i64: 0>")


def lower_windows_of_padding(op: mlir.Op) -> None:
    """Windows over no elements see initial values, which are laid out for them."""
    count = len(op.operands) // 2
    shape = mlir.sizes_of(op.operands[0].type)
    rank = len(shape)
    if None in shape:
        raise UnsupportedOp(
            mlir.name_of(op), "windows over no elements of dynamic size", mlir.location_of(op)
        )
    padding = mlir.integer_pairs(op, "padding") or [(0, 0)] * rank
    base = mlir.integers(op.attributes["base_dilations"]) if "base_dilations" in op.attributes else [1] * rank
    padded = [
        sum(pair) + ((size - 1) * step + 1 if size else 0)
        for size, step, pair in zip(shape, base, padding, strict=True)
        if size is not None
    ]
    with mlir.before(op):
        for number in range(count):
            initial = op.operands[count + number]
            sizes = "".join(f"{size}x" for size in padded)
            kind = mlir.type_of(f"tensor<{sizes}{mlir.element_type(initial.type)}>")
            none = mlir.attribute("array<i64>")
            op.operands[number] = mlir.value(
                "stablehlo.broadcast_in_dim", [initial], kind, broadcast_dimensions=none
            )
    for name in ("padding", "base_dilations"):
        if name in op.attributes:
            del op.attributes[name]
