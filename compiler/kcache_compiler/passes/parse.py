"""The ends of legalization: parsing the rendered spec, and rejecting what has no lowering."""

from __future__ import annotations

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.choices import require_choices
from kcache_compiler.types import CompileOptions


def parse(source: str, target: Target, options: CompileOptions) -> mlir.Module:
    """The module of ``source``; raises ``InvalidProgram``, or ``CompileFailed`` for a schedule choice."""
    require_choices(options.schedule, isinstance(target, Device))
    try:
        return mlir.parse(source)
    except mlir.MLIRError as error:
        raise InvalidProgram(str(error)) from None


def reject_unlowered(module: mlir.Module) -> None:
    """Raise ``UnsupportedOp`` for the first operation that the legalization left."""
    left = [name for name in mlir.names(module) if name.startswith(("stablehlo.", "chlo."))]
    for operation in mlir.walk(module) if left else ():
        name = mlir.name_of(operation)
        if name.startswith(("stablehlo.", "chlo.")) and name != "stablehlo.return":
            reason = "it has no lowering"
            if name == "stablehlo.custom_call":
                reason = f"no definition of @{mlir.string_of(operation.attributes['call_target_name'])}"
            raise UnsupportedOp(name, reason, mlir.location_of(operation))
