"""A region on its way to stated sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kcache_compiler.shapes.monomial import evaluate, is_symbolic
from kcache_compiler.spec.graph.nodes import Node, Ref, ValueType, view_dims, whole
from kcache_compiler.spec.size_inference.scalars import MOST, Elements


class Block:
    """A region on its way: what each old leaf and node is now."""

    def __init__(self, leaves: Sequence[ValueType], known: Sequence[Elements | None]) -> None:
        self.types: list[tuple[ValueType, ...]] = [(type,) for type in leaves]
        self.values: list[list[Ref]] = [[Ref(i, 0, whole(t.dims))] for i, t in enumerate(leaves)]
        self.known: dict[tuple[int, int], Elements] = {
            (index, 0): one for index, one in enumerate(known) if one is not None
        }
        self.nodes: list[Node] = []
        #: What tuples hold, by node and result of what stands for them.
        self.tuples: dict[tuple[int, int], tuple[Ref, ...]] = {}
        #: Numbers that may be below 0, which no value of the code is: by node and result.
        self.unspoken: set[tuple[int, int]] = set()
        #: Scalars that are of one bit in the program: by node and result.
        self.truths: set[tuple[int, int]] = set()

    def add(self, node: Node) -> list[Ref]:
        self.nodes.append(node)
        self.types.append(node.results)
        return [Ref(len(self.types) - 1, i, whole(t.dims)) for i, t in enumerate(node.results)]

    def viewed(self, ref: Ref) -> ValueType:
        type = self.types[ref.node][ref.result]
        return type if type.dims is None else type._replace(dims=view_dims(ref.view, type.dims))

    def elements(self, ref: Ref) -> Elements | None:
        """What is known of a value of few integers."""
        found = self.known.get((ref.node, ref.result))
        type = self.viewed(ref)
        if found is None or type.dims is None:
            return None
        count = math.prod(type.dims) if not any(is_symbolic(s) or s < 0 for s in type.dims) else MOST + 1
        if count > MOST:
            return None
        if all(entry < 0 for entry in ref.view):
            return found * count if len(found) == 1 else None
        shown = [entry for entry in ref.view if entry >= 0]
        plain = len(shown) == 1 or ref.view == whole(self.types[ref.node][ref.result].dims)
        return found if plain and len(found) == count else None


def stated_all(types: Sequence[ValueType], given: Mapping[int, int]) -> tuple[ValueType, ...]:
    """``types`` in the sizes of the new graph."""
    return tuple(stated(type, given) for type in types)


def stated(type: ValueType, given: Mapping[int, int]) -> ValueType:
    """``type`` in the sizes of the new graph: ``given`` has them by the old one's symbols."""
    return type if type.dims is None else type._replace(dims=tuple(evaluate(s, given) for s in type.dims))
