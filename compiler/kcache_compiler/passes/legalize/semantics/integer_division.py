"""Guards integer divisions of linalg programs whose result MLIR leaves undefined.

A CPU traps on a division by 0, and on one of the least integer by -1. Such a division becomes one by 1: the
second then wraps, and remainders of both are 0.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith

_SIGNED = ("arith.divsi", "arith.remsi", "arith.ceildivsi", "arith.floordivsi")
_UNSIGNED = ("arith.divui", "arith.remui", "arith.ceildivui")
_INDEX_BITS = 64


def guard_divisions(module: mlir.Module) -> None:
    """Guard divisions of elements in place; divisions of sizes are formulas and checked elsewhere."""
    for op in mlir.named(module, *_SIGNED, *_UNSIGNED):
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
            both = arith.andi(_equal(right, -1, kind), _equal(left, least, kind))
            wrong = arith.ori(wrong, both)
        one = mlir.constant(1, kind)
        op.operands[1] = arith.select(wrong, one, right)


def _equal(value: mlir.Value, number: int, kind: str) -> mlir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, value, mlir.constant(number, kind))
