"""Raising of the expansions to which the toolchain legalizes ``chlo.erf`` and ``chlo.erfc`` of f32.

``jax.export`` and torch-mlir's pipeline expand these operations. An expansion is recognized by building it
for the operand that it seems to have: by hash-consing, equal operations are equal nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.site import GraphRewrite, RewriteSite

_ERF_TOP = (
    *(-2.7261424e-10, 2.7706815e-08, -2.101024e-06, -5.6925062e-05),
    *(-0.00073499064, -0.0029546, -0.016096033),
)
_ERF_BOTTOM = (-1.45660715e-05, -0.00021337405, -0.001682827, -0.0073733293, -0.014264739)
_ERF_NEAR = (
    *(7.8538615e-05, -0.00080101937, 0.0051883277, -0.026853813),
    *(0.112835854, -0.37612626, 1.1283791),
)
_ERFC_BELOW_2 = (
    *(0.0232682, -0.13870394, 0.36874247, -0.5824733, 0.62100047),
    *(-0.49445152, 0.340488, -0.2741127, 0.56382596),
)
_ERFC_BEYOND = (
    *(-10.477664, 12.9772, -7.4955187, 2.921019),
    *(-1.0152652, 0.42184633, -0.28207675, 0.5641895),
)
_LEAST_EXPONENT = -88.72284


def _horner(site: RewriteSite, x: Ref, coefficients: Sequence[float]) -> Ref:
    total = site.constant(coefficients[0])
    for coefficient in coefficients[1:]:
        total = site.build("add", site.build("multiply", total, x), site.constant(coefficient))
    return total


def _clamped(site: RewriteSite, bound: float, x: Ref) -> Ref:
    return site.build("minimum", site.build("maximum", site.constant(-bound), x), site.constant(bound))


def _erf_ratio(site: RewriteSite, x: Ref) -> Ref:
    z = _clamped(site, 4.0, x)
    y = site.build("multiply", z, z)
    top = site.build("multiply", z, _horner(site, y, _ERF_TOP))
    return site.build("divide", top, _horner(site, y, _ERF_BOTTOM))


def _erf(site: RewriteSite) -> Ref | None:
    if site.type.element != "f32":
        return None
    for unit, inner in (site.operands, site.operands[::-1]):
        parts = site.operands_of(inner, "maximum") if site.scalar(unit) == 1 else None
        for low, ratio in (parts, parts[::-1]) if parts else ():
            if site.scalar(low) != -1:
                continue
            x = _clamped_value(site, ratio)
            if x is not None and site.same(_erf_ratio(site, x), ratio):
                return site.build("chlo.erf", x)
    return None


def _clamped_value(site: RewriteSite, ratio: Ref) -> Ref | None:
    """``x`` of ``(min(max(x, -4), 4) * ...) / ...``; None of other values."""
    top = site.operand_of(ratio, "divide")
    for factor in (None if top is None else site.operands_of(top, "multiply")) or ():
        for capped in site.operands_of(factor, "minimum") or ():
            parts = site.operands_of(capped, "maximum") or ()
            for low, x in (parts, parts[::-1]) if parts else ():
                if site.scalar(low) == -4:
                    return x
    return None


def _erfc(site: RewriteSite) -> Ref | None:
    if site.type.element != "f32":
        return None
    compared = site.operands_of(site.operands[0], "compare")
    value = None if compared is None else site.operand_of(compared[0], "abs")
    if compared is None or value is None or site.scalar(compared[1]) != 1:
        return None
    for x in (value, site.build("negate", value)):
        near, far = _erfc_branches(site, x)
        if site.same(near, site.operands[1]) and site.same(far, site.operands[2]):
            return site.build("chlo.erfc", x)
    return None


def _erfc_branches(site: RewriteSite, x: Ref) -> tuple[Ref, Ref]:
    """The branches of the expansion of ``erfc(x)``, for ``|x| < 1`` and elsewhere."""
    build, constant = site.build, site.constant
    square = build("multiply", x, x)
    near = build("subtract", constant(1.0), build("multiply", x, _horner(site, square, _ERF_NEAR)))
    size, exponent = build("abs", x), build("negate", square)
    inverse = build("divide", constant(1.0), square)
    polynomial = build(
        "select",
        _less(site, size, 2.0),
        _horner(site, inverse, _ERFC_BELOW_2),
        _horner(site, inverse, _ERFC_BEYOND),
    )
    scaled = build("multiply", build("divide", constant(1.0), size), build("exponential", exponent))
    tail = build("multiply", scaled, polynomial)
    cut = build("select", _less(site, exponent, _LEAST_EXPONENT), constant(0.0), tail)
    return near, build("select", _less(site, x, 0.0), build("subtract", constant(2.0), cut), cut)


def _less(site: RewriteSite, x: Ref, bound: float) -> Ref:
    return site.build_as("compare", "i1", [x, site.constant(bound)], "LT")


EXPANSIONS: tuple[GraphRewrite, ...] = (
    GraphRewrite(
        "erf_expansion",
        ("minimum",),
        "The toolchain's polynomial for erf in f32 is within 7 ulp of it, ours within 2.",
        _erf,
        "maximum",
    ),
    GraphRewrite(
        "erfc_expansion",
        ("select",),
        "The toolchain's polynomials for erfc in f32 are within 2^-22 of it, ours within 2 ulp.",
        _erfc,
        "abs",
    ),
)
