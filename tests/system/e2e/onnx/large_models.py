"""Writers of models of known architectures, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tests.conformance.onnx_models.build import model, node, value


class _Draft:
    """Nodes and weights in the making."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self._rng = np.random.default_rng(1)

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(node(name, list(inputs), [output], **attributes))
        return output

    def weight(self, *dims: int, scale: float = 1.0, offset: float = 0.0) -> str:
        name = f"w{len(self.weights)}"
        drawn = self._rng.standard_normal(dims, np.float32)
        self.weights[name] = drawn * np.float32(scale) + np.float32(offset)
        return name


def resnet50() -> onnx.ModelProto:
    """ResNet-50 for one image of 224 x 224: 25.6 million parameters."""
    draft = _Draft()

    def convolution(x: str, old: int, new: int, size: int, stride: int, relu: bool = True) -> str:
        kernel = draft.weight(new, old, size, size, scale=(2.0 / (old * size * size)) ** 0.5)
        pads = [size // 2] * 4
        x = draft.op("Conv", x, kernel, kernel_shape=[size, size], strides=[stride, stride], pads=pads)
        moments = [draft.weight(new, scale=0.1, offset=at) for at in (1.0, 0.0, 0.0)]
        variance = draft.weight(new, scale=0.05, offset=1.0)
        x = draft.op("BatchNormalization", x, *moments, variance)
        return draft.op("Relu", x) if relu else x

    x = convolution("image", 3, 64, 7, 2)
    x = draft.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for width, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            stride = first if index == 0 else 1
            inner = convolution(x, channels, width, 1, 1)
            inner = convolution(inner, width, width, 3, stride)
            inner = convolution(inner, width, 4 * width, 1, 1, relu=False)
            if index == 0:
                x = convolution(x, channels, 4 * width, 1, stride, relu=False)
            x = draft.op("Relu", draft.op("Add", inner, x))
            channels = 4 * width
    x = draft.op("Flatten", draft.op("GlobalAveragePool", x))
    x = draft.op("Gemm", x, draft.weight(1000, 2048, scale=0.02), draft.weight(1000), transB=1)
    return model(draft.nodes, [value("image", [1, 3, 224, 224])], [x], draft.weights)


def bert(path: Path, layers: int = 24, width: int = 1024, heads: int = 16, tokens: int = 32) -> None:
    """BERT-large for one row of 32 tokens, 334 million parameters, in ``path`` and the ``.bin`` beside it."""
    draft = _Draft()

    def linear(x: str, old: int, new: int) -> str:
        product = draft.op("MatMul", x, draft.weight(old, new, scale=old**-0.5))
        return draft.op("Add", product, draft.weight(new, scale=0.02))

    def norm(x: str) -> str:
        parts = draft.weight(width, scale=0.1, offset=1.0), draft.weight(width, scale=0.1)
        return draft.op("LayerNormalization", x, *parts)

    def split(x: str, order: list[int]) -> str:
        return draft.op("Transpose", draft.op("Reshape", x, "heads"), perm=order)

    x = draft.op("Gather", draft.weight(30_522, width), "tokens")
    x = norm(draft.op("Add", x, draft.weight(tokens, width)))
    for _ in range(layers):
        query, key, values = (linear(x, width, width) for _ in range(3))
        scores = draft.op("MatMul", split(query, [0, 2, 1, 3]), split(key, [0, 2, 3, 1]))
        chances = draft.op("Softmax", draft.op("Div", scores, "root"), axis=-1)
        mixed = draft.op("MatMul", chances, split(values, [0, 2, 1, 3]))
        mixed = draft.op("Reshape", draft.op("Transpose", mixed, perm=[0, 2, 1, 3]), "rows")
        x = norm(draft.op("Add", x, linear(mixed, width, width)))
        inner = linear(x, width, 4 * width)
        half = draft.op("Add", draft.op("Erf", draft.op("Div", inner, "root2")), "one")
        inner = draft.op("Mul", draft.op("Mul", inner, half), "half")
        x = norm(draft.op("Add", x, linear(inner, 4 * width, width)))
    constants = {
        "heads": np.array([1, tokens, heads, width // heads], np.int64),
        "rows": np.array([1, tokens, width], np.int64),
        "root": np.float32((width // heads) ** 0.5),
        "root2": np.float32(2.0**0.5),
        "one": np.float32(1),
        "half": np.float32(0.5),
    }
    inputs = [value("tokens", [1, tokens], TensorProto.INT64)]
    weights = {**draft.weights, **{name: np.asarray(array) for name, array in constants.items()}}
    proto = model(draft.nodes, inputs, [x], weights)
    location = path.with_suffix(".bin").name
    onnx.save(proto, path, save_as_external_data=True, location=location)
