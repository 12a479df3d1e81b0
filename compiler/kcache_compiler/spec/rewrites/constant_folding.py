"""Constant folding: conversions, IEEE arithmetic and comparisons of scalars, and extents."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from kcache_compiler.spec.graph.element_types import encode, is_float, is_integer
from kcache_compiler.spec.graph.nodes import Node, Ref
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite

_Number = float | int


def _convert(site: RewriteSite) -> Ref | None:
    source, target = site.element(site.operands[0]), site.type.element
    value = site.scalar(site.operands[0])
    if value is None:
        return _convert_extent(site)
    if is_float(target) or (is_integer(source) and is_integer(target) and target != "i1"):
        return _constant(site, value if isinstance(value, float) else Fraction(value))
    return None


def _convert_extent(site: RewriteSite) -> Ref | None:
    """Fold a conversion of an extent whose type, an integer or f64, holds every element count exactly."""
    node = site.node(site.operands[0])
    source = node.results[0].element if node.results else ""
    if node.op != "extent" or not is_float(site.type.element):
        return None
    exact = is_integer(source) or (source == "f64" and not node.attributes.startswith("1/"))
    return _extent(site, node, node.attributes) if exact else None


def _one_less(site: RewriteSite) -> Ref | None:
    """Fold ``N - 1``, of unbiased variances."""
    if site.type.element not in ("i32", "i64", "f64"):
        return None
    return one_less(site)


def one_less(site: RewriteSite) -> Ref | None:
    """Return ``N - 1`` of an extent N as an extent; None of other differences."""
    left, right = site.operands
    node = site.node(left)
    if node.op != "extent" or site.scalar(right) != 1 or "/" in node.attributes or "-" in node.attributes:
        return None
    return _extent(site, node, f"{node.attributes}-1")


def inverse_extent(site: RewriteSite) -> Ref | None:
    """Return ``1 / N`` of an extent N as an extent; None of other quotients."""
    node = site.node(site.operands[1])
    if node.op != "extent" or "/" in node.attributes:
        return None
    return _extent(site, node, f"1/({node.attributes})")


def _extent(site: RewriteSite, node: Node, text: str) -> Ref:
    type = node.results[0]._replace(element=site.type.element)
    index = site.builder.node(node.op, text, (), (), (type,))
    return site.broadcast(Ref(index, 0, ()))


def _constant(site: RewriteSite, value: _Number | Fraction) -> Ref:
    element = site.type.element
    return site.builder.constant(encode(value, element), element, (), site.type.dims or ())


def _finite(*values: _Number) -> bool:
    return all(math.isfinite(v) for v in values)


def _arithmetic(site: RewriteSite) -> Ref | None:
    element = site.type.element
    values = [site.scalar(ref) for ref in site.operands]
    left, *rest = values
    if left is None or None in rest or element == "i1":
        return None
    right = rest[0] if rest else 0
    assert right is not None
    if is_integer(element):
        return _constant(site, _EXACTLY[site.op](left, right)) if site.op in _ON_INTEGERS else None
    if not is_float(element):
        return None
    if site.op == "negate":
        return _constant(site, -left)
    if _finite(left, right):
        return _finite_arithmetic(site, left, right)
    return _limit(site, left, right)


def _finite_arithmetic(site: RewriteSite, left: _Number, right: _Number) -> Ref | None:
    """Arithmetic of finite floats; a result of 0 has the sign that IEEE arithmetic gives it."""
    if site.op == "divide" and not right:
        return None
    exact = _EXACTLY[site.op](Fraction(left), Fraction(right))
    if exact or site.op in ("maximum", "minimum"):
        return _constant(site, exact) if exact else None
    return _limit(site, left, right)


def _limit(site: RewriteSite, left: _Number, right: _Number) -> Ref | None:
    """Arithmetic whose result is a zero, or of operands that are not finite."""
    if site.op == "divide":
        return _constant(site, _quotient(left, right))
    function = _LIMITS.get(site.op)
    return None if function is None else _constant(site, function(float(left), float(right)))


#: Operations whose zeros and infinities are those of IEEE arithmetic on doubles.
_LIMITS: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
}


def _divided(left: Any, right: Any) -> Any:
    return left / right


def _negated(left: Any, _: Any) -> Any:
    return -left


_EXACTLY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": _divided,
    "negate": _negated,
    "maximum": max,
    "minimum": min,
}
_ON_INTEGERS = frozenset({"add", "subtract", "multiply", "negate", "maximum", "minimum"})


def _quotient(a: float, b: float) -> float:
    """The quotient of operands of which one is not finite, or the first is 0."""
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)):
        return math.nan
    sign = math.copysign(1, a) * math.copysign(1, b)
    return math.copysign(math.inf if math.isinf(a) else 0.0, sign)


def _sqrt(site: RewriteSite) -> Ref | None:
    value = site.scalar(site.operands[0])
    if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
        return None
    return _constant(site, root(value))


def root(value: float) -> Fraction:
    """Return the square root of a positive number, accurate enough to be rounded correctly.

    A root is never the midpoint of two floats, and is farther from one than 2^-120 of itself.
    """
    fraction = Fraction(value)
    bits = 2 * max(0, 260 - fraction.numerator.bit_length() + fraction.denominator.bit_length())
    scaled = (fraction.numerator << bits) // fraction.denominator
    floor = math.isqrt(scaled)
    exact = floor * floor * fraction.denominator == fraction.numerator << bits
    return Fraction(floor if exact else 2 * floor + 1, (1 if exact else 2) << (bits // 2))


def _compare(site: RewriteSite) -> Ref | None:
    holds = _COMPARISONS.get(site.attributes)
    if holds is None:
        return None
    left, right = site.operands
    low, high = site.scalar(left), site.scalar(right)
    if low is not None and high is not None:
        return _boolean(site, holds(low, high))
    least = _lower_bound_of(site, right)
    if site.attributes in ("LT", "LE") and low is not None and least is not None and low < least:
        return _boolean(site, True)
    return None


_COMPARISONS: dict[str, Callable[[_Number, _Number], bool]] = {
    "LT": operator.lt,
    "LE": operator.le,
    "EQ": operator.eq,
    "NE": operator.ne,
}


def _boolean(site: RewriteSite, holds: bool) -> Ref:
    return site.builder.constant("01" if holds else "00", "i1", (), site.type.dims or ())


def _lower_bound_of(site: RewriteSite, ref: Ref) -> float | None:
    """A lower bound of an extent, or of an extent less a constant: a symbol is at least 2."""
    node = site.node(ref)
    if node.op == "extent":
        return None if "/" in node.attributes else 1 if "-" in node.attributes else 2
    parts = site.operands_of(ref, "subtract")
    if parts is None:
        return None
    bound, less = _lower_bound_of(site, parts[0]), site.scalar(parts[1])
    return None if bound is None or less is None else bound - less


FOLDING: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "convert_constant",
        ("convert",),
        "A conversion rounds to nearest even, once; integers wrap modulo 2^n. An extent of an integer type "
        "or f64 is its number, of a float type that number rounded.",
        _convert,
    ),
    GraphRewrite(
        "constant_arithmetic",
        ("add", "subtract", "multiply", "divide", "negate", "maximum", "minimum"),
        "IEEE 754 rounds the exact result to nearest even, once: here it is computed as a fraction. Zeros "
        "keep the sign that the operation gives them; integers wrap.",
        _arithmetic,
        "constant",
    ),
    GraphRewrite(
        "extent_less_one",
        ("subtract",),
        "Integers and f64 hold every number of elements exactly, and one less.",
        _one_less,
        "extent",
    ),
    GraphRewrite(
        "constant_root",
        ("sqrt",),
        "IEEE 754 rounds square roots correctly; here from more than 256 bits.",
        _sqrt,
        "constant",
    ),
    GraphRewrite(
        "constant_comparison",
        ("compare",),
        "Constants compare as numbers (false with NaN, but for NE). The symbols of an extent are at least 2.",
        _compare,
    ),
)
