"""Protects insertions with a stride from an incorrect upstream canonicalization.

It folds ``insert_slice`` of a padded tensor into a ``fill`` with the same scalar, as an insertion of the
unpadded tensor, and adds the padding to the offsets as if the stride were 1.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.generic import build_generic, identity


def keep_insertion_strides(module: mlir.Module) -> None:
    """Make each ``fill`` with a strided insertion a generic, in modules that pad tensors."""
    if not mlir.named(module, "tensor.pad"):
        return
    for insertion in mlir.named(module, "tensor.insert_slice"):
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
