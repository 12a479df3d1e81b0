"""Attention among structured operations on tensors: which of them are one, and what each is to it.

``softmax(scores(queries x keys)) x values`` is found by what operations compute, not by their names in some
framework: a contraction, elementwise work on its result, the maximum of each row, ``exp`` of the difference,
the sum of each row, the quotient, and a contraction over the same axis. Its operations are marked and stay as
they are; ``lower/attention`` makes one launch of them if they are still together on buffers. Where the
scores or the weights have other readers nothing is marked, nor under numerics ``strict``.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.bodies import sums_products
from kcache_compiler.passes.attention.candidate import Attention
from kcache_compiler.passes.attention.match import Match
from kcache_compiler.passes.fusion.elementwise import Generic, read_generic
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices

#: The attribute of a marked operation: the number of its attention and its role.
MARK = "kcache.attention"
#: On the contraction with the values: how many operations are marked in all.
COUNT = "kcache.members"
#: On what prepares an operand of the scores: the number that it is multiplied by.
SCALE = "kcache.scale"

#: On the same: row axis, shift, limit of a causal mask, and whether it is added (``reach.py``).
REACH = "kcache.reach"


def mark(unit: Unit) -> None:
    """Mark every attention of ``main``."""
    if unit.options.numerics == "strict" or not parse_choices(unit.options.schedule).joins_attention:
        return
    main = mlir.main_function(unit.module)
    number = 0
    for mixed in mlir.named(main, "linalg.generic"):
        found = (
            None
            if not sums_products(mixed) or MARK in mixed.attributes
            else _match(unit, read_generic(mixed))
        )
        if found is None:
            continue
        for operation, role in found.members.items():
            operation.attributes[MARK] = mlir.string_attr(f"{number} {role}")
        for operation, scale in found.scales.items():
            operation.attributes[SCALE] = mlir.attribute(f"{scale:.17e} : f64")
        if (reach := found.reach) is not None:
            text = f"{reach.row} {reach.shift} {reach.limit!r} {int(reach.added)}"
            mixed.attributes[REACH] = mlir.string_attr(text)
        mixed.attributes[COUNT] = mlir.int_attr(len(found.members))
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
    return any(MARK in one.attributes for one in mlir.named(module, "linalg.generic"))


def _match(unit: Unit, mixed: Generic) -> Attention | None:
    for operand in mixed.inputs:
        found = Match(unit, mixed, operand).run()
        if found is not None and private(found):
            return found
    return None


def private(found: Attention) -> bool:
    """Nothing but members reads what members leave, except for the last of them."""
    last = [op for op, role in found.members.items() if role == "tail"][-1:]
    last = last or [op for op, role in found.members.items() if role == "mixed"]
    blocks = {op.operation.block for op in found.members}
    if len(blocks) != 1:
        return False
    return all(
        user in found.members
        for op in found.members
        if op != last[0]
        for result in op.results
        for user, _ in mlir.uses(result)
    )
