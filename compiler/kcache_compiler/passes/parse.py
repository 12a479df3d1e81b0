"""Parses the rendered spec: the first pass."""

from __future__ import annotations

from kcache_compiler.errors import InvalidProgram
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
