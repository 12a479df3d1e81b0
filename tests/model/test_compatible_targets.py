"""Lower targets: which ones a target includes, and that their kernels run wherever its own do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_compiler.llvm.target import target_named
from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu.target import GPU_TARGETS
from kcache_grpc.model.options import Options
from kcache_grpc.model.target import (
    CPU_NAMES,
    CPU_TARGETS,
    CpuTarget,
    compatible_targets,
    may_serve,
    parse_target,
)
from kcache_grpc.model.wire import options_to_proto, target_match_from_proto, target_match_to_proto

pytestmark = pytest.mark.issue(number=20, point=7)

ALL = (*CPU_TARGETS, *CPU_NAMES)
LEVELS = {name: frozenset(target_named(name).features) for name in CPU_TARGETS}
FEATURES = sorted({feature for name in ALL for feature in target_named(name).features})


def architecture(name: str) -> str:
    return target_named(name).architecture


@pytest.mark.parametrize(
    ("target", "lower"),
    [
        ("x86-64-v4", ("x86-64-v3", "x86-64-v2")),
        ("x86-64-v2", ()),
        ("znver3", ("x86-64-v3", "x86-64-v2")),
        ("znver5", ("x86-64-v4", "x86-64-v3", "x86-64-v2")),
        ("aarch64-sve", ("aarch64",)),
        ("neoverse-n1", ("aarch64",)),
        ("sm_90", ()),
    ],
)
def test_lower_targets_come_highest_level_first(target: str, lower: tuple[str, ...]) -> None:
    assert tuple(map(str, compatible_targets(parse_target(target)))) == lower


@pytest.mark.parametrize("name", ALL)
def test_the_compiler_knows_the_same_levels_of_each_target(name: str) -> None:
    """Exactly the levels whose features the target has, by the compiler's own lists."""
    has = frozenset(target_named(name).features)
    levels = {
        level
        for level, needs in LEVELS.items()
        if level != name and architecture(level) == architecture(name) and needs <= has
    }
    assert {str(lower) for lower in compatible_targets(CpuTarget(name))} == levels


@pytest.mark.parametrize("name", GPU_TARGETS)
def test_a_gpu_includes_no_other_target(name: str) -> None:
    assert compatible_targets(parse_target(name)) == ()


@given(st.sampled_from(ALL), st.sampled_from(ALL), st.sets(st.sampled_from(FEATURES), max_size=6))
def test_a_kernel_that_may_serve_runs_where_the_target_does(
    asked: str, kernel: str, required: set[str]
) -> None:
    if not may_serve(CpuTarget(kernel), tuple(required), CpuTarget(asked)):
        return
    assert architecture(kernel) == architecture(asked)
    assert kernel != asked
    assert required <= frozenset(target_named(asked).features)


@given(st.sampled_from(ALL), st.data())
def test_all_that_a_level_may_need_may_serve(asked: str, data: st.DataObject) -> None:
    for lower in compatible_targets(CpuTarget(asked)):
        features = sorted(LEVELS[str(lower)])
        required = data.draw(st.sets(st.sampled_from(features)) if features else st.just(set[str]()))
        assert may_serve(lower, tuple(required), CpuTarget(asked))


def test_code_beyond_its_level_serves_nobody_else() -> None:
    """Even where the target that was asked for has the feature: the manifest contradicts itself."""
    v2, v4 = CpuTarget("x86-64-v2"), CpuTarget("x86-64-v4")
    assert may_serve(v2, ("sse4.2",), v4)
    assert not may_serve(v2, ("avx2",), v4)
    assert not may_serve(v4, (), v2)
    assert not may_serve(CpuTarget("znver3"), (), v4)


def test_the_option_is_no_ingredient() -> None:
    """It is in no text, no digest and no manifest; and the wire has it beside the options."""
    for value in (None, True, False):
        options = Options(compatible_targets=value)
        assert str(options) == str(Options())
        assert options_to_proto(options) == options_to_proto(Options())
        assert target_match_from_proto(target_match_to_proto(value)) is value
    assert Options(compatible_targets=True) != Options(compatible_targets=False)


def test_unknown_values_are_rejected() -> None:
    with pytest.raises(ArgumentError, match="use True, False or None"):
        Options(compatible_targets="yes")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="unknown target match number 9"):
        target_match_from_proto(9)


def test_a_client_of_before_gets_its_target_only() -> None:
    assert target_match_from_proto(common_pb2.TARGET_MATCH_UNSPECIFIED) is False
