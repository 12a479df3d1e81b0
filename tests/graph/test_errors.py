"""What is wrong with a graph is said at once, of the node, in words; never by a crash, a hang or raw MLIR."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from kcache_compiler import canonicalize
from kcache_compiler.errors import CompilerError, InvalidProgram, LimitExceeded, UnsupportedOp
from kcache_compiler.frontends.graph.lower import lower_graph
from kcache_grpc import Graph
from kcache_grpc._proto.kcache.v1 import graph_pb2 as pb
from kcache_grpc.graph import Value
from kcache_grpc.worker.child.graph_program import decode_graph
from tests.graph.running import LIMITS

F32 = "DATA_TYPE_F32"


def rejected(body: bytes, kind: type[CompilerError] = InvalidProgram) -> str:
    """The message with which a graph is rejected, which must not take long."""
    began = time.process_time()
    with pytest.raises(kind) as caught:
        canonicalize(decode_graph(body, LIMITS), "graph")
    assert time.process_time() - began < 10
    message = str(caught.value)
    assert len(message) < 1500
    return message


def rejected_graph(
    build: Callable[..., Any], *types: tuple[str, tuple[Any, ...]], kind: Any = InvalidProgram
) -> str:
    """The same of what ``build`` makes of inputs x, y, z."""
    graph = Graph()
    values = [graph.input(name, *type) for name, type in zip("xyzuvw", types, strict=False)]
    outputs = build(graph, *values)
    graph.output(*([outputs] if isinstance(outputs, Value) else outputs))
    return rejected(graph.to_bytes(), kind)


def message(**fields: Any) -> bytes:
    """A graph of one input x f32[4], with these fields besides."""
    value = pb.GraphValue(name="x", dtype=F32, dims=[pb.GraphDimension(size=4)])
    rest = {"format": "kcache.graph.v1", "inputs": [value], "outputs": ["x"]} | fields
    return pb.Graph(**rest).SerializeToString()


def node(op: str, operands: list[str], results: list[str], **attributes: pb.GraphAttribute) -> pb.GraphNode:
    return pb.GraphNode(op=op, operands=operands, results=results, attributes=list(attributes.values()))


# -- the message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no kcache.v1.Graph with a format"),
        (b"\xff", "no serialized message"),
        (b"func.func @main() {}", "looks like MLIR"),
        (b"\x08\x07", "no kcache.v1.Graph"),
        (message(format="kcache.graph.v2"), "'kcache.graph.v2', and this version reads 'kcache.graph.v1'"),
        (message()[:-5], "no serialized message"),
    ],
    ids=["empty", "garbage", "mlir", "onnx", "version", "cut"],
)
def test_other_bytes(body: bytes, words: str):
    assert words in rejected(body)


def test_a_message_is_not_taken_where_values_are():
    with pytest.raises(InvalidProgram, match="decode the message"):
        canonicalize(message(), "graph")
    with pytest.raises(InvalidProgram, match="has the format 'graph', and was sent as 'stablehlo'"):
        canonicalize(decode_graph(message(), LIMITS), "stablehlo")


NODES: list[tuple[str, list[pb.GraphNode], str]] = [
    (
        "unknown",
        [node("sofmax", ["x"], ["y"])],
        "node 0 'y' (sofmax): there is no operation 'sofmax': did you mean 'softmax'?",
    ),
    ("undefined", [node("exp", ["q"], ["y"])], "node 0 'y' (exp): nothing defines its operand 'q'"),
    ("itself", [node("exp", ["y"], ["y"])], "result of node 0 (exp), which is not before it"),
    (
        "forward",
        [node("exp", ["z"], ["y"]), node("tanh", ["x"], ["z"])],
        "'z' is a result of node 1 (tanh), which is not before it",
    ),
    ("cycle", [node("add", ["x", "z"], ["y"]), node("exp", ["y"], ["z"])], "graphs have no cycles"),
    (
        "twice",
        [node("exp", ["x"], ["y"]), node("tanh", ["x"], ["y"])],
        "node 1 'y' (tanh): the name 'y' is already defined by node 0 (exp)",
    ),
    ("input", [node("exp", ["x"], ["x"])], "the name 'x' is already defined by input 0"),
    ("nameless", [node("exp", ["x"], [""])], "it has no name"),
    ("no-result", [node("exp", ["x"], [])], "exp has the results y, but the node names 0"),
    ("long-name", [node("exp", ["x"], ["y" * 300])], "its name has 300 bytes, above the limit of 256"),
    ("few", [node("add", ["x"], ["y"])], "add takes the operands lhs, rhs, not 1"),
    ("many", [node("exp", ["x", "x"], ["y"])], "exp takes the operands x, not 2"),
    ("left-out", [node("add", ["", "x"], ["y"])], "the operand lhs is omitted, and is not optional"),
    ("none", [node("concatenate", [], ["y"])], "concatenate takes the operands xs..., not 0"),
    ("dtype", [node("not", ["x"], ["y"])], "the operand x is 'x' (f32[4]): not takes i1 or integers"),
    (
        "attribute",
        [node("softmax", ["x"], ["y"], a=pb.GraphAttribute(name="axes", int_value=0))],
        "softmax has no attribute 'axes': did you mean 'axis'?",
    ),
    (
        "kind",
        [node("softmax", ["x"], ["y"], a=pb.GraphAttribute(name="axis", float_value=0))],
        "the attribute axis is a float: it must be int",
    ),
    (
        "a-bool",
        [node("softmax", ["x"], ["y"], a=pb.GraphAttribute(name="axis", bool_value=True))],
        "the attribute axis is a bool: it must be int",
    ),
    ("missing", [node("convert", ["x"], ["y"])], "the attribute dtype (dtype) is missing"),
    (
        "again",
        [
            node(
                "softmax",
                ["x"],
                ["y"],
                a=pb.GraphAttribute(name="axis", int_value=0),
                b=pb.GraphAttribute(name="axis", int_value=0),
            )
        ],
        "the attribute axis occurs twice",
    ),
    (
        "valueless",
        [node("softmax", ["x"], ["y"], a=pb.GraphAttribute(name="axis"))],
        "'axis' of a node of 'softmax' has no value",
    ),
    (
        "choice",
        [node("compare", ["x", "x"], ["y"], a=pb.GraphAttribute(name="direction", string_value="less"))],
        "'less': use one of eq, ne, lt, le, gt, ge",
    ),
    (
        "no-dtype",
        [node("convert", ["x"], ["y"], a=pb.GraphAttribute(name="dtype", dtype_value=cast("Any", 99)))],
        "'number 99' is not a dtype",
    ),
]


@pytest.mark.parametrize(("nodes", "words"), [pytest.param(n, w, id=i) for i, n, w in NODES])
def test_nodes(nodes: list[pb.GraphNode], words: str):
    assert words in rejected(message(nodes=nodes))


def test_outputs_and_inputs():
    assert "has no outputs" in rejected(message(outputs=[]))
    assert "nothing defines output 1, 'z'" in rejected(message(outputs=["x", "z"]))

    def value(name: str, dtype: str, *dims: pb.GraphDimension) -> bytes:
        return message(inputs=[pb.GraphValue(name=name, dtype=dtype, dims=list(dims))])

    assert "input 0 '': it has no name" in rejected(value("", F32))
    assert "it has the dtype 'unspecified'" in rejected(value("x", "DATA_TYPE_UNSPECIFIED"))
    assert "axis 0 has the size -1" in rejected(value("x", F32, pb.GraphDimension(size=-1)))
    assert "axis 0 has the symbol 'a b'" in rejected(value("x", F32, pb.GraphDimension(symbol="a b")))


def test_expected_types():
    def expecting(dtype: str, *dims: pb.GraphDimension, name: str = "x") -> str:
        return rejected(message(expected=[pb.GraphValue(name=name, dtype=dtype, dims=list(dims))]))

    assert "'x', input 0, has the type f32[4]; expected f32[5]" in expecting(F32, pb.GraphDimension(size=5))
    assert "; expected f64[4]" in expecting("DATA_TYPE_F64", pb.GraphDimension(size=4))
    assert "; expected f32[?]" in expecting(F32, pb.GraphDimension())
    assert "; expected f32[]" in expecting(F32)
    assert "expected for 'q', which nothing defines" in expecting(F32, name="q")


# -- shapes and values

RULES: list[tuple[str, Callable[..., Any], list[tuple[str, tuple[Any, ...]]], str]] = [
    (
        "broadcast",
        lambda g, x, y: x + y,
        [("f32", (3, 4)), ("f32", (3,))],
        "do not broadcast: axis -1 has the sizes 4 and 3",
    ),
    ("dtypes", lambda g, x, y: x + y, [("f32", (3,)), ("f64", (3,))], "differ in dtype: convert one of them"),
    (
        "open",
        lambda g, x, y: x + y,
        [("f32", ("n",)), ("f32", ("m",))],
        "do not broadcast: axis -1 has the sizes n and m",
    ),
    (
        "matmul",
        lambda g, x, y: x @ y,
        [("f32", (3, 4)), ("f32", (5, 2))],
        "the last axis of 'x' (f32[3,4]) and axis 0 of 'y' (f32[5,2]) differ: 4 and 5",
    ),
    (
        "matmul-scalar",
        lambda g, x, y: x @ y,
        [("f32", ()), ("f32", (5, 2))],
        "a matrix product does not accept scalars",
    ),
    ("matmul-batch", lambda g, x, y: x @ y, [("f32", (2, 3, 4)), ("f32", (3, 4, 5))], "do not broadcast"),
    (
        "axis",
        lambda g, x: g.softmax(x, 2),
        [("f32", (3, 4))],
        "axis is 2, for a value of rank 2: use -2 to 1",
    ),
    ("axes", lambda g, x: g.reduce_sum(x, [0, -2]), [("f32", (3, 4))], "contain an axis twice"),
    (
        "reshape",
        lambda g, x: x.reshape(5, -1),
        [("f32", (3, 4))],
        "no size fits the -1 of [5,-1] for the 12 elements",
    ),
    ("reshape-two", lambda g, x: x.reshape(-1, -1), [("f32", (3, 4))], "several sizes of -1"),
    ("reshape-count", lambda g, x: x.reshape(5, 2), [("f32", (3, 4))], "has 12 elements and [5,2] has 10"),
    ("reshape-zero", lambda g, x: x.reshape(0, -1), [("f32", (0, 4))], "no size fits the -1"),
    (
        "reshape-open",
        lambda g, x: x.reshape("n", 5),
        [("f32", ("n", 4))],
        "has 4*n elements and [n,5] has 5*n",
    ),
    (
        "symbol",
        lambda g, x: x.reshape("q", 4),
        [("f32", ("n", 4))],
        "the symbol 'q' is not the size of an input's axis",
    ),
    (
        "unset",
        lambda g, x: g.broadcast_to(x, (None, 4)),
        [("f32", (4,))],
        "an unset dimension: give its size or its symbol",
    ),
    ("negative", lambda g, x: g.broadcast_to(x, (-1, 4)), [("f32", (4,))], "a shape has the size -1"),
    ("broadcast_to", lambda g, x: g.broadcast_to(x, (4, 3)), [("f32", (4,))], "do not broadcast"),
    ("shrink", lambda g, x: g.broadcast_to(x, (4,)), [("f32", (2, 4))], "does not broadcast to [4]"),
    ("transpose", lambda g, x: g.transpose(x, (0,)), [("f32", (2, 4))], "does not contain every axis"),
    (
        "concatenate",
        lambda g, x, y: g.concatenate(x, y),
        [("f32", (2, 4)), ("f32", (2, 3))],
        "differ along an axis other than 0",
    ),
    ("slice", lambda g, x: x[5:], [("f32", (4,))], "5 to the end is not within axis 0 of 'x' (f32[4])"),
    (
        "pad",
        lambda g, x: g.pad(x, low=(-3,), high=(-2,)),
        [("f32", (4,))],
        "axis 0 of 'x' (f32[4]) would have the size -1",
    ),
    ("pad-entries", lambda g, x: g.pad(x, low=(1, 1), high=(0,)), [("f32", (4,))], "low has 2 entries"),
    (
        "squeeze",
        lambda g, x: g.squeeze(x, [0]),
        [("f32", (4,))],
        "axis 0 of 'x' (f32[4]) has the size 4: only axes of size 1 can be removed",
    ),
    ("squeeze-open", lambda g, x: g.squeeze(x, [0]), [("f32", ("n",))], "only axes of size 1 can be removed"),
    ("number", lambda g, x: x + 1.5, [("i32", (4,))], "1.5 is not a value of i32: use an integer"),
    ("range", lambda g, x: x + 300, [("ui8", (4,))], "300 is not a value of ui8: use 0 to 255"),
    ("argmax", lambda g, x: g.argmax(x, 0), [("f32", (0, 4))], "axis 0 of 'x' (f32[0,4]) is empty"),
    (
        "gather",
        lambda g, x, y: g.take(x, y),
        [("f32", ()), ("i32", ())],
        "axis is 0, but a scalar has no axes",
    ),
    (
        "take",
        lambda g, x, y: g.take_along_axis(x, y),
        [("f32", (3, 4)), ("i32", (2, 1))],
        "differ from 'x' (f32[3,4]) along an axis other than 1",
    ),
    (
        "starts",
        lambda g, x, y: g.dynamic_slice(x, y, sizes=(1, 1)),
        [("f32", (3, 4)), ("i32", ())],
        "give one scalar for each of its axes",
    ),
    (
        "conv",
        lambda g, x, y: g.convolution(x, y),
        [("f32", (1, 3, 8, 8)), ("f32", (4, 2, 3, 3))],
        "has 3 channels, but 'y' (f32[4,2,3,3]) takes 2 in each of 1 groups",
    ),
    (
        "layout",
        lambda g, x, y: g.convolution(x, y, input_layout="NHHC"),
        [("f32", (1, 3, 8, 8)), ("f32", (4, 3, 3, 3))],
        "input_layout is 'NHHC': it must have 4 distinct letters",
    ),
    (
        "top_k",
        lambda g, x: g.top_k(x, 5),
        [("f32", (4,))],
        "k is 5, but the last axis of 'x' (f32[4]) has 4 elements",
    ),
    (
        "weight",
        lambda g, x, y: g.layer_norm(x, y),
        [("f32", (3, 4)), ("f32", (3,))],
        "the weight 'y' (f32[3]) must have the shape [4] of the axes",
    ),
    ("complex", lambda g, x: x < x, [("c64", (3,))], "are complex numbers, which have no order"),
    (
        "window",
        lambda g, x: g.max_pool(x, (0,)),
        [("f32", (3,))],
        "window, stride and dilations must be at least 1",
    ),
    ("window-kind", lambda g, x: g.reduce_window(x, "and", (1,)), [("f32", (3,))], "has no bits"),
    (
        "scatter",
        lambda g, x, y, z: g.scatter(x, y, z, "add", (), (0,), (0,), 1),
        [("f32", (3,)), ("i32", (2, 1)), ("f32", (5,))],
        "the updates 'z' (f32[5]) do not fit",
    ),
    ("fft", lambda g, x: g.fft(x, "fft", (4,)), [("f32", (4,))], "fft takes complex, and x is 'x' (f32[4])"),
    ("fft-length", lambda g, x: g.fft(x, "irfft", (4,)), [("c64", (4,))], "length [4] of irfft does not fit"),
    ("square", lambda g, x: g.cholesky(x), [("f32", (4, 3))], "does not hold square matrices"),
    (
        "solve",
        lambda g, x, y: g.triangular_solve(x, y),
        [("f32", (3, 3)), ("f32", (4, 2))],
        "does not fit the matrices",
    ),
    (
        "index",
        lambda g, x, y: g.gather(x, y, (), (0,), (0,), 5, (1,)),
        [("f32", (3,)), ("i32", (2, 1))],
        "index_vector_dim is 5",
    ),
]


@pytest.mark.parametrize(("build", "types", "words"), [pytest.param(b, t, w, id=i) for i, b, t, w in RULES])
def test_rules(build: Callable[..., Any], types: list[tuple[str, tuple[Any, ...]]], words: str):
    assert words in rejected_graph(build, *types)


OPEN: list[tuple[str, Callable[..., Any]]] = [
    ("slice", lambda g, x: x[1:]),
    ("cumsum", lambda g, x: g.cumsum(x, 0)),
    ("dynamic_slice", lambda g, x: g.dynamic_slice(x, g.constant(0, "i32"), sizes=(1,))),
    ("pad", lambda g, x: g.pad(x, low=(-1,), high=(0,))),
    ("top_k", lambda g, x: g.top_k(x, 1)),
    ("reduce_window", lambda g, x: g.reduce_window(x, "sum", (1,), base_dilation=(2,))),
]


@pytest.mark.parametrize(("op", "build"), OPEN, ids=[op for op, _ in OPEN])
def test_what_has_no_form_for_an_open_axis_names_it(op: str, build: Callable[..., Any]):
    words = rejected_graph(build, ("f32", ("n",)), kind=UnsupportedOp)
    assert f"unsupported op graph.{op} at node " in words
    assert "is dynamic" in words


# -- size


def constant(dtype: str, dims: list[int], content: bytes) -> str:
    value = pb.GraphTensor(dtype=dtype, dims=dims, content=content)
    return rejected(message(constants=[pb.GraphConstant(name="c", value=value)]))


def test_constants():
    words = constant(F32, [2, 2], bytes(12))
    assert (
        "constant 0 'c': the content of a constant f32[2,2] has 12 bytes: it takes 16, or 4 for one" in words
    )
    assert "sizes must be at least 0" in constant(F32, [-2], bytes(8))
    assert "bytes other than 0 and 1" in constant("DATA_TYPE_I1", [2], b"\0\2")
    assert "it has the dtype 'unspecified'" in constant("DATA_TYPE_UNSPECIFIED", [2], b"\0\2")


def large(build: Callable[..., Any], *types: tuple[str, tuple[Any, ...]]) -> str:
    return rejected_graph(build, *types, kind=LimitExceeded)


def test_huge_tensors():
    huge = 1 << 60
    assert "elements of one tensor at input 0 'x'" in large(lambda g, x: x, ("f32", (huge, huge)))
    assert "elements of one tensor at node 0" in large(lambda g, x: g.broadcast_to(x, (huge,)), ("f32", ()))
    assert "rank of a tensor at node 0" in large(lambda g, x: g.expand_dims(x, range(32)), ("f32", (2,)))
    words = large(lambda g, x: g.full(0, "f32", (1 << 40, 2)), ("f32", ()))
    assert "is 2199023255552, above the limit of 1099511627776" in words
    with pytest.raises(LimitExceeded, match="rank of a tensor"):
        decode_graph(
            message(
                constants=[pb.GraphConstant(name="c", value=pb.GraphTensor(dtype=F32, dims=[2] * 10**6))]
            ),
            LIMITS,
        )


def test_sizes_of_open_axes_do_not_explode():
    def doubled(g: Graph, x: Value) -> Value:
        for _ in range(70):
            x = g.concatenate(x, x)
        return x

    assert "does not fit 64 bits" in rejected_graph(doubled, ("f32", ("n",)))

    def powers(g: Graph, x: Value) -> Value:
        for _ in range(9):
            x = g.reshape(g.broadcast_in_dim(x, ("n", "m"), (0,)), (-1,)) if x.name == "x" else x
            x = g.reshape(g.concatenate(x, x), (-1,))
        return x

    with pytest.raises(CompilerError):
        canonicalize(decode_graph(_output(powers, ("f32", ("n",))), LIMITS), "graph")


def _output(build: Callable[..., Any], *types: tuple[str, tuple[Any, ...]]) -> bytes:
    graph = Graph()
    graph.output(build(graph, *(graph.input(name, *type) for name, type in zip("xyz", types, strict=False))))
    return graph.to_bytes()


def test_a_million_nodes():
    encoded = node("exp", ["x"], ["y"]).SerializeToString()
    field = b"\x22" + bytes([len(encoded)]) + encoded
    words = rejected(message() + field * 1_000_000, LimitExceeded)
    assert "number of operations is" in words


def test_many_composites_are_counted_as_what_they_are():
    nodes = [node("layer_norm", ["x"], [f"y{index}"]) for index in range(9000)]
    assert "number of operations is 100001, above the limit of 100000" in rejected(
        message(nodes=nodes), LimitExceeded
    )


@pytest.mark.parametrize("field", ["attributes", "results", "operands"])
def test_a_node_with_too_much(field: str):
    entries: Any = (
        [pb.GraphAttribute(name="a", int_value=0)] * 20_000 if field == "attributes" else ["x"] * 20_000
    )
    body = message(nodes=[pb.GraphNode(op="exp", **{field: entries})])
    assert f"{field} of a node is 20000" in rejected(body, LimitExceeded)


def test_a_program_above_the_limit_is_not_read():
    with pytest.raises(LimitExceeded, match="program size in bytes"):
        decode_graph(bytes(LIMITS.program_bytes + 1), LIMITS)


def test_constants_above_the_limit():
    graph = Graph()
    graph.output(graph.constant(np.arange(1000, dtype="f8")))
    program = decode_graph(graph.to_bytes(), LIMITS)
    with pytest.raises(LimitExceeded, match="bytes of all constants is 8000, above the limit of 7999"):
        lower_graph(program, dataclasses.replace(LIMITS, constant_bytes=7999))


def test_random_bytes_are_rejected_in_words():
    rng = np.random.default_rng(4)
    whole = _output(lambda g, x: g.softmax(g.layer_norm(x) + 1.0), ("f32", (3, 4)))
    for _ in range(300):
        body = bytearray(whole)
        for place in rng.integers(0, len(body), 3):
            body[place] = rng.integers(0, 256)
        said = "lowered"
        try:
            lower_graph(decode_graph(bytes(body), LIMITS), LIMITS)
        except CompilerError as error:
            said = str(error)
        assert 0 < len(said) < 1500
