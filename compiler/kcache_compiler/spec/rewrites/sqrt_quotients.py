"""Quotients by square roots in normalizations: ``(x - mean) * rsqrt(v + epsilon) * scale``."""

from __future__ import annotations

from collections.abc import Iterator

from kcache_compiler.spec.graph.element_types import is_float
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.constant_folding import root
from kcache_compiler.spec.rewrites.scalars import encode
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite


def _quotient(site: RewriteSite) -> Ref | None:
    if not is_float(site.type.element):
        return None
    top, bottom = site.operands
    inner = site.operand_of(bottom, "sqrt")
    return None if inner is None else site.build("multiply", top, site.build("rsqrt", inner))


def _constant(site: RewriteSite) -> Ref | None:
    value = site.scalar(site.operands[0])
    if not isinstance(value, float) or not 0 < value < float("inf"):
        return None
    content = encode(1 / root(value), site.type.element)
    return site.builder.constant(content, site.type.element, (), site.type.dims or ())


def _factors(site: RewriteSite) -> Iterator[tuple[Ref, Ref, Ref]]:
    """Yield the factors ``a, b, c`` of ``a * (b * c)`` or ``(b * c) * a``, with each of them first once."""
    for left, right in (site.operands, site.operands[::-1]):
        parts = site.operands_of(right, "multiply")
        if parts is not None:
            first, second = parts
            yield left, first, second
            yield first, left, second
            yield second, left, first


def _is_norm(site: RewriteSite, ref: Ref) -> bool:
    """Whether a value is ``rsqrt(x + epsilon)`` with a positive constant ``epsilon``."""
    inner = site.operand_of(ref, "rsqrt")
    parts = None if inner is None else site.operands_of(inner, "add")
    return parts is not None and any((site.scalar(part) or 0) > 0 for part in parts)


def _normalized(site: RewriteSite) -> Ref | None:
    """Reorder ``a * b * rsqrt(x + epsilon)``: the factor with more axes is multiplied first."""
    if not is_float(site.type.element):
        return None
    ways = [way for way in _factors(site) if [_is_norm(site, ref) for ref in way] == [True, False, False]]
    if not ways:
        return None
    norm, left, right = min(ways, key=lambda way: _rank(site, way[0]))
    first, second = (left, right) if _rank(site, left) >= _rank(site, right) else (right, left)
    return site.build_unchanged("multiply", site.build_unchanged("multiply", first, norm), second)


def _rank(site: RewriteSite, ref: Ref) -> tuple[int, bytes, bytes]:
    used = sum(entry >= 0 for entry in ref.view)
    return used, site.builder.digests[ref.node], site.builder.ties[ref.node]


SQRT_REWRITES: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "quotient_by_root",
        ("divide",),
        "a / sqrt(b) is a * rsqrt(b): each rounds twice, rsqrt to 2 ulp, so they differ by 3 ulp; at "
        "zeros, infinities and numbers below zero both are the same.",
        _quotient,
        "sqrt",
    ),
    GraphRewrite(
        "constant_rsqrt",
        ("rsqrt",),
        "The root of a constant, rounded once: 2 ulp.",
        _constant,
        "constant",
    ),
    GraphRewrite(
        "normalized_first",
        ("multiply",),
        "Products of x, rsqrt(v + epsilon) and a scale in another order: 2 ulp, with no overflow that the "
        "result does not have while |x| is below sqrt(epsilon) of the largest number.",
        _normalized,
        "rsqrt",
    ),
)
