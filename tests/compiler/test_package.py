"""Shared objects are hardened, self-contained, the same every time, and of the instruction set they name."""

# ruff: noqa: E501 (programs as text)

from __future__ import annotations

import platform
import re

import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm import elf, link
from kcache_compiler.llvm.target import TARGETS, target_named
from kcache_compiler.lower.cpu import emission
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import compile_text
from tests.compiler.programs import PROGRAMS

SMALL = next(program for program in PROGRAMS if program.name == "contraction-f32").text
HALF = next(program for program in PROGRAMS if program.name == "arithmetic-f16").text


def _linkable(name: str) -> bool:
    return any(linker.links(target_named(name)) for linker in link.linkers())


def _target(name: str) -> object:
    mark = pytest.mark.skipif(not _linkable(name), reason=f"no linker here links {name}")
    return pytest.param(name, marks=mark)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", [_target(name) for name in TARGETS])
@pytest.mark.parametrize("text", [SMALL, HALF], ids=["f32", "f16"])
def test_a_shared_object_needs_nothing_and_exports_three_names(target: str, text: str) -> None:
    compiled = compile_text(text, target)
    facts = elf.read(compiled.artifacts["so"])
    assert facts.exported == {"kcache_run", "kcache_abi"}
    assert facts.undefined <= elf.ALLOWED_UNDEFINED
    assert facts.machine == target_named(target).elf_machine
    assert facts.bind_now
    assert facts.relro
    assert not facts.executable_stack
    assert not facts.text_relocations
    assert set(compiled.interface.required_isa) <= set(target_named(target).features)
    assert compiled.interface.triple == target_named(target).triple


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", [_target(name) for name in TARGETS])
def test_two_compiles_give_the_same_bytes(target: str) -> None:
    first, second = compile_text(SMALL, target), compile_text(SMALL, target)
    assert first.artifacts == second.artifacts


@pytest.mark.parametrize(
    ("target", "absent"), [("x86-64-v2", r"%[yz]mm|vmul|vadd"), ("x86-64-v3", r"%zmm|%k[1-7]")]
)
def test_code_keeps_to_the_instruction_set_it_names(target: str, absent: str) -> None:
    assert not re.search(absent, compile_text(SMALL, target).artifacts["asm"].decode())


def test_strict_multiplications_and_additions_are_not_contracted() -> None:
    options = CompileOptions(numerics="strict")
    kernel = lower_module(SMALL, len(SMALL), "x86-64-v3", options, lambda _: None)
    assert not re.search(r"vfn?m(add|sub)", kernel.artifacts["asm"].decode())


def test_paths_and_times_leave_no_trace(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_text(SMALL).artifacts["so"]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert compile_text(SMALL).artifacts["so"] == first
    assert str(tmp_path).encode() not in first
    assert b"kcache-link" not in first


def test_an_undefined_symbol_is_found() -> None:
    from kcache_compiler.llvm import emission as llvmir

    target = target_named("x86-64-v2")
    text = (
        "declare float @expf(float)\ndefine i32 @kcache_run(ptr %p) {\n"
        "  %x = load float, ptr %p\n  %y = call float @expf(float %x)\n  store float %y, ptr %p\n  ret i32 0\n}\n"
        "define i32 @kcache_abi() {\n  ret i32 1\n}\n"
    )
    code = llvmir.emit_object(llvmir.optimize(text, target, 2), target, 2)
    shared = link.link([code], target, elf.EXPORTED)
    with pytest.raises(CompileFailed, match="expf"):
        elf.check(shared, target)


def test_other_files_are_not_elf() -> None:
    with pytest.raises(CompileFailed, match="ELF64"):
        elf.read(b"\x7fELF\x01\x01" + bytes(64))


def test_no_linker_is_an_error_that_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "linkers", lambda: ())
    with pytest.raises(CompileFailed, match="ziglang"):
        link.linker_for(target_named("aarch64"))


def test_a_linker_that_fails_says_so() -> None:
    with pytest.raises(CompileFailed, match="link"):
        link.link([b"not an object"], target_named("x86-64-v2"), elf.EXPORTED)


LARGE = """func.func @main(%x: tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
  %0 = stablehlo.add %x, %x : tensor<2048x2048xf32>
  return %0 : tensor<2048x2048xf32> }"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", [_target(name) for name in (*TARGETS, "znver5", "neoverse-v1")])
def test_a_kernel_that_may_be_split_brings_the_pool(target: str) -> None:
    compiled = compile_text(LARGE, target)
    facts = elf.read(compiled.artifacts["so"])
    assert facts.exported == elf.EXPORTED | elf.POOL_EXPORTED
    assert facts.undefined <= elf.ALLOWED_UNDEFINED | elf.POOL_UNDEFINED
    assert facts.undefined >= elf.POOL_UNDEFINED
    assert compile_text(LARGE, target).artifacts["so"] == compiled.artifacts["so"]


def test_names_of_the_pool_are_allowed_with_the_pool_only() -> None:
    from kcache_compiler.llvm import emission as llvmir
    from kcache_compiler.lower.cpu.thread_pool import pool_object

    target = target_named("x86-64-v2")
    text = (
        "declare i32 @getpid()\ndefine i32 @kcache_run(ptr %p) {\n  %x = call i32 @getpid()\n  ret i32 %x\n}\n"
        "define i32 @kcache_abi() {\n  ret i32 1\n}\n"
    )
    code = llvmir.emit_object(llvmir.optimize(text, target, 2), target, 2)
    with pytest.raises(CompileFailed, match="getpid"):
        elf.check(link.link([code], target, elf.EXPORTED), target)
    both = elf.EXPORTED | elf.POOL_EXPORTED
    elf.check(link.link([code, pool_object(target)], target, both), target)


@pytest.mark.sampled(24)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM's assembler of another machine is not there")
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4", "skylake-avx512"])
@pytest.mark.parametrize("name", ["arithmetic-bf16", "contraction-f32", "functions-f64"])
def test_assembling_the_text_gives_the_object_that_is_emitted(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = next(program for program in PROGRAMS if program.name == name).text
    assembled = compile_text(text, target)
    monkeypatch.setattr(emission, "assembles", lambda _: False)
    assert compile_text(text, target).artifacts == assembled.artifacts
