"""Splits a graph with dynamic dimensions by what depends on bound arguments of static shape only.

The same split as that of ``split.py``, before sizes are chosen: a prepared value has a static shape, and
neither its operation nor those that it is computed with have a symbolic size in their attributes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.bound.split import NARROW, Prepared, are_few
from kcache_compiler.shapes.monomial import is_symbolic
from kcache_compiler.spec.dynamic_graph import DynamicGraph, is_static
from kcache_compiler.spec.graph.nodes import Graph, Node, Ref, Region, ValueType, whole
from kcache_compiler.spec.rendering.render import render_graph
from kcache_compiler.types import DTYPE_BYTES

_Value = tuple[int, int]


@dataclass(frozen=True)
class GraphSplit:
    """A graph, the positions of its bound arguments, and the values that are prepared.

    ``run`` takes the other arguments; the prepared values are its captures.
    """

    source: DynamicGraph
    bound: tuple[int, ...]
    values: tuple[Prepared, ...]
    run: DynamicGraph

    def prepare_text(self, values: Sequence[Prepared]) -> str:
        """The program that takes the bound arguments and returns ``values``."""
        graph = self.source.graph
        body = graph.body
        first = len(body.params) + len(body.captures)
        results = [_ref(body, first, value) for value in values]
        kinds = (*body.params, *body.captures)
        numbers = {argument: number for number, argument in enumerate(self.bound)}
        kept = _needed(body, first, {ref.node for ref in results})
        nodes = _renumbered(body, first, kept, numbers, {}, len(self.bound))
        region = Region(
            tuple(kinds[argument] for argument in self.bound),
            (),
            nodes,
            tuple(ref._replace(node=numbers[ref.node]) for ref in results),
        )
        return render_graph(Graph(graph.family, graph.numerics, region))


def split_graph(source: DynamicGraph, arguments: Collection[int]) -> GraphSplit:
    """Split ``source`` by the positions of its bound inputs; all captures are bound, too.

    Raises ``UnsupportedOp`` for programs that are not of StableHLO, and if a bound argument has a dynamic
    dimension.
    """
    body = source.graph.body
    if source.graph.family != "stablehlo":
        raise UnsupportedOp("bound arguments", "the kernel has dynamic sizes, and is no program of StableHLO")
    inputs, kinds = len(body.params), (*body.params, *body.captures)
    bound = tuple(sorted({*arguments, *range(inputs, len(kinds))}))
    for argument in bound:
        if any(map(is_symbolic, kinds[argument].dims or ())):
            raise UnsupportedOp("bound arguments", f"argument {argument} has dynamic sizes, and is bound")
    prepared, kept = _chosen(body, len(kinds), bound)
    values = tuple(
        Prepared(leaf - len(kinds), result) if leaf >= len(kinds) else Prepared(-1, leaf)
        for leaf, result in sorted(prepared)
    )
    values = tuple(sorted(values, key=lambda value: (value.operation, value.index)))
    others = [number for number in range(inputs) if number not in bound]
    numbers = {number: position for position, number in enumerate(others)}
    slots = {
        (value.index, 0) if value.operation < 0 else (len(kinds) + value.operation, value.index): len(others)
        + position
        for position, value in enumerate(values)
    }
    nodes = _renumbered(body, len(kinds), kept, numbers, slots, len(others) + len(values))
    region = Region(
        tuple(kinds[number] for number in others),
        tuple(body.type_of(_ref(body, len(kinds), value)) for value in values),
        nodes,
        tuple(_moved(ref, numbers, slots) for ref in body.results),
    )
    graph = Graph(source.graph.family, source.graph.numerics, region)
    return GraphSplit(source, bound, values, DynamicGraph(graph, source.names))


def _chosen(body: Region, first: int, bound: Collection[int]) -> tuple[set[_Value], list[int]]:
    """The prepared values, as leaf and result, and the leaves of operations of the run program."""
    sources = _sources(body, first, bound)
    needed = {(ref.node, ref.result) for ref in body.results}
    prepared: set[_Value] = set()
    kept: list[int] = []
    for leaf in range(first + len(body.nodes) - 1, first - 1, -1):
        node, depends = body.nodes[leaf - first], sources[leaf]
        results = [(leaf, result) for result in range(len(node.results)) if (leaf, result) in needed]
        if not results:
            continue
        if depends and _is_prepared(body, node, [body.type_of(Ref(each, 0, ())) for each in depends]):
            prepared.update(results)
        else:
            kept.insert(0, leaf)
            needed.update((ref.node, ref.result) for ref in node.operands)
    prepared.update((argument, 0) for argument in bound if (argument, 0) in needed)
    if not prepared:  # of a program that uses no bound argument
        kinds = (*body.params, *body.captures)
        prepared.add((min(bound, key=lambda argument: _bytes(kinds[argument])), 0))
    return prepared, kept


def _sources(body: Region, first: int, bound: Collection[int]) -> dict[int, frozenset[int] | None]:
    """For each leaf the bound arguments that it depends on; None where it depends on others, or on a size."""
    known: dict[int, frozenset[int] | None] = {
        argument: frozenset({argument}) if argument in bound else None for argument in range(first)
    }
    for leaf, node in enumerate(body.nodes, first):
        depends: frozenset[int] | None = frozenset()
        for ref in node.operands:
            source = known[ref.node]
            depends = None if depends is None or source is None else depends | source
        views = [body.viewed_type(ref) for ref in node.operands]
        impure = node.op == "rng" or "has_side_effect = true" in node.attributes
        known[leaf] = None if impure or not is_static(node, views) else depends
    return known


def _is_prepared(body: Region, node: Node, arguments: Sequence[ValueType]) -> bool:
    """Whether results are small enough beside the arguments that they are computed from."""
    if node.op == "convert" and body.type_of(node.operands[0]).element in NARROW:
        return False
    read, written = sum(map(_bytes, arguments)), sum(map(_bytes, node.results))
    return are_few(written, read, f"stablehlo.{node.op}", regions=bool(node.regions))


def _bytes(kind: ValueType) -> int:
    return DTYPE_BYTES.get(kind.element, 16) * prod(kind.dims or ())


def _ref(body: Region, first: int, value: Prepared) -> Ref:
    leaf, result = (value.index, 0) if value.operation < 0 else (first + value.operation, value.index)
    return Ref(leaf, result, whole(body.type_of(Ref(leaf, result, ())).dims))


def _needed(body: Region, first: int, leaves: Iterable[int]) -> list[int]:
    """The leaves of the operations that these are computed with."""
    needed = set(leaves)
    for leaf in range(first + len(body.nodes) - 1, first - 1, -1):
        if leaf in needed:
            needed.update(ref.node for ref in body.nodes[leaf - first].operands)
    return sorted(leaf for leaf in needed if leaf >= first)


def _renumbered(
    body: Region,
    first: int,
    kept: Iterable[int],
    numbers: dict[int, int],
    slots: dict[_Value, int],
    start: int,
) -> tuple[Node, ...]:
    """The operations ``kept``, which get the leaves from ``start`` on in ``numbers``."""
    nodes: list[Node] = []
    for leaf in kept:
        node = body.nodes[leaf - first]
        nodes.append(node._replace(operands=tuple(_moved(ref, numbers, slots) for ref in node.operands)))
        numbers[leaf] = start + len(nodes) - 1
    return tuple(nodes)


def _moved(ref: Ref, numbers: dict[int, int], slots: dict[_Value, int]) -> Ref:
    slot = slots.get((ref.node, ref.result))
    return ref._replace(node=numbers[ref.node]) if slot is None else ref._replace(node=slot, result=0)
