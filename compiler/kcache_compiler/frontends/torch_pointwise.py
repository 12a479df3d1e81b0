"""Functions of one tensor, element by element, with the zeros, infinities and small numbers of eager mode.

torch-mlir has no lowering of some of them. Of others it has sums of two parts, which lose the sign of a zero,
and ``exp(x) - 1``, which loses small numbers.
"""

from __future__ import annotations

import struct
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
