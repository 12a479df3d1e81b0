"""Models from nodes, inputs for them, and the reference's results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper
from onnx.reference import ReferenceEvaluator

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Dims = Sequence[int | str]
Array = np.ndarray

node = helper.make_node


def value(name: str, dims: Dims, element: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, list(dims))


def weight(*dims: int, seed: int = 0, scale: float = 0.5) -> Array:
    return (np.random.default_rng([seed, *dims]).normal(size=dims) * scale).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Dims] | Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str | onnx.ValueInfoProto],
    weights: Mapping[str, Array] | None = None,
    opset: int = 21,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A checked model. Outputs given by name are f32 of unstated shape."""
    input_infos = [value(n, d) for n, d in inputs.items()] if isinstance(inputs, Mapping) else list(inputs)
    output_infos = [helper.make_tensor_value_info(o, F32, None) if isinstance(o, str) else o for o in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", input_infos, output_infos, tensors)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions)


def arrays_for(proto: onnx.ModelProto, sizes: Mapping[str, int] | None = None, seed: int = 1) -> list[Array]:
    """Inputs of a model: normal floats, small non-negative integers, coin flips."""
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for info in proto.graph.input:
        tensor = info.type.tensor_type
        dims = [
            d.dim_value if d.HasField("dim_value") else (sizes or {})[d.dim_param] for d in tensor.shape.dim
        ]
        if tensor.elem_type == F32:
            arrays.append(rng.normal(size=dims).astype(np.float32))
        else:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            arrays.append(rng.integers(0, 2 if tensor.elem_type == BOOL else 6, dims).astype(dtype))
    return arrays


def reference(proto: onnx.ModelProto, arrays: Sequence[Array]) -> list[Array]:
    names = [info.name for info in proto.graph.input]
    evaluator = ReferenceEvaluator(inliner.inline_local_functions(proto))
    results: Any = evaluator.run(None, dict(zip(names, arrays, strict=True)))
    return [np.asarray(result) for result in results]


def reweighted(proto: onnx.ModelProto, change: Callable[[Array], Array] | None = None) -> onnx.ModelProto:
    """The same model with other float weights; ``scales`` are sizes, not weights."""
    other = copy.deepcopy(proto)
    for tensor in other.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1 and tensor.name != "scales":
            new = array * np.float32(0.75) + np.float32(0.125) if change is None else change(array)
            tensor.CopyFrom(numpy_helper.from_array(new.astype(np.float32), tensor.name))
    return other


def assert_close(got: Sequence[Array], want: Sequence[Array], tolerance: float = 2e-5) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, b)
