"""Activations, by their definitions in the ONNX operator specification."""

from __future__ import annotations

import math
from collections.abc import Callable

from kcache_compiler.frontends.onnx.builder import limits_of
from kcache_compiler.frontends.onnx.emitter import FLOATS, HALF_PRECISION, Value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize


def _where_positive(n: OnnxNode, x: Value, other: Value) -> Value:
    return n.b.select(n.b.compare_to("GT", x, 0), x, other)


@legalize(Relu=14)
def relu(n: OnnxNode) -> Value:
    return n.b.scalar("maximum", n[0], 0)


@legalize(LeakyRelu=16)
def leaky_relu(n: OnnxNode) -> Value:
    x = n[0]
    scaled = n.b.scalar("multiply", x, n.float("alpha", 0.01))
    return n.b.select(n.b.compare_to("LT", x, 0), scaled, x)


@legalize(Elu=22, Selu=22, Celu=28)
def elu(n: OnnxNode) -> Value:
    x = n[0]
    if n.op == "Selu":
        alpha = n.float("alpha", 1.67326319217681884765625)
        argument = n.b.scalar("multiply", n.b.unary("exponential_minus_one", x), alpha)
        return n.b.scalar(
            "multiply", _where_positive(n, x, argument), n.float("gamma", 1.05070102214813232421875)
        )
    alpha = n.float("alpha", 1.0)
    power = x if n.op == "Elu" or alpha == 1 else n.b.scalar("divide", x, alpha)
    argument = n.b.unary("exponential_minus_one", power)
    return _where_positive(n, x, argument if alpha == 1 else n.b.scalar("multiply", argument, alpha))


@legalize(Gelu=20)
def gelu(n: OnnxNode) -> Value:
    x = n[0]
    if n.text("approximate", "none") == "tanh":
        cube = n.b.binary("multiply", n.b.binary("multiply", x, x), x)
        argument = n.b.binary("add", x, n.b.scalar("multiply", cube, 0.044715))
        gate = n.b.unary("tanh", n.b.scalar("multiply", argument, math.sqrt(2 / math.pi)))
    else:
        gate = n.b.unary("chlo.erf", n.b.scalar("multiply", x, math.sqrt(0.5)))
    half = n.b.scalar("multiply", x, 0.5)
    return n.b.binary("multiply", half, n.b.scalar("add", gate, 1))


@legalize(HardSigmoid=22, HardSwish=22)
def hard_sigmoid(n: OnnxNode) -> Value:
    x = n[0]
    alpha, beta = (1 / 6, 0.5) if n.op == "HardSwish" else (n.float("alpha", 0.2), n.float("beta", 0.5))
    line = n.b.scalar("add", n.b.scalar("multiply", x, alpha), beta)
    gate = n.b.scalar("minimum", n.b.scalar("maximum", line, 0), 1)
    return n.b.binary("multiply", x, gate) if n.op == "HardSwish" else gate


def _softplus(n: OnnxNode, x: Value) -> Value:
    """Emit ``log(1 + exp(x))`` without overflow."""
    correction = n.b.unary("log_plus_one", n.b.unary("exponential", n.b.unary("negate", n.b.unary("abs", x))))
    return n.b.binary("add", n.b.scalar("maximum", x, 0), correction)


@legalize(Mish=22, Softplus=22, Softsign=22, Swish=24)
def smooth(n: OnnxNode) -> Value:
    x = n[0]
    if n.op == "Softplus":
        return _softplus(n, x)
    if n.op == "Mish":
        return n.b.binary("multiply", x, n.b.unary("tanh", _softplus(n, x)))
    if n.op == "Softsign":
        return n.b.binary("divide", x, n.b.scalar("add", n.b.unary("abs", x), 1))
    alpha = n.float("alpha", 1.0)
    argument = x if alpha == 1 else n.b.scalar("multiply", x, alpha)
    return n.b.binary("multiply", x, n.b.unary("logistic", argument))


@legalize(ThresholdedRelu=22)
def thresholded_relu(n: OnnxNode) -> Value:
    x = n[0]
    zero = n.b.full(0, x.element, x.dims)
    return n.b.select(n.b.compare_to("GT", x, n.float("alpha", 1.0)), x, zero)


@legalize(Shrink=9)
def shrink(n: OnnxNode) -> Value:
    x, bias, limit = n[0], n.float("bias", 0.0), n.float("lambd", 0.5)
    zero = n.b.full(0, x.element, x.dims)
    if x.element not in FLOATS:
        least, greatest = limits_of(x.element)
        if bias % 1 or not least <= bias <= greatest or not 0 <= limit <= greatest:
            n.unsupported(f"bias = {bias} and lambd = {limit} of {x.element}")
        limit = math.floor(limit)
        if x.element.startswith("ui"):
            return n.b.select(n.b.compare_to("GT", x, limit), n.b.scalar("subtract", x, bias), zero)
    low = n.b.select(n.b.compare_to("LT", x, -limit), n.b.scalar("add", x, bias), zero)
    return n.b.select(n.b.compare_to("GT", x, limit), n.b.scalar("subtract", x, bias), low)


@legalize(Softmax=13, LogSoftmax=13, Hardmax=13)
def softmax(n: OnnxNode) -> Value:
    x = n[0]
    compute: Callable[[OnnxNode, Value, int], Value] = {
        "Softmax": _softmax,
        "LogSoftmax": _log_softmax,
        "Hardmax": _hardmax,
    }[n.op]
    if n.version >= 13:
        return _compute_in_f32(compute, n, x, n.axis(n.int("axis", -1), x.rank))
    # Before opset 13, the axes from ``axis`` to the last are flattened to one.
    axis = n.axis(n.int("axis", 1), x.rank) if x.rank else 0
    rows = math.prod(x.dims[:axis])
    flat = n.b.reshape(x, (rows, math.prod(x.dims[axis:])))
    return n.b.reshape(_compute_in_f32(compute, n, flat, 1), x.dims)


def _compute_in_f32(
    compute: Callable[[OnnxNode, Value, int], Value], n: OnnxNode, x: Value, axis: int
) -> Value:
    """Compute half-precision operands in f32, rounded once."""
    if x.element not in HALF_PRECISION:
        return compute(n, x, axis)
    return n.b.convert(compute(n, n.b.convert(x, "f32"), axis), x.element)


def _subtract_maximum(n: OnnxNode, x: Value, axis: int) -> Value:
    return n.b.binary("subtract", x, n.b.reduce("maximum", x, [axis], keep=True))


def _softmax(n: OnnxNode, x: Value, axis: int) -> Value:
    powers = n.b.unary("exponential", _subtract_maximum(n, x, axis))
    return n.b.binary("divide", powers, n.b.reduce("add", powers, [axis], keep=True))


def _log_softmax(n: OnnxNode, x: Value, axis: int) -> Value:
    shifted = _subtract_maximum(n, x, axis)
    total = n.b.reduce("add", n.b.unary("exponential", shifted), [axis], keep=True)
    return n.b.binary("subtract", shifted, n.b.unary("log", total))


def _hardmax(n: OnnxNode, x: Value, axis: int) -> Value:
    from kcache_compiler.frontends.onnx.ops.reductions import extreme_index

    position = extreme_index(n, x, axis, largest=True, last=False)
    index = n.b.iota("i64", x.dims, axis)
    return n.b.convert(n.b.compare("EQ", index, n.b.restore_axes(position, x.dims, [axis])), x.element)
