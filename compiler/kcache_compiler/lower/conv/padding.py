"""Zero padding of the image of a convolution, which the launch of the convolution may include.

A padded buffer is filled with zeros, then the image is copied into it: two launches, and the image goes
through the caches twice more than if the convolution reads zeros where there is no image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kcache_compiler.lower.gemm.match import is_contraction, makes_zero
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.planned_launches import Planned
from kcache_compiler.mlir import operations as mlir


@dataclass(frozen=True)
class Padding:
    """``image``, copied by ``copy`` into ``padded`` behind this many zeros ``before`` it on each axis."""

    fill: mlir.Op
    copy: mlir.Op
    image: mlir.Value
    padded: mlir.Value
    before: tuple[int, ...]


def read_padding(generics: Sequence[mlir.Op]) -> Padding | None:
    """The padding that the first two of ``generics`` compute for the first operand of a convolution that
    follows; None for other operations.
    """
    if len(generics) < 3:
        return None
    fill, copy, *others = generics
    convolution = next((op for op in others[:2] if is_contraction(op)), None)
    if convolution is None or len(list(fill.operands)) not in (1, 2) or len(list(copy.operands)) != 2:
        return None
    padded, (image, target) = list(fill.operands)[-1], copy.operands
    owner, view = mlir.defining(padded), mlir.defining(target)
    if owner is None or view is None or mlir.name_of(owner) != "memref.alloc":
        return None
    users = [user for user, _ in mlir.uses(padded)]
    if len(users) != 3 or set(users) != {fill, view, convolution} or convolution.operands[0] != padded:
        return None
    if mlir.used_more_than_once(target) or not (makes_zero(fill) and copies(copy)):
        return None
    before = offsets_of(view)
    written = {memory.root_of(op.operands[-1]) for op in others}
    if before is None or memory.root_of(image) in written:
        return None
    return Padding(fill, copy, image, padded, before)


def copies(generic: mlir.Op) -> bool:
    """Whether ``generic`` copies its first operand, element by element, to the second."""
    maps, body = mlir.indexing_maps(generic), mlir.block_of(generic)
    return maps[0] == maps[1] and mlir.is_permutation(maps[0]) and _yields_input(body)


def _yields_input(body: mlir.Block) -> bool:
    inner = mlir.operations(body)
    return len(inner) == 1 and inner[0].operands[0] == body.arguments[0]


def offsets_of(view: mlir.Op) -> tuple[int, ...] | None:
    """The static offsets of a view of adjacent elements."""
    if mlir.name_of(view) != "memref.subview" or len(list(view.operands)) != 1:
        return None
    if any(step != 1 for step in mlir.integers(view.attributes["static_strides"])):
        return None
    return tuple(mlir.integers(view.attributes["static_offsets"]))


def with_padding(launches: Sequence[Planned], includes: Callable[[Sequence[mlir.Op]], bool]) -> list[Planned]:
    """``launches``, in which those that two launches right before pad the image of have these as parts.

    ``includes`` tells whether the launch of such operations includes the padding.
    """
    return with_launches_before(launches, includes, [2])


def with_launches_before(
    launches: Sequence[Planned], includes: Callable[[Sequence[mlir.Op]], bool], counts: Sequence[int]
) -> list[Planned]:
    """``launches`` that have as many launches right before, of one operation each, as parts as the first of
    ``counts`` for which ``includes`` accepts the operations of all.
    """
    results: list[Planned] = []
    for planned in launches:
        for count in counts:
            before = results[-count:]
            generics = [generic for chain in before for generic in chain.generics]
            generics += planned.generics
            if [len(chain.generics) for chain in before] == [1] * count and includes(generics):
                parts = [*before, *(planned.parts or [planned])]
                results[-count:] = [replace(planned, generics=generics, parts=parts)]
                break
        else:
            results.append(planned)
    return results
