"""Kernels for AMD's GPUs: code objects that link, whose descriptors and metadata say what they take.

None has run on such a GPU. What is compiled is the IR that the emulator runs for NVIDIA's, with other names.
"""

from __future__ import annotations

import importlib.util
import re
import struct

import llvmlite.binding as llvm
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.codegen.gpu import lower_gpu
from kcache_compiler.codegen.gpu.amdgpu import for_amd
from kcache_compiler.errors import CompileFailed, UnsupportedOp
from kcache_compiler.package.amd import MACHINES, kernels_of
from kcache_compiler.types import CompiledKernel, CompileOptions
from tests.compiler.gpu.programs import LOOP, PRODUCT, matmul
from tests.compiler.gpu.test_golden import POINTS, ROWS, TURN
from tests.gpu.programs import narrow_attention
from tests.recognition.corpus import NAMES, read

needs_linker = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="no ziglang, which brings ld.lld"
)
#: Text, number of inputs, form of the launch.
PROGRAMS = {
    "stream": (POINTS, 2, "stream"),
    "transposition": (TURN, 1, "transposition"),
    "rows": (ROWS, 1, "rows"),
    "product": (matmul(65, 33, 96, "f32"), 3, "contraction"),
    "large product": (matmul(2048, 64, 2048, "f32"), 3, "contraction"),
    "bf16 product": (matmul(128, 96, 192, "bf16"), 3, "contraction"),
    "attention": (narrow_attention(1, 1, 37, 75, 40, "f32", causal=True), 3, "attention"),
}


def compiled(name: str, target: str) -> CompiledKernel:
    text, inputs, _ = PROGRAMS[name]
    return lower_gpu(text, inputs, target, CompileOptions(), lambda _: None)


@needs_linker
@pytest.mark.parametrize("chip", list(MACHINES))
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_every_form_links_as_a_code_object(name: str, chip: str) -> None:
    kernel = compiled(name, chip)
    (launch,) = kernel.interface.gpu_launches
    assert launch.ops[0] == PROGRAMS[name][2]
    (found,) = kernels_of(kernel.artifacts["hsaco"], chip).values()
    assert (found.name, found.wave) == (launch.entry, 64)
    assert found.block_threads == launch.block[0] * launch.block[1] * launch.block[2]
    assert found.parameter_bytes == 8 * len(launch.params)  # nothing hidden behind them
    assert found.parameters == tuple((8 * at, 8, True) for at in range(len(launch.params)))
    assert found.shared_bytes + int(launch.shared_bytes) <= 64 << 10
    assert found.private_bytes == 0
    assert found.vector_spills == found.scalar_spills == 0
    resources = launch.resources
    assert resources is not None
    assert (resources.spill_bytes, resources.static_shared) == (0, found.shared_bytes)
    assert 0 < resources.registers <= 512
    assert 0 < resources.scalar_registers <= 112
    assert "llvm.nvvm" not in kernel.artifacts["llvm"].decode()


@needs_linker
@pytest.mark.long
@pytest.mark.parametrize("chip", list(MACHINES))
@pytest.mark.parametrize("name", NAMES)
def test_a_graph_of_the_corpus_has_a_code_object(name: str, chip: str) -> None:
    canonical = canonicalize(read(name).texts[1].encode(), "stablehlo", "default")
    kernel = compile_spec(canonical.spec_text, canonical.arg_spec, chip, CompileOptions(), lambda _: None)
    launches = kernel.interface.gpu_launches
    assert kernels_of(kernel.artifacts["hsaco"], chip).keys() == {one.entry for one in launches}
    assert [one.resources.spill_bytes for one in launches if one.resources] == [0] * len(launches)


@needs_linker
def test_equal_programs_give_equal_bytes() -> None:
    assert compiled("rows", "gfx942").artifacts == compiled("rows", "gfx942").artifacts


@needs_linker
def test_code_objects_that_contradict_themselves_are_refused() -> None:
    content = bytearray(compiled("rows", "gfx942").artifacts["hsaco"])
    with pytest.raises(CompileFailed, match="no code object for gfx90a"):
        kernels_of(bytes(content), "gfx90a")
    (kernel,) = kernels_of(bytes(content), "gfx942").values()
    said = struct.pack("<III", kernel.shared_bytes, kernel.private_bytes, kernel.parameter_bytes)
    assert content.count(said) == 1
    content[content.index(said)] ^= 1
    with pytest.raises(CompileFailed, match="contradicts its metadata"):
        kernels_of(bytes(content), "gfx942")


@needs_linker
def test_a_loop_has_a_code_object_and_sizes_are_passed_as_numbers() -> None:
    kernel = lower_gpu(LOOP, 1, "gfx90a", CompileOptions(), lambda _: None)
    assert [one.ops[0] for one in kernel.interface.gpu_launches] == ["points", "while"]
    kernel = lower_gpu(PRODUCT, 2, "gfx90a", CompileOptions(), lambda _: None)
    (launch,) = kernel.interface.gpu_launches
    (found,) = kernels_of(kernel.artifacts["hsaco"], "gfx90a").values()
    assert "i64:s0" in launch.params
    assert [pointer for *_, pointer in found.parameters] == [
        not one.startswith("i64:") for one in launch.params
    ]


@needs_linker
@pytest.mark.parametrize(
    ("said", "other", "reason"),
    [
        (b"amdgcn-amd-amdhsa--gfx942", b"amdgcn-amd-amdhsa--gfx941", "its metadata are for"),
        (b".uses_dynamic_stack\xc2", b".uses_dynamic_stack\xc3", "how much private memory"),
        (b".wavefront_size\x40", b".wavefront_size\x20", "waves of 32"),
    ],
)
def test_metadata_that_no_launch_fits_are_refused(said: bytes, other: bytes, reason: str) -> None:
    content = compiled("rows", "gfx942").artifacts["hsaco"]
    assert content.count(said) == 1
    with pytest.raises(CompileFailed, match=reason):
        kernels_of(content.replace(said, other), "gfx942")


def test_shuffles_and_votes_stay_within_half_a_wave() -> None:
    text = for_amd(
        """declare i1 @llvm.nvvm.vote.any.sync(i32, i1)
define ptx_kernel void @k(ptr %p) #0 {
  %s = alloca i64, align 8
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %v = call i1 @llvm.nvvm.vote.any.sync(i32 -1, i1 true)
  ret void
}
attributes #0 = { "nvvm.reqntid"="64,2,1" }
"""
    )
    assert re.search(r"and i32 %lane, 32\n.*\n.*lshr i64 %all", text)
    assert "%s = addrspacecast ptr addrspace(5) %own.s to ptr" in text
    assert '"amdgpu-flat-work-group-size"="128,128"' in text
    assert "call i32 @llvm.amdgcn.workitem.id.x()" in text


def test_memory_of_a_thread_may_have_a_number_for_a_name() -> None:
    text = for_amd(
        """define ptx_kernel void @k(ptr %0) #0 {
  %2 = alloca i8, i64 8, align 64
  %3 = load i64, ptr %2, align 8
  store i64 %3, ptr %0, align 8
  ret void
}
attributes #0 = { "nvvm.reqntid"="32,1,1" }
"""
    )
    llvm.parse_assembly(text, llvm.create_context()).verify()


def test_what_has_no_form_there_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOp, match=r"llvm\.nvvm\.ldmatrix\.sync"):
        for_amd("call i32 @llvm.nvvm.ldmatrix.sync(ptr %p)")
    with pytest.raises(CompileFailed, match="unknown target 'gfx1100'"):
        lower_gpu(POINTS, 2, "gfx1100", CompileOptions(), lambda _: None)
