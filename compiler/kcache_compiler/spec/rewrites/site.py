"""Where a rewrite applies: an elementwise operation about to be built, and what it may ask and make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.label import least_view
from kcache_compiler.spec.graph.nodes import Node, Ref, ValueType, compose, spread
from kcache_compiler.spec.graph.reduction import ReductionInput, add_reduction
from kcache_compiler.spec.graph.reshape import reshape
from kcache_compiler.spec.rewrites.merged_axes import merge_of
from kcache_compiler.spec.rewrites.scalars import encode, read_scalar


class Site(NamedTuple):
    """An elementwise operation about to be built: its operands are views over the result's dims.

    ``rules``: the rewrites of the numerics class, by the operation that they start from.
    """

    builder: Builder
    numerics: str
    op: str
    attributes: str
    type: ValueType
    operands: tuple[Ref, ...]
    rules: Rules | None = None

    def node(self, ref: Ref) -> Node:
        """Return the node that an operand views."""
        return self.builder.nodes[ref.node]

    def element(self, ref: Ref) -> str:
        """Return the element type of an operand."""
        return self.builder.type_of(ref).element

    def same(self, left: Ref, right: Ref) -> bool:
        """Whether two operands are one value, by the automorphisms of the node that they view."""
        if left[:2] != right[:2]:
            return False
        group = self.builder.groups[left.node]
        return left == right or least_view(left.view, group) == least_view(right.view, group)

    def inner(self, ref: Ref, op: str, index: int = 0) -> Ref | None:
        """Return operand ``index`` of the node that ``ref`` views, in the dims of ``ref``, if that node is
        an ``op``.
        """
        node = self.node(ref)
        if node.op != op:
            return None
        inner, result, view = node.operands[index]
        return Ref(inner, result, compose(ref.view, view))

    def inners(self, ref: Ref, op: str) -> tuple[Ref, ...] | None:
        """Return all operands of the node that ``ref`` views, in the dims of ``ref``, if it is an ``op``."""
        node = self.node(ref)
        if node.op != op:
            return None
        view = ref.view
        return tuple([Ref(n, result, compose(view, inner)) for n, result, inner in node.operands])

    def scalar(self, ref: Ref) -> float | int | None:
        """Return the value of an operand that is one real constant everywhere (zeros keep their sign)."""
        node = self.node(ref)
        if node.op != "constant" or node.results[0].dims != ():
            return None
        return read_scalar(node.attributes, node.results[0].element)

    # -- what a rewrite makes: over the dims of the site, of the site's element unless said otherwise

    def make(self, op: str, element: str, operands: Sequence[Ref], attributes: str = "") -> Ref:
        """Return another operation in the dims of this one, itself as simple as it gets."""
        type = ValueType(element, self.type.dims)
        return apply(Site(self.builder, self.numerics, op, attributes, type, tuple(operands), self.rules))

    def put(self, op: str, *operands: Ref) -> Ref:
        """``make`` in the element of this site."""
        return self.make(op, self.type.element, operands)

    def plain(self, op: str, *operands: Ref) -> Ref:
        """Return an operation as it stands: for the root of a canonical form, which no rewrite touches."""
        rank = len(self.type.dims or ())
        return self.builder.elementwise(op, "", self.type.element, operands, rank)

    def number(self, value: float, element: str | None = None) -> Ref:
        """Return a constant, rounded once to the element."""
        element = element or self.type.element
        return self.builder.constant(encode(value, element), element, (), self.type.dims or ())

    def over(self, dims: tuple[int, ...]) -> Site:
        """Return a site over other dims, to make operations there."""
        return self._replace(type=ValueType(self.type.element, dims))

    def sum(self, ref: Ref, reduced: frozenset[int]) -> Ref:
        """Return the sum of ``ref``, an operand over this site's dims, over some of them."""
        zero = self.builder.constant(encode(0.0, self.element(ref)), self.element(ref), (), ())
        source = ReductionInput([ref], [zero], reduced)
        return add_reduction(self.builder, "reduce", "combiner = add", source, [self.element(ref)])[0]

    def shown(self, ref: Ref) -> Ref:
        """Return a scalar value in the dims of this site."""
        return ref._replace(view=tuple(map(spread, self.type.dims or ())))


@dataclass(frozen=True)
class Rewrite:
    """``apply`` returns the simpler value, or None. ``proof`` says why the bits are the same, or by how much
    they differ where the rewrite changes values. ``near`` is an operation without which it never applies: an
    operand, or an operand of one.
    """

    name: str
    ops: tuple[str, ...]
    proof: str
    apply: Callable[[Site], Ref | None]
    near: str = ""


#: Rewrites by the operation at their root, in the order in which they are tried.
Rules = Mapping[str, tuple[Rewrite, ...]]


def apply(site: Site) -> Ref:
    """Return the value of what is about to be built: a simpler one if a rewrite applies, else its node."""
    nodes, dims = site.builder.nodes, site.type.dims or ()
    ops = {nodes[ref.node].op for ref in site.operands}
    merge = merge_of(site.builder, dims, site.operands) if "reshape" in ops else None
    if merge is not None:
        apart = site._replace(type=ValueType(site.type.element, merge.dims), operands=merge.split)
        return reshape(site.builder, apply(apart), dims)
    rewrites = site.rules.get(site.op) if site.rules else None
    if rewrites:
        ops.update([nodes[inner.node].op for ref in site.operands for inner in nodes[ref.node].operands])
        for rewrite in rewrites:
            found = rewrite.apply(site) if not rewrite.near or rewrite.near in ops else None
            if found is not None:
                return found
    return site.builder.elementwise(site.op, site.attributes, site.type.element, site.operands, len(dims))
