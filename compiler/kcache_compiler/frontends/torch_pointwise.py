"""Functions of one tensor, element by element, with the zeros, infinities and small numbers of eager mode.

torch-mlir has no lowering of some of them. Of others it has sums of two parts, which lose the sign of a zero,
and ``exp(x) - 1``, which loses small numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.frontends.context import Native
from kcache_compiler.frontends.torch_site import CONSTANTS, Site


def _function(name: str) -> Callable[[Site], Native]:
    def lower(site: Site) -> Native:
        return site.result(_apply(site, name, site.tensor(site.operation.operands[0])))

    return lower


def _apply(site: Site, name: str, operand: Native) -> Native:
    return site.op(name, [operand], f"tensor<{site.dims}{site.element}>")


def _digamma(site: Site) -> Native:
    """At a zero it is infinite, with the other sign."""
    x = site.tensor(site.operation.operands[0])
    pole = site.elementwise("divide", [site.number(-1.0), x])
    at_zero = site.compare("EQ", x, site.number(0.0))
    return site.result(site.elementwise("select", [at_zero, pole, _apply(site, "chlo.digamma", x)]))


def _trunc(site: Site) -> Native:
    """Towards zero, whose sign is that of the number."""
    x = site.tensor(site.operation.operands[0])
    if not site.is_float:
        return site.result(x)
    down, up = (_apply(site, f"stablehlo.{name}", x) for name in ("floor", "ceil"))
    below = site.compare("LT", x, site.number(0.0))
    return site.result(site.elementwise("select", [below, up, down]))


def _elu(site: Site) -> Native | None:
    """``scale * x``, and below zero ``scale * alpha * expm1(input_scale * x)``."""
    x, *numbers = site.operation.operands
    if not site.is_float or not all(getattr(one.owner, "name", "") in CONSTANTS for one in numbers):
        return None
    alpha, scale, steepness = (float(one.owner.attributes["value"].value) for one in numbers)
    with site.widened():
        wide = site.tensor(x)
        below = _apply(site, "stablehlo.exponential_minus_one", _scaled(site, wide, steepness))
        above = _scaled(site, wide, scale)
        chosen = site.compare("GT", wide, site.number(0.0))
        found = site.elementwise("select", [chosen, above, _scaled(site, below, alpha * scale)])
    return site.result(site.narrowed(found))


def _leaky_relu(site: Site) -> Native | None:
    x, slope = site.operation.operands
    if not site.is_float or getattr(slope.owner, "name", "") not in CONSTANTS:
        return None
    with site.widened():
        wide = site.tensor(x)
        below = _scaled(site, wide, float(slope.owner.attributes["value"].value))
        found = site.elementwise("select", [site.compare("GT", wide, site.number(0.0)), wide, below])
    return site.result(site.narrowed(found))


def _scaled(site: Site, x: Native, by: float) -> Native:
    return x if by == 1 else site.elementwise("multiply", [x, site.number(by)])


POINTWISE: dict[str, Callable[[Site], Native | None]] = {
    "torch.aten.erfinv": _function("chlo.erf_inv"),
    "torch.aten.lgamma": _function("chlo.lgamma"),
    "torch.aten.digamma": _digamma,
    "torch.aten.erfc": _function("chlo.erfc"),
    "torch.aten.trunc": _trunc,
    "torch.aten.elu": _elu,
    "torch.aten.leaky_relu": _leaky_relu,
}
