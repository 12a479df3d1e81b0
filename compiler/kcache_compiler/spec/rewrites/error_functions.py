"""What the toolchain legalizes ``chlo.erf`` and ``chlo.erfc`` of f32 to, read back as the operation.

``jax.export`` and torch-mlir's pipeline write these expansions out. One is recognized by building it again,
of what it seems to be of, where hash-consing makes the same nodes of the same operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.spec.graph.nodes import Ref
from kcache_compiler.spec.rewrites.site import Rewrite, Site

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


def _horner(site: Site, x: Ref, coefficients: Sequence[float]) -> Ref:
    total = site.number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = site.put("add", site.put("multiply", total, x), site.number(coefficient))
    return total


def _clamped(site: Site, bound: float, x: Ref) -> Ref:
    return site.put("minimum", site.put("maximum", site.number(-bound), x), site.number(bound))


def _erf_ratio(site: Site, x: Ref) -> Ref:
    z = _clamped(site, 4.0, x)
    y = site.put("multiply", z, z)
    top = site.put("multiply", z, _horner(site, y, _ERF_TOP))
    return site.put("divide", top, _horner(site, y, _ERF_BOTTOM))


def _erf(site: Site) -> Ref | None:
    if site.type.element != "f32":
        return None
    for one, inner in (site.operands, site.operands[::-1]):
        parts = site.inners(inner, "maximum") if site.scalar(one) == 1 else None
        for low, ratio in (parts, parts[::-1]) if parts else ():
            if site.scalar(low) != -1:
                continue
            x = _clamped_value(site, ratio)
            if x is not None and site.same(_erf_ratio(site, x), ratio):
                return site.put("chlo.erf", x)
    return None


def _clamped_value(site: Site, ratio: Ref) -> Ref | None:
    """Return ``x`` of ``(min(max(x, -4), 4) * ...) / ...``."""
    top = site.inner(ratio, "divide")
    for factor in (None if top is None else site.inners(top, "multiply")) or ():
        for capped in site.inners(factor, "minimum") or ():
            parts = site.inners(capped, "maximum") or ()
            for low, x in (parts, parts[::-1]) if parts else ():
                if site.scalar(low) == -4:
                    return x
    return None


def _erfc(site: Site) -> Ref | None:
    if site.type.element != "f32":
        return None
    compared = site.inners(site.operands[0], "compare")
    value = None if compared is None else site.inner(compared[0], "abs")
    if compared is None or value is None or site.scalar(compared[1]) != 1:
        return None
    for x in (value, site.put("negate", value)):
        near, far = _erfc_branches(site, x)
        if site.same(near, site.operands[1]) and site.same(far, site.operands[2]):
            return site.put("chlo.erfc", x)
    return None


def _erfc_branches(site: Site, x: Ref) -> tuple[Ref, Ref]:
    """Return what the expansion of ``erfc(x)`` is for ``|x| < 1`` and elsewhere."""
    put, number = site.put, site.number
    square = put("multiply", x, x)
    near = put("subtract", number(1.0), put("multiply", x, _horner(site, square, _ERF_NEAR)))
    size, exponent = put("abs", x), put("negate", square)
    inverse = put("divide", number(1.0), square)
    polynomial = put(
        "select",
        _less(site, size, 2.0),
        _horner(site, inverse, _ERFC_BELOW_2),
        _horner(site, inverse, _ERFC_BEYOND),
    )
    scaled = put("multiply", put("divide", number(1.0), size), put("exponential", exponent))
    tail = put("multiply", scaled, polynomial)
    cut = put("select", _less(site, exponent, _LEAST_EXPONENT), number(0.0), tail)
    return near, put("select", _less(site, x, 0.0), put("subtract", number(2.0), cut), cut)


def _less(site: Site, x: Ref, bound: float) -> Ref:
    return site.make("compare", "i1", [x, site.number(bound)], "LT")


EXPANSIONS: tuple[Rewrite, ...] = (
    Rewrite(
        "erf_expansion",
        ("minimum",),
        "The toolchain's polynomial for erf in f32 is within 7 ulp of it, ours within 2.",
        _erf,
        "maximum",
    ),
    Rewrite(
        "erfc_expansion",
        ("select",),
        "The toolchain's polynomials for erfc in f32 are within 2^-22 of it, ours within 2 ulp.",
        _erfc,
        "abs",
    ),
)
