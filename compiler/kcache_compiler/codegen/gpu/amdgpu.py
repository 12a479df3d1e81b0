"""Kernels for AMD's GPUs: the same LLVM IR with other names, and a code object of it.

A warp is half a wave of 64: what its 32 lanes do together stays within that half. Matrix instructions and
copies past the registers are not asked for, as the target has none of NVIDIA's.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from kcache_compiler.codegen.gpu.sizes import refused
from kcache_compiler.codegen.llvmir import emit_object
from kcache_compiler.codegen.stage import Unit
from kcache_compiler.errors import CompileFailed, UnsupportedOp
from kcache_compiler.package.amd import kernels_of
from kcache_compiler.package.link import LINK_TIMEOUT, linkers
from kcache_compiler.types import GpuResources

#: NVIDIA's intrinsic -> AMD's that is called just so.
_SAME = {
    **{f"read.ptx.sreg.tid.{axis}": f"llvm.amdgcn.workitem.id.{axis}" for axis in "xyz"},
    **{f"read.ptx.sreg.ctaid.{axis}": f"llvm.amdgcn.workgroup.id.{axis}" for axis in "xyz"},
}
_LANE = """  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
"""
_MARKS = "alwaysinline convergent"
#: NVIDIA's intrinsic -> a function that does the same.
_FUNCTIONS = {
    "barrier.cta.sync.aligned.all": """define internal void @{name}(i32 %number) {marks} {{
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  ret void }}""",
    "bar.warp.sync": """define internal void @{name}(i32 %lanes) {marks} {{
  fence syncscope("wavefront") release
  call void @llvm.amdgcn.wave.barrier()
  fence syncscope("wavefront") acquire
  ret void }}""",
    "shfl.sync.bfly.i32": """define internal i32 @{name}(i32 %of, i32 %one, i32 %bits, i32 %end) {marks} {{
{lane}  %other = xor i32 %lane, %bits
  %place = shl i32 %other, 2
  %found = call i32 @llvm.amdgcn.ds.bpermute(i32 %place, i32 %one)
  ret i32 %found }}""",
    "vote.any.sync": """define internal i1 @{name}(i32 %of, i1 %here) {marks} {{
{lane}  %all = call i64 @llvm.amdgcn.ballot.i64(i1 %here)
  %half = and i32 %lane, 32
  %wide = zext i32 %half to i64
  %moved = lshr i64 %all, %wide
  %mine = trunc i64 %moved to i32
  %some = icmp ne i32 %mine, 0
  ret i1 %some }}""",
}
_DECLARED = """declare void @llvm.amdgcn.s.barrier()
declare void @llvm.amdgcn.wave.barrier()
declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i64 @llvm.amdgcn.ballot.i64(i1)"""
_INTRINSIC = re.compile(r"@llvm\.nvvm\.([\w.]+)")
_THREADS = re.compile(r'"nvvm\.reqntid"="(\d+),(\d+),(\d+)"')
_STACK = re.compile(r"^(\s*)%([\w.]+) = alloca (.*)$", re.MULTILINE)


def retarget(unit: Unit) -> None:
    """LLVM IR for NVIDIA's GPUs becomes that for AMD's. Raises ``UnsupportedOp`` for what
    has no form there.
    """
    unit.llvm_ir = for_amd(unit.llvm_ir)


def for_amd(text: str) -> str:
    """The text of a module, with functions in the place of NVIDIA's intrinsics."""
    used = dict.fromkeys(_INTRINSIC.findall(text))
    for name in used:
        if name not in _SAME and name not in _FUNCTIONS:
            raise UnsupportedOp(
                f"llvm.nvvm.{name}", "it has no form for AMD's GPUs; compile for an NVIDIA or a CPU target"
            )
    text = re.sub(
        r"^declare .*@llvm\.nvvm\.(?:" + "|".join(map(re.escape, _FUNCTIONS)) + r")\(.*$\n",
        "",
        text,
        flags=re.MULTILINE,
    )
    text = _INTRINSIC.sub(lambda found: "@" + _SAME.get(found[1], _own(found[1])), text)
    text = text.replace("ptx_kernel", "amdgpu_kernel").replace(' "nvvm.minctasm"="1"', "")
    text = _THREADS.sub(_block, text)
    text = _STACK.sub(
        r"\1%own.\2 = alloca \3, addrspace(5)\n\1%\2 = addrspacecast ptr addrspace(5) %own.\2 to ptr", text
    )
    made = [
        _FUNCTIONS[name].format(name=_own(name), lane=_LANE, marks=_MARKS)
        for name in used
        if name in _FUNCTIONS
    ]
    return "\n".join([text, *([*made, _DECLARED] if made else []), ""])


def _own(name: str) -> str:
    return "kcache_" + name.replace(".", "_")


def _block(found: re.Match[str]) -> str:
    threads = int(found[1]) * int(found[2]) * int(found[3])
    return f'"amdgpu-flat-work-group-size"="{threads},{threads}"'


def link_code_object(unit: Unit) -> None:
    """Sets the code object, and what each launch takes of the GPU."""
    linker = next((one for one in linkers() if one.emulations is None), None)
    if linker is None:
        raise CompileFailed(
            "hsaco", "code objects for AMD's GPUs need ld.lld: install lld, or pip install ziglang"
        )
    with tempfile.TemporaryDirectory(prefix="kcache-hsaco-") as folder:
        made, linked = Path(folder) / "kernel.o", Path(folder) / "kernel.hsaco"
        made.write_bytes(emit_object(unit.bitcode, unit.target, unit.options.opt_level))
        command = [
            *linker.command,
            "-shared",
            "--build-id=none",
            "--no-undefined",
            made.name,
            "-o",
            linked.name,
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LINK_TIMEOUT)
        if done.returncode or not linked.is_file():
            raise CompileFailed("hsaco", f"ld.lld: {done.stderr.strip()[:2000]}")
        unit.object_code = linked.read_bytes()
    found = kernels_of(unit.object_code, unit.target.name)
    for number, launch in enumerate(unit.gpu_launches):
        kernel = found.get(launch.entry)
        if kernel is None or kernel.block_threads != launch.block[0] * launch.block[1] * launch.block[2]:
            raise CompileFailed(
                "hsaco", f"the code object has no {launch.entry} for blocks of {launch.block}"
            )
        passed = tuple((8 * at, 8, not one.startswith("i64:")) for at, one in enumerate(launch.params))
        if kernel.parameters != passed:
            raise CompileFailed("hsaco", f"{launch.entry} does not take the parameters of its launch")
        spilled = 4 * (kernel.vector_spills + kernel.scalar_spills)
        if spilled and "gpu_" in unit.options.schedule:
            raise refused(
                f"{unit.target.name} has too few registers for it: {launch.entry} spills {spilled} bytes"
            )
        resources = GpuResources(
            kernel.vector_registers, spilled, kernel.shared_bytes, kernel.scalar_registers
        )
        unit.gpu_launches[number] = replace(launch, resources=resources)
