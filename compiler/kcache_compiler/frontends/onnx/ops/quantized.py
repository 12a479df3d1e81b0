"""Quantization, dequantization, and products of quantized operands in integers."""

from __future__ import annotations

from kcache_compiler.frontends.onnx.emitter import FLOATS, INTEGERS, STORAGE_TYPES, Value
from kcache_compiler.frontends.onnx.narrow_types import NARROW_FLOATS, convert_narrow
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.elementwise import convert, element_of, saturating_convert
from kcache_compiler.frontends.onnx.ops.linear_algebra import matrix_product
from kcache_compiler.frontends.onnx.ops.vision.windows import convolve


def _broadcast_parameter(n: OnnxNode, parameter: Value, x: Value) -> Value:
    """Broadcast a scale or zero point, per tensor, per axis or per block, to the shape of ``x``."""
    b = n.b
    if n.int("block_size", 0):
        return _broadcast_blocks(n, parameter, x)
    if parameter.rank == 0 or parameter.dims == (1,):
        return b.broadcast(b.reshape(parameter, ()), x.dims)
    return b.broadcast_in_dim(parameter, [n.axis(n.int("axis", 1), x.rank)], x.dims)


def _broadcast_blocks(n: OnnxNode, parameter: Value, x: Value) -> Value:
    """Broadcast one parameter per ``block_size`` indices of an axis; the last block may be shorter."""
    size, axis = n.int("block_size"), n.axis(n.int("axis", 1), x.rank)
    if size < 0 or parameter.rank != x.rank or parameter.dims[axis] != -(-x.dims[axis] // size):
        n.invalid(
            f"scales of shape {list(parameter.dims)} do not match blocks of {size} of shape {list(x.dims)}"
        )
    block_dims = (*parameter.dims[: axis + 1], size, *parameter.dims[axis + 1 :])
    parameter_axes = [i for i in range(x.rank + 1) if i != axis + 1]
    broadcast = n.b.broadcast_in_dim(parameter, parameter_axes, block_dims)
    flat_dims = (*parameter.dims[:axis], parameter.dims[axis] * size, *parameter.dims[axis + 1 :])
    return n.b.slice_axis(n.b.reshape(broadcast, flat_dims), axis, 0, x.dims[axis])


def _reject_float_zero_point(n: OnnxNode) -> None:
    """Raise for a nonzero zero point of floats."""
    if n.get(2) is not None and n.constant(2, "the zero point of floats").astype("float32").any():
        n.unsupported("a nonzero zero point of floats")


@legalize(QuantizeLinear=28)
def quantize_linear(n: OnnxNode) -> Value:
    """Lower ``QuantizeLinear``: ``saturate(round(x / scale) + zero_point)``, rounded to nearest even.

    Scale and zero point are scalars, one per entry of an axis, or one per block. The element type of the
    result is that of the zero point, else ``output_dtype``, else ui8.
    """
    b, x, zero = n.b, n[0], n.get(2)
    element = "ui8" if zero is None else zero.element
    if zero is None and n.int("output_dtype", 0):
        element = element_of(n, n.int("output_dtype"))
    is_float = element in NARROW_FLOATS
    if element not in INTEGERS and element not in STORAGE_TYPES:
        n.unsupported(f"quantization to {element}")
    x = b.convert(x, _quotient_element(n, x, n[1]))
    scaled = b.binary("divide", x, _broadcast_parameter(n, convert(n, n[1], x.element), x))
    if is_float:
        _reject_float_zero_point(n)
        return convert_narrow(n, scaled, element)
    # Half-precision floats do not represent all zero points, nor the limits of 16-bit integers.
    scaled = b.unary("round_nearest_even", scaled if x.element == "f64" else b.convert(scaled, "f32"))
    if zero is not None:
        scaled = b.binary("add", scaled, _broadcast_parameter(n, convert(n, zero, scaled.element), x))
    return saturating_convert(n, scaled, element)


def _quotient_element(n: OnnxNode, x: Value, scale: Value) -> str:
    """Return the element type of the quotient: that of both operands, otherwise a wider one."""
    if n.int("precision", 0):
        element = element_of(n, n.int("precision"))
        if element not in FLOATS:
            n.unsupported(f"precision = {element}")
        return element
    if x.element == scale.element and x.element in FLOATS:
        return x.element
    return "f64" if scale.element in INTEGERS else "f32"


@legalize(DequantizeLinear=28)
def dequantize_linear(n: OnnxNode) -> Value:
    b, x, scale, zero = n.b, n[0], n[1], n.get(2)
    if x.element not in INTEGERS and x.element not in STORAGE_TYPES:
        n.unsupported(f"dequantization from {x.element}")
    element = element_of(n, n.int("output_dtype")) if n.int("output_dtype", 0) else scale.element
    # Half-precision floats do not represent all integers: the product is computed in f32 and rounded once.
    factor = _broadcast_parameter(n, convert(n, scale, "f32"), x)
    if x.element in NARROW_FLOATS:
        _reject_float_zero_point(n)
        return convert(n, b.binary("multiply", convert(n, x, "f32"), factor), element)
    wide = convert(n, x, "i32")
    if zero is not None:
        wide = b.binary("subtract", wide, _broadcast_parameter(n, convert(n, zero, "i32"), x))
    return convert(n, b.binary("multiply", b.convert(wide, "f32"), factor), element)


def _subtract_zero_point(n: OnnxNode, x: Value, zero: Value | None, axis: int) -> Value:
    """Return ``x`` in i32 minus its zero point, which is per tensor or per axis."""
    b, wide = n.b, n.b.convert(x, "i32")
    if zero is None:
        return wide
    zero = b.convert(zero, "i32")
    if zero.rank == 1 and zero.dims != (1,):
        return b.binary("subtract", wide, b.broadcast_in_dim(zero, [axis], wide.dims))
    if zero.rank > 1:
        return b.binary("subtract", wide, zero)
    return b.binary("subtract", wide, b.reshape(zero, ()))


@legalize(MatMulInteger=10, ConvInteger=10)
def integer_product(n: OnnxNode) -> Value:
    if n.op == "ConvInteger":
        return convolve(
            n, _subtract_zero_point(n, n[0], n.get(2), 1), _subtract_zero_point(n, n[1], n.get(3), 0)
        )
    x, y = n[0], n[1]
    return matrix_product(
        n,
        _subtract_zero_point(n, x, n.get(2), max(0, x.rank - 2)),
        _subtract_zero_point(n, y, n.get(3), y.rank - 1),
    )


@legalize(QLinearMatMul=21, QLinearConv=10)
def quantized_product(n: OnnxNode) -> Value:
    """Lower ``QLinearMatMul`` and ``QLinearConv``: the product or convolution of quantized operands.

    Sums are i32; they are scaled in f32, rounded to nearest even, and saturated to the element type of the
    result. The second operand may have one scale per channel.
    """
    b, x, y, zero = n.b, n[0], n[3], n[7]
    if any(n[i].dims not in ((), (1,)) for i in (1, 6)):
        n.unsupported("more than one scale of its first operand or its result")
    if n.op == "QLinearConv":
        total = convolve(n, _subtract_zero_point(n, x, n[2], 1), _subtract_zero_point(n, y, n[5], 0))
        if n.get(8) is not None:
            total = b.binary("add", total, b.broadcast_in_dim(n[8], [1], total.dims))
        axis = 1
    else:
        rows = _subtract_zero_point(n, x, n[2], max(0, x.rank - 2))
        total = matrix_product(n, rows, _subtract_zero_point(n, y, n[5], y.rank - 1))
        axis = total.rank - 1
    x_scale, y_scale, result_scale = (
        b.convert(_scale_vector(n, n[i]), "f32") for i in (1, 4, 6)
    )  # sums exceed the range of f16
    scale = b.binary("divide", b.binary("multiply", x_scale, y_scale), result_scale)
    scale = b.broadcast_in_dim(scale, [axis] if scale.rank else [], total.dims)
    scaled = b.unary("round_nearest_even", b.binary("multiply", b.convert(total, scale.element), scale))
    shifted = b.binary("add", scaled, b.broadcast(b.reshape(b.convert(zero, scale.element), ()), total.dims))
    return saturating_convert(n, shifted, zero.element)


def _scale_vector(n: OnnxNode, scale: Value) -> Value:
    """Return a scale as a scalar or vector."""
    if scale.rank > 1:
        n.unsupported("scales of more than one axis")
    return n.b.reshape(scale, ()) if scale.dims == (1,) else scale
