"""Rendering of sums over products as ``dot_general``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kcache_compiler.spec.graph.nodes import Node, Ref, Region, View, compose
from kcache_compiler.types import SMALL_INTEGERS


@dataclass(frozen=True)
class Contraction:
    """The operands of a ``dot_general`` in their own order of dims, its dimension numbers, and the
    permutation of its result.
    """

    factors: tuple[Ref, Ref]
    numbers: tuple[tuple[str, tuple[int, ...]], ...]
    result_dims: tuple[int, ...]
    permutation: tuple[int, ...]
    attributes: str


def contraction_of(node: Node) -> Contraction:
    """Return a ``dot_general`` node as a contraction."""
    attributes, _, dims = node.attributes.rpartition("dimensions = ")
    factors = (node.operands[0], node.operands[1])
    arranged = _arrange(factors, read_ints(dims), node.results[0].dims or ())
    return Contraction(*arranged, attributes.removesuffix(", "))


def as_contraction(node: Node, region: Region) -> Contraction | None:
    """Return a reduction as a contraction; None if it is rendered as a reduction.

    It is a contraction if it sums, from 0, a product of factors that both have the reduced axes, and of which
    one lacks a kept axis. A product of values over the same axes is better fused with its sum.
    """
    if not node.attributes.startswith("combiner = add, ") or not _is_zero(node.operands[1], region):
        return None
    use = node.operands[0]
    product = _node(region, use.node)
    if product is None or product.op != "multiply" or product.results[0].element != node.results[0].element:
        return None
    lhs, rhs = (ref._replace(view=compose(use.view, ref.view)) for ref in product.operands)
    reduced = read_ints(node.attributes.rpartition("dimensions = ")[2])
    if not reduced or any(f.view[dim] < 0 for f in (lhs, rhs) for dim in reduced):
        return None
    kept = [dim for dim in range(len(use.view)) if dim not in reduced]
    free = any((lhs.view[dim] < 0) != (rhs.view[dim] < 0) for dim in kept)
    if not free and (kept or lhs == rhs):
        return None
    return Contraction(*_arrange((lhs, rhs), reduced, node.results[0].dims or ()), "")


def _arrange(
    factors: tuple[Ref, Ref], reduced: list[int], result: tuple[int, ...]
) -> tuple[tuple[Ref, Ref], tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...], tuple[int, ...]]:
    """The operands in the order, as they are or swapped, for which the result needs no permutation."""
    views = (factors[0].view, factors[1].view)
    direct = _numbers(views, tuple(reduced), result)
    swapped = _numbers(views[::-1], tuple(reduced), result)
    if list(swapped[3]) == sorted(swapped[3]) and list(direct[3]) != sorted(direct[3]):
        factors, direct = (factors[1], factors[0]), swapped
    first, second = (ref._replace(view=view) for ref, view in zip(factors, direct[0], strict=True))
    return (first, second), *direct[1:]


@lru_cache(4096)
def _numbers(
    views: tuple[View, ...], reduced: tuple[int, ...], result: tuple[int, ...]
) -> tuple[tuple[View, ...], tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...], tuple[int, ...]]:
    """Views of the operands, dimension numbers, dims of the result, and its permutation."""
    kept = [dim for dim in range(len(views[0])) if dim not in reduced]
    natural = [_natural(view, reduced) for view in views]
    positions = [position for _, position in natural]
    batch = [dim for dim in kept if views[0][dim] >= 0 and views[1][dim] >= 0]
    free = [
        sorted((d for d in kept if d in position and d not in batch), key=lambda d, p=position: p[d])
        for position in positions
    ]
    numbers = (
        ("lhs_batching_dimensions", tuple(positions[0][d] for d in batch)),
        ("rhs_batching_dimensions", tuple(positions[1][d] for d in batch)),
        ("lhs_contracting_dimensions", tuple(positions[0][d] for d in reduced)),
        ("rhs_contracting_dimensions", tuple(positions[1][d] for d in reduced)),
    )
    order = [*batch, *free[0], *free[1]]
    permutation = tuple(order.index(dim) for dim in kept)
    dims = tuple(result[kept.index(dim)] for dim in order)
    return tuple(view for view, _ in natural), numbers, dims, permutation


def _natural(view: View, reduced: Sequence[int]) -> tuple[View, dict[int, int]]:
    """A factor with its axes in their own order, then summed broadcasts, and the position of each dim."""
    covered = sorted((entry, dim) for dim, entry in enumerate(view) if entry >= 0)
    missing = [dim for dim in reduced if view[dim] < 0]
    order = [dim for _, dim in covered] + missing
    return tuple(view[dim] for dim in order), {dim: i for i, dim in enumerate(order)}


def read_ints(text: str) -> list[int]:
    """Return the integers of ``[1, 2]``."""
    return [int(part) for part in text.strip("[]").split(", ") if part]


def _node(region: Region, index: int) -> Node | None:
    position = index - len(region.params) - len(region.captures)
    return region.nodes[position] if position >= 0 else None


def _is_zero(ref: Ref, region: Region) -> bool:
    """Whether a value is the constant 0, not -0.0."""
    node = _node(region, ref.node)
    return (
        node is not None
        and node.op == "constant"
        and (not node.attributes.strip("0") or _is_small_zero(node))
        and node.attributes != ""
    )


def _is_small_zero(node: Node) -> bool:
    """Whether a constant of 2-bit or 4-bit integers, which is a literal, is 0. Narrow floats round each
    product.
    """
    return node.attributes == "=0" and node.results[0].element in SMALL_INTEGERS
