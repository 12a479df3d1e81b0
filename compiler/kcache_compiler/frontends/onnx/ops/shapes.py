"""Operators that move elements without computing: reshapes, slices, concatenations, pads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.builder import broadcast_dims
from kcache_compiler.frontends.onnx.emitter import Value, constant_value
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize

#: Largest number of elements of an axis with which it is padded.
_MAX_PADS = 1 << 20


@legalize(Identity=25, OptionalGetElement=28)
def identity(n: OnnxNode) -> Value:
    return n[0]


@legalize(Dropout=22)
def dropout(n: OnnxNode) -> LegalizationResult:
    """Return the input unchanged, with a mask of ones, in inference."""
    training = n.get(2)
    if training is not None and n.constant(2, "training_mode").any():
        ratio = n.get(1)
        if ratio is None or n.constant(1, "ratio").any():
            n.unsupported("it draws random numbers in training mode")
    return [n[0], n.b.full(True, "i1" if n.version >= 10 else n[0].element, n[0].dims)]


@legalize(Reshape=25)
def reshape(n: OnnxNode) -> Value:
    """Lower ``Reshape`` to a constant shape.

    A 0 copies the dimension of the input unless ``allowzero``; one -1 is inferred.
    """
    x, shape = n[0], n.ints("shape") if n.has("shape") else n.numbers(1, "shape")
    dims = list(shape)
    if not n.int("allowzero", 0):
        for axis, size in enumerate(dims):
            if size == 0:
                if axis >= x.rank:
                    n.invalid(f"shape {shape} copies dim {axis} of an input of rank {x.rank}")
                dims[axis] = x.dims[axis]
    if dims.count(-1) > 1 or min(dims, default=0) < -1:
        n.invalid(f"shape {shape} is invalid")
    if -1 in dims:
        known_elements = -math.prod(dims)
        if known_elements == 0 or math.prod(x.dims) % known_elements:
            n.invalid(f"an input of shape {list(x.dims)} does not reshape to {shape}")
        dims[dims.index(-1)] = math.prod(x.dims) // known_elements
    return n.b.reshape(x, tuple(dims))


@legalize(Flatten=25)
def flatten(n: OnnxNode) -> Value:
    x, axis = n[0], n.int("axis", 1)
    if not -x.rank <= axis <= x.rank:
        n.invalid(f"axis {axis} is out of range for rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return n.b.reshape(x, (math.prod(x.dims[:axis]), math.prod(x.dims[axis:])))


@legalize(Squeeze=25)
def squeeze(n: OnnxNode) -> Value:
    x = n[0]
    axes = n.axes(x.rank)
    if axes is None:
        axes = [axis for axis, size in enumerate(x.dims) if size == 1]
    for axis in axes:
        if x.dims[axis] != 1:
            n.invalid(f"axis {axis} of shape {list(x.dims)} does not have the size 1")
    return n.b.reshape(x, tuple(d for i, d in enumerate(x.dims) if i not in axes))


@legalize(Unsqueeze=25)
def unsqueeze(n: OnnxNode) -> Value:
    x = n[0]
    values = n.ints("axes") if n.has("axes") else n.numbers(1, "axes")
    axes = n.axes(x.rank + len(values)) or []
    dims = iter(x.dims)
    return n.b.reshape(x, tuple(1 if i in axes else next(dims) for i in range(x.rank + len(axes))))


@legalize(Transpose=25)
def transpose(n: OnnxNode) -> Value:
    x = n[0]
    order = n.ints("perm", range(x.rank)[::-1])
    if sorted(order) != list(range(x.rank)):
        n.invalid(f"perm = {order} is not a permutation of rank {x.rank}")
    return n.b.transpose(x, order)


@legalize(Concat=13)
def concat(n: OnnxNode) -> Value:
    parts = n.all()
    return n.b.concatenate(parts, n.axis(n.int("axis", 1), n[0].rank))


@legalize(Split=18)
def split(n: OnnxNode) -> LegalizationResult:
    """Lower ``Split``: slices of an axis, by constant sizes or into ``num_outputs`` parts.

    Parts have equal sizes except that the last may be smaller.
    """
    x = n[0]
    axis = n.axis(n.int("axis", 0), x.rank)
    size, count = x.dims[axis], n.int("num_outputs", len(n.outputs))
    if count != len(n.outputs):
        n.invalid(f"num_outputs = {count} does not match {len(n.outputs)} outputs")
    if n.has("split"):
        part_sizes = n.ints("split")
    elif n.get(1) is not None:
        part_sizes = n.numbers(1, "split")
    else:
        part_size = -(-size // count)
        part_sizes = [max(0, min(part_size, size - i * part_size)) for i in range(count)]
    if sum(part_sizes) != size or min(part_sizes, default=0) < 0 or len(part_sizes) < len(n.outputs):
        n.invalid(f"parts {part_sizes} do not add up to axis {axis} of shape {list(x.dims)}")
    results: list[Value] = []
    start = 0
    for part_size in part_sizes:
        results.append(n.b.slice_axis(x, axis, start, start + part_size))
        start += part_size
    return results


@legalize(Slice=13)
def slice_(n: OnnxNode) -> Value:
    x = n[0]
    if n.has("starts"):
        starts, stops = n.ints("starts"), n.ints("ends")
        axes, steps = n.ints("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, stops = n.numbers(1, "starts"), n.numbers(2, "ends")
        axes = list(range(len(starts))) if n.get(3) is None else n.numbers(3, "axes")
        steps = [1] * len(starts) if n.get(4) is None else n.numbers(4, "steps")
    if not len(starts) == len(stops) == len(axes) == len(steps) or 0 in steps:
        n.invalid(f"starts {starts}, ends {stops}, axes {axes} and steps {steps} do not match")
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        x = _slice_one_axis(n, x, n.axis(axis, x.rank), start, stop, step)
    return x


def _slice_one_axis(n: OnnxNode, x: Value, axis: int, start: int, stop: int, step: int) -> Value:
    size = x.dims[axis]
    if step < 0:
        start = max(start, -size)  # unlike in Python, an earlier start is the first element
    indices = range(size)[slice(start, stop, step)]
    if step > 0:
        return n.b.slice_axis(x, axis, indices.start, max(indices.start, indices.stop), step)
    reversed_x = n.b.reverse(x, [axis])
    first = size - 1 - indices.start
    return n.b.slice_axis(reversed_x, axis, first, max(first, size - 1 - indices.stop), -step)


@legalize(Expand=13)
def expand(n: OnnxNode) -> Value:
    return n.b.broadcast(n[0], broadcast_dims(n[0].dims, tuple(n.numbers(1, "shape"))))


@legalize(Tile=13)
def tile(n: OnnxNode) -> Value:
    x, repeats = n[0], n.numbers(1, "repeats")
    if len(repeats) != x.rank or min(repeats, default=0) < 0:
        n.invalid(f"repeats {repeats} do not fit shape {list(x.dims)}")
    tiled_dims = tuple(size for pair in zip(repeats, x.dims, strict=True) for size in pair)
    wide = n.b.broadcast_in_dim(x, range(1, 2 * x.rank, 2), tiled_dims)
    return n.b.reshape(wide, tuple(r * d for r, d in zip(repeats, x.dims, strict=True)))


@legalize(Pad=25)
def pad(n: OnnxNode) -> Value:
    """Lower ``Pad`` by constant counts, which may be negative.

    Added elements are a constant, or elements of the input in the modes ``reflect``, ``edge`` and ``wrap``.
    """
    x = n[0]
    counts = n.ints("pads") if n.has("pads") else n.numbers(1, "pads")
    axes = range(x.rank)
    if n.get(3) is not None:
        axes = [n.axis(axis, x.rank) for axis in n.numbers(3, "axes")]
    if len(counts) != 2 * len(axes):
        n.invalid(f"pads {counts} do not fit {len(axes)} axes")
    low, high = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        low[axis], high[axis] = counts[i], counts[len(axes) + i]
    mode = n.text("mode", "constant")
    if mode == "constant":
        value = n.get(2)
        scalar = n.b.full(n.float("value", 0.0), x.element) if value is None else n.b.reshape(value, ())
        return n.b.pad(x, scalar, low, high)
    if mode not in ("reflect", "edge", "wrap"):
        n.invalid(f"mode {mode!r} does not exist")
    for axis in range(x.rank):
        x = _pad_from_input(n, x, axis, low[axis], high[axis], mode)
    return x


def _pad_from_input(n: OnnxNode, x: Value, axis: int, low: int, high: int, mode: str) -> Value:
    """Pad one axis with elements of the input; negative widths remove elements."""
    size = x.dims[axis]
    if low > 0 or high > 0:
        if not size:
            n.invalid(f"axis {axis} has no elements to pad with")
        check("elements to pad with", max(0, low) + max(0, high), _MAX_PADS)
        before = _source_runs(range(-low, 0), size, mode)
        after = _source_runs(range(size, size + high), size, mode)
        parts = (
            [_emit_run(n, x, axis, run) for run in before]
            + [x]
            + [_emit_run(n, x, axis, run) for run in after]
        )
        x = n.b.concatenate(parts, axis)
    return n.b.slice_axis(x, axis, max(0, -low), x.dims[axis] - max(0, -high))


def _source_runs(positions: Sequence[int], size: int, mode: str) -> list[list[int]]:
    """Return the source index of each position, split into ascending, descending or constant runs."""
    runs: list[list[int]] = []
    for position in positions:
        if mode == "wrap":
            source = position % size
        elif mode == "edge":
            source = min(max(position, 0), size - 1)
        else:
            period = max(1, 2 * (size - 1))
            source = position % period
            source = source if source < size else period - source
        last = runs[-1] if runs else []
        step = source - last[-1] if last else 0
        if last and abs(step) <= 1 and (len(last) == 1 or step == last[1] - last[0]):
            last.append(source)
        else:
            runs.append([source])
    return runs


def _emit_run(n: OnnxNode, x: Value, axis: int, run: list[int]) -> Value:
    """Emit the elements of one run."""
    entries = n.b.slice_axis(x, axis, min(run), max(run) + 1)
    if len(run) > 1 and run[0] == run[1]:
        dims = tuple(len(run) if i == axis else d for i, d in enumerate(x.dims))
        return n.b.broadcast(entries, dims)
    return n.b.reverse(entries, [axis]) if run[0] > run[-1] else entries


@legalize(DepthToSpace=28, SpaceToDepth=28)
def depth_space(n: OnnxNode) -> Value:
    """Lower ``DepthToSpace`` and ``SpaceToDepth`` of (batch, channels, height, width).

    They exchange blocks of ``blocksize`` by ``blocksize`` pixels with channels.
    """
    x, b, block = n[0], n.b, n.int("blocksize")
    if x.rank != 4 or block < 1:
        n.invalid(f"blocksize {block} does not fit shape {list(x.dims)}")
    batch, depth, height, width = x.dims
    if n.op == "SpaceToDepth":
        x = b.reshape(x, (batch, depth, height // block, block, width // block, block))
        dcr = n.text("mode", "DCR") == "DCR"
        x = b.transpose(x, [0, 3, 5, 1, 2, 4] if dcr else [0, 1, 3, 5, 2, 4])
        return b.reshape(x, (batch, depth * block * block, height // block, width // block))
    depth //= block * block
    if n.text("mode", "DCR") == "DCR":
        x = b.transpose(b.reshape(x, (batch, block, block, depth, height, width)), [0, 3, 4, 1, 5, 2])
    else:
        x = b.transpose(b.reshape(x, (batch, depth, block, block, height, width)), [0, 1, 4, 2, 5, 3])
    return b.reshape(x, (batch, depth, height * block, width * block))


@legalize(Shape=25, Size=25)
def shape(n: OnnxNode) -> Value:
    dims = n[0].dims
    if n.op == "Size":
        return constant_value(np.asarray(math.prod(dims), np.int64))
    return constant_value(np.asarray(dims[n.int("start", 0) : n.int("end", len(dims))], np.int64))
