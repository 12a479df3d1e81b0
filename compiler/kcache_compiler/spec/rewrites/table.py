"""The rewrites of elementwise values, in two tiers.

``EXACT`` rewrites give the same bits for every input, signed zeros and infinities included, and apply under
every numerics class. Which NaN a NaN is (sign, payload, quiet or signalling) is not specified by StableHLO
and does not count. Each holds for all sizes: none looks at a shape.

``VALUE_CHANGING`` rewrites raise the forms that frameworks write one function in to one form, and apply under
``default`` and ``fast`` only. Each says by how much the two forms differ; none is worse than the worst of
the forms that it merges.

Rejected, because not exact: ``x + 0.0`` is ``x`` (-0.0 becomes 0.0; ``x + -0.0`` is fine),
``select(x > 0, x, 0)`` is ``maximum(x, 0)`` (NaN becomes 0), ``select(x < 0, 0, x)`` is it (-0.0 stays),
``x * 0``, ``x - x``, ``x * 1`` for complex (infinities). Rejected, because they would see a size that is a
power of two: ``x / 2^k`` is ``x * 2^-k``.
"""

from __future__ import annotations

from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.nodes import Ref, ValueType, spread
from kcache_compiler.spec.graph.reduction import ReductionInput, add_reduction, runs_over
from kcache_compiler.spec.graph.reshape import reshape
from kcache_compiler.spec.rewrites.activations import ACTIVATIONS
from kcache_compiler.spec.rewrites.adam import OPTIMIZERS
from kcache_compiler.spec.rewrites.constant_folding import FOLDING
from kcache_compiler.spec.rewrites.elementary import ELEMENTARY
from kcache_compiler.spec.rewrites.error_functions import EXPANSIONS
from kcache_compiler.spec.rewrites.identities import BASIC
from kcache_compiler.spec.rewrites.merged_axes import kept_apart, merge_of
from kcache_compiler.spec.rewrites.normalization import ROOTS
from kcache_compiler.spec.rewrites.reductions import merged
from kcache_compiler.spec.rewrites.signs import SIGNS
from kcache_compiler.spec.rewrites.site import Rewrite, Rules, Site, apply
from kcache_compiler.spec.rewrites.variance import MOMENTS

EXACT: tuple[Rewrite, ...] = (*FOLDING, *BASIC, *SIGNS, *ELEMENTARY)

_RAISING: tuple[Rewrite, ...] = (*EXPANSIONS, *OPTIMIZERS, *MOMENTS, *ACTIVATIONS, *ROOTS)

#: Rewrites that change values within the tolerance of a numerics class, by class. They run after ``EXACT``,
#: and never under ``strict``.
VALUE_CHANGING: dict[str, tuple[Rewrite, ...]] = {"strict": (), "default": _RAISING, "fast": _RAISING}


def _by_op(rewrites: tuple[Rewrite, ...]) -> Rules:
    ops = {op for rewrite in rewrites for op in rewrite.ops}
    return {op: tuple(r for r in rewrites if op in r.ops) for op in ops}


_RULES = {numerics: _by_op(EXACT + more) for numerics, more in VALUE_CHANGING.items()}


def simplest(site: Site) -> Ref:
    """Return the value of what is about to be built: a simpler one if a rewrite applies, else its node.

    What a rewrite builds is rewritten too; each makes fewer operations, or a more basic one.
    """
    return apply(site._replace(rules=_RULES[site.numerics]))


def combine(builder: Builder, numerics: str, op: str, source: ReductionInput, type: ValueType) -> Ref:
    """Reduce over nothing but dims of size 1: combine the initial value with each element, once."""
    (value,), (initial,) = source.inputs, source.initial
    dims = type.dims or ()
    kept = value._replace(view=tuple(e for dim, e in enumerate(value.view) if dim not in source.reduced))
    shown = initial._replace(view=tuple(map(spread, dims)))
    return simplest(Site(builder, numerics, op, "", type, (shown, kept)))


def reduce(builder: Builder, numerics: str, combiner: str, source: ReductionInput, type: ValueType) -> Ref:
    """Return a reduction by a named combiner, ``type`` being that of its result, as simple as it gets."""
    if not runs_over(source):
        return combine(builder, numerics, combiner, source, type)
    space = builder.viewed_type(source.inputs[0]).dims or ()
    merge = merge_of(builder, space, source.inputs)
    if merge is not None:
        reduced = kept_apart(merge, source.reduced)
        kept = tuple(size for dim, size in enumerate(merge.dims) if dim not in reduced)
        apart = ReductionInput(merge.split, source.initial, reduced)
        found = reduce(builder, numerics, combiner, apart, ValueType(type.element, kept))
        return found if merge.dim in source.reduced else reshape(builder, found, type.dims or ())
    site = Site(builder, numerics, "reduce", f"combiner = {combiner}", type, tuple(source.inputs))
    source = merged(site, combiner, source) or source
    return add_reduction(builder, "reduce", f"combiner = {combiner}", source, [type.element])[0]


__all__ = ["EXACT", "VALUE_CHANGING", "Rewrite", "Site", "combine", "reduce", "simplest"]
