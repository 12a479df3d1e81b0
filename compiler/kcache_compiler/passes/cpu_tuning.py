"""Tuning models: LLVM schedules and chooses instructions for a CPU without using more of its features."""

from __future__ import annotations

from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.types import CompileOptions


def tune(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Give every function the tuning model of the options."""
    model = tuning_for(target.name, options.tuning).llvm
    if not model:
        return
    for function in mlir.named(module, "llvm.func"):
        function.attributes["tune_cpu"] = mlir.string_attr(model)
