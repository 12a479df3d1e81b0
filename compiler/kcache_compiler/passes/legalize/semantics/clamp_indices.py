"""Clamps indices and offsets of linalg programs: an access out of bounds becomes one of the last element.

MLIR leaves such a program undefined; a kernel must not access memory outside its arguments. A slice that is
larger than its tensor cannot be clamped: it is rejected, and for dynamic sizes checked before the first
launch (``kcache_compiler.spec.size_limits``).
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.stage import Sizes

#: The number of the operand that is the tensor accessed; indices or offsets follow it.
_TENSOR = {"tensor.extract": 0, "tensor.insert": 1}
_SLICED = {"tensor.extract_slice": 0, "tensor.insert_slice": 1}
#: ``kDynamic`` of MLIR: in a static list of offsets, sizes or strides, an entry that is an operand.
_DYNAMIC = -(1 << 63)


def clamp_indices(module: mlir.Module, source: str, argument_sizes: Sizes) -> None:
    """Clamp, in place, every index and offset that is not known to be inside.

    A slice that is larger than its tensor is rejected. If ``source`` is StableHLO, its lowering made the
    accesses: they are inside unless their index is computed from elements.
    """
    own = "stablehlo." not in source and "chlo." not in source
    ranges = Ranges(known=not argument_sizes, trusted=not own)
    for op in mlir.named(module, *_TENSOR):
        number = _TENSOR[mlir.name_of(op)]
        if own and 0 in mlir.sizes_of(op.operands[number].type):
            raise UnsupportedOp(mlir.name_of(op), "a tensor without elements", mlir.location_of(op))
        for axis, index in enumerate(list(op.operands)[number + 1 :]):
            if not ranges.inside(index, mlir.sizes_of(op.operands[number].type)[axis]):
                with mlir.before(op):
                    last = _difference(_size(op.operands[number], axis), mlir.constant(1, "index"))
                    op.operands[number + 1 + axis] = _clamped(index, last)
    for op in mlir.named(module, *_SLICED):
        if own:
            _require_part(op, _SLICED[mlir.name_of(op)], unknown=bool(argument_sizes))
        _clamp_slice(op, _SLICED[mlir.name_of(op)], ranges)
    for op in mlir.named(module, "tensor.pad") if own else ():
        _require_pads(op)


def _require_part(op: mlir.Op, number: int, unknown: bool) -> None:
    """Raise ``UnsupportedOp`` unless sizes and strides are static and the slice fits the tensor.

    ``unknown``: the tensor may have dynamic sizes here.
    """
    whole = mlir.sizes_of(op.operands[number].type)
    sizes, strides = (mlir.integers(op.attributes[f"static_{kind}"]) for kind in ("sizes", "strides"))
    if (None in whole and not unknown) or _DYNAMIC in sizes or _DYNAMIC in strides:
        reason = "a size that is computed: state the sizes of slices, and of what they are of"
        raise UnsupportedOp(mlir.name_of(op), reason, mlir.location_of(op))
    for axis, (size, part, stride) in enumerate(zip(whole, sizes, strides, strict=True)):
        if part and (stride < 1 or (size is not None and (part - 1) * stride >= size)):
            reason = f"{part} elements, {stride} apart, of {size} along axis {axis}"
            raise UnsupportedOp(mlir.name_of(op), reason, mlir.location_of(op))


def _require_pads(op: mlir.Op) -> None:
    """Raise ``UnsupportedOp`` unless paddings are static and at least 0."""
    dynamic = [mlir.constant_int(operand) for operand in list(op.operands)[1:]]
    stated = [number for kind in ("low", "high") for number in mlir.integers(op.attributes[f"static_{kind}"])]
    numbers = [*dynamic, *(number for number in stated if number != _DYNAMIC)]
    if any(number is None or number < 0 for number in numbers):
        reason = "a padding that is computed or below 0: state it, and cut by tensor.extract_slice"
        raise UnsupportedOp("tensor.pad", reason, mlir.location_of(op))


def _clamp_slice(op: mlir.Op, number: int, ranges: Ranges) -> None:
    """Clamp the offsets of a slice of operand ``number``.

    Operands are the tensor, then dynamic offsets, dynamic sizes and dynamic strides.
    """
    dynamic = iter(range(number + 1, len(op.operands)))
    offsets, sizes, strides = (
        [
            (next(dynamic) if entry == _DYNAMIC else None, entry)
            for entry in mlir.integers(op.attributes[f"static_{kind}"])
        ]
        for kind in ("offsets", "sizes", "strides")
    )
    for axis, (offset, _) in enumerate(offsets):
        if offset is None or ranges.inside(op.operands[offset], None):
            continue
        with mlir.before(op):
            one = mlir.constant(1, "index")
            size, stride = (
                mlir.constant(number, "index") if position is None else op.operands[position]
                for position, number in (sizes[axis], strides[axis])
            )
            reach = arith.muli(_difference(size, one), stride)
            last = _difference(_difference(_size(op.operands[number], axis), one), reach)
            op.operands[offset] = _clamped(op.operands[offset], last)


def _size(tensor: mlir.Value, axis: int) -> mlir.Value:
    size = mlir.sizes_of(tensor.type)[axis]
    if size is not None:
        return mlir.constant(size, "index")
    return mlir.tensor_size(tensor, axis)


def _difference(left: mlir.Value, right: mlir.Value) -> mlir.Value:
    return arith.subi(left, right)


def _clamped(index: mlir.Value, last: mlir.Value) -> mlir.Value:
    least = arith.minsi(index, last)
    return arith.maxsi(least, mlir.constant(0, "index"))


_FREE = ("linalg.index", "arith.constant", "tensor.dim")
_FAR = 1 << 40


@dataclass(frozen=True)
class Ranges:
    """Which numbers an index may be.

    ``known``: the sizes of the module are those of every call, not samples. ``trusted``: an index that no
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
