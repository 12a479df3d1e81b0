"""Erasure once more, where building the graph made it say less, or more, than the operations that are left.

What a rewrite simplified away may have tied axes that nothing ties any more; and of two operations that are
one at the program's sizes, one may have an open size where the other has a symbol. Then the graph, written
out at the program's sizes with such twins as one, is the better program, and is imported again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kcache_compiler.canonical.constants import Constant
from kcache_compiler.canonical.contraction import read_ints
from kcache_compiler.canonical.extents import extent_value
from kcache_compiler.canonical.graph import Graph, Node, Ref, Region, ValueType, spread, spread_size
from kcache_compiler.canonical.instantiate import evaluated_attributes, extent_content
from kcache_compiler.canonical.ops import is_elementwise, is_structured
from kcache_compiler.canonical.reshape import read_groups
from kcache_compiler.canonical.sizes import evaluate, factors, is_symbolic


def settled(graph: Graph, sizes: Mapping[int, int]) -> Graph | None:
    """Return None for a graph whose nodes tie its axes as its symbols say, without twins; else the graph at
    the sizes that its symbols have in the program.
    """
    held = _Ties(graph.body).hold()
    if held and not _may_have_twins(graph.body, sizes):
        return None
    writer = _Writer(sizes)
    written = Graph(graph.family, graph.numerics, writer.region(graph.body))
    return None if held and not writer.twins else written


def _may_have_twins(body: Region, sizes: Mapping[int, int]) -> bool:
    """Whether some operation has a fixed size that some symbolic one has too."""
    fixed: set[int] = set()
    erased: set[int] = set()
    for node in body.nodes:
        if node.operands:
            for type in node.results:
                for size in type.dims or ():
                    (erased if is_symbolic(size) else fixed).add(size)
    return any(evaluate(size, sizes) in fixed for size in erased)


# -- ties


#: (leaf or node, result, axis, symbol)
_Key = tuple[int, int, int, int]


class _Ties:
    """Union-find over the symbols in the sizes of axes."""

    def __init__(self, body: Region) -> None:
        self.body = body
        self.parent: dict[_Key, _Key] = {}
        self.loose = False

    def hold(self) -> bool:
        """Whether every symbol is one class that an argument is in."""
        body = self.body
        base = len(body.params) + len(body.captures)
        for index, node in enumerate(body.nodes):
            self._node(base + index, node)
        for ref in body.results:
            self.loose = self.loose or any(e < 0 and is_symbolic(spread_size(e)) for e in ref.view)
        if self.loose:
            return False
        read: dict[int, _Key] = {}
        for leaf, type in enumerate(body.params):
            for axis, size in enumerate(type.dims or ()):
                for symbol in factors(size)[1]:
                    root = self._root((leaf, 0, axis, symbol))
                    if read.setdefault(symbol, root) != root:
                        return False
        return all(read.get(key[3]) == self._root(key) for key in list(self.parent))

    def _root(self, key: _Key) -> _Key:
        parent = self.parent
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    def _tie(self, places: Sequence[tuple[int, int, int, int]]) -> None:
        """Tie the axes, given as (leaf or node, result, axis, size), symbol by symbol."""
        first: dict[int, _Key] = {}
        for node, result, axis, size in places:
            for symbol in set(factors(size)[1]):
                key = (node, result, axis, symbol)
                self.parent[self._root(key)] = self._root(first.setdefault(symbol, key))

    def _axis(self, ref: Ref, dim: int) -> list[tuple[int, int, int, int]]:
        entry = ref.view[dim]
        if entry < 0:
            return []
        size = (self.body.type_of(ref).dims or ())[entry]
        return [(ref.node, ref.result, entry, size)]

    def _node(self, index: int, node: Node) -> None:
        if is_elementwise(node):
            for label, size in enumerate(node.results[0].dims or ()):
                self._tie(
                    [(index, 0, label, size), *(p for r in node.operands for p in self._axis(r, label))]
                )
        elif is_structured(node):
            self._reduction(index, node)
        elif node.op == "reshape" and node.attributes:
            self._reshape(index, node)
        elif node.op not in ("constant", "extent"):
            self._whole(index, node)

    def _reduction(self, index: int, node: Node) -> None:
        reduced = read_ints(node.attributes.rpartition("dimensions = ")[2])
        rank = len(node.operands[0].view)
        inputs = [r for r in node.operands if len(r.view) == rank][: 2 if node.op == "dot_general" else None]
        kept = [label for label in range(rank) if label not in reduced]
        for label in range(rank):
            places = [p for ref in inputs for p in self._axis(ref, label)]
            if not places and is_symbolic(spread_size(inputs[0].view[label])):
                self.loose = True
            if label in kept:
                axis = kept.index(label)
                places += [(index, i, axis, (t.dims or ())[axis]) for i, t in enumerate(node.results)]
            self._tie(places)

    def _reshape(self, index: int, node: Node) -> None:
        (ref,) = node.operands
        dims = node.results[0].dims or ()
        groups = read_groups(node.attributes)
        passed = len(ref.view) - sum(count for count, _ in groups)
        for axis in range(passed):
            self._tie([(index, 0, axis, dims[axis]), *self._axis(ref, axis)])
        into = out = passed
        for count, sizes in groups:
            places = [p for dim in range(into, into + count) for p in self._axis(ref, dim)]
            places += [(index, 0, axis, dims[axis]) for axis in range(out, out + len(sizes))]
            self._tie(places)
            into, out = into + count, out + len(sizes)

    def _whole(self, index: int, node: Node) -> None:
        """An operation taken whole ties what has one size."""
        places = [p for ref in node.operands for dim in range(len(ref.view)) for p in self._axis(ref, dim)]
        for result, type in enumerate(node.results):
            places += [(index, result, axis, size) for axis, size in enumerate(type.dims or ())]
        self._tie(places)


# -- the graph at sizes

#: The first number that an element may not hold exactly.
_EXACT = {"bf16": 1 << 8, "f16": 1 << 11, "f32": 1 << 24, "f64": 1 << 53}


class _Writer:
    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = sizes
        self.twins = False

    def region(self, region: Region) -> Region:
        """Return a region at the sizes."""
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
            made = self._node(node, number)
            twin = next((i for other, i in known.get(made, ()) if _alike(node, other)), None)
            if twin is None:
                nodes.append(made)
                if node.operands:
                    known.setdefault(made, []).append((node, base + len(nodes) - 1))
                number.append(base + len(nodes) - 1)
            else:
                self.twins = True
                number.append(twin)
        types = (tuple(map(self._type, region.params)), tuple(map(self._type, region.captures)))
        results = tuple(self._ref(ref, number) for ref in region.results)
        return Region(*types, tuple(nodes), results)

    def _quotient(self, node: Node, at: int) -> list[Node]:
        """Return one over an extent as the division that it was, as gradients have it: 1/N alone may be any
        number.
        """
        if node.op != "extent" or not node.attributes.startswith("1/"):
            return []
        body, element = node.attributes.removeprefix("1/").strip("()"), node.results[0].element
        count = extent_value(body, dict(self.sizes))
        if count is None or count >= _EXACT.get(element, 0):
            return []
        numbers = [Constant.number(value, element).content for value in (1.0, count)]
        leaves = [Node("constant", content, (), (), node.results) for content in numbers]
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
        if type.dims is None:
            return type
        return ValueType(type.element, tuple(evaluate(d, self.sizes) for d in type.dims))

    def _ref(self, ref: Ref, number: Sequence[int]) -> Ref:
        view = tuple(e if e >= 0 else spread(evaluate(spread_size(e), self.sizes)) for e in ref.view)
        return Ref(number[ref.node], ref.result, view)


def _groups(attributes: str, sizes: Mapping[int, int]) -> str:
    parts = [
        f"{count} > {' x '.join(str(evaluate(size, sizes)) for size in outs)}"
        for count, outs in read_groups(attributes)
    ]
    return f"groups = [{', '.join(parts)}]"


def _alike(a: Node, b: Node) -> bool:
    """Whether no size of theirs is one symbol in one and another in the other."""
    for left, right in zip(_sizes(a), _sizes(b), strict=True):
        if left != right and is_symbolic(left) and is_symbolic(right):
            return False
    return True


def _sizes(node: Node) -> list[int]:
    found = [size for type in node.results for size in type.dims or ()]
    found += [spread_size(e) for ref in node.operands for e in ref.view if e < 0]
    return found


__all__ = ["settled"]
