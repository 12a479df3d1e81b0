"""The canonical node graph of a spec, as immutable values.

A ``Region`` is a list of nodes over *leaves*: its parameters, then its captures, then the nodes, all
numbered from 0 in that order. The program itself is the region whose parameters are the arguments and
whose captures are the lifted constants. An operand is a ``Ref``: a *view* of one result of a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: A size that is known only at run time.
DYNAMIC = -1

_DYNAMIC_SPREAD = ~(1 << 62)


class ValueType(NamedTuple):
    """A tensor of element type ``element`` and shape ``dims``; ``dims`` is None for a value that is no
    tensor.
    """

    element: str
    dims: tuple[int, ...] | None


#: For each dimension of the view: ``k >= 0`` is axis k of the node's result, ``spread(n) < 0`` a broadcast
#: of size n.
#: Axes of size 1 never appear: they are read at index 0, and a dimension of size 1 is a broadcast of size 1.
View = tuple[int, ...]


class Ref(NamedTuple):
    """A view of result ``result`` of node ``node``."""

    node: int
    result: int
    view: View


class Node(NamedTuple):
    """One operation. ``attributes`` is canonical text; captured values of ``regions`` are the last
    operands.
    """

    op: str
    attributes: str
    operands: tuple[Ref, ...]
    regions: tuple[Region, ...]
    results: tuple[ValueType, ...]


class Region(NamedTuple):
    """A canonical sub-graph: parameters, captures, nodes in topological order, results."""

    params: tuple[ValueType, ...]
    captures: tuple[ValueType, ...]
    nodes: tuple[Node, ...]
    results: tuple[Ref, ...]

    def type_of(self, ref: Ref) -> ValueType:
        """Return the type of the viewed result, before the view."""
        leaf = ref.node
        if leaf < len(self.params):
            return self.params[leaf]
        leaf -= len(self.params)
        if leaf < len(self.captures):
            return self.captures[leaf]
        return self.nodes[leaf - len(self.captures)].results[ref.result]

    def viewed_type(self, ref: Ref) -> ValueType:
        """Return the type of the value that ``ref`` denotes."""
        viewed = self.type_of(ref)
        if viewed.dims is None:
            return viewed
        return ValueType(viewed.element, view_dims(ref.view, viewed.dims))


@dataclass(frozen=True)
class Graph:
    """A whole spec: family (``stablehlo`` or ``linalg``), numerics class and the program as a region."""

    family: str
    numerics: str
    body: Region


def spread(size: int) -> int:
    """Return the view entry for a broadcast of ``size``."""
    return _DYNAMIC_SPREAD if size == DYNAMIC else ~size


def spread_size(entry: int) -> int:
    """Return the size of a broadcast entry."""
    return DYNAMIC if entry == _DYNAMIC_SPREAD else ~entry


def view_dims(view: View, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of a view of a result with sizes ``axes``."""
    return tuple([axes[e] if e >= 0 else spread_size(e) for e in view])


def whole(dims: tuple[int, ...] | None) -> View:
    """Return the view that shows a result as it is."""
    if dims is None:
        return ()
    return tuple(axis if size != 1 else ~1 for axis, size in enumerate(dims))


def compose(outer: View, inner: View) -> View:
    """Return ``outer`` of a value that is itself the view ``inner``."""
    return tuple([inner[e] if e >= 0 else e for e in outer])


def broadcast_in_dim(view: View, dimensions: tuple[int, ...], shape: tuple[int, ...]) -> View:
    """Return the view whose dim ``dimensions[i]`` is dim i of ``view`` and whose other dims are
    broadcasts.
    """
    out = [spread(size) for size in shape]
    for entry, dim in zip(view, dimensions, strict=True):
        if entry >= 0:
            out[dim] = entry
    return tuple(out)


def unit_reshape(view: View, old: tuple[int, ...], new: tuple[int, ...]) -> View | None:
    """Return the view after a reshape that only adds or drops dims of size 1, else None."""
    kept = [(entry, size) for entry, size in zip(view, old, strict=True) if size != 1]
    if [size for _, size in kept] != [size for size in new if size != 1]:
        return None
    entries = iter(kept)
    return tuple(~1 if size == 1 else next(entries)[0] for size in new)
