"""Functions of elements, with the zeros, infinities and small numbers of eager mode.

torch-mlir has no lowering of some of them. Of others it has sums of two parts, which lose the sign of a zero,
and ``exp(x) - 1``, which loses small numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from kcache_compiler.frontends.torch.site import CONSTANTS, Site, name_of
from kcache_compiler.mlir.context import Native


def _function(name: str) -> Callable[[Site], Native]:
    def lower(site: Site) -> Native:
        return site.result(_apply(site, name, site.tensor(site.operation.operands[0])))

    return lower


def _apply(site: Site, name: str, operand: Native) -> Native:
    return site.op(name, [operand], f"tensor<{site.dims}{site.element}>")


def _zeta(site: Site) -> Native:
    with site.widened():
        found = _hurwitz(site, *(site.tensor(one) for one in site.operation.operands))
    return site.result(site.narrowed(found))


def _hurwitz(site: Site, s: Native, q: Native) -> Native:
    """CHLO's zeta, which has NaN at the poles of odd ``s`` and a limit at infinity; eager mode has infinities
    there, and NaN.
    """
    zeta = site.elementwise("zeta", [s, q])
    zero = site.op("chlo.constant_like", [zeta], str(zeta.type), value=f"0.0 : {site.element}")
    s, q = (site.elementwise("add", [one, zero]) for one in (s, q))  # in the result's shape
    whole = site.compare("EQ", q, site.op("stablehlo.floor", [q], str(q.type)))
    pole = site.elementwise("and", [whole, site.compare("LE", q, site.number(0.0))], "i1")
    pole = site.elementwise("and", [pole, site.compare("GT", s, site.number(1.0))], "i1")
    far = site.compare("EQ", q, site.number(math.inf))
    far = site.elementwise("and", [far, site.compare("NE", s, site.number(1.0))], "i1")
    found = site.elementwise("select", [pole, site.number(math.inf), zeta])
    return site.elementwise("select", [far, site.number(math.nan), found])


def _polygamma(site: Site) -> Native | None:
    """The derivative of an order that is a number of the program."""
    order, x = site.operation.operands
    if getattr(order.owner, "name", "") != "torch.constant.int":
        return None
    n = order.owner.attributes["value"].value
    with site.widened():
        wide = site.tensor(x)
        if n == 0:
            found = _digamma_of(site, wide)
        elif n == 1:
            below = site.compare("EQ", wide, site.number(-math.inf))
            first = site.elementwise("polygamma", [site.number(1.0), wide])
            found = site.elementwise("select", [below, site.number(math.nan), first])
        else:
            factor = math.copysign(_factorial(n, site.element), n % 2 - 0.5)
            found = _scaled(site, _hurwitz(site, site.number(n + 1.0), wide), factor)
    return site.result(site.narrowed(found))


def _factorial(n: int, element: str) -> float:
    """Infinite where the element type has no such number."""
    found = math.lgamma(n + 1)
    return math.exp(found) if found < (709.0 if element == "f64" else 88.7) else math.inf


def _next_after(site: Site) -> Native:
    return site.result(site.elementwise("next_after", [site.tensor(x) for x in site.operation.operands]))


def _first_bessel(site: Site) -> Native:
    """Of the size, whose scale is ``exp(-size)``; below zero the other sign, of which a zero has none."""
    with site.widened():
        x = site.tensor(site.operation.operands[0])
        size = _apply(site, "stablehlo.abs", x)
        found = _apply(site, "chlo.bessel_i1e", size)
        if not name_of(site.operation).endswith("i1e"):
            found = site.elementwise("multiply", [found, _apply(site, "stablehlo.exponential", size)])
        below = site.compare("LT", x, site.number(0.0))
        found = site.elementwise("select", [below, _apply(site, "stablehlo.negate", found), found])
    return site.result(site.narrowed(found))


def _digamma(site: Site) -> Native:
    return site.result(_digamma_of(site, site.tensor(site.operation.operands[0])))


def _digamma_of(site: Site, x: Native) -> Native:
    """At a zero it is infinite, with the other sign."""
    pole = site.elementwise("divide", [site.number(-1.0), x])
    at_zero = site.compare("EQ", x, site.number(0.0))
    return site.elementwise("select", [at_zero, pole, _apply(site, "chlo.digamma", x)])


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


def _with_number(op: str, turned: bool = False) -> Callable[[Site], Native | None]:
    """A half and a number that is none, in f32, rounded once; the number may be beyond the halves."""

    def lower(site: Site) -> Native | None:
        left, right, *alpha = site.operation.operands
        number = _constant(right)
        if number is None or any(_constant(one) != 1 for one in alpha):
            return None
        whole = str(left.type).endswith(f",{site.element}>")
        if not whole or site.element not in ("f16", "bf16") or _is_half(number, site.element):
            return None
        with site.widened():
            x, y = site.tensor(left), site.number(number)
            found = site.elementwise(op, [y, x] if turned else [x, y])
        return site.result(site.narrowed(found))

    return lower


def _constant(value: Native) -> float | None:
    """A number of the program."""
    owner = value.owner
    if getattr(owner, "name", "") == "torch.prim.NumToTensor.Scalar":
        return _constant(owner.operands[0])
    return float(owner.attributes["value"].value) if getattr(owner, "name", "") in CONSTANTS else None


def _is_half(number: float, element: str) -> bool:
    """Whether an element type has the number."""
    try:
        if element == "f16":
            return struct.unpack("<e", struct.pack("<e", number))[0] == number
        packed = struct.pack("<f", number)
    except OverflowError:
        return False
    return struct.unpack("<f", packed)[0] == number and packed[:2] == bytes(2)


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
    "torch.aten.polygamma": _polygamma,
    **{f"torch.aten.special_zeta{kind}": _zeta for kind in ("", ".other_scalar", ".self_scalar")},
    "torch.aten.special_i1": _first_bessel,
    "torch.aten.special_i1e": _first_bessel,
    "torch.aten.nextafter": _next_after,
    "torch.aten.erfc": _function("chlo.erfc"),
    "torch.aten.trunc": _trunc,
    "torch.aten.elu": _elu,
    "torch.aten.leaky_relu": _leaky_relu,
    "torch.aten.mul.Scalar": _with_number("multiply"),
    "torch.aten.div.Scalar": _with_number("divide"),
    "torch.aten.add.Scalar": _with_number("add"),
    "torch.aten.sub.Scalar": _with_number("subtract"),
    "torch.aten.rsub.Scalar": _with_number("subtract", turned=True),
    "torch.aten.mul.Tensor": _with_number("multiply"),
    "torch.aten.div.Tensor": _with_number("divide"),
    "torch.aten.add.Tensor": _with_number("add"),
    "torch.aten.sub.Tensor": _with_number("subtract"),
}
