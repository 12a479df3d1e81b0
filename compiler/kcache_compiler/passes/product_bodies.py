"""Multiply-add bodies of structured operations: which operands are multiplied and accumulated."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir

_FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True)
class Products:
    """A body that adds a product to what is there: the numbers of its factors, and the type it adds in."""

    left: int
    right: int
    wide: str


def read_products(generic: mlir.Op) -> Products | None:
    """``yield out + left * right`` over two inputs, each widened first where it is narrow."""
    body = mlir.block_of(generic)
    arguments = list(body.arguments)
    if len(arguments) != 3 or mlir.input_count(generic) != 2:
        return None
    yielded = mlir.last(body).operands[0]
    rounded = _maker(yielded, "arith.truncf")
    total = yielded if rounded is None else rounded.operands[0]
    addition = _maker(total, "arith.addf")
    if addition is None or str(total.type) not in ("f32", "f64"):
        return None
    for before, term in (list(addition.operands), list(reversed(addition.operands))):
        widened = _maker(before, "arith.extf") if rounded is not None else None
        start = before if widened is None else widened.operands[0]
        product_of = _maker(term, "arith.mulf")
        if start == arguments[2] and product_of is not None:
            factors = [_argument(factor, arguments) for factor in product_of.operands]
            if sorted(factor for factor in factors if factor is not None) == [0, 1]:
                return Products(factors[0] or 0, factors[1] or 0, str(total.type))
    return None


def _maker(value: mlir.Value, name: str) -> mlir.Op | None:
    owner = mlir.defining(value)
    return owner if owner is not None and mlir.name_of(owner) == name else None


def _argument(value: mlir.Value, arguments: list[mlir.Value]) -> int | None:
    widened = _maker(value, "arith.extf")
    if widened is not None:
        value = widened.operands[0]
    number = next((number for number, argument in enumerate(arguments[:2]) if argument == value), None)
    return number if number is not None and str(value.type) in _FLOATS else None
