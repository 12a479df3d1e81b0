"""Ops that move elements without computing: reshapes, slices, joins, pads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.builder import broadcast_dims
from kcache_compiler.frontends.onnx.emitter import Value, known
from kcache_compiler.frontends.onnx.site import Results, Site, legalizes

#: Pads of an axis by elements of its own: each is a place in a list.
_MOST_PADS = 1 << 20


@legalizes(Identity=25, OptionalGetElement=28)
def identity(n: Site) -> Value:
    return n[0]


@legalizes(Dropout=22)
def dropout(n: Site) -> Results:
    """Nothing in inference; the mask keeps everything."""
    training = n.get(2)
    if training is not None and n.known(2, "training_mode").any():
        ratio = n.get(1)
        if ratio is None or n.known(1, "ratio").any():
            n.unsupported("in training mode it draws random numbers")
    return [n[0], n.b.full(True, "i1" if n.version >= 10 else n[0].element, n[0].dims)]


@legalizes(Reshape=25)
def reshape(n: Site) -> Value:
    x, wanted = n[0], n.ints("shape") if n.has("shape") else n.numbers(1, "shape")
    dims = list(wanted)
    if not n.int("allowzero", 0):
        for axis, size in enumerate(dims):
            if size == 0:
                if axis >= x.rank:
                    n.invalid(f"shape {wanted} copies dim {axis} of an input of rank {x.rank}")
                dims[axis] = x.dims[axis]
    if dims.count(-1) > 1 or min(dims, default=0) < -1:
        n.invalid(f"shape {wanted} is none")
    if -1 in dims:
        rest = -math.prod(dims)
        if rest == 0 or math.prod(x.dims) % rest:
            n.invalid(f"an input of shape {list(x.dims)} does not reshape to {wanted}")
        dims[dims.index(-1)] = math.prod(x.dims) // rest
    return n.b.reshape(x, tuple(dims))


@legalizes(Flatten=25)
def flatten(n: Site) -> Value:
    x, axis = n[0], n.int("axis", 1)
    if not -x.rank <= axis <= x.rank:
        n.invalid(f"axis {axis} is not one of rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return n.b.reshape(x, (math.prod(x.dims[:axis]), math.prod(x.dims[axis:])))


@legalizes(Squeeze=25)
def squeeze(n: Site) -> Value:
    x = n[0]
    axes = n.axes(x.rank)
    if axes is None:
        axes = [axis for axis, size in enumerate(x.dims) if size == 1]
    for axis in axes:
        if x.dims[axis] != 1:
            n.invalid(f"axis {axis} of shape {list(x.dims)} is not 1")
    return n.b.reshape(x, tuple(d for i, d in enumerate(x.dims) if i not in axes))


@legalizes(Unsqueeze=25)
def unsqueeze(n: Site) -> Value:
    x = n[0]
    given = n.ints("axes") if n.has("axes") else n.numbers(1, "axes")
    axes = n.axes(x.rank + len(given)) or []
    dims = iter(x.dims)
    return n.b.reshape(x, tuple(1 if i in axes else next(dims) for i in range(x.rank + len(axes))))


@legalizes(Transpose=25)
def transpose(n: Site) -> Value:
    x = n[0]
    order = n.ints("perm", range(x.rank)[::-1])
    if sorted(order) != list(range(x.rank)):
        n.invalid(f"perm = {order} is no permutation of rank {x.rank}")
    return n.b.transpose(x, order)


@legalizes(Concat=13)
def concat(n: Site) -> Value:
    parts = n.all()
    return n.b.concatenate(parts, n.axis(n.int("axis", 1), n[0].rank))


@legalizes(Split=18)
def split(n: Site) -> Results:
    x = n[0]
    axis = n.axis(n.int("axis", 0), x.rank)
    size, count = x.dims[axis], n.int("num_outputs", len(n.outputs))
    if count != len(n.outputs):
        n.invalid(f"num_outputs = {count} of {len(n.outputs)} outputs")
    if n.has("split"):
        parts = n.ints("split")
    elif n.get(1) is not None:
        parts = n.numbers(1, "split")
    else:
        part = -(-size // count)
        parts = [max(0, min(part, size - i * part)) for i in range(count)]
    if sum(parts) != size or min(parts, default=0) < 0 or len(parts) < len(n.outputs):
        n.invalid(f"parts of {parts} are not axis {axis} of shape {list(x.dims)}")
    results: list[Value] = []
    start = 0
    for part in parts:
        results.append(n.b.along(x, axis, start, start + part))
        start += part
    return results


@legalizes(Slice=13)
def slice_(n: Site) -> Value:
    x = n[0]
    if n.has("starts"):
        starts, stops = n.ints("starts"), n.ints("ends")
        axes, steps = n.ints("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, stops = n.numbers(1, "starts"), n.numbers(2, "ends")
        axes = list(range(len(starts))) if n.get(3) is None else n.numbers(3, "axes")
        steps = [1] * len(starts) if n.get(4) is None else n.numbers(4, "steps")
    if not len(starts) == len(stops) == len(axes) == len(steps) or 0 in steps:
        n.invalid(f"starts {starts}, ends {stops}, axes {axes} and steps {steps} do not fit each other")
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        x = _sliced(n, x, n.axis(axis, x.rank), start, stop, step)
    return x


def _sliced(n: Site, x: Value, axis: int, start: int, stop: int, step: int) -> Value:
    size = x.dims[axis]
    if step < 0:
        start = max(start, -size)  # what starts before the first element starts there, other than in Python
    picked = range(size)[slice(start, stop, step)]
    if step > 0:
        return n.b.along(x, axis, picked.start, max(picked.start, picked.stop), step)
    turned = n.b.reverse(x, [axis])
    first = size - 1 - picked.start
    return n.b.along(turned, axis, first, max(first, size - 1 - picked.stop), -step)


@legalizes(Expand=13)
def expand(n: Site) -> Value:
    return n.b.broadcast(n[0], broadcast_dims(n[0].dims, tuple(n.numbers(1, "shape"))))


@legalizes(Tile=13)
def tile(n: Site) -> Value:
    x, repeats = n[0], n.numbers(1, "repeats")
    if len(repeats) != x.rank or min(repeats, default=0) < 0:
        n.invalid(f"repeats {repeats} do not fit shape {list(x.dims)}")
    spread = tuple(size for pair in zip(repeats, x.dims, strict=True) for size in pair)
    wide = n.b.broadcast_in_dim(x, range(1, 2 * x.rank, 2), spread)
    return n.b.reshape(wide, tuple(r * d for r, d in zip(repeats, x.dims, strict=True)))


@legalizes(Pad=25)
def pad(n: Site) -> Value:
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
        n.invalid(f"mode {mode!r} is none")
    for axis in range(x.rank):
        x = _extended(n, x, axis, low[axis], high[axis], mode)
    return x


def _extended(n: Site, x: Value, axis: int, low: int, high: int, mode: str) -> Value:
    """Pad one axis with elements of its own; negative counts cut."""
    size = x.dims[axis]
    if low > 0 or high > 0:
        if not size:
            n.invalid(f"axis {axis} has no elements to pad with")
        check("elements to pad with", max(0, low) + max(0, high), _MOST_PADS)
        before = _runs(range(-low, 0), size, mode)
        after = _runs(range(size, size + high), size, mode)
        parts = [_run(n, x, axis, run) for run in before] + [x] + [_run(n, x, axis, run) for run in after]
        x = n.b.concatenate(parts, axis)
    return n.b.along(x, axis, max(0, -low), x.dims[axis] - max(0, -high))


def _runs(places: Sequence[int], size: int, mode: str) -> list[list[int]]:
    """Return the source index of each place, cut into runs that go up or down by one, or stay."""
    runs: list[list[int]] = []
    for place in places:
        if mode == "wrap":
            source = place % size
        elif mode == "edge":
            source = min(max(place, 0), size - 1)
        else:
            period = max(1, 2 * (size - 1))
            source = place % period
            source = source if source < size else period - source
        last = runs[-1] if runs else []
        step = source - last[-1] if last else 0
        if last and abs(step) <= 1 and (len(last) == 1 or step == last[1] - last[0]):
            last.append(source)
        else:
            runs.append([source])
    return runs


def _run(n: Site, x: Value, axis: int, run: list[int]) -> Value:
    part = n.b.along(x, axis, min(run), max(run) + 1)
    if len(run) > 1 and run[0] == run[1]:
        dims = tuple(len(run) if i == axis else d for i, d in enumerate(x.dims))
        return n.b.broadcast(part, dims)
    return n.b.reverse(part, [axis]) if run[0] > run[-1] else part


@legalizes(DepthToSpace=28, SpaceToDepth=28)
def depth_space(n: Site) -> Value:
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


@legalizes(Shape=25, Size=25)
def shape(n: Site) -> Value:
    dims = n[0].dims
    if n.op == "Size":
        return known(np.asarray(math.prod(dims), np.int64))
    return known(np.asarray(dims[n.int("start", 0) : n.int("end", len(dims))], np.int64))
