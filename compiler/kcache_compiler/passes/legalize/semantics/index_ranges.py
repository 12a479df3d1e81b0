"""Which numbers an index may be."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir

_FREE = ("linalg.index", "arith.constant", "tensor.dim")
_FAR = 1 << 40


@dataclass(frozen=True)
class Ranges:
    """``known``: the sizes of the module are those of every call, not samples. ``trusted``: an index that no
    element and no loop gives is inside.
    """

    known: bool
    trusted: bool

    def inside(self, index: mlir.Value, size: int | None) -> bool:
        """Whether an index is one of a tensor's axis of ``size``, which may be unknown."""
        if self.trusted:
            return not _is_of_data(index)
        if size is None or not self.known:
            return False
        result = _range(index)
        return result is not None and result[0] >= 0 and result[1] < size


def _is_of_data(index: mlir.Value) -> bool:
    pending, seen = [index], {index}
    while pending:
        owner = mlir.defining(pending.pop())
        if owner is None or not mlir.name_of(owner).startswith(("arith.", *_FREE)):
            return True
        if mlir.name_of(owner) not in _FREE:
            pending += [operand for operand in owner.operands if operand not in seen]
            seen.update(owner.operands)
    return False


def _range(index: mlir.Value, depth: int = 6) -> tuple[int, int] | None:
    """The least and the largest number; None where that is not seen."""
    literal = mlir.constant_int(index)
    if literal is not None:
        return literal, literal
    owner = mlir.defining(index)
    if owner is None or not depth:
        return None
    name = mlir.name_of(owner)
    if name == "linalg.index":
        extent = _extent(owner)
        return None if extent is None else (0, max(extent - 1, 0))
    if name not in ("arith.addi", "arith.subi", "arith.muli"):
        return None
    left, right = (_range(operand, depth - 1) for operand in owner.operands)
    if left is None or right is None:
        return None
    ends = [_combined(name, a, b) for a in left for b in right]
    return (min(ends), max(ends)) if max(map(abs, ends)) < _FAR else None


def _combined(name: str, a: int, b: int) -> int:
    return a + b if name == "arith.addi" else a - b if name == "arith.subi" else a * b


def _extent(index: mlir.Op) -> int | None:
    """How often the loop runs whose counter this is, where an operand's size says so."""
    generic = index.parent
    while generic is not None and mlir.name_of(generic) != "linalg.generic":
        generic = generic.parent
    if generic is None:
        return None
    axis = mlir.int_of(index.attributes["dim"])
    for operand, index_map in zip(generic.operands, mlir.indexing_maps(generic), strict=True):
        if not mlir.is_tensor(operand.type):
            continue
        for result, size in zip(index_map.results, mlir.sizes_of(operand.type), strict=True):
            if mlir.plain_dim(result) == axis and size is not None:
                return size
    return None
