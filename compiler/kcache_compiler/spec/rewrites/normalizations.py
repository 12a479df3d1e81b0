"""Rewrites of normalizations: ``(x - mean) * rsqrt(variance + epsilon) * scale``.

A variance is computed in the element type of the operand, from deviations from the mean. A quotient by a
square root is a product with ``rsqrt``.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcache_compiler.shapes.monomial import product, size_text
from kcache_compiler.spec.graph.element_types import encode, is_float, lossless
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.constant_folding import inverse_extent, one_less, root
from kcache_compiler.spec.rewrites.reductions import summed
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


def _mean(site: RewriteSite, ref: Ref) -> tuple[Ref, Ref] | None:
    """The operand of a mean, over dims as ``summed`` returns them, and the divisor of the sum."""
    parts = site.operands_of(ref, "divide")
    source = None if parts is None else summed(site, parts[0])
    return None if parts is None or source is None else (source, parts[1])


def _is_element_count(site: RewriteSite, divisor: Ref, source: Ref, kept: int) -> bool:
    """Whether a divisor is the number of elements of a sum over the dims from ``kept`` on."""
    sizes = site.builder.viewed_type(source).dims or ()
    count = product(sizes[kept:]) if min(sizes[kept:], default=-1) > 0 else None
    if count is None:
        return False
    node = site.node(divisor)
    return node.attributes == size_text(count) if node.op == "extent" else site.scalar(divisor) == count


def _deviations(site: RewriteSite, square: Ref, kept: int) -> tuple[Ref, Ref] | None:
    """``(x, d)`` of ``(x - sum(x) / d)^2``, whose sum is over the dims from ``kept`` on; None of other
    values.
    """
    parts = site.operands_of(square, "multiply")
    if parts is None or not site.same(*parts):
        return None
    difference = site.operands_of(parts[0], "subtract")
    mean = None if difference is None else _mean(site, difference[1])
    if difference is None or mean is None:
        return None
    value, (source, divisor) = difference[0], mean
    rank = len(square.view)
    extra = list(source.view[rank:])
    summed_axes = [entry for dim, entry in enumerate(value.view) if dim >= kept and entry >= 0]
    if source[:2] != value[:2] or sorted(extra) != sorted(summed_axes):
        return None
    aligned = tuple(source.view[dim] if dim < kept else value.view[dim] for dim in range(rank))
    is_same = site.same(source._replace(view=aligned), value)
    return (value, divisor) if is_same and all(e < 0 for e in source.view[kept:rank]) else None


def _narrowed(site: RewriteSite) -> Ref | None:
    """Rewrite a variance in f64 of values of a narrower float, rounded to that type."""
    (wide,) = site.operands
    element = site.type.element
    mean = _mean(site, wide) if site.element(wide) == "f64" and is_float(element) else None
    if mean is None:
        return None
    square, divisor = mean
    kept = len(site.operands[0].view)
    inside = site.with_dims(site.builder.viewed_type(square).dims or ())
    parts = _deviations(inside, square, kept)
    narrow = None if parts is None else site.operand_of(parts[0], "convert")
    if parts is None or narrow is None or not lossless(site.element(narrow), element):
        return None
    narrow = inside.build_as("convert", element, [narrow])
    divisors = [site.build("convert", site.broadcast(ref)) for ref in (parts[1], divisor)]
    return _variance(site, narrow, divisors[0], divisors[1])


def _centred(site: RewriteSite) -> Ref | None:
    """Rewrite ``mean(x^2) - mean(x)^2``."""
    if not is_float(site.type.element):
        return None
    left, right = site.operands
    squares, parts = _mean(site, left), site.operands_of(right, "multiply")
    mean = None if parts is None or not site.same(*parts) else _mean(site, parts[0])
    if squares is None or mean is None:
        return None
    kept = len(left.view)
    inside = site.with_dims(site.builder.viewed_type(squares[0]).dims or ())
    factors = inside.operands_of(squares[0], "multiply")
    if factors is None or not site.same(*factors):
        return None
    value = factors[0]
    order = sorted(range(kept, len(value.view)), key=lambda dim: value.view[dim])
    value = value._replace(view=(*value.view[:kept], *(value.view[dim] for dim in order)))
    if not site.same(value, mean[0]) or not all(
        _is_element_count(site, divisor, value, kept) for _, divisor in (squares, mean)
    ):
        return None
    return _variance(site, value, mean[1], squares[1])


def _variance(site: RewriteSite, value: Ref, center: Ref, divisor: Ref) -> Ref:
    """``sum((x - sum(x) / center)^2) / divisor`` over the dims of ``value`` beyond those of the site."""
    kept = len(site.type.dims or ())
    dims = site.builder.viewed_type(value).dims or ()
    inside = site.with_dims(dims)
    dims_reduced = frozenset(range(kept, len(dims)))
    mean = site.build("divide", inside.sum(value, dims_reduced), center)
    broadcast = mean._replace(view=(*mean.view, *(~size for size in dims[kept:])))
    deviation = inside.build("subtract", value, broadcast)
    squares = inside.build("multiply", deviation, deviation)
    return site.build("divide", inside.sum(squares, dims_reduced), divisor)


def _one_less(site: RewriteSite) -> Ref | None:
    return one_less(site) if site.type.element == "f32" else None


def _inverse(site: RewriteSite) -> Ref | None:
    """``1 / N``."""
    exact = site.type.element in ("f32", "f64") and site.scalar(site.operands[0]) == 1
    return inverse_extent(site) if exact else None


MOMENTS: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "narrow_extent_less_one",
        ("subtract",),
        "N - 1 of N rounded to f32 is N - 1 rounded: the same to 2^24, else 1 ulp.",
        _one_less,
        "extent",
    ),
    GraphRewrite(
        "inverse_of_extent",
        ("divide",),
        "1 / N of N rounded is 1 / N rounded: the same to 2^24 in f32, to 2^53 in f64, else 1 ulp.",
        _inverse,
        "extent",
    ),
    GraphRewrite(
        "variance_without_f64",
        ("convert",),
        "A variance of n numbers of a narrower float, from deviations from their mean, computed in that "
        "float and not in f64: it differs by n + 4 units of rounding at most, as every framework's own of "
        "that float does.",
        _narrowed,
        "divide",
    ),
    GraphRewrite(
        "variance_from_centre",
        ("subtract",),
        "mean(x^2) - mean(x)^2 is off by n units of rounding of mean(x^2); the sum of squared deviations "
        "is off by n of itself, which is never more: the two differ by 2 n units of rounding of mean(x^2).",
        _centred,
        "divide",
    ),
)
