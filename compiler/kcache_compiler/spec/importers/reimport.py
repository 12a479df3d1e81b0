"""The test whether a canonical graph must be imported again, and the graph to import.

An operation that a rewrite removed may have constrained axes that nothing constrains any more. And of two
operations that are equal at the program's sizes, one may have a static size where the other has a symbol. In
both cases the graph at the program's sizes, with such *twins* merged, is the better program.

A *leaf* is a parameter or captured value of a region, which no node of it computes. A *free* axis of a result
is a broadcast: no axis of an argument determines its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kcache_compiler.shapes.monomial import evaluate, factors, is_symbolic
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.nodes import Graph, Node, Ref, Region, ValueType, View, spread, spread_size
from kcache_compiler.spec.graph.operations import is_duplicated, is_elementwise, is_structured
from kcache_compiler.spec.graph.reshape import read_groups
from kcache_compiler.spec.importers.extents import extent_value
from kcache_compiler.spec.instantiate import evaluated_attributes, extent_content
from kcache_compiler.spec.rendering.contraction import read_ints


def graph_to_reimport(graph: Graph, sizes: Mapping[int, int]) -> Graph | None:
    """Return the graph at the sizes of its symbols; None if it needs no second import: its nodes constrain
    axes as its symbols state, and it has no twins.
    """
    is_consistent = _SymbolClasses(graph.body).are_consistent()
    if is_consistent and not _may_have_twins(graph.body, sizes):
        return None
    writer = _StaticGraph(sizes)
    static = Graph(graph.family, graph.numerics, writer.region(graph.body))
    return None if is_consistent and not writer.has_twins else static


def _may_have_twins(body: Region, sizes: Mapping[int, int]) -> bool:
    """Whether a symbolic size equals a static one in the program."""
    static: set[int] = set()
    erased: set[int] = set()
    for node in body.nodes:
        if node.operands:
            for type in node.results:
                for size in type.dims or ():
                    (erased if is_symbolic(size) else static).add(size)
    return any(evaluate(size, sizes) in static for size in erased)


# -- symbols


#: The symbols in the size of an axis, each with its number in the union-find.
_Axis = tuple[tuple[int, int], ...]


_PARAMETER = Node("parameter", "", (), (), ())


class _SymbolClasses:
    """Union-find over the occurrences of symbols in sizes of axes, by the constraints of nodes."""

    def __init__(self, body: Region) -> None:
        self.body = body
        #: By leaf or node, result and axis.
        self.axes: list[list[list[_Axis]]] = []
        self.parent: list[int] = []
        #: Symbol by number.
        self.symbols: list[int] = []
        self.has_free_axis = False
        #: Nodes that the program has once for each use: their users share no axes.
        self.duplicated: set[int] = set()

    def are_consistent(self) -> bool:
        """Return whether all occurrences of a symbol are one class with an axis of an argument."""
        body = self.body
        for type in (*body.params, *body.captures):
            self.axes.append([self._new(type)])
        base = len(self.axes)
        for index, node in enumerate(body.nodes, base):
            if is_duplicated(node, lambda i: body.nodes[i - base] if i >= base else _PARAMETER):
                self.duplicated.add(index)
                self.axes.append([])
                continue
            own = [self._new(type) for type in node.results]
            self.axes.append(own)
            self._node(node, own)
        for ref in body.results:
            dims = body.viewed_type(ref).dims or ()
            free = [
                size for e, size in zip(ref.view, dims, strict=True) if e < 0 or ref.node in self.duplicated
            ]
            self.has_free_axis = self.has_free_axis or any(map(is_symbolic, free))
        if self.has_free_axis:
            return False
        read: dict[int, int] = {}
        for (leaf,) in self.axes[: len(body.params)]:
            for axis in leaf:
                for symbol, number in axis:
                    root = self._root(number)
                    if read.setdefault(symbol, root) != root:
                        return False
        return all(read.get(symbol) == self._root(number) for number, symbol in enumerate(self.symbols))

    def _new(self, type: ValueType) -> list[_Axis]:
        axes: list[_Axis] = []
        for size in type.dims or ():
            symbols = set(factors(size)[1]) if is_symbolic(size) else ()
            first = len(self.parent)
            self.symbols.extend(symbols)
            self.parent.extend(range(first, len(self.symbols)))
            axes.append(tuple(zip(symbols, range(first, len(self.symbols)), strict=True)))
        return axes

    def _root(self, number: int) -> int:
        parent = self.parent
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    def _unify(self, axes: Sequence[_Axis]) -> None:
        """Unify axes, symbol by symbol."""
        first: dict[int, int] = {}
        for axis in axes:
            for symbol, number in axis:
                other = first.setdefault(symbol, number)
                if other != number:
                    self.parent[self._root(number)] = self._root(other)

    def _axes_along(self, refs: Sequence[Ref], dim: int) -> list[_Axis]:
        """Return the axes of values that are viewed as one dim."""
        return [
            self.axes[ref.node][ref.result][entry]
            for ref in refs
            if (entry := ref.view[dim]) >= 0 and ref.node not in self.duplicated
        ]

    def _node(self, node: Node, own: Sequence[list[_Axis]]) -> None:
        if is_elementwise(node):
            for label, axis in enumerate(own[0]):
                self._unify([axis, *self._axes_along(node.operands, label)])
        elif is_structured(node):
            self._reduction(node, own)
        elif node.op == "reshape" and node.attributes:
            self._reshape(node, own[0])
        elif node.op not in ("constant", "extent"):
            self._opaque(node, own)

    def _reduction(self, node: Node, own: Sequence[list[_Axis]]) -> None:
        reduced = read_ints(node.attributes.rpartition("dimensions = ")[2])
        rank = len(node.operands[0].view)
        inputs = [r for r in node.operands if len(r.view) == rank][: 2 if node.op == "dot_general" else None]
        kept = [label for label in range(rank) if label not in reduced]
        for label in range(rank):
            axes = self._axes_along(inputs, label)
            if not axes and is_symbolic((self.body.viewed_type(inputs[0]).dims or ())[label]):
                self.has_free_axis = True
            if label in kept:
                axes += [result[kept.index(label)] for result in own]
            self._unify(axes)

    def _reshape(self, node: Node, own: Sequence[_Axis]) -> None:
        (ref,) = node.operands
        groups = read_groups(node.attributes)
        passed = len(ref.view) - sum(count for count, _ in groups)
        for dim in range(passed):
            self._unify([own[dim], *self._axes_along([ref], dim)])
        into = out = passed
        for count, sizes in groups:
            axes = [axis for dim in range(into, into + count) for axis in self._axes_along([ref], dim)]
            self._unify([*axes, *own[out : out + len(sizes)]])
            into, out = into + count, out + len(sizes)

    def _opaque(self, node: Node, own: Sequence[list[_Axis]]) -> None:
        """An opaque operation constrains all axes of one size."""
        axes = [
            axis
            for ref in node.operands
            for dim in range(len(ref.view))
            for axis in self._axes_along([ref], dim)
        ]
        self._unify([*axes, *(axis for result in own for axis in result)])


# -- the graph at sizes

#: The first number that an element may not hold exactly.
_EXACT = {"bf16": 1 << 8, "f16": 1 << 11, "f32": 1 << 24, "f64": 1 << 53}


class _StaticGraph:
    """Copies regions with symbols replaced by their sizes; nodes that become equal, *twins*, are merged."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = sizes
        self.has_twins = False
        #: Caches of types and views at the sizes.
        self.types: dict[ValueType, ValueType] = {}
        self.views: dict[View, View] = {}

    def region(self, region: Region) -> Region:
        """Return a region at the sizes of the symbols."""
        base = len(region.params) + len(region.captures)
        number = list(range(base))
        nodes: list[Node] = []
        known: dict[Node, list[tuple[Node, int]]] = {}
        for node in region.nodes:
            quotient = self._quotient(node, base + len(nodes))
            if quotient:
                nodes += quotient
                number.append(base + len(nodes) - 1)
                continue
            static = self._node(node, number)
            twin = next((i for other, i in known.get(static, ()) if _may_be_equal(node, other)), None)
            if twin is None:
                nodes.append(static)
                if node.operands:
                    known.setdefault(static, []).append((node, base + len(nodes) - 1))
                number.append(base + len(nodes) - 1)
            else:
                self.has_twins = True
                number.append(twin)
        types = (tuple(map(self._type, region.params)), tuple(map(self._type, region.captures)))
        results = tuple(self._ref(ref, number) for ref in region.results)
        return Region(*types, tuple(nodes), results)

    def _quotient(self, node: Node, at: int) -> list[Node]:
        """Return the inverse of an extent as a division, from which the importer finds the extent again: 1/N
        alone may be any number.
        """
        if node.op != "extent" or not node.attributes.startswith("1/"):
            return []
        body, element = node.attributes.removeprefix("1/").strip("()"), node.results[0].element
        count = extent_value(body, dict(self.sizes))
        if count is None or count >= _EXACT.get(element, 0):
            return []
        contents = [Constant.number(value, element).content for value in (1.0, count)]
        leaves = [Node("constant", content, (), (), node.results) for content in contents]
        return [*leaves, Node("divide", "", (Ref(at, 0, ()), Ref(at + 1, 0, ())), (), node.results)]

    def _node(self, node: Node, number: Sequence[int]) -> Node:
        results = tuple(map(self._type, node.results))
        op, attributes = node.op, evaluated_attributes(node, self.sizes)
        if op == "extent":
            content = extent_content(node.attributes, results[0].element, self.sizes)
            op, attributes = ("constant", content) if content is not None else (op, attributes)
        elif op == "reshape" and attributes:
            attributes = _groups(attributes, self.sizes)
        operands = tuple(self._ref(ref, number) for ref in node.operands)
        return Node(op, attributes, operands, tuple(map(self.region, node.regions)), results)

    def _type(self, type: ValueType) -> ValueType:
        static = self.types.get(type)
        if static is None:
            dims = None if type.dims is None else tuple([evaluate(d, self.sizes) for d in type.dims])
            static = self.types[type] = ValueType(type.element, dims)
        return static

    def _ref(self, ref: Ref, number: Sequence[int]) -> Ref:
        view = self.views.get(ref.view)
        if view is None:
            entries = [e if e >= 0 else spread(evaluate(spread_size(e), self.sizes)) for e in ref.view]
            view = self.views[ref.view] = tuple(entries)
        return Ref(number[ref.node], ref.result, view)


def _groups(attributes: str, sizes: Mapping[int, int]) -> str:
    parts = [
        f"{count} > {' x '.join(str(evaluate(size, sizes)) for size in outs)}"
        for count, outs in read_groups(attributes)
    ]
    return f"groups = [{', '.join(parts)}]"


def _may_be_equal(a: Node, b: Node) -> bool:
    """Whether no size is one symbol in one node and another symbol in the other."""
    for left, right in zip(_sizes(a), _sizes(b), strict=True):
        if left != right and is_symbolic(left) and is_symbolic(right):
            return False
    return True


def _sizes(node: Node) -> list[int]:
    sizes = [size for type in node.results for size in type.dims or ()]
    sizes += [spread_size(e) for ref in node.operands for e in ref.view if e < 0]
    return sizes


__all__ = ["graph_to_reimport"]
