"""Carries operations that the upstream legalization does not lower through it.

The legalization lowers the region of a ``reduce`` to scalar code. So the region of such an operation is
moved to a reduction of an undefined tensor, whose body is read afterwards, and an unrealized cast with a
note of the attributes stands for the operation itself.
"""

from __future__ import annotations

import json
from typing import Any

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import builtin
from kcache_compiler.mlir.regions import inline_body
from kcache_compiler.passes.legalize.elementwise import cast, signless_tensor

CAST = "builtin.unrealized_conversion_cast"
NOTE = "kcache_shuffle"


def carrier(kinds: list[mlir.Type]) -> mlir.Op:
    """A reduction of nothing over elements of ``kinds``, without its region, at the current point."""
    rows = [mlir.type_of(f"tensor<2x{mlir.element_type(kind)}>") for kind in kinds]
    scalars = [mlir.type_of(f"tensor<{mlir.element_type(kind)}>") for kind in kinds]
    nothing = [cast(mlir.empty_tensor(signless_tensor(kind)), kind) for kind in (*rows, *scalars)]
    return mlir.create(
        "stablehlo.reduce", nothing, scalars, {"dimensions": mlir.attribute("array<i64: 0>")}, regions=1
    )


def noted(op: mlir.Op, operands: list[mlir.Value], kinds: list[mlir.Type], note: dict[str, Any]) -> mlir.Op:
    operation = builtin.UnrealizedConversionCastOp(kinds, operands).operation
    operation.attributes[NOTE] = mlir.string_attr(json.dumps(note))
    return operation


def replace(op: mlir.Op, results: list[mlir.Value]) -> None:
    for before, after in zip(op.results, results, strict=True):
        before.replace_all_uses_with(after)
    op.erase()


def region(noted: mlir.Op, firsts: list[mlir.Value], seconds: list[mlir.Value]) -> list[mlir.Value]:
    """The region that rode beside ``noted``, at the current point, applied to two lists of scalars."""
    last = list(noted.operands)[-1]
    owner = mlir.defining(last)
    while owner is not None and mlir.name_of(owner) == CAST:
        owner = mlir.defining(owner.operands[0])
    if owner is None or mlir.name_of(owner) != "linalg.generic":
        raise UnsupportedOp("stablehlo.reduce", "a region without a lowering", mlir.location_of(noted))
    body = mlir.block_of(owner)
    return inline_body(body, dict(zip(body.arguments, [*seconds, *firsts], strict=True)), None)


def plain(value: mlir.Value) -> mlir.Value:
    return cast(value, signless_tensor(value.type))
