"""Sizes that arguments give as numbers: what is made with them fits what it meets.

A fill or a count of some size is an expression of the place once it is fused, and loops no longer compare its
size with those of other operands. Where sizes are those of arrays, programs make them equal; a number that a
caller gives may be any.
"""

from __future__ import annotations

from collections.abc import Mapping

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.dynamic.size_checks import (
    ELEMENTWISE,
    Requirements,
    axis_origin,
    made_size,
    origin,
)

_ONE_SHAPE = ELEMENTWISE | {
    f"stablehlo.{name}"
    for name in (
        *("complex", "map", "reduce", "sort"),
        *("shift_left", "shift_right_arithmetic", "shift_right_logical"),
    )
}
#: Those of several operands whose sizes are compared elsewhere, or have nothing to do with each other.
_OTHERS = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("concatenate", "custom_call", "dynamic_broadcast_in_dim", "dynamic_iota", "dynamic_reshape"),
        *("dynamic_slice", "dynamic_update_slice", "gather", "real_dynamic_slice", "while"),
    )
) | {"func.return"}

_Axis = tuple[mlir.Value, int]


def gives_sizes(main: mlir.Op) -> bool:
    """Whether some argument has lengths of axes, and no elements."""
    return any(map(_is_length, mlir.block_of(main).arguments))


def require_given(
    op: mlir.Op, known: Mapping[mlir.Value, list[mlir.Value]], requirements: Requirements
) -> None:
    """Write down, at the current point, that operands of ``op`` fit each other.

    Raises ``UnsupportedOp`` where that cannot be written down here.
    """
    name = mlir.name_of(op)
    operands = [value for value in op.operands if mlir.is_tensor(value.type) and mlir.rank_of(value.type)]
    if all(None not in mlir.sizes_of(value.type) for value in operands):
        return
    if name == "stablehlo.return":
        _require_returned(op, known, requirements)
    elif name == "stablehlo.dot_general":
        left, right = op.operands
        for axes in mlir.equal_axes(op):
            _require(op, list(zip((left, right), axes, strict=True)), known, requirements)
    elif name in _ONE_SHAPE:
        rank = max(mlir.rank_of(value.type) for value in operands)
        whole = [value for value in operands if mlir.rank_of(value.type) == rank]
        for axis in range(rank):
            _require(op, [(value, axis) for value in whole], known, requirements)
    elif name.startswith("stablehlo.") and len(operands) > 1 and name not in _OTHERS:
        raise UnsupportedOp(name, "sizes that arguments give", mlir.location_of(op))


def _require_returned(
    op: mlir.Op, known: Mapping[mlir.Value, list[mlir.Value]], requirements: Requirements
) -> None:
    """What a turn of a loop returns has the sizes of what it was given, what a branch that of the others."""
    parent = mlir.parent_of(op)
    if mlir.name_of(parent) not in ("stablehlo.while", "stablehlo.if", "stablehlo.case"):
        return
    if mlir.name_of(parent) == "stablehlo.while":
        others = list(mlir.block_of(parent, 1).arguments)
    else:
        others = list(mlir.last(mlir.block_of(parent)).operands)
    for result, other in zip(op.operands, others, strict=True):
        for axis in range(mlir.rank_of(result.type)):
            _require(op, [(other, axis), (result, axis)], known, requirements)


def _require(
    op: mlir.Op, axes: list[_Axis], known: Mapping[mlir.Value, list[mlir.Value]], requirements: Requirements
) -> None:
    """All of ``axes`` have one size; loops compare what is in memory."""
    (first, result), *others = [_length(tensor, axis, known, requirements) for tensor, axis in axes]
    for size, decided in others:
        if decided != result and not (_is_walked(decided) and _is_walked(result)):
            requirements.equal(op, first, size)


def _length(
    tensor: mlir.Value, axis: int, known: Mapping[mlir.Value, list[mlir.Value]], requirements: Requirements
) -> tuple[mlir.Value, object]:
    """The size of an axis as a value at the current point, and what decides it."""
    result = made_size(tensor, axis, known)
    if result is not None:
        return result, origin(result, requirements.origins)
    return mlir.tensor_size(tensor, axis), axis_origin(tensor, axis)


def _is_walked(decided: object) -> bool:
    """Whether it is the axis of an argument of a block."""
    match decided:
        case (mlir.Value() as tensor, int()):
            return mlir.defining(tensor) is None
        case _:
            return False


def _is_length(argument: mlir.Value) -> bool:
    sizes = mlir.sizes_of(argument.type) if mlir.is_tensor(argument.type) else []
    return len(sizes) > 1 and sizes[-1] == 0 and set(sizes[:-1]) == {None}
