"""Maxima of windows with the places that they come from, and the way back."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import Build, Window, padding
from kcache_compiler.frontends.onnx.emitter import FLOATS, Dims, Value, i64s, known
from kcache_compiler.frontends.onnx.site import Results, Site, legalizes

_NOWHERE = np.iinfo(np.int64).max


def pooled_with_places(n: Site, x: Value, window: Window) -> Results:
    """Return maxima, and where each is in the flattened input: the first of equal ones."""
    b = n.b
    places = b.reshape(b.iota("i64", (math.prod(x.dims),), 0), x.dims)
    old, where, new, here = (b.parameter(element, ()) for element in (x.element, "i64", x.element, "i64"))

    def better() -> list[Value]:
        earlier = b.binary("and", b.compare("EQ", new, old), b.compare("LT", here, where))
        taken = b.binary("or", b.compare("GT", new, old), earlier)
        if x.element in FLOATS:
            taken = b.binary("or", taken, b.compare("NE", new, new))
        return [b.select(taken, new, old), b.select(taken, here, where)]

    properties = (
        f"window_dimensions = {i64s(window.sizes)}, window_strides = {i64s(window.strides)}, "
        f"base_dilations = {i64s([1] * x.rank)}, window_dilations = {i64s(window.dilations)}, "
        f"padding = {padding(window.pads)}"
    )
    dims = window.results(x.dims)
    starts = [b.neutral("maximum", x.element), known(np.asarray(_NOWHERE, np.int64))]
    kinds = [(x.element, dims), ("i64", dims)]
    body = b.region([old, where, new, here], better)
    y, where = b.emit_many("stablehlo.reduce_window", [x, places, *starts], kinds, properties, [body])
    return [y, _by_columns(b, where, x.dims) if n.int("storage_order", 0) else where]


def _by_columns(b: Build, places: Value, dims: Dims) -> Value:
    """Return row-major indices as those in which the spatial dims count from the first."""
    spatial = dims[2:]
    rest = b.scalar("remainder", places, math.prod(spatial))
    total = b.binary("subtract", places, rest)
    for i in reversed(range(len(spatial))):
        at = b.scalar("remainder", rest, spatial[i])
        rest = b.scalar("divide", rest, spatial[i])
        total = b.binary("add", total, b.scalar("multiply", at, math.prod(spatial[:i])))
    return total


@legalizes(MaxUnpool=22)
def max_unpool(n: Site) -> Value:
    x, places, b = n[0], n[1], n.b
    spatial, kernel = x.rank - 2, n.ints("kernel_shape")
    strides, pads = n.ints("strides", [1] * spatial), n.ints("pads", [0] * (2 * spatial))
    if spatial < 1 or len(kernel) != spatial or len(strides) != spatial or len(pads) != 2 * spatial:
        n.invalid(f"kernel_shape, strides or pads do not fit an input of shape {list(x.dims)}")
    if places.dims != x.dims:
        n.invalid(f"its indices have shape {list(places.dims)}, and its input {list(x.dims)}")
    cut = [low + high for low, high in zip(pads[:spatial], pads[spatial:], strict=True)]
    sizes = zip(x.dims[2:], strides, cut, kernel, strict=True)
    dims = (*x.dims[:2], *((size - 1) * stride - less + window for size, stride, less, window in sizes))
    if min(dims) < 0:
        n.invalid(f"pads cut more than there is of shape {list(x.dims)}")
    wanted = dims if n.get(2) is None else tuple(n.numbers(2, "output_shape"))
    if wanted != dims and any(pads):
        n.unsupported("both pads and an output_shape")
    if len(wanted) != x.rank or any(want < have for want, have in zip(wanted, dims, strict=True)):
        n.unsupported(f"an output_shape {list(wanted)} that is smaller than {list(dims)}")
    y = b.reshape(_put(b, x, places, math.prod(dims)), dims)
    high = [want - have for want, have in zip(wanted, dims, strict=True)]
    return b.pad(y, b.full(0, x.element), [0] * x.rank, high)


def _put(b: Build, x: Value, places: Value, count: int) -> Value:
    """Put elements at their places among zeros."""
    zeros = b.full(0, x.element, (count,))
    total = math.prod(x.dims)
    if not total or not count:
        return zeros
    old, new = b.parameter(x.element, ()), b.parameter(x.element, ())
    body = b.region([old, new], lambda: [new])
    properties = (
        "indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<"
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
        "unique_indices = false"
    )
    operands = [zeros, b.reshape(places, (total, 1)), b.reshape(x, (total,))]
    return b.emit_many("stablehlo.scatter", operands, [(x.element, (count,))], properties, [body])[0]
