"""Results that go past the caches have the bits of those that go through them."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.lower.loops import streaming_stores as streams
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel, threaded_host
from tests.compiler.schedule.test_group_lowering import FLOATS, INTEGERS, build, random_program, same_bits

pytestmark = pytest.mark.skipif("x86-64" not in host_target().isa, reason="other targets store as ever")


def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result that can go past the caches does, in short blocks."""
    monkeypatch.setattr(streams, "LARGE", 1)
    monkeypatch.setattr(streams, "SHORTEST", 1)
    monkeypatch.setattr(streams, "BLOCK", 64)


def program_of(rows: int, columns: int, kind: str) -> str:
    """Two results that run along the rows and one that a row's sum goes into."""
    return f"""
    func.func @main(%a: {kind}, %b: {kind}) -> ({kind}, {kind}, {kind}) {{
      %0 = stablehlo.add %a, %b : {kind}
      %1 = stablehlo.multiply %0, %b : {kind}
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %sum = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1]
        : ({kind}, tensor<f32>) -> tensor<{rows}xf32>
      %wide = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<{rows}xf32>) -> {kind}
      %2 = stablehlo.subtract %1, %wide : {kind}
      return %0, %1, %2 : {kind}, {kind}, {kind}
    }}"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("columns", [63, 64, 200])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_rows_of_any_length_and_slices_of_any_start(
    target: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target > host_target().isa:
        pytest.skip(f"this machine is {host_target().isa}")
    text = program_of(37, columns, f"tensor<37x{columns}xf32>")
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((37, columns), np.float32) for _ in range(2))
    options = CompileOptions(numerics="strict")
    plain = Kernel(lower_module(text, 2, target, options, lambda _: None))
    everything(monkeypatch)
    compiled = lower_module(text, 2, target, options, lambda _: None)
    assert b"sfence" in compiled.artifacts["asm"]
    assert b"movnt" in compiled.artifacts["asm"]
    past = Kernel(compiled)
    wanted = plain(a, b)
    same_bits(past(a, b), wanted)
    same_bits(past(a, b, host=threaded_host()), wanted)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("element", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed: int, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(seed, element)
    with np.errstate(all="ignore"):
        wanted = build(program, "strict")(*program.inputs)
        everything(monkeypatch)
        past = build(program, "strict")
        same_bits(past(*program.inputs), wanted)
        same_bits(past(*program.inputs, host=threaded_host()), wanted)


def test_small_results_stay_in_the_caches() -> None:
    text = program_of(37, 1024, "tensor<37x1024xf32>")
    compiled = lower_module(text, 2, host_target().isa, CompileOptions(), lambda _: None)
    assert b"movnt" not in compiled.artifacts["asm"]


@pytest.mark.parametrize(("columns", "asks"), [(1024, True), (8192, False)])
def test_rows_to_come_are_asked_for(columns: int, asks: bool) -> None:
    """Where they are short, and gone over more than once."""
    rows = 2 * streams.LARGE // (4 * columns)
    text = program_of(rows, columns, f"tensor<{rows}x{columns}xf32>")
    compiled = lower_module(text, 2, host_target().isa, CompileOptions(), lambda _: None)
    assert b"movnt" in compiled.artifacts["asm"]
    assert (b"prefetcht1" in compiled.artifacts["asm"]) == asks


def optimizer_of(count: int) -> str:
    """``count`` arrays of 2 MiB: two results of each, one of which reads the other."""
    kind = "tensor<512x1024xf32>"
    lines = [
        f"%m{i} = stablehlo.add %a{i}, %b{i} : {kind}\n%p{i} = stablehlo.multiply %m{i}, %a{i} : {kind}"
        for i in range(count)
    ]
    arguments = ", ".join(f"%a{i}: {kind}, %b{i}: {kind}" for i in range(count))
    kinds = ", ".join([kind] * 2 * count)
    values = ", ".join([f"%m{i}" for i in range(count)] + [f"%p{i}" for i in range(count)])
    return f"""
    func.func @main({arguments}) -> ({kinds}) {{
      {chr(10).join(lines)}
      return {values} : {kinds}
    }}"""


def test_results_that_are_large_together_go_past_the_caches() -> None:
    options = CompileOptions()
    for count, wanted in ((3, False), (8, True)):
        compiled = lower_module(optimizer_of(count), 2 * count, host_target().isa, options, lambda _: None)
        assert (b"movnt" in compiled.artifacts["asm"]) == wanted
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((512, 1024), np.float32) for _ in range(16)]
    results = Kernel(compiled)(*arrays, host=threaded_host())
    for i in range(8):
        np.testing.assert_array_equal(results[i], arrays[2 * i] + arrays[2 * i + 1])
        np.testing.assert_array_equal(results[8 + i], results[i] * arrays[2 * i])


def test_results_that_another_launch_reads_stay_in_the_caches() -> None:
    text = """
    func.func @main(%a: tensor<4096x4096xf32>, %b: tensor<2048x1024xf32>)
        -> (tensor<2048x1024xf32>, tensor<2048x2048xf32>, tensor<4096x4096xf32>) {
      %0 = stablehlo.add %b, %b : tensor<2048x1024xf32>
      %1 = stablehlo.dot_general %0, %0, contracting_dims = [1] x [1]
        : (tensor<2048x1024xf32>, tensor<2048x1024xf32>) -> tensor<2048x2048xf32>
      %2 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
        : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
      return %0, %1, %2 : tensor<2048x1024xf32>, tensor<2048x2048xf32>, tensor<4096x4096xf32>
    }"""
    compiled = lower_module(text, 2, host_target().isa, CompileOptions(), lambda _: None)
    assert b"movnt" not in compiled.artifacts["asm"]
