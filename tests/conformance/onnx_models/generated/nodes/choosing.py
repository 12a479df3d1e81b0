"""Draws operators whose results are as large as their inputs say, and those that count or put back."""

from __future__ import annotations

import math

import numpy as np

from tests.conformance.onnx_models.generated.draw import Draw, draws


@draws("Compress")
def compress(d: Draw) -> None:
    x = d.tensor(d.dims(d.int(1, 3), 1))
    axis = None
    if d.coin():
        axis = d.attributes["axis"] = d.axis(x.ndim, d.version >= 11)
    size = x.size if axis is None else x.shape[axis]
    d.add(d.random.random(d.int(1, size)) < 0.5, d.coin())


@draws("NonZero")
def non_zero(d: Draw) -> None:
    d.special = False
    d.add(d.array(d.type(), d.dims(d.int(1, 3)), 0, 1), d.coin())


@draws("Unique")
def unique(d: Draw) -> None:
    d.special = False  # the two differ in how NaN compare
    dims = (1,) * d.int(1, 3) if d.coin(0.2) else d.dims(d.int(1, 3), 1)
    x = d.add(np.round(d.array(d.type(), dims).astype(np.float64)).astype(d.array(d.type(), ()).dtype))
    if d.coin():
        d.attributes["axis"] = d.axis(x.ndim)
    d.attributes["sorted"] = d.int(0, 1)
    d.outputs = d.int(1, 4)


@draws("NonMaxSuppression")
def non_max_suppression(d: Draw) -> None:
    batches, classes, count = d.int(1, 2), d.int(1, 3), d.int(1, 12)
    d.add(d.random.integers(0, 8, (batches, count, 4)).astype(np.float32))
    d.add(
        (d.random.permutation(batches * classes * count) / 64)
        .astype(np.float32)
        .reshape(batches, classes, -1)
    )
    d.add(np.array([d.one((0, 1, 3, 99))]), d.coin())
    if d.coin(0.8):
        d.add(d.array("float", (1,), 0, 1), d.coin())
        if d.coin():
            d.add(d.array("float", (1,), 0, 1), d.coin())
    d.attributes["center_point_box"] = d.int(0, 1)


@draws("MaxUnpool")
def max_unpool(d: Draw) -> None:
    d.special = False
    spatial = d.int(1, 3)
    kernel = [d.int(1, 3) for _ in range(spatial)]
    strides = [d.int(1, 3) for _ in range(spatial)] if d.coin(0.6) else [1] * spatial
    dims = (d.int(1, 2), d.int(1, 2), *(d.int(1, 3) for _ in range(spatial)))
    d.tensor(dims, "T1")
    pads = [d.int(0, size - 1) if d.coin(0.2) else 0 for size in kernel * 2]
    cut = [low + high for low, high in zip(pads[:spatial], pads[spatial:], strict=True)]
    sizes = zip(dims[2:], strides, kernel, cut, strict=True)
    out = [max(size, (size - 1) * stride + window - less) for size, stride, window, less in sizes]
    places = d.random.permutation(dims[0] * dims[1] * math.prod(out))[: math.prod(dims)]
    d.add(places.reshape(dims).astype(np.int64))
    d.attributes = {"kernel_shape": kernel, "strides": strides}
    if any(pads):
        d.attributes["pads"] = pads
    elif d.coin(0.3):
        d.numbers([*dims[:2], *(size + d.int(0, 1) for size in out)])


@draws("TfIdfVectorizer")
def tf_idf(d: Draw) -> None:
    longest = d.int(1, 3)
    counts, pool, number = [], [], 0
    for size in range(1, longest + 1):
        counts.append(len(pool))
        grams = {tuple(d.int(0, 3) for _ in range(size)) for _ in range(d.int(1, 3))}
        number += len(grams)
        pool += [item for gram in sorted(grams) for item in gram]
    d.attributes = {
        "mode": d.one(["TF", "IDF", "TFIDF"]),
        "min_gram_length": d.int(1, longest),
        "max_gram_length": longest,
        "max_skip_count": d.int(0, 2),
        "ngram_counts": counts,
        "ngram_indexes": list(range(number)) if d.coin() else d.random.permutation(number).tolist(),
        "pool_int64s": pool,
    }
    if d.coin(0.3):
        d.attributes["weights"] = d.random.uniform(0.5, 2, number).tolist()
    dims = (d.int(1, 8),) if d.coin() else (d.int(1, 2), d.int(1, 8))
    d.add(d.random.integers(0, 4, dims).astype(d.one([np.int32, np.int64])))


@draws("OneHot")
def one_hot(d: Draw) -> None:
    d.special = False  # the reference multiplies by what is not chosen
    depth, dims = d.int(1, 5), d.dims(d.int(0, 3))
    name = d.type("T1", ("int64", "int32", "float", "int8", "uint8"))
    low = 0 if name == "uint8" else -depth - 1
    d.add(d.random.integers(low, depth + 2, dims).astype(d.array(name, ()).dtype), False)
    d.add(np.asarray([depth] if d.coin() else depth, np.int64), True)
    d.tensor((2,), "T3")
    if d.coin():
        d.attributes["axis"] = d.axis(len(dims) + 1)
