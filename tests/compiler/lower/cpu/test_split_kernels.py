"""Kernels whose LLVM module is emitted as two: the results of those that are emitted as one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm import split_module
from kcache_compiler.lower.cpu import emission
from kcache_compiler.types import CompiledKernel, CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, threaded_host
from tests.compiler.lower.bound.test_bound import Bound
from tests.compiler.random_programs import random_program

#: Products, a softmax and reductions: several launches, some of which have functions of their own.
LAYERS = """
func.func @main(%x: tensor<40x32xf32>, %w: tensor<32x48xf32>, %v: tensor<48x32xf32>)
    -> (tensor<40x32xf32>, tensor<40xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<40x32xf32>, tensor<32x48xf32>) -> tensor<40x48xf32>
  %m = stablehlo.reduce(%p init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<40x48xf32>, tensor<f32>) -> tensor<40xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<40xf32>) -> tensor<40x48xf32>
  %d = stablehlo.subtract %p, %mb : tensor<40x48xf32>
  %e = stablehlo.exponential %d : tensor<40x48xf32>
  %r = stablehlo.dot_general %e, %v, contracting_dims = [1] x [0]
    : (tensor<40x48xf32>, tensor<48x32xf32>) -> tensor<40x32xf32>
  %t = stablehlo.tanh %r : tensor<40x32xf32>
  %s = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<40x32xf32>, tensor<f32>) -> tensor<40xf32>
  return %t, %s : tensor<40x32xf32>, tensor<40xf32>
}"""


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every kernel is split; the second halves."""
    seconds: list[str] = []
    split = split_module.split_module

    def observed(text: str) -> tuple[str, ...]:
        parts = split(text)
        seconds.extend(parts[1:])
        return parts

    monkeypatch.setattr(split_module, "LEAST_TEXT", 0)
    monkeypatch.setattr(emission, "split_module", observed)
    return seconds


def compiled(text: str, inputs: int, target: str = "x86-64-v2", level: int = 3) -> CompiledKernel:
    return lower_module(text, inputs, target, CompileOptions("strict", level), lambda _: None)


def layers() -> list[np.ndarray]:
    draw = np.random.default_rng(7)
    return [draw.standard_normal(shape, dtype=np.float32) for shape in ((40, 32), (32, 48), (48, 32))]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("level", [0, 3])
def test_results_are_those_of_the_whole(
    target: str, level: int, halves: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    split = compiled(LAYERS, 3, target, level)
    assert len(halves) == 1
    monkeypatch.setattr(split_module, "LEAST_TEXT", 1 << 30)
    whole = compiled(LAYERS, 3, target, level)
    assert len(halves) == 1
    assert split.artifacts["so"] != whole.artifacts["so"]
    assert split.interface == whole.interface
    expected = Kernel(whole)(*layers())
    for host in (None, threaded_host(3)):
        for result, right in zip(Kernel(split)(*layers(), host=host), expected, strict=True):
            assert result.tobytes() == right.tobytes()


def test_equal_programs_have_equal_bytes(halves: list[str]) -> None:
    first, second = compiled(LAYERS, 3), compiled(LAYERS, 3)
    assert first.artifacts == second.artifacts
    assert len(halves) == 2


def test_code_for_another_machine(halves: list[str]) -> None:
    """No assembler is at hand: objects are emitted from the optimized halves."""
    assert compiled(LAYERS, 3, "aarch64").artifacts["so"][:4] == b"\x7fELF"
    assert len(halves) == 1


def test_prepare_and_run_programs_are_split_each(halves: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = layers()
    kernel = Bound(LAYERS, 3, [1, 2], "strict")
    assert halves
    results = kernel.run(kernel.prepare(*arrays[1:]), arrays[0])
    monkeypatch.setattr(split_module, "LEAST_TEXT", 1 << 30)
    expected = Kernel(compiled(LAYERS, 3))(*arrays)
    for result, right in zip(results, expected, strict=True):
        assert result.tobytes() == right.tobytes()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int, halves: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(seed)
    values = np.random.default_rng(seed)
    arrays = [
        np.asarray(values.integers(0, 2 if element == "i1" else 100, size=dims)).astype(NUMPY[element])
        for element, dims in program.arguments
    ]
    split = Kernel(compiled(program.text, len(arrays), level=random.Random(seed).choice([0, 2, 3])))
    monkeypatch.setattr(split_module, "LEAST_TEXT", 1 << 30)
    whole = Kernel(compiled(program.text, len(arrays), level=1))
    for result, expected in zip(split(*arrays), whole(*arrays), strict=True):
        assert result.tobytes() == expected.tobytes()


def test_a_failure_of_the_second_half_is_that_of_the_compile(
    halves: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    optimize = emission.optimize

    def fail_in_second(text: str, *rest: object) -> bytes:
        if "@kcache_run(" not in text:
            raise CompileFailed("llvm", "no such instruction")
        return optimize(text, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(emission, "optimize", fail_in_second)
    with pytest.raises(CompileFailed, match="no such instruction"):
        compiled(LAYERS, 3)
    assert halves
