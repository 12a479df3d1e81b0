"""GELU in both forms, and the functions that it is composed of.

``x * logistic(x * (a + b * x * x))`` and ``x / 2 * erfc(-x / sqrt(2))`` are accurate far below zero, where
``1 + tanh`` and ``1 + erf`` suffer cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kcache_compiler.spec.graph.element_types import is_float, near
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.identities import logistic
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite

_LINEAR = 2 * math.sqrt(2 / math.pi)
_CUBIC = _LINEAR * 0.044715
_ROOT_HALF = math.sqrt(0.5)

#: Coefficients of a polynomial in one value, from the constant one.
_Coefficients = tuple[float, ...]
_MAX_TERMS = 4
_MAX_STEPS = 16


def _power(site: RewriteSite) -> Ref | None:
    base, exponent = site.operands
    if not is_float(site.type.element) or site.scalar(exponent) != 3:
        return None
    return site.build("multiply", site.build("multiply", base, base), base)


def _narrow(site: RewriteSite) -> Ref | None:
    """Rewrite ``erf`` and ``erfc`` of f16 and bf16 that are computed in f32."""
    (wide,) = site.operands
    element = site.type.element
    for op in ("chlo.erf", "chlo.erfc"):
        argument = (
            site.operand_of(wide, op) if element in ("f16", "bf16") and site.element(wide) == "f32" else None
        )
        half = None if argument is None else site.operand_of(argument, "convert")
        if half is not None and site.element(half) == element:
            return site.build(op, half)
    return None


def _complement(site: RewriteSite) -> Ref | None:
    """Rewrite ``1 + erf(x)`` and ``1 - erf(x)``."""
    if not is_float(site.type.element):
        return None
    left, right = site.operands
    if site.op == "subtract":
        inner = site.operand_of(right, "chlo.erf")
        return site.build("chlo.erfc", inner) if inner is not None and site.scalar(left) == 1 else None
    for unit, value in (site.operands, site.operands[::-1]):
        inner = site.operand_of(value, "chlo.erf")
        if inner is not None and site.scalar(unit) == 1:
            return site.build("chlo.erfc", site.build("negate", inner))
    return None


def _halved(site: RewriteSite) -> Iterator[tuple[Ref | None, Ref]]:
    """Yield ``(x, y)`` for each reassociation of the site as ``0.5 * x * y``; x is None of ``0.5 * y``."""
    for left, right in (site.operands, site.operands[::-1]):
        if site.scalar(left) == 0.5:
            yield None, right
        parts = site.operands_of(right, "multiply")
        if parts is None:
            continue
        for first, second in (parts, parts[::-1]):
            if site.scalar(left) == 0.5:
                yield first, second
            if site.scalar(first) == 0.5:
                yield left, second
                yield second, left


def _tanh(site: RewriteSite) -> Ref | None:
    """Rewrite ``0.5 * x * (1 + tanh(u))`` to ``x * logistic(2 * u)``."""
    if not is_float(site.type.element):
        return None
    for x, gate in _halved(site):
        parts = site.operands_of(gate, "add") or ()
        for unit, value in (parts, parts[::-1]) if parts else ():
            inner = site.operand_of(value, "tanh")
            if inner is not None and site.scalar(unit) == 1:
                logistic = site.build("logistic", site.build("multiply", site.constant(2.0), inner))
                return logistic if x is None else site.build("multiply", x, logistic)
    return None


def _gelu_erf(site: RewriteSite) -> Ref | None:
    element = site.type.element
    if not is_float(element):
        return None
    for x, gate in _halved(site):
        inner = site.operand_of(gate, "chlo.erfc") if x is not None else None
        if x is None or inner is None:
            continue
        polynomial = _Polynomial(site, x).read(inner)
        if polynomial is None or len(polynomial) != 2 or polynomial[0]:
            continue
        if not near(-polynomial[1], _ROOT_HALF, element):
            continue
        scaled = site.build("multiply", site.constant(_ROOT_HALF), x)
        tail = site.build("chlo.erfc", site.build("negate", scaled))
        half = site.build("multiply", site.constant(0.5), x)
        return site.build_unchanged("multiply", half, tail)
    return None


def _gelu_tanh(site: RewriteSite) -> Ref | None:
    element = site.type.element
    if not is_float(element):
        return None
    for x, gate in (site.operands, site.operands[::-1]):
        inner = site.operand_of(gate, "logistic")
        polynomial = None if inner is None else _Polynomial(site, x).read(inner)
        if polynomial is None or len(polynomial) != 4 or polynomial[0] or polynomial[2]:
            continue
        if not near(polynomial[1], _LINEAR, element) or not near(polynomial[3], _CUBIC, element, 8):
            continue
        square = site.build("multiply", x, x)
        slope = site.build(
            "add", site.constant(_LINEAR), site.build("multiply", site.constant(_CUBIC), square)
        )
        return site.build_unchanged("multiply", x, site.build("logistic", site.build("multiply", x, slope)))
    return None


class _Polynomial:
    """Reads a value as a polynomial of degree at most 3 in another value."""

    def __init__(self, site: RewriteSite, variable: Ref) -> None:
        self.site = site
        self.variable = variable
        self.steps = _MAX_STEPS

    def read(self, ref: Ref) -> _Coefficients | None:
        """Return the coefficients, from the constant one, without trailing zeros; None of other values."""
        self.steps -= 1
        if self.site.same(ref, self.variable):
            return (0.0, 1.0)
        value = self.site.scalar(ref)
        if value is not None:
            return (float(value),)
        node = self.site.node(ref)
        operands = self.site.operands_of(ref, node.op) if node.op in _ARITHMETIC and self.steps > 0 else None
        if operands is None:
            return None
        parts = [self.read(operand) for operand in operands]
        left, right = parts[0], parts[-1]
        if left is None or right is None:
            return None
        return _without_trailing_zeros(_combine(node.op, left, right))


_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "negate"})


def _combine(op: str, left: _Coefficients, right: _Coefficients) -> _Coefficients | None:
    if op == "negate":
        return tuple(-a for a in left)
    if op == "divide":
        return tuple(a / right[0] for a in left) if len(right) == 1 and right[0] else None
    if op == "multiply":
        if len(left) + len(right) - 1 > _MAX_TERMS:
            return None
        product = [0.0] * (len(left) + len(right) - 1)
        for i, a in enumerate(left):
            for j, b in enumerate(right):
                product[i + j] += a * b
        return tuple(product)
    sign = -1.0 if op == "subtract" else 1.0
    size = max(len(left), len(right))
    padded = [part + (0.0,) * (size - len(part)) for part in (left, right)]
    return tuple(a + sign * b for a, b in zip(*padded, strict=True))


def _without_trailing_zeros(coefficients: _Coefficients | None) -> _Coefficients | None:
    if coefficients is None or not all(map(math.isfinite, coefficients)):
        return None
    while len(coefficients) > 1 and not coefficients[-1]:
        coefficients = coefficients[:-1]
    return coefficients


ACTIVATIONS: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "cube",
        ("power",),
        "(x * x) * x rounds twice where x^3 rounds once: 1 ulp. It overflows and underflows where x^3 does.",
        _power,
        "constant",
    ),
    GraphRewrite(
        "narrow_logistic",
        ("divide",),
        "1 / (1 + exp(-x)) in f16 and bf16: to 3 ulp, and 0 where exp overflows; logistic is within 1 ulp "
        "there.",
        logistic,
        "exponential",
    ),
    GraphRewrite(
        "narrow_erf",
        ("convert",),
        "erf and erfc of f16 and bf16 are those of f32, rounded: within 1 ulp of each other.",
        _narrow,
        "convert",
    ),
    GraphRewrite(
        "complement_of_erf",
        ("add", "subtract"),
        "1 + erf(x) is erfc(-x). The sum is off by half an ulp of 1 (2^-24 in f32) and that of erf; erfc "
        "by 2 ulp of itself, so the two differ by no more than 2^-22 in f32, and erfc is the better one.",
        _complement,
        "chlo.erf",
    ),
    GraphRewrite(
        "half_of_one_plus_tanh",
        ("multiply",),
        "(1 + tanh(u)) / 2 is logistic(2 u). The sum is off by an ulp of 1 and that of tanh; logistic by 2 "
        "ulp of itself: they differ by no more than 2^-22 in f32. Halving first or last differs only below "
        "the normal numbers.",
        _tanh,
        "add",
    ),
    GraphRewrite(
        "gelu_erf",
        ("multiply",),
        "Constants within 4 ulp of sqrt(1/2): erfc's argument differs by 5 ulp, the result by 2^-21 of |x| "
        "in f32.",
        _gelu_erf,
        "chlo.erfc",
    ),
    GraphRewrite(
        "gelu_tanh",
        ("multiply",),
        "Constants within 8 ulp of those of the definition: the argument of logistic differs by 12 ulp, "
        "the result by 2^-20 of |x| in f32.",
        _gelu_tanh,
        "logistic",
    ),
)
