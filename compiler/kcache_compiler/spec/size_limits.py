"""Limits of symbolic sizes: what operations take for granted of sizes, without computing them.

A StableHLO slice or update is not larger than its operand. A linalg program indexes tensors by constants: the
kernel clamps indices (``passes/legalize/semantics/clamp_indices.py``), so a constant index, or a static
slice, that lies outside the tensor must be rejected before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kcache_compiler.shapes.monomial import is_symbolic, read_size
from kcache_compiler.spec.graph.nodes import Graph, Node, Ref, Region

#: The position of the operand that is the tensor; index operands follow.
_ELEMENT_ACCESSES = {"tensor.extract": 0, "tensor.insert": 1}
_SLICES = {"tensor.extract_slice": 0, "tensor.insert_slice": 1}
_STATIC = re.compile(r"static_(offsets|sizes|strides) = array<i64(?:: ([^>]*))?>")
_CONSTANT = re.compile(r"value = (-?\d+) : ")
_SIZES = re.compile(r"(slice_sizes|limit_indices) = array<i64: ([^>]*)>")
_AXES = re.compile(r"(\w+) = \[([\d, ]*)\]")
#: MLIR's ``ShapedType::kDynamic``: the value is an operand.
_DYNAMIC_OFFSET = -(1 << 63)
Pair = tuple[int, int]


def size_limits(graph: Graph) -> list[Pair]:
    """Return pairs of sizes, one of them symbolic, of which the first must not exceed the second."""
    if graph.family == "linalg":
        pairs = linalg_limits(graph.body)
        return list(dict.fromkeys(pair for pair in pairs if any(map(is_symbolic, pair))))
    return list(dict.fromkeys(_stablehlo_limits(graph.body)))


def _stablehlo_limits(region: Region) -> Iterator[Pair]:
    for node in region.nodes:
        if node.op in ("gather", "dynamic_slice", "slice"):
            operand = region.viewed_type(node.operands[0]).dims or ()
            for match in _SIZES.finditer(node.attributes):
                yield from _pairs([read_size(part) for part in match[2].split(", ")], operand)
        elif node.op == "dynamic_update_slice":
            operand, update = (region.viewed_type(ref).dims or () for ref in node.operands[:2])
            yield from _pairs(update, operand)
        elif node.op == "scatter":
            yield from _scatter_windows(region, node)
        for inner in node.regions:
            yield from _stablehlo_limits(inner)


def _scatter_windows(region: Region, node: Node) -> Iterator[Pair]:
    count = len(node.results)
    operand, update = (region.viewed_type(node.operands[i]).dims or () for i in (0, count + 1))
    axes = {
        name: [int(axis) for axis in text.split(", ") if axis]
        for name, text in _AXES.findall(node.attributes)
    }
    dropped = {*axes.get("inserted_window_dims", []), *axes.get("input_batching_dims", [])}
    kept = [size for axis, size in enumerate(operand) if axis not in dropped]
    yield from _pairs([update[axis] for axis in axes.get("update_window_dims", [])], kept)


def _pairs(parts: Sequence[int], wholes: Sequence[int]) -> Iterator[Pair]:
    for part, whole in zip(parts, wholes, strict=True):
        if part != whole and (is_symbolic(part) or is_symbolic(whole)):
            yield part, whole


def linalg_limits(region: Region, captured: Sequence[int | None] = ()) -> Iterator[Pair]:
    """Yield pairs of sizes, also static and unknown ones, of which the first must not exceed the second.

    ``captured`` are the constants that the region captures, None for other values.
    """
    for node in region.nodes:
        if node.op in _ELEMENT_ACCESSES:
            yield from _element_limits(region, node, captured)
        elif node.op in _SLICES:
            yield from _slice_limits(region, node, captured)
        for inner in node.regions:
            captures = node.operands[len(node.operands) - len(inner.captures) :]
            yield from linalg_limits(inner, [_constant(region, ref, captured) for ref in captures])


def _element_limits(region: Region, node: Node, captured: Sequence[int | None]) -> Iterator[Pair]:
    tensor = _ELEMENT_ACCESSES[node.op]
    dims = region.viewed_type(node.operands[tensor]).dims or ()
    for ref, size in zip(node.operands[tensor + 1 :], dims, strict=True):
        yield max(_constant(region, ref, captured) or 0, 0) + 1, size


def _slice_limits(region: Region, node: Node, captured: Sequence[int | None]) -> Iterator[Pair]:
    tensor = _SLICES[node.op]
    dims = region.viewed_type(node.operands[tensor]).dims or ()
    static = {
        name: [int(part) for part in text.split(", ") if part]
        for name, text in _STATIC.findall(node.attributes)
    }
    operands = iter(node.operands[tensor + 1 :])
    rows = zip(static["offsets"], static["sizes"], static["strides"], dims, strict=True)
    for offset, length, stride, size in rows:
        first = _constant(region, next(operands), captured) if offset == _DYNAMIC_OFFSET else offset
        if length > 0 and stride > 0:
            yield max(first or 0, 0) + (length - 1) * stride + 1, size


def _constant(region: Region, ref: Ref, captured: Sequence[int | None]) -> int | None:
    """The value of an index that is computed from constants; loop counters count as 0, others are None."""
    leaf = ref.node - len(region.params)
    if leaf < len(region.captures):
        return captured[leaf] if 0 <= leaf < len(captured) else None
    node = region.nodes[leaf - len(region.captures)]
    if node.op == "linalg.index":
        return 0
    if node.op == "arith.constant":
        match = _CONSTANT.search(node.attributes)
        return int(match[1]) if match else None
    if not node.op.startswith("arith."):
        return None
    operands = [_constant(region, operand, captured) for operand in node.operands]
    if None in operands:
        return None
    match node.op, operands:
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
