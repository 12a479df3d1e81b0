"""Reductions and contractions as nodes over a labeled index space, as elementwise nodes are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.spec.graph.builder import Builder, FinishedRegion
from kcache_compiler.spec.graph.label import Group, Labeling
from kcache_compiler.spec.graph.nodes import Ref, Region, ValueType, spread_size
from kcache_compiler.spec.graph.operations import COMBINERS
from kcache_compiler.spec.importers.flatten import Block


@dataclass(frozen=True)
class ReductionInput:
    """Views over one index space, one initial scalar for each, and the reduced dims."""

    inputs: Sequence[Ref]
    initial: Sequence[Ref]
    reduced: frozenset[int]


def has_reduced_elements(source: ReductionInput) -> bool:
    """Return whether a reduced dim may have a size other than 1."""
    first = source.inputs[0]
    entries = [ref.view[dim] for ref in source.inputs for dim in source.reduced]
    return any(entry >= 0 or spread_size(entry) != 1 for entry in entries) and bool(first.view)


def combiner_of(block: Block) -> str | None:
    """Return the combiner that a region of the tape is; None of another region."""
    live = [entry for entry in block.entries if entry.live]
    if len(live) != 1 or len(block.parameters) != 2 or live[0].results != block.results:
        return None
    op = live[0].name.removeprefix("stablehlo.")
    return op if op in COMBINERS and sorted(live[0].operands) == sorted(block.parameters) else None


def combiner_of_region(region: Region, known: frozenset[str]) -> str | None:
    """Return the operation, one of ``known``, that a region applies to its two parameters; None of another
    region.
    """
    if len(region.nodes) != 1 or region.captures or len(region.results) != 1:
        return None
    node = region.nodes[0]
    result = Ref(len(region.params), 0, ())
    uses_both = sorted(ref.node for ref in node.operands) == [0, 1]
    return node.op if node.op in known and uses_both and region.results[0] == result else None


def add_reduction(
    builder: Builder,
    op: str,
    attributes: str,
    source: ReductionInput,
    elements: Sequence[str],
    region: FinishedRegion | None = None,
) -> list[Ref]:
    """Add a reduction and return its results over the kept dims, in their order.

    Reduced dims of size 1 are dropped. Reduced dims along which all inputs are broadcasts are kept, by size,
    as the sum of n equal values is not one of them. The dims of a commutative combiner are a set, listed by
    label; a region combines elements in the row-major order of the dims, so they are listed in that order.
    """
    labeling = builder.label_reduction(source.inputs, source.reduced, swappable=False)
    sizes = builder.label_sizes(source.inputs, labeling)
    extra = _uncovered(source, labeling)
    uses = [
        Ref(ref.node, ref.result, (*view, *(source.inputs[0].view[dim] for dim in extra)))
        for ref, view in zip(source.inputs, labeling.views, strict=True)
    ]
    uses += source.initial
    label_of = {dim: lab for lab, dim in enumerate((*labeling.order, *extra))}
    dims = [label_of[dim] for dim in sorted(source.reduced) if dim in label_of]
    if region is None:
        dims.sort()
    kept = [lab for lab, dim in enumerate(labeling.order) if dim not in source.reduced]
    text = f"dimensions = [{', '.join(map(str, dims))}]"
    results = tuple(ValueType(element, tuple(sizes[lab] for lab in kept)) for element in elements)
    index = builder.node(
        op,
        f"{attributes}, {text}" if attributes else text,
        (*uses, *(region.captured if region else ())),
        (region.region,) if region else (),
        results,
        _kept_group(_in_order(labeling.group, dims) if region else labeling.group, kept),
        ((region.digest, region.tie),) if region else (),
    )
    view = _result_view(source, labeling, kept)
    return [Ref(index, i, view) for i in range(len(elements))]


def _uncovered(source: ReductionInput, labeling: Labeling) -> list[int]:
    """The reduced dims that no input covers, by size."""
    size = {
        dim: spread_size(source.inputs[0].view[dim])
        for dim in sorted(source.reduced)
        if dim not in labeling.order
    }
    return sorted((dim for dim in size if size[dim] != 1), key=size.__getitem__)


def _in_order(group: Group, dims: list[int]) -> Group:
    """The permutations that fix the reduced labels."""
    return tuple(p for p in group if all(dim >= len(p) or p[dim] == dim for dim in dims))


def _kept_group(group: Group, kept: list[int]) -> Group:
    """The permutations restricted to kept labels, which no permutation mixes with reduced ones."""
    position = {lab: k for k, lab in enumerate(kept)}
    restricted = {tuple(position[p[lab]] for lab in kept) for p in group}
    return tuple(sorted(restricted - {tuple(range(len(kept)))}))


def _result_view(source: ReductionInput, labeling: Labeling, kept: list[int]) -> tuple[int, ...]:
    axis_of = {labeling.order[lab]: axis for axis, lab in enumerate(kept)}
    first = source.inputs[0].view
    return tuple(axis_of.get(dim, first[dim]) for dim in range(len(first)) if dim not in source.reduced)
