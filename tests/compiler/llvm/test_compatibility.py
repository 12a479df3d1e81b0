"""LLVM 24 text means the same to LLVM 22: every float format, every kind of value, whole programs."""

# ruff: noqa: E501 (programs as text)

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from typing import Any

import llvmlite.binding
import numpy as np
import pytest
from torch_mlir import ir
from torch_mlir.dialects import llvm as llvm_dialect
from torch_mlir.execution_engine import ExecutionEngine

from kcache_compiler.compile import lower_module, lower_until
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm import emission as llvmir
from kcache_compiler.llvm.compatibility import FORMATS, bits_of, downgrade, spell
from kcache_compiler.llvm.target import target_named
from kcache_compiler.types import CompileOptions, KernelInterface
from tests.compiler.codegen_harness import Kernel
from tests.compiler.programs import PROGRAMS, Program

TARGET = target_named("x86-64-v2")
_FEATURES = llvmlite.binding.get_host_cpu_features()
HOST = (
    "x86-64-v3"
    if all(_FEATURES.get(name) for name in target_named("x86-64-v3").features if name != "sahf")
    else "x86-64-v2"
)
MLIR_TYPE = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
SPECIAL = {
    "float": [
        0,
        0x80000000,
        1,
        0x80000001,
        0x7FFFFF,
        0x800000,
        0x7F7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
    ]
    + [0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7FC12345, 0x3DCCCCCD, 0x42B17218, 0x3F800000],
    "double": [
        0,
        1 << 63,
        1,
        0xFFFFFFFFFFFFF,
        1 << 52,
        0x7FEFFFFFFFFFFFFF,
        0x7FF0000000000000,
        0xFFF0000000000000,
    ]
    + [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF, 0x3FB999999999999A],
}


#: Zeros, the least and the greatest numbers, infinities, and NaN of both signs, quiet and signaling.
NARROW_SPECIAL = {
    "half": [
        0,
        0x8000,
        1,
        0x8001,
        0x3FF,
        0x400,
        0x7BFF,
        0x7C00,
        0xFC00,
        0x7E00,
        0xFE00,
        0x7C01,
        0xFC01,
        0x7FFF,
    ],
    "bfloat": [
        0,
        0x8000,
        1,
        0x8001,
        0x7F,
        0x80,
        0x7F7F,
        0x7F80,
        0xFF80,
        0x7FC0,
        0xFFC0,
        0x7F81,
        0xFF81,
        0x7FFF,
    ],
}


def patterns(name: str) -> list[int]:
    """All bit patterns of a narrow format; specials and a seeded sample of a wide one."""
    width = FORMATS[name].width
    if width == 16:
        return list(range(1 << 16))
    sample = np.random.default_rng(width).integers(0, 1 << 63, 4096, dtype=np.uint64)
    exact = np.random.default_rng(1).integers(-1000, 1000, 500).astype("f4" if width == 32 else "f8") / 8
    return (
        SPECIAL[name]
        + [int(bits) >> (63 - width if width < 64 else 0) for bits in sample]
        + [int(bits) for bits in exact.view(f"u{width // 8}")]
    )


# On every change, of a narrow format only specials and every seventh pattern.
@pytest.mark.sampled(4)
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FORMATS)
def test_the_bits_of_constants_survive(name: str, step: int) -> None:
    width = FORMATS[name].width // 8
    wanted = patterns(name)
    if width == 2:
        wanted = [*wanted[::step], *NARROW_SPECIAL[name]]
    blob = b"".join(bits.to_bytes(width, "little") for bits in wanted)
    kind = MLIR_TYPE[name]
    text = (
        f'llvm.mlir.global external constant @values(dense<"0x{blob.hex()}"> : tensor<{len(wanted)}x{kind}>)'
        f" : !llvm.array<{len(wanted)} x {kind}>"
    )
    with ir.Context() as context, ir.Location.unknown():
        context.load_all_available_dialects()
        newer = llvm_dialect.translate_module_to_llvmir(ir.Module.parse(text).operation)
    code = llvmir.emit_object(llvmir.optimize(downgrade(newer), TARGET, 0), TARGET, 0)
    assert blob in code


@pytest.mark.parametrize("name", FORMATS)
def test_spelling_and_reading_are_inverse(name: str) -> None:
    form = FORMATS[name]
    for bits in patterns(name)[:: 257 if form.width == 16 else 1]:
        literal = f"f0x{bits:0{form.width // 4}X}"
        assert bits_of(literal, form) == bits
        assert spell(bits, form).startswith(form.prefix)


def test_decimals_round_once_in_their_own_format() -> None:
    halfway = "1.00000005960464477539062500000000000000000000000000000000001"
    assert bits_of(halfway, FORMATS["float"]) == 0x3F800001
    assert bits_of("1.401300e-45", FORMATS["float"]) == 1
    assert bits_of("9.997550e-02", FORMATS["half"]) == 0x2E66
    for number in (0.1, 1e300, 5e-324, 1.7976931348623157e308, 2.0**-1022, 3.0, 123456.789):
        assert (
            bits_of(repr(number) if "e" not in repr(number) else f"{number:.17e}", FORMATS["double"])
            == (struct.unpack("<Q", struct.pack("<d", number))[0])
        )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  %1 = fadd half %0, 9.997550e-02", "  %1 = fadd half %0, 0xH2E66"),
        (
            "  ret <2 x bfloat> <bfloat 1.0, bfloat -inf>",
            "  ret <2 x bfloat> <bfloat 0xR3F80, bfloat 0xRFF80>",
        ),
        (
            "  %3 = fmul <4 x float> %2, splat (float 1.000000e+00)",
            "  %3 = fmul <4 x float> %2, splat (float 0x3FF0000000000000)",
        ),
        ("  %float.1 = add i64 %inf, 15", "  %float.1 = add i64 %inf, 15"),
        ('@"f 1.5" = constant [9 x i8] c"float 1.5"', '@"f 1.5" = constant [9 x i8] c"float 1.5"'),
        ("  %2 = fptrunc double +qnan to half", "  %2 = fptrunc double 0x7FF8000000000000 to half"),
        ("; float 1.5 in a comment", "; float 1.5 in a comment"),
    ],
)
def test_lines(line: str, expected: str) -> None:
    assert downgrade(line) == expected


def test_attributes_of_intrinsics_are_dropped_and_others_kept() -> None:
    text = (
        "define void @f() #1 {\n  ret void\n}\ndeclare float @llvm.sqrt.f32(float) #0\n"
        "attributes #0 = { somethingnew }\nattributes #1 = { nounwind }\n"
    )
    assert downgrade(text) == (
        "define void @f() #1 {\n  ret void\n}\ndeclare float @llvm.sqrt.f32(float)\nattributes #1 = { nounwind }\n"
    )


@pytest.mark.parametrize(
    "text", ["define float @f() {\n  ret float 0y12\n}", "@x = constant float f0x", "@x = frobnicate"]
)
def test_an_unknown_construct_fails_loudly(text: str) -> None:
    with pytest.raises(CompileFailed):
        llvmir.optimize(downgrade(text), TARGET, 0)


def test_a_literal_without_a_type_fails_loudly() -> None:
    with pytest.raises(CompileFailed, match="without a type"):
        downgrade("@x = constant 1.5")


#: Under the other classes each LLVM reorders sums in its own way.
STRICT = CompileOptions(numerics="strict")


def without_nan_bits(array: np.ndarray) -> bytes:
    """The bytes of an array, all NaN alike: neither IEEE 754 nor LLVM says what sign and payload one gets."""
    if array.dtype.kind in "biu":
        return array.tobytes()
    return np.where(np.isnan(array), np.array(np.nan, array.dtype), array).tobytes()


class EngineKernel(Kernel):
    """The same LLVM dialect module, run by the toolchain's own LLVM instead of ours."""

    def __init__(self, program: Program, interface: KernelInterface) -> None:
        self.interface = interface
        with lower_until(program.text, 1000, HOST, "translate", STRICT) as module:
            self.engine = ExecutionEngine(module, opt_level=0)
        packed = self.engine.raw_lookup("kcache_run")
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(packed)

        def run(*arguments: Any) -> int:
            words = (ctypes.c_void_p * 4)(
                *[ctypes.cast(word, ctypes.c_void_p) if word is not None else None for word in arguments]
            )
            code = ctypes.c_int32(-1)
            pointers = (ctypes.c_void_p * 5)(
                *[ctypes.addressof(words) + 8 * i for i in range(4)], ctypes.addressof(code)
            )
            call(pointers)
            return code.value

        self.library = type("Library", (), {"kcache_run": staticmethod(run)})


@pytest.mark.sampled(24)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("opt_level", [0, 3])
def test_both_llvms_compute_the_same_bits(program: Program, opt_level: int) -> None:
    inputs = program.inputs()
    options = replace(STRICT, opt_level=opt_level)
    kernel = Kernel(lower_module(program.text, 1000, HOST, options, lambda _: None))
    ours, theirs = kernel(*inputs), EngineKernel(program, kernel.interface)(*inputs)
    for left, right in zip(ours, theirs, strict=True):
        assert without_nan_bits(left) == without_nan_bits(right)
