"""The library of a form as object code: compiled once per process, linked beside the kernels that use it."""

from __future__ import annotations

import functools

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.gemm.library import library
from kcache_compiler.codegen.gemm.shape import Form
from kcache_compiler.codegen.llvmir import assemble, assembles, emit_assembly, emit_object, optimize
from kcache_compiler.codegen.seam import downgrade
from kcache_compiler.package.target import Target

#: MLIR passes from the library's text to the LLVM dialect.
PASSES = "convert-scf-to-cf,convert-arith-to-llvm,convert-cf-to-llvm,canonicalize,cse"


def _lowered(form: Form) -> mlir.Module:
    module = mlir.parse(library(form))
    mlir.run_passes(module, f"builtin.module({PASSES})")
    return module


def splice_library(module: mlir.Module, form: Form) -> None:
    """Put the library into a kernel's module in place of its declaration, for engines that link nothing."""
    for function in mlir.named(module, "llvm.func"):
        if mlir.symbol_of(function) == f"{form.name}_run":
            function.erase()
    mlir.splice(module, str(_lowered(form)))


@functools.cache
def library_bitcode(form: Form, target: Target) -> bytes:
    with mlir.new_context(), mlir.unknown_location():
        text = downgrade(mlir.to_llvm_text(_lowered(form)))
    return optimize(text, target, 3)


@functools.cache
def library_object(form: Form, target: Target) -> bytes:
    if assembles(target):
        return assemble(library_assembly(form, target), target)
    return emit_object(library_bitcode(form, target), target, 3)


@functools.cache
def library_assembly(form: Form, target: Target) -> str:
    return emit_assembly(library_bitcode(form, target), target, 3)
