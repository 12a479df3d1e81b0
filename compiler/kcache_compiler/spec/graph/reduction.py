"""Reductions and contractions as nodes over an index space whose dims are labelled like an elementwise
node's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.spec.graph.builder import Builder, FinishedRegion
from kcache_compiler.spec.graph.label import Group, Labelling
from kcache_compiler.spec.graph.nodes import Ref, Region, ValueType, spread_size
from kcache_compiler.spec.graph.operations import COMBINERS
from kcache_compiler.spec.importers.flatten import Block


@dataclass(frozen=True)
class ReductionInput:
    """``inputs`` are views over one index space, ``initial`` one scalar each, ``reduced`` the dims that
    go.
    """

    inputs: Sequence[Ref]
    initial: Sequence[Ref]
    reduced: frozenset[int]


def runs_over(source: ReductionInput) -> bool:
    """Whether any reduced dim can have other than one element."""
    first = source.inputs[0]
    entries = [ref.view[dim] for ref in source.inputs for dim in source.reduced]
    return any(entry >= 0 or spread_size(entry) != 1 for entry in entries) and bool(first.view)


def combiner_of(block: Block) -> str | None:
    """Return the operation where a region, not yet imported, is plainly it on the two parameters."""
    live = [entry for entry in block.entries if entry.live]
    if len(live) != 1 or len(block.parameters) != 2 or live[0].results != block.results:
        return None
    op = live[0].name.removeprefix("stablehlo.")
    return op if op in COMBINERS and sorted(live[0].operands) == sorted(block.parameters) else None


def is_combiner(region: Region, known: frozenset[str]) -> str | None:
    """Return the operation when the region is just that operation on its two parameters."""
    if len(region.nodes) != 1 or region.captures or len(region.results) != 1:
        return None
    node = region.nodes[0]
    own = Ref(len(region.params), 0, ())
    both = sorted(ref.node for ref in node.operands) == [0, 1]
    return node.op if node.op in known and both and region.results[0] == own else None


def add_reduction(
    builder: Builder,
    op: str,
    attributes: str,
    source: ReductionInput,
    elements: Sequence[str],
    region: FinishedRegion | None = None,
) -> list[Ref]:
    """Add the node and return its results over the kept dims, in their order.

    Reduced dims of size 1 are dropped: they add no element. Reduced dims along which every input is a
    broadcast stay, by size, because the sum of n equal values is not one of them. The dims are a set where
    the combiner is known to commute, and are listed by label; a region sees the elements in the row-major
    order of the dims, so there they are listed in that order.
    """
    found = builder.label_reduction(source.inputs, source.reduced, swappable=False)
    sizes = builder.label_sizes(source.inputs, found)
    extra = _uncovered(source, found)
    uses = [
        Ref(ref.node, ref.result, (*view, *(source.inputs[0].view[dim] for dim in extra)))
        for ref, view in zip(source.inputs, found.views, strict=True)
    ]
    uses += source.initial
    label_of = {dim: lab for lab, dim in enumerate((*found.order, *extra))}
    dims = [label_of[dim] for dim in sorted(source.reduced) if dim in label_of]
    if region is None:
        dims.sort()
    kept = [lab for lab, dim in enumerate(found.order) if dim not in source.reduced]
    text = f"dimensions = [{', '.join(map(str, dims))}]"
    results = tuple(ValueType(element, tuple(sizes[lab] for lab in kept)) for element in elements)
    index = builder.node(
        op,
        f"{attributes}, {text}" if attributes else text,
        (*uses, *(region.captured if region else ())),
        (region.region,) if region else (),
        results,
        _kept_group(_in_order(found.group, dims) if region else found.group, kept),
        ((region.digest, region.tie),) if region else (),
    )
    view = _result_view(source, found, kept)
    return [Ref(index, i, view) for i in range(len(elements))]


def _uncovered(source: ReductionInput, found: Labelling) -> list[int]:
    """Return the reduced dims that no input covers, by size."""
    size = {
        dim: spread_size(source.inputs[0].view[dim])
        for dim in sorted(source.reduced)
        if dim not in found.order
    }
    return sorted((dim for dim in size if size[dim] != 1), key=size.__getitem__)


def _in_order(group: Group, dims: list[int]) -> Group:
    """Return the permutations that leave the reduced labels where they are."""
    return tuple(p for p in group if all(dim >= len(p) or p[dim] == dim for dim in dims))


def _kept_group(group: Group, kept: list[int]) -> Group:
    """Restrict permutations of all labels to the kept ones; the encoding keeps the two kinds apart."""
    position = {lab: k for k, lab in enumerate(kept)}
    found = {tuple(position[p[lab]] for lab in kept) for p in group}
    return tuple(sorted(found - {tuple(range(len(kept)))}))


def _result_view(source: ReductionInput, found: Labelling, kept: list[int]) -> tuple[int, ...]:
    axis_of = {found.order[lab]: axis for axis, lab in enumerate(kept)}
    first = source.inputs[0].view
    return tuple(axis_of.get(dim, first[dim]) for dim in range(len(first)) if dim not in source.reduced)
