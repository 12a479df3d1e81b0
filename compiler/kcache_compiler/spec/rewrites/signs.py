"""Exact rewrites of signs: negations leave products and join sums, and what cannot be negative is known."""

from __future__ import annotations

import math

from kcache_compiler.spec.graph.element_types import is_float
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.site import Rewrite, Site

#: How far down it is asked whether a value can be negative.
_DEPTH = 6


def _opposite(site: Site, ref: Ref) -> Ref | None:
    """Return ``-ref`` where that is simpler: of a negation, or of a constant below zero."""
    inner = site.inner(ref, "negate")
    if inner is not None:
        return inner
    value = site.scalar(ref)
    if value is None or math.isnan(value) or math.copysign(1, value) > 0:
        return None
    return site.number(-value)


def _product(site: Site) -> Ref | None:
    if not is_float(site.type.element):
        return None
    for index in (0, 1):
        positive = _opposite(site, site.operands[index])
        if positive is not None:
            operands = list(site.operands)
            operands[index] = positive
            return site.put("negate", site.put(site.op, *operands))
    return None


def _sum(site: Site) -> Ref | None:
    if not is_float(site.type.element):
        return None
    left, right = site.operands
    plus_left, plus_right = _opposite(site, left), _opposite(site, right)
    if plus_left is not None and plus_right is not None:
        negated = [site.scalar(ref) is None for ref in site.operands]
        if all(negated) or not any(negated):
            return None
        plus_left, plus_right = (plus_left, None) if negated[0] else (None, plus_right)
    if plus_right is not None:
        return site.put("subtract", left, plus_right)
    return None if plus_left is None else site.put("subtract", right, plus_left)


def _difference(site: Site) -> Ref | None:
    if not is_float(site.type.element):
        return None
    left, right = site.operands
    positive = _opposite(site, right)
    return None if positive is None else site.put("add", left, positive)


def not_negative(site: Site, ref: Ref, depth: int = _DEPTH) -> bool:
    """Whether a value is NaN, or 0.0 or above: never -0.0, never below."""
    node = site.node(ref)
    if not depth or not node.results or not is_float(site.element(ref)):
        return False
    if node.op in ("abs", "exponential", "logistic"):
        return True
    if node.op == "constant":
        value = site.scalar(ref)
        return value is not None and math.copysign(1, value) > 0
    if node.op == "extent":
        return True
    parts = node.operands
    if node.op in ("add", "divide", "maximum", "sqrt", "convert") or (
        node.op == "reduce" and node.attributes.startswith("combiner = add,")
    ):
        return all(not_negative(site, part, depth - 1) for part in parts)
    if node.op == "multiply":
        return site.same(*parts) or all(not_negative(site, part, depth - 1) for part in parts)
    return False


def _maximum(site: Site) -> Ref | None:
    for bound, value in (site.operands, site.operands[::-1]):
        if site.scalar(bound) == 0 and not_negative(site, value):
            return value
    return None


def _absolute(site: Site) -> Ref | None:
    return site.operands[0] if not_negative(site, site.operands[0]) else None


SIGNS: tuple[Rewrite, ...] = (
    Rewrite(
        "sign_of_product",
        ("multiply", "divide"),
        "The sign of a product or quotient is the product of the signs, for zeros and infinities too; the "
        "rest does not depend on them.",
        _product,
    ),
    Rewrite("sign_in_sum", ("add",), "a + -b is a - b: that is how IEEE 754 defines subtraction.", _sum),
    Rewrite("sign_in_difference", ("subtract",), "a - -b is a + b, for the same reason.", _difference),
    Rewrite(
        "not_negative",
        ("maximum",),
        "max(0, x) is x where x is NaN, 0.0 or above: squares, absolute values and exponentials, their "
        "sums from 0.0, products and quotients.",
        _maximum,
    ),
    Rewrite("absolute_of_not_negative", ("abs",), "abs(x) is x where x has no sign.", _absolute),
)
