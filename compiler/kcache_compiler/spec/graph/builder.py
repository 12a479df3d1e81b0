"""Hash-consing construction of canonical nodes.

Equal encodings are one node, so construction performs common-subexpression elimination; only nodes that
results depend on are numbered, so it performs dead-code elimination too. Every node has two digests of its
structure, computed bottom-up: ``digest`` ignores the values of lifted constants, ``tie`` includes them.
Commutative operands are ordered by ``digest``, then by ``tie``, so that weights decide the order only if
nothing else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from kcache_compiler.spec.graph.label import Group, Labeling, label, least_view
from kcache_compiler.spec.graph.nodes import (
    DYNAMIC,
    Node,
    Ref,
    Region,
    ValueType,
    View,
    spread,
    view_dims,
    whole,
)
from kcache_compiler.spec.graph.operations import is_duplicated

#: Commutative operations, also in IEEE arithmetic (which does not specify the payload of a NaN).
COMMUTATIVE = frozenset(
    {"add", "multiply", "maximum", "minimum", "and", "or", "xor", "compare EQ", "compare NE", "chlo.mulhi"}
    | {
        f"arith.{op}"
        for op in ["addf", "addi", "andi", "maximumf", "maxnumf", "maxsi", "maxui", "minimumf", "minnumf"]
    }
    | {f"arith.{op}" for op in ["minsi", "minui", "mulf", "muli", "ori", "xori"]}
)

LEAVES = frozenset({"parameter", "capture", "lifted"})


def _digest(value: object) -> bytes:
    return _text_digest(repr(value))


def _text_digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


@lru_cache(4096)
def _types_text(types: tuple[ValueType, ...]) -> str:
    return repr(types)


class Builder:
    """The nodes of one region under construction."""

    def __init__(self, parent: Builder | None = None) -> None:
        self.parent = parent
        self.nodes: list[Node] = []
        self.digests: list[bytes] = []
        self.ties: list[bytes] = []
        self.groups: list[Group] = []
        self._known: dict[Node, int] = {}
        #: Captured results, in ``parent``, by capture leaf.
        self.captured: dict[int, Ref] = {}

    # -- leaves

    def parameter(self, index: int, type: ValueType) -> Ref:
        """Return parameter ``index``; equal calls return one node."""
        leaf = Node("parameter", str(index), (), (), (type,))
        key = ("parameter", index, type)
        return self._leaf(leaf, _digest(key), _digest(key), ())

    def lifted(self, identity: bytes, type: ValueType) -> Ref:
        """Return the constant whose content has digest ``identity``, as a buffer of the kernel."""
        leaf = Node("lifted", identity.hex(), (), (), (type,))
        return self._leaf(leaf, _digest(("lifted", type)), _digest(("lifted", identity, type)), ())

    def capture(self, outer: Ref) -> Ref:
        """Return a value of the parent builder. Constants, iotas and views of them are duplicated instead of
        captured, as in the program that is rendered from a spec.
        """
        assert self.parent is not None
        node = self.parent.nodes[outer.node]
        if is_duplicated(node, self.parent.nodes.__getitem__):
            operands = tuple([self.capture(ref) for ref in node.operands])
            group = self.parent.groups[outer.node]
            inner = self.node(node.op, node.attributes, operands, (), node.results, group)
            return Ref(inner, 0, outer.view)
        leaf = Node("capture", f"{outer.node}.{outer.result}", (), (), (node.results[outer.result],))
        digest = _digest(("capture", self.parent.digests[outer.node], outer.result))
        tie = _digest(("capture", self.parent.ties[outer.node], outer.result))
        inner_ref = self._leaf(leaf, digest, tie, self.parent.groups[outer.node])
        self.captured[inner_ref.node] = Ref(outer.node, outer.result, whole(node.results[outer.result].dims))
        return Ref(inner_ref.node, 0, outer.view)

    def _leaf(self, leaf: Node, digest: bytes, tie: bytes, group: Group) -> Ref:
        index = self._known.get(leaf)
        if index is None:
            index = self._append(leaf, digest, tie, group)
        return Ref(index, 0, whole(leaf.results[0].dims))

    # -- nodes

    def node(
        self,
        op: str,
        attributes: str,
        operands: tuple[Ref, ...],
        regions: tuple[Region, ...],
        results: tuple[ValueType, ...],
        group: Group = (),
        region_digests: tuple[tuple[bytes, bytes], ...] = (),
    ) -> int:
        """Return the node with this encoding, which is added if there is none."""
        node = Node(op, attributes, operands, regions, results)
        index = self._known.get(node)
        if index is not None:
            return index
        digests, ties = self.digests, self.ties
        uses = [(digests[n], r, v) for n, r, v in operands]
        tied_uses = [(ties[n], r, v) for n, r, v in operands]
        inner, inner_ties = [d for d, _ in region_digests], [t for _, t in region_digests]
        text = f"({op!r}, {attributes!r}, {_types_text(results)}, "
        digest = tie = _text_digest(f"{text}{uses}, {inner})")
        if tied_uses != uses or inner_ties != inner:
            tie = _text_digest(f"{text}{tied_uses}, {inner_ties})")
        return self._append(node, digest, tie, group)

    def _append(self, node: Node, digest: bytes, tie: bytes, group: Group) -> int:
        index = len(self.nodes)
        self.nodes.append(node)
        self.digests.append(digest)
        self.ties.append(tie if tie != digest else digest)
        self.groups.append(group)
        self._known[node] = index
        return index

    def type_of(self, ref: Ref) -> ValueType:
        """Return the type of the viewed result, before the view."""
        return self.nodes[ref.node].results[ref.result]

    def viewed_type(self, ref: Ref) -> ValueType:
        """Return the type of the value that ``ref`` denotes."""
        viewed = self.type_of(ref)
        return viewed if viewed.dims is None else ValueType(viewed.element, view_dims(ref.view, viewed.dims))

    def constant(self, content: str, element: str, axes: tuple[int, ...], shape: tuple[int, ...]) -> Ref:
        """Return a constant: a scalar broadcast to ``shape`` if ``axes`` is empty, else a constant of shape
        ``axes``.
        """
        index = self.node("constant", content, (), (), (ValueType(element, axes),))
        return Ref(index, 0, whole(axes) if axes else tuple(map(spread, shape)))

    def elementwise(self, op: str, attributes: str, element: str, operands: Sequence[Ref], rank: int) -> Ref:
        """Return the elementwise operation ``op`` over an index space of ``rank`` dims, with minimal axes."""
        operands = self.commuted(op, attributes, operands)
        labeling = self._label(operands, frozenset(), self._swappable(op, attributes, operands))
        dims = self.label_sizes(operands, labeling)
        refs = tuple([Ref(n, r, v) for (n, r, _), v in zip(operands, labeling.views, strict=True)])
        index = self.node(op, attributes, refs, (), (ValueType(element, dims),), labeling.group)
        view = list(operands[0].view[:rank])
        for lab, dim in enumerate(labeling.order):
            view[dim] = lab
        return Ref(index, 0, tuple(view))

    def opaque(
        self,
        op: str,
        attributes: str,
        operands: Sequence[Ref],
        results: tuple[ValueType, ...],
        regions: Sequence[FinishedRegion] = (),
    ) -> list[Ref]:
        """Return the results of an opaque node, whose operands keep the order of their dims."""
        uses = [Ref(n, r, least_view(v, self.groups[n])) for n, r, v in operands]
        for region in regions:
            uses.extend(region.captured)
        index = self.node(
            op,
            attributes,
            tuple(uses),
            tuple(r.region for r in regions),
            results,
            (),
            tuple((r.digest, r.tie) for r in regions),
        )
        return [Ref(index, i, whole(t.dims)) for i, t in enumerate(results)]

    # -- labels

    def commuted(self, op: str, attributes: str, operands: Sequence[Ref]) -> Sequence[Ref]:
        """Return the operands in canonical order."""
        if len(operands) != 2 or not self._commutes(op, attributes):
            return operands
        first, second = operands
        return operands if self._order(first) <= self._order(second) else (second, first)

    def _order(self, ref: Ref) -> tuple[bytes, bytes, int]:
        return self.digests[ref.node], self.ties[ref.node], ref.result

    @staticmethod
    def _commutes(op: str, attributes: str) -> bool:
        return op in COMMUTATIVE or (op == "compare" and f"compare {attributes[:2]}" in COMMUTATIVE)

    def _swappable(self, op: str, attributes: str, operands: Sequence[Ref]) -> bool:
        return len(operands) == 2 and operands[0][:2] == operands[1][:2] and self._commutes(op, attributes)

    def _label(self, operands: Sequence[Ref], reduced: frozenset[int], swappable: bool) -> Labeling:
        nodes, groups = self.nodes, self.groups
        return label(
            [(len(nodes[n].results[r].dims or ()), groups[n], v) for n, r, v in operands], reduced, swappable
        )

    def label_sizes(self, operands: Sequence[Ref], labeling: Labeling) -> tuple[int, ...]:
        """Return the size of each labeled dim, a static one if any operand has it."""
        sizes = [DYNAMIC] * len(labeling.order)
        for operand, view in zip(operands, labeling.views, strict=True):
            axes = self.nodes[operand.node].results[operand.result].dims or ()
            for lab, entry in enumerate(view):
                if entry >= 0 and (size := axes[entry]) != DYNAMIC:
                    sizes[lab] = size
        return tuple(sizes)

    def label_reduction(self, operands: Sequence[Ref], reduced: frozenset[int], swappable: bool) -> Labeling:
        """Label the index space of a node that reduces the dims ``reduced``."""
        return self._label(operands, reduced, swappable)

    # -- numbering

    def finish(self, params: tuple[ValueType, ...], results: Sequence[Ref]) -> FinishedRegion:
        """Return the region of ``results``, numbered in an order that depends on structure only."""
        roots = [Ref(n, r, least_view(v, self.groups[n])) for n, r, v in results]
        leaves, order = self._reachable(roots)
        number = {self._known[Node("parameter", str(i), (), (), (t,))]: i for i, t in enumerate(params)}
        for position, leaf in enumerate(leaves):
            number[leaf] = len(params) + position
        for position, index in enumerate(order):
            number[index] = len(params) + len(leaves) + position
        nodes = tuple(self._renumbered(self.nodes[i], number) for i in order)
        region = Region(
            params,
            tuple(self.nodes[leaf].results[0] for leaf in leaves),
            nodes,
            tuple(Ref(number[n], r, v) for n, r, v in roots),
        )
        digest = _digest((params, [(self.digests[n], r, v) for n, r, v in roots]))
        tie = _digest((params, [(self.ties[n], r, v) for n, r, v in roots]))
        return FinishedRegion(
            region,
            tuple(self.captured[leaf] for leaf in leaves if leaf in self.captured),
            digest,
            tie,
            self,
            leaves,
        )

    @staticmethod
    def _renumbered(node: Node, number: dict[int, int]) -> Node:
        operands = tuple([Ref(number[n], r, v) for n, r, v in node.operands])
        return Node(node.op, node.attributes, operands, node.regions, node.results)

    def _reachable(self, roots: Sequence[Ref]) -> tuple[list[int], list[int]]:
        """Return captures and lifted constants by first use, and the other nodes in post-order, without
        recursion.
        """
        leaves: list[int] = []
        order: list[int] = []
        seen: set[int] = set()
        stack = [(ref.node, False) for ref in reversed(roots)]
        nodes = self.nodes
        while stack:
            index, expanded = stack.pop()
            if expanded:
                order.append(index)
                continue
            if index in seen:
                continue
            seen.add(index)
            node = nodes[index]
            if node.op in LEAVES:
                if node.op != "parameter":
                    leaves.append(index)
                continue
            stack.append((index, True))
            stack.extend([(ref.node, False) for ref in reversed(node.operands) if ref.node not in seen])
        return leaves, order


class FinishedRegion:
    """A region, the results of its parent that it captures, in order, and its digests."""

    __slots__ = ("builder", "captured", "digest", "leaves", "region", "tie")

    def __init__(
        self,
        region: Region,
        captured: tuple[Ref, ...],
        digest: bytes,
        tie: bytes,
        builder: Builder,
        leaves: list[int],
    ) -> None:
        self.region = region
        self.captured = captured
        self.digest = digest
        self.tie = tie
        self.builder = builder
        self.leaves = leaves


__all__ = ["COMMUTATIVE", "Builder", "FinishedRegion", "View"]
