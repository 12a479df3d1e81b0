"""Tuning models: LLVM schedules and chooses instructions for a CPU without using more of its features."""

from __future__ import annotations

from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Rewrite, Stage, Unit


def _tune(unit: Unit) -> None:
    model = tuning_for(unit.target.name, unit.options.tuning).llvm
    if not model:
        return
    for function in mlir.named(unit.module, "llvm.func"):
        function.attributes["tune_cpu"] = mlir.string_attr(model)


#: After lowering to the LLVM dialect.
TUNE: Stage = Rewrite("tuning", _tune)
