"""Elements of linalg programs that are looked up by data: an index beyond the tensor is that of its last one.

MLIR leaves such a program undefined; a kernel must not read or write what is not of its arguments.
"""

from __future__ import annotations

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.stage import Unit

#: What is looked up or put, by the number of the operand that is the tensor; indices follow.
_TENSOR = {"tensor.extract": 0, "tensor.insert": 1}
_FREE = ("linalg.index", "arith.constant", "tensor.dim")


def keep_inside(unit: Unit) -> None:
    """Clamp, in place, every index that is computed from elements."""
    for op in mlir.named(unit.module, *_TENSOR):
        number = _TENSOR[mlir.name_of(op)]
        tensor = op.operands[number]
        for axis, index in enumerate(list(op.operands)[number + 1 :]):
            if _is_of_data(index):
                with mlir.before(op):
                    op.operands[number + 1 + axis] = _clamped(tensor, axis, index)


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


def _clamped(tensor: mlir.Value, axis: int, index: mlir.Value) -> mlir.Value:
    kind = mlir.index_type()
    size = mlir.sizes_of(tensor.type)[axis]
    if size is None:
        whole = mlir.value("tensor.dim", [tensor, mlir.constant(axis, "index")], kind)
        last = mlir.value("arith.subi", [whole, mlir.constant(1, "index")], kind)
    else:
        last = mlir.constant(size - 1, "index")
    least = mlir.value("arith.minsi", [index, last], kind)
    return mlir.value("arith.maxsi", [least, mlir.constant(0, "index")], kind)
