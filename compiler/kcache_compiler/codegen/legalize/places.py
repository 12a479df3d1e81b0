"""Elements and slices of linalg programs that are looked up by data: beyond the tensor stands its last one.

MLIR leaves such a program undefined; a kernel must not read or write what is not of its arguments.
"""

from __future__ import annotations

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.stage import Unit

#: What is looked up or put, by the number of the operand that is the tensor; indices or offsets follow.
_TENSOR = {"tensor.extract": 0, "tensor.insert": 1}
_SLICED = {"tensor.extract_slice": 0, "tensor.insert_slice": 1}
_GIVEN = -(1 << 63)
_FREE = ("linalg.index", "arith.constant", "tensor.dim")


def keep_inside(unit: Unit) -> None:
    """Clamp, in place, every index and offset that is computed from elements, or counts a loop."""
    for op in mlir.named(unit.module, *_TENSOR):
        number = _TENSOR[mlir.name_of(op)]
        for axis, index in enumerate(list(op.operands)[number + 1 :]):
            if _is_of_data(index):
                with mlir.before(op):
                    last = _less(_size(op.operands[number], axis), mlir.constant(1, "index"))
                    op.operands[number + 1 + axis] = _clamped(index, last)
    for op in mlir.named(unit.module, *_SLICED):
        _keep_slice_inside(op, _SLICED[mlir.name_of(op)])


def _keep_slice_inside(op: mlir.Op, number: int) -> None:
    """Offsets that are given stand behind the tensor, sizes behind them, strides behind these."""
    given = iter(range(number + 1, len(op.operands)))
    offsets, sizes, strides = (
        [(next(given) if one == _GIVEN else None, one) for one in map(int, op.attributes[f"static_{kind}"])]
        for kind in ("offsets", "sizes", "strides")
    )
    for axis, (offset, _) in enumerate(offsets):
        if offset is None or not _is_of_data(op.operands[offset]):
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


def _is_of_data(index: mlir.Value) -> bool:
    pending, seen = [index], {index}
    while pending:
        owner = mlir.defining(pending.pop())
        if owner is None or not mlir.name_of(owner).startswith(("arith.", *_FREE)):
            return True
        if mlir.name_of(owner) not in _FREE:
            pending += [one for one in owner.operands if one not in seen]
            seen.update(owner.operands)
    return False


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
