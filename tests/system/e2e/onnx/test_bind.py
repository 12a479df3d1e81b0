"""``Client.compile(model, bind=...)``: shapes, axes and counts that an ONNX model takes as inputs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import kcache_grpc as kcache
from kcache_grpc import aio
from kcache_grpc.programs.onnx.binding import bind_inputs
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=19, point=17)

Arrays = dict[str, Any]

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
#: name -> operator, attributes, inputs of each call, inputs that are bound.
CASES: dict[str, tuple[str, dict[str, Any], Arrays, Arrays]] = {
    "Reshape": ("Reshape", {}, {"x": X}, {"shape": [0, -1, 2]}),
    "Expand": ("Expand", {}, {"x": X[:, :1].copy()}, {"shape": [5, 2, 3, 1]}),
    "Tile": ("Tile", {}, {"x": X}, {"repeats": [1, 2, 3]}),
    "Slice": ("Slice", {}, {"x": X}, {"starts": [-1, 3], "ends": [-9, 0], "axes": [0, 2], "steps": [-1, -2]}),
    "Pad": ("Pad", {}, {"x": X}, {"pads": [0, 1, 4, 2, 0, 3], "value": np.float32(7)}),
    "Range": ("Range", {}, {}, {"start": np.float32(1), "limit": np.float32(6), "delta": np.float32(1.5)}),
    "Resize": (
        "Resize",
        {"mode": "linear"},
        {"x": X[None]},
        {"roi": np.zeros(0, "f"), "scales": np.array([1, 1, 2, 0.5], "f")},
    ),
    "OneHot": (
        "OneHot",
        {},
        {"indices": np.array([3, 0, -1])},
        {"depth": 4, "values": np.array([2, 5], "f")},
    ),
    "ReduceSum": ("ReduceSum", {}, {"x": X}, {"axes": [-1, 0]}),
    "TopK": ("TopK", {"axis": 1}, {"x": X}, {"k": [2]}),
}


def _model(op: str, attributes: dict[str, Any], calls: Arrays, bound: Arrays) -> onnx.ModelProto:
    arrays = {name: np.asarray(value) for name, value in {**calls, **bound}.items()}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    results = ["y", "z"] if op == "TopK" else ["y"]
    kinds = {"TopK": [TensorProto.FLOAT, TensorProto.INT64]}.get(op, [TensorProto.FLOAT])
    outputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(results, kinds, strict=True)]
    graph = helper.make_graph(
        [helper.make_node(op, list(arrays), results, **attributes)], "g", inputs, outputs
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=240) as connected:
        yield connected


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_inputs_that_are_shapes_are_bound_to_values(client: kcache.Client, name: str) -> None:
    op, attributes, calls, bound = CASES[name]
    model = _model(op, attributes, calls, bound)
    first = next(iter(bound))
    with pytest.raises(kcache.UnsupportedOp, match=rf'bind={{"{name_of_error(name, first)}": values}}'):
        client.compile(model)
    kernel = client.compile(model, bind=bound)
    feeds = {name: np.asarray(value) for name, value in {**calls, **bound}.items()}
    expected = ReferenceEvaluator(model).run(None, feeds)
    result = kernel(*calls.values())
    for array, wanted in zip(result, expected, strict=True):
        np.testing.assert_allclose(np.asarray(array), np.asarray(wanted), rtol=1e-6)


def name_of_error(case: str, first: str) -> str:
    """The input that the operator asks for first."""
    return {"Resize": "scales", "Slice": "starts"}.get(case, first)


def test_other_values_are_other_kernels(client: kcache.Client) -> None:
    model = _model(*CASES["Reshape"])
    for shape in ([6, 4], [4, 6], [24]):
        assert np.asarray(client.compile(model, bind={"shape": _padded(shape)})(X)).size == 24


def _padded(shape: list[int]) -> list[int]:
    return [*shape, *[1] * (3 - len(shape))]


def test_the_asynchronous_client_binds_too(server: ServerProcess, tmp_path: Path) -> None:
    async def compiled() -> Any:
        async with aio.Client(server.address, cache_dir=tmp_path, strict=True, timeout=240) as client:
            kernel = await client.compile(_model(*CASES["Tile"]), bind={"repeats": [2, 1, 1]})
            return np.asarray(kernel(X)[0])

    np.testing.assert_array_equal(asyncio.run(compiled()), np.tile(X, (2, 1, 1)))


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ({"shapes": [1]}, "no input of the model; its inputs: 'x', 'shape'"),
        ({"shape": [2, 3]}, "has shape .2.; declared is .3."),
        ({"shape": [0.5, 1, 2]}, "does not fit its type, int64"),
        ({"shape": ["a", "b", "c"]}, "no array of numbers"),
    ],
)
def test_values_that_fit_no_input_are_rejected(client: kcache.Client, bind: Arrays, message: str) -> None:
    with pytest.raises(kcache.ArgumentError, match=message):
        client.compile(_model(*CASES["Reshape"]), bind=bind)


def test_only_models_have_inputs_to_bind(client: kcache.Client) -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    with pytest.raises(kcache.ArgumentError, match="bind= is for ONNX models"):
        client.compile(text, bind={"x": [1, 2]})
    with pytest.raises(kcache.ArgumentError, match="bind= is for ONNX models"):
        client.compile(text, format="stablehlo", bind={"x": [1, 2]})


def test_a_default_value_gives_way_to_the_bound_one() -> None:
    model = _model(*CASES["Reshape"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([24, 1, 1]), "shape"))
    bound = onnx.load_from_string(bind_inputs(model.SerializeToString(), {"shape": [4, 3, 2]}))
    assert [info.name for info in bound.graph.input] == ["x"]
    (shape,) = bound.graph.initializer
    assert onnx.numpy_helper.to_array(shape).tolist() == [4, 3, 2]


def test_a_damaged_model_is_rejected() -> None:
    whole = _model(*CASES["Reshape"]).SerializeToString()
    name = whole.rindex(b"shape")  # of the input; lengths before it are those of whole messages
    for size in range(name):
        with pytest.raises(kcache.ArgumentError):
            bind_inputs(whole[:size], {"shape": [4, 3, 2]})
    damaged = bytearray(whole)
    damaged[name - 1] = 0xFF
    with pytest.raises(kcache.ArgumentError, match="damaged"):
        bind_inputs(bytes(damaged), {"shape": [4, 3, 2]})
