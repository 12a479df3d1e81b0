"""Compiled libraries are kept between processes: the same bytes, compiled once, for each form and target."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from kcache_compiler import CompiledKernel, CompileOptions, canonicalize, compile_spec, precompile_libraries
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower import libraries
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
    library = compiled_library(form, target, first)
    assert len(first.saved) == 1
    second = Kept(first.contents)
    monkeypatch.setattr(objects, "optimize", None)  # whoever compiled would call it
    assert compiled_library(form, target, second) == library
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


def _compiled(program: bytes, cache: Kept | None) -> CompiledKernel:
    """As in a new process."""
    _forget()
    canonical = canonicalize(program, "stablehlo")
    return compile_spec(
        canonical.spec_text, canonical.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None, cache
    )


@pytest.mark.sampled(2)
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
    for cache in (None, kept, kept):
        kernel = _compiled(PRODUCT, cache)
        kernels.append(kernel.artifacts["so"] + kernel.artifacts["asm"])
    assert kernels[0] == kernels[1] == kernels[2]
    assert len(kept.saved) == 1


ATTENTION = b"""
func.func @main(%q: tensor<48x32xf32>, %k: tensor<64x32xf32>, %v: tensor<64x32xf32>) -> tensor<48x32xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, contracting_dims = [1] x [1]
    : (tensor<48x32xf32>, tensor<64x32xf32>) -> tensor<48x64xf32>
  %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<48x64xf32>, tensor<f32>) -> tensor<48xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<48xf32>) -> tensor<48x64xf32>
  %d = stablehlo.subtract %s, %mb : tensor<48x64xf32>
  %e = stablehlo.exponential %d : tensor<48x64xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<48x64xf32>, tensor<f32>) -> tensor<48xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<48xf32>) -> tensor<48x64xf32>
  %w = stablehlo.divide %e, %tb : tensor<48x64xf32>
  %0 = stablehlo.dot_general %w, %v, contracting_dims = [1] x [0]
    : (tensor<48x64xf32>, tensor<64x32xf32>) -> tensor<48x32xf32>
  return %0 : tensor<48x32xf32>
}"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("program", "bound"),
    [pytest.param(PRODUCT, (), marks=pytest.mark.long), (PRODUCT, (1,)), (ATTENTION, ())],
    ids=["product", "bound", "attention"],
)
def test_precompiled_libraries_are_those_of_kernels(program: bytes, bound: tuple[int, ...]) -> None:
    def compiled(cache: Kept) -> bytes:
        _forget()
        canonical = canonicalize(program, "stablehlo")
        options = CompileOptions(bound=bound)
        kernel = compile_spec(
            canonical.spec_text, canonical.arg_spec, "x86-64-v3", options, lambda _: None, cache
        )
        return kernel.artifacts["so"]

    demanded, precompiled = Kept(), Kept()
    expected = compiled(demanded)
    assert demanded.saved
    _forget()
    assert precompile_libraries("x86-64-v3", precompiled) == 3
    assert set(demanded.saved) <= set(precompiled.saved)
    assert compiled(precompiled) == expected
    assert len(precompiled.saved) == 3
    assert precompile_libraries("x86-64-v3", precompiled) == 0


def test_what_is_precompiled_is_saved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A precompilation that is ended goes on where it was."""
    kept = Kept()
    compile_library = libraries.compiled_library

    def compile_one(*arguments: object) -> object:
        if kept.saved:
            raise KeyboardInterrupt
        return compile_library(*arguments)  # type: ignore[arg-type]

    _forget()
    with monkeypatch.context() as patch:
        patch.setattr(libraries, "compiled_library", compile_one)
        with pytest.raises(KeyboardInterrupt):
            precompile_libraries("x86-64-v3", kept)
    assert len(kept.saved) == 1
    assert precompile_libraries("x86-64-v3", kept) == 2


def test_gpus_have_no_libraries_to_precompile() -> None:
    assert precompile_libraries("sm_80", Kept()) == 0


def test_libraries_of_an_unknown_target_are_rejected() -> None:
    with pytest.raises(CompileFailed, match="unknown target"):
        precompile_libraries("x86-64-v9", Kept())
