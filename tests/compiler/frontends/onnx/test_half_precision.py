"""ONNX in f16 and bf16: sums over many elements round once, not at each element, in every numerics class."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel

pytestmark = pytest.mark.issue(number=19, point=5)

NUMERICS = ("strict", "default", "fast")
TYPES: dict[str, tuple[int, Any]] = {
    "f16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}


def _kernel(nodes: list[onnx.NodeProto], inputs: list[Any], dtype: str, numerics: str) -> Kernel:
    kind = TYPES[dtype][0]
    declared = [
        helper.make_tensor_value_info(name, kind, array.shape)
        for name, array in zip("abcdef", inputs, strict=False)
    ]
    result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(nodes, "graph", declared, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    canonical = canonicalize(model.SerializeToString(), "onnx", numerics)
    options = CompileOptions(numerics=numerics)
    return Kernel(compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v3", options, lambda _: None))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numerics", NUMERICS)
def test_attention_of_repeated_heads_is_as_near_to_f64_as_its_roundings_allow(numerics: str) -> None:
    """The function body of ONNX's ``gqa_with_past_and_present``, whose heads of keys repeat three times."""
    rng = np.random.default_rng(19)
    shapes = [(2, 9, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8), (4, 18), (2, 3, 12, 8), (2, 3, 12, 8)]
    q, k, v, mask, past_k, past_v = arrays = [rng.random(shape).astype(np.float16) for shape in shapes]
    node = helper.make_node
    nodes = [
        node("Constant", [], ["scale"], value=_array(np.array(8**-0.25, np.float16))),
        node("Constant", [], ["two"], value=_array(np.array([2]))),
        node("Constant", [], ["repeated"], value=_array(np.array([2, 3, 3, 18, 8]))),
        node("Constant", [], ["heads"], value=_array(np.array([2, 9, 18, 8]))),
        node("Concat", ["e", "b"], ["keys"], axis=2),
        node("Concat", ["f", "c"], ["values"], axis=2),
    ]
    for name in ("keys", "values"):
        nodes += [
            node("Unsqueeze", [name, "two"], [f"{name}1"]),
            node("Expand", [f"{name}1", "repeated"], [f"{name}3"]),
            node("Reshape", [f"{name}3", "heads"], [f"{name}9"]),
        ]
    nodes += [
        node("Transpose", ["keys9"], ["turned"], perm=[0, 1, 3, 2]),
        node("Mul", ["a", "scale"], ["queries"]),
        node("Mul", ["turned", "scale"], ["scaled"]),
        node("MatMul", ["queries", "scaled"], ["products"]),
        node("Add", ["products", "d"], ["scores"]),
        node("Softmax", ["scores"], ["weights"]),
        node("MatMul", ["weights", "values9"], ["y"]),
    ]
    (result,) = _kernel(nodes, arrays, "f16", numerics)(*arrays)
    q, k, v, mask, past_k, past_v = (array.astype("f8") for array in arrays)
    keys = np.concatenate([past_k, k], 2).repeat(3, 1)
    scores = q @ keys.swapaxes(2, 3) / math.sqrt(8) + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    exact = weights @ np.concatenate([past_v, v], 2).repeat(3, 1)
    assert np.abs(result - exact).max() <= 2**-11  # one unit in the last place of results below 1


def _array(array: np.ndarray[Any, Any]) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(array)


CASES: dict[str, tuple[list[tuple[int, ...]], dict[str, Any], Any]] = {
    "MatMul": ([(3, 700), (700, 5)], {}, lambda a, b: a @ b),
    "Gemm": ([(700, 3), (700, 5)], {"transA": 1}, lambda a, b: a.T @ b),
    "Einsum": ([(700, 3), (700, 5)], {"equation": "ki,kj->ij"}, lambda a, b: a.T @ b),
    "Conv": (
        [(1, 80, 3, 3), (2, 80, 3, 3)],
        {},
        lambda a, b: np.einsum("nchw,ochw->no", a, b)[..., None, None],
    ),
    "ReduceMean": ([(700, 3)], {"axes": [0], "keepdims": 0}, lambda a: a.mean(0)),
    "ReduceL2": ([(700, 3)], {"axes": [0], "keepdims": 0}, lambda a: np.sqrt((a * a).sum(0))),
    "ReduceLogSumExp": ([(3, 700)], {"axes": [1], "keepdims": 0}, lambda a: np.log(np.exp(a).sum(1))),
    "AveragePool": (
        [(1, 2, 20, 20)],
        {"kernel_shape": [20, 20]},
        lambda a: a.mean((2, 3), keepdims=True),
    ),
    "Softmax": ([(3, 700)], {}, lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True)),
    "LogSoftmax": ([(3, 700)], {}, lambda a: a - np.log(np.exp(a).sum(1, keepdims=True))),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("dtype", "numerics"), [("f16", "strict"), ("bf16", "default")])
@pytest.mark.parametrize("op", CASES)
def test_sums_of_many_elements_round_once(op: str, dtype: str, numerics: str) -> None:
    shapes, attributes, exact = CASES[op]
    rng = np.random.default_rng(5)
    inputs = [rng.random(shape).astype(TYPES[dtype][1]) for shape in shapes]
    names = list("ab"[: len(inputs)])
    (result,) = _kernel([helper.make_node(op, names, ["y"], **attributes)], inputs, dtype, numerics)(*inputs)
    wanted = exact(*(array.astype("f8") for array in inputs))
    unit = 2.0 ** {"f16": -11, "bf16": -8}[dtype]
    # A rounding of the sum is half a unit; AveragePool and what follows a sum may add another.
    np.testing.assert_allclose(result.astype("f8"), wanted, rtol=2.01 * unit, atol=0)
