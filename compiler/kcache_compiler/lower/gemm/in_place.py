"""Where what follows a contraction is written: over what it was made of, so that one buffer serves all."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.mlir import operations as mlir


def write_in_place(heads: Sequence[mlir.Op], after: Sequence[mlir.Op]) -> list[mlir.Op]:
    """Let results take the place of sums that nothing reads later; the allocations that are left over.

    ``heads`` are the contraction and what clears its sums before it. All are one launch, which runs ``after``
    element by element, one after the other, on a part of C.
    """
    made, spared = [heads[-1].operands[2]], list[mlir.Op]()
    for number, one in enumerate(after):
        result = one.operands[-1]
        before = [*heads, *after[:number]]
        source = next((each for each in made if _may_replace(each, one, before)), None)
        if source is not None:
            owner = mlir.defining(source)
            assert owner is not None
            source.replace_all_uses_with(result)
            spared.append(owner)
            made.remove(source)
        made.append(result)
    return spared


def _may_replace(source: mlir.Value, one: mlir.Op, before: Sequence[mlir.Op]) -> bool:
    """``one`` is the last that reads ``source``, and writes element by element what is as large."""
    owner, operands = mlir.defining(source), list(one.operands)
    result = operands[-1]
    if owner is None or mlir.name_of(owner) != "memref.alloc" or source.type != result.type:
        return False
    if len(operands) - int(next(iter(one.attributes["operandSegmentSizes"]))) != 1 or source not in operands:
        return False
    users = {user for user, _ in mlir.uses(source)}
    if not users <= {one, *before} or any(result in list(user.operands) for user in before):
        return False
    if operands.count(result) != 1 or list(list(mlir.block_of(one).arguments)[-1].uses):
        return False
    maps = [each.value for each in one.attributes["indexing_maps"]]
    read = [index_map for index_map, operand in zip(maps, operands, strict=True) if operand == source]
    return mlir.is_permutation(maps[-1]) and all(index_map == maps[-1] for index_map in read)
