"""Exact rewrites of single operations.

``BASIC``: neutral elements, involutions, selections, complex numbers. ``ELEMENTARY``: operations by their
definition, which are small powers, the logistic function and clamping.
"""

from __future__ import annotations

import math

from kcache_compiler.spec.graph.element_types import is_complex, is_float, is_integer, limits_of, lossless
from kcache_compiler.spec.graph.nodes import Ref, compose
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite


def _same_bits(a: float | int | None, b: float | int) -> bool:
    """Whether ``a`` equals ``b``, with signed zeros distinguished."""
    return a is not None and a == b and math.copysign(1, a) == math.copysign(1, b)


def _converted(site: RewriteSite) -> Ref | None:
    """Drop a conversion to the same type, and a lossless one before another."""
    (source,) = site.operands
    first = site.operand_of(source, "convert")
    if first is not None and lossless(site.element(first), site.element(source)):
        source = first
    if site.element(source) == site.type.element:
        return source
    if source is site.operands[0]:
        return None
    return site.build_as("convert", site.type.element, [source])


#: A float without a sign bit, whose negation is NaN.
_UNSIGNED_FLOAT = "f8E8M0FNU"


def _involution(site: RewriteSite) -> Ref | None:
    return None if site.type.element == _UNSIGNED_FLOAT else site.operand_of(site.operands[0], site.op)


def _absolute(site: RewriteSite) -> Ref | None:
    inner = site.operand_of(site.operands[0], "negate")
    if inner is not None and site.element(inner) != _UNSIGNED_FLOAT:
        return site.build_as("abs", site.type.element, [inner])
    return None if is_complex(site.element(site.operands[0])) else _if_same_op(site)


def _if_same_op(site: RewriteSite) -> Ref | None:
    return site.operands[0] if site.node(site.operands[0]).op == site.op else None


def _neutral(site: RewriteSite) -> Ref | None:
    """Drop a neutral element: the right operand, or either one of a commutative operation."""
    left, right = site.operands
    if _is_neutral(site, right):
        return left
    if site.op in _COMMUTING and _is_neutral(site, left):
        return right
    return None


_COMMUTING = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})


def _is_neutral(site: RewriteSite, ref: Ref) -> bool:
    value = site.scalar(ref)
    if value is None:
        return False
    element = site.element(ref)
    neutral = _FLOAT_NEUTRAL.get(site.op) if is_float(element) else _integer_neutral(site.op, element)
    return neutral is not None and _same_bits(value, neutral)


_FLOAT_NEUTRAL = {
    "add": -0.0,
    "subtract": 0.0,
    "multiply": 1.0,
    "divide": 1.0,
    "maximum": -math.inf,
    "minimum": math.inf,
}


def _integer_neutral(op: str, element: str) -> int | None:
    if not is_integer(element):
        return None
    low, high = limits_of(element)
    if op in ("maximum", "minimum"):
        return low if op == "maximum" else high
    if op == "and":
        return high if low == 0 else -1
    if op in ("multiply", "divide"):
        return 1
    return 0


def _idempotent(site: RewriteSite) -> Ref | None:
    left, right = site.operands
    return left if site.same(left, right) else None


def _selected(site: RewriteSite) -> Ref | None:
    predicate, on_true, on_false = site.operands
    if site.same(on_true, on_false):
        return on_true
    value = site.scalar(predicate)
    if value is None:
        return None
    return on_true if value else on_false


def _select_extremum(site: RewriteSite) -> Ref | None:
    """Rewrite ``select(a <= b, b, a)`` to a maximum, of floats only if ``b`` is a suitable constant."""
    predicate, on_true, on_false = site.operands
    node = site.node(predicate)
    if node.op != "compare" or node.attributes not in ("LT", "LE"):
        return None
    low, high = (r._replace(view=compose(predicate.view, r.view)) for r in node.operands)
    if site.same(on_true, high) and site.same(on_false, low):
        op = "maximum"
    elif site.same(on_true, low) and site.same(on_false, high):
        op = "minimum"
    else:
        return None
    element = site.element(low)
    if is_float(element):
        bound = site.scalar(on_true)
        unfit = -0.0 if op == "maximum" else 0.0
        if node.attributes != "LE" or bound is None or math.isnan(bound) or _same_bits(bound, unfit):
            return None
    elif not is_integer(element):
        return None
    return site.build_as(op, element, [low, high])


def _part(site: RewriteSite) -> Ref | None:
    return site.operand_of(site.operands[0], "complex", 0 if site.op == "real" else 1)


def _rebuilt(site: RewriteSite) -> Ref | None:
    real, imaginary = (
        site.operand_of(ref, op) for ref, op in zip(site.operands, ("real", "imag"), strict=True)
    )
    if (
        real is None
        or imaginary is None
        or not site.same(real, imaginary)
        or not is_complex(site.element(real))
    ):
        return None
    return real if site.element(real) == site.type.element else None


def _squared(site: RewriteSite) -> Ref | None:
    (source,) = site.operands
    if is_complex(site.element(source)):
        return None
    return site.build_as("multiply", site.type.element, [source, source])


BASIC: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "convert",
        ("convert",),
        "A conversion to the same type is the identity. One that loses nothing leaves the value, which is "
        "all that a second conversion depends on.",
        _converted,
    ),
    GraphRewrite(
        "involution",
        ("negate", "not"),
        "negate flips the sign bit, or subtracts from 0 modulo 2^n; not flips every bit; twice is nothing. "
        "Not of f8E8M0FNU, which has no sign bit.",
        _involution,
    ),
    GraphRewrite(
        "absolute",
        ("abs",),
        "abs ignores the sign that negate flips (modulo 2^n for integers), and clears it once for all.",
        _absolute,
    ),
    GraphRewrite(
        "round_twice",
        ("ceil", "floor", "round_nearest_afz", "round_nearest_even", "sign"),
        "Each maps its own results (integers, infinities, NaN, signed zeros; signs) to themselves.",
        _if_same_op,
    ),
    GraphRewrite(
        "neutral_arithmetic",
        ("add", "subtract", "multiply", "divide"),
        "x + -0.0, x - 0.0, x * 1 and x / 1 are x for all reals: zeros keep their sign, nothing rounds. "
        "Integers: x + 0, x - 0, x * 1, x / 1.",
        _neutral,
        "constant",
    ),
    GraphRewrite(
        "neutral_extremum",
        ("maximum", "minimum"),
        "IEEE 754 maximum: NaN stays NaN, and nothing lies below -inf (nor below an integer type's "
        "least value); minimum alike.",
        _neutral,
        "constant",
    ),
    GraphRewrite(
        "neutral_bits",
        ("and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"),
        "Ones for and; zeros for or, xor and shifts.",
        _neutral,
        "constant",
    ),
    GraphRewrite(
        "idempotent", ("maximum", "minimum", "and", "or"), "op(x, x) is x, bit for bit.", _idempotent
    ),
    GraphRewrite(
        "select_constant", ("select",), "Both branches are one value, or the predicate is known.", _selected
    ),
    GraphRewrite(
        "select_extremum",
        ("select",),
        "select(x <= c, c, x) is maximum(x, c) for floats where c is a constant, not NaN and not -0.0: a NaN "
        "x is not <= c and stays NaN; x = -0.0, c = 0.0 gives 0.0 as IEEE maximum does; equal values are "
        "equal bits otherwise. select(c <= x, c, x) is minimum(x, c) for c not NaN and not 0.0. Integers are "
        "totally ordered: every form holds.",
        _select_extremum,
    ),
    GraphRewrite("part_of_complex", ("real", "imag"), "complex keeps both parts.", _part),
    GraphRewrite("complex_of_parts", ("complex",), "A complex number is its two parts.", _rebuilt),
    GraphRewrite("square", ("chlo.square",), "The square of a real is defined as x * x.", _squared),
)


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
