"""Compilation that returns the metadata of AOTAutograd, and the reasons for which it does not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from kcache_grpc.integrations.torch.dynamo.aot import capture
from tests.integrations.torch.dynamo.eager import Compilers, captured

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Backend:
    """A backend that keeps the entries, the reasons without them, and the compilers."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.reasons: list[str] = []
        self.compilers = Compilers()

    def __call__(self, graph: Any, inputs: Sequence[Any]) -> Any:
        compiled, entry = captured(graph, inputs, self.compilers, self.reasons)
        self.entries.append(entry)
        return compiled


def double(x: Tensor) -> Tensor:
    return (x * 2).sum()


def test_the_backward_is_compiled_at_once() -> None:
    backend = Backend()
    x = torch.ones(3, requires_grad=True)
    result = torch.compile(double, backend=backend)(x)
    assert backend.compilers.backward is not None
    result.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3
    assert backend.entries[0].compiled_bw is not None


def test_nothing_is_pickled_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    backend = Backend()
    with torch._functorch.config.patch(strict_autograd_cache=True):
        torch.compile(double, backend=backend)(torch.ones(3, requires_grad=True))
    assert backend.entries[0] is not None
    assert not [name for _, _, names in os.walk(tmp_path) for name in names]


def test_aliased_inputs_have_no_entry() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x.sum() + y.sum()

    backend = Backend()
    base = torch.ones(4)
    result = torch.compile(function, backend=backend)(base[:3], base[1:])
    assert result.item() == 11.0
    assert backend.entries == [None]
    assert "overlapping" in backend.reasons[0]


def test_another_pytorch_has_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(capture._PRIVATE, "torch._functorch.aot_autograd:other_name", ())  # pyright: ignore[reportPrivateUsage]
    backend = Backend()
    x = torch.ones(3, requires_grad=True)
    torch.compile(double, backend=backend)(x).backward()
    assert x.grad is not None
    assert backend.entries == [None]
    assert "other_name" in backend.reasons[0]


class Named(Tensor):
    """A subclass without dispatch of its own."""


@pytest.mark.parametrize("captures", [True, False])
def test_first_call_with_a_subclass(captures: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of PyTorch that checks custom operators in it rejects operators of subclasses."""
    if not captures:
        monkeypatch.setitem(capture._PRIVATE, "torch._functorch.aot_autograd:other_name", ())  # pyright: ignore[reportPrivateUsage]

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x.sin() * y).sum(0), x.add_(y)

    run = torch.compile(function, backend=Backend())
    for seed in range(2):
        torch.manual_seed(seed)
        x, y = torch.randn(4, 3), torch.randn(4, 3)
        ours, theirs = (each(x.clone().as_subclass(Named), y) for each in (run, function))
        for actual, other in zip(ours, theirs, strict=True):
            assert type(actual) is type(other) is Named
            torch.testing.assert_close(actual.as_subclass(Tensor), other.as_subclass(Tensor))


def test_errors_of_compilers_propagate() -> None:
    def backend(graph: Any, inputs: Sequence[Any]) -> Any:
        def fail(graph: Any, inputs: Sequence[Any]) -> Any:
            raise LookupError("no kernel")

        return capture.compile_with_aot(
            graph,
            inputs,
            fw_compiler=fail,
            bw_compiler=fail,
            inference_compiler=fail,
            partition_fn=fail,
            decompositions={},
        )[0]

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no kernel"):
        torch.compile(double, backend=backend)(torch.ones(3))


def test_guards_that_the_entry_leaves_out_leave_no_entry() -> None:
    def positive(x: Tensor) -> Tensor:
        node = x.sum()
        return node * 2

    def backend(graph: Any, inputs: Sequence[Any]) -> Any:
        def compile_with_guard(module: Any, values: Sequence[Any]) -> Any:
            item = graph_scalar(graph)
            assert item > 2.0
            return module

        compiled, entry = capture.compile_with_aot(
            graph,
            inputs,
            fw_compiler=compile_with_guard,
            bw_compiler=compile_with_guard,
            inference_compiler=compile_with_guard,
            partition_fn=compile_with_guard,
            decompositions={},
            report=reasons.append,
        )
        entries.append(entry)
        return compiled

    entries: list[Any] = []
    reasons: list[str] = []
    torch.compile(lambda x, scale: positive(x * scale), backend=backend, dynamic=True)(torch.ones(3), 2.5)
    assert entries[-1] is None
    assert "guards on symbols" in reasons[-1]


def graph_scalar(graph: Any) -> Any:
    """The symbolic float of a graph whose input is a Python float."""
    values = [node.meta.get("example_value") for node in graph.graph.nodes]
    return next(value for value in values if isinstance(value, torch.SymFloat))
