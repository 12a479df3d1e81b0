"""``aot_compile`` with fake tensors: other processes run the saved functions with real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch._dynamo.aot_compile")

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import kcache_grpc as kcache
from kcache_grpc.integrations.torch.dynamo.artifact import CompiledGraph
from kcache_grpc.integrations.torch.dynamo.kernels import KernelSource
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.torch import decisions
from tests.integrations.torch.dynamo.aot.programs import Model, assert_as_eager, function, inputs

_READER = """
import sys

import torch

from tests.integrations.torch.dynamo.aot.programs import Model, assert_as_eager, function, inputs

compiled = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        compiled.append(torch.compiler.load_compiled_function(file))
model = Model()
x, weight = inputs()
torch.testing.assert_close(compiled[0](x, weight), function(x, weight))
assert_as_eager(lambda x: compiled[1](model, x), model, x)
for call, arguments in zip(compiled, ((x.double(), weight.double()), (model, x.double()))):
    try:
        call(*arguments)
    except RuntimeError as error:
        assert "dtype mismatch" in str(error)
    else:
        raise AssertionError("a guard is missing")
"""


def fake_inputs(dtype: torch.dtype = torch.float32, device: str = "cpu") -> tuple[Tensor, Tensor]:
    with FakeTensorMode():
        return torch.empty(4, 8, dtype=dtype, device=device), torch.empty(8, 8, dtype=dtype, device=device)


def compile_ahead(call: Any, *arguments: Tensor, **options: Any) -> Any:
    torch._dynamo.reset()
    options = {"strict": True, **options}
    compiled: Any = torch.compile(call, backend="kcache", fullgraph=True, options=options)
    return getattr(compiled, "forward", compiled).aot_compile((arguments, {}))


def saved(compiled: Any) -> bytes:
    return CompiledGraph.serialize_compile_artifacts(compiled._artifacts.compiled_fn)


def run_as_loaded(compiled: Any, *arguments: Any) -> Any:
    """What the saved graph computes, after Dynamo's bytecode, and without its guards on fake tensors."""
    graph = CompiledGraph.deserialize_compile_artifacts(saved(compiled))
    return compiled._artifacts.runtime_env.forward_callable(compiled._artifacts.backend_id, graph)(*arguments)


@pytest.mark.long
def test_another_process_runs_what_fake_tensors_compiled(address: str, tmp_path: Path) -> None:
    files = [tmp_path / "function", tmp_path / "module"]
    compile_ahead(function, *fake_inputs(), address=address).save_compiled_function(files[0])
    with FakeTensorMode():
        model, x = Model(), torch.empty(4, 8)
    keep = torch.compiler.keep_tensor_guards_unsafe
    compiled = compile_ahead(model, x, address=address, guard_filter_fn=keep)
    compiled.save_compiled_function(files[1])
    environment = {**os.environ, "KCACHE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _READER, *map(str, files)]
    subprocess.run(command, check=True, env=environment, timeout=120)


@pytest.mark.parametrize("target", ["host", "x86-64-v2"])
def test_a_function(target: str, address: str) -> None:
    compiled = compile_ahead(function, *fake_inputs(), address=address, target=target)
    torch.testing.assert_close(run_as_loaded(compiled, *inputs()), function(*inputs()))


def test_inside_of_the_mode(address: str) -> None:
    with FakeTensorMode():
        compiled = compile_ahead(function, torch.empty(4, 8), torch.empty(8, 8), address=address)
        data = saved(compiled)
    assert json.loads(data)["format"] == 2
    torch.testing.assert_close(run_as_loaded(compiled, *inputs()), function(*inputs()))


def test_a_dynamic_size(address: str) -> None:
    x, weight = fake_inputs()
    torch._dynamo.mark_dynamic(x, 0)
    compiled = compile_ahead(function, x, weight, address=address)
    for rows in (2, 7):
        x, weight = inputs(rows)
        torch.testing.assert_close(run_as_loaded(compiled, x, weight), function(x, weight))


@pytest.mark.parametrize("train", [False, True])
def test_a_module(train: bool, address: str) -> None:
    with FakeTensorMode():
        model = Model().requires_grad_(train)
        x = torch.empty(4, 8)
    compiled = compile_ahead(model, x, address=address)
    model = Model().requires_grad_(train)
    x = inputs()[0]
    assert_as_eager(lambda x: run_as_loaded(compiled, model, x), model, x)


@pytest.mark.parametrize(
    ("target", "message"), [("aarch64", "cannot run a kernel for aarch64"), ("sm_90", "no NVIDIA driver")]
)
def test_a_graph_for_another_machine_says_so_when_it_is_loaded(
    target: str, message: str, address: str
) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine runs them")
    data = saved(compile_ahead(function, *fake_inputs(), address=address, target=target))
    assert json.loads(data)["graph"]["settings"]["target"] == target
    with pytest.raises(kcache.ArgumentError, match=message):
        CompiledGraph.deserialize_compile_artifacts(data)


def test_kernels_for_tensors_on_a_gpu_need_none(address: str) -> None:
    """PyTorch makes the callable only where it has CUDA; the kernels are compiled by then."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="cuda is not available"):
        compile_ahead(function, *fake_inputs(device="cuda"), address=address, target="sm_90")
    decision = decisions()[-1]
    assert decision.kernels
    assert not decision.left_out


def test_other_dtypes(address: str) -> None:
    """PyTorch's guards reject them. Where they are disabled, so does the kernel."""
    doubles = inputs(dtype=torch.float64)
    compiled = compile_ahead(function, *fake_inputs(), address=address)
    with pytest.raises(kcache.ArgumentError, match="dtype f64"):
        run_as_loaded(compiled, *doubles)
    compiled = compile_ahead(function, *fake_inputs(), address=address, strict=False)
    with pytest.warns(KcacheWarning, match="dtype f64"):
        torch.testing.assert_close(run_as_loaded(compiled, *doubles), function(*doubles))


def test_a_graph_without_a_service_and_without_kernels(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = saved(compile_ahead(function, *fake_inputs(), address=address))
    with kcache.Client("127.0.0.1:1", cache_dir=tmp_path, strict=True, timeout=5) as away:
        monkeypatch.setattr(KernelSource, "client", away)
        with pytest.raises(kcache.Unavailable, match=r"127\.0\.0\.1:1"):
            CompiledGraph.deserialize_compile_artifacts(data)


def test_a_changed_byte_is_an_error(address: str) -> None:
    data = saved(compile_ahead(function, *fake_inputs(), address=address))
    other = data.replace(b'"opt_level":3', b'"opt_level":2')
    assert other != data
    for damaged in (other, data[:-1], data.replace(b'"record":"e', b'"record":"f')):
        with pytest.raises(kcache.IntegrityError, match="cannot be read"):
            CompiledGraph.deserialize_compile_artifacts(damaged)
