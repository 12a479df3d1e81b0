"""``torch._dynamo.config.caching_precompile``: functions that Dynamo does not trace again."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch._dynamo.precompile_context")

import torch
from torch import Tensor
from torch._C._dynamo.eval_frame import _reset_precompile_entries
from torch._dynamo.precompile_context import PrecompileContext
from torch._dynamo.utils import counters

from kcache_grpc.integrations.torch.dynamo.artifact import PrecompiledGraph
from kcache_grpc.torch import failures
from tests.integrations.torch.dynamo.aot.programs import function, inputs

_PROGRAM = """
import sys

import torch
from torch._dynamo.utils import counters

from kcache_grpc.torch import decisions, failures
from tests.integrations.torch.dynamo.aot.programs import Model, assert_as_eager, inputs

torch._dynamo.config.caching_precompile = True
model = Model()
compiled = torch.compile(model, backend="kcache", options={"address": sys.argv[1]})
assert_as_eager(compiled, model, inputs()[0])
torch.compiler.save_cache_artifacts()
assert not failures(), failures()
assert bool(decisions()) == bool(counters["frames"])
print(counters["dynamo_cache"], counters["frames"])
"""


@pytest.fixture(autouse=True)
def _precompiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    with torch._dynamo.config.patch(caching_precompile=True):
        yield
    forget()


def forget() -> None:
    torch._dynamo.reset()
    _reset_precompile_entries(function.__code__)
    PrecompileContext.clear()
    counters.clear()


def run(rows: int = 4, **options: Any) -> dict[str, int]:
    """Compiles and calls the function as a new process does. Returns Dynamo's counts of frames."""
    forget()
    compiled: Any = torch.compile(function, backend="kcache", options={"strict": True, **options})
    x, weight = inputs(rows)
    weight.requires_grad_()
    result, expected = compiled(x, weight), function(x, weight)
    torch.testing.assert_close(result, expected)
    gradients = [torch.autograd.grad(value.sum(), weight) for value in (result, expected)]
    torch.testing.assert_close(*gradients)
    return dict(counters["frames"])


def stored(tmp_path: Path) -> Path:
    [entry] = (tmp_path / "torch").rglob("entry")
    return entry


@pytest.mark.parametrize("warm_start", [True, False])
def test_a_function_is_not_traced_again(warm_start: bool, address: str) -> None:
    assert run(address=address, warm_start=warm_start)
    assert torch.compiler.save_cache_artifacts() is not None
    assert not run(address=address)
    assert counters["dynamo_cache"]["dynamo_cache_hit"] == 1


def test_a_graph_that_has_a_record_is_kept(address: str) -> None:
    for _ in range(2):
        assert run(address=address, rederive=0.0)
    torch.compiler.save_cache_artifacts()
    assert not run(address=address)


def test_other_sizes_are_traced(address: str) -> None:
    assert run(address=address)
    torch.compiler.save_cache_artifacts()
    assert run(rows=5, address=address)


def test_the_content_is_json_without_weights(address: str, tmp_path: Path) -> None:
    assert run(address=address)
    torch.compiler.save_cache_artifacts()
    [graph] = pickle.loads(stored(tmp_path).read_bytes()).backends.values()
    assert isinstance(graph, PrecompiledGraph)
    assert graph.content.startswith(b'{"format"')


def test_a_changed_entry_is_traced_again(address: str, tmp_path: Path) -> None:
    assert run(address=address)
    torch.compiler.save_cache_artifacts()
    entry = stored(tmp_path)
    body = entry.read_bytes()
    assert b'"opt_level":3' in body
    entry.write_bytes(body.replace(b'"opt_level":3', b'"opt_level":2'))
    assert run(address=address)
    assert counters["dynamo_cache"]["dynamo_cache_error"] == 1


def test_a_graph_without_a_record_is_traced_again(address: str) -> None:
    def add_constants(x: Tensor) -> Tensor:
        return torch.tanh(x) + torch.tensor([[1.0, 2.0]])

    before = failures()
    for _ in range(2):
        forget()
        compiled: Any = torch.compile(add_constants, backend="kcache", options={"address": address})
        torch.testing.assert_close(compiled(torch.ones(2, 2)), add_constants(torch.ones(2, 2)))
        assert counters["frames"]
        torch.compiler.save_cache_artifacts()
    assert failures() == before


@pytest.mark.long
def test_another_process_does_not_trace(address: str, tmp_path: Path) -> None:
    frames: list[str] = []
    for name in ("first", "second"):
        environment = {**os.environ, "KCACHE_CACHE_DIR": str(tmp_path / name)}
        command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, address]
        frames.append(subprocess.check_output(command, env=environment, text=True, timeout=120))
    assert "'dynamo_cache_miss': 1" in frames[0]
    assert frames[1].split() == ["Counter({'dynamo_cache_hit':", "1})", "Counter()"]
