"""Adam: moving averages, bias correction and the step, raised to the form of optax."""

from __future__ import annotations

from kcache_compiler.spec.graph.element_types import is_float, near
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite


def _is_correction(site: RewriteSite, ref: Ref) -> bool:
    """Whether a value is ``1 - b^t`` for a constant ``b`` between 0 and 1: a bias correction."""
    parts = site.operands_of(ref, "subtract")
    power = None if parts is None or site.scalar(parts[0]) != 1 else site.operand_of(parts[1], "power")
    return power is not None and 0 < (site.scalar(power) or 0) < 1


def _lerp(site: RewriteSite) -> Ref | None:
    """Rewrite ``a + w * (b - a)``."""
    if not is_float(site.type.element):
        return None
    for start, step in (site.operands, site.operands[::-1]):
        for weight, difference in _scaled(site, step):
            parts = site.operands_of(difference, "subtract")
            if parts is None or not 0 < weight < 1 or not site.same(parts[1], start):
                continue
            toward = site.build("multiply", site.constant(weight), parts[0])
            return site.build("add", toward, site.build("multiply", site.constant(1 - weight), start))
    return None


def _scaled(site: RewriteSite, ref: Ref) -> list[tuple[float, Ref]]:
    """The ways to write a value as a constant times a value."""
    parts = site.operands_of(ref, "multiply") or ()
    ways = (parts, parts[::-1]) if parts else ()
    return [(value, right) for left, right in ways if isinstance(value := site.scalar(left), float)]


def _average_of_squares(site: RewriteSite) -> Ref | None:
    """Rewrite ``b * v + ((1 - b) * g) * g``."""
    if not is_float(site.type.element):
        return None
    for average, square in (site.operands, site.operands[::-1]):
        parts = site.operands_of(square, "multiply") or ()
        for scaled, value in (parts, parts[::-1]) if parts else ():
            for weight, inner in _scaled(site, scaled):
                decays = [decay for decay, _ in _scaled(site, average)]
                if site.same(inner, value) and any(near(weight + d, 1.0, site.type.element) for d in decays):
                    squared = site.build("multiply", value, value)
                    return site.build("add", average, site.build("multiply", site.constant(weight), squared))
    return None


def _corrected_root(site: RewriteSite) -> Ref | None:
    """Rewrite ``sqrt(v) / sqrt(correction)``."""
    top, bottom = (site.operand_of(ref, "sqrt") for ref in site.operands)
    if top is None or bottom is None or not is_float(site.type.element) or not _is_correction(site, bottom):
        return None
    return site.build("sqrt", site.build("divide", top, bottom))


def _is_denominator(site: RewriteSite, ref: Ref) -> bool:
    """Whether a value is ``sqrt(v / correction) + epsilon``."""
    parts = site.operands_of(ref, "add") or ()
    for small, large in (parts, parts[::-1]) if parts else ():
        inner = site.operand_of(large, "sqrt")
        quotient = None if inner is None else site.operand_of(inner, "divide", 1)
        if quotient is not None and _is_correction(site, quotient) and (site.scalar(small) or 0) > 0:
            return True
    return False


def _rate(site: RewriteSite, ref: Ref) -> tuple[Ref, Ref] | None:
    """``(r, c)`` of ``r / c`` or ``1 / c * r``, for a bias correction ``c``; None of other values."""
    parts = site.operands_of(ref, "divide")
    if parts is not None and _is_correction(site, parts[1]):
        return parts[0], parts[1]
    factors = site.operands_of(ref, "multiply") or ()
    for left, right in (factors, factors[::-1]) if factors else ():
        inverse = site.operands_of(left, "divide")
        if inverse is not None and site.scalar(inverse[0]) == 1 and _is_correction(site, inverse[1]):
            return right, inverse[1]
    return None


def _step(site: RewriteSite) -> Ref | None:
    """Rewrite ``(m / denominator) * (rate / correction)``."""
    if not is_float(site.type.element):
        return None
    for left, right in (site.operands, site.operands[::-1]):
        parts, rate = site.operands_of(left, "divide"), _rate(site, right)
        if parts is not None and rate is not None and _is_denominator(site, parts[1]):
            corrected = site.build("divide", parts[0], rate[1])
            return site.build("multiply", rate[0], site.build("divide", corrected, parts[1]))
    return None


def _step_of_scaled(site: RewriteSite) -> Ref | None:
    """Rewrite ``(rate * m) / (sqrt(v) + epsilon)``, for a scalar rate."""
    top, bottom = site.operands
    if not is_float(site.type.element) or not _is_root_plus_constant(site, bottom):
        return None
    parts = site.operands_of(top, "multiply") or ()
    ways = [way for way in (parts, parts[::-1]) if way and all(entry < 0 for entry in way[0].view)]
    if len(ways) != 1:
        return None
    rate, average = ways[0]
    return site.build("multiply", rate, site.build("divide", average, bottom))


def _is_root_plus_constant(site: RewriteSite, ref: Ref) -> bool:
    """Whether a value is a square root and a constant above zero."""
    parts = site.operands_of(ref, "add") or ()
    return any(
        site.operand_of(large, "sqrt") is not None and (site.scalar(small) or 0) > 0
        for small, large in ((parts, parts[::-1]) if parts else ())
    )


def _step_in_denominator(site: RewriteSite) -> Ref | None:
    """Rewrite ``m / -(sqrt(v) / (r * sqrt(correction)) + epsilon / r)``, as in PyTorch's capturable Adam."""
    top, bottom = site.operands
    terms = site.operands_of(bottom, "add") if is_float(site.type.element) else None
    for first, second in (terms, terms[::-1]) if terms else ():
        root, term = site.operand_of(first, "negate"), site.operand_of(second, "negate")
        parts = None if root is None or term is None else _rated_root(site, root)
        if parts is None or term is None:
            continue
        square, rate, correction = parts
        epsilon, corrected_rate = _times_inverse(site, term, rate), _rate(site, rate)
        if epsilon is None or corrected_rate is None:
            continue
        size = site.build("sqrt", site.build("divide", square, correction))
        corrected = site.build("divide", top, corrected_rate[1])
        step = site.build("divide", corrected, site.build("add", size, epsilon))
        return site.build("negate", site.build("multiply", corrected_rate[0], step))
    return None


def _rated_root(site: RewriteSite, ref: Ref) -> tuple[Ref, Ref, Ref] | None:
    """``(v, r, c)`` of ``sqrt(v) / (r * sqrt(c))``, for a bias correction ``c``; None of other values."""
    parts = site.operands_of(ref, "divide")
    square = None if parts is None else site.operand_of(parts[0], "sqrt")
    factors = None if parts is None else site.operands_of(parts[1], "multiply")
    for rate, root in (factors, factors[::-1]) if factors else ():
        correction = site.operand_of(root, "sqrt")
        if square is not None and correction is not None and _is_correction(site, correction):
            return square, rate, correction
    return None


def _times_inverse(site: RewriteSite, ref: Ref, rate: Ref) -> Ref | None:
    """``c`` of ``c * (1 / rate)`` or ``c / rate``, for a constant ``c`` above 0; None of other values."""
    parts = site.operands_of(ref, "divide")
    if parts is not None and site.same(parts[1], rate) and (site.scalar(parts[0]) or 0) > 0:
        return parts[0]
    factors = site.operands_of(ref, "multiply") or ()
    for constant, inverse in (factors, factors[::-1]) if factors else ():
        parts = site.operands_of(inverse, "divide")
        if parts is not None and site.scalar(parts[0]) == 1 and site.same(parts[1], rate):
            return constant if (site.scalar(constant) or 0) > 0 else None
    return None


OPTIMIZERS: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "weighted_mean",
        ("add",),
        "a + w (b - a) is w b + (1 - w) a, for a constant w between 0 and 1: each is off by 3 units of "
        "rounding of |a| + |b|. The sum "
        "overflows where its result does, the difference may before; an infinite a stays so instead of NaN.",
        _lerp,
        "subtract",
    ),
    GraphRewrite(
        "average_of_squares",
        ("add",),
        "In b v + ((1 - b) g) g the square is taken first: 1 ulp. It overflows sooner, for |g| above the "
        "root of the largest number, as optax's does.",
        _average_of_squares,
        "multiply",
    ),
    GraphRewrite(
        "corrected_root",
        ("divide",),
        "sqrt(v) / sqrt(1 - b^t) is sqrt(v / (1 - b^t)): 2 ulp. The quotient overflows sooner, by the "
        "correction, as optax's does.",
        _corrected_root,
        "sqrt",
    ),
    GraphRewrite(
        "corrected_step",
        ("multiply",),
        "(m / d) (r / c) is r ((m / c) / d): each rounds four times, so they differ by 4 ulp.",
        _step,
        "divide",
    ),
    GraphRewrite(
        "scaled_step",
        ("divide",),
        "(r m) / (sqrt(v) + epsilon) is r (m / (sqrt(v) + epsilon)), for a rate r without axes: 2 ulp. The "
        "quotient overflows sooner, for |m| above epsilon of the largest number.",
        _step_of_scaled,
        "sqrt",
    ),
    GraphRewrite(
        "step_in_denominator",
        ("divide",),
        "m / -(sqrt(v) / (r sqrt(c)) + epsilon / r) is -r ((m / b) / (sqrt(v / c) + epsilon)) for the rate "
        "r and the corrections b and c: 8 ulp.",
        _step_in_denominator,
        "add",
    ),
)
