"""A graph with open sizes, as what it is at samples of them, and what it takes for granted of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.shapes.monomial import evaluate, factors, is_symbolic, read_size, size_text, symbol
from kcache_compiler.spec.graph.nodes import DYNAMIC, Graph, Node, Ref, Region, ValueType, spread, spread_size
from kcache_compiler.spec.instantiate import extent_content
from kcache_compiler.spec.linalg_guards import linalg_limits

_SIZE = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.])((?:\d+\*)?s\d+(?:\*s\d+)*)\b')
#: Operations that compute with sizes, or that take them as values.
_COMPUTING = frozenset(
    {f"dynamic_{op}" for op in ("broadcast_in_dim", "conv", "gather", "iota", "pad", "reshape")}
    | {"real_dynamic_slice", "get_dimension_size", "set_dimension_size"}
    | {"tensor.dim", "tensor.rank", "tensor.generate", "tensor.reshape"}
)
_LIST = re.compile(r"(slice_sizes|limit_indices) = array<i64: ([^>]*)>")


def substitute(graph: Graph, values: Mapping[int, int]) -> Graph:
    """Return the graph with these sizes, which may be symbolic, for its symbols, by index: node by node,
    nothing is merged or ordered anew. Extents keep their texts.
    """
    return Graph(graph.family, graph.numerics, _substitute(graph.body, values))


def substitute_all(graph: Graph, values: Mapping[int, int]) -> Graph:
    """``substitute``, extents too: those that have no open size left are constants."""
    return Graph(graph.family, graph.numerics, _evaluated_extents(_substitute(graph.body, values), values))


def _evaluated_extents(region: Region, values: Mapping[int, int]) -> Region:
    def text(match: re.Match[str]) -> str:
        return size_text(evaluate(read_size(match[1]), values))

    def changed(node: Node) -> Node:
        if node.op != "extent":
            inner = tuple(_evaluated_extents(region, values) for region in node.regions)
            return node._replace(regions=inner)
        content = extent_content(node.attributes, node.results[0].element, values)
        if content is not None:
            return node._replace(op="constant", attributes=content)
        return node._replace(attributes=_SIZE.sub(text, node.attributes))

    return region._replace(nodes=tuple(map(changed, region.nodes)))


def _substitute(region: Region, values: Mapping[int, int]) -> Region:
    def view(ref: Ref) -> Ref:
        entries = tuple(
            e if e >= 0 or e > ~(1 << 62) else spread(evaluate(spread_size(e), values)) for e in ref.view
        )
        return ref._replace(view=entries)

    def text(match: re.Match[str]) -> str:
        return size_text(evaluate(read_size(match[1]), values)) if match[1] else match[0]

    def changed(node: Node) -> Node:
        return Node(
            node.op,
            node.attributes if node.op in ("constant", "extent") else _SIZE.sub(text, node.attributes),
            tuple(map(view, node.operands)),
            tuple(_substitute(inner, values) for inner in node.regions),
            changed_types(node.results),
        )

    def dims(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(evaluate(size, values) for size in sizes)

    def changed_types(types: tuple[ValueType, ...]) -> tuple[ValueType, ...]:
        return tuple(t if t.dims is None else t._replace(dims=dims(t.dims)) for t in types)

    return Region(
        changed_types(region.params),
        changed_types(region.captures),
        tuple(map(changed, region.nodes)),
        tuple(map(view, region.results)),
    )


@dataclass(frozen=True)
class OpenGraph:
    """``graph`` has the symbols ``s0`` ... in the order of ``names``, what the spec calls them."""

    graph: Graph
    names: tuple[str, ...]

    @property
    def limits(self) -> list[tuple[int, int]]:
        """Pairs of sizes of which the first never exceeds the second, for the program to mean something."""
        if self.graph.family == "linalg":
            pairs = linalg_limits(self.graph.body)
            return list(dict.fromkeys(pair for pair in pairs if any(map(is_symbolic, pair))))
        return list(dict.fromkeys(_limits(self.graph.body)))

    @property
    def sizes(self) -> list[tuple[int, ...]]:
        """The shapes of all values."""
        return list(dict.fromkeys(_shapes(self.graph.body)))

    @property
    def open(self) -> set[int]:
        """Open sizes that stand in types and attributes."""
        texts = (match[1] for text in _texts(self.graph.body) for match in _SIZE.finditer(text))
        shown = (size for dims in self.sizes for size in dims)
        return {size for size in (*shown, *(read_size(text) for text in texts if text)) if is_symbolic(size)}

    @property
    def numbers(self) -> set[int]:
        """Numbers that stand in the graph beside open sizes."""
        found: set[int] = set()
        for dims in self.sizes:
            found |= {factors(size)[0] for size in dims}
        for text in _texts(self.graph.body):
            found |= {int(number) for number in re.findall(r"\d+", text) if len(number) < 8}
        return found


def open_graph(graph: Graph) -> OpenGraph:
    """Name the symbols of ``graph`` in order."""
    indices = sorted(_used(graph.body))
    renamed = {index: symbol(position) for position, index in enumerate(indices)}
    return OpenGraph(substitute_all(graph, renamed), tuple(f"s{index}" for index in indices))


def used(graph: OpenGraph) -> set[int]:
    """The symbols that stand in a graph, by index."""
    return _used(graph.graph.body)


def _used(body: Region) -> set[int]:
    found: set[int] = set()
    for dims in _shapes(body):
        for size in dims:
            found |= set(factors(size)[1])
    for text in _texts(body):
        for match in _SIZE.finditer(text):
            found |= set(factors(read_size(match[1]))[1]) if match[1] else set()
    return found


def has_open_sizes(region: Region) -> bool:
    """Whether some size is symbolic."""
    return any(is_symbolic(size) for dims in _shapes(region) for size in dims)


def computes_sizes(region: Region) -> bool:
    """Whether the program itself computes sizes, or some depend on data: no sizes stand for all then."""
    return any(DYNAMIC in dims for dims in _shapes(region)) or any(
        node.op in _COMPUTING
        or node.op.startswith("chlo.broadcast_")
        or any(map(computes_sizes, node.regions))
        for node in region.nodes
    )


def forget(graph: Graph) -> Graph:
    """Return the graph with unknown sizes for its open ones."""

    def size(given: int) -> int:
        return DYNAMIC if is_symbolic(given) else given

    def type(given: ValueType) -> ValueType:
        return given if given.dims is None else given._replace(dims=tuple(map(size, given.dims)))

    def ref(given: Ref) -> Ref:
        entries = tuple(e if e >= 0 else spread(size(spread_size(e))) for e in given.view)
        return given._replace(view=entries)

    def region(given: Region) -> Region:
        nodes = tuple(
            node._replace(
                operands=tuple(map(ref, node.operands)),
                regions=tuple(map(region, node.regions)),
                results=tuple(map(type, node.results)),
            )
            for node in given.nodes
        )
        leaves = (tuple(map(type, given.params)), tuple(map(type, given.captures)))
        return Region(*leaves, nodes, tuple(map(ref, given.results)))

    return Graph(graph.family, graph.numerics, region(graph.body))


def _shapes(region: Region) -> Iterator[tuple[int, ...]]:
    for type in (*region.params, *region.captures):
        yield type.dims or ()
    for node in region.nodes:
        for ref in node.operands:
            yield region.viewed_type(ref).dims or ()
        for type in node.results:
            yield type.dims or ()
        for inner in node.regions:
            yield from _shapes(inner)
    for ref in region.results:
        yield region.viewed_type(ref).dims or ()


def _texts(region: Region) -> Iterator[str]:
    for node in region.nodes:
        if node.op != "constant":
            yield node.attributes
        for inner in node.regions:
            yield from _texts(inner)


def _limits(region: Region) -> Iterator[tuple[int, int]]:
    for node in region.nodes:
        if node.op in ("gather", "dynamic_slice", "slice"):
            whole = region.viewed_type(node.operands[0]).dims or ()
            for match in _LIST.finditer(node.attributes):
                yield from _pairs([read_size(part) for part in match[2].split(", ")], whole)
        elif node.op == "dynamic_update_slice":
            parts = (region.viewed_type(ref).dims or () for ref in node.operands[:2])
            whole, part = parts
            yield from _pairs(part, whole)
        elif node.op == "scatter":
            yield from _windows(region, node)
        for inner in node.regions:
            yield from _limits(inner)


def _windows(region: Region, node: Node) -> Iterator[tuple[int, int]]:
    """What a scatter puts into an operand is not larger than that."""
    count = len(node.results)
    whole, part = (region.viewed_type(node.operands[place]).dims or () for place in (0, count + 1))
    numbers = {
        name: [int(one) for one in text.split(", ") if one]
        for name, text in re.findall(r"(\w+) = \[([\d, ]*)\]", node.attributes)
    }
    gone = {*numbers.get("inserted_window_dims", []), *numbers.get("input_batching_dims", [])}
    kept = [size for axis, size in enumerate(whole) if axis not in gone]
    yield from _pairs([part[axis] for axis in numbers.get("update_window_dims", [])], kept)


def _pairs(parts: Sequence[int], whole: Sequence[int]) -> Iterator[tuple[int, int]]:
    for part, size in zip(parts, whole, strict=True):
        if part != size and (is_symbolic(part) or is_symbolic(size)):
            yield part, size


def assignments(graph: OpenGraph, count: int, attempt: int) -> list[list[int]] | None:
    """Return ``count`` samples of the open sizes, primes that stand nowhere else and keep the limits; None
    when there seem to be none.
    """
    bits = _room(graph)
    limits = graph.limits
    needed = len(graph.names) * count
    for scale in range(min(bits, 13), 4, -1):
        found = primes(1 << scale, 2 * (needed + attempt * needed + 8), graph.numbers)
        chosen = found[attempt * needed : (attempt + 1) * needed]
        for order in _orders(len(graph.names)):
            samples = [[chosen[order[i] * count + j] for i in range(len(graph.names))] for j in range(count)]
            if all(
                evaluate(a, dict(enumerate(s))) <= evaluate(b, dict(enumerate(s)))
                for s in samples
                for a, b in limits
            ):
                return samples
    return None


def _room(graph: OpenGraph) -> int:
    """Bits that a sample may have for every tensor to keep fewer than 2**59 elements."""
    least = 13
    for dims in graph.sizes:
        parts = [factors(size) for size in dims]
        degree = sum(len(symbols) for _, symbols in parts)
        if degree:
            literal = math.prod(max(1, coefficient) for coefficient, _ in parts)
            least = min(least, (58 - literal.bit_length()) // degree)
    return least


def _orders(count: int) -> Iterator[list[int]]:
    """Orders to hand out growing sizes in: as named, the other way round, then turned."""
    ascending = list(range(count))
    yield ascending
    yield ascending[::-1]
    for turn in range(1, count):
        yield ascending[turn:] + ascending[:turn]
        yield (ascending[turn:] + ascending[:turn])[::-1]


def primes(start: int, count: int, avoided: set[int]) -> list[int]:
    """``count`` primes from ``start`` on that divide none of ``avoided``."""
    found: list[int] = []
    candidate = start | 1
    while len(found) < count:
        prime = all(candidate % d for d in range(3, math.isqrt(candidate) + 1, 2))
        if prime and not any(number and number % candidate == 0 for number in avoided):
            found.append(candidate)
        candidate += 2
    return found
