"""The interface of rewrites: the elementwise operation at their root, which is about to be built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.element_types import encode, read_scalar
from kcache_compiler.spec.graph.label import least_view
from kcache_compiler.spec.graph.nodes import Node, Ref, ValueType, compose, spread
from kcache_compiler.spec.graph.reduction import ReductionInput, add_reduction
from kcache_compiler.spec.graph.reshape import merge_of, reshape


class RewriteSite(NamedTuple):
    """An elementwise operation that is about to be built; its operands are views over the result's dims.

    ``rules``: the rewrites of the numerics class, by root operation.
    """

    builder: Builder
    numerics: str
    op: str
    attributes: str
    type: ValueType
    operands: tuple[Ref, ...]
    rules: Rules | None = None

    def node(self, ref: Ref) -> Node:
        """Return the node of an operand."""
        return self.builder.nodes[ref.node]

    def element(self, ref: Ref) -> str:
        """Return the element type of an operand."""
        return self.builder.type_of(ref).element

    def same(self, left: Ref, right: Ref) -> bool:
        """Return whether two operands are equal up to automorphisms of their node."""
        if left[:2] != right[:2]:
            return False
        group = self.builder.groups[left.node]
        return left == right or least_view(left.view, group) == least_view(right.view, group)

    def operand_of(self, ref: Ref, op: str, index: int = 0) -> Ref | None:
        """Return operand ``index`` of the node of ``ref``, in the dims of ``ref``, if it is an ``op``."""
        node = self.node(ref)
        if node.op != op:
            return None
        leaf, result, view = node.operands[index]
        return Ref(leaf, result, compose(ref.view, view))

    def operands_of(self, ref: Ref, op: str) -> tuple[Ref, ...] | None:
        """Return all operands of the node of ``ref``, in the dims of ``ref``; None if that is no ``op``."""
        node = self.node(ref)
        if node.op != op:
            return None
        view = ref.view
        return tuple([Ref(n, result, compose(view, inner)) for n, result, inner in node.operands])

    def scalar(self, ref: Ref) -> float | int | None:
        """Return the value of an operand that is a splat of a real constant; None of others."""
        node = self.node(ref)
        if node.op != "constant" or node.results[0].dims != ():
            return None
        return read_scalar(node.attributes, node.results[0].element)

    # -- construction, over the dims of the site

    def build_as(self, op: str, element: str, operands: Sequence[Ref], attributes: str = "") -> Ref:
        """Return an operation of another element type, after rewrites."""
        type = ValueType(element, self.type.dims)
        return build_simplified(
            RewriteSite(self.builder, self.numerics, op, attributes, type, tuple(operands), self.rules)
        )

    def build(self, op: str, *operands: Ref) -> Ref:
        """Return an operation of the element type of the site, after rewrites."""
        return self.build_as(op, self.type.element, operands)

    def build_unchanged(self, op: str, *operands: Ref) -> Ref:
        """Return an operation without rewrites: the root of a canonical form."""
        rank = len(self.type.dims or ())
        return self.builder.elementwise(op, "", self.type.element, operands, rank)

    def constant(self, value: float, element: str | None = None) -> Ref:
        """Return a splat, rounded once to the element type."""
        element = element or self.type.element
        return self.builder.constant(encode(value, element), element, (), self.type.dims or ())

    def with_dims(self, dims: tuple[int, ...]) -> RewriteSite:
        """Return the site with other dims, for construction."""
        return self._replace(type=ValueType(self.type.element, dims))

    def sum(self, ref: Ref, reduced: frozenset[int]) -> Ref:
        """Return the sum of a value over some dims of the site."""
        zero = self.builder.constant(encode(0.0, self.element(ref)), self.element(ref), (), ())
        source = ReductionInput([ref], [zero], reduced)
        return add_reduction(self.builder, "reduce", "combiner = add", source, [self.element(ref)])[0]

    def broadcast(self, ref: Ref) -> Ref:
        """Return a scalar broadcast to the dims of the site."""
        return ref._replace(view=tuple(map(spread, self.type.dims or ())))


@dataclass(frozen=True)
class GraphRewrite:
    """A rewrite of operations ``ops``. ``apply`` returns the replacement, or None.

    ``proof`` says why the bits are equal, or bounds the difference of a value-changing rewrite. ``near`` is
    an operation that must be an operand, or an operand of one, for the rewrite to apply.
    """

    name: str
    ops: tuple[str, ...]
    proof: str
    apply: Callable[[RewriteSite], Ref | None]
    near: str = ""


#: Rewrites by root operation, in the order in which they are tried.
Rules = Mapping[str, tuple[GraphRewrite, ...]]


def build_simplified(site: RewriteSite) -> Ref:
    """Return the replacement of the first rewrite that applies, else the node itself."""
    nodes, dims = site.builder.nodes, site.type.dims or ()
    ops = {nodes[ref.node].op for ref in site.operands}
    merge = merge_of(site.builder, dims, site.operands) if "reshape" in ops else None
    if merge is not None:
        split = site._replace(type=ValueType(site.type.element, merge.dims), operands=merge.split)
        return reshape(site.builder, build_simplified(split), dims)
    rewrites = site.rules.get(site.op) if site.rules else None
    if rewrites:
        ops.update([nodes[inner.node].op for ref in site.operands for inner in nodes[ref.node].operands])
        for rewrite in rewrites:
            replacement = rewrite.apply(site) if not rewrite.near or rewrite.near in ops else None
            if replacement is not None:
                return replacement
    return site.builder.elementwise(site.op, site.attributes, site.type.element, site.operands, len(dims))
