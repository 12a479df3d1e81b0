"""Hash-consing construction of canonical nodes.

Equal encodings are one node, so building *is* common-subexpression elimination; what no result needs is
never numbered, so it is dead-code elimination too. Every node has two digests made bottom-up from
structure alone: ``digest`` does not see the values of lifted constants, ``tie`` does. Commutative operands
are ordered by the first, and by the second where the first is equal, so that the order depends on weights
only where nothing else tells operands apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from kcache_compiler.spec.graph.label import Group, Labelling, label, least_view
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
from kcache_compiler.spec.graph.operations import is_written_again

#: Operations whose operands may change places: exact in IEEE arithmetic too (which NaN a result is, is not
#: specified).
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
        #: capture leaf -> the captured result, whole, in ``parent``
        self.captured: dict[int, Ref] = {}
        #: (function, operands) of a call inlined here -> its results
        self.calls: dict[tuple[str, tuple[Ref, ...]], Sequence[Ref]] = {}

    # -- leaves

    def parameter(self, index: int, type: ValueType) -> Ref:
        """Return parameter ``index``; the same one each time."""
        leaf = Node("parameter", str(index), (), (), (type,))
        key = ("parameter", index, type)
        return self._leaf(leaf, _digest(key), _digest(key), ())

    def lifted(self, identity: bytes, type: ValueType) -> Ref:
        """Return the constant whose content has digest ``identity``, as a buffer of the kernel."""
        leaf = Node("lifted", identity.hex(), (), (), (type,))
        return self._leaf(leaf, _digest(("lifted", type)), _digest(("lifted", identity, type)), ())

    def capture(self, outer: Ref) -> Ref:
        """Return a value of the parent's, inside. Constants, iotas and views of these are not captured but
        written again: the program that a spec is written out as has them inside, too.
        """
        assert self.parent is not None
        node = self.parent.nodes[outer.node]
        if is_written_again(node, self.parent.nodes.__getitem__):
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
        """Return the node with this exact encoding, made if there is none."""
        node = Node(op, attributes, operands, regions, results)
        index = self._known.get(node)
        if index is not None:
            return index
        digests, ties = self.digests, self.ties
        uses = [(digests[n], r, v) for n, r, v in operands]
        tied = [(ties[n], r, v) for n, r, v in operands]
        inside, inside_tied = [d for d, _ in region_digests], [t for _, t in region_digests]
        text = f"({op!r}, {attributes!r}, {_types_text(results)}, "
        digest = tie = _text_digest(f"{text}{uses}, {inside})")
        if tied != uses or inside_tied != inside:
            tie = _text_digest(f"{text}{tied}, {inside_tied})")
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
        """Return a constant: a scalar shown as ``shape`` when ``axes`` is empty, else one with exactly
        these axes.
        """
        index = self.node("constant", content, (), (), (ValueType(element, axes),))
        return Ref(index, 0, whole(axes) if axes else tuple(map(spread, shape)))

    def elementwise(self, op: str, attributes: str, element: str, operands: Sequence[Ref], rank: int) -> Ref:
        """Return the value of ``op`` applied at every index of a space of ``rank`` dims, over its minimal
        axes.
        """
        operands = self.commuted(op, attributes, operands)
        found = self._label(operands, frozenset(), self._swappable(op, attributes, operands))
        dims = self.label_sizes(operands, found)
        refs = tuple([Ref(n, r, v) for (n, r, _), v in zip(operands, found.views, strict=True)])
        index = self.node(op, attributes, refs, (), (ValueType(element, dims),), found.group)
        view = list(operands[0].view[:rank])
        for lab, dim in enumerate(found.order):
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
        """Return the results of a node that reads its operands whole, dims in their own order."""
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

    def _label(self, operands: Sequence[Ref], reduced: frozenset[int], swappable: bool) -> Labelling:
        nodes, groups = self.nodes, self.groups
        return label(
            [(len(nodes[n].results[r].dims or ()), groups[n], v) for n, r, v in operands], reduced, swappable
        )

    def label_sizes(self, operands: Sequence[Ref], found: Labelling) -> tuple[int, ...]:
        """Return the size of each labelled dim: a static one where any operand has it."""
        sizes = [DYNAMIC] * len(found.order)
        for operand, view in zip(operands, found.views, strict=True):
            axes = self.nodes[operand.node].results[operand.result].dims or ()
            for lab, entry in enumerate(view):
                if entry >= 0 and (size := axes[entry]) != DYNAMIC:
                    sizes[lab] = size
        return tuple(sizes)

    def label_reduction(self, operands: Sequence[Ref], reduced: frozenset[int], swappable: bool) -> Labelling:
        """Label the index space of a node that reduces over the dims ``reduced``."""
        return self._label(operands, reduced, swappable)

    # -- the end

    def finish(self, params: tuple[ValueType, ...], results: Sequence[Ref]) -> FinishedRegion:
        """Number what ``results`` need, in one order that depends on structure only."""
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
        """Return captures and lifted constants by first use, and the other nodes in post-order. Does not
        recurse.
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
    """A region, what it captures of its parent (whole results, in order), and its digests."""

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
