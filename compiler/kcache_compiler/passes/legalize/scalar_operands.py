"""Elements that are spread into numbers, where the toolchain would lose their places.

It folds ``insert_slice`` of a padded tensor into ``fill`` with the same number, as an insertion of what was
padded, and adds the padding to the offsets as if no stride were between the elements.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.generic import build_generic, identity
from kcache_compiler.passes.stage import Unit


def keep_places(unit: Unit) -> None:
    """Make a generic of each ``fill`` into which elements are put with a stride, where anything is padded."""
    if not mlir.named(unit.module, "tensor.pad"):
        return
    for insertion in mlir.named(unit.module, "tensor.insert_slice"):
        filled = insertion.operands[1]
        fill = mlir.defining(filled)
        strides = mlir.integers(insertion.attributes["static_strides"])
        if fill is not None and mlir.name_of(fill) == "linalg.fill" and set(strides) != {1}:
            _generalize(fill)


def _generalize(fill: mlir.Op) -> None:
    number, output = fill.operands
    same, rank = identity(mlir.rank_of(output.type)), mlir.rank_of(output.type)
    maps = [same.partition("->")[0] + "-> ()", same]
    with mlir.before(fill):
        generic = build_generic([number], [output], maps, ["parallel"] * rank, lambda scalars: scalars[:1])
    fill.results[0].replace_all_uses_with(generic.results[0])
    fill.erase()
