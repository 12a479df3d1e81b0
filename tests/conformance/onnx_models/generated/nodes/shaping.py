"""Draws operators that move, take, put and make elements."""

from __future__ import annotations

import math

import numpy as np
from onnx import numpy_helper

from tests.conformance.onnx_models.generated.draw import PLAIN, Dims, Draw, data_type, draws, dtype_of


@draws("Reshape")
def reshape(d: Draw) -> None:
    x = d.tensor(d.dims())
    sizes = list(x.shape)
    while len(sizes) > 1 and d.coin():
        at = d.int(0, len(sizes) - 2)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    if d.coin(0.3):
        sizes.insert(d.int(0, len(sizes)), 1)
    for at, size in enumerate(sizes):
        if at < x.ndim and x.shape[at] == size and d.coin(0.2):
            sizes[at] = 0  # as the input has it
    if x.size and sizes and d.coin():
        sizes[d.int(0, len(sizes) - 1)] = -1
    if d.version >= 14 and x.size and 0 not in sizes and d.coin(0.2):
        d.attributes["allowzero"] = 1
    d.numbers(sizes)


@draws("Flatten")
def flatten(d: Draw) -> None:
    x = d.tensor(d.dims(d.int(1, 4)))
    if d.coin(0.8):
        d.attributes["axis"] = d.int(-x.ndim if d.version >= 11 else 0, x.ndim)


@draws("Transpose")
def transpose(d: Draw) -> None:
    x = d.tensor(d.dims())
    if x.ndim and d.coin(0.8):
        d.attributes["perm"] = d.random.permutation(x.ndim).tolist()


@draws("Squeeze", "Unsqueeze")
def squeeze(d: Draw) -> None:
    dims = d.dims()
    count = d.int(1, 2)
    whole = [*dims, *[1] * count]
    order = sorted(d.random.permutation(len(whole))[:count].tolist())
    rest = iter(dims)
    full = tuple(1 if at in order else next(rest) for at in range(len(whole)))
    negative = d.version >= 11 and d.coin()
    axes = [axis - len(full) if negative else axis for axis in order]
    d.tensor(full if d.op == "Squeeze" else dims)
    if d.op == "Squeeze" and d.coin(0.2):
        return
    if d.version >= 13:
        d.numbers(axes)
    else:
        d.attributes["axes"] = axes


@draws("Concat")
def concat(d: Draw) -> None:
    dims = d.dims(d.int(1, 4))
    axis = d.axis(len(dims), d.version >= 11)
    for _ in range(d.int(1, 4)):
        d.tensor(tuple(d.size(0) if at == axis % len(dims) else size for at, size in enumerate(dims)))
    d.attributes["axis"] = axis


@draws("Split")
def split(d: Draw) -> None:
    axis_size, count = d.int(2, 6), d.int(1, 3)
    dims = d.dims(d.int(1, 3))
    axis = d.axis(len(dims))
    d.tensor(tuple(axis_size if at == axis % len(dims) else size for at, size in enumerate(dims)))
    d.attributes["axis"] = axis if d.version >= 11 else axis % len(dims)
    d.outputs = count
    if d.version >= 18 and d.coin():
        d.outputs = min(count, axis_size)
        if d.outputs == 3 and axis_size == 4:
            d.outputs = 2  # 2, 2 and nothing: the runtimes differ
        d.attributes["num_outputs"] = d.outputs
        return
    cuts = sorted(d.int(0, axis_size) for _ in range(count - 1))
    sizes = np.diff([0, *cuts, axis_size]).tolist()
    if d.version >= 13:
        d.numbers(sizes)
    else:
        d.attributes["split"] = sizes


@draws("Slice")
def slices(d: Draw) -> None:
    x = d.tensor(d.dims(d.int(1, 4)))
    axes = sorted(d.random.permutation(x.ndim)[: d.int(1, x.ndim)].tolist())
    starts = [d.int(-7, 7) for _ in axes]
    ends = [d.one([d.int(-7, 7), 2**31 - 1, -(2**31) + 1]) for _ in axes]
    if d.version < 10:
        d.attributes = {"axes": axes, "starts": starts, "ends": ends}
        return
    steps = [d.one([1, 1, 2, 3, -1, -2]) for _ in axes]
    for numbers in (starts, ends, axes, steps):
        d.add(np.asarray(numbers, d.type("Tind", ("int64",))), True)


@draws("Tile", "Expand")
def spread(d: Draw) -> None:
    x = d.tensor(d.dims())
    if d.op == "Tile":
        d.numbers([d.one([0, 1, 1, 2, 3]) for _ in x.shape])
        return
    tail = [d.int(1, 3) if size == 1 else d.one([1, size]) for size in x.shape]
    d.numbers([*[d.int(1, 2) for _ in range(d.int(0, 2))], *tail])


@draws("Pad")
def pad(d: Draw) -> None:
    x = d.tensor(d.dims(d.int(1, 4), 3))
    modes = ["constant", "reflect", "edge", *(["wrap"] if d.version >= 19 else [])]
    mode = d.one(modes)
    least = -1 if mode == "constant" else 0
    pads = [d.int(least, 2) for _ in range(2 * x.ndim)]
    d.attributes["mode"] = mode
    if d.version < 11:
        d.attributes["pads"] = pads
        if d.coin():
            d.attributes["value"] = 1.5
        return
    axes = list(range(x.ndim))
    if d.version >= 18 and d.coin():
        axes = sorted(d.random.permutation(x.ndim)[: d.int(1, x.ndim)].tolist())
        pads = [d.int(least, 2) for _ in range(2 * len(axes))]
    d.numbers(pads)
    if mode == "constant" and d.coin():
        d.add(d.array(d.type(), ()))
    elif len(axes) < x.ndim or d.coin(0.3):
        d.skip()
    if len(axes) < x.ndim:
        d.numbers([axis - x.ndim if d.coin() else axis for axis in axes])


def indices(d: Draw, dims: Dims, size: int, negative: bool) -> np.ndarray:
    return d.random.integers(-size if negative else 0, size, dims).astype(d.one([np.int32, np.int64]))


@draws("Gather", "GatherElements")
def gather(d: Draw) -> None:
    x = d.tensor(d.dims(d.int(1, 4), 1))
    axis = d.axis(x.ndim)
    d.attributes["axis"] = axis
    taken = d.dims(d.int(0, 2)) if d.op == "Gather" else tuple(d.int(1, size) for size in x.shape)
    d.add(indices(d, taken, x.shape[axis], d.version >= 11))


@draws("GatherND")
def gather_nd(d: Draw) -> None:
    x = d.tensor(d.dims(d.int(1, 4), 1))
    batch = d.int(0, x.ndim - 1) if d.version >= 12 else 0
    count = d.int(1, x.ndim - batch)
    outer = (*x.shape[:batch], *d.dims(d.int(0 if batch else 1, 2), 1))
    parts = [d.random.integers(-size, size, outer) for size in x.shape[batch : batch + count]]
    d.add(np.stack(parts, -1).astype(np.int64))
    if batch:
        d.attributes["batch_dims"] = batch


def reduction(d: Draw) -> None:
    choices = ["none"]
    if d.version >= 16:
        choices += ["add", "mul"]
    if d.version >= 18:
        choices += ["max", "min"]
    if dtype_of(d.type()).kind == "b" or d.version < 16:
        return
    d.attributes["reduction"] = d.one(choices)


@draws("ScatterElements", "Scatter")
def scatter(d: Draw) -> None:
    d.special = False
    x = d.tensor(d.dims(d.int(1, 3), 1))
    axis = d.axis(x.ndim, d.op != "Scatter")
    reduction(d)
    dims = tuple(d.int(1, size) for size in x.shape)
    lanes = [
        d.random.permutation(x.shape[axis])[: dims[axis]]
        for _ in range(max(1, math.prod(dims) // dims[axis]))
    ]
    rest = [size for at, size in enumerate(dims) if at != axis % x.ndim]
    put = np.moveaxis(np.stack(lanes).reshape(*rest, dims[axis]), -1, axis)
    if d.attributes.get("reduction", "none") != "none" and d.coin():
        put = d.random.integers(0, x.shape[axis], dims)
    if d.op != "Scatter" and d.coin():
        put = np.where(d.random.random(dims) < 0.5, put, put - x.shape[axis])
    d.attributes["axis"] = axis
    d.add(put.astype(d.one([np.int32, np.int64])))
    d.tensor(dims)


@draws("ScatterND")
def scatter_nd(d: Draw) -> None:
    d.special = False
    x = d.tensor(d.dims(d.int(1, 3), 1))
    reduction(d)
    count = d.int(1, x.ndim)
    places = math.prod(x.shape[:count])
    number = d.int(1, places)
    chosen = d.random.permutation(places)[:number]
    d.add(np.stack(np.unravel_index(chosen, x.shape[:count]), -1).astype(np.int64))
    d.tensor((number, *x.shape[count:]))


@draws("DepthToSpace", "SpaceToDepth")
def blocks(d: Draw) -> None:
    size = d.int(1, 3)
    channels, high, wide = d.int(1, 2), d.int(1, 3), d.int(1, 3)
    deep = (d.int(1, 2), channels * size * size, high, wide)
    d.tensor(deep if d.op == "DepthToSpace" else (deep[0], channels, high * size, wide * size))
    d.attributes["blocksize"] = size
    if "mode" in d.schema.attributes and d.coin(0.8):
        d.attributes["mode"] = d.one(["DCR", "CRD"])


@draws("Trilu")
def trilu(d: Draw) -> None:
    d.tensor(d.dims(d.int(2, 4)))
    if d.coin(0.7):
        d.add(np.asarray(d.int(-4, 4), np.int64), True)
    d.attributes["upper"] = d.int(0, 1)


@draws("EyeLike")
def eye_like(d: Draw) -> None:
    d.tensor(d.dims(2), "T1")
    d.bind("T2", d.type("T1"))
    if d.coin():
        d.attributes["k"] = d.int(-3, 3)
    if d.coin():
        name = d.one([name for name in PLAIN if name != "bfloat16"])
        d.bind("T2", name)
        d.attributes["dtype"] = data_type(name)


@draws("ReverseSequence")
def reverse_sequence(d: Draw) -> None:
    time_axis = d.int(0, 1)
    x = d.tensor(d.dims(d.int(2, 4), 1))
    d.numbers([d.int(1, x.shape[time_axis]) for _ in range(x.shape[1 - time_axis])], d.coin())
    d.attributes = {"time_axis": time_axis, "batch_axis": 1 - time_axis}


@draws("Range")
def ranges(d: Draw) -> None:
    name = d.type("T", ("float", "double", "float16", "bfloat16", "int16", "int32", "int64"))
    step = d.one([1, 2, 3, -1, -2])
    if dtype_of(name).kind not in "iu" and d.coin():
        step = d.one([0.5, -0.25, 0.1])
    start = d.int(-5, 5)
    for number in (start, start + step * d.int(-1, 5) + d.one([0, step / 2]), step):
        d.add(np.asarray(number).astype(dtype_of(name)), True)
    if "stash_type" in d.schema.attributes and d.coin(0.3):
        d.attributes["stash_type"] = data_type(d.one(["float", "double"]))


@draws("Shape", "Size")
def sizes(d: Draw) -> None:
    x = d.tensor(d.dims())
    if d.op == "Shape" and d.version >= 15:
        if d.coin():
            d.attributes["start"] = d.int(-x.ndim - 1, x.ndim + 1)
        if d.coin():
            d.attributes["end"] = d.int(-x.ndim - 1, x.ndim + 1)


@draws("CenterCropPad")
def center_crop_pad(d: Draw) -> None:
    x = d.tensor(d.dims(d.int(1, 3), 1))
    axes = list(range(x.ndim))
    if d.coin():
        axes = sorted(d.random.permutation(x.ndim)[: d.int(1, x.ndim)].tolist())
        d.attributes["axes"] = axes
    d.numbers([d.int(1, 6) for _ in axes])


@draws("ConstantOfShape")
def constant_of_shape(d: Draw) -> None:
    d.numbers(d.dims())
    name = d.type("T2", PLAIN)
    value = np.asarray(d.array(name, (1,)))
    d.attributes["value"] = numpy_helper.from_array(value, "value")


@draws("TensorScatter")
def tensor_scatter(d: Draw) -> None:
    batch, length = d.int(1, 3), d.int(2, 6)
    rank, new = d.int(2, 4), d.int(1, length)
    axis = d.int(1, rank - 1)
    others = [d.int(1, 3) for _ in range(rank - 2)]
    d.tensor((batch, *others[: axis - 1], length, *others[axis - 1 :]))
    d.tensor((batch, *others[: axis - 1], new, *others[axis - 1 :]))
    circular = d.coin()
    if d.coin(0.8):
        d.numbers([d.int(0, length - 1 if circular else length - new) for _ in range(batch)], d.coin())
    d.attributes["mode"] = "circular" if circular else "linear"
    if axis != rank - 2 or d.coin():
        d.attributes["axis"] = d.one([axis, axis - rank])
