"""Elementwise functions with the zeros, infinities and small values of eager mode.

torch-mlir does not lower some of them. Others it computes as sums of two parts, which lose the sign of a
zero, or as ``exp(x) - 1``, which loses small values.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.torch.torch_op import CONSTANTS, TorchOp, name_of
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Value


def _function(name: str) -> Callable[[TorchOp], Value]:
    def lower(op: TorchOp) -> Value:
        return op.to_torch(_apply(op, name, op.tensor(op.operation.operands[0])))

    return lower


def _apply(op: TorchOp, name: str, operand: Value) -> Value:
    return op.create(name, [operand], f"tensor<{op.dims}{op.element}>")


def _zeta(op: TorchOp) -> Value:
    with op.half_as_f32():
        value = _hurwitz(op, *(op.tensor(operand) for operand in op.operation.operands))
    return op.to_torch(op.to_result_element(value))


def _hurwitz(op: TorchOp, s: Value, q: Value) -> Value:
    """Return CHLO's zeta with the infinities of eager mode.

    CHLO has NaN at the poles of odd ``s`` and a limit at infinity, where eager mode has infinities and NaN.
    """
    zeta = op.elementwise("zeta", [s, q])
    zero = op.create("chlo.constant_like", [zeta], str(zeta.type), value=f"0.0 : {op.element}")
    s, q = (
        op.elementwise("add", [operand, zero]) for operand in (s, q)
    )  # broadcast to the shape of the result
    is_integer = op.compare("EQ", q, op.create("stablehlo.floor", [q], str(q.type)))
    is_pole = op.elementwise("and", [is_integer, op.compare("LE", q, op.scalar(0.0))], "i1")
    is_pole = op.elementwise("and", [is_pole, op.compare("GT", s, op.scalar(1.0))], "i1")
    is_infinite = op.compare("EQ", q, op.scalar(math.inf))
    is_infinite = op.elementwise("and", [is_infinite, op.compare("NE", s, op.scalar(1.0))], "i1")
    with_poles = op.elementwise("select", [is_pole, op.scalar(math.inf), zeta])
    return op.elementwise("select", [is_infinite, op.scalar(math.nan), with_poles])


def _polygamma(op: TorchOp) -> Value | None:
    """Lower polygamma of a constant order."""
    order, x = op.operation.operands
    if getattr(order.owner, "name", "") != "torch.constant.int":
        return None
    n = lazy.integer(lazy.definition(order).attributes["value"])
    with op.half_as_f32():
        wide = op.tensor(x)
        if n == 0:
            value = _digamma_with_poles(op, wide)
        elif n == 1:
            is_minus_infinity = op.compare("EQ", wide, op.scalar(-math.inf))
            trigamma = op.elementwise("polygamma", [op.scalar(1.0), wide])
            value = op.elementwise("select", [is_minus_infinity, op.scalar(math.nan), trigamma])
        else:
            factor = math.copysign(_factorial(n, op.element), n % 2 - 0.5)
            value = _scale(op, _hurwitz(op, op.scalar(n + 1.0), wide), factor)
    return op.to_torch(op.to_result_element(value))


def _factorial(n: int, element: str) -> float:
    """Return n!, infinite if the element type cannot represent it."""
    log_factorial = math.lgamma(n + 1)
    return math.exp(log_factorial) if log_factorial < (709.0 if element == "f64" else 88.7) else math.inf


def _next_after(op: TorchOp) -> Value:
    return op.to_torch(op.elementwise("next_after", [op.tensor(x) for x in op.operation.operands]))


def _bessel_i1(op: TorchOp) -> Value:
    """Compute the Bessel function of the magnitude, scaled by ``exp(-magnitude)``, with the sign of ``x``."""
    with op.half_as_f32():
        x = op.tensor(op.operation.operands[0])
        magnitude = _apply(op, "stablehlo.abs", x)
        value = _apply(op, "chlo.bessel_i1e", magnitude)
        if not name_of(op.operation).endswith("i1e"):
            value = op.elementwise("multiply", [value, _apply(op, "stablehlo.exponential", magnitude)])
        is_negative = op.compare("LT", x, op.scalar(0.0))
        value = op.elementwise("select", [is_negative, _apply(op, "stablehlo.negate", value), value])
    return op.to_torch(op.to_result_element(value))


def _digamma(op: TorchOp) -> Value:
    return op.to_torch(_digamma_with_poles(op, op.tensor(op.operation.operands[0])))


def _digamma_with_poles(op: TorchOp, x: Value) -> Value:
    """Return digamma, infinite with the opposite sign at a zero."""
    pole = op.elementwise("divide", [op.scalar(-1.0), x])
    at_zero = op.compare("EQ", x, op.scalar(0.0))
    return op.elementwise("select", [at_zero, pole, _apply(op, "chlo.digamma", x)])


def _trunc(op: TorchOp) -> Value:
    """Round toward zero, keeping the sign of a zero."""
    x = op.tensor(op.operation.operands[0])
    if not op.is_float:
        return op.to_torch(x)
    down, up = (_apply(op, f"stablehlo.{name}", x) for name in ("floor", "ceil"))
    is_negative = op.compare("LT", x, op.scalar(0.0))
    return op.to_torch(op.elementwise("select", [is_negative, up, down]))


def _elu(op: TorchOp) -> Value | None:
    """Lower ``scale * x``, and below zero ``scale * alpha * expm1(input_scale * x)``."""
    x, *parameters = op.operation.operands
    if not op.is_float or not all(
        getattr(parameter.owner, "name", "") in CONSTANTS for parameter in parameters
    ):
        return None
    alpha, scale, input_scale = (
        float(lazy.number(lazy.definition(parameter).attributes["value"])) for parameter in parameters
    )
    with op.half_as_f32():
        wide = op.tensor(x)
        negative_part = _apply(op, "stablehlo.exponential_minus_one", _scale(op, wide, input_scale))
        positive_part = _scale(op, wide, scale)
        is_positive = op.compare("GT", wide, op.scalar(0.0))
        value = op.elementwise(
            "select", [is_positive, positive_part, _scale(op, negative_part, alpha * scale)]
        )
    return op.to_torch(op.to_result_element(value))


def _binary_with_scalar(name: str, is_reversed: bool = False) -> Callable[[TorchOp], Value | None]:
    """Lower a half-precision tensor and a scalar that it cannot represent in f32, rounded once."""

    def lower(op: TorchOp) -> Value | None:
        left, right, *alpha = op.operation.operands
        number = _constant(right)
        if number is None or any(_constant(factor) != 1 for factor in alpha):
            return None
        is_same_type = str(left.type).endswith(f",{op.element}>")
        if not is_same_type or op.element not in ("f16", "bf16") or _is_representable(number, op.element):
            return None
        with op.half_as_f32():
            x, y = op.tensor(left), op.scalar(number)
            value = op.elementwise(name, [y, x] if is_reversed else [x, y])
        return op.to_torch(op.to_result_element(value))

    return lower


def _constant(value: Value) -> float | None:
    """Return a constant scalar."""
    owner = lazy.definition(value)
    if getattr(owner, "name", "") == "torch.prim.NumToTensor.Scalar":
        return _constant(owner.operands[0])
    return float(lazy.number(owner.attributes["value"])) if getattr(owner, "name", "") in CONSTANTS else None


def _is_representable(number: float, element: str) -> bool:
    """Return whether an element type represents the value exactly."""
    try:
        if element == "f16":
            return struct.unpack("<e", struct.pack("<e", number))[0] == number
        packed = struct.pack("<f", number)
    except OverflowError:
        return False
    return struct.unpack("<f", packed)[0] == number and packed[:2] == bytes(2)


def _leaky_relu(op: TorchOp) -> Value | None:
    x, slope = op.operation.operands
    if not op.is_float or getattr(slope.owner, "name", "") not in CONSTANTS:
        return None
    with op.half_as_f32():
        wide = op.tensor(x)
        negative_part = _scale(op, wide, float(lazy.number(lazy.definition(slope).attributes["value"])))
        value = op.elementwise("select", [op.compare("GT", wide, op.scalar(0.0)), wide, negative_part])
    return op.to_torch(op.to_result_element(value))


def _rrelu_backward(op: TorchOp) -> Value:
    """Lower the gradient of a randomized leaky ReLU, whose slopes in training are ``noise``."""
    gradient, x, noise, *parameters = op.operation.operands
    numbers = [_constant(parameter) for parameter in parameters]
    lower, upper, training = numbers[:3]
    if lower is None or upper is None or training is None:
        reason = "its bounds and its flag of training must be constants"
        raise UnsupportedOp(name_of(op.operation), reason, mlir.describe_location(op.operation.location))
    with op.half_as_f32():
        wide = op.tensor(gradient)
        if training:
            value = op.elementwise("multiply", [wide, op.tensor(noise)])
        else:
            negative_part = _scale(op, wide, (lower + upper) / 2)
            is_positive = op.compare("GT", op.tensor(x), op.scalar(0.0))
            value = op.elementwise("select", [is_positive, wide, negative_part])
    return op.to_torch(op.to_result_element(value))


def _scale(op: TorchOp, x: Value, factor: float) -> Value:
    return x if factor == 1 else op.elementwise("multiply", [x, op.scalar(factor)])


POINTWISE: dict[str, Callable[[TorchOp], Value | None]] = {
    "torch.aten.erfinv": _function("chlo.erf_inv"),
    "torch.aten.lgamma": _function("chlo.lgamma"),
    "torch.aten.digamma": _digamma,
    "torch.aten.polygamma": _polygamma,
    **{f"torch.aten.special_zeta{overload}": _zeta for overload in ("", ".other_scalar", ".self_scalar")},
    "torch.aten.special_i1": _bessel_i1,
    "torch.aten.special_i1e": _bessel_i1,
    "torch.aten.nextafter": _next_after,
    "torch.aten.erfc": _function("chlo.erfc"),
    "torch.aten.trunc": _trunc,
    "torch.aten.elu": _elu,
    "torch.aten.leaky_relu": _leaky_relu,
    "torch.aten.rrelu_with_noise_backward": _rrelu_backward,
    "torch.aten.mul.Scalar": _binary_with_scalar("multiply"),
    "torch.aten.div.Scalar": _binary_with_scalar("divide"),
    "torch.aten.add.Scalar": _binary_with_scalar("add"),
    "torch.aten.sub.Scalar": _binary_with_scalar("subtract"),
    "torch.aten.rsub.Scalar": _binary_with_scalar("subtract", is_reversed=True),
    "torch.aten.mul.Tensor": _binary_with_scalar("multiply"),
    "torch.aten.div.Tensor": _binary_with_scalar("divide"),
    "torch.aten.add.Tensor": _binary_with_scalar("add"),
    "torch.aten.sub.Tensor": _binary_with_scalar("subtract"),
}
