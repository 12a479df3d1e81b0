"""Selects beside logical instructions of AVX-512, some of which LLVM 22 merges incorrectly."""

from __future__ import annotations

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.emission import emit, emit_assembly, emit_object, optimize
from kcache_compiler.llvm.link import link
from kcache_compiler.llvm.masked_logic import may_be_incorrect, without_avx512, without_merged_selects
from kcache_compiler.llvm.target import target_named
from tests.compiler.codegen_harness import kernel_of, load, runs_here

TARGET = target_named("x86-64-v4")
ELU = """func.func @main(%x: tensor<{n}xbf16>) -> tensor<{n}xbf16> {{
  %0 = stablehlo.convert %x : (tensor<{n}xbf16>) -> tensor<{n}xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<{n}xf32>
  %1 = stablehlo.compare LT, %zero, %0 : (tensor<{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xi1>
  %2 = stablehlo.exponential_minus_one %0 : tensor<{n}xf32>
  %3 = stablehlo.select %1, %0, %2 : tensor<{n}xi1>, tensor<{n}xf32>
  %4 = stablehlo.convert %3 : (tensor<{n}xf32>) -> tensor<{n}xbf16>
  return %4 : tensor<{n}xbf16> }}"""
INTRINSIC = "@llvm.x86.avx512.pternlog.d.512"
#: Where ``y`` is positive the function 0xCA, ``(a & b) | (~a & c)``, of three operands, elsewhere ``kept``.
FUNCTION = """define void @{name}(ptr %px, ptr %pr, ptr %pm, ptr %py, ptr %po) {{
  %x = load <16 x i32>, ptr %px, align 4
  %r = load <16 x i32>, ptr %pr, align 4
  %y = load <16 x i32>, ptr %py, align 4
  call void asm sideeffect "", "~{{memory}}"()
  %m = load <16 x i32>, ptr %pm, align 4
  %v = call <16 x i32> {intrinsic}(<16 x i32> %{a}, <16 x i32> %{b}, <16 x i32> %{c}, i32 202)
  %mask = icmp sgt <16 x i32> %y, zeroinitializer
  %result = select <16 x i1> %mask, <16 x i32> %v, <16 x i32> %{kept}
  store <16 x i32> %result, ptr %po, align 4
  ret void
}}
"""
#: Where ``y`` is positive ``r`` with the sign of ``x``, and ``r`` elsewhere.
MERGED = """define <4 x {type}> @f(<4 x i{bits}> %x, <4 x i{bits}> %r, <4 x i{bits}> %y) {{
  %signs = and <4 x i{bits}> %x, splat (i{bits} {sign})
  %others = and <4 x i{bits}> %r, splat (i{bits} {rest})
  %joined = or <4 x i{bits}> %others, %signs
  %value = bitcast <4 x i{bits}> %joined to <4 x {type}>
  %kept = bitcast <4 x i{bits}> %r to <4 x {type}>
  %mask = icmp sgt <4 x i{bits}> %y, zeroinitializer
  %result = select <4 x i1> %mask, <4 x {type}> %value, <4 x {type}> %kept
  ret <4 x {type}> %result
}}
"""


@pytest.mark.skipif(not runs_here("x86-64-v4"), reason="needs AVX-512")
def test_functions_of_bits_beside_a_select() -> None:
    cases = [(*order, kept) for order in itertools.permutations("xrm") for kept in "xrm"]
    text = f"declare <16 x i32> {INTRINSIC}(<16 x i32>, <16 x i32>, <16 x i32>, i32 immarg)\n"
    for a, b, c, kept in cases:
        text += FUNCTION.format(name=f"{a}{b}{c}_{kept}", intrinsic=INTRINSIC, a=a, b=b, c=c, kept=kept)
    bitcode, _ = emit(optimize(text, TARGET, 3), TARGET, 3)
    names = ["".join(order) + f"_{kept}" for *order, kept in cases]
    library = load(link([emit_object(bitcode, TARGET, 3)], TARGET, names))
    generator = np.random.default_rng(0)
    values = {name: generator.integers(-(2**31), 2**31, 16).astype(np.int32) for name in "xrmy"}
    for name, (a, b, c, kept) in zip(names, cases, strict=True):
        got = np.zeros(16, np.int32)
        arrays = [*values.values(), got]
        getattr(library, name)(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
        chosen = (values[a] & values[b]) | (~values[a] & values[c])
        np.testing.assert_array_equal(got, np.where(values["y"] > 0, chosen, values[kept]), name)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", [16, 24, 31, 36, 64, 1000])
def test_elu_in_half_precision(n: int) -> None:
    """Constants are in memory, or in registers in a loop and behind it."""
    x = np.linspace(-8, 8, n).astype(ml_dtypes.bfloat16)
    kernel = kernel_of(ELU.format(n=n), "x86-64-v4")
    assert not may_be_incorrect(kernel.compiled.artifacts["asm"].decode())
    (got,) = kernel(x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), np.where(wide > 0, wide, np.expm1(wide)), rtol=2**-8)


@pytest.mark.parametrize(("type", "bits"), [("i32", 32), ("float", 32), ("i64", 64), ("double", 64)])
def test_values_of_selects_are_opaque_where_llvm_would_merge_them(type: str, bits: int) -> None:
    text = MERGED.format(type=type, bits=bits, sign=-(2 ** (bits - 1)), rest=2 ** (bits - 1) - 1)
    bitcode = optimize(text, TARGET, 3)
    assert may_be_incorrect(emit_assembly(bitcode, TARGET, 3))
    changed, assembly = emit(bitcode, TARGET, 3)
    assert changed != bitcode
    assert not may_be_incorrect(assembly)
    assert assembly == emit_assembly(changed, TARGET, 3)
    assert emit(changed, TARGET, 3) == (changed, assembly)


@pytest.mark.parametrize(
    "operands",
    ["i1 %c, i32 %x, i32 %y", "<4 x i1> %c, <4 x ptr> %x, <4 x ptr> %y", "i1 %c, <4 x i32> %x, <4 x i32> %y"],
)
def test_other_selects_stay(operands: str) -> None:
    text = f"  %0 = select {operands}"
    assert without_merged_selects(text).strip() == text.strip()


def test_constants_stay() -> None:
    text = "  %0 = select nsz <4 x i1> %c, <4 x float> splat (float 1.0), <4 x float> %x, !prof !1"
    *_, changed, _, declaration = without_merged_selects(text).strip().split("\n")
    assert changed == text.replace("%x", "%fence.0.false")
    assert declaration == "declare <4 x float> @llvm.arithmetic.fence.v4f32(<4 x float>)"


#: ``r``, some elements of it with the sign of ``x``: LLVM merges them by a constant mask.
SHUFFLED = """define void @f(ptr %px, ptr %pr, ptr %po) !note !0 {{
  %x = load <16 x i32>, ptr %px, align 4
  %r = load <16 x i32>, ptr %pr, align 4
  %signs = and <16 x i32> %x, splat (i32 -2147483648)
  %others = and <16 x i32> %r, splat (i32 2147483647)
  %joined = or <16 x i32> %others, %signs
  %result = {result}
  store <16 x i32> %result, ptr %po, align 4
  {more}
  ret void
}}
!0 = !{{}}
"""
_CHANGED = [i % 8 in (1, 4, 5, 7) for i in range(16)]
_CHOICES = ", ".join(f"i32 {i if changed else i + 16}" for i, changed in enumerate(_CHANGED))
_MASK = ", ".join(f"i1 {int(changed)}" for changed in _CHANGED)
_SHUFFLES = (
    f"shufflevector <16 x i32> %joined, <16 x i32> %r, <16 x i32> <{_CHOICES}>",
    f"select <16 x i1> <{_MASK}>, <16 x i32> %joined, <16 x i32> %r",
)


@pytest.mark.sampled(4)
@pytest.mark.skipif(not runs_here("x86-64-v4"), reason="needs AVX-512")
@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize("result", _SHUFFLES)
def test_a_shuffle_that_llvm_would_merge(result: str, opt_level: int) -> None:
    bitcode = optimize(SHUFFLED.format(result=result, more=""), TARGET, opt_level)
    assert may_be_incorrect(emit_assembly(bitcode, TARGET, opt_level))
    changed, assembly = emit(bitcode, TARGET, opt_level)
    assert not may_be_incorrect(assembly)
    assert "%zmm" not in assembly
    assert assembly == emit_assembly(changed, TARGET, opt_level)
    library = load(link([emit_object(changed, TARGET, opt_level)], TARGET, ["f"]))
    generator = np.random.default_rng(0)
    x, r = (generator.integers(-(2**31), 2**31, 16).astype(np.int32) for _ in range(2))
    got = np.zeros(16, np.int32)
    library.f(*(ctypes.c_void_p(array.ctypes.data) for array in (x, r, got)))
    joined = (x & np.int32(-(2**31))) | (r & np.int32(2**31 - 1))
    np.testing.assert_array_equal(got, np.where(_CHANGED, joined, r))


def test_other_attributes_of_functions_stay() -> None:
    text = "define internal void @f(ptr %x) unnamed_addr #1 !a !2 !b !3 {"
    features = ",".join(f"+{name}" for name in TARGET.features if "avx512" not in name)
    changed = text.replace(" !a", f' "target-features"="{features}" !a')
    assert without_avx512(text, TARGET) == changed


def test_intrinsics_of_avx512_need_it() -> None:
    """LLVM would end the process without it."""
    arguments = ", ".join(f"<16 x i32> %{name}" for name in ("x", "r", "signs"))
    more = f"%v = call <16 x i32> {INTRINSIC}({arguments}, i32 202)\n  store <16 x i32> %v, ptr %px, align 4"
    text = SHUFFLED.format(result=_SHUFFLES[0], more=more)
    text += f"declare <16 x i32> {INTRINSIC}(<16 x i32>, <16 x i32>, <16 x i32>, i32 immarg)\n"
    bitcode = optimize(text, TARGET, 3)
    with pytest.raises(CompileFailed, match="merges a select"):
        emit(bitcode, TARGET, 3)
