"""``kcache_grpc.onnx.InferenceSession`` beside ONNX Runtime's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.local_files import KcacheWarning

onnx: Any = pytest.importorskip("onnx")
onnxruntime: Any = pytest.importorskip("onnxruntime")
InferenceSession: Any = import_module("kcache_grpc.onnx").InferenceSession
helper: Any = onnx.helper
FLOAT, INT64 = 1, 7


def info(name: str, shape: list[Any], dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def make_model(nodes: Any, inputs: Any, outputs: Any, weights: dict[str, Any] | None = None) -> Any:
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants, doc_string="of a test")
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
        producer_name="tests",
        model_version=3,
    )
    onnx.checker.check_model(model)
    return model


def classifier(batch: Any = "n", width: int = 40) -> Any:
    """Two layers, and the sum of the inputs. A width of 12,000 is more than 1 MiB of weights."""
    rng = np.random.default_rng(5)
    weights = {
        "w": rng.standard_normal((24, width), np.float32),
        "b": rng.standard_normal(width, np.float32),
        "v": rng.standard_normal((width, 7), np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["logits"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
    ]
    return make_model(
        nodes, [info("x", [batch, 24])], [info("logits", [batch, 7]), info("total", [])], weights
    )


def described(session: Any) -> Any:
    meta = session.get_modelmeta()
    names = ("custom_metadata_map", "description", "domain", "graph_description", "graph_name")
    nodes = [*session.get_inputs(), *session.get_outputs(), *session.get_overridable_initializers()]
    return (
        [(node.name, node.type, node.shape) for node in nodes],
        [getattr(meta, name) for name in (*names, "producer_name", "version")],
    )


def reference(model: Any) -> Any:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("batch", "width"), [(5, 40), ("n", 12000)], ids=["static", "dynamic"])
def test_results_and_description(client: kcache.Client, batch: Any, width: int, tmp_path: Path) -> None:
    model = classifier(batch, width)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    expected = reference(model)
    for program in (model, model.SerializeToString(), path, str(path)):
        session = InferenceSession(program, client=client, providers=["CPUExecutionProvider"])
        assert described(session) == described(expected)
        assert session.get_providers() == ["KcacheExecutionProvider"]
        for rows in (5,) if batch == 5 else (1, 5, 12):
            x = np.random.default_rng(rows).standard_normal((rows, 24), np.float32)
            results = session.run(None, {"x": x})
            for ours, theirs in zip(results, expected.run(None, {"x": x}), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)
        (kernel,) = session.kernels
        assert (kernel.manifest.preparation is not None) == (width > 40)


def test_chosen_outputs_and_lists(client: kcache.Client) -> None:
    session = InferenceSession(classifier(2), client=client)
    x = np.arange(48, dtype=np.float32).reshape(2, 24)
    logits, total = session.run([], {"x": x})
    assert [float(v) for v in session.run(["total"], {"x": x.tolist()})] == [x.sum()]
    again, first = session.run(["total", "logits"], {"x": np.asfortranarray(x)})
    np.testing.assert_array_equal(first, logits)
    np.testing.assert_array_equal(again, total)


def test_external_data(client: kcache.Client, tmp_path: Path) -> None:
    model, path = classifier(3), tmp_path / "model.onnx"
    expected = reference(model)
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    x = np.ones((3, 24), np.float32)
    results = InferenceSession(path, client=client).run(None, {"x": x})
    np.testing.assert_allclose(results[0], expected.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)


def test_inputs_with_default_values(client: kcache.Client) -> None:
    scale = np.full((4,), 3, np.float32)
    model = make_model(
        [helper.make_node("Mul", ["x", "s"], ["y"])],
        [info("x", [2, 4]), info("s", [4])],
        [info("y", [2, 4])],
        {"s": scale},
    )
    session = InferenceSession(model, client=client)
    assert described(session) == described(reference(model))
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * 3)
    np.testing.assert_array_equal(session.run(None, {"x": x, "s": scale * 2})[0], x * 6)


def test_inputs_that_are_shapes(client: kcache.Client, tmp_path: Path) -> None:
    model = make_model(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        [info("x", [6]), info("shape", [2], INT64)],
        [info("y", [None, None])],
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    for program in (model, path):
        session = InferenceSession(program, client=client)
        for shape in ((2, 3), (3, 2), (2, 3)):
            feed = {"x": np.arange(6, dtype=np.float32), "shape": np.asarray(shape)}
            assert session.run(None, feed)[0].shape == shape
        assert len(session.kernels) == 2
    with pytest.raises(kcache.ArgumentError, match="'x' must be"):
        session.run(None, {"x": np.zeros(4, np.float32), "shape": np.asarray([2, 2])})
    with pytest.raises(kcache.ArgumentError, match="'shape' must be"):
        session.run(None, {"x": np.zeros(6, np.float32), "shape": np.asarray([2, 3], np.int32)})


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({}, "missing"),
        ({"x": np.ones((2, 24), np.float32), "y": 1}, "no input 'y'"),
        ({"x": np.ones((2, 24))}, "x"),
        ({"x": np.ones((2, 23), np.float32)}, "x"),
        ({"x": np.ones(24, np.float32)}, "x"),
    ],
    ids=["missing", "unknown", "dtype", "size", "rank"],
)
def test_wrong_feeds(client: kcache.Client, feed: dict[str, Any], message: str) -> None:
    with pytest.raises(kcache.ArgumentError, match=message):
        InferenceSession(classifier(), client=client).run(None, feed)


def test_wrong_arguments(client: kcache.Client, tmp_path: Path) -> None:
    session = InferenceSession(classifier(), client=client)
    with pytest.raises(kcache.ArgumentError, match="no output 'z'"):
        session.run(["z"], {"x": np.ones((2, 24), np.float32)})
    with pytest.raises(kcache.NotFound, match="absent"):
        InferenceSession(tmp_path / "absent.onnx", client=client)
    with pytest.raises(kcache.ArgumentError, match="cannot be read"):
        InferenceSession(tmp_path, client=client)
    with pytest.raises(kcache.InvalidProgram, match="no ONNX model"):
        InferenceSession(b"\xff\xff", client=client)
    with pytest.raises(kcache.ArgumentError, match="pass a path"):
        InferenceSession(3, client=client)
    with pytest.raises(kcache.ArgumentError, match="fallback"):
        InferenceSession(classifier(), client=client, fallback="eager")
    with pytest.warns(KcacheWarning, match="not on CUDAExecutionProvider"):
        InferenceSession(classifier(), providers=[("CUDAExecutionProvider", {})], client=client)


def test_models_without_a_kernel(client: kcache.Client) -> None:
    sequence = helper.make_tensor_sequence_value_info("y", FLOAT, [2])
    model = make_model(
        [helper.make_node("SequenceConstruct", ["x", "x"], ["y"])], [info("x", [2])], [sequence]
    )
    with pytest.raises(kcache.UnsupportedOp, match="'y' is no tensor"):
        InferenceSession(model, client=client)
    with pytest.warns(KcacheWarning, match="ONNX Runtime runs the model: UnsupportedOp"):
        session = InferenceSession(model, client=client, fallback="onnxruntime")
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0][1], x)
    assert isinstance(session.failure, kcache.UnsupportedOp)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert [node.name for node in session.get_inputs()] == ["x"]


def test_threads(client: kcache.Client) -> None:
    session, expected = InferenceSession(classifier(), client=client), reference(classifier())

    def run(rows: int) -> bool:
        x = np.full((rows, 24), rows / 7, np.float32)
        return np.allclose(session.run(None, {"x": x})[0], expected.run(None, {"x": x})[0], 1e-4, 1e-4)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(1, 33)))
