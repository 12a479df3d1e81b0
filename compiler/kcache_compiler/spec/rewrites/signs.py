"""Exact rewrites of signs: negations of factors and terms, and values that are not negative."""

from __future__ import annotations

import math

from kcache_compiler.spec.graph.element_types import is_float
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite

#: Most operations on a path that is searched for a value that may be negative.
_MAX_DEPTH = 6


def _opposite(site: RewriteSite, ref: Ref) -> Ref | None:
    """``-ref`` of a negation or of a negative constant; None of other values."""
    inner = site.operand_of(ref, "negate")
    if inner is not None:
        return inner
    value = site.scalar(ref)
    if value is None or math.isnan(value) or math.copysign(1, value) > 0:
        return None
    return site.constant(-value)


def _product(site: RewriteSite) -> Ref | None:
    if not is_float(site.type.element):
        return None
    for index in (0, 1):
        positive = _opposite(site, site.operands[index])
        if positive is not None:
            operands = list(site.operands)
            operands[index] = positive
            return site.build("negate", site.build(site.op, *operands))
    return None


def _sum(site: RewriteSite) -> Ref | None:
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
        return site.build("subtract", left, plus_right)
    return None if plus_left is None else site.build("subtract", right, plus_left)


def _difference(site: RewriteSite) -> Ref | None:
    if not is_float(site.type.element):
        return None
    left, right = site.operands
    positive = _opposite(site, right)
    return None if positive is None else site.build("add", left, positive)


def not_negative(site: RewriteSite, ref: Ref, depth: int = _MAX_DEPTH) -> bool:
    """Return whether a value is known to be NaN or at least 0.0, and not -0.0."""
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


def _maximum(site: RewriteSite) -> Ref | None:
    for bound, value in (site.operands, site.operands[::-1]):
        if site.scalar(bound) == 0 and not_negative(site, value):
            return value
    return None


def _absolute(site: RewriteSite) -> Ref | None:
    return site.operands[0] if not_negative(site, site.operands[0]) else None


SIGNS: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "sign_of_product",
        ("multiply", "divide"),
        "The sign of a product or quotient is the product of the signs, for zeros and infinities too; the "
        "rest does not depend on them.",
        _product,
    ),
    GraphRewrite("sign_in_sum", ("add",), "a + -b is a - b: that is how IEEE 754 defines subtraction.", _sum),
    GraphRewrite("sign_in_difference", ("subtract",), "a - -b is a + b, for the same reason.", _difference),
    GraphRewrite(
        "not_negative",
        ("maximum",),
        "max(0, x) is x where x is NaN, 0.0 or above: squares, absolute values and exponentials, their "
        "sums from 0.0, products and quotients.",
        _maximum,
    ),
    GraphRewrite("absolute_of_not_negative", ("abs",), "abs(x) is x where x has no sign.", _absolute),
)
