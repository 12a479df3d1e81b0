"""GPU targets: which GPUs run what, and which drivers take it."""

from __future__ import annotations

import pytest

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu.target import GPU_TARGETS, GpuTarget, newest_ptx, oldest_driver
from kcache_grpc.model.target import CpuTarget, parse_target


def test_names_are_gpus_or_cpus_and_nothing_else() -> None:
    assert parse_target("sm_90") == GpuTarget("sm_90")
    assert isinstance(parse_target("host"), CpuTarget)
    with pytest.raises(ArgumentError, match=r"unknown GPU target 'sm_130'.* sm_75, .*sm_90a, .*sm_121f"):
        parse_target("sm_130")
    with pytest.raises(ArgumentError, match=r"unknown target 'SM_90'.* x86-64-v2, .*sm_120"):
        parse_target("SM_90")


@pytest.mark.parametrize(
    ("arch", "runs", "rejected"),
    [
        ("sm_80", [(8, 0), (8, 6), (9, 0), (12, 1)], [(7, 5)]),
        ("sm_90a", [(9, 0)], [(8, 0), (10, 0)]),
        ("sm_100f", [(10, 0), (10, 3)], [(9, 0), (11, 0), (12, 0)]),
        ("sm_103f", [(10, 3)], [(10, 0), (11, 0)]),
        ("sm_120", [(12, 0), (12, 1)], [(10, 3)]),
    ],
)
def test_ptx_runs_forward_unless_the_suffix_says_otherwise(
    arch: str, runs: list[tuple[int, int]], rejected: list[tuple[int, int]]
) -> None:
    target = GpuTarget(arch)
    assert all(target.runs_on(capability) for capability in runs)
    assert not any(target.runs_on(capability) for capability in rejected)


def test_cubins_stay_within_their_major_version() -> None:
    target = GpuTarget("sm_80")
    assert target.cubin_runs_on((8, 0))
    assert target.cubin_runs_on((8, 9))
    assert not target.cubin_runs_on((9, 0))
    assert not GpuTarget("sm_86").cubin_runs_on((8, 0))


def test_drivers_by_cuda_version() -> None:
    assert newest_ptx((12, 4)) == (8, 4)
    assert newest_ptx((12, 6)) == (8, 5)
    assert newest_ptx((99, 0)) == newest_ptx((13, 1))
    assert newest_ptx((9, 2)) is None
    assert oldest_driver((7, 8)) == (11, 8)
    for arch in GPU_TARGETS:
        driver = oldest_driver(GpuTarget(arch).ptx)
        assert (newest_ptx(driver) or (0, 0)) >= GpuTarget(arch).ptx


def test_client_and_compiler_name_the_same_gpus() -> None:
    from kcache_compiler.llvm import gpu_targets as gpu

    assert tuple(gpu.GPU_TARGETS) == GPU_TARGETS
    for name, theirs in gpu.GPU_TARGETS.items():
        ours = GpuTarget(name)
        assert (ours.ptx, ours.capability) == (theirs.ptx, theirs.capability)
        assert (ours.exact, ours.family) == (
            theirs.reach is gpu.Reach.EXACT,
            theirs.reach is gpu.Reach.FAMILY,
        )


@pytest.mark.parametrize("name", ["gfx942", "sm_91"])
def test_a_gpu_that_is_not_supported_is_an_error_that_lists_those_that_are(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"'{name}'; use one of .*sm_90"):
        GpuTarget(name)
