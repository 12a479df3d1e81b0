"""GPU targets against LLVM and ptxas: the table says what both do."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm import ptxas
from kcache_compiler.llvm.gpu_targets import GPU_TARGETS, STATIC_SHARED, gpu_target_named, is_gpu
from kcache_compiler.llvm.ptxas import Assembly, Ptxas, assemble_ptx, find_ptxas
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gpu import cubin
from kcache_compiler.passes.stage import Pass, Unit, run
from kcache_compiler.types import CompileOptions, GpuLaunch
from tests.compiler.gpu.programs import POINTWISE

_IR = """
target triple = "nvptx64-nvidia-cuda"
@tile = internal addrspace(3) global [64 x float] undef
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @copy(ptr noalias align 16 %in, ptr noalias align 16 %out) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %slot = getelementptr float, ptr addrspace(3) @tile, i32 %tid
  %from = getelementptr float, ptr %in, i32 %tid
  %value = load float, ptr %from
  store volatile float %value, ptr addrspace(3) %slot
  %again = load volatile float, ptr addrspace(3) %slot
  %to = getelementptr float, ptr %out, i32 %tid
  store float %again, ptr %to
  ret void
}
"""
needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install nvidia-cuda-nvcc")


def ptx_of(name: str) -> str:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = gpu_target_named(name)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(cpu=name, features="", opt=3)
    return str(machine.emit_assembly(llvm.parse_assembly(_IR)))


@pytest.mark.parametrize("name", GPU_TARGETS)
def test_llvm_emits_the_ptx_version_of_the_table(name: str) -> None:
    text = ptx_of(name)
    assert re.search(r"^\.version (.+)$", text, re.MULTILINE)[1] == gpu_target_named(name).ptx_version  # type: ignore[index]
    assert re.search(r"^\.target (\w+)", text, re.MULTILINE)[1] == name  # type: ignore[index]


@pytest.mark.sampled(4)
@needs_ptxas
@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f", "sm_120"])
def test_ptxas_takes_it_and_says_what_it_costs(name: str) -> None:
    text = ptx_of(name)
    cubin, resources = assemble_ptx(text, name)
    assert cubin[:4] == b"\x7fELF"
    assert resources["copy"].static_shared >= 256
    assert 0 < resources["copy"].registers <= 32
    assert resources["copy"].spill_bytes == 0
    assert assemble_ptx(text, name)[0] == cubin


@needs_ptxas
def test_what_ptxas_rejects_is_a_compile_failure_in_its_words() -> None:
    with pytest.raises(CompileFailed, match=r"ptxas.*(syntax|error)"):
        assemble_ptx(ptx_of("sm_80").replace("st.global", "st.nowhere"), "sm_80")
    over = ptx_of("sm_80").replace("tile[256]", f"tile[{STATIC_SHARED + 256}]")
    with pytest.raises(CompileFailed, match=r"uses too much shared data"):
        assemble_ptx(over, "sm_80")


@needs_ptxas
def test_an_assembly_that_is_closed_leaves_no_process_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = _children()
    assembly = Assembly("sm_90")
    (folder,) = tmp_path.iterdir()
    (process,) = _children() - before
    assert Path(f"/proc/{process}/cwd").readlink() == folder
    assembly.close()
    assert not _children() - before
    assert not list(tmp_path.iterdir())
    assembly.close()  # again, which does nothing


@needs_ptxas
def test_a_stage_that_fails_ends_the_assembler_that_waits() -> None:
    """The stage after the assembler's start: its PTX never comes."""

    def on_stage(name: str) -> None:
        if name == "ptx":
            assert _children() - before

    def fail(unit: Unit) -> None:
        raise ZeroDivisionError("a bug")

    before = _children()
    unit = Unit("", 0, target_named("sm_90"), CompileOptions())
    unit.gpu_launches = [GpuLaunch("launch_0", (), "launch_0", "", ("1", "1", "1"), (1, 1, 1), "0", ())]
    stages = (
        Pass("assembler", cubin.begin_assembly, verify=False),
        Pass("ptx", fail, verify=False),
    )
    with pytest.raises(CompileFailed, match="a bug"):
        run(stages, unit, on_stage)
    assert not _children() - before


def _children() -> set[str]:
    """This thread's processes. Other tests of this process may have left some that still run."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


@pytest.mark.parametrize("name", GPU_TARGETS)
def test_an_assembler_takes_what_its_release_knows(name: str) -> None:
    target = gpu_target_named(name)
    assert Ptxas(Path("ptxas"), "13.0.48", (13, 0)).takes(target)
    assert Ptxas(Path("ptxas"), "12.2.140", (12, 2)).takes(target) == (target.ptx <= (8, 2))


def test_an_assembler_that_is_too_old_leaves_ptx_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejects = tmp_path / "ptxas"
    rejects.write_text("#!/bin/sh\necho \"ptxas fatal: Value '$1' is not defined\" >&2\nexit 1\n")
    rejects.chmod(0o700)
    old = Ptxas(rejects, "12.2.140", (12, 2))
    monkeypatch.setattr(ptxas, "find_ptxas", lambda: old)
    monkeypatch.setattr(cubin, "find_ptxas", lambda: old)
    compiled = lower_module(POINTWISE, 2, "sm_120", CompileOptions(), lambda _: None)
    assert "cubin" not in compiled.artifacts
    assert ".target sm_120" in compiled.artifacts["ptx"].decode()
    assert [launch.resources for launch in compiled.interface.gpu_launches] == [None]
    with pytest.raises(CompileFailed, match="is not defined"):
        lower_module(POINTWISE, 2, "sm_90", CompileOptions(), lambda _: None)


def test_unknown_architectures_are_rejected_with_the_known() -> None:
    assert is_gpu("sm_130")
    assert not is_gpu("x86-64-v3")
    with pytest.raises(CompileFailed, match=r"unknown target 'sm_130'; known: sm_75, .*sm_120"):
        gpu_target_named("sm_130")


def test_features_follow_the_architecture() -> None:
    turing, ampere = map(gpu_target_named, ("sm_75", "sm_80"))
    assert (turing.cp_async, ampere.cp_async) == (False, True)
    assert (ampere.shared_opt_in, gpu_target_named("sm_86").shared_opt_in) == (163 << 10, 99 << 10)
