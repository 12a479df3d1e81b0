"""Shape inference of CHLO's elementwise operations with implicit broadcasting."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kcache_compiler.shapes.formula import UnresolvedSize
from kcache_compiler.shapes.shape_functions import Dims
from kcache_compiler.spec.graph.nodes import Node, Ref, broadcast_in_dim
from kcache_compiler.spec.graph.operations import ELEMENTWISE
from kcache_compiler.spec.shape_inference.context import NodeContext

PREFIX = "chlo.broadcast_"
_DIRECTION = re.compile(r"comparison_direction (\w+)")


def infer_broadcasting(context: NodeContext) -> list[Ref]:
    """Return the elementwise operation of operands whose axes of size 1 are expanded."""
    node = context.node
    shapes = context.operand_dims()
    rank = len(node.results[0].dims or ())
    stated = context.shapes().ints("broadcast_dimensions")
    largest = max(map(len, shapes))
    axes = [
        tuple(stated) if stated and len(dims) < largest else tuple(range(rank - len(dims), rank))
        for dims in shapes
    ]
    dims = _common_shape(context, shapes, axes, rank)
    operands = [
        ref._replace(view=broadcast_in_dim(ref.view, own, dims))
        for ref, own in zip(context.operands, axes, strict=True)
    ]
    name = node.op.removeprefix(PREFIX)
    attributes = ""
    if name == "compare":
        match = _DIRECTION.search(node.attributes)
        direction = match[1] if match else ""
        operands = operands[::-1] if direction in ("GT", "GE") else operands
        attributes = {"GT": "LT", "GE": "LE"}.get(direction, direction)
        attributes += ", TOTALORDER" if "TOTALORDER" in node.attributes else ""
    op = ELEMENTWISE.get(f"stablehlo.{name}") or ELEMENTWISE.get(f"chlo.{name}")
    if op is None:
        raise UnresolvedSize(node.op)
    return context.add(Node(op, attributes, tuple(operands), (), context.result_types([dims])))


def _common_shape(
    context: NodeContext, shapes: Sequence[Dims], axes: Sequence[tuple[int, ...]], rank: int
) -> Dims:
    """The shape that all operands are broadcast to; a symbolic size is not taken for 1."""
    common = [1] * rank
    for dims, own in zip(shapes, axes, strict=True):
        for size, axis in zip(dims, own, strict=True):
            if size != 1 and common[axis] not in (1, size):
                context.require_equal(common[axis], size)
            common[axis] = size if common[axis] == 1 else common[axis]
    return tuple(common)
