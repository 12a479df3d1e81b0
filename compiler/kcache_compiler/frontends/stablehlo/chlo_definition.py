"""What a CHLO operation is defined as, by this toolchain."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.frontends.legalize import LEGALIZE
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native


def chlo_definition(name: str, types: Sequence[Native], result: Native) -> Native | None:
    """Return a module whose only function is the StableHLO that ``name`` (``chlo.erf``) legalizes to.

    ``types`` and ``result`` are native types of one context. None where the operation does not take them.
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
        mlir.run_passes(module, LEGALIZE)
    except mlir.mlir_error():
        return None
    return module
