"""Draws reductions, indices of extremes, running sums, sorted prefixes and normalizations."""

from __future__ import annotations

import numpy as np

from tests.conformance.onnx_models.generated.draw import Draw, data_type, draws, dtype_of

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@draws(*(f"Reduce{name}" for name in _REDUCTIONS))
def reduce(d: Draw) -> None:
    axes_as_input = d.version >= (13 if d.op == "ReduceSum" else 18)
    x = d.tensor(d.dims(least=1 if d.coin(0.8) else 0), "T", 0.1 if d.op == "ReduceLogSum" else -3, 3)
    axes = sorted(d.random.permutation(x.ndim)[: d.int(0, x.ndim)].tolist())
    axes = [axis - x.ndim if d.coin(0.3) else axis for axis in axes]
    if d.coin(0.8):
        d.attributes["keepdims"] = d.int(0, 1)
    if axes_as_input:
        if d.coin(0.3):
            d.attributes["noop_with_empty_axes"] = 1
        if axes or d.coin(0.3):
            d.numbers(axes)
    elif axes:
        d.attributes["axes"] = axes


@draws("ArgMax", "ArgMin")
def arg(d: Draw) -> None:
    dims = d.dims(d.int(1, 4), 1)
    name = d.type()
    # Few different numbers: extremes that stand more than once.
    d.add(
        np.round(d.array(name, dims).astype("f8")).astype(dtype_of(name)) if d.coin() else d.array(name, dims)
    )
    d.attributes["axis"] = d.axis(len(dims), d.version >= 11)
    if d.coin():
        d.attributes["keepdims"] = d.int(0, 1)
    if d.version >= 12 and d.coin():
        d.attributes["select_last_index"] = 1


@draws("CumSum", "CumProd")
def running(d: Draw) -> None:
    x = d.tensor(d.dims(d.int(1, 4)))
    axis = d.axis(x.ndim)
    d.add(np.asarray(axis, d.one([np.int32, np.int64])), True)
    d.attributes = {name: d.int(0, 1) for name in ("exclusive", "reverse") if d.coin(0.7)}


@draws("TopK")
def top_k(d: Draw) -> None:
    dims = d.dims(d.int(1, 4), 1)
    d.special = False
    name = d.type()
    count = int(np.prod(dims))
    if dtype_of(name).kind in "iu":
        d.add(d.random.permutation(count).reshape(dims).astype(dtype_of(name)))
    else:
        d.tensor(dims)
    axis = d.axis(len(dims), d.version >= 11)
    k = d.int(1, dims[axis])
    d.attributes["axis"] = axis
    d.outputs = 2
    if d.version < 10:
        d.attributes["k"] = k
        return
    d.numbers([k])
    if d.version >= 11 and d.coin():
        d.attributes["largest"] = d.int(0, 1)
        d.attributes["sorted"] = 1


@draws("Softmax", "LogSoftmax", "Hardmax")
def softmax(d: Draw) -> None:
    d.special = False
    x = d.tensor(d.dims(d.int(1, 4), 1))
    if x.ndim == 1 or d.coin(0.8):  # the axis of old versions is 1 where none is given
        d.attributes["axis"] = d.axis(x.ndim, d.version >= 11)


@draws("LpNormalization")
def lp_normalization(d: Draw) -> None:
    d.special = False
    x = d.tensor(d.dims(d.int(1, 4), 1))
    d.attributes = {"axis": d.axis(x.ndim), "p": d.int(1, 2)}


@draws("MeanVarianceNormalization")
def mean_variance(d: Draw) -> None:
    d.special = False
    d.tensor(d.dims(4, 2))
    if d.coin():
        d.attributes["axes"] = d.one([[0, 2, 3], [1, 2, 3], [2, 3], [0, 1, 2, 3]])


@draws("LayerNormalization", "RMSNormalization")
def layer_normalization(d: Draw) -> None:
    d.special = False
    x = d.tensor(d.dims(d.int(1, 4), 2))
    axis = d.axis(x.ndim)
    d.attributes = {"axis": axis, "epsilon": d.one([1e-5, 1e-3])}
    tail = x.shape[axis:]
    scale = d.schema.inputs[1].type_str
    d.tensor(tail, scale)
    if d.op == "LayerNormalization":
        if d.coin():
            d.tensor(tail)
        d.outputs = d.one([1, 1, 3])
        d.bind("U", "float")
    if d.coin(0.2):
        wide = d.one(["float", "double"])
        d.attributes["stash_type"] = data_type(wide)
        d.bind("U", wide)


@draws("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN")
def channels(d: Draw) -> None:
    d.special = False
    count = d.one([1, 2, 4])
    x = d.tensor((d.size(1), count, *d.dims(d.int(1, 2) if d.op != "LRN" else 2, 1)))
    if d.op == "LRN":
        # ONNX Runtime takes odd sizes only, and the reference fills in as many channels as there are images.
        sizes = [1, 2, 3, 5] if x.shape[0] >= count else [1, 3, 5]
        d.attributes = {"size": d.one(sizes), "alpha": 0.1, "beta": 0.75, "bias": d.one([1.0, 2.0])}
        return
    for index, formal in enumerate(d.schema.inputs[1:]):
        d.tensor((x.shape[1],), formal.type_str, 0.2 if index == 3 else -2, 2)  # a variance is positive
    d.attributes["epsilon"] = d.one([1e-5, 1e-2])
    if d.op == "BatchNormalization" and d.version >= 14 and d.coin(0.3):
        d.attributes |= {"training_mode": 1, "momentum": 0.8}
        d.outputs = d.one([1, 3])
    if d.op == "GroupNormalization":
        d.attributes["num_groups"] = d.one([group for group in (1, 2, 4) if count % group == 0])
        if "stash_type" in d.schema.attributes and d.coin(0.2):
            d.attributes["stash_type"] = data_type(d.one(["float", "double"]))
