"""Graphs with symbolic sizes: the sizes in them, and specialization to the sizes that an arg spec fixes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.shapes.monomial import evaluate, factors, is_symbolic, read_size, size_text, symbol
from kcache_compiler.shapes.system import ProgramSizes, SizeSystem, StatedSizes
from kcache_compiler.spec.graph.nodes import DYNAMIC, Graph, Node, Ref, Region, ValueType, spread, spread_size
from kcache_compiler.spec.instantiate import extent_content, instantiate
from kcache_compiler.spec.size_limits import size_limits
from kcache_compiler.types import ArgSpec

#: A symbolic size in an attribute, outside of strings.
_SIZE = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.])((?:\d+\*)?s\d+(?:\*s\d+)*)\b')
#: Operations whose results, or operands, are sizes.
_SIZE_OPERATIONS = frozenset(
    {f"dynamic_{op}" for op in ("broadcast_in_dim", "conv", "gather", "iota", "pad", "reshape")}
    | {"real_dynamic_slice", "get_dimension_size", "set_dimension_size"}
    | {"tensor.dim", "tensor.rank", "tensor.generate", "tensor.reshape"}
)


@dataclass(frozen=True)
class DynamicGraph:
    """``graph`` has the symbols ``s0``, ``s1``, ... in the order of ``names``, their names in the spec."""

    graph: Graph
    names: tuple[str, ...]

    @cached_property
    def sizes(self) -> ProgramSizes:
        """The sizes that occur in the graph."""
        body = self.graph.body
        shapes = list(dict.fromkeys(_shapes(body)))
        texts = [match[1] for text in _texts(body) for match in _SIZE.finditer(text) if match[1]]
        occurring = [*(size for dims in shapes for size in dims), *map(read_size, texts)]
        coefficients = {factors(size)[0] for dims in shapes for size in dims}
        integers = (n for text in _texts(body) for n in re.findall(r"\d+", text) if len(n) < 8)
        return ProgramSizes(
            shapes,
            frozenset(size for size in occurring if is_symbolic(size)),
            frozenset(_symbols(body)),
            frozenset(coefficients | set(map(int, integers))),
            size_limits(self.graph),
        )


@dataclass(frozen=True)
class SizedGraph:
    """A graph whose sizes are integers and monomials of symbols, and the formulas, guards and samples of
    these.
    """

    graph: DynamicGraph
    sizes: SizeSystem


def with_stated_sizes(graph: DynamicGraph) -> SizedGraph:
    """Return a graph that computes no sizes: each is a monomial of symbols of the arguments."""
    return SizedGraph(graph, StatedSizes(graph.sizes, len(graph.names)))


def dynamic_graph(graph: Graph) -> DynamicGraph:
    """Return ``graph`` with its symbols renumbered from 0, in order."""
    indices = sorted(_symbols(graph.body))
    renumbered = {index: symbol(position) for position, index in enumerate(indices)}
    return DynamicGraph(substitute_all(graph, renumbered), tuple(f"s{index}" for index in indices))


def has_symbolic_sizes(region: Region) -> bool:
    """Return whether some size is symbolic."""
    return any(is_symbolic(size) for dims in _shapes(region) for size in dims)


def computes_sizes(region: Region) -> bool:
    """Return whether the program computes sizes, or some depend on data, so that not all are stated."""
    return any(DYNAMIC in dims for dims in _shapes(region)) or any(
        node.op in _SIZE_OPERATIONS
        or node.op.startswith("chlo.broadcast_")
        or any(map(computes_sizes, node.regions))
        for node in region.nodes
    )


# -- substitution


def substitute(graph: Graph, values: Mapping[int, int]) -> Graph:
    """Return the graph with sizes, which may be symbolic, for its symbols, by index.

    Nodes are neither merged nor reordered. Attributes of extents are kept.
    """
    return Graph(graph.family, graph.numerics, _substitute(graph.body, values))


def substitute_all(graph: Graph, values: Mapping[int, int]) -> Graph:
    """Return ``substitute``, in extents too: an extent without symbols becomes a constant."""
    return Graph(graph.family, graph.numerics, _evaluate_extents(_substitute(graph.body, values), values))


def _evaluate_extents(region: Region, values: Mapping[int, int]) -> Region:
    def text(match: re.Match[str]) -> str:
        return size_text(evaluate(read_size(match[1]), values))

    def rewrite(node: Node) -> Node:
        if node.op != "extent":
            return node._replace(regions=tuple(_evaluate_extents(inner, values) for inner in node.regions))
        content = extent_content(node.attributes, node.results[0].element, values)
        if content is not None:
            return node._replace(op="constant", attributes=content)
        return node._replace(attributes=_SIZE.sub(text, node.attributes))

    return region._replace(nodes=tuple(map(rewrite, region.nodes)))


def _substitute(region: Region, values: Mapping[int, int]) -> Region:
    def text(match: re.Match[str]) -> str:
        return size_text(evaluate(read_size(match[1]), values)) if match[1] else match[0]

    def attributes(node: Node) -> str:
        return node.attributes if node.op in ("constant", "extent") else _SIZE.sub(text, node.attributes)

    return _map_sizes(region, lambda size: evaluate(size, values), attributes)


def fixed_sizes(graph: Graph, args: ArgSpec) -> dict[int, int]:
    """Return the static sizes of symbols, by index; the other symbols remain.

    Raises ``InvalidProgram`` if the arg spec contradicts the spec, naming argument and axis.
    """
    params = graph.body.params
    if len(params) != len(args.args):
        raise InvalidProgram(f"the spec has {len(params)} arguments, the arg spec {len(args.args)}")
    fixed: dict[int, int] = {}
    for index, (param, arg) in enumerate(zip(params, args.args, strict=True)):
        dims = param.dims or ()
        if param.element != arg.dtype or len(dims) != len(arg.dims):
            raise InvalidProgram(
                f"argument {index} is {arg}, the spec has {param.element} of rank {len(dims)}"
            )
        for size, dim in zip(dims, arg.dims, strict=True):
            coefficient, symbols = factors(size)
            if coefficient == 1 and len(symbols) == 1 and isinstance(dim, int):
                fixed.setdefault(symbols[0], dim)
    for index, (param, arg) in enumerate(zip(params, args.args, strict=True)):
        for axis, (size, dim) in enumerate(zip(param.dims or (), arg.dims, strict=True)):
            expected = evaluate(size, fixed)
            if isinstance(dim, int) and is_symbolic(expected):
                raise InvalidProgram(
                    f"argument {index} has size {dim} along axis {axis}, where the spec has "
                    f"{size_text(size)}: give the sizes of its symbols, or make it dynamic"
                )
            if isinstance(dim, int) and dim != expected:
                raise InvalidProgram(
                    f"argument {index} has size {dim} along axis {axis}, where the spec has "
                    f"{size_text(size)}{'' if expected == size else f' = {expected}'}"
                )
    return fixed


def specialize(graph: Graph, sizes: Mapping[int, int]) -> Graph:
    """Return the graph to compile for static sizes of some symbols, by index.

    It is built again, which merges values that are equal at these sizes and drops axes of size 1. Axes may be
    reordered, and with them reductions. Under ``strict``, nodes are kept, so that a kernel of static shape
    gives the bits of a dynamic one.
    """
    if graph.numerics == "strict" and not computes_sizes(graph.body):
        return substitute_all(graph, sizes)
    return instantiate(graph, sizes)


def with_unknown_sizes(graph: Graph) -> Graph:
    """Return the graph with ``DYNAMIC`` for its symbolic sizes, in types and views."""
    body = _map_sizes(
        graph.body, lambda size: DYNAMIC if is_symbolic(size) else size, lambda node: node.attributes
    )
    return Graph(graph.family, graph.numerics, body)


def _map_sizes(region: Region, size: Callable[[int], int], attributes: Callable[[Node], str]) -> Region:
    """A region with ``size`` applied to every size in types and views, and new attributes."""

    def type_of(kind: ValueType) -> ValueType:
        return kind if kind.dims is None else kind._replace(dims=tuple(map(size, kind.dims)))

    def view(ref: Ref) -> Ref:
        entries = tuple(entry if entry >= 0 else _map_spread(entry, size) for entry in ref.view)
        return ref._replace(view=entries)

    nodes = tuple(
        Node(
            node.op,
            attributes(node),
            tuple(map(view, node.operands)),
            tuple(_map_sizes(inner, size, attributes) for inner in node.regions),
            tuple(map(type_of, node.results)),
        )
        for node in region.nodes
    )
    params, captures = tuple(map(type_of, region.params)), tuple(map(type_of, region.captures))
    return Region(params, captures, nodes, tuple(map(view, region.results)))


def _map_spread(entry: int, size: Callable[[int], int]) -> int:
    broadcast = spread_size(entry)
    return entry if broadcast == DYNAMIC else spread(size(broadcast))


# -- sizes of a region


def _symbols(region: Region) -> set[int]:
    """The indices of the symbols of a region."""
    symbols: set[int] = set()
    for dims in _shapes(region):
        for size in dims:
            symbols |= set(factors(size)[1])
    for text in _texts(region):
        for match in _SIZE.finditer(text):
            symbols |= set(factors(read_size(match[1]))[1]) if match[1] else set()
    return symbols


def _shapes(region: Region) -> Iterator[tuple[int, ...]]:
    """The shapes of all values, as results and as operands."""
    for kind in (*region.params, *region.captures):
        yield kind.dims or ()
    for node in region.nodes:
        for ref in node.operands:
            yield region.viewed_type(ref).dims or ()
        for kind in node.results:
            yield kind.dims or ()
        for inner in node.regions:
            yield from _shapes(inner)
    for ref in region.results:
        yield region.viewed_type(ref).dims or ()


def _texts(region: Region) -> Iterator[str]:
    """The attributes of all operations but constants."""
    for node in region.nodes:
        if node.op != "constant":
            yield node.attributes
        for inner in node.regions:
            yield from _texts(inner)
