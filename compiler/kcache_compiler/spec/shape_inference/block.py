"""A region that shape inference is building."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kcache_compiler.shapes.arithmetic import MAX_ELEMENTS, Elements
from kcache_compiler.shapes.monomial import evaluate, is_symbolic
from kcache_compiler.spec.graph.nodes import Node, Ref, ValueType, view_dims, whole

#: A result of a node: leaf and result number.
Value = tuple[int, int]


class Block:
    """The new nodes of a region, and for each leaf and node of the old region its values in the new one."""

    def __init__(self, leaves: Sequence[ValueType], known: Sequence[Elements | None]) -> None:
        """``known``: the elements of leaves, where they are known."""
        self.types: list[tuple[ValueType, ...]] = [(kind,) for kind in leaves]
        self.values: list[list[Ref]] = [
            [Ref(index, 0, whole(kind.dims))] for index, kind in enumerate(leaves)
        ]
        self.known: dict[Value, Elements] = {
            (index, 0): elements for index, elements in enumerate(known) if elements is not None
        }
        self.nodes: list[Node] = []
        #: The elements of tuples, by the scalar that stands for the tuple.
        self.tuples: dict[Value, tuple[Ref, ...]] = {}
        #: Scalars that may be negative: their value is known to inference only, and has no representation.
        self.unrepresented: set[Value] = set()
        #: Scalars of type i1 in the program.
        self.booleans: set[Value] = set()

    def add(self, node: Node) -> list[Ref]:
        """Append a node and return its results."""
        self.nodes.append(node)
        self.types.append(node.results)
        leaf = len(self.types) - 1
        return [Ref(leaf, number, whole(kind.dims)) for number, kind in enumerate(node.results)]

    def defining_node(self, ref: Ref) -> Node | None:
        """Return the node of this region that defines a value; None of a parameter or capture."""
        first = len(self.types) - len(self.nodes)
        return self.nodes[ref.node - first] if ref.node >= first else None

    def viewed(self, ref: Ref) -> ValueType:
        """Return the type of the value that ``ref`` denotes."""
        kind = self.types[ref.node][ref.result]
        return kind if kind.dims is None else kind._replace(dims=view_dims(ref.view, kind.dims))

    def elements(self, ref: Ref) -> Elements | None:
        """Return the elements of a small integer value, row major; None where they are not known."""
        elements = self.known.get((ref.node, ref.result))
        kind = self.viewed(ref)
        if elements is None or kind.dims is None:
            return None
        is_static = not any(is_symbolic(size) or size < 0 for size in kind.dims)
        count = math.prod(kind.dims) if is_static else MAX_ELEMENTS + 1
        if count > MAX_ELEMENTS:
            return None
        if all(entry < 0 for entry in ref.view):
            return elements * count if len(elements) == 1 else None
        axes = [entry for entry in ref.view if entry >= 0]
        keeps_order = len(axes) == 1 or ref.view == whole(self.types[ref.node][ref.result].dims)
        return elements if keeps_order and len(elements) == count else None


def with_sizes_all(kinds: Sequence[ValueType], replacements: Mapping[int, int]) -> tuple[ValueType, ...]:
    """Return types with these sizes for their symbols, by index."""
    return tuple(with_sizes(kind, replacements) for kind in kinds)


def with_sizes(kind: ValueType, replacements: Mapping[int, int]) -> ValueType:
    """Return a type with these sizes for its symbols, by index."""
    if kind.dims is None:
        return kind
    return kind._replace(dims=tuple(evaluate(size, replacements) for size in kind.dims))
