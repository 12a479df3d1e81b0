"""The index space of a ``dot_general``, in which its operands are views."""

from __future__ import annotations

from kcache_compiler.mlir.context import Native, native_stablehlo
from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.nodes import Ref, broadcast_in_dim

#: Batching dims of both operands, then contracting dims of both.
DotNumbers = tuple[list[int], list[int], list[int], list[int]]


def dot_numbers(attribute: Native) -> DotNumbers:
    """Read a ``#stablehlo.dot`` attribute."""
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
    """Return both operands over the space batch, lhs free, rhs free, contracted; the contracted dims; all
    sizes.
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
    place_lhs = {d: i for i, d in enumerate([*lhs_batch, *lhs_free])}
    place_rhs = {d: (i if i < batch else i + left) for i, d in enumerate([*rhs_batch, *rhs_free])}
    first = batch + left + right
    place_lhs |= {d: first + i for i, d in enumerate(lhs_contracted)}
    place_rhs |= {d: first + i for i, d in enumerate(rhs_contracted)}
    shape = tuple(sizes)
    placed: list[Ref] = []
    for operand, place in zip(operands, (place_lhs, place_rhs), strict=True):
        where = tuple(place[d] for d in range(len(place)))
        view = list(broadcast_in_dim(operand.view, where, shape))
        placed.append(operand._replace(view=tuple(view)))
    return placed[0], placed[1], frozenset(range(first, len(shape))), shape
