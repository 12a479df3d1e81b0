"""Sizes that arguments give as numbers: what is made with them fits what it meets.

A fill or a count of some size is an expression of the place once it is fused, and loops no longer compare its
size with those of other operands. Where sizes are those of arrays, programs make them equal; a number that a
caller gives may be any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.legalize.sizes import ELEMENTWISE, Requirements, made_size, origin, size_of

_ONE_SHAPE = ELEMENTWISE | {"stablehlo.reduce", "stablehlo.sort"}


def gives_sizes(main: mlir.Op) -> bool:
    """Whether some argument has lengths of axes, and no elements."""
    return any(map(_is_length, mlir.block_of(main).arguments))


def require_given(op: mlir.Op, known: Mapping[Any, list[mlir.Value]], requirements: Requirements) -> None:
    """Write down, at the current point, that operands of one shape have sizes that were given for one."""
    if mlir.name_of(op) not in _ONE_SHAPE or not mlir.within(op, requirements.main):
        return
    ranks = [value.type.rank if mlir.is_tensor(value.type) else 0 for value in op.operands]
    operands = [value for value, rank in zip(op.operands, ranks, strict=True) if rank == ranks[0] > 0]
    for axis in range(ranks[0] if len(operands) > 1 else 0):
        if any(mlir.sizes_of(one.type)[axis] is None for one in operands):
            _require_axis(op, operands, axis, known, requirements)


def _require_axis(
    op: mlir.Op,
    operands: list[mlir.Value],
    axis: int,
    known: Mapping[Any, list[mlir.Value]],
    requirements: Requirements,
) -> None:
    given = {number: size for number, one in enumerate(operands) if (size := _given(one, axis, known))}
    if not given:
        return
    other = next((one for number, one in enumerate(operands) if number not in given), None)
    first = next(iter(given.values())) if other is None else size_of(other, axis)
    for size in given.values():
        if origin(first, requirements.origins) != origin(size, requirements.origins):
            requirements.equal(op, first, size)


def _given(tensor: mlir.Value, axis: int, known: Mapping[Any, list[mlir.Value]]) -> mlir.Value | None:
    """The size of an axis as a value, where it is computed of what an argument gives."""
    size = made_size(tensor, axis, known)
    return size if size is not None and _depends(size, set()) else None


def _depends(value: mlir.Value, seen: set[Any]) -> bool:
    owner = mlir.defining(value)
    if owner is None or value in seen:
        return False
    seen.add(value)
    if mlir.name_of(owner) == "tensor.dim":
        return mlir.defining(owner.operands[0]) is None and _is_length(owner.operands[0])
    return mlir.name_of(owner).startswith("arith.") and any(_depends(one, seen) for one in owner.operands)


def _is_length(argument: mlir.Value) -> bool:
    sizes = mlir.sizes_of(argument.type) if mlir.is_tensor(argument.type) else []
    return len(sizes) > 1 and sizes[-1] == 0 and set(sizes[:-1]) == {None}
