"""ONNX operators whose results are as large as data says: the client cuts them to the kernel's counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import kcache_grpc as kcache
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=19, point=19)

Array = np.ndarray[Any, Any]
node = helper.make_node
X = np.array([[0, 1.5, 0], [-2, 0, np.nan], [0, 3, 4]], np.float32)


@pytest.fixture(scope="module")
def client(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kcache.Client]:
    cache = tmp_path_factory.mktemp("cache")
    with kcache.Client(server.address, cache_dir=cache, strict=True, timeout=240) as connected:
        yield connected


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[Any, list[int | str]]],
    outputs: dict[str, Any],
    constants: dict[str, Array] | None = None,
) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, kind(np.dtype(t)), dims) for n, (t, dims) in inputs.items()],
        [helper.make_tensor_value_info(name, kind(np.dtype(t)), None) for name, t in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def _same(results: tuple[Any, ...], expected: list[Any]) -> None:
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        array, other = np.asarray(result), np.asarray(wanted)
        assert array.dtype == other.dtype
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, other)


def test_nonzero(client: kcache.Client) -> None:
    kernel = client.compile(_model([node("NonZero", ["x"], ["y"])], {"x": ("f4", [3, 3])}, {"y": "i8"}))
    for x in (X, np.zeros_like(X), np.ones_like(X), -np.zeros_like(X)):
        for _ in range(2):  # the second call takes the fast path
            _same(kernel(x), [np.array(np.nonzero(x))])


def test_elements_by_a_mask_at_dynamic_sizes(client: kcache.Client) -> None:
    nodes = [
        node("NonZero", ["mask"], ["where"]),
        node("Transpose", ["where"], ["rows"]),
        node("GatherND", ["x", "rows"], ["part"]),
        node("Mul", ["part", "two"], ["y"]),
    ]
    inputs: dict[str, Any] = {"x": ("f4", ["n", 3]), "mask": (np.bool_, ["n", 3])}
    constants = {"two": np.array(2, np.float32)}
    kernel = client.compile(_model(nodes, inputs, {"y": "f4", "rows": "i8"}, constants))
    rng = np.random.default_rng(0)
    for count in (1, 2, 9):
        x, mask = rng.random((count, 3)).astype("f4"), rng.random((count, 3)) < 0.5
        _same(kernel(x, mask), [x[mask] * np.float32(2), np.argwhere(mask)])


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress(client: kcache.Client, axis: int | None) -> None:
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    nodes = [node("Compress", ["x", "c"], ["y"], **attributes)]
    kernel = client.compile(_model(nodes, {"x": ("f4", [3, 3]), "c": (np.bool_, [2])}, {"y": "f4"}))
    for condition in ([True, False], [False, False], [True, True]):
        _same(kernel(X, np.array(condition)), [np.compress(condition, X, axis)])


VALUES = [
    np.array([3, -0.0, np.nan, 0.0, 3, -1, np.nan, np.inf, -np.inf], np.float32),
    np.array([2, 2, 2, 1, 1, 7, 0, 2, 7], np.float32),
    np.zeros(9, np.float32),
]


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique(client: kcache.Client, is_sorted: int) -> None:
    names = ["y", "first", "inverse", "counts"]
    nodes = [node("Unique", ["x"], names, sorted=is_sorted)]
    outputs = {"y": "f4", **dict.fromkeys(names[1:], "i8")}
    kernel = client.compile(_model(nodes, {"x": ("f4", [9])}, outputs))
    for x in VALUES:
        y, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        if not is_sorted:
            order = np.argsort(first)
            y, first, inverse, counts = y[order], first[order], np.argsort(order)[inverse], counts[order]
        _same(kernel(x), [x[first], first, inverse, counts])
        np.testing.assert_array_equal(x[first], y)


@pytest.mark.parametrize("axis", [0, 1])
def test_unique_parts(client: kcache.Client, axis: int) -> None:
    names = ["y", "first", "inverse", "counts"]
    outputs = {"y": "i4", **dict.fromkeys(names[1:], "i8")}
    kernel = client.compile(
        _model([node("Unique", ["x"], names, axis=axis)], {"x": ("i4", [7, 6, 2])}, outputs)
    )
    x = np.random.default_rng(1).integers(0, 2, (7, 6, 2)).astype("i4")
    x[3], x[:, 4] = x[1], x[:, 2]
    y, first, inverse, counts = np.unique(x, True, True, True, axis)
    _same(kernel(x), [y, first, inverse.reshape(-1), counts])


def _suppressed(boxes: Array, scores: Array, most: int, overlap: float, least: float) -> Array:
    """The definition, one box at a time."""
    rows: list[tuple[int, int, int]] = []
    for batch, classes in enumerate(scores):
        for number, values in enumerate(classes):
            taken: list[int] = []
            for box in sorted(range(len(values)), key=lambda i: (-values[i], i)):
                shared = [_shared(boxes[batch, box], boxes[batch, other]) for other in taken]
                if values[box] > least and len(taken) < most and max(shared, default=0.0) <= overlap:
                    taken.append(box)
            rows += [(batch, number, box) for box in taken]
    return np.array(rows, np.int64).reshape(-1, 3)


def _shared(first: Array, other: Array) -> float:
    low = np.maximum(np.minimum(first[:2], first[2:]), np.minimum(other[:2], other[2:]))
    high = np.minimum(np.maximum(first[:2], first[2:]), np.maximum(other[:2], other[2:]))
    if (high <= low).any():
        return 0.0
    shared = np.prod(high - low)
    areas = [np.prod(np.abs(box[2:] - box[:2])) for box in (first, other)]
    return float(shared / (areas[0] + areas[1] - shared))


def test_non_max_suppression(client: kcache.Client) -> None:
    nodes = [node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["y"])]
    inputs: dict[str, Any] = {"boxes": ("f4", [2, 12, 4]), "scores": ("f4", [2, 3, 12]), "most": ("i8", [])}
    constants = {"overlap": np.array([0.4], "f4"), "least": np.array([0.2], "f4")}
    kernel = client.compile(_model(nodes, inputs, {"y": "i8"}, constants))
    rng = np.random.default_rng(2)
    for most in (0, 1, 4, 99):
        boxes = rng.integers(0, 8, (2, 12, 4)).astype("f4")
        scores = (rng.integers(0, 40, (2, 3, 12)) / 32).astype("f4")
        _same(kernel(boxes, scores, most), [_suppressed(boxes, scores, most, 0.4, 0.2)])


def test_results_follow_the_framework(client: kcache.Client) -> None:
    torch = pytest.importorskip("torch")
    kernel = client.compile(_model([node("NonZero", ["x"], ["y"])], {"x": ("f4", [3, 3])}, {"y": "i8"}))
    (result,) = kernel(torch.from_numpy(X))
    assert result.is_contiguous()
    assert result.tolist() == np.array(np.nonzero(X)).tolist()
    assert result.untyped_storage().nbytes() == 8 * result.numel()


@pytest.mark.parametrize("op", ["ReduceSum", "Shape", "Concat", "CumSum", "Add"])
def test_what_would_read_behind_the_count_is_unsupported(client: kcache.Client, op: str) -> None:
    more = {"Concat": ["where", "where"], "CumSum": ["where", "axis"], "Add": ["where", "wide"]}
    attributes: dict[str, Any] = {"axis": 1} if op == "Concat" else {}
    nodes = [
        node("NonZero", ["x"], ["where"]),
        node(op, more.get(op, ["where"]), ["y"], **attributes),
    ]
    constants = {"axis": np.array(1), "wide": np.arange(9)}
    with pytest.raises(kcache.UnsupportedOp, match=rf"{op}.*data-dependent size"):
        client.compile(_model(nodes, {"x": ("f4", [3, 3])}, {"y": "i8"}, constants))


def test_a_branch_cannot_return_one(client: kcache.Client) -> None:
    branches: dict[str, Any] = {
        f"{side}_branch": helper.make_graph(
            [node("NonZero", ["x"], [side])],
            side,
            [],
            [helper.make_tensor_value_info(side, TensorProto.INT64, None)],
        )
        for side in ("then", "else")
    }
    nodes = [node("If", ["c"], ["y"], **branches)]
    model = _model(nodes, {"x": ("f4", [3, 3]), "c": (np.bool_, [])}, {"y": "i8"})
    with pytest.raises(kcache.UnsupportedOp, match="data-dependent size"):
        client.compile(model)
