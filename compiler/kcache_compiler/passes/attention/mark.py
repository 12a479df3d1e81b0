"""Recognizes attention in structured operations on tensors and marks the role of each operation.

``softmax(scores(queries x keys)) x values`` is recognized by what operations compute, not by their names in
a framework: a contraction, elementwise operations on its result, the maximum of each row, ``exp`` of the
difference, the sum of each row, the quotient, and a contraction over the same axis. The marked operations
are not changed; ``lower/attention`` makes one launch of them if all remain after bufferization. If the
scores or the weights have other users, nothing is marked, nor under ``strict`` numerics.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.bodies import sums_products
from kcache_compiler.passes.attention.match import Attention, Match
from kcache_compiler.passes.fusion.elementwise import GenericOp, read_generic
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.shapes.recovery import RecoveredSizes
from kcache_compiler.types import CompileOptions

#: The attribute of a marked operation: the number of its attention and its role.
MARK = "kcache.attention"
#: On the contraction with the values: how many operations are marked in all.
COUNT = "kcache.members"
#: On what prepares an operand of the scores: the number that it is multiplied by.
SCALE = "kcache.scale"

#: On the same: row axis, shift, limit of a causal mask, and whether it is added (``causal_mask.py``).
REACH = "kcache.reach"


def mark(module: mlir.Module, options: CompileOptions, codes: RecoveredSizes) -> None:
    """Mark every attention of ``main``."""
    if options.numerics == "strict" or not parse_choices(options.schedule).joins_attention:
        return
    main = mlir.main_function(module)
    number = 0
    for mixed in mlir.named(main, "linalg.generic"):
        result = (
            None
            if not sums_products(mixed) or MARK in mixed.attributes
            else _match(codes, read_generic(mixed))
        )
        if result is None:
            continue
        for operation, role in result.members.items():
            operation.attributes[MARK] = mlir.string_attr(f"{number} {role}")
        for operation, scale in result.scales.items():
            operation.attributes[SCALE] = mlir.attribute(f"{scale:.17e} : f64")
        if (reach := result.reach) is not None:
            text = f"{reach.row} {reach.shift} {reach.limit!r} {int(reach.added)}"
            mixed.attributes[REACH] = mlir.string_attr(text)
        mixed.attributes[COUNT] = mlir.int_attr(len(result.members))
        number += 1


def members_by_role(main: mlir.Op) -> list[dict[str, list[mlir.Op]]]:
    """The marked operations of each attention, in program order."""
    marked: dict[str, dict[str, list[mlir.Op]]] = {}
    for op in mlir.named(main, "linalg.generic"):
        if MARK in op.attributes:
            number, _, role = mlir.string_of(op.attributes[MARK]).partition(" ")
            marked.setdefault(number, {}).setdefault(role, []).append(op)
    return list(marked.values())


def has_marks(module: mlir.Module) -> bool:
    """Whether there is an attention in a module."""
    return any(MARK in op.attributes for op in mlir.named(module, "linalg.generic"))


def _match(codes: RecoveredSizes, mixed: GenericOp) -> Attention | None:
    for operand in mixed.inputs:
        result = Match(codes, mixed, operand).run()
        if result is not None and private(result):
            return result
    return None


def private(known: Attention) -> bool:
    """Whether only members use the results of members, except the result of the last member."""
    last = [op for op, role in known.members.items() if role == "tail"][-1:]
    last = last or [op for op, role in known.members.items() if role == "mixed"]
    blocks = {op.operation.block for op in known.members}
    if len(blocks) != 1:
        return False
    return all(
        user in known.members
        for op in known.members
        if op != last[0]
        for result in op.results
        for user, _ in mlir.uses(result)
    )
