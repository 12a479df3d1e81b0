"""The index space of a ``dot_general``, in which its operands are views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcache_compiler.mlir.context import native_stablehlo
from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.nodes import Ref, broadcast_in_dim

if TYPE_CHECKING:
    from torch_mlir import ir

#: Batching dims of both operands, then contracting dims of both.
DotNumbers = tuple[list[int], list[int], list[int], list[int]]


def dot_numbers(attribute: ir.Attribute) -> DotNumbers:
    """Return the numbers of a ``#stablehlo.dot`` attribute."""
    n = native_stablehlo().DotDimensionNumbers(attribute)
    return (
        list(n.lhs_batching_dimensions),
        list(n.rhs_batching_dimensions),
        list(n.lhs_contracting_dimensions),
        list(n.rhs_contracting_dimensions),
    )


def contracted_space(
    builder: Builder, operands: list[Ref], numbers: DotNumbers
) -> tuple[Ref, Ref, frozenset[int], tuple[int, ...]]:
    """Return both operands over the index space batch, lhs free, rhs free, contracted, its contracted dims,
    and its shape.
    """
    lhs_batch, rhs_batch, lhs_contracted, rhs_contracted = numbers
    lhs_dims, rhs_dims = (builder.viewed_type(o).dims or () for o in operands)
    lhs_free = [d for d in range(len(lhs_dims)) if d not in lhs_batch and d not in lhs_contracted]
    rhs_free = [d for d in range(len(rhs_dims)) if d not in rhs_batch and d not in rhs_contracted]
    sizes = [
        *(max(lhs_dims[a], rhs_dims[b]) for a, b in zip(lhs_batch, rhs_batch, strict=True)),
        *(lhs_dims[d] for d in lhs_free),
        *(rhs_dims[d] for d in rhs_free),
        *(max(lhs_dims[a], rhs_dims[b]) for a, b in zip(lhs_contracted, rhs_contracted, strict=True)),
    ]
    batch, left, right = len(lhs_batch), len(lhs_free), len(rhs_free)
    lhs_position = {d: i for i, d in enumerate([*lhs_batch, *lhs_free])}
    rhs_position = {d: (i if i < batch else i + left) for i, d in enumerate([*rhs_batch, *rhs_free])}
    first = batch + left + right
    lhs_position |= {d: first + i for i, d in enumerate(lhs_contracted)}
    rhs_position |= {d: first + i for i, d in enumerate(rhs_contracted)}
    shape = tuple(sizes)
    views: list[Ref] = []
    for operand, position in zip(operands, (lhs_position, rhs_position), strict=True):
        dims = tuple(position[d] for d in range(len(position)))
        views.append(operand._replace(view=broadcast_in_dim(operand.view, dims, shape)))
    return views[0], views[1], frozenset(range(first, len(shape))), shape
