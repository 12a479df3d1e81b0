"""Reductions of reductions, merged into one."""

from __future__ import annotations

import math

from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.graph.reduction import ReductionInput
from kcache_compiler.spec.rewrites.site import RewriteSite

#: Combiners that are exact under reassociation.
_ASSOCIATIVE = frozenset({"maximum", "minimum", "and", "or", "xor"})
#: Combiners for which the initial value may be combined several times.
_IDEMPOTENT = _ASSOCIATIVE - {"xor"}


def reduced(site: RewriteSite, ref: Ref, combiner: str) -> tuple[Ref, Ref] | None:
    """Return the operand and initial value of a reduction, over the dims of the site, then the reduced axes.

    None if ``ref`` is no reduction by ``combiner`` of one value that varies along all reduced axes.
    """
    node = site.node(ref)
    head, _, dims = node.attributes.rpartition("dimensions = ")
    if node.op != "reduce" or head != f"combiner = {combiner}, " or len(node.operands) != 2:
        return None
    source, initial = node.operands
    removed = [int(dim) for dim in dims.strip("[]").split(", ") if dim]
    kept = [label for label in range(len(source.view)) if label not in removed]
    axes = sorted(source.view[label] for label in removed)
    if not axes or axes[0] < 0:
        return None
    view = (*(source.view[kept[entry]] if entry >= 0 else entry for entry in ref.view), *axes)
    return source._replace(view=view), initial


def summed(site: RewriteSite, ref: Ref) -> Ref | None:
    """Return the operand of a sum with initial value 0.0, over dims as ``reduced`` returns them."""
    reduction = reduced(site, ref, "add")
    zero = None if reduction is None else site.scalar(reduction[1])
    return None if reduction is None or zero != 0 or math.copysign(1, zero) < 0 else reduction[0]


def merge_reductions(site: RewriteSite, combiner: str, source: ReductionInput) -> ReductionInput | None:
    """Return a reduction of a reduction as one reduction; None of another one.

    Maxima, minima and bitwise operations are exact under reassociation. Sums are reassociated under
    ``default`` and ``fast`` only; each order is accurate to as many units of rounding as there are elements.
    The inner reduction combines its initial value once per result, so that of a sum and of ``xor`` must be 0.
    A contraction is not merged, as it has its own kernel.
    """
    ((outer,), (initial,)) = source.inputs, source.initial
    if combiner not in _ASSOCIATIVE and (site.numerics == "strict" or combiner != "add"):
        return None
    if any(outer.view[dim] < 0 for dim in source.reduced):
        return None
    nested = reduced(site, outer, combiner)
    if nested is None or not site.same(nested[1], initial) or _is_contraction(site, nested[0]):
        return None
    if combiner not in _IDEMPOTENT and not _is_zero(site, initial):
        return None
    inner = nested[0]
    dims = source.reduced | frozenset(range(len(outer.view), len(inner.view)))
    return ReductionInput([inner], [initial], dims)


def _is_zero(site: RewriteSite, ref: Ref) -> bool:
    """Whether a value is the constant 0, real or complex, of either sign."""
    node = site.node(ref)
    complex_zero = node.op == "constant" and not node.attributes.strip("0") and bool(node.attributes)
    return site.scalar(ref) == 0 or complex_zero


def _is_contraction(site: RewriteSite, ref: Ref) -> bool:
    """Whether a value is a product with a factor that lacks an axis: a contraction."""
    node = site.node(ref)
    return node.op == "multiply" and any(entry < 0 for part in node.operands for entry in part.view)
