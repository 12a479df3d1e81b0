"""Compiled libraries are kept between processes: the same bytes, compiled once, for each form and target."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from kcache_compiler import CompiledKernel, CompileOptions, canonicalize, compile_spec
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gemm import objects
from kcache_compiler.lower.gemm.objects import compiled_library
from kcache_compiler.schedule.gemm_tiles import form_for

PRODUCT = b"""
func.func @main(%a: tensor<40x50xf32>, %b: tensor<50x60xf32>) -> tensor<40x60xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<40x50xf32>, tensor<50x60xf32>) -> tensor<40x60xf32>
  return %0 : tensor<40x60xf32>
}"""


DYNAMIC = b"""
func.func @main(%a: tensor<?x50xf32>, %b: tensor<50x60xf32>) -> tensor<?x60xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<?x50xf32>, tensor<50x60xf32>) -> tensor<?x60xf32>
  return %0 : tensor<?x60xf32>
}"""


@dataclass(eq=False)
class Kept:
    """A cache in memory that counts."""

    contents: dict[str, bytes] = field(default_factory=dict[str, bytes])
    saved: list[str] = field(default_factory=list[str])
    threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def load(self, name: str) -> bytes | None:
        return self.contents.get(name)

    def save(self, name: str, content: bytes) -> None:
        self.saved.append(name)
        self.threads.append(threading.current_thread())
        self.contents[name] = content


def _forget() -> None:
    """As a new process is."""
    compiled_library.cache_clear()


def test_a_new_process_takes_the_library_that_another_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Kept()
    form = form_for(
        target_named("x86-64-v3"),
        tuning_for("x86-64-v3", "generic"),
        ("f32", "f32", "f32"),
        "f32",
        exact=False,
    )
    target = target_named("x86-64-v3")
    _forget()
    made = compiled_library(form, target, first)
    assert len(first.saved) == 1
    second = Kept(first.contents)
    monkeypatch.setattr(objects, "optimize", None)  # whoever compiled would call it
    assert compiled_library(form, target, second) == made
    assert second.saved == []
    with pytest.raises(TypeError):
        compiled_library(form, target, Kept())
    _forget()


def test_names_differ_by_form_target_and_level(monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()
    for isa in ("x86-64-v3", "haswell"):
        target, tuning = target_named(isa), tuning_for(isa, "generic")
        form = form_for(target, tuning, ("f32", "f32", "f32"), "f32", exact=False)
        names.add(objects.library_name(form, target, "text"))
        names.add(objects.library_name(form, target, "other text"))
    monkeypatch.setattr(objects, "LEVEL", 2)
    names.add(objects.library_name(form, target, "text"))
    assert len(names) == 5


def _compiled(program: bytes, libraries: Kept | None) -> CompiledKernel:
    """As in a new process."""
    _forget()
    canonical = canonicalize(program, "stablehlo")
    return compile_spec(
        canonical.spec_text, canonical.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None, libraries
    )


@pytest.mark.parametrize("program", [PRODUCT, DYNAMIC], ids=["static", "dynamic"])
def test_a_library_is_compiled_by_a_thread_that_ends_with_the_compilation(program: bytes) -> None:
    kept = Kept()
    _compiled(program, kept)
    (thread,) = kept.threads
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


def test_a_library_that_cannot_be_compiled_fails_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise CompileFailed("library", "no such form")

    monkeypatch.setattr(objects, "library", fail)
    with pytest.raises(CompileFailed, match="no such form"):
        _compiled(PRODUCT, Kept())


def test_a_kernel_is_the_same_bytes_with_and_without() -> None:
    kernels: list[bytes] = []
    kept = Kept()
    for libraries in (None, kept, kept):
        kernel = _compiled(PRODUCT, libraries)
        kernels.append(kernel.artifacts["so"] + kernel.artifacts["asm"])
    assert kernels[0] == kernels[1] == kernels[2]
    assert len(kept.saved) == 1
