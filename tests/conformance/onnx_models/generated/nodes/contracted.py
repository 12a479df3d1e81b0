"""Draws products, determinants and losses."""

from __future__ import annotations

import numpy as np

from tests.conformance.onnx_models.generated.draw import Draw, draws


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
    if d.op == "SoftmaxCrossEntropyLoss":
        d.outputs = d.int(1, 2)
