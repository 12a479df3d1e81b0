"""The definition of a CHLO operation in StableHLO, by this toolchain's legalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcache_compiler.frontends.legalize import LEGALIZE_CHLO_PIPELINE
from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Module, Type


def chlo_definition(name: str, types: Sequence[Type], result: Type) -> Module | None:
    """Return a module whose only function is the StableHLO that ``name`` (``chlo.erf``) legalizes to.

    ``types`` and ``result`` are native types of one context. None if the operation does not accept them.
    """
    arguments = ", ".join(f"%a{i}: {type}" for i, type in enumerate(types))
    operands = ", ".join(f"%a{i}" for i in range(len(types)))
    signature = f"({', '.join(map(str, types))}) -> {result}"
    text = (
        f"func.func @definition({arguments}) -> {result} {{\n"
        f'  %r = "{name}"({operands}) : {signature}\n'
        f"  return %r : {result}\n}}"
    )
    try:
        module = mlir.parse_module(text, result.context)
        mlir.run_passes(module, LEGALIZE_CHLO_PIPELINE)
    except mlir.mlir_error():
        return None
    return module
