"""Sorts of values alone: a row is sorted as its keys, without positions.

If every element of a row is what ``element_of`` makes of its key, elements with equal keys have equal bits:
their order is not observable, and the sorted elements follow from the sorted keys. This does not hold for -0
and NaN if the comparator makes them equal to others, nor if it compares a function of the element.
"""

from __future__ import annotations

from typing import Any

from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.legalize.comparators import FLOATS

#: Minimum and maximum number of elements of a row that is sorted as keys alone.
LEAST, MOST = 17, 1 << 16
#: The maximum by bits of a key (at least 8), for vectors of up to 16 and 32 bytes, and longer ones: a radix
#: sort takes a pass for each byte of a key, and the network more instructions for shorter vectors.
_MOST = {
    8: (512, 512, 512),
    16: (1 << 11, 1 << 12, MOST),
    32: (1 << 14, MOST, MOST),
    64: (1 << 10, 1 << 12, MOST),
}


def sorts_values(details: dict[str, Any], inputs: list[Pointer]) -> bool:
    """Whether the only result of a keyed sort is its only operand, of elements as wide as the key."""
    if len(inputs) != 1 or details["results"] != [0]:
        return False
    element, bits = str(inputs[0].element), details["key"]
    return element == f"i{bits}" or FLOATS.get(element, (0,))[0] == bits


def most(details: dict[str, Any], vector_bytes: int) -> int:
    """The maximum number of elements of a row that is sorted as keys alone on a target with such vectors."""
    short, middle, long = _MOST[max(8, details["key"])]
    return long if vector_bytes > 32 else middle if vector_bytes > 16 else short


def element_of(key: mlir.Value, element: mlir.Type, details: dict[str, Any]) -> mlir.Value:
    """The element of a key, an integer of as many bits: one of those that have it."""
    bits = details["key"]
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def constant(number: int) -> mlir.Value:
        return mlir.constant(number, f"i{bits}")

    if details["descending"]:
        key = arith.xori(key, constant(-1))
    if details["order"] != "UNSIGNED":
        key = arith.xori(key, constant(least))
    if str(element) not in FLOATS:
        return key
    sign = arith.shrsi(key, constant(bits - 1))
    if details["order"] == "TOTALORDER":
        key = arith.xori(key, arith.andi(sign, constant(most)))
    else:
        key = arith.ori(arith.subi(arith.xori(key, sign), sign), arith.andi(sign, constant(least)))
    return arith.bitcast(element, key)


def difference(element: mlir.Value, other: mlir.Value, bits: int) -> mlir.Value:
    """Nonzero if the bits of two elements differ."""
    kind = mlir.type_of(f"i{bits}")
    values = [value if value.type == kind else arith.bitcast(kind, value) for value in (element, other)]
    return arith.xori(*values)


def stored(key: mlir.Value) -> mlir.Value:
    """A key as an integer of the network, of 32 or 64 bits."""
    kind = mlir.type_of("i32")
    return key if str(key.type) in ("i32", "i64") else arith.extui(kind, key)


def network_bits(details: dict[str, Any]) -> int:
    return max(32, details["key"])
