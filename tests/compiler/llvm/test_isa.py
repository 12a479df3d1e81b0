"""What a kernel requires is what its code contains: enough for an assembler, and no level more."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable

import numpy as np
import pytest

from kcache_compiler.llvm.cpus import CPUS
from kcache_compiler.llvm.isa import required_features
from kcache_compiler.llvm.target import TARGETS, target_named
from tests.compiler.codegen_harness import compile_text
from tests.compiler.programs import PROGRAMS
from tests.ops.harness.native import run

#: LLVM's name -> GNU's, where they differ.
_GNU = {
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
}
_AVX512 = {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
ADD = """func.func @main(%x: tensor<4096xTxf32>) -> tensor<4096xTxf32> {
  %0 = stablehlo.add %x, %x : tensor<4096xTxf32>
  return %0 : tensor<4096xTxf32> }""".replace("xTx", "x")
SCALAR = """func.func @main(%x: tensor<i64>) -> tensor<i64> {
  %0 = stablehlo.add %x, %x : tensor<i64>
  return %0 : tensor<i64> }"""
#: Broadcast, shift by a constant, iota: AVX-512 has forms of AVX2's words for them.
INTEGERS = """func.func @main(%x: tensor<DTYPE>, %y: tensor<33x65xDTYPE>)
    -> (tensor<33x65xDTYPE>, tensor<33x65xDTYPE>, tensor<33x65xDTYPE>) {
  %c = stablehlo.constant dense<5> : tensor<33x65xDTYPE>
  %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<DTYPE>) -> tensor<33x65xDTYPE>
  %1 = stablehlo.shift_right_arithmetic %y, %c : tensor<33x65xDTYPE>
  %2 = stablehlo.iota dim = 0 : tensor<33x65xDTYPE>
  %3 = stablehlo.add %2, %y : tensor<33x65xDTYPE>
  return %0, %1, %3 : tensor<33x65xDTYPE>, tensor<33x65xDTYPE>, tensor<33x65xDTYPE> }"""
NAMES = ("arithmetic-f32", "arithmetic-f16", "arithmetic-bf16", "contraction-f32", "contraction-f64")
TEXTS = {program.name: program.text for program in PROGRAMS if program.name in NAMES}


def assembles(text: str, features: Iterable[str]) -> bool:
    """Whether GNU as takes the whole text with these features alone."""
    head = ".arch generic64\n" + "".join(f".arch .{_GNU.get(name, name)}\n" for name in features)
    command = ["as", "-o", "/dev/null", "-"]
    done = subprocess.run(
        command, input=(head + text).encode(), capture_output=True, check=False, timeout=240
    )
    return done.returncode == 0


@pytest.mark.sampled(4)
@pytest.mark.skipif(shutil.which("as") is None, reason="needs binutils")
@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_integers_of_a_cpu_that_prefers_short_vectors(dtype: str) -> None:
    compiled = compile_text(INTEGERS.replace("DTYPE", dtype), "skylake-avx512")
    assert assembles(compiled.artifacts["asm"].decode(), compiled.interface.required_isa)


@pytest.mark.sampled(12)
@pytest.mark.skipif(shutil.which("as") is None, reason="needs binutils")
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "sapphirerapids", "znver5"])
@pytest.mark.parametrize("name", TEXTS)
def test_an_assembler_needs_no_more_than_is_required(name: str, target: str) -> None:
    compiled = compile_text(TEXTS[name], target)
    required = compiled.interface.required_isa
    assembly = compiled.artifacts["asm"].decode()
    assert set(required) <= set(target_named(target).features)
    assert assembles(assembly, required)
    if set(required) >= _AVX512:
        assert not assembles(assembly, ["avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "popcnt", "movbe"])
    elif "avx" in required:
        assert not assembles(assembly, ["sse4.2", "bmi", "bmi2", "lzcnt", "popcnt", "movbe"])


def test_a_kernel_needs_the_level_that_it_uses_only() -> None:
    assert compile_text(SCALAR, "x86-64-v4").interface.required_isa == ()
    assert compile_text(ADD, "x86-64-v2").interface.required_isa == ()
    assert compile_text(ADD, "x86-64-v3").interface.required_isa == ("avx", "avx2")
    assert set(compile_text(ADD, "x86-64-v4").interface.required_isa) == {"avx", "avx2"} | _AVX512
    # Intel's model prefers 256 bits: what the kernel of level 4 gets by choice, this one by tuning
    assert compile_text(ADD, "skylake-avx512").interface.required_isa == ("avx", "avx2")


def test_code_for_another_cpu_runs_where_it_needs_nothing_special() -> None:
    compiled = compile_text(SCALAR, "sapphirerapids")
    (doubled,) = run(compiled, [np.int64(21).tobytes()], [])
    assert np.frombuffer(doubled, np.int64) == 42


@pytest.mark.parametrize(
    ("line", "target", "needed"),
    [
        ("vaddps\t%ymm0, %ymm1, %ymm2", "x86-64-v4", {"avx", "avx2"}),
        ("vaddps\t%ymm16, %ymm1, %ymm2", "x86-64-v4", {"avx", "avx2", *_AVX512}),
        ("vaddps\t(%rax){1to8}, %ymm1, %ymm2", "x86-64-v4", {"avx", "avx2", *_AVX512}),
        ("vpbroadcastd\t%eax, %ymm0", "x86-64-v4", {"avx", "avx2", *_AVX512}),
        ("vpbroadcastd\t%xmm1, %ymm0", "x86-64-v4", {"avx", "avx2"}),
        ("vpbroadcastq\t(%rdi), %ymm0", "x86-64-v4", {"avx", "avx2"}),
        ("vpsrad\t$5, (%rdi), %ymm0", "x86-64-v4", {"avx", "avx2", *_AVX512}),
        ("vpsrldq\t$5, 32(%rdi), %ymm0", "x86-64-v4", {"avx", "avx2", *_AVX512}),
        ("vpsrad\t$5, %ymm1, %ymm0", "x86-64-v4", {"avx", "avx2"}),
        ("vpermq\t%ymm1, %ymm2, %ymm0", "x86-64-v4", {"avx", "avx2", *_AVX512}),
        ("vpermq\t$78, (%rdi), %ymm0", "x86-64-v4", {"avx", "avx2"}),
        ("vpternlogd\t$1, %xmm0, %xmm1, %xmm2", "x86-64-v4", {"avx", "avx2", *_AVX512}),
        ("vfmadd213ps\t%ymm0, %ymm1, %ymm2", "x86-64-v3", {"avx", "avx2", "fma"}),
        ("lock\t\tcmpxchgq\t%rcx, (%rdi)", "x86-64-v3", set()),
        ("rep\t\tbsfq\t%rcx, %rdx", "x86-64-v3", set()),
        ("tzcntq\t%rcx, %rdx", "x86-64-v3", {"bmi"}),
        ("cmovneq\t%rcx, %rdx", "x86-64-v3", set()),
        ("cmpltps\t%xmm0, %xmm1", "x86-64-v2", set()),
        ("vdpbf16ps\t%zmm0, %zmm1, %zmm2", "znver4", {"avx", "avx2", "avx512bf16", *_AVX512}),
        ("fadd\tv0.4s, v0.4s, v1.4s", "neoverse-n1", set()),
        ("fadd\tv0.8h, v0.8h, v1.8h", "neoverse-n1", {"fullfp16"}),
        ("fcvt\ts0, h0", "neoverse-n1", set()),
        ("scvtf\th0, w0", "neoverse-n1", {"fullfp16"}),
        ("sdot\tv0.4s, v1.16b, v2.16b", "neoverse-n1", {"dotprod"}),
        ("ldaddal\tw0, w1, [x2]", "neoverse-n1", {"lse"}),
    ],
)
def test_one_instruction(line: str, target: str, needed: set[str]) -> None:
    assert set(required_features(f"f:\n\t.text\n\t{line}\n\tret\n", target_named(target))) == needed


@pytest.mark.parametrize("target", [*TARGETS, *CPUS])
def test_what_is_unknown_needs_everything(target: str) -> None:
    chosen = target_named(target)
    assert required_features("\tfrobnicate\n", chosen) == chosen.features
    assert required_features("", chosen) == ()


@pytest.mark.parametrize("target", ["aarch64-sve", "neoverse-v1"])
def test_scalable_vectors_are_used_and_required(target: str) -> None:
    compiled = compile_text(ADD, target)
    assert "z0.s" in compiled.artifacts["asm"].decode()
    assert "sve" in compiled.interface.required_isa
    assert compile_text(SCALAR, target).interface.required_isa == ()
