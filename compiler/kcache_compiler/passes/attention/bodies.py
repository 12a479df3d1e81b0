"""What the body of one structured operation computes: a maximum, a quotient, ``exp`` of a difference."""

from __future__ import annotations

import re
import struct
from typing import TypeVar

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.fusion.elementwise import GenericOp, read_generic
from kcache_compiler.passes.product_bodies import read_products

NEGATIVE_INFINITY = float("-inf")

T = TypeVar("T")


class NoMatch(Exception):
    """These operations are no attention."""


def need(value: T | None) -> T:
    if value is None or value is False:
        raise NoMatch
    return value


def need_int(number: int | None) -> int:
    if number is None:
        raise NoMatch
    return number


def _generic(value: mlir.Value) -> GenericOp | None:
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != "linalg.generic" or len(owner.results) != 1:
        return None
    return read_generic(owner)


def elementwise(value: mlir.Value) -> GenericOp | None:
    """What makes ``value`` element by element and reads nothing that was there."""
    generic = _generic(value)
    if generic is None or not generic.parallel or not mlir.is_identity(generic.maps[-1]):
        return None
    reads = any(mlir.is_tensor(operand.type) for operand in generic.inputs) or mlir.named(
        generic.op, "linalg.index"
    )
    return generic if reads and not list(generic.body.arguments[-1].uses) else None


def plain(generic: GenericOp) -> bool:
    """Every operand is indexed only by loops, and the body reads nothing else."""
    every = [result for access in generic.maps for result in access.results]
    return all(mlir.plain_dim(result) is not None for result in every) and not any(
        mlir.name_of(op).startswith(("tensor.", "scf.", "func.")) and not _is_math(op)
        for op in mlir.walk(generic.op)
    )


def _is_math(op: mlir.Op) -> bool:
    return mlir.name_of(op) == "func.call"


def sums_products(op: mlir.Op) -> bool:
    """A contraction, also of narrow floats, which are summed in wider ones later."""
    if read_products(op) is not None:
        return True
    generic = read_generic(op)
    if generic.parallel or len(generic.inputs) != 2 or len(generic.outputs) != 1:
        return False
    product = maker(combined(generic, "arith.addf"), "arith.mulf")
    if product is None or str(product.results[0].type) not in ("f16", "bf16"):
        return False
    return {argument_of(generic, factor) for factor in product.operands} == {0, 1}


def reduction(value: mlir.Value) -> GenericOp | None:
    generic = _generic(value)
    return None if generic is None or generic.parallel or sums_products(generic.op) else generic


def source_of(top: GenericOp) -> GenericOp | None:
    """The contraction whose elements reach ``top`` one by one."""
    waiting, seen = list(top.inputs), 0
    while waiting and seen < 64:
        value = waiting.pop()
        seen += 1
        generic = _generic(value)
        if generic is not None and sums_products(generic.op):
            if len(generic.maps[-1].results) == top.maps[-1].n_dims:
                return generic
        elif generic is not None and generic.parallel:
            waiting += generic.inputs
    return None


def yielded(generic: GenericOp) -> mlir.Value:
    return mlir.last(generic.body).operands[0]


def maker(value: mlir.Value | None, *names: str) -> mlir.Op | None:
    owner = None if value is None else mlir.defining(value)
    return owner if owner is not None and mlir.name_of(owner) in names else None


def argument_of(generic: GenericOp, value: mlir.Value) -> int | None:
    """Which input of ``generic`` a value of its body is."""
    arguments = list(generic.body.arguments)[: len(generic.inputs)]
    return next((number for number, argument in enumerate(arguments) if argument == value), None)


def read_quotient(share: GenericOp) -> tuple[GenericOp, tuple[int, int, mlir.Value | None] | None]:
    """Numbers of weight and total, and the condition under which the share is 0 instead; None for others."""
    value = yielded(share)
    narrowed = maker(value, "arith.truncf")
    value = value if narrowed is None else narrowed.operands[0]
    chosen, guard = maker(value, "arith.select"), None
    if chosen is not None and constant(share, chosen.operands[1]) == 0:
        guard, value = chosen.operands[0], chosen.operands[2]
    division = maker(value, "arith.divf")
    if division is None:
        return share, None
    numbers = [argument_of(share, operand) for operand in division.operands]
    return share, (need_int(numbers[0]), need_int(numbers[1]), guard)


def exponential(weights: GenericOp) -> tuple[mlir.Value, int] | None:
    """``exp(x - m)``: the value x, and which input m is."""
    call = maker(yielded(weights), "func.call")
    if call is None or str(call.attributes["callee"]) not in ("@kcm_exp_f32", "@kcm_exp_f64"):
        return None
    difference = maker(call.operands[0], "arith.subf")
    if difference is None:
        return None
    number = argument_of(weights, difference.operands[1])
    if number is None or len(list(difference.operands[1].uses)) != 1:
        return None
    return difference.operands[0], number


def combined(generic: GenericOp, name: str) -> mlir.Value | None:
    """What ``name`` combines with what was there."""
    combiner = maker(yielded(generic), name)
    out = list(generic.body.arguments)[-1]
    if combiner is None or len(list(out.uses)) != 1:
        return None
    left, right = combiner.operands
    return right if left == out else left if right == out else None


def compared_with_low(generic: GenericOp, value: mlir.Value) -> mlir.Value | None:
    """What ``value`` compares with -inf, and finds equal."""
    compare = maker(value, "arith.cmpf")
    if compare is None or mlir.int_of(compare.attributes["predicate"]) != arith.CmpFPredicate.OEQ:
        return None
    left, right = compare.operands
    if constant(generic, right) == NEGATIVE_INFINITY:
        return left
    return right if constant(generic, left) == NEGATIVE_INFINITY else None


def scaled(generic: GenericOp) -> float | None:
    """The number that an operand is multiplied by, after it was widened if it was."""
    value = yielded(generic)
    scale = 1.0
    product = maker(value, "arith.mulf")
    if product is not None:
        factors = [constant(generic, operand) for operand in product.operands]
        if (factors[0] is None) == (factors[1] is None):
            return None
        value = product.operands[0] if factors[0] is None else product.operands[1]
        scale = factors[1] if factors[0] is None else factors[0]
    widened = maker(value, "arith.extf")
    value = value if widened is None else widened.operands[0]
    number = argument_of(generic, value)
    if number is None or not mlir.is_permutation(generic.maps[number]) or scale is None:
        return None
    if str(yielded(generic).type) not in ("f32", "f64") or scale != scale or abs(scale) == float("inf"):
        return None
    return scale


def _fill(value: mlir.Value) -> mlir.Op | None:
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != "linalg.generic" or len(list(mlir.uses(value))) != 1:
        return None
    generic = read_generic(owner)
    return owner if generic.parallel and len(mlir.operations(generic.body)) == 1 else None


def fill_value(value: mlir.Value) -> float | None:
    owner = _fill(value)
    return None if owner is None else constant(read_generic(owner), yielded(read_generic(owner)))


def constant(generic: GenericOp, value: mlir.Value) -> float | None:
    """The number that a value of a body always is."""
    number = argument_of(generic, value)
    owner = mlir.defining(value if number is None else generic.inputs[number])
    if owner is None or mlir.name_of(owner) != "arith.constant":
        return None
    text = re.sub(
        r"^dense<(.*)>$",
        r"\1",
        str(owner.attributes["value"]).rpartition(" : ")[0] or str(owner.attributes["value"]),
    )
    kind = str(mlir.element_of(owner.results[0].type))
    if text in ("true", "false"):
        return float(text == "true")
    try:
        if not text.startswith("0x"):
            return float(text)
        bits = int(text, 16)
        return struct.unpack(
            "<f" if kind == "f32" else "<d", bits.to_bytes(4 if kind == "f32" else 8, "little")
        )[0]
    except (ValueError, OverflowError):
        return None
