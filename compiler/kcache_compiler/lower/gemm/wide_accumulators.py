"""Half-precision contractions in plain loops: accumulated in f32 and rounded once, as in the library.

The sums are in an f32 buffer until all products are added. Under numerics ``strict``, every step is rounded,
as in the program.
"""

from __future__ import annotations

from collections.abc import Collection

from kcache_compiler.lower.gemm.match import makes_zero, recognize
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import memref
from kcache_compiler.passes.fast_math import free_sum
from kcache_compiler.passes.generic import build_generic, identity
from kcache_compiler.passes.product_bodies import read_products
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices

_NARROW = ("f16", "bf16")


def widen_sums(unit: Unit, main: mlir.Op, shapes: Shapes, skipped: Collection[mlir.Op]) -> None:
    """Rewrite the contractions of ``main`` that start at zero, except those of ``skipped``."""
    if unit.options.numerics == "strict":
        return
    joins = parse_choices(
        unit.options.schedule
    ).group_limits.joins  # otherwise the fill and the sum are separate launches
    for generic in mlir.named(main, "linalg.generic"):
        if generic in skipped or read_products(generic) is None:
            continue
        kind = generic.operands[2].type
        narrow = str(mlir.element_type(kind)) in _NARROW and None not in mlir.sizes_of(kind)
        start = _start(generic) if narrow else None
        if start is not None and (not joins or recognize(unit, generic, shapes) is None):
            _widen(generic, start)


def _start(generic: mlir.Op) -> mlir.Op | None:
    """The fill of the sums, if nothing else accesses them before ``generic``.

    Operations in regions of later ones, such as branches, may read them.
    """
    target, block = generic.operands[2], generic.operation.block
    owner = mlir.defining(target)
    if (mlir.owner_block(target) if owner is None else owner.operation.block) != block:
        return None
    users = dict.fromkeys(mlir.within_block(user, block) for user, _ in mlir.uses(target))
    earlier = [user for user in users if mlir.comes_before(user, generic)]
    if len(earlier) != 1 or mlir.name_of(earlier[0]) != "linalg.generic" or not makes_zero(earlier[0]):
        return None
    return earlier[0] if list(earlier[0].operands)[-1] == target else None


def _widen(generic: mlir.Op, start: mlir.Op) -> None:
    """Accumulate a contraction in a zeroed buffer of the wide type, which is rounded once after it."""
    target, body = generic.operands[2], mlir.block_of(generic)
    yielded = mlir.last(body)
    rounded, total = mlir.defining(yielded.operands[0]), list(body.arguments)[2]
    assert rounded is not None
    (widened,) = [user for user, _ in mlir.uses(total)]
    wide, rank = widened.results[0].type, mlir.rank_of(target.type)
    sizes = "".join(f"{size}x" for size in mlir.sizes_of(target.type))
    with mlir.before(start):
        sums = memref.alloc(mlir.type_of(f"memref<{sizes}{wide}>"), [], [], alignment=64)
        zero = mlir.float_constant(0, wide)
        build_generic([], [sums], [identity(rank)], ["parallel"] * rank, lambda _: [zero])
    with mlir.after(generic):

        def narrowed(arguments: list[mlir.Value]) -> list[mlir.Value]:
            copy = mlir.clone(rounded)
            copy.operands[0] = arguments[0]
            return list(copy.results)

        build_generic([sums], [target], [identity(rank)] * 2, ["parallel"] * rank, narrowed)
    yielded.operands[0] = rounded.operands[0]
    rounded.erase()
    total.set_type(wide)
    widened.results[0].replace_all_uses_with(total)
    widened.erase()
    generic.operands[2] = sums
    start.erase()
    free_sum(generic)
