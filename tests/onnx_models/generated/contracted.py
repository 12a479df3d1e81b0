"""Draws products, quantization, recurrence, losses, transforms and attention."""

from __future__ import annotations

import numpy as np

from tests.onnx_models.generated.draw import Draw, draws


@draws("MatMul", "MatMulInteger")
def matmul(d: Draw) -> None:
    d.special = False
    m, k, n = (d.size(0 if d.coin(0.1) else 1) for _ in range(3))
    batch = d.dims(d.int(0, 2), 1)
    first, second = d.schema.inputs[0].type_str, d.schema.inputs[1].type_str
    left = (k,) if d.coin(0.15) else (*batch, m, k)
    right = (k,) if d.coin(0.15) else (*(batch[d.int(0, len(batch)) :]), k, n)
    d.tensor(left, first)
    d.tensor(right, second)
    if d.op == "MatMulInteger" and d.coin():
        d.add(d.array(d.type("T1"), (), 0, 3))
        if d.coin():
            d.add(d.array(d.type("T2"), (), 0, 3))


@draws("Gemm")
def gemm(d: Draw) -> None:
    d.special = False
    m, k, n = (d.size(1) for _ in range(3))
    left, right = d.int(0, 1), d.int(0, 1)
    d.tensor((k, m) if left else (m, k))
    d.tensor((n, k) if right else (k, n))
    if d.version < 11 or d.coin(0.7):
        d.tensor(d.one([(m, n), (1, n), (m, 1), (n,), (1,), ()]))
    d.attributes = {"transA": left, "transB": right}
    if d.coin():
        d.attributes |= {"alpha": d.one([0.5, 2.0]), "beta": d.one([0.0, 0.5, 2.0])}


@draws("Einsum")
def einsum(d: Draw) -> None:
    d.special = False
    sizes = dict(zip("ijkb", (d.int(1, 4) for _ in range(4)), strict=True))
    equation = d.one(
        ["ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "ij,ij->i", "i,j->ij", "bij,jk", "ij,kj->ki"]
    )
    for part in equation.split("->")[0].split(","):
        d.tensor(tuple(sizes[letter] for letter in part))
    d.attributes["equation"] = equation


@draws("Det")
def det(d: Draw) -> None:
    d.special = False
    size = d.int(1, 4)
    d.tensor((*d.dims(d.int(0, 2), 1), size, size))


@draws("QuantizeLinear")
def quantize(d: Draw) -> None:
    d.special = False
    axis, per_axis = d.int(0, 1), d.version >= 13 and d.coin()
    second = d.schema.inputs[1].type_str
    source = d.schema.inputs[0].type_str
    x = d.add(d.array(d.type(source, ("float", "float16")), d.dims(d.int(2, 3), 1), -20, 20))
    dims = (x.shape[axis],) if per_axis else ()
    scale = "float" if second == "tensor(float)" else d.type(source)
    d.add(d.array(scale, dims, 0.1, 0.4))
    d.add(d.array(d.type(d.schema.inputs[2].type_str, ("int8", "uint8", "int16", "uint16")), dims, 0, 5))
    if per_axis:
        d.attributes["axis"] = axis - x.ndim if d.coin() else axis


@draws("DequantizeLinear")
def dequantize(d: Draw) -> None:
    axis, per_axis = d.int(0, 1), d.version >= 13 and d.coin()
    first = d.schema.inputs[0].type_str
    name = d.type(first, ("int8", "uint8", "int32", "int16", "uint16"))
    x = d.add(d.array(name, d.dims(d.int(2, 3), 1), -100, 100))
    dims = (x.shape[axis],) if per_axis else ()
    d.add(d.array("float", dims, 0.1, 0.4))
    if name != "int32" and d.coin(0.7):
        d.add(d.array(name, dims, 0, 5))
    d.bind(d.schema.outputs[0].type_str, "float")
    if per_axis:
        d.attributes["axis"] = axis - x.ndim if d.coin() else axis


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
    for dims, place in (((m, k), 0), ((k, n), 3), (None, 6)):
        kind = d.type(d.schema.inputs[7 if dims is None else place].type_str, ("int8", "uint8"))
        if dims is not None:
            d.add(d.array(kind, dims, -50, 50))
        d.add(d.array("float", (), 0.01, 0.1))
        d.add(d.array(kind, (), 0, 5))


@draws("RNN", "GRU", "LSTM")
def recurrent(d: Draw) -> None:
    d.special = False
    direction = d.one(["forward", "reverse", "bidirectional"])
    both = 2 if direction == "bidirectional" else 1
    length, batch, inner, hidden = d.int(1, 3), d.int(1, 2), d.int(1, 3), d.int(1, 3)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[d.op]
    d.add(d.array(d.type("T", ("float",)), (length, batch, inner), -1, 1))
    d.tensor((both, gates * hidden, inner), "T", -1, 1)
    d.tensor((both, gates * hidden, hidden), "T", -1, 1)
    states = d.coin()
    if states or d.coin():
        d.tensor((both, 2 * gates * hidden), "T", -1, 1)
    if states:
        d.skip()
        for _ in range(2 if d.op == "LSTM" else 1):
            d.tensor((both, batch, hidden), "T", -1, 1)
    d.attributes = {"hidden_size": hidden, "direction": direction}
    if d.op == "GRU" and d.coin():
        d.attributes["linear_before_reset"] = 1
    d.outputs = d.int(1, 3 if d.op == "LSTM" else 2)


@draws("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d: Draw) -> None:
    d.special = False
    batch, classes = d.int(1, 3), d.int(2, 4)
    rest = d.dims(d.int(0, 2), 1)
    x = d.tensor((batch, classes, *rest))
    ignored = d.coin(0.3)
    target = d.random.integers(0, classes, (batch, *rest))
    d.add(target.astype(d.one([np.int32, np.int64])))
    if d.coin():
        d.add(d.random.uniform(0.2, 2, (classes,)).astype(x.dtype))
    d.attributes["reduction"] = d.one(["none", "sum", "mean"])
    if ignored and d.attributes["reduction"] != "mean":
        d.attributes["ignore_index"] = 0


@draws("HannWindow", "HammingWindow", "BlackmanWindow")
def window(d: Draw) -> None:
    d.add(np.asarray(d.int(2, 9), np.int64), True)
    d.bind("T2", "float")
    d.attributes["periodic"] = d.int(0, 1)


@draws("DFT")
def dft(d: Draw) -> None:
    d.special = False
    inverse = d.coin(0.4)
    parts = 2 if inverse or d.coin() else 1
    d.add(d.array(d.type("T1", ("float", "double")), (d.int(1, 2), d.int(2, 6), parts)))
    d.attributes["inverse"] = int(inverse)
    if parts == 1 and d.coin():
        d.attributes["onesided"] = 1
    if d.coin(0.4):
        d.add(np.asarray(d.int(2, 7), np.int64), True)
    elif d.version >= 20:
        d.skip()
    if d.version >= 20:
        d.add(np.asarray(d.one([1, -2]), np.int64), True)
    else:
        d.attributes["axis"] = 1


@draws("Attention")
def attention(d: Draw) -> None:
    d.special = False
    batch, heads, size = d.int(1, 2), d.one([2, 4]), d.one([2, 4])
    groups = d.one([heads, heads // 2])
    queries, keys = d.int(1, 4), d.int(1, 5)
    if d.coin():
        d.tensor((batch, heads, queries, size), "T1", -1, 1)
        d.tensor((batch, groups, keys, size), "T1", -1, 1)
        d.tensor((batch, groups, keys, size), d.schema.inputs[2].type_str, -1, 1)
    else:
        d.tensor((batch, queries, heads * size), "T1", -1, 1)
        d.tensor((batch, keys, groups * size), "T1", -1, 1)
        d.tensor((batch, keys, groups * size), d.schema.inputs[2].type_str, -1, 1)
        d.attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    if d.coin():
        mask = (queries, keys) if d.coin() else (batch, 1, queries, keys)
        truth = np.ones(mask, bool)
        truth[..., 1:] = d.random.random(truth[..., 1:].shape) < 0.6
        d.add(truth if d.coin() else d.array(d.type("T1"), mask, -1, 1))
    if d.coin(0.4):
        d.attributes["is_causal"] = 1
    if d.coin(0.3):
        d.attributes["scale"] = 0.4
    if d.coin(0.3):
        d.attributes["softcap"] = 2.0


@draws("RotaryEmbedding")
def rotary(d: Draw) -> None:
    d.special = False
    batch, heads, length, size = d.int(1, 2), d.int(1, 3), d.int(1, 4), d.one([4, 8])
    flat = d.coin()
    d.tensor((batch, length, heads * size) if flat else (batch, heads, length, size), "T", -1, 1)
    turned = d.one([0, 0, size // 2])
    half = (turned or size) // 2
    positions = d.coin()
    table = (6, half) if positions else (batch, length, half)
    d.tensor(table, "T", -1, 1)
    d.tensor(table, "T", -1, 1)
    if positions:
        d.add(d.random.integers(0, 6, (batch, length)).astype(np.int64))
    d.attributes["interleaved"] = d.int(0, 1)
    if turned:
        d.attributes["rotary_embedding_dim"] = turned
    if flat or turned:
        d.attributes["num_heads"] = heads


@draws("SwiGLU")
def swiglu(d: Draw) -> None:
    d.special = False
    dims = d.dims(d.int(1, 3), 1)
    d.tensor(dims)
    d.tensor(dims)
    if d.coin():
        d.attributes["alpha"] = d.one([0.5, 1.5])


@draws("MelWeightMatrix")
def mel(d: Draw) -> None:
    for number in (d.int(3, 8), d.int(16, 32), 8000):
        d.add(np.asarray(number, np.int64), True)
    for edge in (d.one([0.0, 20.0]), d.one([3000.0, 4000.0])):
        d.add(np.asarray(edge, np.float32), True)
    d.bind("T3", "float")
