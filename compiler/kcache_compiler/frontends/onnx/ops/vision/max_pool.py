"""MaxPool with indices, and MaxUnpool."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import Builder, Window, padding
from kcache_compiler.frontends.onnx.emitter import FLOATS, Dims, Value, constant_value, i64_array
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize

_NO_INDEX = np.iinfo(np.int64).max


def max_pool_with_indices(n: OnnxNode, x: Value, window: Window) -> LegalizationResult:
    """Return the maxima, and the index of each in the flattened input: the first of equals."""
    b = n.b
    indices = b.reshape(b.iota("i64", (math.prod(x.dims),), 0), x.dims)
    value, index, new_value, new_index = (
        b.parameter(element, ()) for element in (x.element, "i64", x.element, "i64")
    )

    def combine() -> list[Value]:
        is_earlier = b.binary("and", b.compare("EQ", new_value, value), b.compare("LT", new_index, index))
        is_better = b.binary("or", b.compare("GT", new_value, value), is_earlier)
        if x.element in FLOATS:
            is_better = b.binary("or", is_better, b.compare("NE", new_value, new_value))
        return [b.select(is_better, new_value, value), b.select(is_better, new_index, index)]

    properties = (
        f"window_dimensions = {i64_array(window.sizes)}, window_strides = {i64_array(window.strides)}, "
        f"base_dilations = {i64_array([1] * x.rank)}, window_dilations = {i64_array(window.dilations)}, "
        f"padding = {padding(window.pads)}"
    )
    dims = window.output_dims(x.dims)
    initial = [b.identity_element("maximum", x.element), constant_value(np.asarray(_NO_INDEX, np.int64))]
    types = [(x.element, dims), ("i64", dims)]
    body = b.region([value, index, new_value, new_index], combine)
    y, index = b.emit_many("stablehlo.reduce_window", [x, indices, *initial], types, properties, [body])
    return [y, _column_major(b, index, x.dims) if n.int("storage_order", 0) else index]


def _column_major(b: Builder, indices: Value, dims: Dims) -> Value:
    """Return row-major indices in column-major order of the spatial dims."""
    spatial = dims[2:]
    remainder = b.scalar("remainder", indices, math.prod(spatial))
    total = b.binary("subtract", indices, remainder)
    for i in reversed(range(len(spatial))):
        coordinate = b.scalar("remainder", remainder, spatial[i])
        remainder = b.scalar("divide", remainder, spatial[i])
        total = b.binary("add", total, b.scalar("multiply", coordinate, math.prod(spatial[:i])))
    return total


@legalize(MaxUnpool=22)
def max_unpool(n: OnnxNode) -> Value:
    x, indices, b = n[0], n[1], n.b
    spatial, kernel = x.rank - 2, n.ints("kernel_shape")
    strides, pads = n.ints("strides", [1] * spatial), n.ints("pads", [0] * (2 * spatial))
    if spatial < 1 or len(kernel) != spatial or len(strides) != spatial or len(pads) != 2 * spatial:
        n.invalid(f"kernel_shape, strides or pads do not fit an input of shape {list(x.dims)}")
    if indices.dims != x.dims:
        n.invalid(f"its indices have shape {list(indices.dims)}, but its input {list(x.dims)}")
    total_pads = [low + high for low, high in zip(pads[:spatial], pads[spatial:], strict=True)]
    sizes = zip(x.dims[2:], strides, total_pads, kernel, strict=True)
    dims = (*x.dims[:2], *((size - 1) * stride - pad + window for size, stride, pad, window in sizes))
    if min(dims) < 0:
        n.invalid(f"pads remove more elements than the shape {list(x.dims)} has")
    target = dims if n.get(2) is None else tuple(n.numbers(2, "output_shape"))
    if target != dims and any(pads):
        n.unsupported("both pads and an output_shape")
    if len(target) != x.rank or any(size < dim for size, dim in zip(target, dims, strict=True)):
        n.unsupported(f"an output_shape {list(target)} that is smaller than {list(dims)}")
    y = b.reshape(_scatter_to_zeros(b, x, indices, math.prod(dims)), dims)
    high = [size - dim for size, dim in zip(target, dims, strict=True)]
    return b.pad(y, b.full(0, x.element), [0] * x.rank, high)


def _scatter_to_zeros(b: Builder, x: Value, indices: Value, count: int) -> Value:
    """Scatter elements to their indices in a vector of zeros."""
    zeros = b.full(0, x.element, (count,))
    total = math.prod(x.dims)
    if not total or not count:
        return zeros
    element, update = b.parameter(x.element, ()), b.parameter(x.element, ())
    body = b.region([element, update], lambda: [update])
    properties = (
        "indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<"
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
        "unique_indices = false"
    )
    operands = [zeros, b.reshape(indices, (total, 1)), b.reshape(x, (total,))]
    return b.emit_many("stablehlo.scatter", operands, [(x.element, (count,))], properties, [body])[0]
