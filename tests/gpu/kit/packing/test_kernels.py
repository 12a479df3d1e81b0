"""Kernels that are emitted for several GPUs from one lowering are those that a compile for each gives."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest

pytest.importorskip("jax")

from benchmarks.gpu.kit.packing.kernels import kernels_for
from benchmarks.gpu.kit.packing.pack import TARGETS, _related, sources
from kcache_compiler.llvm.gpu_targets import gpu_target_named
from kcache_compiler.llvm.target import Target
from kcache_compiler.lower.gpu import emission
from kcache_compiler.types import CompiledKernel
from tests.gpu.kit.packing import packs

#: Of every group; attention and a product that take more shared memory than an sm_120 has; ones that spill
#: registers unless a block may take all of them.
CASES = (
    "template/matmul/bf16/128x128x64",
    "template/pointwise/f32/dynamic",
    "template/softmax/f64/dynamic",
    "attention/f32/1x1x40x70x200",
    "attention/f16/1x2x65x130x128/causal",
    "attention/plain/f64/dynamic",
    "reductions/add/bf16/1024x24",
    "corpus/onnx_attention_block/strict/dynamic",
    "demo/mlp_train_step",
    "choices/random/7",
    "choices/random/12",
    "loops/collatz/dynamic",
    "ops/maximum-i8",
    "overwriting/2/dynamic",
    "random/60",
    "narrow/multiply/f8E5M2",
    "softmax/1024",
)


@pytest.mark.sampled(54)
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_that_is_lowered_once_has_the_bytes_of_a_compile(name: str) -> None:
    program = packs.sources()[name].build()
    kernels = kernels_for(program, TARGETS)
    assert kernels
    for target, kernel in kernels.items():
        compiled = program.compiled(target)
        assert kernel.artifacts == compiled.artifacts, target
        assert kernel.interface == compiled.interface, target


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("cp_async", ["sm_90"]),
        ("threads", ["sm_90", "sm_120"]),
        ("shared_total", ["sm_90", "sm_80", "sm_120"]),
        ("shared_opt_in", ["sm_90"]),
    ],
)
def test_a_program_is_lowered_again_where_a_property_that_it_reads_differs(
    name: str, targets: list[str]
) -> None:
    program, lowered = packs.sources()["template/pointwise/f32/3x5"].build(), list[str]()

    def compiled(target: str) -> CompiledKernel:
        lowered.append(target)
        assert getattr(gpu_target_named(target), name)
        return program.compiled(target)

    assert [*kernels_for(replace(program, compiled=compiled), TARGETS)] == [*TARGETS]
    assert lowered == targets


def test_what_is_emitted_for_several_targets_is_optimized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    optimized, optimize = list[str](), emission.optimize

    def counted(text: str, target: Target, level: int, vectorize: bool) -> bytes:
        optimized.append(target.name)
        return optimize(text, target, level, vectorize=vectorize)

    monkeypatch.setattr(emission, "optimize", counted)
    assert len(kernels_for(packs.sources()["template/pointwise/f32/3x5"].build(), TARGETS)) == 4
    assert optimized == ["sm_90", "sm_100"]


def test_graphs_of_every_numerics_are_packed_with_one_kernel_of_the_cpu() -> None:
    corpus = [number for number, source in enumerate(sources()) if source.group == "corpus"]
    parts = [[sources()[number].name.split("/")[1] for number in part] for part in _related(corpus)]
    assert [len(set(part)) for part in parts] == [1] * len(parts)
    assert len(parts) == len([*groupby(name for part in parts for name in part)])
    assert max(map(len, _related([*range(len(sources()))]))) == 8
