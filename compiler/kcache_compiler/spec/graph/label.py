"""Canonical labels of a node's index space.

The dims of an elementwise (or reducing) node have no order of their own: they are labelled by first
appearance in the operands (those that cover most dims first), each operand's axes in the operand node's own
order. Where an operand
node has automorphisms (permutations of its axes that leave its value unchanged, ``x + x.T``), or two
operands may be swapped, several labellings are possible: the one with the least encoding is taken, and
the labellings that tie are the automorphisms of the new node.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.spec.graph.nodes import View

#: Permutations of a node's axes other than the identity.
Group = tuple[tuple[int, ...], ...]

#: Groups are kept up to this size, for at most this rank: beyond, equal graphs may get two keys, never
#: different graphs one.
MAX_GROUP = 48
MAX_RANK = 6

#: (rank of the operand's result, its group, its view over the dims of the index space)
Operand = tuple[int, Group, View]


class Labelling:
    """``order[label]`` is the dim of each label; ``views[i]`` is operand i over the labels; ``group``
    permutes the labels.
    """

    __slots__ = ("group", "order", "views")

    def __init__(self, order: tuple[int, ...], views: tuple[View, ...], group: Group) -> None:
        self.order = order
        self.views = views
        self.group = group


def label(
    operands: Sequence[Operand], reduced: frozenset[int] = frozenset(), swappable: bool = False
) -> Labelling:
    """Label the dims that some operand covers; ``reduced`` dims are told apart in the encoding.

    ``swappable``: the first two operands are the same result of one node and may change places.
    """
    groups = [group for _, group, _ in operands]
    if not any(groups) and (not swappable or operands[0][2] == operands[1][2]):
        return _only_labelling(operands)
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
) -> Labelling:
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
    return Labelling(order, _views_of(code, best[order]), tuple(sorted(group)))


def _views_of(code: tuple[View, ...], written: tuple[View, ...]) -> tuple[View, ...]:
    """Rebuild operand views over the labels from the least encoding; broadcast sizes come from
    ``written``.
    """
    views: list[View] = []
    for labels, view in zip(code, written, strict=True):
        axis_at = {lab >> 1: axis for axis, lab in enumerate(labels) if lab >= 0}
        views.append(tuple(axis_at.get(lab, entry if entry < 0 else ~0) for lab, entry in enumerate(view)))
    return tuple(views)


def _only_labelling(operands: Sequence[Operand]) -> Labelling:
    """The only labelling there is when nothing may be permuted."""
    rank, _, first = operands[0]
    if rank == len(first) and first == tuple(range(rank)):  # it is visited first, and labels all dims
        return Labelling(first, tuple([view for _, _, view in operands]), ())
    labels: dict[int, int] = {}
    for rank, _, view in sorted(operands, key=lambda operand: -_covered(operand[2])):
        _operand_code(rank, view, labels, frozenset())
    order = tuple(labels)
    return Labelling(order, tuple([tuple([view[dim] for dim in order]) for _, _, view in operands]), ())


def _covered(view: View) -> int:
    """Return how many dims a view is not a broadcast along."""
    return sum([entry >= 0 for entry in view])


def _operand_code(rank: int, view: View, labels: dict[int, int], reduced: frozenset[int]) -> View:
    """Encode one operand, giving new labels to the dims it meets first. Even: kept dims; odd: reduced; -1:
    not viewed.
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
    """All labellings with the least encoding, operand by operand, as (order of dims, code)."""
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
                here = _operand_code(rank, image, labels, reduced)
                if least is None or here < least:
                    least, following = here, {}
                if here == least and len(following) < MAX_GROUP * MAX_RANK:
                    following[tuple(labels)] = None
        assert least is not None
        code[i] = least
        states = following
    return [(order, tuple(code)) for order in states]


def permuted(view: View, permutation: tuple[int, ...]) -> View:
    """Apply an automorphism of the viewed node to a view of it."""
    return tuple(permutation[e] if e >= 0 else e for e in view)


def least_view(view: View, group: Group) -> View:
    """Return the least of the views that denote the same value."""
    if not group:
        return view
    return min(view, min(permuted(view, g) for g in group))
