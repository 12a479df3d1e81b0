"""The rewrites of elementwise operations, in two tiers.

``EXACT`` rewrites keep the bits of every result, also of signed zeros and infinities, and apply under every
numerics class. The payload and sign of NaN are not specified by StableHLO and may change. Rewrites do not
depend on shapes.

``VALUE_CHANGING`` rewrites raise the expansions of one function, as frameworks write it, to one form, and
apply under ``default`` and ``fast`` only. Each bounds the difference; none is less accurate than the least
accurate form that it replaces.

Not exact, and therefore rejected: ``x + 0.0`` to ``x`` (-0.0 becomes 0.0; ``x + -0.0`` is exact), ``select(x
> 0, x, 0)`` to ``maximum(x, 0)`` (NaN becomes 0), ``select(x < 0, 0, x)`` to the same (-0.0 is kept), ``x *
0``, ``x - x``, and ``x * 1`` of complex numbers (infinities). ``x / 2^k`` to ``x * 2^-k`` is rejected because
it would depend on whether a size is a power of two.
"""

from __future__ import annotations

from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.nodes import Ref, ValueType, spread
from kcache_compiler.spec.graph.reduction import ReductionInput, add_reduction, has_reduced_elements
from kcache_compiler.spec.graph.reshape import merge_of, reshape, split_reduced_dims
from kcache_compiler.spec.rewrites.activations import ACTIVATIONS
from kcache_compiler.spec.rewrites.adam import OPTIMIZERS
from kcache_compiler.spec.rewrites.constant_folding import FOLDING
from kcache_compiler.spec.rewrites.error_functions import EXPANSIONS
from kcache_compiler.spec.rewrites.identities import BASIC, ELEMENTARY
from kcache_compiler.spec.rewrites.normalizations import MOMENTS, SQRT_REWRITES
from kcache_compiler.spec.rewrites.reductions import merge_reductions
from kcache_compiler.spec.rewrites.signs import SIGNS
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite, Rules, build_simplified

EXACT: tuple[GraphRewrite, ...] = (*FOLDING, *BASIC, *SIGNS, *ELEMENTARY)

_APPROXIMATE: tuple[GraphRewrite, ...] = (*EXPANSIONS, *OPTIMIZERS, *MOMENTS, *ACTIVATIONS, *SQRT_REWRITES)

#: Rewrites that change values within the tolerance of a numerics class, which are tried after ``EXACT``.
VALUE_CHANGING: dict[str, tuple[GraphRewrite, ...]] = {
    "strict": (),
    "default": _APPROXIMATE,
    "fast": _APPROXIMATE,
}


def _by_op(rewrites: tuple[GraphRewrite, ...]) -> Rules:
    ops = {op for rewrite in rewrites for op in rewrite.ops}
    return {op: tuple(r for r in rewrites if op in r.ops) for op in ops}


_RULES = {numerics: _by_op(EXACT + more) for numerics, more in VALUE_CHANGING.items()}


def simplify(site: RewriteSite) -> Ref:
    """Return an operation after the rewrites of its numerics class.

    Operations that a rewrite builds are rewritten too. Rewrites terminate, as each one gives fewer or more
    basic operations.
    """
    return build_simplified(site._replace(rules=_RULES[site.numerics]))


def combine(builder: Builder, numerics: str, op: str, source: ReductionInput, type: ValueType) -> Ref:
    """Return a reduction over dims of size 1: the initial value combined with each element."""
    (value,), (initial,) = source.inputs, source.initial
    dims = type.dims or ()
    elements = value._replace(view=tuple(e for dim, e in enumerate(value.view) if dim not in source.reduced))
    broadcast = initial._replace(view=tuple(map(spread, dims)))
    return simplify(RewriteSite(builder, numerics, op, "", type, (broadcast, elements)))


def reduce(builder: Builder, numerics: str, combiner: str, source: ReductionInput, type: ValueType) -> Ref:
    """Return a reduction by a named combiner with a result of ``type``, after rewrites."""
    if not has_reduced_elements(source):
        return combine(builder, numerics, combiner, source, type)
    space = builder.viewed_type(source.inputs[0]).dims or ()
    merge = merge_of(builder, space, source.inputs)
    if merge is not None:
        reduced = split_reduced_dims(merge, source.reduced)
        kept = tuple(size for dim, size in enumerate(merge.dims) if dim not in reduced)
        split = ReductionInput(merge.split, source.initial, reduced)
        result = reduce(builder, numerics, combiner, split, ValueType(type.element, kept))
        return result if merge.dim in source.reduced else reshape(builder, result, type.dims or ())
    site = RewriteSite(builder, numerics, "reduce", f"combiner = {combiner}", type, tuple(source.inputs))
    source = merge_reductions(site, combiner, source) or source
    return add_reduction(builder, "reduce", f"combiner = {combiner}", source, [type.element])[0]


__all__ = ["EXACT", "VALUE_CHANGING", "GraphRewrite", "RewriteSite", "combine", "reduce", "simplify"]
