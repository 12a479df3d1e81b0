"""Reductions of reductions, and what a sum is of."""

from __future__ import annotations

import math

from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.graph.reduction import ReductionInput
from kcache_compiler.spec.rewrites.site import Site

#: Combiners for which neither the order nor the grouping of the elements shows in any bit.
_GROUPING = frozenset({"maximum", "minimum", "and", "or", "xor"})
#: Those for which how often the initial value is combined does not show either.
_IDEMPOTENT = _GROUPING - {"xor"}


def reduced(site: Site, ref: Ref, combiner: str) -> tuple[Ref, Ref] | None:
    """Return what ``ref`` reduces, and the initial value: over the dims of the site, then over those that go,
    in the axes' order.

    None where it is no reduction by ``combiner`` of one value that has all of the axes that go.
    """
    node = site.node(ref)
    head, _, dims = node.attributes.rpartition("dimensions = ")
    if node.op != "reduce" or head != f"combiner = {combiner}, " or len(node.operands) != 2:
        return None
    source, initial = node.operands
    gone = [int(dim) for dim in dims.strip("[]").split(", ") if dim]
    kept = [label for label in range(len(source.view)) if label not in gone]
    axes = sorted(source.view[label] for label in gone)
    if not axes or axes[0] < 0:
        return None
    view = (*(source.view[kept[entry]] if entry >= 0 else entry for entry in ref.view), *axes)
    return source._replace(view=view), initial


def summed(site: Site, ref: Ref) -> Ref | None:
    """Return what ``ref`` is the sum of, from 0.0, over dims as ``reduced`` gives them."""
    found = reduced(site, ref, "add")
    zero = None if found is None else site.scalar(found[1])
    return None if found is None or zero != 0 or math.copysign(1, zero) < 0 else found[0]


def merged(site: Site, combiner: str, source: ReductionInput) -> ReductionInput | None:
    """Return a reduction of a reduction as one, None where it is none.

    Greatest and least values are the same bits however they are grouped. Sums are not, to as many units of
    rounding as there are numbers, which bounds each grouping of them: they are merged under ``default`` and
    ``fast`` only. The inner reduction combines its initial value once for each of its results, so that of a
    sum and of ``xor`` must be zero.
    A contraction stays: it has a kernel of its own.
    """
    ((outer,), (initial,)) = source.inputs, source.initial
    if combiner not in _GROUPING and (site.numerics == "strict" or combiner != "add"):
        return None
    if any(outer.view[dim] < 0 for dim in source.reduced):
        return None
    found = reduced(site, outer, combiner)
    if found is None or not site.same(found[1], initial) or _is_contraction(site, found[0]):
        return None
    if combiner not in _IDEMPOTENT and not _is_zero(site, initial):
        return None
    inner = found[0]
    gone = source.reduced | frozenset(range(len(outer.view), len(inner.view)))
    return ReductionInput([inner], [initial], gone)


def _is_zero(site: Site, ref: Ref) -> bool:
    """Whether a value is the constant 0, or 0 + 0i, of either sign."""
    node = site.node(ref)
    complex_zero = node.op == "constant" and not node.attributes.strip("0") and bool(node.attributes)
    return site.scalar(ref) == 0 or complex_zero


def _is_contraction(site: Site, ref: Ref) -> bool:
    """Whether a value is a product of which some factor lacks an axis."""
    node = site.node(ref)
    return node.op == "multiply" and any(entry < 0 for part in node.operands for entry in part.view)
