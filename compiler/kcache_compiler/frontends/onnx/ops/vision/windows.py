"""Operators over windows: convolutions, transposed convolutions, pooling with and without indices, Col2Im."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.builder import Builder, Window, padding
from kcache_compiler.frontends.onnx.emitter import (
    FLOATS,
    HALF_PRECISION,
    Array,
    Dims,
    Value,
    constant_value,
    i64_array,
)
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.indexing import take_constant

Pads = list[tuple[int, int]]
#: Operators whose ``auto_pad`` formula may be negative, where other runtimes crop, do not pad or fail.
_POOLING = ("MaxPool", "AveragePool", "LpPool")


@legalize(Conv=22)
def conv(n: OnnxNode) -> Value:
    y = convolve(n, n[0], n[1])
    return _with_bias(n, y, n.get(2))


def _with_bias(n: OnnxNode, y: Value, bias: Value | None) -> Value:
    return y if bias is None else n.b.binary("add", y, n.b.broadcast_in_dim(bias, [1], y.dims))


def convolve(n: OnnxNode, x: Value, w: Value) -> Value:
    """Convolve with the attributes of ``Conv``."""
    spatial = _spatial_rank(n, x, w)
    strides, dilations = (
        _spatial_attribute(n, "strides", spatial),
        _spatial_attribute(n, "dilations", spatial),
    )
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(w.dims[2:], dilations, strict=True)]
    pads = _pads(n, x.dims[2:], kernel, strides)
    return _convolve(n.b, x, w, strides, pads, [1] * spatial, dilations, n.int("group", 1))


def _spatial_rank(n: OnnxNode, x: Value, w: Value) -> int:
    if x.rank < 3 or w.rank != x.rank:
        n.invalid(f"input and weight have shapes {list(x.dims)} and {list(w.dims)}")
    if x.element != w.element:
        n.invalid(f"input and weight have types {x.type} and {w.type}")
    return x.rank - 2


def _spatial_attribute(n: OnnxNode, name: str, spatial: int) -> list[int]:
    values = n.ints(name, [1] * spatial)
    if len(values) != spatial or min(values) < 1:
        n.invalid(f"{name} = {values} does not fit {spatial} spatial dims")
    return values


def _pads(n: OnnxNode, dims: Dims, kernel: Sequence[int], strides: Sequence[int]) -> Pads:
    """Return the explicit pads, or those of ``auto_pad`` at these sizes."""
    auto = n.text("auto_pad", "NOTSET")
    spatial = len(dims)
    if auto == "VALID":
        return [(0, 0)] * spatial
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads: Pads = []
        for size, window, stride in zip(dims, kernel, strides, strict=True):
            needed = (-(-size // stride) - 1) * stride + window - size
            if needed < 0 and n.op in _POOLING:
                n.unsupported(
                    f"auto_pad {auto} at size {size} with windows of {window} and stride {stride}: the "
                    f"standard's formula gives the negative pad {needed}; use explicit pads"
                )
            total = max(0, needed)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return pads
    values = n.ints("pads", [0] * (2 * spatial))
    if len(values) != 2 * spatial:
        n.invalid(f"pads = {values} does not fit {spatial} spatial dims")
    return list(zip(values[:spatial], values[spatial:], strict=True))


def _convolve(
    b: Builder,
    x: Value,
    w: Value,
    strides: Sequence[int],
    pads: Pads,
    spread: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Value:
    spatial = x.rank - 2
    wide = tuple((size - 1) * s + 1 if size else 0 for size, s in zip(x.dims[2:], spread, strict=True))
    dims = Window(w.dims[2:], strides, dilations, pads).output_dims(wide)
    axes = ", ".join(map(str, range(spatial)))
    properties = (
        "batch_group_count = 1 : i64, "
        f"dimension_numbers = #stablehlo.conv<[b, f, {axes}]x[o, i, {axes}]->[b, f, {axes}]>, "
        f"feature_group_count = {groups} : i64, lhs_dilation = {i64_array(spread)}, "
        f"padding = {padding(pads)}, rhs_dilation = {i64_array(dilations)}, window_strides = "
        f"{i64_array(strides)}"
    )
    shape = (x.dims[0], w.dims[0], *dims)
    total = "f32" if x.element in HALF_PRECISION else x.element  # rounded once
    return b.convert(b.emit("stablehlo.convolution", [x, w], total, shape, properties), x.element)


@legalize(ConvTranspose=22)
def conv_transpose(n: OnnxNode) -> Value:
    """Lower ``ConvTranspose`` to a convolution with a dilated input and a reversed weight.

    The weight has shape (input channels, output channels / groups, ...).
    """
    x, w = n[0], n[1]
    spatial, groups, b = _spatial_rank(n, x, w), n.int("group", 1), n.b
    strides, dilations = (
        _spatial_attribute(n, "strides", spatial),
        _spatial_attribute(n, "dilations", spatial),
    )
    extra_pads = n.ints("output_padding", [0] * spatial)
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(w.dims[2:], dilations, strict=True)]
    full_dims = [
        stride * (size - 1) + extra + window
        for size, stride, extra, window in zip(x.dims[2:], strides, extra_pads, kernel, strict=True)
    ]
    crop = _transposed_crop(n, x.dims[2:], strides, full_dims)
    pads = [
        (window - 1 - low, window - 1 - high + extra)
        for window, (low, high), extra in zip(kernel, crop, extra_pads, strict=True)
    ]
    # The weight is (in, out / groups, ...): flip it, and exchange in and out within each group.
    w = b.reverse(w, range(2, w.rank))
    group_inputs, group_outputs = w.dims[0] // groups, w.dims[1]
    if group_inputs * groups != w.dims[0]:
        n.invalid(f"{groups} groups do not divide a weight of shape {list(w.dims)}")
    w = b.reshape(w, (groups, group_inputs, group_outputs, *w.dims[2:]))
    w = b.transpose(w, [0, 2, 1, *range(3, w.rank)])
    w = b.reshape(w, (groups * group_outputs, group_inputs, *w.dims[3:]))
    y = _convolve(b, x, w, [1] * spatial, pads, strides, dilations, groups)
    return _with_bias(n, y, n.get(2))


def _transposed_crop(n: OnnxNode, dims: Dims, strides: Sequence[int], full_dims: Sequence[int]) -> Pads:
    """Return the (low, high) elements to crop from the full result."""
    auto = n.text("auto_pad", "NOTSET")
    if n.has("output_shape"):
        target = n.ints("output_shape")[-len(dims) :]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        target = [size * stride for size, stride in zip(dims, strides, strict=True)]
    else:
        return _pads(n, dims, [1] * len(dims), strides)
    crop: Pads = []
    for full, size in zip(full_dims, target, strict=True):
        total = full - size
        small, large = total // 2, total - total // 2
        crop.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return crop


@legalize(MaxPool=22, AveragePool=22, LpPool=22)
def pool(n: OnnxNode) -> LegalizationResult:
    """Lower ``MaxPool``, ``AveragePool`` and ``LpPool`` over the spatial axes.

    An average divides by the number of elements that count, which differs at edges; ``MaxPool`` also returns
    the indices of the maxima if they are used.
    """
    x, b = n[0], n.b
    window, counted_pads = _pool_window(n, x)
    if n.op == "MaxPool":
        if n.has_output(1):
            return max_pool_with_indices(n, x, window)
        return b.window("maximum", x, window)
    if n.op == "LpPool":
        p = n.int("p", 2)
        total = b.window("add", b.scalar("power", b.unary("abs", x), p), window)
        return b.scalar("power", total, 1 / p)
    total = b.window("add", x, window)
    if not any(map(sum, window.pads)):
        return b.scalar("divide", total, math.prod(window.sizes))
    # The count differs at the edges: sum ones over the elements that count.
    ones = b.full(1, x.element, x.dims[2:])
    low, high = zip(*counted_pads, strict=True)
    ones = b.pad(ones, b.full(1, x.element), low, high)
    other_pads = [(p - c, q - d) for (p, q), (c, d) in zip(window.pads[2:], counted_pads, strict=True)]
    count_window = Window(window.sizes[2:], window.strides[2:], window.dilations[2:], other_pads)
    return b.binary("divide", total, b.window("add", ones, count_window))


def _pool_window(n: OnnxNode, x: Value) -> tuple[Window, Pads]:
    """Return the windows, and the pads that an average counts."""
    spatial = x.rank - 2
    sizes = n.ints("kernel_shape")
    if spatial < 1 or len(sizes) != spatial:
        n.invalid(f"kernel_shape = {sizes} does not fit an input of shape {list(x.dims)}")
    strides, dilations = (
        _spatial_attribute(n, "strides", spatial),
        _spatial_attribute(n, "dilations", spatial),
    )
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    pads = _pads(n, x.dims[2:], kernel, strides)
    counted_pads = list(pads) if n.int("count_include_pad", 0) else [(0, 0)] * spatial
    if n.int("ceil_mode", 0):
        pads = [_ceil_pads(*geometry) for geometry in zip(x.dims[2:], kernel, strides, pads, strict=True)]
    leading_ones = [1, 1]
    return Window(
        leading_ones + sizes, leading_ones + strides, leading_ones + dilations, [(0, 0), (0, 0), *pads]
    ), counted_pads


def _ceil_pads(size: int, window: int, stride: int, pad: tuple[int, int]) -> tuple[int, int]:
    """Extend the high pad so that a last window that starts inside the input fits."""
    low, high = pad
    count = -(-(size + low + high - window) // stride) + 1
    if (count - 1) * stride >= size + low:
        count -= 1
    return low, max(high, (count - 1) * stride + window - size - low)


@legalize(GlobalAveragePool=22, GlobalMaxPool=22, GlobalLpPool=22)
def global_pool(n: OnnxNode) -> Value:
    x, b = n[0], n.b
    axes = list(range(2, x.rank))
    if n.op == "GlobalAveragePool":
        return b.mean(x, axes, keep=True)
    if n.op == "GlobalMaxPool":
        return b.reduce("maximum", x, axes, keep=True)
    p = n.int("p", 2)
    total = b.reduce("add", b.scalar("power", b.unary("abs", x), p), axes, keep=True)
    return b.scalar("power", total, 1 / p)


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
    """Lower ``MaxUnpool``: zeros with the elements of the input at the flat indices of its maxima.

    ``output_shape`` must be constant.
    """
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


@legalize(Col2Im=18)
def col2im(n: OnnxNode) -> Value:
    """Sum the overlapping blocks, axis by axis: each element sums those that cover it."""
    b, x = n.b, n[0]
    image, block = n.numbers(1, "image_shape"), n.numbers(2, "block_shape")
    spatial = len(image)
    ones = [1] * spatial
    strides, dilations = n.ints("strides", ones), n.ints("dilations", ones)
    pads = n.ints("pads", [0] * (2 * spatial))
    lengths = {len(block), len(strides), len(dilations), len(pads) // 2}
    if not spatial or lengths != {spatial} or min(*image, *block, *strides, *dilations) < 1 or min(pads) < 0:
        n.invalid(f"image_shape {image}, block_shape {block} and its attributes do not match")
    if x.element == "i1":
        n.unsupported("blocks of bools")
    counts = [
        (size + pads[i] + pads[spatial + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i, size in enumerate(image)
    ]
    if x.rank != 3 or x.dims[1] % math.prod(block) or min(counts) < 1 or x.dims[2] != math.prod(counts):
        n.invalid(f"an input of shape {list(x.dims)} does not have {counts} blocks of {block}")
    channels = x.dims[1] // math.prod(block)
    dims = (x.dims[0], channels, *image)
    if 0 in dims:
        return b.full(0, x.element, dims)
    x = b.reshape(x, (x.dims[0] * channels, *block, *counts))
    x = b.transpose(x, [0, *(axis for i in range(spatial) for axis in (1 + i, 1 + spatial + i))])
    lead = x.dims[0]
    for i in range(spatial):
        check("bytes of constants", 8 * image[i], b.limits.constant_bytes)
        sources = _sources(image[i], (block[i], counts[i]), strides[i], dilations[i], pads[i])
        check("bytes of constants", sources.nbytes, b.limits.constant_bytes)
        rest = math.prod(x.dims) // (lead * block[i] * counts[i])
        x = b.reshape(x, (lead, block[i] * counts[i], rest))
        x = b.pad(x, b.full(0, x.element), [0, 0, 0], [0, 1, 0])
        x = b.reshape(take_constant(n, x, 1, sources.reshape(-1)), (lead, *sources.shape, rest))
        x = b.reduce("add", x, [2])
        lead *= image[i]
    return b.reshape(x, dims)


def _sources(size: int, shape: tuple[int, int], stride: int, dilation: int, pad: int) -> Array:
    """Return the summands in (block, count) of each index of an axis; one past the last is a zero."""
    block, count = shape
    offset, block_start = np.divmod(np.arange(block * count), count)
    positions = block_start * stride + offset * dilation - pad
    valid = np.flatnonzero((positions >= 0) & (positions < size))
    valid = valid[np.argsort(positions[valid], kind="stable")]
    at = positions[valid]
    covered = np.bincount(at, minlength=size)
    number = np.arange(len(valid)) - (np.cumsum(covered) - covered)[at]
    sources = np.full((size, max(1, covered.max())), block * count, np.int64)
    sources[at, number] = valid
    return sources
