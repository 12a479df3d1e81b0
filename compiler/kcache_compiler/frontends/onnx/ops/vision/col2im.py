"""Col2Im: sums blocks of columns to images."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.emitter import Array, Value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.indexing import take_constant


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
