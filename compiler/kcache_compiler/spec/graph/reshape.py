"""Reshapes as independent groups of dims.

``(B, T, 3C) -> (B, T, 3, C)`` splits one dim: its node splits that axis and passes the others through, so
that transposes and broadcasts of the others commute with it. A group is a run of dims with the same number of
elements before and after. A reshape of a reshape is one reshape, if every group of the second consists of
whole groups of the first.

A *view entry* says what a dimension of a view is: an axis of the viewed result, or a broadcast, which
``spread`` encodes (``nodes.View``). An *automorphism* of a node permutes the axes of its result and keeps
its value, as a transpose does of ``x + x.T`` (``label.py``). Of reshapes that are equal by automorphisms of
their operand, the one with the smallest encoding is added, so that they are one node.

An operation on axes that a reshape merged is computed on the axes before the merge. ``view(B*T, C) @ W``, and
``bmm`` of merged batch and head axes, compute the same values without the merge, which moves to the result,
where a split cancels it. This is exact, as only indices change. A reduction of a merged axis reduces all of
its parts: StableHLO leaves the order of a reduction to the implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.shapes.monomial import is_symbolic, product, quotient, read_size, size_text
from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.nodes import Ref, ValueType, spread, spread_size

#: (view entry, size) of each input dim; (size, dim of the result) of each output dim.
_Ins = list[tuple[int, int]]
_Outs = list[tuple[int, int]]
_Group = tuple[_Ins, _Outs]


def reshape(builder: Builder, ref: Ref, new: tuple[int, ...]) -> Ref:
    """Return ``ref`` reshaped to ``new``; sizes are static or symbolic, and of equal product."""
    old = builder.viewed_type(ref).dims or ()
    if 0 in old or None in (product(old), product(new)):
        return builder.opaque("reshape", "", [ref], (ValueType(builder.type_of(ref).element, new),))[0]
    ins = [(entry, size) for entry, size in zip(ref.view, old, strict=True) if size != 1]
    outs = [(size, dim) for dim, size in enumerate(new) if size != 1]
    template = [spread(1)] * len(new)
    groups = _place_views(_split(ins, outs), template)
    node, result = ref.node, ref.result
    while groups:
        composed = _compose(builder, node, template, groups)
        if composed is None:
            return _add(builder, Ref(node, result, ()), template, groups)
        (node, result), groups = composed
    return Ref(node, result, tuple(template))


def _split(ins: _Ins, outs: _Outs) -> list[_Group]:
    """Split both lists into the smallest groups with equal products of sizes."""
    groups: list[_Group] = []
    i = j = 0
    while i < len(ins):
        group: _Group = ([ins[i]], [outs[j]])
        left, right = ins[i][1], outs[j][0]
        while left != right:
            too_small, too_large = quotient(right, left) is not None, quotient(left, right) is not None
            if too_small or not too_large:
                i += 1
                group[0].append(ins[i])
                left = _multiply(left, ins[i][1])
            if too_large or not too_small:
                j += 1
                group[1].append(outs[j])
                right = _multiply(right, outs[j][0])
        groups.append(group)
        i, j = i + 1, j + 1
    return groups


def _multiply(a: int, b: int) -> int:
    if not is_symbolic(a) and not is_symbolic(b):
        return a * b
    result = product((a, b))
    assert result is not None
    return result


def _place_views(groups: list[_Group], template: list[int]) -> list[_Group]:
    """Write groups that are views into ``template``; return the others."""
    others: list[_Group] = []
    for ins, outs in groups:
        if len(ins) == 1 and len(outs) == 1:
            template[outs[0][1]] = ins[0][0]
        elif all(entry < 0 for entry, _ in ins):
            for size, dim in outs:
                template[dim] = spread(size)
        else:
            others.append((ins, outs))
    return others


def _compose(
    builder: Builder, node: int, template: list[int], groups: list[_Group]
) -> tuple[tuple[int, int], list[_Group]] | None:
    """Return groups over a reshape node as groups over its operand; None if a group contains a part of a
    group.

    ``template`` is changed in place on success only.
    """
    inner = builder.nodes[node]
    if inner.op != "reshape" or not inner.attributes:
        return None
    (source,) = inner.operands
    axes = builder.type_of(source).dims or ()
    passes, inner_groups = _read(inner.attributes, source.view, axes)
    positions = _passed_axes(template, groups)
    owner = {axis: g for g, (_, out_axes) in enumerate(inner_groups) for axis in out_axes}
    composed: list[_Group] = []
    used: set[int] = set()
    for ins, outs in groups:
        entries = [entry for entry, _ in ins]
        touched = {owner[e] for e in entries if e in owner}
        if not touched:
            composed.append(([(passes[e] if e >= 0 else e, size) for e, size in ins], outs))
        elif len(touched) == 1 and entries == inner_groups[min(touched)][1]:
            composed.extend(_split(inner_groups[min(touched)][0], outs))
            used |= touched
        else:
            return None
    sizes = inner.results[0].dims or ()
    for g, (inner_ins, out_axes) in enumerate(inner_groups):
        if g in used:
            continue
        if any(axis not in positions for axis in out_axes):
            return None
        composed.append((inner_ins, [(sizes[axis], positions[axis]) for axis in out_axes]))
    for dim, entry in enumerate(template):
        if entry >= 0:
            template[dim] = passes.get(entry, spread(1))
    return (source.node, source.result), _place_views(composed, template)


def _passed_axes(template: list[int], groups: list[_Group]) -> dict[int, int]:
    """The dim of the result of each axis that passes through unchanged."""
    filled = {dim for _, outs in groups for _, dim in outs}
    return {entry: dim for dim, entry in enumerate(template) if entry >= 0 and dim not in filled}


def _add(builder: Builder, source: Ref, template: list[int], groups: list[_Group]) -> Ref:
    """Add a reshape of ``source``: the smallest encoding of those that its automorphisms make equal."""
    axes = builder.type_of(source).dims or ()
    passing = _passed_axes(template, groups)
    best: tuple[object, tuple[int, ...], list[_Group]] | None = None
    for g in (tuple(range(len(axes))), *builder.groups[source.node]):
        passes = tuple(sorted(g[a] for a in passing))
        image = [([(g[e] if e >= 0 else e, s) for e, s in ins], outs) for ins, outs in groups]
        image.sort(key=lambda group: min(e for e, _ in group[0] if e >= 0))
        code = (passes, [(ins, [s for s, _ in outs]) for ins, outs in image])
        if best is None or code < best[0]:  # pyright: ignore[reportOperatorIssue]
            best = (code, tuple(sorted(passing, key=lambda a: g[a])), image)
    assert best is not None
    _, pass_order, image = best
    view = (*best[0][0], *(e for ins, _ in image for e, _ in ins))  # pyright: ignore
    outs = [out for _, outs in image for out in outs]
    sizes = (*(axes[a] for a in pass_order), *(size for size, _ in outs))
    text = ", ".join(
        f"{len(ins)} > {' x '.join(size_text(s) for s, _ in group_outs)}" for ins, group_outs in image
    )
    use = Ref(source.node, source.result, view)
    index = builder.node(
        "reshape", f"groups = [{text}]", (use,), (), (ValueType(builder.type_of(source).element, sizes),)
    )
    result = list(template)
    for position, axis in enumerate(pass_order):
        result[passing[axis]] = position
    for position, (_, dim) in enumerate(outs):
        result[dim] = len(pass_order) + position
    return Ref(index, 0, tuple(result))


def read_groups(attributes: str) -> list[tuple[int, list[int]]]:
    """Return (number of input dims, output sizes) of each group of a reshape node's attributes."""
    body = attributes.removeprefix("groups = [").removesuffix("]")
    groups: list[tuple[int, list[int]]] = []
    for text in body.split(", "):
        count, _, sizes = text.partition(" > ")
        groups.append((int(count), [read_size(size) for size in sizes.split(" x ")]))
    return groups


def _read(
    attributes: str, view: Sequence[int], axes: tuple[int, ...]
) -> tuple[dict[int, int], list[tuple[_Ins, list[int]]]]:
    """The view entry of each passed result axis, and the inputs and result axes of each group."""
    groups = read_groups(attributes)
    passed = len(view) - sum(count for count, _ in groups)
    passes = dict(enumerate(view[:passed]))
    inner: list[tuple[_Ins, list[int]]] = []
    into, out = passed, passed
    for count, sizes in groups:
        ins = [(e, axes[e] if e >= 0 else ~e) for e in view[into : into + count]]
        inner.append((ins, list(range(out, out + len(sizes)))))
        into, out = into + count, out + len(sizes)
    return passes, inner


def reshape_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of dims with equal products, in order; dims of size 1 are left out.

    ``old`` and ``new`` are sizes of equal product. Where one is 0, ``only_ones_differ`` must hold.
    """
    ins = [d for d, size in enumerate(old) if size != 1]
    outs = [d for d, size in enumerate(new) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(ins):
        group = ([ins[i]], [outs[j]])
        left, right = old[ins[i]], new[outs[j]]
        while left != right:
            if left < right:
                i += 1
                group[0].append(ins[i])
                left *= old[ins[i]]
            else:
                j += 1
                group[1].append(outs[j])
                right *= new[outs[j]]
        groups.append(group)
        i, j = i + 1, j + 1
    return groups


def only_ones_differ(old: Sequence[int], new: Sequence[int]) -> bool:
    """Return whether two lists of sizes are equal except for sizes 1."""
    return [size for size in old if size != 1] == [size for size in new if size != 1]


@dataclass(frozen=True)
class Merge:
    """Dim ``dim`` of an index space is the product of ``parts``; ``split`` are the operands over ``dims``,
    the space with the dim split.
    """

    dim: int
    parts: tuple[int, ...]
    dims: tuple[int, ...]
    split: tuple[Ref, ...]


def merge_of(builder: Builder, dims: Sequence[int], operands: Sequence[Ref]) -> Merge | None:
    """Return the first dim that all operands that vary along it merged from the same parts."""
    if not any(builder.nodes[ref.node].op == "reshape" for ref in operands) or min(dims, default=0) <= 0:
        return None
    for dim in range(len(dims)):
        parts = {_parts(builder, ref, ref.view[dim]) for ref in operands if ref.view[dim] >= 0}
        if len(parts) != 1:
            continue
        (sizes,) = parts
        if sizes:
            split = (*dims[:dim], *sizes, *dims[dim + 1 :])
            return Merge(dim, sizes, split, tuple(reshape(builder, ref, split) for ref in operands))
    return None


def _parts(builder: Builder, ref: Ref, axis: int) -> tuple[int, ...]:
    """The sizes that an axis of a node was merged from; empty if it was not merged."""
    node = builder.nodes[ref.node]
    if node.op != "reshape" or not node.attributes:
        return ()
    (source,) = node.operands
    axes = builder.type_of(source).dims or ()
    groups = read_groups(node.attributes)
    into = out = len(source.view) - sum(count for count, _ in groups)
    for count, sizes in groups:
        if out == axis and len(sizes) == 1:
            entries = source.view[into : into + count]
            return tuple(axes[entry] if entry >= 0 else spread_size(entry) for entry in entries)
        into, out = into + count, out + len(sizes)
    return ()


def split_reduced_dims(merge: Merge, reduced: frozenset[int]) -> frozenset[int]:
    """Return the reduced dims of the space with the merged dim split."""
    added = len(merge.parts) - 1
    shifted = {dim + added if dim > merge.dim else dim for dim in reduced}
    return frozenset(
        shifted | (set(range(merge.dim, merge.dim + added + 1)) if merge.dim in reduced else set())
    )
