"""Stand-in operations: carry what the upstream legalization does not lower through it.

A stand-in is an unrealized cast with the operands and result types of the operation that it stands for, and
its attributes as JSON in the attribute ``NOTE``. The legalization lowers the region of a ``reduce`` to scalar
code. Therefore the region of such an operation is moved into a reduction of undefined tensors (the *region
carrier*), whose results are the last operands of the stand-in, and is read from there afterwards.
"""

from __future__ import annotations

import json
from typing import Any

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.builders import inline_body
from kcache_compiler.mlir.dialects import builtin
from kcache_compiler.passes.legalize.elementwise import cast, signless_tensor

CAST = "builtin.unrealized_conversion_cast"
#: The attribute of a stand-in: a JSON object with the kind and the attributes of the operation.
NOTE = "kcache_shuffle"


def region_carrier(kinds: list[mlir.Type]) -> mlir.Op:
    """Create a reduction of undefined tensors with the elements of ``kinds``, and no region yet."""
    rows = [mlir.type_of(f"tensor<2x{mlir.element_type(kind)}>") for kind in kinds]
    scalars = [mlir.type_of(f"tensor<{mlir.element_type(kind)}>") for kind in kinds]
    nothing = [cast(mlir.empty_tensor(signless_tensor(kind)), kind) for kind in (*rows, *scalars)]
    return mlir.create(
        "stablehlo.reduce", nothing, scalars, {"dimensions": mlir.attribute("array<i64: 0>")}, regions=1
    )


def stand_in(operands: list[mlir.Value], kinds: list[mlir.Type], note: dict[str, Any]) -> mlir.Op:
    """Create a stand-in with results of types ``kinds`` at the current insertion point."""
    operation = builtin.UnrealizedConversionCastOp(kinds, operands).operation
    operation.attributes[NOTE] = mlir.string_attr(json.dumps(note))
    return operation


def replace(op: mlir.Op, results: list[mlir.Value]) -> None:
    """Replace the results of ``op`` and erase it."""
    for before, after in zip(op.results, results, strict=True):
        before.replace_all_uses_with(after)
    op.erase()


def inline_region(
    stand_in_op: mlir.Op, firsts: list[mlir.Value], seconds: list[mlir.Value]
) -> list[mlir.Value]:
    """Inline the legalized region of a stand-in, applied to two lists of scalars; returns its results.

    Raises ``UnsupportedOp`` if the region was not legalized.
    """
    last = list(stand_in_op.operands)[-1]
    owner = mlir.defining(last)
    while owner is not None and mlir.name_of(owner) == CAST:
        owner = mlir.defining(owner.operands[0])
    if owner is None or mlir.name_of(owner) != "linalg.generic":
        raise UnsupportedOp("stablehlo.reduce", "a region without a lowering", mlir.location_of(stand_in_op))
    body = mlir.block_of(owner)
    return inline_body(body, dict(zip(body.arguments, [*seconds, *firsts], strict=True)), None)


def signless(value: mlir.Value) -> mlir.Value:
    """Cast a tensor to signless elements."""
    return cast(value, signless_tensor(value.type))
