"""Activations and normalizations, as formulas of other operations in the form that frameworks write."""

from __future__ import annotations

import math
from collections.abc import Callable

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter
from kcache_compiler.frontends.graph.ops import elementwise as el
from kcache_compiler.frontends.graph.ops.reductions import (
    broadcast_reduced,
    mean,
    reduce_,
    reduced_axes,
    variance,
)
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import FLOATS, REALS, Value, axis_of, same_dtype, shape_text


def relu(e: Emitter, x: Value) -> Value:
    """Emit ``max(x, 0)``."""
    return el.maximum(e, x, e.scalar(x.dtype, 0))


def leaky_relu(e: Emitter, x: Value, *, slope: float = 0.01) -> Value:
    """Emit ``x`` with the slope ``slope`` below 0."""
    positive = el.compare(e, x, e.scalar(x.dtype, 0), direction="ge")
    return el.select(e, positive, x, el.multiply(e, x, e.scalar(x.dtype, slope)))


def silu(e: Emitter, x: Value) -> Value:
    """Emit ``x * logistic(x)``."""
    return el.multiply(e, x, el.logistic(e, x))


def softplus(e: Emitter, x: Value) -> Value:
    """Emit log(1 + exp(x)) without overflow."""
    correction = el.log1p(e, el.exp(e, el.negate(e, el.magnitude(e, x))))
    return el.add(e, relu(e, x), correction)


def gelu(e: Emitter, x: Value, *, approximate: str = "none") -> Value:
    """Emit ``x`` times the normal distribution function, or its approximation by tanh."""
    half, one = e.scalar(x.dtype, 0.5), e.scalar(x.dtype, 1)
    if approximate == "tanh":
        cube = el.multiply(e, el.multiply(e, x, x), x)
        polynomial = el.add(e, x, el.multiply(e, e.scalar(x.dtype, 0.044715), cube))
        scaled = el.multiply(e, e.scalar(x.dtype, math.sqrt(2 / math.pi)), polynomial)
        factor = el.multiply(e, half, el.add(e, one, el.tanh(e, scaled)))
        return el.multiply(e, x, factor)
    factor = el.add(e, one, el.erf(e, el.multiply(e, x, e.scalar(x.dtype, math.sqrt(0.5)))))
    return el.multiply(e, el.multiply(e, x, half), factor)


def softmax(e: Emitter, x: Value, *, axis: int = -1) -> Value:
    """Emit exp(x) divided by its sum along an axis."""
    reduced = (axis_of(axis, len(x.dims)),)
    maximum = reduce_(e, x, "max", reduced)
    powers = el.exp(e, el.subtract(e, x, broadcast_reduced(e, maximum, x, reduced)))
    return el.divide(e, powers, broadcast_reduced(e, reduce_(e, powers, "sum", reduced), x, reduced))


def log_softmax(e: Emitter, x: Value, *, axis: int = -1) -> Value:
    """Emit log(softmax(x)) without a division."""
    reduced = (axis_of(axis, len(x.dims)),)
    shifted = el.subtract(e, x, broadcast_reduced(e, reduce_(e, x, "max", reduced), x, reduced))
    total = el.log(e, reduce_(e, el.exp(e, shifted), "sum", reduced))
    return el.subtract(e, shifted, broadcast_reduced(e, total, x, reduced))


def layer_norm(
    e: Emitter,
    x: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    *,
    axes: tuple[int, ...] = (-1,),
    epsilon: float = 1e-5,
) -> Value:
    """Normalize to mean 0 and variance 1 over ``axes``, then scale and shift."""
    reduced = reduced_axes(x, axes)
    centered = el.subtract(e, x, broadcast_reduced(e, mean(e, x, axes=reduced), x, reduced))
    inverse_deviation = el.rsqrt(e, el.add(e, variance(e, x, axes=reduced), e.scalar(x.dtype, epsilon)))
    result = el.multiply(e, centered, broadcast_reduced(e, inverse_deviation, x, reduced))
    return _affine(e, result, weight, bias, reduced)


def rms_norm(
    e: Emitter,
    x: Value,
    weight: Value | None = None,
    *,
    axes: tuple[int, ...] = (-1,),
    epsilon: float = 1e-6,
) -> Value:
    """Normalize to mean square 1 over ``axes``, then scale."""
    reduced = reduced_axes(x, axes)
    mean_square = mean(e, el.square(e, x), axes=reduced)
    factor = el.rsqrt(e, el.add(e, mean_square, e.scalar(x.dtype, epsilon)))
    return _affine(e, el.multiply(e, x, broadcast_reduced(e, factor, x, reduced)), weight, None, reduced)


def batch_norm_inference(
    e: Emitter,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    *,
    axis: int = 1,
    epsilon: float = 1e-5,
) -> Value:
    """Normalize with the given mean and variance of each channel, then scale and shift."""
    channel_axis = (axis_of(axis, len(x.dims)),)
    centered = el.subtract(e, x, _broadcast_parameter(e, mean, x, channel_axis, "mean"))
    inverse_deviation = el.rsqrt(e, el.add(e, variance, e.scalar(x.dtype, epsilon)))
    result = el.multiply(e, centered, _broadcast_parameter(e, inverse_deviation, x, channel_axis, "variance"))
    return _affine(e, result, scale, offset, channel_axis)


def _affine(e: Emitter, x: Value, weight: Value | None, bias: Value | None, axes: tuple[int, ...]) -> Value:
    """Multiply ``x`` by the weight and add the bias, if present."""
    if weight is not None:
        x = el.multiply(e, x, _broadcast_parameter(e, weight, x, axes, "weight"))
    if bias is not None:
        x = el.add(e, x, _broadcast_parameter(e, bias, x, axes, "bias"))
    return x


def _broadcast_parameter(e: Emitter, value: Value, x: Value, axes: tuple[int, ...], name: str) -> Value:
    """Broadcast a parameter with the sizes of ``axes`` to the shape of ``x``."""
    same_dtype(x, value)
    shape = tuple(x.dims[axis] for axis in axes)
    if value.dims != shape:
        raise InvalidProgram(f"the {name} {value} must have the shape {shape_text(shape)} of the axes")
    return e.broadcast_in_dim(value, x.dims, axes)


_X = Operand("x", FLOATS)
_SAME = "the shape and dtype of `x`"
_AXIS = Attribute("axis", "int", "The axis.", -1)
_AXES = Attribute("axes", "ints", "The axes that are normalized together.", (-1,))
_NORMALIZED = "the shape and dtype of `x`; `weight` and `bias` have the sizes of the axes, in ascending order"


def _composite(
    name: str,
    doc: str,
    build: Callable[..., Value],
    formula: str,
    attributes: tuple[Attribute, ...] = (),
    operands: tuple[Operand, ...] = (_X,),
    rule: str = _SAME,
) -> Op:
    return Op(name, doc, operands, build, rule, formula, attributes, composite=True)


COMPOSITES = Group(
    "Activations and normalizations",
    (
        _composite("relu", "max(x, 0).", relu, "`maximum(x, 0)`", operands=(Operand("x", REALS),)),
        _composite(
            "leaky_relu",
            "x, with a smaller slope below 0.",
            leaky_relu,
            "`select(x >= 0, x, x * slope)`",
            (Attribute("slope", "float", "The slope.", 0.01),),
        ),
        _composite("sigmoid", "1 / (1 + exp(-x)).", el.logistic, "`logistic(x)`"),
        _composite("silu", "x times its sigmoid.", silu, "`x * logistic(x)`"),
        _composite("softplus", "log(1 + exp(x)).", softplus, "`relu(x) + log1p(exp(-abs(x)))`"),
        _composite(
            "gelu",
            "x times the normal distribution function, or its approximation by tanh.",
            gelu,
            "`x * 0.5 * (1 + erf(x * sqrt(1/2)))`; with tanh "
            "`x * (0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * (x*x*x)))))`",
            (Attribute("approximate", "string", "Which form.", "none", ("none", "tanh")),),
        ),
        _composite(
            "softmax",
            "exp(x) divided by its sum along an axis.",
            softmax,
            "`p / reduce_sum(p)` with `p = exp(x - reduce_max(x))`",
            (_AXIS,),
        ),
        _composite(
            "log_softmax",
            "Logarithm of softmax.",
            log_softmax,
            "`s - log(reduce_sum(exp(s)))` with `s = x - reduce_max(x)`",
            (_AXIS,),
        ),
        _composite(
            "layer_norm",
            "x normalized to mean 0 and variance 1 over some axes, then scaled and shifted.",
            layer_norm,
            "`(x - mean(x)) * rsqrt(variance(x) + epsilon) * weight + bias`",
            (_AXES, Attribute("epsilon", "float", "Added to the variance.", 1e-5)),
            (_X, Operand("weight", FLOATS, optional=True), Operand("bias", FLOATS, optional=True)),
            _NORMALIZED,
        ),
        _composite(
            "rms_norm",
            "x normalized to mean square 1 over some axes, then scaled.",
            rms_norm,
            "`x * rsqrt(mean(square(x)) + epsilon) * weight`",
            (_AXES, Attribute("epsilon", "float", "Added to the mean square.", 1e-6)),
            (_X, Operand("weight", FLOATS, optional=True)),
            _NORMALIZED,
        ),
        _composite(
            "batch_norm_inference",
            "x normalized with a given mean and variance of each channel, then scaled and shifted.",
            batch_norm_inference,
            "`(x - mean) * rsqrt(variance + epsilon) * scale + offset`",
            (
                Attribute("axis", "int", "The axis of the channels.", 1),
                Attribute("epsilon", "float", "Added to the variance.", 1e-5),
            ),
            (
                _X,
                Operand("scale", FLOATS),
                Operand("offset", FLOATS),
                Operand("mean", FLOATS),
                Operand("variance", FLOATS),
            ),
            "the shape and dtype of `x`; the other operands are vectors with one element for each channel",
        ),
    ),
    "Each is emitted as its formula, in the dtype of its operands: a program that writes the formula and one "
    "that writes the name have one key. Reductions are over the axes of the attribute; their results "
    "broadcast back.",
)
