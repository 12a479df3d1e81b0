"""A canonical order of the operands of commutative operations.

The order in a spec follows from digests and differs between layers. Layers of a long program that compute the
same must read their operands in the same order, or they cannot share code.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.mlir import operations as mlir

#: Commutative operations, up to the bits of a NaN.
_TURNS = frozenset(
    {
        *(f"arith.{name}" for name in ("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf")),
        *(f"arith.{name}" for name in ("addi", "muli", "andi", "ori", "xori")),
        *(f"arith.{name}" for name in ("maxsi", "maxui", "minsi", "minui")),
        *("complex.add", "complex.mul"),
    }
)


def order_operands(generics: Sequence[mlir.Op], longer: bool = False) -> list[int]:
    """Have each ``linalg.generic`` of one such operation take what was computed last first; the places of
    those that are written in another way.

    Where ``longer``, also those that go on with its result alone: sums of small floats, which are rounded.
    """
    positions = {result: position for position, generic in enumerate(generics) for result in generic.results}
    return [position for position, generic in enumerate(generics) if _order(generic, positions, longer)]


def _order(generic: mlir.Op, positions: dict[mlir.Value, int], longer: bool) -> bool:
    if len(generic.operands) != 3 or len(generic.results) != 1:  # two results: a scan, which has one so far
        return False
    block = mlir.block_of(generic)
    body = mlir.operations(block)
    if mlir.name_of(body[0]) not in _TURNS or not (len(body) == 2 or (longer and _goes_on(generic))):
        return False
    first, second, _ = block.arguments
    read = list(body[0].operands)
    if first.type != second.type or read not in ([first, second], [second, first]):
        return False
    maps = mlir.indexing_maps(generic)
    inputs = list(generic.operands)[:2]
    swapped, later = read[0] != first, positions.get(inputs[0], -1) < positions.get(inputs[1], -1)
    if swapped:
        body[0].operands[0], body[0].operands[1] = first, second
    if later:
        generic.operands[0], generic.operands[1] = inputs[1], inputs[0]
        generic.attributes["indexing_maps"] = mlir.map_attrs([maps[1], maps[0], maps[2]])
    return swapped or later


def _goes_on(generic: mlir.Op) -> bool:
    """Elementwise, and what it reads is read by the first operation of its body alone."""
    if not all("parallel" in kind for kind in mlir.iterator_types(generic)):
        return False
    return [len(list(argument.uses)) for argument in mlir.block_of(generic).arguments] == [1, 1, 0]
