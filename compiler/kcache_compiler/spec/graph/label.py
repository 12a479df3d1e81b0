"""Canonical labels of a node's index space.

The dims of an elementwise or reducing node have no order of their own. They are labeled by first appearance
in the operands, those that cover most dims first, each operand's axes in the order of its node. If an operand
node has automorphisms (permutations of its axes that keep its value, as of ``x + x.T``), or two operands may
be swapped, several labelings are possible: the one with the least encoding is chosen, and labelings with
the same encoding give the automorphisms of the new node.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.spec.graph.nodes import View

#: Permutations of a node's axes other than the identity.
Group = tuple[tuple[int, ...], ...]

#: Largest size and rank of groups that are stored. Beyond, equal graphs may get two keys, but different
#: graphs never get one.
MAX_GROUP = 48
MAX_RANK = 6

#: (rank of the operand's result, its group, its view over the dims of the index space)
Operand = tuple[int, Group, View]


class Labeling:
    """``order[label]`` is the dim of each label; ``views[i]`` is operand i over the labels; ``group`` are
    permutations of labels.
    """

    __slots__ = ("group", "order", "views")

    def __init__(self, order: tuple[int, ...], views: tuple[View, ...], group: Group) -> None:
        self.order = order
        self.views = views
        self.group = group


def label(
    operands: Sequence[Operand], reduced: frozenset[int] = frozenset(), swappable: bool = False
) -> Labeling:
    """Return the labels of the dims that operands cover; the encoding distinguishes ``reduced`` dims.

    ``swappable``: the first two operands are one result of one node, and commute.
    """
    groups = [group for _, group, _ in operands]
    if not any(groups) and (not swappable or operands[0][2] == operands[1][2]):
        return _only_labeling(operands)
    visit = sorted(range(len(operands)), key=lambda i: -_covered(operands[i][2]))
    orders = [tuple(operands)]
    if swappable and operands[0][2] != operands[1][2]:
        orders.append((operands[1], operands[0], *operands[2:]))
    best: dict[tuple[int, ...], tuple[View, ...]] = {}
    least: tuple[View, ...] | None = None
    for candidate in orders:
        for order, code in _states(candidate, visit, reduced):
            if least is None or code < least:
                least, best = code, {}
            if code == least:
                best.setdefault(order, tuple(tuple(v[d] for d in order) for _, _, v in candidate))
    assert least is not None
    return _choose(best, least, operands)


def _choose(
    best: dict[tuple[int, ...], tuple[View, ...]], code: tuple[View, ...], operands: Sequence[Operand]
) -> Labeling:
    order = min(best)
    group: list[tuple[int, ...]] = []
    if 1 < len(order) <= MAX_RANK and len(best) <= MAX_GROUP:
        position = {dim: lab for lab, dim in enumerate(order)}
        for other in best:
            if other != order:
                permutation = [0] * len(order)
                for lab, dim in enumerate(other):
                    permutation[position[dim]] = lab
                group.append(tuple(permutation))
    return Labeling(order, _views_of(code, best[order]), tuple(sorted(group)))


def _views_of(code: tuple[View, ...], views: tuple[View, ...]) -> tuple[View, ...]:
    """Operand views over the labels, of the least encoding; broadcast sizes are those of ``views``."""
    rebuilt: list[View] = []
    for labels, view in zip(code, views, strict=True):
        axis_at = {lab >> 1: axis for axis, lab in enumerate(labels) if lab >= 0}
        rebuilt.append(tuple(axis_at.get(lab, entry if entry < 0 else ~0) for lab, entry in enumerate(view)))
    return tuple(rebuilt)


def _only_labeling(operands: Sequence[Operand]) -> Labeling:
    """The only labeling of operands without automorphisms."""
    rank, _, first = operands[0]
    if rank == len(first) and first == tuple(range(rank)):  # the first operand covers all dims
        return Labeling(first, tuple([view for _, _, view in operands]), ())
    labels: dict[int, int] = {}
    for rank, _, view in sorted(operands, key=lambda operand: -_covered(operand[2])):
        _operand_code(rank, view, labels, frozenset())
    order = tuple(labels)
    return Labeling(order, tuple([tuple([view[dim] for dim in order]) for _, _, view in operands]), ())


def _covered(view: View) -> int:
    """The number of dims that a view does not broadcast."""
    return sum([entry >= 0 for entry in view])


def _operand_code(rank: int, view: View, labels: dict[int, int], reduced: frozenset[int]) -> View:
    """The encoding of one operand, with new labels for dims without one. Even: kept dims; odd: reduced dims;
    -1: axes that are not viewed.
    """
    dim_of = [-1] * rank
    for dim, axis in enumerate(view):
        if axis >= 0:
            dim_of[axis] = dim
    code: list[int] = []
    for dim in dim_of:
        if dim < 0:
            code.append(-1)
            continue
        lab = labels.setdefault(dim, len(labels))
        code.append(2 * lab + (dim in reduced))
    return tuple(code)


def _states(
    operands: Sequence[Operand], visit: Sequence[int], reduced: frozenset[int]
) -> list[tuple[tuple[int, ...], tuple[View, ...]]]:
    """All labelings with the least encoding, operand by operand, as (order of dims, code)."""
    states: dict[tuple[int, ...], None] = {(): None}
    code: list[View] = [()] * len(operands)
    for i in visit:
        rank, group, view = operands[i]
        images = [view, *(permuted(view, g) for g in group)]
        least: View | None = None
        following: dict[tuple[int, ...], None] = {}
        for order in states:
            for image in images:
                labels = {dim: lab for lab, dim in enumerate(order)}
                encoding = _operand_code(rank, image, labels, reduced)
                if least is None or encoding < least:
                    least, following = encoding, {}
                if encoding == least and len(following) < MAX_GROUP * MAX_RANK:
                    following[tuple(labels)] = None
        assert least is not None
        code[i] = least
        states = following
    return [(order, tuple(code)) for order in states]


def permuted(view: View, permutation: tuple[int, ...]) -> View:
    """Return a view of a node after an automorphism of the node."""
    return tuple(permutation[e] if e >= 0 else e for e in view)


def least_view(view: View, group: Group) -> View:
    """Return the least of the views that denote the same value."""
    if not group:
        return view
    return min(view, min(permuted(view, g) for g in group))
