"""GELU in both forms, and what it is made of.

``x * logistic(x * (a + b * x * x))`` and ``x / 2 * erfc(-x / sqrt(2))`` are more accurate far below zero than
``1 + tanh`` and ``1 + erf``, which cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kcache_compiler.spec.graph.element_types import is_float
from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.elementary import logistic
from kcache_compiler.spec.rewrites.scalars import near
from kcache_compiler.spec.rewrites.site import Rewrite, Site

_LINEAR = 2 * math.sqrt(2 / math.pi)
_CUBIC = _LINEAR * 0.044715
_ROOT_HALF = math.sqrt(0.5)

#: Coefficients of a polynomial in one value, from the constant one.
_Coefficients = tuple[float, ...]
_MOST_TERMS = 4
_MOST_STEPS = 16


def _power(site: Site) -> Ref | None:
    base, exponent = site.operands
    if not is_float(site.type.element) or site.scalar(exponent) != 3:
        return None
    return site.put("multiply", site.put("multiply", base, base), base)


def _narrow(site: Site) -> Ref | None:
    """``erf`` of a half, computed in f32."""
    (wide,) = site.operands
    element = site.type.element
    for op in ("chlo.erf", "chlo.erfc"):
        argument = (
            site.inner(wide, op) if element in ("f16", "bf16") and site.element(wide) == "f32" else None
        )
        half = None if argument is None else site.inner(argument, "convert")
        if half is not None and site.element(half) == element:
            return site.put(op, half)
    return None


def _complement(site: Site) -> Ref | None:
    """``1 + erf(x)`` and ``1 - erf(x)``."""
    if not is_float(site.type.element):
        return None
    left, right = site.operands
    if site.op == "subtract":
        inner = site.inner(right, "chlo.erf")
        return site.put("chlo.erfc", inner) if inner is not None and site.scalar(left) == 1 else None
    for one, value in (site.operands, site.operands[::-1]):
        inner = site.inner(value, "chlo.erf")
        if inner is not None and site.scalar(one) == 1:
            return site.put("chlo.erfc", site.put("negate", inner))
    return None


def _halved(site: Site) -> Iterator[tuple[Ref | None, Ref]]:
    """Yield ``(x, y)`` for each way to read the site as ``0.5 * x * y``, in any brackets; None for no x."""
    for left, right in (site.operands, site.operands[::-1]):
        if site.scalar(left) == 0.5:
            yield None, right
        parts = site.inners(right, "multiply")
        if parts is None:
            continue
        for first, second in (parts, parts[::-1]):
            if site.scalar(left) == 0.5:
                yield first, second
            if site.scalar(first) == 0.5:
                yield left, second
                yield second, left


def _tanh(site: Site) -> Ref | None:
    """``0.5 * x * (1 + tanh(u))`` to ``x * logistic(2 * u)``."""
    if not is_float(site.type.element):
        return None
    for x, gate in _halved(site):
        parts = site.inners(gate, "add") or ()
        for one, value in (parts, parts[::-1]) if parts else ():
            inner = site.inner(value, "tanh")
            if inner is not None and site.scalar(one) == 1:
                found = site.put("logistic", site.put("multiply", site.number(2.0), inner))
                return found if x is None else site.put("multiply", x, found)
    return None


def _gelu_erf(site: Site) -> Ref | None:
    element = site.type.element
    if not is_float(element):
        return None
    for x, gate in _halved(site):
        inner = site.inner(gate, "chlo.erfc") if x is not None else None
        if x is None or inner is None:
            continue
        found = _Polynomial(site, x).read(inner)
        if found is None or len(found) != 2 or found[0] or not near(-found[1], _ROOT_HALF, element):
            continue
        scaled = site.put("multiply", site.number(_ROOT_HALF), x)
        tail = site.put("chlo.erfc", site.put("negate", scaled))
        half = site.put("multiply", site.number(0.5), x)
        return site.plain("multiply", half, tail)
    return None


def _gelu_tanh(site: Site) -> Ref | None:
    element = site.type.element
    if not is_float(element):
        return None
    for x, gate in (site.operands, site.operands[::-1]):
        inner = site.inner(gate, "logistic")
        found = None if inner is None else _Polynomial(site, x).read(inner)
        if found is None or len(found) != 4 or found[0] or found[2]:
            continue
        if not near(found[1], _LINEAR, element) or not near(found[3], _CUBIC, element, 8):
            continue
        square = site.put("multiply", x, x)
        slope = site.put("add", site.number(_LINEAR), site.put("multiply", site.number(_CUBIC), square))
        return site.plain("multiply", x, site.put("logistic", site.put("multiply", x, slope)))
    return None


class _Polynomial:
    """Reads a value as a polynomial in another, of degree 3 at most, from a few operations."""

    def __init__(self, site: Site, variable: Ref) -> None:
        self.site = site
        self.variable = variable
        self.steps = _MOST_STEPS

    def read(self, ref: Ref) -> _Coefficients | None:
        """Return the coefficients, without zeros at the end."""
        self.steps -= 1
        if self.site.same(ref, self.variable):
            return (0.0, 1.0)
        value = self.site.scalar(ref)
        if value is not None:
            return (float(value),)
        node = self.site.node(ref)
        operands = self.site.inners(ref, node.op) if node.op in _ARITHMETIC and self.steps > 0 else None
        if operands is None:
            return None
        parts = [self.read(operand) for operand in operands]
        left, right = parts[0], parts[-1]
        if left is None or right is None:
            return None
        return _trimmed(_combined(node.op, left, right))


_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "negate"})


def _combined(op: str, left: _Coefficients, right: _Coefficients) -> _Coefficients | None:
    if op == "negate":
        return tuple(-a for a in left)
    if op == "divide":
        return tuple(a / right[0] for a in left) if len(right) == 1 and right[0] else None
    if op == "multiply":
        if len(left) + len(right) - 1 > _MOST_TERMS:
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


def _trimmed(coefficients: _Coefficients | None) -> _Coefficients | None:
    if coefficients is None or not all(map(math.isfinite, coefficients)):
        return None
    while len(coefficients) > 1 and not coefficients[-1]:
        coefficients = coefficients[:-1]
    return coefficients


ACTIVATIONS: tuple[Rewrite, ...] = (
    Rewrite(
        "cube",
        ("power",),
        "(x * x) * x rounds twice where x^3 rounds once: 1 ulp. It overflows and underflows where x^3 does.",
        _power,
        "constant",
    ),
    Rewrite(
        "narrow_logistic",
        ("divide",),
        "1 / (1 + exp(-x)) in f16 and bf16: to 3 ulp, and 0 where exp overflows; logistic is within 1 ulp "
        "there.",
        logistic,
        "exponential",
    ),
    Rewrite(
        "narrow_erf",
        ("convert",),
        "erf and erfc of f16 and bf16 are those of f32, rounded: within 1 ulp of each other.",
        _narrow,
        "convert",
    ),
    Rewrite(
        "complement_of_erf",
        ("add", "subtract"),
        "1 + erf(x) is erfc(-x). The sum is off by half an ulp of 1 (2^-24 in f32) and that of erf; erfc "
        "by 2 ulp of itself, so the two differ by no more than 2^-22 in f32, and erfc is the better one.",
        _complement,
        "chlo.erf",
    ),
    Rewrite(
        "half_of_one_plus_tanh",
        ("multiply",),
        "(1 + tanh(u)) / 2 is logistic(2 u). The sum is off by an ulp of 1 and that of tanh; logistic by 2 "
        "ulp of itself: they differ by no more than 2^-22 in f32. Halving first or last differs only below "
        "the normal numbers.",
        _tanh,
        "add",
    ),
    Rewrite(
        "gelu_erf",
        ("multiply",),
        "Constants within 4 ulp of sqrt(1/2): erfc's argument differs by 5 ulp, the result by 2^-21 of |x| "
        "in f32.",
        _gelu_erf,
        "chlo.erfc",
    ),
    Rewrite(
        "gelu_tanh",
        ("multiply",),
        "Constants within 8 ulp of those of the definition: the argument of logistic differs by 12 ulp, "
        "the result by 2^-20 of |x| in f32.",
        _gelu_tanh,
        "logistic",
    ),
)
