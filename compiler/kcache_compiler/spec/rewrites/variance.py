"""Variances: in the element of what they are of, from the centre."""

from __future__ import annotations

from kcache_compiler.shapes.monomial import product, size_text
from kcache_compiler.spec.graph.element_types import is_float, lossless
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.constant_folding import inverse_extent, one_less
from kcache_compiler.spec.rewrites.reductions import summed
from kcache_compiler.spec.rewrites.site import Rewrite, Site


def _mean(site: Site, ref: Ref) -> tuple[Ref, Ref] | None:
    """Return what ``ref`` is a mean of, over dims as ``summed`` gives them, and the divisor of the sum."""
    parts = site.inners(ref, "divide")
    source = None if parts is None else summed(site, parts[0])
    return None if parts is None or source is None else (source, parts[1])


def _counts(site: Site, divisor: Ref, source: Ref, kept: int) -> bool:
    """Whether a divisor is the number of elements that a sum runs over."""
    sizes = site.builder.viewed_type(source).dims or ()
    count = product(sizes[kept:]) if min(sizes[kept:], default=-1) > 0 else None
    if count is None:
        return False
    node = site.node(divisor)
    return node.attributes == size_text(count) if node.op == "extent" else site.scalar(divisor) == count


def _deviations(site: Site, square: Ref, kept: int) -> tuple[Ref, Ref] | None:
    """Return ``(x, d)`` where ``square`` is ``(x - sum(x) / d)^2``, a sum over the dims from ``kept`` on."""
    parts = site.inners(square, "multiply")
    if parts is None or not site.same(*parts):
        return None
    difference = site.inners(parts[0], "subtract")
    found = None if difference is None else _mean(site, difference[1])
    if difference is None or found is None:
        return None
    value, (source, divisor) = difference[0], found
    rank = len(square.view)
    extra = list(source.view[rank:])
    places = {entry: dim for dim, entry in enumerate(value.view) if dim >= kept and entry >= 0}
    if source[:2] != value[:2] or sorted(extra) != sorted(places):
        return None
    aligned = tuple(source.view[dim] if dim < kept else value.view[dim] for dim in range(rank))
    same = site.same(source._replace(view=aligned), value)
    return (value, divisor) if same and all(e < 0 for e in source.view[kept:rank]) else None


def _narrowed(site: Site) -> Ref | None:
    """A variance in f64 of values that a narrower float holds, rounded to it."""
    (wide,) = site.operands
    element = site.type.element
    found = _mean(site, wide) if site.element(wide) == "f64" and is_float(element) else None
    if found is None:
        return None
    square, divisor = found
    kept = len(site.operands[0].view)
    inside = site.over(site.builder.viewed_type(square).dims or ())
    parts = _deviations(inside, square, kept)
    narrow = None if parts is None else site.inner(parts[0], "convert")
    if parts is None or narrow is None or not lossless(site.element(narrow), element):
        return None
    narrow = inside.make("convert", element, [narrow])
    divisors = [site.put("convert", site.shown(ref)) for ref in (parts[1], divisor)]
    return _variance(site, narrow, divisors[0], divisors[1])


def _centred(site: Site) -> Ref | None:
    """The mean of the squares less the square of the mean."""
    if not is_float(site.type.element):
        return None
    left, right = site.operands
    squares, parts = _mean(site, left), site.inners(right, "multiply")
    mean = None if parts is None or not site.same(*parts) else _mean(site, parts[0])
    if squares is None or mean is None:
        return None
    kept = len(left.view)
    inside = site.over(site.builder.viewed_type(squares[0]).dims or ())
    factors = inside.inners(squares[0], "multiply")
    if factors is None or not site.same(*factors):
        return None
    value = factors[0]
    order = sorted(range(kept, len(value.view)), key=lambda dim: value.view[dim])
    value = value._replace(view=(*value.view[:kept], *(value.view[dim] for dim in order)))
    if not site.same(value, mean[0]) or not all(
        _counts(site, divisor, value, kept) for _, divisor in (squares, mean)
    ):
        return None
    return _variance(site, value, mean[1], squares[1])


def _variance(site: Site, value: Ref, centre: Ref, divisor: Ref) -> Ref:
    """``sum((x - sum(x) / centre)^2) / divisor`` over the dims of ``value`` beyond those of the site."""
    kept = len(site.type.dims or ())
    dims = site.builder.viewed_type(value).dims or ()
    inside = site.over(dims)
    gone = frozenset(range(kept, len(dims)))
    mean = site.put("divide", inside.sum(value, gone), centre)
    spread_out = mean._replace(view=(*mean.view, *(~size for size in dims[kept:])))
    deviation = inside.put("subtract", value, spread_out)
    squares = inside.put("multiply", deviation, deviation)
    return site.put("divide", inside.sum(squares, gone), divisor)


def _one_less(site: Site) -> Ref | None:
    return one_less(site) if site.type.element == "f32" else None


def _inverse(site: Site) -> Ref | None:
    """``1 / N``."""
    exact = site.type.element in ("f32", "f64") and site.scalar(site.operands[0]) == 1
    return inverse_extent(site) if exact else None


MOMENTS: tuple[Rewrite, ...] = (
    Rewrite(
        "narrow_extent_less_one",
        ("subtract",),
        "N - 1 of N rounded to f32 is N - 1 rounded: the same to 2^24, else 1 ulp.",
        _one_less,
        "extent",
    ),
    Rewrite(
        "inverse_of_extent",
        ("divide",),
        "1 / N of N rounded is 1 / N rounded: the same to 2^24 in f32, to 2^53 in f64, else 1 ulp.",
        _inverse,
        "extent",
    ),
    Rewrite(
        "variance_without_f64",
        ("convert",),
        "A variance of n numbers of a narrower float, from deviations from their mean, computed in that "
        "float and not in f64: it differs by n + 4 units of rounding at most, as every framework's own of "
        "that float does.",
        _narrowed,
        "divide",
    ),
    Rewrite(
        "variance_from_centre",
        ("subtract",),
        "mean(x^2) - mean(x)^2 is off by n units of rounding of mean(x^2); the sum of squared deviations "
        "is off by n of itself, which is never more: the two differ by 2 n units of rounding of mean(x^2).",
        _centred,
        "divide",
    ),
)
