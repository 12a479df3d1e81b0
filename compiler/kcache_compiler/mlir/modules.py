"""Contexts, parsing, passes and translation of modules."""

from __future__ import annotations

import functools

from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.dialects import llvm as llvm_dialect
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.passmanager import PassManager

from kcache_compiler.mlir.types import Module

MLIRError: type[Exception] = ir.MLIRError

#: The dialects whose operations are created by name or by passes; others load when a program holds them.
#: Loading every dialect of the toolchain takes a tenth of the compile time of a small kernel.
_DIALECTS = (
    *("affine", "arith", "bufferization", "cf", "complex", "func", "index", "linalg", "llvm", "math"),
    *("memref", "scf", "shape", "tensor", "ub", "vector"),
)


@functools.cache
def _register_passes() -> None:
    _stablehlo.register_stablehlo_passes()


def new_context() -> ir.Context:
    """A context with the dialects of the pipeline loaded, threads off and no unregistered operations."""
    _register_passes()
    context = ir.Context(load_on_create_dialects=_DIALECTS)
    context.enable_multithreading(False)
    _stablehlo.register_dialect(context)
    torch_dialect.register_dialect(context)
    with context, ir.Location.unknown():
        # CHLO has no registration of its own in the bindings; a pass that can create its operations loads it.
        run_passes(ir.Module.create(), "builtin.module(func.func(convert-torch-to-stablehlo))")
    return context


def parse(text: str | bytes) -> Module:
    """The module of ``text`` in the current context; raises ``MLIRError``."""
    return ir.Module.parse(text)


def run_passes(module: Module, pipeline: str, between: bool = True, verify: bool = True) -> None:
    """Run ``pipeline`` and verify the module between its passes; raises ``MLIRError`` with the diagnostics.

    If not ``between``, only the result is verified, and nothing if not ``verify``: a verification takes as
    long as most passes.
    """
    passes = PassManager.parse(pipeline)
    passes.enable_verifier(between and verify)
    passes.run(module.operation)
    if verify and not between:
        module.operation.verify()


def splice(module: Module, text: str, *declared: str) -> None:
    """Append the functions of the module ``text``, without those in ``declared``, which ``module`` has."""
    parsed = ir.Module.parse(text)
    last = list(module.body.operations)[-1].operation
    for operation in [operation.operation for operation in parsed.body.operations]:
        if ir.StringAttr(operation.attributes["sym_name"]).value not in declared:
            operation.move_after(last)
            last = operation


def to_llvm_text(module: Module) -> str:
    """The LLVM IR text of a module in the LLVM dialect; other operations crash the process."""
    return llvm_dialect.translate_module_to_llvmir(module.operation)


def diagnostics_of(error: Exception) -> list[tuple[str, str]]:
    """Location and first line of each diagnostic of an ``MLIRError``."""
    diagnostics = error.error_diagnostics if isinstance(error, ir.MLIRError) else []
    return [
        (str(entry.location).removeprefix("loc(").removesuffix(")"), entry.message.split("\n")[0])
        for entry in diagnostics
    ]
