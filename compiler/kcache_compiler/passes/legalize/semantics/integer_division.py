"""Integer division of linalg programs: what MLIR leaves undefined must not end a kernel's process.

A CPU traps at a division by 0, and at that of the least number by -1. Such a division is one by 1 instead:
the second then wraps, and remainders of both are 0.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit

_SIGNED = ("arith.divsi", "arith.remsi", "arith.ceildivsi", "arith.floordivsi")
_UNSIGNED = ("arith.divui", "arith.remui", "arith.ceildivui")
_INDEX_BITS = 64


def define_quotients(unit: Unit) -> None:
    """Guard, in place, divisions of elements; those of sizes are formulas, which are checked elsewhere."""
    for op in mlir.named(unit.module, *_SIGNED, *_UNSIGNED):
        if _in_a_body(op) or _is_of_data(op):
            _guard(op)


def _in_a_body(op: mlir.Op) -> bool:
    parent = op.operation.parent
    while parent is not None and mlir.name_of(parent) not in ("linalg.generic", "func.func"):
        parent = parent.operation.parent
    return parent is not None and mlir.name_of(parent) == "linalg.generic"


def _is_of_data(op: mlir.Op) -> bool:
    """Whether a scalar is computed from an element of a tensor."""
    pending, seen = [op], {op}
    while pending:
        for operand in pending.pop().operands:
            owner = mlir.defining(operand)
            if owner is None or owner in seen:
                continue
            if mlir.name_of(owner) == "tensor.extract":
                return True
            if mlir.name_of(owner).startswith("arith."):
                seen.add(owner)
                pending.append(owner)
    return False


def _guard(op: mlir.Op) -> None:
    left, right = op.operands
    kind, literal = str(right.type), mlir.constant_int(right)
    signed = mlir.name_of(op) in _SIGNED
    if not (kind == "index" or kind[1:].isdigit()) or (literal and not (signed and literal == -1)):
        return
    with mlir.before(op):
        wrong = _equal(right, 0, kind)
        if signed:
            least = -(1 << (_INDEX_BITS if kind == "index" else int(kind[1:])) - 1)
            both = mlir.value("arith.andi", [_equal(right, -1, kind), _equal(left, least, kind)], wrong.type)
            wrong = mlir.value("arith.ori", [wrong, both], wrong.type)
        one = mlir.constant(1, kind)
        op.operands[1] = mlir.value("arith.select", [wrong, one, right], right.type)


def _equal(value: mlir.Value, number: int, kind: str) -> mlir.Value:
    predicate = mlir.attribute("0 : i64")
    operands = [value, mlir.constant(number, kind)]
    return mlir.value("arith.cmpi", operands, mlir.type_of("i1"), predicate=predicate)
