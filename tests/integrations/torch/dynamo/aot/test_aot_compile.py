"""``torch.compile(...).aot_compile`` with the backend: saved graphs are records for other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch._dynamo.aot_compile")

import torch
from torch import Tensor

import kcache_grpc as kcache
from kcache_grpc.integrations.torch.dynamo.artifact import CompiledGraph

_READER = """
import sys

import torch

from tests.integrations.torch.dynamo.aot.test_aot_compile import function, inputs

with open(sys.argv[1], "rb") as file:
    compiled = torch.compiler.load_compiled_function(file)
x, weight = inputs()
result = compiled(x, weight)
result.sum().backward()
torch.testing.assert_close(result, function(*inputs()))
torch.save((result.detach(), weight.grad), sys.argv[2])
assert not any(name.endswith("dynamo.lowering.lower") for name in sys.modules)
"""


def function(x: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(x @ weight).sum(-1) * 2


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(8, 8, generator=generator).requires_grad_()
    return torch.randn(4, 8, generator=generator), weight


def compile_ahead(call: Callable[..., Any], arguments: tuple[Any, ...], **options: Any) -> Any:
    torch._dynamo.reset()
    compiled: Any = torch.compile(call, backend="kcache", fullgraph=True, options={"strict": True, **options})
    return compiled.aot_compile((arguments, {}))


@pytest.mark.long
def test_another_process_runs_a_saved_function(address: str, tmp_path: Path) -> None:
    compiled = compile_ahead(function, inputs(), address=address)
    torch.testing.assert_close(compiled(*inputs()), function(*inputs()))
    compiled.save_compiled_function(tmp_path / "function")
    environment = {**os.environ, "KCACHE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _READER, str(tmp_path / "function"), str(tmp_path / "results")]
    subprocess.run(command, check=True, env=environment, timeout=120)
    result, gradient = torch.load(tmp_path / "results")
    x, weight = inputs()
    expected = function(x, weight)
    expected.sum().backward()
    torch.testing.assert_close(result, expected.detach())
    torch.testing.assert_close(gradient, weight.grad)


def test_a_saved_graph_is_json_without_weights(address: str) -> None:
    linear = torch.nn.Linear(8, 8)
    module = torch.nn.Sequential(linear, torch.nn.ReLU())
    compiled = compile_ahead(module.forward, (inputs()[0],), address=address)
    graph = compiled._artifacts.compiled_fn
    assert isinstance(graph, CompiledGraph)
    data = CompiledGraph.serialize_compile_artifacts(graph)
    assert json.loads(data)["graph"]["settings"]["address"] == address
    assert linear.weight.detach().numpy().tobytes() not in data
    other = CompiledGraph.deserialize_compile_artifacts(data)
    assert CompiledGraph.serialize_compile_artifacts(other) == data


def test_dynamic_sizes(address: str) -> None:
    x, weight = inputs()
    torch._dynamo.mark_dynamic(x, 0)
    compiled = compile_ahead(function, (x, weight), address=address)
    graph = compiled._artifacts.compiled_fn
    data = CompiledGraph.serialize_compile_artifacts(graph)
    compiled._artifacts.compiled_fn = CompiledGraph.deserialize_compile_artifacts(data)
    for rows in (2, 5):
        other = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(other, weight), function(other, weight))


def test_a_graph_for_another_machine(address: str) -> None:
    compiled = compile_ahead(function, inputs(), address=address, target="aarch64")
    data = CompiledGraph.serialize_compile_artifacts(compiled._artifacts.compiled_fn)
    assert json.loads(data)["graph"]["settings"]["target"] == "aarch64"


def test_a_graph_without_a_record_is_not_saved(address: str) -> None:
    def add_constants(x: Tensor) -> Tensor:
        return torch.tanh(x) + torch.tensor([[1.0, 2.0]])

    compiled = compile_ahead(add_constants, (torch.ones(2, 2),), address=address)
    graph = compiled._artifacts.compiled_fn
    with pytest.raises(kcache.ArgumentError, match="has no record"):
        CompiledGraph.serialize_compile_artifacts(graph)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format":1}', b'{"format":2,"graph":{},"sha256":""}'])
def test_other_bytes_are_errors(data: bytes) -> None:
    with pytest.raises(kcache.IntegrityError, match="cannot be read"):
        CompiledGraph.deserialize_compile_artifacts(data)
