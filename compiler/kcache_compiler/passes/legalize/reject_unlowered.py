"""Rejects operations of StableHLO and CHLO that have no lowering: the end of legalization."""

from __future__ import annotations

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir


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
