"""Cells of recurrent nets, and perceptrons."""

from __future__ import annotations

from torch import Tensor, sigmoid, tanh
from torch.nn import functional as f


def gru_cell(x: Tensor, h: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    xr, xz, xn = (x @ w + b).chunk(3, -1)
    hr, hz, hn = (h @ u).chunk(3, -1)
    update = sigmoid(xz + hz)
    return (1 - update) * tanh(xn + sigmoid(xr + hr) * hn) + update * h


def lstm_cell(x: Tensor, h: Tensor, c: Tensor, w: Tensor, u: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    i, keep, g, o = (x @ w + h @ u + b).chunk(4, -1)
    c = sigmoid(keep) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def gelu_mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return f.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2


def gelu_erf_mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return f.linear(f.gelu(f.linear(x, w1, b1)), w2, b2)


def swiglu_mlp(x: Tensor, w: Tensor, v: Tensor, o: Tensor) -> Tensor:
    return (f.silu(x @ w) * (x @ v)) @ o


def onnx_mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return f.relu(f.linear(x, w1, b1)) @ w2 + b2


GRAPHS = {
    "gru_cell": lambda *a: (gru_cell(*a),),
    "lstm_cell": lstm_cell,
    "gelu_mlp": lambda *a: (gelu_mlp(*a),),
    "gelu_erf_mlp": lambda *a: (gelu_erf_mlp(*a),),
    "swiglu_mlp": lambda *a: (swiglu_mlp(*a),),
    "onnx_mlp": lambda *a: (onnx_mlp(*a),),
}
