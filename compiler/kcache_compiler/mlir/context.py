"""The one place that makes MLIR contexts and runs passes for the frontends.

The functions ``native_...`` return modules of the bindings, and import them at first use: a process that
compiles nothing needs none. No annotation can name a module, so the type checker infers what they return.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_mlir.ir import Context, MLIRError, WalkResult

    from kcache_compiler.mlir.types import Location, Module, Op

#: What the frontends create; other dialects load when a program holds them. Loading all takes five times as
#: long as all else that a small program needs.
_DIALECTS = (
    *("affine", "arith", "bufferization", "cf", "complex", "func", "index", "linalg", "math", "memref"),
    *("scf", "shape", "tensor", "ub", "vector"),
)
#: Passes that depend on CHLO and VHLO: run over nothing, they load dialects that the bindings cannot
#: register.
_LOADERS = "builtin.module(func.func(convert-torch-to-stablehlo),stablehlo-legalize-to-vhlo)"


@functools.cache
def native_ir():  # noqa: ANN201
    """Return the module of native classes, imported at first use."""
    from torch_mlir import ir
    from torch_mlir._mlir_libs import _mlir

    _mlir.globals.append_dialect_search_prefix("kcache_compiler.mlir.absent_dialects")
    return ir


@functools.cache
def native_stablehlo():  # noqa: ANN201
    """Return the bindings of StableHLO, imported at first use."""
    from torch_mlir._mlir_libs import _stablehlo

    return _stablehlo


@functools.cache
def native_func():  # noqa: ANN201
    """Return the builders of the dialect ``func``, imported at first use."""
    from torch_mlir.dialects import func

    return func


@functools.cache
def native_torch():  # noqa: ANN201
    """Return the builders of the Torch dialect, imported at first use."""
    from torch_mlir.dialects import torch

    return torch


def new_context() -> Context:
    """Return a context that reads every upstream dialect, StableHLO, VHLO and CHLO.

    Unknown dialects parse, because JAX leaves sharding attributes of one; whoever reads a program
    rejects their operations.
    """
    native = native_ir()
    context = native.Context(load_on_create_dialects=_DIALECTS)
    context.allow_unregistered_dialects = True
    native_stablehlo().register_dialect(context)
    native_stablehlo().register_stablehlo_passes()
    native_torch().register_dialect(context)
    run_passes(native.Module.parse("func.func private @nothing()", context), _LOADERS)
    return context


def run_passes(module: Module, pipeline: str, between: bool = True) -> None:
    """Run a textual pipeline in place. The caller owns the module.

    The module is verified after each of the passes if ``between``, else after the last one.
    """
    from torch_mlir.passmanager import PassManager

    passes = PassManager.parse(pipeline, module.context)
    passes.enable_verifier(between)
    passes.run(module.operation)
    if not between:
        module.operation.verify()


def parse_module(program: str | bytes, context: Context) -> Module:
    """Parse and verify text or bytecode; raises the bindings' ``MLIRError``."""
    return native_ir().Module.parse(program, context)


def upgrade_artifact(program: bytes, context: Context) -> Module:
    """Read a portable artifact of any supported version as StableHLO; raises ``ValueError``."""
    return native_stablehlo().deserialize_portable_artifact(context, program)


def artifact_versions() -> tuple[str, str]:
    """Return the oldest and newest portable artifact version that can be read."""
    return native_stablehlo().get_minimum_version(), native_stablehlo().get_current_version()


def mlir_error() -> type[MLIRError]:
    """Return the exception class of the bindings."""
    return native_ir().MLIRError


def child_operations(parent: Op) -> list[Op]:
    """Return the operations directly inside ``parent``'s regions, in order.

    Walks natively: iterating a block makes an operation view of each, twenty times slower.
    """
    native = native_ir()
    advance, skip = native.WalkResult.ADVANCE, native.WalkResult.SKIP
    children: list[Op] = []

    def visit(operation: Op) -> WalkResult:
        if operation == parent:
            return advance
        children.append(operation)
        return skip

    parent.walk(visit, native.WalkOrder.PRE_ORDER)
    return children


def all_operations(root: Op) -> list[Op]:
    """Return the operations inside ``root``, in order, nested ones behind the one that holds them."""
    native = native_ir()
    operations: list[Op] = []
    add, advance = operations.append, native.WalkResult.ADVANCE

    def visit(operation: Op) -> WalkResult:
        add(operation)
        return advance

    root.walk(visit, native.WalkOrder.PRE_ORDER)
    del operations[0]  # the root
    return operations


def describe_location(location: Location, budget: int = 32) -> str:
    """Say where an operation is: the innermost file, or else the name, of its location.

    ``budget`` bounds the steps: nested locations can be exponential as text.
    """
    native = native_ir()
    name = ""
    pending = [location]
    while pending and budget:
        budget -= 1
        here = pending.pop()
        if isinstance(here, native.FileLineColLoc):
            where = f"{here.filename}:{here.start_line}:{here.start_col}"
            return f'"{name}" ({where})' if name else where
        if isinstance(here, native.NameLoc):
            name = name or here.name_str
            pending.append(here.child_loc)
        elif isinstance(here, native.CallSiteLoc):
            pending.extend((here.caller, here.callee))
        elif isinstance(here, native.FusedLoc):
            pending.extend(reversed(here.locations[:budget]))
    return f'"{name}"' if name else ""
