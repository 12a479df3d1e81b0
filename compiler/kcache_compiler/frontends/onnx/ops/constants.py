"""Operators that create tensors from attributes or shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kcache_compiler.frontends.onnx.emitter import ELEMENT_BY_DTYPE, INTEGERS, Value, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.elementwise import element_of
from kcache_compiler.frontends.onnx.proto import tensor_array


@legalize(Constant=25)
def constant(n: OnnxNode) -> Value:
    for name, dtype in (("float", np.float32), ("int", np.int64)):
        for suffix in ("", "s"):
            values = n.attributes.get(f"value_{name}{suffix}")
            if values is not None:
                return constant_value(np.asarray(values, dtype))
    if not n.has("value"):
        n.unsupported("only its attributes value, value_float(s) and value_int(s) are supported")
    return constant_value(tensor_array(n.attributes["value"], n.description()))


@legalize(OptionalHasElement=28)
def optional_has_element(n: OnnxNode) -> Value:
    return constant_value(np.asarray(n.get(0) is not None))


@legalize(ConstantOfShape=25)
def constant_of_shape(n: OnnxNode) -> Value:
    dims = tuple(n.numbers(0, "shape"))
    if min(dims, default=0) < 0:
        n.invalid(f"the shape {list(dims)} has a negative size")
    value: Any = np.zeros(1, np.float32)
    if n.has("value"):
        value = tensor_array(n.attributes["value"], n.description())
    element = ELEMENT_BY_DTYPE[value.dtype.name]
    return n.b.full(value.reshape(-1)[0], element, dims)


@legalize(Range=27)
def range_(n: OnnxNode) -> Value:
    start, limit, delta = (n.constant(i, "limits").reshape(-1)[0] for i in range(3))
    if not delta:
        n.invalid("its delta is 0")
    element, b = n[0].element, n.b
    count = max(0, math.ceil((float(limit) - float(start)) / float(delta)))
    if element in INTEGERS:
        count = max(0, -((int(start) - int(limit)) // int(delta)))
    value = b.iota(element, (count,), 0)
    value = value if delta == 1 else b.scalar("multiply", value, delta)
    return value if start == 0 else b.scalar("add", value, start)


@legalize(EyeLike=22)
def eye_like(n: OnnxNode) -> Value:
    b, x = n.b, n[0]
    if x.rank != 2:
        n.invalid(f"its input has rank {x.rank}, not 2")
    element = element_of(n, n.int("dtype")) if n.has("dtype") else x.element
    row, column = b.iota("i64", x.dims, 0), b.iota("i64", x.dims, 1)
    on_diagonal = b.compare("EQ", b.scalar("add", row, n.int("k", 0)), column)
    return b.convert(on_diagonal, element)


@legalize(OneHot=28)
def one_hot(n: OnnxNode) -> Value:
    b, indices = n.b, n[0]
    depth = int(n.constant(1, "depth").reshape(-1)[0])
    rank = indices.rank + 1
    axis = n.axis(n.int("axis", -1), rank)
    dims = (*indices.dims[:axis], depth, *indices.dims[axis:])
    index = b.convert(indices, "i64")
    index = b.select(b.compare_to("LT", index, 0), b.scalar("add", index, depth), index)
    index = b.broadcast_in_dim(index, [i for i in range(rank) if i != axis], dims)
    is_hot = b.compare("EQ", index, b.iota("i64", dims, axis))
    off, on = (b.reshape(b.slice_axis(n[2], 0, i, i + 1), ()) for i in (0, 1))
    return b.select(is_hot, on, off)


@legalize(Trilu=14)
def trilu(n: OnnxNode) -> Value:
    b, x = n.b, n[0]
    if x.rank < 2:
        n.invalid(f"its input has rank {x.rank}, less than 2")
    k = int(n.constant(1, "k").reshape(-1)[0]) if n.get(1) is not None else 0
    row = b.iota("i64", x.dims[-2:], 0)
    row = row if k == 0 else b.scalar("add", row, k)
    column = b.iota("i64", x.dims[-2:], 1)
    is_kept = b.compare("GE" if not n.int("upper", 1) else "LE", row, column)
    return b.select(is_kept, x, b.full(0, x.element, x.dims))


@legalize(
    RandomNormal=22, RandomNormalLike=22, RandomUniform=22, RandomUniformLike=22, Bernoulli=22, Multinomial=22
)
def random(n: OnnxNode) -> Value:
    n.unsupported("it draws random numbers: draw them outside of the model, and pass them as an input")
