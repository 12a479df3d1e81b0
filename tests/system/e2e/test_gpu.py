"""Kernels for GPUs from a real server: what comes back is all that a client needs to launch them.

No GPU takes part: the emulator of tests/gpu runs the code that came, by the manifest that came.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_compiler.llvm.ptxas import find_ptxas
from kcache_compiler.types import CompiledKernel, GpuLaunch, KernelInterface, Symbol, TensorType
from kcache_grpc.errors import ArgumentError, NotFound
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.manifest import TensorSpec
from tests.cli.command import answer
from tests.cli.command import kcache as command
from tests.gpu.harness.run import run_gpu
from tests.serving import ServerProcess

ROWS = """
func.func @main(%{x}: tensor<{n}x{m}xf32>, %{y}: tensor<{m}xf32>) -> tensor<{n}xf32> {{
  %b = stablehlo.broadcast_in_dim %{y}, dims = [1] : (tensor<{m}xf32>) -> tensor<{n}x{m}xf32>
  %p = stablehlo.multiply %{x}, %b : tensor<{n}x{m}xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%p init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<{n}x{m}xf32>, tensor<f32>) -> tensor<{n}xf32>
  return %s : tensor<{n}xf32>
}}
"""


def rows(n: int, m: int, x: str = "x", y: str = "y") -> str:
    """Row sums of a product: f32[n,m], f32[m] -> f32[n]."""
    return ROWS.format(n=n, m=m, x=x, y=y)


def received(kernel: kcache.Kernel) -> CompiledKernel:
    """The kernel as it came over the wire, for the emulator."""
    manifest = kernel.manifest

    def types(specs: tuple[TensorSpec, ...]) -> tuple[TensorType, ...]:
        return tuple(TensorType(spec.dtype, spec.dims) for spec in specs)

    interface = KernelInterface(
        inputs=types(manifest.inputs),
        constants=types(manifest.constants),
        outputs=types(manifest.outputs),
        symbols=tuple(Symbol(symbol.name, symbol.arg, symbol.axis) for symbol in manifest.symbols),
        workspace=manifest.workspace_bytes,
        launches=(),
        triple="nvptx64-nvidia-cuda",
        required_isa=(),
        error_codes={},
        gpu_launches=tuple(
            GpuLaunch(x.name, x.ops, x.entry, x.when, x.grid, x.block, x.shared_bytes, x.params)
            for x in manifest.gpu_launches
        ),
        checks=manifest.checks,
    )
    return CompiledKernel({"llvm": kernel.artifact("llvm")}, interface, {})


def arrays(n: int, m: int) -> list[Any]:
    generator = np.random.default_rng(n * 1000 + m)
    return [generator.standard_normal((n, m), np.float32), generator.standard_normal(m, np.float32)]


def test_ptx_comes_with_all_that_launches_it(client: kcache.Client) -> None:
    kernel = client.compile(rows(6, 40), target="sm_90")
    manifest = kernel.manifest
    assert kernel.origin == "compiled"
    assert manifest.target == GpuTarget("sm_90")
    text = kernel.artifact("ptx").decode()
    assert ".version 7.8" in text
    assert ".target sm_90" in text
    assert manifest.launches == ()
    assert manifest.gpu_launches
    assert all(f".entry {launch.entry}(" in text for launch in manifest.gpu_launches)
    with pytest.raises(NotFound, match="no artifact 'so'; it has ptx"):
        kernel.artifact("so")
    if find_ptxas() is not None:
        assert kernel.artifact("cubin")[:4] == b"\x7fELF"
        resources = [launch.resources for launch in manifest.gpu_launches]
        assert all(
            usage is not None and usage.registers > 0 and usage.spill_bytes == 0 for usage in resources
        )
    [result] = run_gpu(received(kernel), x := arrays(6, 40))
    np.testing.assert_allclose(result, (x[0] * x[1]).sum(1), rtol=1e-5, atol=1e-5)


def test_what_is_known_comes_back_and_targets_are_kernels_of_their_own(
    client: kcache.Client, server: ServerProcess, tmp_path: Path
) -> None:
    first = client.compile(rows(3, 17), target="sm_80")
    assert client.compile(rows(3, 17), target="sm_80").origin == "memory"
    tmp_path.chmod(0o700)
    with kcache.Client(server.address, cache_dir=tmp_path) as other:
        again = other.compile(rows(3, 17, "u", "v"), target="sm_80")
        assert again.origin == "remote"
        assert again.artifact("ptx") == first.artifact("ptx")
        assert again.key == first.key
    with kcache.Client(server.address, cache_dir=tmp_path) as third:
        assert third.compile(rows(3, 17, "u", "v"), target="sm_80").origin == "disk"
    newer, here = client.compile(rows(3, 17), target="sm_120"), client.compile(rows(3, 17))
    digests = {kernel.manifest.kernel_digest for kernel in (first, newer, here)}
    assert len(digests) == 3
    assert {first.key} == {newer.key, here.key}
    assert b".target sm_120" in newer.artifact("ptx")
    x = arrays(3, 17)
    np.testing.assert_allclose(run_gpu(received(first), x)[0], here(*x)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:dynamic=.assume.:kcache_grpc.KcacheWarning")
def test_one_dynamic_kernel_takes_all_sizes(client: kcache.Client) -> None:
    kernel = client.compile(rows(4, 8), target="sm_90", dynamic="assume")
    assert any(symbol.name in str(kernel.manifest.gpu_launches) for symbol in kernel.manifest.symbols)
    came = received(kernel)
    for n, m in [(1, 1), (5, 33), (2, 300), (0, 4), (4, 0)]:
        x = arrays(n, m)
        np.testing.assert_allclose(run_gpu(came, x)[0], (x[0] * x[1]).sum(1), rtol=1e-4, atol=1e-4)


def test_explanations_and_the_audit_log_name_the_gpu(client: kcache.Client) -> None:
    client.compile(rows(2, 9), target="sm_90")
    explanation = client.explain(rows(2, 9), target="sm_100")
    assert "compiled for sm_90, you asked for sm_100" in str(explanation)
    assert "sm_90" in {event.target for event in client.audit()}


def test_what_no_gpu_runs_is_rejected_with_the_reason(client: kcache.Client) -> None:
    with pytest.raises(ArgumentError, match=r"unknown GPU target 'sm_70'.*sm_75, sm_80"):
        client.compile(rows(2, 2), target="sm_70")
    kernel = client.compile(rows(2, 2), target="sm_90")
    with pytest.raises(ArgumentError, match="GPU"):
        kernel(*arrays(2, 2))


def test_a_loop_that_data_ends_is_a_launch_of_one_block(client: kcache.Client) -> None:
    loop = """
    func.func @main(%a: tensor<f32>) -> tensor<f32> {
      %r = stablehlo.while(%i = %a) : tensor<f32>
        cond { %l = stablehlo.constant dense<100.0> : tensor<f32>
               %c = stablehlo.compare LT, %i, %l : (tensor<f32>, tensor<f32>) -> tensor<i1>
               stablehlo.return %c : tensor<i1> }
        do { %n = stablehlo.multiply %i, %i : tensor<f32>
             stablehlo.return %n : tensor<f32> }
      return %r : tensor<f32>
    }"""
    launch = client.compile(loop, target="sm_90").manifest.gpu_launches[-1]
    assert (launch.ops[0], tuple(launch.grid)) == ("while", ("1", "1", "1"))


def test_the_command_line_writes_ptx(server: ServerProcess, tmp_path: Path) -> None:
    program = tmp_path / "rows.mlir"
    program.write_text(rows(2, 5))
    where = {"KCACHE_ADDR": server.address, "KCACHE_CACHE_DIR": str(tmp_path / "cache")}
    done = command("compile", program, "--target", "sm_90", "--emit", "ptx", **where)
    assert done.returncode == 0, done.stderr
    assert ".target sm_90" in done.stdout
    said = answer(command("compile", program, "--target", "sm_90", "--json", **where))
    assert said["target"] == "sm_90"
    assert said["launches"] >= 1
    assert "ptx" in said["artifacts"]
