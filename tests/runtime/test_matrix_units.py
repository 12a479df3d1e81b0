"""Targets for products of bf16, and kernels that need Linux's permission."""

from __future__ import annotations

import pytest

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.target import CpuTarget, host_target
from kcache_grpc.runtime.cpu import library
from kcache_grpc.runtime.cpu.library import bf16_target
from tests.runtime.test_kernel import add_kernel


def flags_of(name: str) -> frozenset[str]:
    """The flags of /proc/cpuinfo of a named CPU, from the compiler's list of its features."""
    from kcache_compiler.llvm.target import target_named
    from kcache_grpc.model.target import _flag

    return frozenset(_flag(feature) for feature in target_named(name).features)


@pytest.mark.parametrize(
    ("cpu", "permitted", "target"),
    [
        ("sapphirerapids", True, "sapphirerapids"),
        ("emeraldrapids", True, "sapphirerapids"),
        ("sapphirerapids", False, "host"),
        ("znver4", True, "znver4"),
        ("znver5", False, "znver4"),
        ("cooperlake", True, "host"),
        ("icelake-server", True, "host"),
        ("znver3", True, "host"),
    ],
)
def test_the_target_has_the_faster_instructions_of_the_machine(
    cpu: str, permitted: bool, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("kcache_grpc.model.target.host_flags", lambda: flags_of(cpu))
    monkeypatch.setattr(library, "host_flags", lambda: flags_of(cpu))
    monkeypatch.setattr(library, "may_use_tiles", lambda: permitted)
    assert bf16_target() == target


def test_other_architectures_keep_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert bf16_target() == "host"
    assert not library.may_use_tiles.__wrapped__()


def test_a_kernel_without_permission_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "missing_features", lambda *_: ())
    monkeypatch.setattr(library, "may_use_tiles", lambda: False)
    kernel = add_kernel(target=CpuTarget(host_target().isa), required_isa=("amx-tile",))
    with pytest.raises(ArgumentError, match=r"does not permit this process to use AMX.*x86-64-v4"):
        kernel.load()
