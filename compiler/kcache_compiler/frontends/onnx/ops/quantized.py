"""Quantized arithmetic, in the integers that hold it."""

from __future__ import annotations

from kcache_compiler.frontends.onnx.emitter import CARRIERS, FLOATS, INTEGERS, Value
from kcache_compiler.frontends.onnx.narrow_types import NARROW_FLOATS, converted
from kcache_compiler.frontends.onnx.ops.contractions import product
from kcache_compiler.frontends.onnx.ops.elementwise import convert, element_of, saturated
from kcache_compiler.frontends.onnx.ops.vision.convolution import convolved
from kcache_compiler.frontends.onnx.site import Site, legalizes


def _like(n: Site, parameter: Value, x: Value) -> Value:
    """Show a scale or zero point, one for all, or one for each index or block of an axis, as ``x``."""
    b = n.b
    if n.int("block_size", 0):
        return _blocks(n, parameter, x)
    if parameter.rank == 0 or parameter.dims == (1,):
        return b.broadcast(b.reshape(parameter, ()), x.dims)
    return b.broadcast_in_dim(parameter, [n.axis(n.int("axis", 1), x.rank)], x.dims)


def _blocks(n: Site, parameter: Value, x: Value) -> Value:
    """Show one parameter for ``block_size`` indices of an axis, the last perhaps for fewer."""
    size, axis = n.int("block_size"), n.axis(n.int("axis", 1), x.rank)
    if size < 0 or parameter.rank != x.rank or parameter.dims[axis] != -(-x.dims[axis] // size):
        n.invalid(f"scales of shape {list(parameter.dims)} in blocks of {size} for {list(x.dims)}")
    wide = (*parameter.dims[: axis + 1], size, *parameter.dims[axis + 1 :])
    kept = [i for i in range(x.rank + 1) if i != axis + 1]
    spread = n.b.broadcast_in_dim(parameter, kept, wide)
    long = (*parameter.dims[:axis], parameter.dims[axis] * size, *parameter.dims[axis + 1 :])
    return n.b.along(n.b.reshape(spread, long), axis, 0, x.dims[axis])


def _no_zero_point(n: Site) -> None:
    """Raise where the zero point of floats is another number than zero."""
    if n.get(2) is not None and n.known(2, "the zero point of floats").astype("float32").any():
        n.unsupported("a zero point of floats that is not zero")


@legalizes(QuantizeLinear=28)
def quantize_linear(n: Site) -> Value:
    b, x, zero = n.b, n[0], n.get(2)
    element = "ui8" if zero is None else zero.element
    if zero is None and n.int("output_dtype", 0):
        element = element_of(n, n.int("output_dtype"))
    floats = element in NARROW_FLOATS
    if element not in INTEGERS and element not in CARRIERS:
        n.unsupported(f"quantization to {element}")
    x = b.convert(x, _precision(n, x, n[1]))
    scaled = b.binary("divide", x, _like(n, convert(n, n[1], x.element), x))
    if floats:
        _no_zero_point(n)
        return converted(n, scaled, element)
    # Halves have not all integers that a zero point is, nor the ends of 16 bits.
    scaled = b.unary("round_nearest_even", scaled if x.element == "f64" else b.convert(scaled, "f32"))
    if zero is not None:
        scaled = b.binary("add", scaled, _like(n, convert(n, zero, scaled.element), x))
    return saturated(n, scaled, element)


def _precision(n: Site, x: Value, scale: Value) -> str:
    """The element of the quotient: that of both, else a wider one, as in the standard's reference."""
    if n.int("precision", 0):
        stated = element_of(n, n.int("precision"))
        if stated not in FLOATS:
            n.unsupported(f"precision = {stated}")
        return stated
    if x.element == scale.element and x.element in FLOATS:
        return x.element
    return "f64" if scale.element in INTEGERS else "f32"


@legalizes(DequantizeLinear=28)
def dequantize_linear(n: Site) -> Value:
    b, x, scale, zero = n.b, n[0], n[1], n.get(2)
    if x.element not in INTEGERS and x.element not in CARRIERS:
        n.unsupported(f"dequantization from {x.element}")
    element = element_of(n, n.int("output_dtype")) if n.int("output_dtype", 0) else scale.element
    # Halves do not have all integers: the product is made in f32, and rounded once.
    factor = _like(n, convert(n, scale, "f32"), x)
    if x.element in NARROW_FLOATS:
        _no_zero_point(n)
        return convert(n, b.binary("multiply", convert(n, x, "f32"), factor), element)
    wide = convert(n, x, "i32")
    if zero is not None:
        wide = b.binary("subtract", wide, _like(n, convert(n, zero, "i32"), x))
    return convert(n, b.binary("multiply", b.convert(wide, "f32"), factor), element)


def _less_zero(n: Site, x: Value, zero: Value | None, axis: int) -> Value:
    """Return ``x`` in i32 less its zero point: one for all, or one for each index of an axis."""
    b, wide = n.b, n.b.convert(x, "i32")
    if zero is None:
        return wide
    zero = b.convert(zero, "i32")
    if zero.rank == 1 and zero.dims != (1,):
        return b.binary("subtract", wide, b.broadcast_in_dim(zero, [axis], wide.dims))
    if zero.rank > 1:
        return b.binary("subtract", wide, zero)
    return b.binary("subtract", wide, b.reshape(zero, ()))


@legalizes(MatMulInteger=10, ConvInteger=10)
def integer_product(n: Site) -> Value:
    if n.op == "ConvInteger":
        return convolved(n, _less_zero(n, n[0], n.get(2), 1), _less_zero(n, n[1], n.get(3), 0))
    x, y = n[0], n[1]
    return product(n, _less_zero(n, x, n.get(2), max(0, x.rank - 2)), _less_zero(n, y, n.get(3), y.rank - 1))


@legalizes(QLinearMatMul=21, QLinearConv=10)
def quantized_product(n: Site) -> Value:
    b, x, y, zero = n.b, n[0], n[3], n[7]
    if any(n[i].dims not in ((), (1,)) for i in (1, 6)):
        n.unsupported("more than one scale of its first operand or its result")
    if n.op == "QLinearConv":
        total = convolved(n, _less_zero(n, x, n[2], 1), _less_zero(n, y, n[5], 0))
        if n.get(8) is not None:
            total = b.binary("add", total, b.broadcast_in_dim(n[8], [1], total.dims))
        axis = 1
    else:
        rows = _less_zero(n, x, n[2], max(0, x.rank - 2))
        total = product(n, rows, _less_zero(n, y, n[5], y.rank - 1))
        axis = total.rank - 1
    first, second, last = (b.convert(_flat(n, n[i]), "f32") for i in (1, 4, 6))  # sums leave the range of f16
    scale = b.binary("divide", b.binary("multiply", first, second), last)
    scale = b.broadcast_in_dim(scale, [axis] if scale.rank else [], total.dims)
    scaled = b.unary("round_nearest_even", b.binary("multiply", b.convert(total, scale.element), scale))
    shifted = b.binary("add", scaled, b.broadcast(b.reshape(b.convert(zero, scale.element), ()), total.dims))
    return saturated(n, shifted, zero.element)


def _flat(n: Site, scale: Value) -> Value:
    if scale.rank > 1:
        n.unsupported("scales of more than one axis")
    return n.b.reshape(scale, ()) if scale.dims == (1,) else scale
