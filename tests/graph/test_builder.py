"""``kcache.Graph``: what it builds, what it rejects, and that bytes and graph are one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kcache_grpc as kcache
from kcache_grpc import ArgumentError, Graph, InvalidProgram
from kcache_grpc._proto.kcache.v1 import graph_pb2 as pb
from kcache_grpc.graph import Value
from kcache_grpc.graph.builder import MAGIC
from tests.graph.running import digest_of, graph_of, run, text_of


def small() -> tuple[Graph, Value]:
    graph = Graph()
    return graph, graph.input("x", "f32", (3, 4))


def test_it_is_part_of_the_public_surface():
    assert kcache.Graph is Graph


def test_it_needs_nothing_of_the_server():
    code = (
        "import sys, kcache_grpc.graph; bad = [m for m in sys.modules if m.split('.')[0] in "
        "('kcache_compiler', 'torch_mlir', 'llvmlite', 'sqlalchemy', 'grpc')]; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


OPERATORS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x, y: x + y, np.add),
    (lambda x, y: 2 - x, lambda x, y: 2 - x),
    (lambda x, y: x - 1.5, lambda x, y: x - 1.5),
    (lambda x, y: 3 * x * y, lambda x, y: 3 * x * y),
    (lambda x, y: 1 / abs(x), lambda x, y: 1 / abs(x)),
    (lambda x, y: x / y, np.divide),
    (lambda x, y: abs(x) ** y, lambda x, y: np.power(abs(x), y)),
    (lambda x, y: 2**x, lambda x, y: np.exp2(x)),
    (lambda x, y: -x, lambda x, y: -x),
    (lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    (lambda x, y: np.ones((2, 3), "f4") @ x, lambda x, y: np.ones((2, 3), "f4") @ x),
    (lambda x, y: np.ones((3, 4), "f4") + x, lambda x, y: 1 + x),
    (
        lambda x, y: (x < y) & (x > -1) | (y >= 2) ^ (x <= 0),
        lambda x, y: (x < y) & (x > -1) | (y >= 2) ^ (x <= 0),
    ),
    (lambda x, y: ~(x < y), lambda x, y: ~(x < y)),
    (lambda x, y: x.reshape((2, 6)).T, lambda x, y: x.reshape(2, 6).T),
    (lambda x, y: x[1, ::2].astype("f64"), lambda x, y: x[1, ::2].astype("f8")),
]


@pytest.mark.parametrize("index", range(len(OPERATORS)))
def test_operators(index: int):
    build, expected = OPERATORS[index]
    rng = np.random.default_rng(index)
    arrays = [rng.uniform(-2, 2, (3, 4)).astype("f4"), rng.uniform(0.5, 2, (3, 4)).astype("f4")]
    (got,) = run(graph_of(lambda _, *values: build(*values), arrays), arrays)
    wanted = expected(*arrays)
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got.astype("f8"), wanted.astype("f8"), 1e-5, 1e-6)


def test_values_are_compared_by_identity():
    _, x = small()
    assert x == x
    assert x != x + 1
    with pytest.raises(ArgumentError, match="no truth value"):
        bool(x < 1)
    with pytest.raises(ArgumentError, match="iterated"):
        list(x)


REJECTED: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("belongs to another graph", lambda g, x: g.exp(small()[1])),
    ("exp takes values, arrays and numbers, not str", lambda g, x: g.exp("x")),
    ("add of numbers only", lambda g, x: g.add(1, 2)),
    ("has a value 'x' already", lambda g, x: g.exp(x, name="x")),
    ("'f33' is no dtype: use one of i1", lambda g, x: g.convert(x, "f33")),
    ("NumPy's str32 is no dtype", lambda g, x: g.constant(np.array(["a"]))),
    ("have no dtype of their own", lambda g, x: g.constant(3.0)),
    ("no array can be made", lambda g, x: g.constant([[1], [1, 2]], "f32")),
    ("complex constant is no f32", lambda g, x: g.constant(np.ones(2, "c8"), "f32")),
    ("axis is 1.5, not an int", lambda g, x: g.softmax(x, axis=1.5)),
    ("axis is True, not an int", lambda g, x: g.softmax(x, axis=True)),
    ("axes is 0, not a sequence of ints", lambda g, x: g.reduce_sum(x, 0)),
    ("does not fit 64 bits", lambda g, x: g.reduce_sum(x, [1 << 70])),
    ("keepdims is 1, not a bool", lambda g, x: g.reduce_sum(x, keepdims=1)),
    ("epsilon is 'a', not a number", lambda g, x: g.layer_norm(x, epsilon="a")),
    ("approximate is 1, not a str", lambda g, x: g.gelu(x, approximate=1)),
    ("a size of the shape of 'y' is -2", lambda g, x: g.input("y", "f32", (-2,))),
    ("give a sequence of sizes", lambda g, x: g.input("y", "f32", 4)),
    ("a value's name is a str that is not empty", lambda g, x: g.input("", "f32", ())),
    ("is not valid Unicode", lambda g, x: g.exp(x, name="\ud800")),
    ("more than 256 bytes", lambda g, x: g.exp(x, name="ä" * 129)),
    ("the symbol 'a b'", lambda g, x: g.input("y", "f32", ("a b",))),
    ("approximate is not valid Unicode", lambda g, x: g.gelu(x, approximate="\ud800")),
    ("at most one '...'", lambda g, x: x[..., ...]),
    ("None behind '...'", lambda g, x: x[..., None]),
    ("the step -1 of a slice", lambda g, x: x[::-1]),
    ("'a' is no index", lambda g, x: x["a"]),
    ("use dynamic_slice for values", lambda g, x: x[x:]),
    ("'x' is no value of a graph", lambda g, x: g.output("x")),
    ("has no value 'q'", lambda g, x: g["q"]),
    ("the graph has no outputs", lambda g, x: g.to_bytes()),
]


@pytest.mark.parametrize(("words", "build"), REJECTED, ids=[words[:24] for words, _ in REJECTED])
def test_what_cannot_be_a_graph(words: str, build: Callable[[Graph, Value], Any]):
    with pytest.raises(ArgumentError) as caught:
        build(*small())
    assert words in str(caught.value)


def test_a_rejected_node_leaves_no_trace():
    graph, x = small()
    with pytest.raises(ArgumentError):
        graph.softmax(x, axis=1.5)  # pyright: ignore[reportArgumentType]
    graph.output(graph.softmax(x))
    assert len(pb.Graph.FromString(graph.to_bytes()).nodes) == 1


def test_dtypes_of_numpy_are_taken():
    for ours, theirs in (("f32", np.float32), ("f64", "float64"), ("i1", bool), ("ui16", np.dtype("u2"))):
        first, second = Graph(), Graph()
        first.output(first.input("x", ours, ()))
        second.output(second.input("x", theirs, ()))
        assert first.to_bytes() == second.to_bytes()


@pytest.mark.parametrize("values", [[1.0, 2.5, -3.0], [0.1, 1e-40, 3e38], [np.inf, -np.inf, np.nan]])
def test_bfloat16_constants_are_rounded_to_even(values: list[float]):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    graph = Graph()
    graph.constant(values, "bf16")
    graph.output(graph["constant_0"])
    (constant,) = pb.Graph.FromString(graph.to_bytes()).constants
    with np.errstate(all="ignore"):
        wanted = np.array(values, "f4").astype(ml_dtypes.bfloat16)
    assert constant.value.content == wanted.tobytes()


def test_equal_elements_are_sent_once():
    graph = Graph()
    graph.output(graph.constant(np.full((1000, 1000), 2, "f4")), graph.constant(np.zeros((0, 3), "f4")))
    assert len(graph.to_bytes()) < 200
    assert "dense<" in text_of(graph)


def test_bytes_begin_with_the_format():
    graph, x = small()
    graph.output(x)
    assert graph.to_bytes().startswith(MAGIC)
    assert MAGIC == b"\n\x0fkcache.graph.v1"


def test_a_graph_that_was_read_can_be_extended():
    graph, x = small()
    graph.output(graph.tanh(x, name="y"))
    read = Graph.from_bytes(graph.to_bytes())
    assert [value.name for value in read.inputs] == ["x"]
    assert [value.name for value in read.outputs] == ["y"]
    read.output(read.tanh(read["y"] + 1))
    graph.output(graph.tanh(graph["y"] + 1))
    assert digest_of(read) == digest_of(graph)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xff", "no kcache.v1.Graph"),
        (pb.Graph(format="v9").SerializeToString(), "format is 'v9'"),
        (
            pb.Graph(format="kcache.graph.v1", outputs=["q"]).SerializeToString(),
            "output 'q' is defined nowhere",
        ),
        (
            pb.Graph(format="kcache.graph.v1", inputs=[pb.GraphValue(name="q")] * 2).SerializeToString(),
            "defines 'q' twice",
        ),
    ],
)
def test_bytes_that_are_no_graph(body: bytes, words: str):
    with pytest.raises(InvalidProgram, match=words):
        Graph.from_bytes(body)


DIMS = st.lists(st.one_of(st.integers(1, 4), st.none(), st.sampled_from(["n", "m"])), max_size=3)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["tanh", "exp", "relu", "negate", "square", "softplus"]),
        st.integers(0, 30),
        st.one_of(st.none(), st.integers(0, 30), st.floats(-2, 2, width=32)),
    ),
    max_size=8,
)


@given(DIMS, STEPS, st.text(max_size=12))
def test_a_round_trip_keeps_graph_key_and_bytes(dims: list[Any], steps: list[Any], name: str):
    graph = Graph()
    values = [graph.input(name or "x", "f32", dims)]
    for op, place, other in steps:
        value = getattr(graph, op)(values[place % len(values)])
        if isinstance(other, float):
            value = value + other
        elif other is not None:
            value = value * values[other % len(values)]
        values.append(value)
    graph.output(values[-1], values[0])
    body = graph.to_bytes()
    read = Graph.from_bytes(body)
    assert read.to_bytes() == body
    assert [value.name for value in read.outputs] == [value.name for value in graph.outputs]
    assert text_of(read) == text_of(graph)
    assert digest_of(read) == digest_of(graph)
