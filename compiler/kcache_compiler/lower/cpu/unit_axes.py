"""Drops axes of size 1 from results of contractions whose consumers do not have them.

Canonical programs have no such axes in elementwise operations: a convolution of a single image writes a
buffer with a batch axis, of which its consumers read a view without. Operations of a launch must access the
same buffer, so the contraction writes one without the axis itself.
"""

from __future__ import annotations

from collections.abc import Collection

from kcache_compiler.lower.gemm.match import is_contraction, makes_zero
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import memref
from kcache_compiler.passes.generic import build_generic, identity


def drop_unit_axes(main: mlir.Op, launched: Collection[mlir.Op]) -> None:
    """Rewrite contractions of ``main`` that start at zero and are read through one view without unit axes.

    ``launched`` operations already belong to a launch.
    """
    contractions = [op for op in mlir.named(main, "linalg.generic") if is_contraction(op)]
    for generic in contractions:
        if generic not in launched:
            _drop(generic)


def _drop(generic: mlir.Op) -> None:
    """Remove the unit axes of the result of a contraction that is read only through a ``collapse_shape``.

    The narrower result is allocated and filled instead.
    """
    result = generic.operands[2]
    owner, users = mlir.defining(result), [user for user, _ in mlir.uses(result)]
    if owner is None or mlir.name_of(owner) != "memref.alloc" or len(users) != 3:
        return
    fill = next((user for user in users if user != generic and mlir.name_of(user) == "linalg.generic"), None)
    view = next((user for user in users if mlir.name_of(user) == "memref.collapse_shape"), None)
    if fill is None or view is None or not makes_zero(fill) or fill.operands[-1] != result:
        return
    sizes, kept = mlir.sizes_of(result.type), mlir.sizes_of(view.results[0].type)
    if None in sizes or [size for size in sizes if size != 1] != kept or 1 in kept:
        return
    maps = mlir.indexing_maps(generic)
    written = maps[2]
    loops = [expression for expression, size in zip(written.results, sizes, strict=True) if size != 1]
    dropped = {mlir.plain_dim(expression) for expression in written.results} - {
        mlir.plain_dim(expression) for expression in loops
    }
    known = {mlir.plain_dim(expression) for each in maps[:2] for expression in each.results}
    if not dropped <= known - {None}:  # the size of a loop is that of an axis which it alone indexes
        return
    zero = mlir.last(mlir.block_of(fill)).operands[0]
    if mlir.defining(zero) is None:  # an operand instead of a constant outside
        zero = fill.operands[list(mlir.block_of(fill).arguments).index(zero)]
    with mlir.before(owner):
        narrow = memref.alloc(view.results[0].type, [], [], alignment=64)
    with mlir.before(fill):
        rank = len(kept)
        build_generic([], [narrow], [identity(rank)], ["parallel"] * rank, lambda _: [zero])
    view.results[0].replace_all_uses_with(narrow)
    generic.operands[2] = narrow
    narrowed = mlir.map_of(written.n_dims, loops)
    generic.attributes["indexing_maps"] = mlir.map_attrs([maps[0], maps[1], narrowed])
    for op in (view, fill, owner):
        op.erase()
