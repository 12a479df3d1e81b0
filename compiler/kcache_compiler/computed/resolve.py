"""The graph of a program that computes sizes, with all sizes stated: numbers, or monomials of symbols."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.canonical.graph import (
    DYNAMIC,
    Graph,
    Node,
    Ref,
    Region,
    ValueType,
    broadcast_in_dim,
    compose,
    spread,
    spread_size,
    view_dims,
    whole,
)
from kcache_compiler.canonical.open_sizes import OpenGraph
from kcache_compiler.canonical.ops import ASSERTED, is_elementwise, is_structured
from kcache_compiler.canonical.render_stablehlo import split_captures
from kcache_compiler.canonical.sizes import evaluate, is_symbolic, read_size, size_text
from kcache_compiler.codegen.formula import Formula, apply, symbols_in
from kcache_compiler.codegen.nest import Check
from kcache_compiler.codegen.polynomial import polynomial
from kcache_compiler.computed.rules import Dims, Site, convolved, gathered, padded, shapes, windows
from kcache_compiler.computed.scalars import Arithmetic, Elements, read_constant
from kcache_compiler.computed.table import Exact, Symbols, Unresolved

#: Times that a graph is walked, each of which may learn something of a size.
_ROUNDS = 24
_MOST = 32
_COMBINED = frozenset(
    ("add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder", "negate", "sign", "abs")
    + ("select", "compare", "clamp", "and", "or", "xor", "not", "convert")
)


@dataclass(frozen=True)
class Resolved:
    """``graph`` has the symbols of ``symbols``; ``checks`` are over the symbols of the arguments."""

    graph: Graph
    names: tuple[str, ...]
    symbols: Symbols
    checks: tuple[Check, ...]
    #: What is known of symbols of arguments.
    exact: Mapping[int, Exact]


def resolve(graph: OpenGraph) -> Resolved:
    """State all sizes. Raises ``Unresolved``."""
    least: dict[str, int] = {}
    exact: dict[int, Exact] = {}
    for _ in range(_ROUNDS):
        symbols = Symbols(len(graph.names), least, exact)
        walk = _Walk(symbols)
        given = {
            index: symbols.size(meaning)
            for index, meaning in enumerate(symbols.meaning)
            if meaning is not None and index < symbols.count
        }
        body = walk.main(graph.graph.body, given)
        if not walk.learn(least, exact):
            if walk.failed is not None:
                raise walk.failed
            facts = _facts(symbols, least, exact)
            made = Graph(graph.graph.family, graph.graph.numerics, body)
            limits = [(symbols.formula(a), symbols.formula(b), False) for a, b in _limits(made, graph.names)]
            checks = [*facts, *(walk.check(one) for one in (*walk.checks, *limits))]
            kept = tuple(dict.fromkeys(one for one in checks if not one.holds))
            return Resolved(made, graph.names, symbols, kept, exact)
    raise Unresolved("what is asserted of sizes")


def _limits(graph: Graph, names: tuple[str, ...]) -> list[tuple[int, int]]:
    return OpenGraph(graph, names).limits


def _facts(symbols: Symbols, least: Mapping[str, int], exact: Mapping[int, Exact]) -> list[Check]:
    found = [one.check(f"s{index}") for index, one in exact.items()]
    return found + [Check(number, symbols.expanded(name), equal=False) for name, number in least.items()]


class _Block:
    """A region on its way: what each old leaf and node is now."""

    def __init__(self, leaves: Sequence[ValueType], known: Sequence[Elements | None]) -> None:
        self.types: list[tuple[ValueType, ...]] = [(type,) for type in leaves]
        self.values: list[list[Ref]] = [[Ref(i, 0, whole(t.dims))] for i, t in enumerate(leaves)]
        self.known: dict[tuple[int, int], Elements] = {
            (index, 0): one for index, one in enumerate(known) if one is not None
        }
        self.nodes: list[Node] = []

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
        count = math.prod(type.dims) if not any(is_symbolic(s) or s < 0 for s in type.dims) else _MOST + 1
        if count > _MOST:
            return None
        if all(entry < 0 for entry in ref.view):
            return found * count if len(found) == 1 else None
        shown = [entry for entry in ref.view if entry >= 0]
        plain = len(shown) == 1 or ref.view == whole(self.types[ref.node][ref.result].dims)
        return found if plain and len(found) == count else None


class _Walk:
    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self.checks: list[tuple[Formula, Formula, bool]] = []
        self.asserted: list[tuple[Formula, Formula, bool]] = []
        self.failed: Unresolved | None = None
        self.arithmetic = Arithmetic(symbols, self._at_least)
        symbols.least_of = lambda formula: self.require(0, formula, equal=False)

    # -- what is required

    def _at_least(self, formula: Formula, number: Formula) -> None:
        self.require(number, formula, equal=False)

    def require(self, left: Formula, right: Formula, equal: bool) -> None:
        """Say what must hold of sizes."""
        if left == right:
            return
        low, high = self.symbols.range(self.symbols.apply("-", right, left))
        if low >= 0 and not equal:
            return
        if (high is not None and high < 0) or (equal and low > 0):
            raise Unresolved("sizes that never fit each other")
        self.checks.append((left, right, equal))
        self.asserted.append((left, right, equal))

    def check(self, one: tuple[Formula, Formula, bool]) -> Check:
        left, right, equal = one
        return Check(self.symbols.expanded(left), self.symbols.expanded(right), equal)

    def learn(self, least: dict[str, int], exact: dict[int, Exact]) -> bool:
        """Add what is asserted to what is known; whether it is more."""
        halves = sum(one.formula is None for one in exact.values())
        kept = {f"s{index}" for index in range(self.symbols.count + halves)}
        more = False
        for left, right, equal in self.asserted:
            name, number = _bound(left, right)
            if not equal and name in kept and number > max(least.get(name, 0), 0):
                least[name] = number
                more = True
            if not equal:
                continue
            for zero, rest in ((left, right), (right, left)):
                shown = self.symbols.shown(rest)
                divided = zero == 0 and shown is not None and shown[0] == "%"
                found = _whole(shown, self.symbols.count) if divided and shown else None
                found = found or _same(self.symbols, left, right, exact)
                if found is not None and found[0] not in exact:
                    exact[found[0]] = found[1]
                    least.clear()
                    return True
        return more

    # -- regions

    def main(self, body: Region, given: Mapping[int, int]) -> Region:
        leaves = [_with(type, given) for type in (*body.params, *body.captures)]
        block = _Block(leaves, [None] * len(leaves))
        results = self._nodes(body, block, given)
        count = len(body.params)
        return Region(tuple(leaves[:count]), tuple(leaves[count:]), tuple(block.nodes), tuple(results))

    def _nodes(self, region: Region, block: _Block, given: Mapping[int, int]) -> list[Ref]:
        for node in region.nodes:
            block.values.append(self._node(block, node, given))
        return [self.ref(block, ref, given) for ref in region.results]

    def _node(self, block: _Block, node: Node, given: Mapping[int, int]) -> list[Ref]:
        """What a node is; where that is missing, what is asserted further on may say it the next time."""
        try:
            return _Step(self, block, node, given).run()
        except Unresolved as error:
            self.failed = self.failed or error
            return block.add(node._replace(results=_all(node.results, given)))

    def region(
        self,
        region: Region,
        params: Sequence[ValueType],
        captures: Sequence[ValueType],
        known: Sequence[Elements | None],
        given: Mapping[int, int],
    ) -> Region:
        """A region over these types."""
        block = _Block([*params, *captures], [*[None] * len(params), *known])
        results = self._nodes(region, block, given)
        return Region(tuple(params), tuple(captures), tuple(block.nodes), tuple(results))

    def ref(self, block: _Block, ref: Ref, given: Mapping[int, int]) -> Ref:
        """An operand in the new graph."""
        source = block.values[ref.node][ref.result]
        view = tuple(
            entry
            if entry >= 0 or spread_size(entry) == DYNAMIC
            else spread(evaluate(spread_size(entry), given))
            for entry in ref.view
        )
        return source._replace(view=compose(view, source.view))


def _all(types: Sequence[ValueType], given: Mapping[int, int]) -> tuple[ValueType, ...]:
    return tuple(_with(type, given) for type in types)


def _with(type: ValueType, given: Mapping[int, int]) -> ValueType:
    return type if type.dims is None else type._replace(dims=tuple(evaluate(s, given) for s in type.dims))


def _bound(left: Formula, right: Formula) -> tuple[str, int]:
    """A name and what it is at least, of ``left <= right``."""
    terms = polynomial(apply("-", right, left)) or {}
    names = [one for one in terms if one]
    if len(names) == 1 and len(names[0]) == 1 and terms[names[0]] == 1:
        return names[0][0], -terms.get((), 0)
    return "", 0


def _same(
    symbols: Symbols, left: Formula, right: Formula, exact: Mapping[int, Exact]
) -> tuple[int, Exact] | None:
    """A symbol of an argument that is made of other ones, the last of those that may be."""
    found: list[tuple[int, Exact]] = []
    for one, other in ((left, right), (right, left)):
        index = int(one[1:]) if isinstance(one, str) else symbols.count
        whole = symbols.expanded(other)
        parts = {int(name[1:]) for name in symbols_in(whole)}
        taken = {
            name
            for known in exact.values()
            if known.formula is not None
            for name in symbols_in(known.formula)
        }
        if index < symbols.count and index not in exact and not parts & {index, *exact} and one not in taken:
            found.append((index, Exact(formula=whole)))
    return max(found, key=lambda one: one[0], default=None)


def _whole(shown: Sequence[Formula], count: int) -> tuple[int, Exact] | None:
    """The symbol of an argument that leaves no rest, of ``(s + k) % m``."""
    _, of, by = shown
    terms = polynomial(of) or {}
    names = [one for one in terms if one]
    if not isinstance(by, int) or by < 2 or len(names) != 1 or len(names[0]) != 1 or terms[names[0]] != 1:
        return None
    index = int(names[0][0][1:])
    return (index, Exact(by, terms.get((), 0))) if index < count else None


class _Step:
    """One node."""

    def __init__(self, walk: _Walk, block: _Block, node: Node, given: Mapping[int, int]) -> None:
        self.walk, self.block, self.node, self.given = walk, block, node, given
        self.symbols = walk.symbols
        self.operands = [walk.ref(block, ref, given) for ref in node.operands]

    def run(self) -> list[Ref]:
        """What its results are in the new graph."""
        handler = getattr(self, f"_op_{self.node.op}", None) if "." not in self.node.op else None
        if self.node.op == "constant":
            return self._literal()
        if handler is not None:
            return handler()
        if is_elementwise(self.node):
            return self._elementwise()
        if self.node.regions:
            return self._with_regions()
        return self._plain()

    # -- parts

    def _dims(self, position: int) -> Dims:
        return self.block.viewed(self.operands[position]).dims or ()

    def _numbers(self, position: int) -> Elements:
        found = self.block.elements(self.operands[position])
        if found is None:
            raise Unresolved(f"{self.node.op} of sizes that depend on data")
        return found

    def _sizes(self, position: int) -> Dims:
        return tuple(self.symbols.size(one) for one in self._numbers(position))

    def _stated(self, found: Sequence[Dims]) -> tuple[ValueType, ...]:
        """The result types: what the program states, and what was found."""
        types: list[ValueType] = []
        for type, dims in zip(self.node.results, found, strict=True):
            stated = tuple(evaluate(size, self.given) for size in type.dims or ())
            if len(stated) != len(dims):
                raise Unresolved(f"the rank of {self.node.op}")
            for mine, size in zip(stated, dims, strict=True):
                if mine not in (DYNAMIC, size):
                    self._equal(mine, size)
            types.append(type._replace(dims=tuple(dims)))
        return tuple(types)

    def _equal(self, one: int, other: int) -> None:
        self.walk.require(self.symbols.formula(one), self.symbols.formula(other), equal=True)

    def _add(self, node: Node) -> list[Ref]:
        for ref in node.operands:
            if any(entry < 0 and spread_size(entry) == DYNAMIC for entry in ref.view):
                raise Unresolved("a value repeated to a size that nothing shows")
        return self.block.add(node)

    def _know(self, refs: list[Ref], found: Elements | None) -> list[Ref]:
        if found is not None:
            self.block.known[refs[0].node, refs[0].result] = found
        return refs

    # -- nodes

    def _literal(self) -> list[Ref]:
        type = self.node.results[0]
        dims = type.dims or ()
        refs = self._add(self.node)
        count = math.prod(dims)
        few = not any(is_symbolic(size) or size < 0 for size in dims) and count <= _MOST
        return self._know(refs, read_constant(self.node.attributes, type.element, count) if few else None)

    def _elementwise(self) -> list[Ref]:
        shown = [self.block.viewed(ref).dims or () for ref in self.operands]
        dims = tuple(
            next((own[axis] for own in shown if own[axis] != DYNAMIC), evaluate(size, self.given))
            for axis, size in enumerate(self.node.results[0].dims or ())
        )
        if DYNAMIC in dims:
            raise Unresolved(f"the shape of {self.node.op}")
        operands: list[Ref] = []
        for ref, own in zip(self.operands, shown, strict=True):
            for mine, size in zip(own, dims, strict=True):
                if mine not in (DYNAMIC, size):
                    self._equal(mine, size)
            operands.append(_filled(ref, dims))
        node = self.node._replace(operands=tuple(operands), results=self._stated([dims]))
        refs = self._add(node)
        if self.node.op not in _COMBINED:
            return refs
        known = [self.block.elements(ref) for ref in operands]
        element = node.results[0].element
        if any(one is None for one in known):
            return refs
        return self._know(
            refs,
            self.walk.arithmetic.compute(
                self.node.op, self.node.attributes, element, [one for one in known if one is not None]
            ),
        )

    def _plain(self) -> list[Ref]:
        """An operation whose results follow from the shapes of its operands."""
        shown = [self.block.viewed(ref).dims or () for ref in self.operands]
        structured = is_structured(self.node)
        operands = list(self.operands)
        if structured:
            count = 2 if self.node.op == "dot_general" else len(self.node.results)
            space = tuple(
                next((d[axis] for d in shown[:count] if d[axis] != DYNAMIC), DYNAMIC)
                for axis in range(len(shown[0]))
            )
            operands[:count] = [_filled(ref, space) for ref in operands[:count]]
            shown[:count] = [space] * count
        results = self.node.results
        if structured:
            reduced = Site(self.symbols, self.node, shown).ints("dimensions")
            kept = tuple(size for axis, size in enumerate(shown[0]) if axis not in reduced)
            results = self._stated([kept] * len(results))
        elif any(DYNAMIC in (type.dims or ()) for type in results) or any(DYNAMIC in dims for dims in shown):
            results = self._stated(shapes(Site(self.symbols, self.node, shown)))
        else:
            results = _all(results, self.given)
        attributes = (
            re.sub(
                r"(?<![\w.])((?:\d+\*)?s\d+(?:\*s\d+)*)\b",
                lambda m: size_text(evaluate(read_size(m[1]), self.given)),
                self.node.attributes,
            )
            if self.node.op in ("slice", "gather", "dynamic_slice")
            else self.node.attributes
        )
        return self._add(self.node._replace(operands=tuple(operands), results=results, attributes=attributes))

    def _with_regions(self) -> list[Ref]:
        explicit, captured = split_captures(self.node)
        count = len(explicit)
        own, rest = self.operands[:count], self.operands[count:]
        carried = self.node.op == "while"
        regions: list[Region] = []
        for region, refs in zip(self.node.regions, captured, strict=True):
            mine, rest = rest[: len(refs)], rest[len(refs) :]
            params = [self.block.viewed(ref) for ref in own] if carried else list(region.params)
            regions.append(
                self.walk.region(
                    region,
                    params,
                    [self.block.viewed(ref) for ref in mine],
                    [self.block.elements(ref) for ref in mine],
                    self.given,
                )
            )
        if carried:
            found = [self.block.viewed(ref).dims or () for ref in own]
        elif self.node.op in ("if", "case"):
            found = [regions[0].viewed_type(ref).dims or () for ref in regions[0].results]
        elif is_structured(self.node):
            return self._reduced(tuple(regions))
        elif any(DYNAMIC in (type.dims or ()) for type in self.node.results):
            site = Site(self.symbols, self.node, [self.block.viewed(ref).dims or () for ref in own])
            found = shapes(site)
        else:
            found = [tuple(evaluate(s, self.given) for s in type.dims or ()) for type in self.node.results]
        for region in regions[1:] if self.node.op in ("if", "case") else regions[1:] if carried else []:
            for ref, dims in zip(region.results, found, strict=True):
                for one, other in zip(region.viewed_type(ref).dims or (), dims, strict=True):
                    if one != other:
                        self._equal(one, other)
        node = self.node._replace(operands=tuple(self.operands), results=self._stated(found))
        return self._add(node._replace(regions=tuple(regions)))

    def _reduced(self, regions: tuple[Region, ...]) -> list[Ref]:
        self.node = self.node._replace(regions=regions)
        return self._plain()

    # -- operations on sizes

    def _op_get_dimension_size(self) -> list[Ref]:
        size = self._dims(0)[Site(self.symbols, self.node, ()).number("dimension")]
        (type,) = self.node.results
        if is_symbolic(size):
            refs = self._add(Node("extent", size_text(size), (), (), (type,)))
        else:
            content = size.to_bytes(4, "little").hex()
            refs = self._add(Node("constant", content, (), (), (type,)))
        return self._know(refs, [self.symbols.formula(size)])

    def _op_custom_call(self) -> list[Ref]:
        if f'"{ASSERTED}"' not in self.node.attributes:
            return self._plain()
        self._require(self.node.operands[1])
        return [self.operands[0]]

    def _require(self, ref: Ref) -> None:
        node = self._made(self.walk.ref(self.block, ref, self.given))
        if node is not None and node.op == "and":
            for operand in node.operands:
                self._required(operand)
            return
        self._required(self.walk.ref(self.block, ref, self.given))

    def _required(self, ref: Ref) -> None:
        node = self._made(ref)
        if node is not None and node.op == "and":
            for operand in node.operands:
                self._required(operand)
            return
        direction = node.attributes.partition(", ")[0] if node is not None and node.op == "compare" else ""
        if node is not None and direction in ("EQ", "LE", "LT"):
            left, right = (self.block.elements(operand) for operand in node.operands)
            if left is not None and right is not None:
                less = self.symbols.apply("+", left[0], int(direction == "LT"))
                self.walk.require(less, right[0], direction == "EQ")
                return
        found = self.block.elements(ref)
        if found is None:
            raise Unresolved("an assertion that depends on data")
        self.walk.require(1, found[0], equal=True)

    def _made(self, ref: Ref) -> Node | None:
        first = len(self.block.types) - len(self.block.nodes)
        return self.block.nodes[ref.node - first] if ref.node >= first else None

    def _op_concatenate(self) -> list[Ref]:
        known = [self.block.elements(ref) for ref in self.operands]
        refs = self._plain()
        if len(self._dims(0)) != 1 or any(one is None for one in known):
            return refs
        return self._know(refs, [element for one in known if one is not None for element in one])

    def _op_reshape(self) -> list[Ref]:
        known = self.block.elements(self.operands[0])
        return self._know(
            self._reshaped(tuple(evaluate(s, self.given) for s in self.node.results[0].dims or ())), known
        )

    def _op_dynamic_reshape(self) -> list[Ref]:
        return self._reshaped(self._sizes(1))

    def _reshaped(self, dims: Dims) -> list[Ref]:
        (type,) = self._stated([dims])
        left, right = (self._count(one) for one in (self._dims(0), dims))
        self.walk.require(left, right, equal=True)
        return self._add(Node("reshape", "", (self.operands[0],), (), (type,)))

    def _count(self, dims: Dims) -> Formula:
        total: Formula = 1
        for size in dims:
            total = self.symbols.apply("*", total, self.symbols.formula(size))
        return total

    def _op_slice(self) -> list[Ref]:
        known = self.block.elements(self.operands[0])
        refs = self._plain()
        if known is None or len(self._dims(0)) != 1:
            return refs
        site = Site(self.symbols, self.node, ())
        start, limit, step = (site.ints(name)[0] for name in ("start_indices", "limit_indices", "strides"))
        return self._know(refs, known[start:limit:step])

    def _op_dynamic_broadcast_in_dim(self) -> list[Ref]:
        dims = self._sizes(1)
        (type,) = self._stated([dims])
        where = Site(self.symbols, self.node, ()).ints("broadcast_dimensions")
        source = self.operands[0]
        for axis, target in enumerate(where):
            size = self._dims(0)[axis]
            if size not in (1, dims[target]):
                if self.symbols.range(self.symbols.formula(size))[0] < 2:
                    raise Unresolved("an axis that may be repeated")
                self._equal(size, dims[target])
        return [source._replace(view=broadcast_in_dim(source.view, tuple(where), type.dims or ()))]

    def _op_dynamic_iota(self) -> list[Ref]:
        dims = self._sizes(0)
        (type,) = self._stated([dims])
        axis = Site(self.symbols, self.node, ()).number("iota_dimension")
        (along,) = self._add(Node("iota", "", (), (), (type._replace(dims=(dims[axis],)),)))
        return [along._replace(view=broadcast_in_dim(along.view, (axis,), dims))]

    def _op_dynamic_pad(self) -> list[Ref]:
        low, high, interior = (self._numbers(position) for position in (2, 3, 4))
        sizes = [padded(self.symbols, *one) for one in zip(self._dims(0), low, high, interior, strict=True)]
        names = ("edge_padding_low", "edge_padding_high", "interior_padding")
        text = ", ".join(
            f"{name} = {self._list(one)}" for name, one in zip(names, (low, high, interior), strict=True)
        )
        node = Node("pad", text, tuple(self.operands[:2]), (), self._stated([tuple(sizes)]))
        return self._add(node)

    def _list(self, numbers: Sequence[Formula]) -> str:
        """Numbers as an attribute; open ones as sizes, which none is below 0."""
        if not numbers:
            return "array<i64>"
        parts: list[str] = []
        for one in numbers:
            if not isinstance(one, int):
                self.walk.require(0, one, equal=False)
            parts.append(str(one) if isinstance(one, int) else size_text(self.symbols.size(one)))
        return f"array<i64: {', '.join(parts)}>"

    def _op_real_dynamic_slice(self) -> list[Ref]:
        starts, limits, strides = (self._numbers(position) for position in (1, 2, 3))
        sizes: list[int] = []
        a = self.symbols.apply
        for size, start, limit, stride in zip(self._dims(0), starts, limits, strides, strict=True):
            if not isinstance(stride, int) or stride < 1:
                raise Unresolved("a stride that is computed")
            self.walk.require(0, start, equal=False)
            self.walk.require(start, limit, equal=False)
            self.walk.require(limit, self.symbols.formula(size), equal=False)
            sizes.append(self.symbols.size(a("ceildiv", a("-", limit, start), stride)))
        names = ("start_indices", "limit_indices", "strides")
        text = ", ".join(
            f"{name} = {self._list(one)}" for name, one in zip(names, (starts, limits, strides), strict=True)
        )
        return self._add(Node("slice", text, (self.operands[0],), (), self._stated([tuple(sizes)])))

    def _op_dynamic_gather(self) -> list[Ref]:
        slices = self._sizes(2)
        shown = [self._dims(0), self._dims(1)]
        for part, size in zip(slices, shown[0], strict=True):
            self.walk.require(self.symbols.formula(part), self.symbols.formula(size), equal=False)
        site = Site(self.symbols, self.node, shown)
        batching = site.ints("operand_batching_dims"), site.ints("start_indices_batching_dims")
        for one, other in zip(*batching, strict=True):
            if shown[0][one] != shown[1][other]:
                self._equal(shown[0][one], shown[1][other])
        dims = gathered(site, slices)
        text = f"{self.node.attributes}, slice_sizes = array<i64: {', '.join(map(size_text, slices))}>"
        node = Node("gather", text, tuple(self.operands[:2]), (), self._stated([dims]))
        return self._add(node)

    def _op_fft(self) -> list[Ref]:
        """The axes that it transforms have the lengths that it says."""
        lengths = Site(self.symbols, self.node, ()).ints("fft_length")
        if "IRFFT" in self.node.attributes and lengths:
            lengths[-1] = lengths[-1] // 2 + 1
        dims = self._dims(0)
        for size, length in zip(dims[len(dims) - len(lengths) :], lengths, strict=True):
            if size != length:
                self._equal(size, length)
        return self._plain()

    def _op_select_and_scatter(self) -> list[Ref]:
        """There is a source for each window."""
        shown = [self._dims(0), self._dims(1)]
        site = Site(self.symbols, self.node, shown)
        rank = len(shown[0])
        strides, wide = site.ints("window_strides", rank, 1), site.ints("window_dimensions", rank, 1)
        parts = (shown[0], shown[1], wide, strides, site.pairs("padding", rank))
        for size, source, window, stride, padding in zip(*parts, strict=True):
            self._equal(windows(self.symbols, size, window, stride, (1, 1), padding), source)
        return self._plain()

    def _op_convolution(self) -> list[Ref]:
        self._groups()
        return self._plain()

    def _groups(self) -> None:
        """Groups are equal parts of what they divide."""
        site = Site(self.symbols, self.node, [self._dims(0), self._dims(1)])
        image, kernel, _ = site.labels()
        features, batches = (site.number(f"{name}_group_count", 1) for name in ("feature", "batch"))
        given = dict(zip(image, self._dims(0), strict=True))
        weights = dict(zip(kernel, self._dims(1), strict=True))
        parts = (
            (given["b"], batches),
            (given["f"], features),
            (weights["o"], features),
            (weights["o"], batches),
        )
        for size, count in parts:
            if count != 1:
                rest = self.symbols.apply("%", self.symbols.formula(size), count)
                self.walk.require(rest, 0, equal=True)
        whole = self.symbols.apply("*", self.symbols.formula(weights["i"]), features)
        self.walk.require(whole, self.symbols.formula(given["f"]), equal=True)

    def _op_dynamic_conv(self) -> list[Ref]:
        flat = self._numbers(2)
        self._groups()
        if not all(isinstance(one, int) for one in flat):
            raise Unresolved("padding that is computed of open sizes")
        rows = list(zip(flat[::2], flat[1::2], strict=True))
        dims = convolved(Site(self.symbols, self.node, [self._dims(0), self._dims(1)]), rows)
        inner = ", ".join(f"[{low}, {high}]" for low, high in rows)
        padding = f"padding = dense<{f'[{inner}]' if rows else ''}> : tensor<{len(rows)}x2xi64>"
        text = f"{self.node.attributes}, {padding}"
        return self._add(Node("convolution", text, tuple(self.operands[:2]), (), self._stated([dims])))

    def _op_set_dimension_size(self) -> list[Ref]:
        """The first of an axis, as many as it says."""
        axis = Site(self.symbols, self.node, ()).number("dimension")
        (wanted,) = self._numbers(1)
        dims = list(self._dims(0))
        self.walk.require(0, wanted, equal=False)
        self.walk.require(wanted, self.symbols.formula(dims[axis]), equal=False)
        dims[axis] = self.symbols.size(wanted)
        zeros, ones = (f"array<i64: {', '.join([one] * len(dims))}>" for one in "01")
        text = f"start_indices = {zeros}, limit_indices = array<i64: {', '.join(map(size_text, dims))}>"
        node = Node(
            "slice", f"{text}, strides = {ones}", (self.operands[0],), (), self._stated([tuple(dims)])
        )
        return self._add(node)


def _filled(ref: Ref, dims: Dims) -> Ref:
    """A view whose open repetitions have these sizes."""
    entries = tuple(
        spread(size) if entry < 0 and spread_size(entry) == DYNAMIC else entry
        for entry, size in zip(ref.view, dims, strict=True)
    )
    return ref._replace(view=entries)
