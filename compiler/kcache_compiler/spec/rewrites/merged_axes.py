"""Axes that a reshape merged: what is computed along them is computed along the axes that they are made of.

``view(B*T, C) @ W`` and ``bmm`` of merged batch and head axes are the same values as without the merge. It
moves to the result, where a split undoes it. Exact: only indices change. (A reduction along a merged axis
runs along all of its parts: its order is the implementation's in StableHLO.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.nodes import Ref, spread_size
from kcache_compiler.spec.graph.reshape import read_groups, reshape


@dataclass(frozen=True)
class Merge:
    """Dim ``dim`` of a space is the product of ``parts``: ``split`` are the operands over the space ``dims``,
    where it is taken apart.
    """

    dim: int
    parts: tuple[int, ...]
    dims: tuple[int, ...]
    split: tuple[Ref, ...]


def merge_of(builder: Builder, dims: Sequence[int], operands: Sequence[Ref]) -> Merge | None:
    """Return the first dim of a space that every operand which varies along it merged from the same parts."""
    if not any(builder.nodes[ref.node].op == "reshape" for ref in operands) or min(dims, default=0) <= 0:
        return None
    for dim in range(len(dims)):
        parts = {_parts(builder, ref, ref.view[dim]) for ref in operands if ref.view[dim] >= 0}
        if len(parts) != 1:
            continue
        (sizes,) = parts
        if sizes:
            apart = (*dims[:dim], *sizes, *dims[dim + 1 :])
            return Merge(dim, sizes, apart, tuple(reshape(builder, ref, apart) for ref in operands))
    return None


def _parts(builder: Builder, ref: Ref, axis: int) -> tuple[int, ...]:
    """Return the sizes that an axis of a node was merged from, none where it was not."""
    node = builder.nodes[ref.node]
    if node.op != "reshape" or not node.attributes:
        return ()
    (source,) = node.operands
    axes = builder.type_of(source).dims or ()
    groups = read_groups(node.attributes)
    into = out = len(source.view) - sum(count for count, _ in groups)
    for count, sizes in groups:
        if out == axis and len(sizes) == 1:
            entries = source.view[into : into + count]
            return tuple(axes[entry] if entry >= 0 else spread_size(entry) for entry in entries)
        into, out = into + count, out + len(sizes)
    return ()


def kept_apart(merge: Merge, reduced: frozenset[int]) -> frozenset[int]:
    """Return the dims that a reduction runs over, where the merged dim is taken apart."""
    more = len(merge.parts) - 1
    shifted = {dim + more if dim > merge.dim else dim for dim in reduced}
    return frozenset(
        shifted | (set(range(merge.dim, merge.dim + more + 1)) if merge.dim in reduced else set())
    )
