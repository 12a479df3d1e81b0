"""How far AMD GPUs go: kernels without shuffles become code objects that link. They are no target yet."""

from __future__ import annotations

import importlib.util
import re
import struct
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from kcache_compiler.codegen.gpu.pipeline import lower_gpu
from kcache_compiler.types import CompileOptions
from tests.compiler.gpu.test_golden import POINTS, TURN

TRIPLE = "amdgcn-amd-amdhsa"
#: Of ELF: AMD's GPUs, and the machines in the lowest byte of the flags.
_MACHINE, _CHIPS = 224, {"gfx90a": 0x3F, "gfx942": 0x4C}
_NAMES = {"tid": "workitem.id", "ctaid": "workgroup.id"}


def for_amd(text: str) -> str:
    """LLVM IR of a kernel for NVIDIA's GPUs with the names that AMD's have; shuffles have none."""
    text = text.replace("ptx_kernel", "amdgpu_kernel")
    for theirs, ours in _NAMES.items():
        text = text.replace(f"@llvm.nvvm.read.ptx.sreg.{theirs}.", f"@llvm.amdgcn.{ours}.")
    return re.sub(r"@llvm\.nvvm\.barrier[\w.]*\([^)]*\)", "@llvm.amdgcn.s.barrier()", text)


def code_object(text: str, chip: str) -> bytes:
    """A relocatable object."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=chip, features="", opt=3, reloc="pic")
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no ziglang, which brings ld.lld")
@pytest.mark.parametrize(("text", "inputs"), [(POINTS, 2), (TURN, 1)], ids=["points", "transposition"])
@pytest.mark.parametrize("chip", list(_CHIPS))
def test_kernels_without_shuffles_link_as_a_code_object(
    chip: str, text: str, inputs: int, tmp_path: Path
) -> None:
    kernel = lower_gpu(text, inputs, "sm_90", CompileOptions(), lambda _: None)
    source = for_amd(kernel.artifacts["llvm"].decode())
    assert "nvvm" not in re.sub(r'"nvvm\.\w+"', "", source)
    made, linked = tmp_path / "kernel.o", tmp_path / "kernel.hsaco"
    made.write_bytes(code_object(source, chip))
    command = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", made, "-o", linked]
    subprocess.run(command, check=True, timeout=120)
    content = linked.read_bytes()
    kind, machine = struct.unpack_from("<HH", content, 16)
    (flags,) = struct.unpack_from("<I", content, 48)
    assert (kind, machine, flags & 0xFF) == (3, _MACHINE, _CHIPS[chip])
    for name in ("launch_0.kd", ".vgpr_spill_count\0", ".kernarg_segment_size"):
        assert name.encode() in content
