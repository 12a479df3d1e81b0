"""Keys and values that a program repeats for each group of query heads: read where they were before.

Frameworks copy keys of shape [batch, heads, keys, width] to [batch, heads, group, keys, width] and look at
that as [batch, heads * group, keys, width]. The copy is left out: the axis of all heads becomes two, and keys
stand still along the inner one.
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
    """The ``copy`` into the buffer of a view; by axis of the view strides of what is copied, of which axis
    ``axis`` stays at each element for ``times`` steps.
    """

    copy: mlir.Op
    source: mlir.Value
    offset: Formula
    strides: tuple[Formula, ...]
    axis: int
    times: Formula
    checks: tuple[Check, ...]


def read_repeat(value: mlir.Value, readers: list[mlir.Op], shapes: Shapes) -> Repeat | None:
    """What ``value`` repeats, if nobody but ``readers`` looks at it."""
    view = mlir.defining(value)
    if view is None or mlir.name_of(view) != "memref.collapse_shape":
        return None
    whole = view.operands[0]
    owner = mlir.defining(whole)
    users = [user for user, _ in mlir.uses(whole) if user != view]
    if owner is None or mlir.name_of(owner) != "memref.alloc" or len(users) != 1:
        return None
    copy = users[0]
    if not _copies(copy, whole) or any(user not in readers for user, _ in mlir.uses(value)):
        return None
    if not all(mlir.same_block(copy, reader) for reader in readers):
        return None
    nest, _ = read_nest(copy, shapes)
    source = nest.accesses[0]
    still = [number for number in range(len(nest.axes)) if number not in source.dims]
    groups = mlir.groups_of(view)
    merged = [axis for axis, group in enumerate(groups) if len(group) == 2 and group[1:] == still]
    if len(merged) != 1 or any(len(group) != 1 for axis, group in enumerate(groups) if axis != merged[0]):
        return None
    strides = tuple(source.strides[group[0]] for group in groups)
    times = nest.axes[still[0]].size
    return Repeat(copy, copy.operands[0], source.offset, strides, merged[0], times, nest.checks)


def _copies(op: mlir.Op, target: mlir.Value) -> bool:
    """``op`` repeats its operand along one axis of ``target``, and does nothing else."""
    if mlir.name_of(op) != "linalg.generic" or len(op.operands) != 2 or op.operands[1] != target:
        return False
    body = mlir.block_of(op)
    if len(mlir.operations(body)) != 1 or mlir.operations(body)[0].operands[0] != body.arguments[0]:
        return False
    read, written = mlir.indexing_maps(op)
    walked = [mlir.plain_dim(result) for result in read.results]
    single = None not in walked and len(set(walked)) == len(walked) == written.n_dims - 1
    return single and mlir.is_identity(written) and mlir.is_memref(op.operands[0].type)


def stays(repeat: Repeat, last: mlir.Op) -> bool:
    """Nobody writes what is copied between the copy and ``last``."""
    statements = mlir.operations(last.operation.block)
    root = memory.root_of(repeat.source)
    for op in statements[statements.index(repeat.copy) : statements.index(last)]:
        if mlir.name_of(op) == "linalg.generic":
            inputs = mlir.input_count(op)
            if root in {memory.root_of(one) for one in list(op.operands)[inputs:]}:
                return False
        elif mlir.blocks_of(op) or mlir.name_of(op).startswith(("func.", "memref.store", "memref.copy")):
            return False
    return True
