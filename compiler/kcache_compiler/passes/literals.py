"""Scalar floating-point constants in memory become literals of the operations on CPUs that read them.

Code that knows its constants is shorter: a maximum of an element and a literal needs one to three
instructions on x86-64, and five with a value that was loaded, which may be NaN or a zero of either sign; a
division by a literal needs no division where it may be a product with the inverse. Kernels for GPUs do
without this pass: LLVM replaces their loads of the module's own constants.
"""

from __future__ import annotations

import re

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.attention.mark import MARK
from kcache_compiler.passes.product_bodies import read_products

#: The attribute that names a scatter or sort.
_LIBRARY_CALL = "library_call"
#: Only floats: an integer may be equal to a number that represents a dynamic size.
_FLOAT = re.compile(r"memref<(?:bf16|f\d+)(?:,.*)?>")
_SCALAR = re.compile(r"dense<([^\[\]\"<>]+)> : tensor<(bf16|f\d+)>")


def inline_scalars(module: mlir.Module) -> None:
    """Let the structured operations of ``main`` take floats of rank 0 by value, not from a buffer.

    Operations of an attention are left as they are: they are read before they are lowered. So are scatters,
    sorts and contractions, whose launches take buffers.
    """
    main = mlir.main_function(module)
    scalars = dict(filter(None, map(_scalar, mlir.named(module, "memref.global"))))
    literals: dict[str, mlir.Value] = {}
    for generic in mlir.named(main, "linalg.generic"):
        marked = MARK in generic.attributes or _LIBRARY_CALL in generic.attributes
        if marked or read_products(generic) is not None:
            continue
        for number, operand in enumerate(list(generic.operands)[: mlir.input_count(generic)]):
            name = _global_of(operand)
            if name not in scalars:
                continue
            if name not in literals:
                literals[name] = _literal(main, *scalars[name])
            generic.operands[number] = literals[name]
    for use in mlir.named(main, "memref.get_global"):
        if not list(use.results[0].uses):
            use.erase()


def _scalar(constant: mlir.Op) -> tuple[str, tuple[str, str]] | None:
    """The symbol of a constant of rank 0, and its value and type as text."""
    if _FLOAT.fullmatch(str(constant.attributes["type"])) is None:
        return None
    match = _SCALAR.fullmatch(str(constant.attributes["initial_value"]))
    return None if match is None else (f"@{mlir.symbol_of(constant)}", (match[1], match[2]))


def _global_of(operand: mlir.Value) -> str:
    """The symbol of a buffer that is a global; empty for others."""
    owner = mlir.defining(operand)
    if owner is None or mlir.name_of(owner) != "memref.get_global":
        return ""
    return str(owner.attributes["name"])


def _literal(main: mlir.Op, number: str, kind: str) -> mlir.Value:
    with mlir.at_start(mlir.block_of(main)):
        return arith.constant(mlir.type_of(kind), mlir.attribute(f"{number} : {kind}"))
