"""Operations on axes that a reshape merged, computed on the axes before the merge.

``view(B*T, C) @ W``, and ``bmm`` of merged batch and head axes, compute the same values without the merge,
which moves to the result, where a split cancels it. This is exact, as only indices change. A reduction of a
merged axis reduces all of its parts: StableHLO leaves the order of a reduction to the implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.nodes import Ref, spread_size
from kcache_compiler.spec.graph.reshape import read_groups, reshape


@dataclass(frozen=True)
class Merge:
    """Dim ``dim`` of an index space is the product of ``parts``; ``split`` are the operands over ``dims``,
    the space with the dim split.
    """

    dim: int
    parts: tuple[int, ...]
    dims: tuple[int, ...]
    split: tuple[Ref, ...]


def merge_of(builder: Builder, dims: Sequence[int], operands: Sequence[Ref]) -> Merge | None:
    """Return the first dim that all operands that vary along it merged from the same parts."""
    if not any(builder.nodes[ref.node].op == "reshape" for ref in operands) or min(dims, default=0) <= 0:
        return None
    for dim in range(len(dims)):
        parts = {_parts(builder, ref, ref.view[dim]) for ref in operands if ref.view[dim] >= 0}
        if len(parts) != 1:
            continue
        (sizes,) = parts
        if sizes:
            split = (*dims[:dim], *sizes, *dims[dim + 1 :])
            return Merge(dim, sizes, split, tuple(reshape(builder, ref, split) for ref in operands))
    return None


def _parts(builder: Builder, ref: Ref, axis: int) -> tuple[int, ...]:
    """The sizes that an axis of a node was merged from; empty if it was not merged."""
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


def split_reduced_dims(merge: Merge, reduced: frozenset[int]) -> frozenset[int]:
    """Return the reduced dims of the space with the merged dim split."""
    added = len(merge.parts) - 1
    shifted = {dim + added if dim > merge.dim else dim for dim in reduced}
    return frozenset(
        shifted | (set(range(merge.dim, merge.dim + added + 1)) if merge.dim in reduced else set())
    )
