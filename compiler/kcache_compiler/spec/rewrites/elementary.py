"""Exact rewrites by definition: small powers, the logistic function, clamping."""

from __future__ import annotations

from kcache_compiler.spec.graph.element_types import is_complex, is_float, is_integer
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite


def _power(site: RewriteSite) -> Ref | None:
    base, exponent = site.operands
    element = site.type.element
    if not is_float(element) and not is_integer(element):
        return None
    value = site.scalar(exponent)
    if value == 1:
        return base
    return site.build("multiply", base, base) if value == 2 else None


def logistic_of(site: RewriteSite) -> Ref | None:
    """Return ``y`` of a site ``1 / (1 + exp(y))``; None of other sites."""
    numerator, bottom = site.operands
    parts = site.operands_of(bottom, "add")
    if site.scalar(numerator) != 1 or parts is None:
        return None
    for unit, power in (parts, parts[::-1]):
        if site.scalar(unit) == 1:
            return site.operand_of(power, "exponential")
    return None


def _logistic(site: RewriteSite) -> Ref | None:
    if site.type.element not in ("f32", "f64"):
        return None
    return logistic(site)


def logistic(site: RewriteSite) -> Ref | None:
    """Return ``1 / (1 + exp(-x))`` of any float as ``logistic``; None of other sites."""
    power = logistic_of(site) if is_float(site.type.element) else None
    return None if power is None else site.build("logistic", site.build("negate", power))


def _clamp(site: RewriteSite) -> Ref | None:
    low, value, high = site.operands
    element = site.type.element
    if not (is_float(element) or is_integer(element) or is_complex(element)):
        return None
    return site.build("minimum", site.build("maximum", low, value), high)


ELEMENTARY: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "small_power",
        ("power",),
        "x^1 is x. x^2 is x * x: StableHLO leaves the rounding of power to the implementation, ours is the "
        "nearest number for this exponent, and x * x has the values of IEEE 754's pow at zeros, infinities "
        "and NaN.",
        _power,
        "constant",
    ),
    GraphRewrite(
        "logistic",
        ("divide",),
        "StableHLO defines logistic of floats as 1 / (1 + exp(-x)), and leaves the rounding of exp to the "
        "implementation. f32 and f64 only: in f16 and bf16 the steps round so far that it shows.",
        _logistic,
        "exponential",
    ),
    GraphRewrite(
        "clamp", ("clamp",), "StableHLO defines clamp as minimum(maximum(operand, min), max).", _clamp
    ),
)
