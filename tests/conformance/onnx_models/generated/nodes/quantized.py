"""Draws quantization, and arithmetic of what is quantized."""

from __future__ import annotations

import math

import numpy as np

from tests.conformance.onnx_models.generated.draw import (
    NARROW,
    NARROW_FLOATS,
    Dims,
    Draw,
    data_type,
    draws,
    dtype_of,
)

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2")
_WIDE = ("float", "float16", "bfloat16")


def _spread(d: Draw, x: Dims) -> Dims:
    """The shape of scales: one for all, one for each index of an axis, or one for each block of it."""
    if x and d.version >= 21 and d.coin(0.3):
        axis, size = d.axis(len(x)), d.int(1, 3)
        d.attributes |= {"axis": axis, "block_size": size}
        axis %= len(x)
        return (*x[:axis], math.ceil(x[axis] / size), *x[axis + 1 :])
    if x and d.version >= 13 and d.coin():
        axis = d.axis(len(x))
        d.attributes["axis"] = axis
        return (x[axis],)
    return ()


@draws("QuantizeLinear")
def quantize(d: Draw) -> None:
    special, d.special = d.special, False
    x_type, scale_type = (formal.type_str for formal in d.schema.inputs[:2])
    x = d.array(d.type(x_type, (*_WIDE, "int32")), d.dims(d.int(1, 4), 1), -20, 20)
    if special and d.type(x_type) != "int32":
        edges = d.random.choice([1e4, -1e4, 2.5, -2.5, 0.0, -0.0], x.shape)
        x = np.where(d.random.random(x.shape) < 0.4, edges, x).astype(x.dtype)
    d.add(x)
    dims = _spread(d, x.shape)
    if scale_type.startswith("tensor("):
        scale = "float"
    elif scale_type == x_type:
        scale = d.type(x_type)
    else:
        scale = d.type(scale_type, _WIDE)
    scales = [1, 2, 4] if scale == "int32" else [0.25, 0.5, 1.0, 0.1]
    d.add(d.random.choice(scales, dims).astype(dtype_of(scale)))
    result = d.type(d.schema.inputs[2].type_str, (*_INTEGERS, *NARROW_FLOATS[:-1]))
    if d.version < 21 or d.coin(0.6):
        floats = result in NARROW_FLOATS  # whose zero points are constants
        zeros = np.zeros(dims, dtype_of(result)) if floats else d.array(result, dims, 0, 1)
        d.add(zeros, True if floats else None)
    else:
        d.attributes["output_dtype"] = data_type(result)
    if result.startswith("float8") and d.coin():
        d.attributes["saturate"] = d.int(0, 1)
    if d.version >= 23 and d.coin(0.2):
        d.attributes["precision"] = data_type(d.one(["float", "float16"]))


@draws("DequantizeLinear")
def dequantize(d: Draw) -> None:
    first, second = (formal.type_str for formal in d.schema.inputs[:2])
    name = d.type(first, (*_INTEGERS, "int32", *NARROW_FLOATS[:-1]))
    bound = {"int32": 100_000, "int16": 30_000, "uint16": 60_000}.get(name, 1 if name in NARROW else 100)
    x = d.add(d.array(name, d.dims(d.int(1, 4), 1), -bound, bound))
    dims = _spread(d, x.shape)
    scale = "float" if second.startswith("tensor(") else d.type(second, _WIDE)
    d.special = False
    d.add(d.array(scale, dims, 1e-4, 4e-4) if bound > 100 else d.array(scale, dims, 0.1, 0.4))
    if name != "int32" and d.coin(0.7):
        floats = name in NARROW_FLOATS
        d.add(np.zeros(dims, x.dtype) if floats else d.array(name, dims, 0, 1), True if floats else None)
    result = d.schema.outputs[0].type_str
    d.bind(result, scale)
    if d.version >= 23 and d.coin(0.3):
        wide = d.one(_WIDE)
        d.attributes["output_dtype"] = data_type(wide)
        d.bind(result, wide)


@draws("DynamicQuantizeLinear")
def dynamic_quantize(d: Draw) -> None:
    d.special = False
    d.add(d.array("float", d.dims(d.int(1, 3), 1), d.one([-3, 0, 1]), 3))
    d.outputs = 3
    d.bind("T2", "uint8")


@draws("QLinearMatMul")
def qlinear_matmul(d: Draw) -> None:
    d.special = False
    m, k, n = (d.int(1, 4) for _ in range(3))
    batch = d.dims(d.int(0, 1), 1)
    scale = d.type("TS", _WIDE) if d.version >= 21 else "float"
    for dims, place in (((*batch, m, k), 0), ((*batch, k, n), 3), (None, 6)):
        kind = d.type(d.schema.inputs[7 if dims is None else place].type_str, ("int8", "uint8"))
        if dims is not None:
            d.add(d.array(kind, dims, -50, 50))
        each = (n,) if place == 3 and d.coin(0.3) else ()
        d.add(d.array(scale, each, 0.01, 0.1))
        d.add(d.array(kind, each, 0, 5))


@draws("QLinearConv")
def qlinear_conv(d: Draw) -> None:
    d.special = False
    spatial, group = d.int(1, 2), d.one([1, 1, 2])
    inner, outer = d.int(1, 2), d.int(1, 2) * group
    kernel = [d.int(1, 3) for _ in range(spatial)]
    shapes = ((d.int(1, 2), inner * group, *[d.int(3, 5) for _ in kernel]), (outer, inner, *kernel), None)
    for index, dims in enumerate(shapes):
        parameter = d.schema.inputs[(0, 3, 7)[index]].type_str
        if dims is None:
            d.bind(parameter, d.given(0).dtype.name)
        kind = d.type(parameter, ("int8", "uint8"))
        if dims is not None:
            d.add(d.array(kind, dims, -50, 50))
        each = (outer,) if index == 1 and d.coin() else ()
        d.add(d.array("float", each, 0.01, 0.1))
        d.add(d.array(kind, each, 0, 0 if each else 5))
    if d.coin():
        d.add(d.array("int32", (outer,), -100, 100))
    d.attributes = {"group": group}
    if d.coin():
        d.attributes |= {"strides": [d.int(1, 2) for _ in kernel], "kernel_shape": kernel}
        if d.coin(0.2):
            d.attributes["auto_pad"] = d.one(["SAME_UPPER", "SAME_LOWER", "VALID"])
        else:
            d.attributes["pads"] = [d.int(0, 1) for _ in kernel * 2]
    if "auto_pad" not in d.attributes and max(kernel) < 3 and d.coin(0.3):
        d.attributes["dilations"] = [d.int(1, 2) for _ in kernel]
