"""Grouped-query attention: reads keys and values that a program repeats per group of query heads in place.

Frameworks copy keys of shape [batch, heads, keys, width] to [batch, heads, group, keys, width] and reshape
them to [batch, heads * group, keys, width]. The copy is elided: the axis of heads becomes two axes, and keys
have stride 0 along the inner one.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import read_nest
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula


@dataclass(frozen=True)
class Repeat:
    """A broadcasting ``copy`` into the buffer of a view.

    ``strides`` are those of the copy's source by axis of the view; ``axis`` repeats each element ``times``
    times.
    """

    copy: mlir.Op
    source: mlir.Value
    offset: Formula
    strides: tuple[Formula, ...]
    axis: int
    times: Formula
    checks: tuple[Check, ...]


def read_repeat(value: mlir.Value, readers: list[mlir.Op], shapes: Shapes) -> Repeat | None:
    """The repeat that produces ``value``, if only ``readers`` use it."""
    view = mlir.defining(value)
    if view is None or mlir.name_of(view) != "memref.collapse_shape":
        return None
    expanded = view.operands[0]
    owner = mlir.defining(expanded)
    users = [user for user, _ in mlir.uses(expanded) if user != view]
    if owner is None or mlir.name_of(owner) != "memref.alloc" or len(users) != 1:
        return None
    copy = users[0]
    if not _copies(copy, expanded) or any(user not in readers for user, _ in mlir.uses(value)):
        return None
    if not all(mlir.same_block(copy, reader) for reader in readers):
        return None
    nest, _ = read_nest(copy, shapes)
    source = nest.accesses[0]
    constant_loops = [number for number in range(len(nest.axes)) if number not in source.dims]
    groups = mlir.groups_of(view)
    merged = [axis for axis, group in enumerate(groups) if len(group) == 2 and group[1:] == constant_loops]
    if len(merged) != 1 or any(len(group) != 1 for axis, group in enumerate(groups) if axis != merged[0]):
        return None
    strides = tuple(source.strides[group[0]] for group in groups)
    times = nest.axes[constant_loops[0]].size
    return Repeat(copy, copy.operands[0], source.offset, strides, merged[0], times, nest.checks)


def _copies(op: mlir.Op, target: mlir.Value) -> bool:
    """Whether ``op`` only broadcasts its operand along one axis of ``target``."""
    if mlir.name_of(op) != "linalg.generic" or len(op.operands) != 2 or op.operands[1] != target:
        return False
    body = mlir.block_of(op)
    if len(mlir.operations(body)) != 1 or mlir.operations(body)[0].operands[0] != body.arguments[0]:
        return False
    source_map, target_map = mlir.indexing_maps(op)
    source_dims = [mlir.plain_dim(result) for result in source_map.results]
    repeats_one_axis = (
        None not in source_dims and len(set(source_dims)) == len(source_dims) == target_map.n_dims - 1
    )
    return repeats_one_axis and mlir.is_identity(target_map) and mlir.is_memref(op.operands[0].type)


def stays(repeat: Repeat, last: mlir.Op) -> bool:
    """Whether the source of the copy is not written between the copy and ``last``."""
    statements = mlir.operations(last.operation.block)
    root = memory.root_of(repeat.source)
    for op in statements[statements.index(repeat.copy) : statements.index(last)]:
        if mlir.name_of(op) == "linalg.generic":
            inputs = mlir.input_count(op)
            if root in {memory.root_of(operand) for operand in list(op.operands)[inputs:]}:
                return False
        elif mlir.blocks_of(op) or mlir.name_of(op).startswith(("func.", "memref.store", "memref.copy")):
            return False
    return True
