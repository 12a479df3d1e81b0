"""Graphs from the client to the kernel, by way of a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kcache_grpc import Client, Graph, InvalidProgram, ResourceExhausted, UnsupportedOp, cli
from kcache_grpc._proto.kcache.v1 import graph_pb2 as pb
from kcache_grpc.model.program import ProgramFormat, program_digest
from kcache_grpc.programs.source import read_source
from tests.serving import ServerProcess

TEXT = """
func.func @main(%x: tensor<3x4xf32>, %w: tensor<4x5xf32>) -> tensor<3x5xf32> {
  %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  %z = stablehlo.constant dense<0.0> : tensor<3x5xf32>
  %r = stablehlo.maximum %d, %z : tensor<3x5xf32>
  return %r : tensor<3x5xf32>
}
"""


def layer() -> Graph:
    graph = Graph()
    x, w = graph.input("x", "f32", (3, 4)), graph.input("w", "f32", (4, 5))
    graph.output(graph.relu(x @ w))
    return graph


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path) -> Iterator[Client]:
    with Client(server.address, cache_dir=tmp_path / "cache") as instance:
        yield instance


def test_formats_are_told_apart_by_type_and_content(tmp_path: Path):
    body = layer().to_bytes()
    path = tmp_path / "model.kgraph"
    path.write_bytes(body)
    for program in (layer(), body, bytearray(body), path):
        read = read_source(program, None).program
        assert read.format is ProgramFormat.GRAPH
        assert read.body == body
        assert read.digest == program_digest(ProgramFormat.GRAPH, body)
    assert read_source(b"anything", "graph").program.format is ProgramFormat.GRAPH


def test_a_graph_is_compiled_and_meets_its_stablehlo(client: Client):
    kernel = client.compile(layer())
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((3, 4)).astype("f4"), rng.standard_normal((4, 5)).astype("f4")
    (got,) = kernel(x, w)
    np.testing.assert_allclose(got, np.maximum(x @ w, 0), 1e-5, 1e-6)
    assert kernel.binding.arg_names == ("x", "w")
    known = client.compile(TEXT)
    assert (known.key, known.origin) == (kernel.key, "remote")
    lookup = client.lookup(layer())
    assert lookup is not None
    assert lookup.key == client.store(layer().to_bytes()) == kernel.key


def test_a_quantized_program_runs_on_integers_and_says_what_they_stand_for(client: Client):
    q = "!quant.uniform<i8:f32:1, {0.5:3,0.25:-1}>"
    kernel = client.compile(
        f"func.func @main(%x: tensor<3x2x{q}>) -> tensor<3x2xf32> {{\n"
        f"%r = stablehlo.uniform_dequantize %x : (tensor<3x2x{q}>) -> tensor<3x2xf32>\n"
        "return %r : tensor<3x2xf32>\n}"
    )
    (buffer,) = kernel.binding.quantized
    assert (buffer.index, buffer.output, buffer.expressed, buffer.axis) == (0, False, "f32", 1)
    assert (buffer.storage_min, buffer.storage_max) == (-128, 127)
    x = np.array([[1, 2], [-128, 127], [3, -1]], "i1")
    (got,) = kernel(x)
    np.testing.assert_array_equal(got, (x - np.array(buffer.zero_points)) * np.array(buffer.scales))


def test_a_graph_with_open_axes_runs_at_every_size(client: Client):
    graph = Graph()
    x = graph.input("x", "f32", ("n", 4))
    graph.output(graph.softmax(x), graph.reduce_sum(x, [0]))
    kernel = client.compile(graph)
    for size in (1, 2, 5):
        array = np.arange(size * 4, dtype="f4").reshape(size, 4)
        shares, sums = kernel(array)
        np.testing.assert_allclose(shares.sum(-1), np.ones(size), 1e-5)
        np.testing.assert_allclose(sums, array.sum(0), 1e-5)


def test_large_constants_travel_with_the_kernel(client: Client):
    table = np.random.default_rng(2).standard_normal((64, 32)).astype("f4")
    graph = Graph()
    x = graph.input("x", "f32", (3, 64))
    graph.output(x @ table)
    x = np.ones((3, 64), "f4")
    (got,) = client.compile(graph)(x)
    np.testing.assert_allclose(got, x @ table, 1e-4, 1e-4)


def test_what_is_wrong_is_said_of_the_node(client: Client):
    graph = layer()
    graph.softmax(graph["x"], axis=5, name="h")
    with pytest.raises(InvalidProgram, match=r"node 2 'h' \(softmax\): axis is 5, for a value of rank 2"):
        client.compile(graph)
    with pytest.raises(InvalidProgram, match=r"no kcache\.v1\.Graph|no serialized .* looks like MLIR"):
        client.compile(TEXT, format="graph")
    with pytest.raises(InvalidProgram, match="send it as a program of format 'graph'"):
        client.compile(layer(), format="stablehlo")
    sliced = Graph()
    sliced.output(sliced.input("x", "f32", ("n",))[1:])
    with pytest.raises(UnsupportedOp, match=r"graph\.slice at node 0 'slice_0'") as caught:
        client.store(sliced)
    assert caught.value.metadata["op"] == "graph.slice"


def test_what_is_too_large_is_rejected(client: Client):
    node = pb.GraphNode(op="exp", operands=["x"], results=["y"]).SerializeToString()
    body = layer().to_bytes() + (b"\x22" + bytes([len(node)]) + node) * 1_000_000
    with pytest.raises(ResourceExhausted, match="number of operations"):
        client.store(body)


def test_the_command_line_takes_files(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "model.kgraph"
    path.write_bytes(layer().to_bytes())
    options = ["--json", "--addr", server.address, "--cache-dir", str(tmp_path / "cache")]
    assert cli.main(["compile", str(path), *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["inputs"].items()) == [("x", "f32[3,4]"), ("w", "f32[4,5]")]
    assert cli.main(["lookup", str(path), "--format", "graph", *options]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == printed["key"]
    assert cli.main(["run", str(path), *options]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == printed["key"]
