"""Elements and slices of linalg programs that are looked up or put: beyond the tensor stands its last one.

MLIR leaves such a program undefined; a kernel must not read or write what is not of its arguments. What no
place mends, a part that is larger than its tensor, is refused, and under open sizes checked before anything
runs (``kcache_compiler.spec.size_limits``).
"""

from __future__ import annotations

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.semantics.index_ranges import Ranges
from kcache_compiler.passes.stage import Unit

#: What is looked up or put, by the number of the operand that is the tensor; indices or offsets follow.
_TENSOR = {"tensor.extract": 0, "tensor.insert": 1}
_SLICED = {"tensor.extract_slice": 0, "tensor.insert_slice": 1}
_GIVEN = -(1 << 63)


def keep_inside(unit: Unit) -> None:
    """Clamp, in place, every index and offset that is not known to be inside; refuse what is no part.

    What the lowering of StableHLO makes is inside but for what is computed from elements.
    """
    own = "stablehlo." not in unit.source and "chlo." not in unit.source
    ranges = Ranges(known=not unit.given, trusted=not own)
    for op in mlir.named(unit.module, *_TENSOR):
        number = _TENSOR[mlir.name_of(op)]
        if own and 0 in mlir.sizes_of(op.operands[number].type):
            raise UnsupportedOp(mlir.name_of(op), "a tensor without elements", mlir.location_of(op))
        for axis, index in enumerate(list(op.operands)[number + 1 :]):
            if not ranges.inside(index, mlir.sizes_of(op.operands[number].type)[axis]):
                with mlir.before(op):
                    last = _less(_size(op.operands[number], axis), mlir.constant(1, "index"))
                    op.operands[number + 1 + axis] = _clamped(index, last)
    for op in mlir.named(unit.module, *_SLICED):
        if own:
            _require_part(op, _SLICED[mlir.name_of(op)], unknown=bool(unit.given))
        _keep_slice_inside(op, _SLICED[mlir.name_of(op)], ranges)
    for op in mlir.named(unit.module, "tensor.pad") if own else ():
        _require_pads(op)


def _require_part(op: mlir.Op, number: int, unknown: bool) -> None:
    """Sizes and strides are stated, and fit a tensor, whose sizes may be ``unknown`` here."""
    whole = mlir.sizes_of(op.operands[number].type)
    sizes, strides = (mlir.integers(op.attributes[f"static_{kind}"]) for kind in ("sizes", "strides"))
    if (None in whole and not unknown) or _GIVEN in sizes or _GIVEN in strides:
        reason = "a size that is computed: state the sizes of slices, and of what they are of"
        raise UnsupportedOp(mlir.name_of(op), reason, mlir.location_of(op))
    for axis, (size, part, stride) in enumerate(zip(whole, sizes, strides, strict=True)):
        if part and (stride < 1 or (size is not None and (part - 1) * stride >= size)):
            reason = f"{part} elements, {stride} apart, of {size} along axis {axis}"
            raise UnsupportedOp(mlir.name_of(op), reason, mlir.location_of(op))


def _require_pads(op: mlir.Op) -> None:
    """Paddings are stated, and not below 0."""
    given = [mlir.constant_int(one) for one in list(op.operands)[1:]]
    stated = [one for kind in ("low", "high") for one in mlir.integers(op.attributes[f"static_{kind}"])]
    numbers = [*given, *(one for one in stated if one != _GIVEN)]
    if any(one is None or one < 0 for one in numbers):
        reason = "a padding that is computed or below 0: state it, and cut by tensor.extract_slice"
        raise UnsupportedOp("tensor.pad", reason, mlir.location_of(op))


def _keep_slice_inside(op: mlir.Op, number: int, ranges: Ranges) -> None:
    """Offsets that are given stand behind the tensor, sizes behind them, strides behind these."""
    given = iter(range(number + 1, len(op.operands)))
    offsets, sizes, strides = (
        [
            (next(given) if one == _GIVEN else None, one)
            for one in mlir.integers(op.attributes[f"static_{kind}"])
        ]
        for kind in ("offsets", "sizes", "strides")
    )
    for axis, (offset, _) in enumerate(offsets):
        if offset is None or ranges.inside(op.operands[offset], None):
            continue
        with mlir.before(op):
            one = mlir.constant(1, "index")
            size, stride = (
                mlir.constant(number, "index") if place is None else op.operands[place]
                for place, number in (sizes[axis], strides[axis])
            )
            reach = mlir.value("arith.muli", [_less(size, one), stride], mlir.index_type())
            last = _less(_less(_size(op.operands[number], axis), one), reach)
            op.operands[offset] = _clamped(op.operands[offset], last)


def _size(tensor: mlir.Value, axis: int) -> mlir.Value:
    size = mlir.sizes_of(tensor.type)[axis]
    if size is not None:
        return mlir.constant(size, "index")
    return mlir.value("tensor.dim", [tensor, mlir.constant(axis, "index")], mlir.index_type())


def _less(left: mlir.Value, right: mlir.Value) -> mlir.Value:
    return mlir.value("arith.subi", [left, right], mlir.index_type())


def _clamped(index: mlir.Value, last: mlir.Value) -> mlir.Value:
    least = mlir.value("arith.minsi", [index, last], mlir.index_type())
    return mlir.value("arith.maxsi", [least, mlir.constant(0, "index")], mlir.index_type())
