"""Products of small elements: of floats in f32, of integers in bytes."""

from __future__ import annotations

import re

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.narrow_types.formats import FLOATS, INTEGERS, carrier
from kcache_compiler.passes.narrow_types.values import like, small

_PLAIN = ("f16", "bf16", "f32", "f64")


def multiplied(op: mlir.Op, operands: list[mlir.Value]) -> mlir.Value:
    """``op`` on the wide forms of its operands: its result, or what it is rounded or cut from."""
    result = op.results[0].type
    elements = [
        small(operand.type) or str(mlir.element_type(operand.type)) for operand in list(op.operands)[:2]
    ]
    expected = small(result) or str(mlir.element_type(result))
    _drop_algorithm(op, elements, expected)
    if all(element in INTEGERS for element in elements):
        kind = carrier(expected) if expected in INTEGERS else expected
        if kind.startswith(("i", "ui")):
            return _same(op, operands, like(result, kind))
    elif all(element in (*FLOATS, *_PLAIN) for element in (*elements, expected)):
        wide = "f64" if "f64" in (*elements, expected) else "f32"
        factors = [_as(operand, wide) for operand in operands[:2]]
        output = _same(op, [*factors, *operands[2:]], like(result, wide))
        return output if small(result) else _as(output, expected)
    raise UnsupportedOp(
        mlir.name_of(op), f"{' and '.join(elements)} to {expected}: convert them first", mlir.location_of(op)
    )


def _same(op: mlir.Op, operands: list[mlir.Value], kind: mlir.Type) -> mlir.Value:
    return mlir.create(mlir.name_of(op), operands, [kind], mlir.attributes_of(op)).results[0]


def _as(number: mlir.Value, element: str) -> mlir.Value:
    kind = like(number.type, element)
    return number if number.type == kind else mlir.value("stablehlo.convert", [number], kind)


def _drop_algorithm(op: mlir.Op, elements: list[str], expected: str) -> None:
    """An algorithm that takes the operands as they are and sums in f32 is what becomes of the operation."""
    if "algorithm" not in op.attributes:
        return
    stated = set(re.split(r"[<>,]\s*", str(op.attributes["algorithm"])))
    fields = {f"lhs_precision_type = {elements[0]}", f"rhs_precision_type = {elements[1]}"}
    fields |= {f"{side}_component_count = 1" for side in ("lhs", "rhs")}
    fields |= {"num_primitive_operations = 1", "accumulation_type = f32"}
    if expected == "f64" or not fields <= stated:
        raise UnsupportedOp(mlir.name_of(op), "this algorithm on small elements", mlir.location_of(op))
    del op.attributes["algorithm"]
