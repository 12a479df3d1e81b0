"""Layout assignment: the order of the axes of each node in a rendered module.

In a spec, the axes of a node are labels without an order. A module needs one, and a bad one costs transposes.
Results and opaque operations require an order, which elementwise nodes propagate to their operands; a node
without a required order follows its operands. A contraction without a required order puts axes last that are
reduced next, so that softmax reads rows. The result is equivalent, but not canonical.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kcache_compiler.spec.graph.nodes import Node, Ref, Region, ValueType, View
from kcache_compiler.spec.graph.operations import is_elementwise, is_structured
from kcache_compiler.spec.graph.reshape import read_groups
from kcache_compiler.spec.rendering.contraction import as_contraction, read_ints

#: The old axis of each new one.
_Order = tuple[int, ...]


def arrange(region: Region) -> Region:
    """Return the region with axes of its nodes in memory order; nested regions are kept."""
    return _Arrangement(region).run()


class _Arrangement:
    """Chooses the order of the axes of each node of a region, from its consumers and operands."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.base = len(region.params) + len(region.captures)
        self.required: list[_Order | None] = [None] * len(region.nodes)
        self.contractions = [_is_contraction(node, region) for node in region.nodes]
        #: Axes that are reduced later, and are best last.
        self.reduced_later: list[frozenset[int]] = [frozenset()] * len(region.nodes)
        #: New axis by old axis, of each node.
        self.position: list[dict[int, int] | None] = [None] * len(region.nodes)

    def run(self) -> Region:
        for ref in self.region.results:
            self._require(ref, ref.view)
        for index in range(len(self.region.nodes) - 1, -1, -1):
            self._propagate(index)
        nodes: list[Node] = []
        for index, node in enumerate(self.region.nodes):
            nodes.append(self._with_order(index, node))
        results = tuple(self._reordered(ref) for ref in self.region.results)
        return self.region._replace(nodes=tuple(nodes), results=results)

    # -- required orders, from results to arguments

    def _require(self, ref: Ref, order: Sequence[int]) -> None:
        index = ref.node - self.base
        if index >= 0 and self.required[index] is None:
            self.required[index] = tuple(e for e in order if e >= 0)

    def _propagate(self, index: int) -> None:
        node, required = self.region.nodes[index], self.required[index]
        if self.contractions[index]:
            return
        if is_structured(node):
            reduced = read_ints(node.attributes.rpartition("dimensions = ")[2])
            self._prefer_last(node.operands[0], reduced)
            return
        if node.op == "reshape" and node.attributes:
            if required is not None:
                items = _reshape_items(node, required)
                self._require(node.operands[0], [e for ins, _ in items for e in ins])
        elif is_elementwise(node):
            for ref in node.operands:
                if required is not None:
                    self._require(ref, [ref.view[lab] for lab in required])
                self._prefer_last(ref, self.reduced_later[index])
        else:
            for ref in node.operands:
                self._require(ref, ref.view)

    def _prefer_last(self, ref: Ref, labels: Iterable[int]) -> None:
        index = ref.node - self.base
        if index >= 0 and not self.reduced_later[index]:
            self.reduced_later[index] = frozenset(ref.view[lab] for lab in labels if ref.view[lab] >= 0)

    # -- orders, from arguments to results

    def _reordered(self, ref: Ref) -> Ref:
        index = ref.node - self.base
        position = self.position[index] if index >= 0 else None
        return (
            ref
            if position is None
            else ref._replace(view=tuple(position[e] if e >= 0 else e for e in ref.view))
        )

    def _with_order(self, index: int, node: Node) -> Node:
        node = node._replace(operands=tuple(self._reordered(ref) for ref in node.operands))
        if is_structured(node):
            return self._reduction(index, node)
        if node.op == "reshape" and node.attributes:
            return self._reshape(index, node)
        if not is_elementwise(node) or not node.results[0].dims:
            return node
        order = self.required[index] or _operand_order(node.operands, range(len(node.results[0].dims)))
        self._set_order(index, order)
        operands = tuple(ref._replace(view=tuple(ref.view[lab] for lab in order)) for ref in node.operands)
        return node._replace(operands=operands, results=(_permuted(node.results[0], order),))

    def _set_order(self, index: int, order: _Order) -> None:
        self.position[index] = {old: new for new, old in enumerate(order)}

    def _reduction(self, index: int, node: Node) -> Node:
        """Return a reduction with its axes in the chosen order, reduced axes last."""
        head, _, dims = node.attributes.rpartition("dimensions = ")
        reduced = read_ints(dims)
        inputs = [ref for ref in node.operands if len(ref.view) == len(node.operands[0].view)]
        labels = range(len(node.operands[0].view))
        kept = [lab for lab in labels if lab not in reduced]
        if node.regions:
            order = _with_order(_operand_order(inputs[:1], labels), reduced)
        elif not self.contractions[index]:
            order = _operand_order(inputs[:1], labels)
        elif self.required[index] is not None:
            order = (*(kept[axis] for axis in self.required[index] or ()), *reduced)
        else:
            last = {kept[axis] for axis in self.reduced_later[index]}
            order = (*_contracted_order(self._factors(node), kept, last), *reduced)
        axis_of = {lab: axis for axis, lab in enumerate(kept)}
        kept_order = tuple(axis_of[lab] for lab in order if lab in axis_of)
        self._set_order(index, kept_order)
        moved = {lab: new for new, lab in enumerate(order)}
        text = f"{head}dimensions = [{', '.join(str(d) for d in sorted(moved[lab] for lab in reduced))}]"
        operands = tuple(
            ref._replace(view=tuple(ref.view[lab] for lab in order)) if len(ref.view) == len(order) else ref
            for ref in node.operands
        )
        results = tuple(_permuted(type, kept_order) for type in node.results)
        return node._replace(attributes=text, operands=operands, results=results)

    def _factors(self, node: Node) -> tuple[View, ...]:
        """The axes of each factor over the node's labels, in their new order."""
        if node.op == "dot_general":
            return self._activation_first([ref.view for ref in node.operands[:2]], node.operands[:2])
        product = self.region.nodes[node.operands[0].node - self.base]
        positions = self.position[node.operands[0].node - self.base] or {}
        old = {new: axis for axis, new in positions.items()}
        views: list[View] = []
        for ref in product.operands:
            moved = self._reordered(ref)
            views.append(tuple(moved.view[old.get(e, e)] if e >= 0 else e for e in node.operands[0].view))
        return self._activation_first(views, product.operands)

    def _activation_first(self, views: list[View], refs: Sequence[Ref]) -> tuple[View, ...]:
        """The factors, first the one with more axes, else a computed one, else the earlier argument, so that
        rows of ``x @ w`` are rows of ``x``.
        """
        ranks = [sum(e >= 0 for e in view) for view in views]
        leaves = [ref.node if ref.node < self.base else -1 for ref in refs]
        return tuple(views[i] for i in sorted(range(2), key=lambda i: (-ranks[i], leaves[i])))

    def _reshape(self, index: int, node: Node) -> Node:
        size = len(node.results[0].dims or ())
        items = _reshape_items(node, self.required[index])
        if self.required[index] is None:
            items.sort(key=lambda item: min(e for e in item[0] if e >= 0))
        order = tuple(axis for _, outs in items for axis in outs)
        assert len(order) == size
        self._set_order(index, order)
        view = tuple(e for ins, _ in items for e in ins)
        use = node.operands[0]._replace(view=view)
        return node._replace(attributes="", operands=(use,), results=(_permuted(node.results[0], order),))


def _is_contraction(node: Node, region: Region) -> bool:
    return is_structured(node) and (node.op == "dot_general" or as_contraction(node, region) is not None)


def _permuted(type: ValueType, order: _Order) -> ValueType:
    dims = type.dims or ()
    return ValueType(type.element, tuple(dims[axis] for axis in order))


def _operand_order(operands: Sequence[Ref], labels: range) -> _Order:
    """Labels in the order of the operand that covers most of them, then of the next one."""
    order: dict[int, None] = {}
    for ref in sorted(operands, key=lambda ref: -sum(e >= 0 for e in ref.view)):
        order.update(
            dict.fromkeys(
                sorted((lab for lab in labels if ref.view[lab] >= 0), key=lambda lab: ref.view[lab])
            )
        )
    order.update(dict.fromkeys(labels))
    return tuple(order)


def _with_order(order: _Order, reduced: Sequence[int]) -> _Order:
    """``order`` with the reduced labels, at their positions, in the order of ``reduced``."""
    following = iter(reduced)
    return tuple(next(following) if lab in reduced else lab for lab in order)


def _contracted_order(factors: Sequence[View], kept: Sequence[int], last: set[int]) -> list[int]:
    """The kept labels in the order of ``dot_general``: batch, then free axes of both factors, with ``last``
    at the end if possible.
    """
    first, second = factors
    both = sorted((lab for lab in kept if first[lab] >= 0 and second[lab] >= 0), key=lambda lab: first[lab])
    left = sorted((lab for lab in kept if first[lab] >= 0 > second[lab]), key=lambda lab: first[lab])
    right = sorted((lab for lab in kept if second[lab] >= 0 > first[lab]), key=lambda lab: second[lab])
    if right and left and right[-1] not in last and left[-1] in last:
        left, right = right, left
    return [*both, *left, *right, *(lab for lab in kept if first[lab] < 0 and second[lab] < 0)]


def _reshape_items(node: Node, required: _Order | None) -> list[tuple[list[int], list[int]]]:
    """(View entries, result axes) of each passed axis and each group, which are reordered as one."""
    groups = read_groups(node.attributes)
    view = node.operands[0].view
    passed = len(view) - sum(count for count, _ in groups)
    items = [([view[axis]], [axis]) for axis in range(passed)]
    into, out = passed, passed
    for count, sizes in groups:
        items.append((list(view[into : into + count]), list(range(out, out + len(sizes)))))
        into, out = into + count, out + len(sizes)
    if required is not None:
        rank = {axis: i for i, axis in enumerate(required)}
        items.sort(key=lambda item: rank[item[1][0]])
    return items
