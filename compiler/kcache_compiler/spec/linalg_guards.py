"""What linalg programs take for granted of open sizes: places that are numbers, and sizes of slices.

The kernel clamps places (``passes/legalize/semantics/clamp_indices.py``); what is stated in the
program, and does not fit, is refused instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kcache_compiler.spec.graph.nodes import Node, Ref, Region

#: The number of the operand that is the tensor; places follow.
_ELEMENTS = {"tensor.extract": 0, "tensor.insert": 1}
_SLICES = {"tensor.extract_slice": 0, "tensor.insert_slice": 1}
_STATIC = re.compile(r"static_(offsets|sizes|strides) = array<i64(?:: ([^>]*))?>")
_VALUE = re.compile(r"value = (-?\d+) : ")
_GIVEN = -(1 << 63)
Pair = tuple[int, int]


def linalg_limits(region: Region, captured: Sequence[int | None] = ()) -> Iterator[Pair]:
    """Pairs of sizes, which may be unknown, of which the first never exceeds the second; ``captured`` are
    numbers of the captures.
    """
    for node in region.nodes:
        if node.op in _ELEMENTS:
            yield from _element(region, node, captured)
        elif node.op in _SLICES:
            yield from _slice(region, node, captured)
        for inner in node.regions:
            given = node.operands[len(node.operands) - len(inner.captures) :]
            yield from linalg_limits(inner, [_number(region, ref, captured) for ref in given])


def _element(region: Region, node: Node, captured: Sequence[int | None]) -> Iterator[Pair]:
    number = _ELEMENTS[node.op]
    dims = region.viewed_type(node.operands[number]).dims or ()
    for ref, size in zip(node.operands[number + 1 :], dims, strict=True):
        yield max(_number(region, ref, captured) or 0, 0) + 1, size


def _slice(region: Region, node: Node, captured: Sequence[int | None]) -> Iterator[Pair]:
    number = _SLICES[node.op]
    dims = region.viewed_type(node.operands[number]).dims or ()
    stated = {
        name: [int(one) for one in text.split(", ") if one] for name, text in _STATIC.findall(node.attributes)
    }
    given = iter(node.operands[number + 1 :])
    for offset, part, stride, size in zip(
        stated["offsets"], stated["sizes"], stated["strides"], dims, strict=True
    ):
        first = _number(region, next(given), captured) if offset == _GIVEN else offset
        if part > 0 and stride > 0:
            yield max(first or 0, 0) + (part - 1) * stride + 1, size


def _number(region: Region, ref: Ref, captured: Sequence[int | None]) -> int | None:
    """What an index is where all its parts are numbers, and counters of loops 0; None of others."""
    leaf = ref.node - len(region.params)
    if leaf < len(region.captures):
        return captured[leaf] if 0 <= leaf < len(captured) else None
    node = region.nodes[leaf - len(region.captures)]
    if node.op == "linalg.index":
        return 0
    if node.op == "arith.constant":
        found = _VALUE.search(node.attributes)
        return int(found[1]) if found else None
    if not node.op.startswith("arith."):
        return None
    numbers = [_number(region, one, captured) for one in node.operands]
    if None in numbers:
        return None
    match node.op, numbers:
        case "arith.addi", [int(a), int(b)]:
            return a + b
        case "arith.subi", [int(a), int(b)]:
            return a - b
        case "arith.muli", [int(a), int(b)]:
            return a * b
        case "arith.minsi", [int(a), int(b)]:
            return min(a, b)
        case "arith.maxsi", [int(a), int(b)]:
            return max(a, b)
        case "arith.index_cast" | "arith.extsi", [int(a)]:
            return a
        case _:
            return None
