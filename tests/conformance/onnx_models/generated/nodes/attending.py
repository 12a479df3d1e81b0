"""Draws attention and what stands beside it in transformers."""

from __future__ import annotations

import numpy as np

from tests.conformance.onnx_models.generated.draw import Draw, data_type, draws


@draws("Attention")
def attention(d: Draw) -> None:
    d.special = False
    batch, heads, size = d.int(1, 2), d.one([2, 4]), d.one([2, 4])
    groups = d.one([heads, heads // 2])
    wide = d.one([size, 3])
    queries, keys = d.int(1, 4), d.int(1, 5)
    values = d.schema.inputs[2].type_str
    flat = d.coin()
    if flat:
        d.tensor((batch, queries, heads * size), "T1", -1, 1)
        d.tensor((batch, keys, groups * size), "T1", -1, 1)
        d.tensor((batch, keys, groups * wide), values, -1, 1)
        d.attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    else:
        d.tensor((batch, heads, queries, size), "T1", -1, 1)
        d.tensor((batch, groups, keys, size), "T1", -1, 1)
        d.tensor((batch, groups, keys, wide), values, -1, 1)
    past = d.int(1, 3) if d.coin(0.3) else 0
    _mask(d, batch, heads, queries, keys + past)
    if past:
        d.tensor((batch, groups, past, size), "T1", -1, 1)
        d.tensor((batch, groups, past, wide), values, -1, 1)
    elif d.version >= 24 and d.coin(0.2):
        d.skip()
        d.skip()
        d.numbers([d.int(1, keys) for _ in range(batch)], d.coin())
    _numbers(d)
    if past:
        d.outputs = d.one([3, 4]) if d.coin(0.7) else 1
    elif d.coin(0.2):
        d.outputs = 4


def _mask(d: Draw, batch: int, heads: int, queries: int, keys: int) -> None:
    if d.coin(0.4):
        d.skip()
        return
    shapes = [(queries, keys), (batch, 1, queries, keys), (1, heads, queries, keys), (batch, heads, 1, keys)]
    mask = d.one(shapes[: 3 if d.coin(0.8) else 4])
    truth = np.ones(mask, bool)
    truth[..., 1:] = d.random.random(truth[..., 1:].shape) < 0.6
    if d.coin(0.1):
        truth[..., :1, :] = False
    if d.coin():
        d.add(truth)
    elif d.coin():
        d.add(d.array(d.type("T1"), mask, -1, 1))
    else:
        d.add(np.where(truth, 0, -np.inf).astype(d.array(d.type("T1"), ()).dtype))


def _numbers(d: Draw) -> None:
    if d.coin(0.4):
        d.attributes["is_causal"] = 1
    if d.coin(0.3):
        d.attributes["scale"] = 0.4
    if d.coin(0.3):
        d.attributes["softcap"] = 2.0
    if d.coin(0.2):
        d.attributes["qk_matmul_output_mode"] = d.int(0, 3)
    if d.coin(0.1):
        d.attributes["softmax_precision"] = data_type(d.one(["float", "double"]))
    for side in ("left", "right"):
        name = f"{side}_window_size"
        if name in d.schema.attributes and d.coin(0.2):
            d.attributes[name] = d.int(0, 3)


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
