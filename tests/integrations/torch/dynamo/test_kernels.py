"""Kernels of islands: compiled and called, rejected operators, failures."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import kcache_grpc as kcache
from kcache_grpc.errors import ArgumentError, KcacheError, UnsupportedOp
from kcache_grpc.integrations.torch.dynamo import kernels
from kcache_grpc.integrations.torch.dynamo.kernels import Failures, IslandKernel, KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering.lower import Lowering
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Program, executable
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from kcache_grpc.integrations.torch.exported import graph as exported_graph
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.model.target import host_target
from kcache_grpc.programs.torch.graph_text.program import Island, write_program


@pytest.fixture
def source(client: kcache.Client) -> KernelSource:
    """A source whose client is that of the test."""
    return KernelSource(Settings(), client)


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, x[0])


def program(function: Any, *inputs: Any) -> Program:
    graph = make_fx(lambda *values: (function(*values),), tracing_mode="fake")(*inputs).graph
    nodes = list(graph.nodes)
    calls = [node for node in nodes if node.op == "call_function"]
    placeholders = [node for node in nodes if node.op == "placeholder"]
    return Program(write_program(Island(calls, placeholders, list(nodes[-1].args[0]))), False)


COMPLEX = torch.ones(3, dtype=torch.complex64)


def test_a_kernel_computes_an_island(source: KernelSource) -> None:
    x = torch.randn(3, 4)
    [kernel] = source.compile([program(lambda x: torch.tanh(x) * 2, x)])
    [result] = kernel([x])
    torch.testing.assert_close(result, torch.tanh(x) * 2)


def test_rejected_operators_are_all_named(source: KernelSource) -> None:
    rejected = program(lambda x: torch.exp(x) + torch.sinh(x), COMPLEX)
    with pytest.raises(UnsupportedOp):
        source.compile([rejected])
    reason = "it is not supported for complex numbers: compute with torch.view_as_real"
    lines = {each.operator: each.lines for each in source.rejected(rejected)}
    assert lines == {"aten.exp": (3,), "aten.sinh": (4,)}
    assert {each.reason for each in source.rejected(rejected)} == {reason}
    assert source.rejected(program(lambda x: x * 2, torch.ones(3))) == []


def test_only_rejected_operators_are_left_to_pytorch(source: KernelSource) -> None:
    def function(x: Any) -> Any:
        y = torch.exp(x + x * x)
        return (torch.sin(y.abs()) * 2 + 1,)

    module = make_fx(function, tracing_mode="fake")(COMPLEX)
    lowered = Lowering(module, "inference", source.compile, source.rejected).lower()
    assert [each.operator for each in lowered.decision.left_out] == ["aten.exp.default"]
    assert sum(lowered.decision.kernels) == 6
    [result] = executable(lowered.plan, lowered.kernels)([COMPLEX])
    torch.testing.assert_close(result, function(COMPLEX)[0])


class Call:
    """A call that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, tensors: list[Any]) -> Any:
        raise self.error


def test_a_failed_call_is_counted_and_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = Failures()
    monkeypatch.setattr(kernels, "FAILURES", failures)
    call: Any = Call(ArgumentError("another size"))
    kernel = IslandKernel(call, strict=False)
    with pytest.warns(KcacheWarning, match="operators of PyTorch ran in place of a kernel"):
        kernel.failed(call.error)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel.failed(call.error)
    assert failures.counts == {"call: ArgumentError": 2}


@pytest.mark.parametrize("error", [ValueError("broken"), KcacheError("broken")])
def test_errors_are_raised_if_strict(error: Exception) -> None:
    call: Any = Call(error)
    with pytest.raises(type(error), match="broken"):
        IslandKernel(call, strict=True).failed(error)


def test_products_of_bf16_choose_the_cpu_that_has_instructions_for_them(
    source: KernelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not called: the machine of the test may lack them. Other programs, and a named target, stay."""
    monkeypatch.setattr(kernels, "bf16_target", lambda: "sapphirerapids")
    narrow, wide = torch.ones(8, 8, dtype=torch.bfloat16), torch.ones(8, 8)
    product, other = program(torch.mm, narrow, narrow), program(lambda x: torch.tanh(x) * 2, narrow)
    compiled = source.compile([product, other, program(torch.mm, wide, wide)])
    targets = [str(kernel._call.kernel.manifest.target) for kernel in compiled]
    assert targets == ["sapphirerapids", str(host_target()), str(host_target())]
    named = KernelSource(Settings(target="x86-64-v2"), source.client)
    assert str(named.compile([product])[0]._call.kernel.manifest.target) == "x86-64-v2"


@pytest.mark.parametrize("product", [torch.nn.Linear(8, 8), Product()], ids=["linear", "matmul"])
def test_products_that_exported_programs_keep_choose_it(
    product: torch.nn.Module, source: KernelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of vectors and matrices, and of batches: their operators are not decomposed into mm and bmm."""
    monkeypatch.setattr(kernels, "bf16_target", lambda: "sapphirerapids")
    module = torch.nn.Sequential(product, torch.nn.GELU()).to(torch.bfloat16)
    narrow = torch.ones(2, 8, 8, dtype=torch.bfloat16)
    exported = torch.export.export(module, (narrow,))
    _, (kernel,) = exported_graph.lower(exported, source.compile, source.rejected, Settings())
    assert isinstance(kernel, IslandKernel)
    assert str(kernel._call.kernel.manifest.target) == "sapphirerapids"


def test_tensors_on_a_gpu_choose_its_target(source: KernelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU: its kernel is compiled, and not called."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    graph = make_fx(lambda x: (torch.tanh(x) * 2,), tracing_mode="fake")
    with FakeTensorMode():
        module = graph(torch.empty(3, 4, device="cuda"))
    lowered = Lowering(module, "inference", source.compile, source.rejected).lower()
    [program], [kernel] = lowered.plan.programs, lowered.kernels
    assert program.device == "cuda"
    assert isinstance(kernel, IslandKernel)
    assert str(kernel._call.kernel.manifest.target) == "sm_90"
    assert not lowered.decision.left_out
