"""One function, exported by JAX, by PyTorch and as ONNX, is one spec: bit-exact forms under every numerics
class, forms that differ in rounding under ``default``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

from kcache_compiler import canonicalize
from kcache_grpc.programs.source import read_source
from tests.conformance.onnx_models.build import ints, model, node

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
jnp = jax.numpy
functional = torch.nn.functional

Shape = tuple[int, ...]


class Case(NamedTuple):
    """One function in three words; ``exact``: bit for bit the same in each."""

    shapes: dict[str, Shape]
    of_jax: Callable[..., Any]
    of_torch: Callable[..., Any]
    nodes: Sequence[onnx.NodeProto]
    weights: Mapping[str, np.ndarray] = MappingProxyType({})
    exact: bool = True


def _number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _jax_layer_norm(x: Any, g: Any, b: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5) * g + b


def _jax_batch_norm(x: Any, *channels: Any) -> Any:
    g, b, m, v = (c[:, None, None] for c in channels)
    return (x - m) * jax.lax.rsqrt(v + 1e-5) * g + b


CASES: dict[str, Case] = {
    "bias and ReLU": Case(
        {"x": (4, 16), "b": (16,)},
        lambda x, b: jax.nn.relu(x + b),
        lambda x, b: torch.relu(x + b),
        [node("Add", ["x", "b"], ["h"]), node("Relu", ["h"], ["y"])],
    ),
    "matmul, bias and ReLU": Case(
        {"x": (4, 8), "w": (8, 16), "b": (16,)},
        lambda x, w, b: jax.nn.relu(x @ w + b),
        lambda x, w, b: torch.relu(torch.addmm(b, x, w)),
        [node("Gemm", ["x", "w", "b"], ["h"]), node("Relu", ["h"], ["y"])],
    ),
    "softmax": Case(
        {"x": (4, 8)},
        lambda x: jax.nn.softmax(x, -1),
        lambda x: torch.softmax(x, -1),
        [node("Softmax", ["x"], ["y"])],
    ),
    "sigmoid gate": Case(
        {"x": (4, 8), "z": (4, 8)},
        lambda x, z: jax.nn.sigmoid(x) * z,
        lambda x, z: torch.sigmoid(x) * z,
        [node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "z"], ["y"])],
    ),
    "residual add": Case(
        {"x": (4, 8), "z": (4, 8)},
        lambda x, z: x + z,
        lambda x, z: x + z,
        [node("Add", ["x", "z"], ["y"])],
    ),
    "attention scores": Case(
        {"q": (2, 3, 5, 4), "k": (2, 3, 6, 4)},
        lambda q, k: jnp.einsum("bhqd,bhkd->bhqk", q, k) / 2,
        lambda q, k: q @ k.transpose(-1, -2) / 2,
        [
            node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "t"], ["s"]),
            node("Div", ["s", "two"], ["y"]),
        ],
        {"two": _number(2)},
    ),
    "mean squared error": Case(
        {"x": (4, 8), "z": (4, 8)},
        lambda x, z: jnp.mean((x - z) ** 2),
        lambda x, z: functional.mse_loss(x, z),
        [
            node("Sub", ["x", "z"], ["d"]),
            node("Pow", ["d", "two"], ["q"]),
            node("ReduceMean", ["q"], ["y"], keepdims=0),
        ],
        {"two": _number(2)},
    ),
    "RMS norm": Case(
        {"x": (4, 8), "g": (8,)},
        lambda x, g: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * g,
        lambda x, g: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * g,
        [node("RMSNormalization", ["x", "g"], ["y"])],
    ),
    "convolution": Case(
        {"x": (2, 3, 8, 8), "w": (5, 3, 3, 3)},
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)]),
        lambda x, w: functional.conv2d(x, w, padding=1),
        [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
    ),
    "layer norm": Case(
        {"x": (4, 8), "g": (8,), "b": (8,)},
        _jax_layer_norm,
        lambda x, g, b: functional.layer_norm(x, (8,), g, b),
        [node("LayerNormalization", ["x", "g", "b"], ["y"])],
        exact=False,
    ),
    "GELU": Case(
        {"x": (4, 8)},
        lambda x: jax.nn.gelu(x, approximate=False),
        functional.gelu,
        [node("Gelu", ["x"], ["y"])],
        exact=False,
    ),
    "GELU by its parts": Case(
        {"x": (4, 8)},
        lambda x: jax.nn.gelu(x, approximate=False),
        functional.gelu,
        [
            node("Div", ["x", "root"], ["d"]),
            node("Erf", ["d"], ["e"]),
            node("Add", ["e", "one"], ["p"]),
            node("Mul", ["x", "p"], ["m"]),
            node("Mul", ["m", "half"], ["y"]),
        ],
        {"root": _number(2**0.5), "one": _number(1), "half": _number(0.5)},
        exact=False,
    ),
    "GELU by tanh": Case(
        {"x": (4, 8)},
        lambda x: jax.nn.gelu(x, approximate=True),
        functools.partial(functional.gelu, approximate="tanh"),
        [node("Gelu", ["x"], ["y"], approximate="tanh")],
        exact=False,
    ),
    "variance": Case(
        {"x": (4, 8)},
        lambda x: jnp.var(x, -1),
        lambda x: torch.var(x, -1, unbiased=False),
        [
            node("ReduceMean", ["x", "axis"], ["m"]),
            node("Sub", ["x", "m"], ["d"]),
            node("Mul", ["d", "d"], ["q"]),
            node("ReduceMean", ["q", "axis"], ["y"], keepdims=0),
        ],
        {"axis": ints(-1)},
        exact=False,
    ),
    "batch norm in inference": Case(
        {"x": (2, 3, 4, 4), "g": (3,), "b": (3,), "m": (3,), "v": (3,)},
        _jax_batch_norm,
        lambda x, g, b, m, v: functional.batch_norm(x, m, v, g, b),
        [node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"])],
        exact=False,
    ),
    "log-softmax": Case(
        {"x": (4, 8)},
        lambda x: jax.nn.log_softmax(x, -1),
        lambda x: torch.log_softmax(x, -1),
        [node("LogSoftmax", ["x"], ["y"])],
        exact=False,
    ),
}


def _spec(program: Any, numerics: str) -> str:
    source = read_source(program, None).program
    return canonicalize(source.body, source.format.value, numerics).spec_text


def _exported_by_jax(case: Case) -> Any:
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in case.shapes.values()]
    return jax.export.export(jax.jit(case.of_jax))(*arguments)


def _exported_by_torch(case: Case) -> Any:
    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return case.of_torch(*tensors)

    return torch.export.export(Module(), tuple(torch.randn(shape) for shape in case.shapes.values()))


@pytest.mark.sampled(24)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", CASES)
def test_three_frameworks_make_one_spec(name: str) -> None:
    case = CASES[name]
    proto = model(case.nodes, case.shapes, ["y"], case.weights, opset=23)
    programs = [_exported_by_jax(case), _exported_by_torch(case), proto]
    for numerics in ("strict", "default") if case.exact else ("default",):
        of_jax, of_torch, of_onnx = (_spec(program, numerics) for program in programs)
        assert of_onnx == of_jax
        assert of_onnx == of_torch
