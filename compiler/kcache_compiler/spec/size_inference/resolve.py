"""The graph of a program that computes sizes, with all sizes stated: numbers, or monomials of symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula, apply, symbols_in
from kcache_compiler.shapes.monomial import evaluate
from kcache_compiler.shapes.polynomial import formula_of, polynomial
from kcache_compiler.spec.dynamic_samples import OpenGraph
from kcache_compiler.spec.graph.nodes import (
    DYNAMIC,
    Graph,
    Node,
    Ref,
    Region,
    ValueType,
    compose,
    spread,
    spread_size,
)
from kcache_compiler.spec.size_inference.operations import Operation
from kcache_compiler.spec.size_inference.region import Block, stated, stated_all
from kcache_compiler.spec.size_inference.scalars import Arithmetic, Elements
from kcache_compiler.spec.size_inference.symbols import Exact, Symbols, Unresolved

#: Times that a graph is walked, each of which may learn something of a size.
_ROUNDS = 24


@dataclass(frozen=True)
class Resolved:
    """``graph`` has the symbols of ``symbols``; ``checks`` are over the symbols of the arguments."""

    graph: Graph
    names: tuple[str, ...]
    symbols: Symbols
    checks: tuple[Check, ...]
    #: Checks that do not hold of samples, where there is room instead.
    pinned: tuple[Check, ...]
    #: What is known of symbols of arguments.
    exact: Mapping[int, Exact]


def resolve(graph: OpenGraph, plainly: bool = False) -> Resolved:
    """State all sizes; ``plainly``: numbers of windows that are picked from as ``rules.windows`` says. Raises
    ``Unresolved``.
    """
    least: dict[str, int] = {}
    exact: dict[int, Exact] = {}
    for _ in range(_ROUNDS):
        symbols = Symbols(len(graph.names), least, exact)
        walk = Walk(symbols, plainly)
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
            pinned = tuple(dict.fromkeys(map(walk.check, walk.pinned)))
            return Resolved(made, graph.names, symbols, kept, pinned, exact)
    raise Unresolved("what is asserted of sizes")


def _limits(graph: Graph, names: tuple[str, ...]) -> list[tuple[int, int]]:
    return OpenGraph(graph, names).limits


def _facts(symbols: Symbols, least: Mapping[str, int], exact: Mapping[int, Exact]) -> list[Check]:
    found = [one.check(f"s{index}") for index, one in exact.items()]
    return found + [Check(number, symbols.expanded(name), equal=False) for name, number in least.items()]


class Walk:
    """One walk over the graph: what it makes, and what it learns of sizes on the way."""

    def __init__(self, symbols: Symbols, plainly: bool) -> None:
        self.symbols = symbols
        self.plainly = plainly
        self.checks: list[tuple[Formula, Formula, bool]] = []
        self.asserted: list[tuple[Formula, Formula, bool]] = []
        self.pinned: list[tuple[Formula, Formula, bool]] = []
        self.failed: Unresolved | None = None
        self.arithmetic = Arithmetic(symbols, self._at_least)
        symbols.least_of = lambda formula: self.require(0, formula, equal=False)

    # -- what is required

    def _at_least(self, formula: Formula, number: Formula) -> None:
        self.require(number, formula, equal=False)

    def require(self, left: Formula, right: Formula, equal: bool) -> None:
        """Say what must hold of sizes."""
        if self._open(left, right, equal):
            self.checks.append((left, right, equal))
            self.asserted.append((left, right, equal))

    def pin(self, left: Formula, right: Formula, equal: bool) -> None:
        """Say what must hold when the kernel runs; samples are not chosen by it."""
        if self._open(left, right, equal):
            self.pinned.append((left, right, equal))

    def _open(self, left: Formula, right: Formula, equal: bool) -> bool:
        """Whether it holds of some sizes and not of others."""
        apart = self.symbols.apply("-", right, left)
        if self.symbols.plain(apart) == 0:
            return False
        for low, high in map(self.symbols.range, (apart, self.symbols.plain(apart))):
            if low >= 0 and not equal:
                return False
            if (high is not None and high < 0) or (equal and low > 0):
                raise Unresolved("sizes that never fit each other")
        return True

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
        leaves = [stated(type, given) for type in (*body.params, *body.captures)]
        block = Block(leaves, [None] * len(leaves))
        results = self._nodes(body, block, given)
        count = len(body.params)
        return Region(tuple(leaves[:count]), tuple(leaves[count:]), tuple(block.nodes), tuple(results))

    def _nodes(self, region: Region, block: Block, given: Mapping[int, int]) -> list[Ref]:
        for node in region.nodes:
            block.values.append(self._node(block, node, given))
        return [self.ref(block, ref, given) for ref in region.results]

    def _node(self, block: Block, node: Node, given: Mapping[int, int]) -> list[Ref]:
        """What a node is; where that is missing, what is asserted further on may say it the next time."""
        try:
            return Operation(self, block, node, given).run()
        except Unresolved as error:
            self.failed = self.failed or error
            return block.add(node._replace(results=stated_all(node.results, given)))

    def region(
        self,
        region: Region,
        params: Sequence[ValueType],
        captures: Sequence[ValueType],
        known: Sequence[Elements | None],
        given: Mapping[int, int],
    ) -> Region:
        """A region over these types."""
        block = Block([*params, *captures], [*[None] * len(params), *known])
        results = self._nodes(region, block, given)
        return Region(tuple(params), tuple(captures), tuple(block.nodes), tuple(results))

    def ref(self, block: Block, ref: Ref, given: Mapping[int, int]) -> Ref:
        """An operand in the new graph."""
        source = block.values[ref.node][ref.result]
        view = tuple(
            entry
            if entry >= 0 or spread_size(entry) == DYNAMIC
            else spread(evaluate(spread_size(entry), given))
            for entry in ref.view
        )
        return source._replace(view=compose(view, source.view))


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
    for index, other in _alone(symbols, left, right):
        whole = symbols.expanded(other)
        parts = {int(name[1:]) for name in symbols_in(whole)}
        taken = {
            name
            for known in exact.values()
            if known.formula is not None
            for name in symbols_in(known.formula)
        }
        free = index < symbols.count and index not in exact and f"s{index}" not in taken
        if free and not parts & {index, *exact}:
            found.append((index, Exact(formula=whole)))
    return max(found, key=lambda one: one[0], default=None)


def _alone(symbols: Symbols, left: Formula, right: Formula) -> list[tuple[int, Formula]]:
    """Symbols of arguments, by index, and what they are where both sides are equal."""
    terms = polynomial(apply("-", right, left)) or {}
    found: list[tuple[int, Formula]] = []
    for names, number in terms.items():
        others = [one for one in terms if one != names and names[0:1] and names[0] in one]
        if len(names) != 1 or abs(number) != 1 or others:
            continue
        rest = formula_of({one: -number * count for one, count in terms.items() if one != names})
        index = int(names[0][1:])
        if index < symbols.count:
            found.append((index, rest))
    for one, other in ((left, right), (right, left)):
        if isinstance(one, str) and int(one[1:]) < symbols.count:
            found.append((int(one[1:]), other))
    return found


def _whole(shown: Sequence[Formula], count: int) -> tuple[int, Exact] | None:
    """The symbol of an argument that leaves no rest, of ``(s + k) % m``."""
    _, of, by = shown
    terms = polynomial(of) or {}
    names = [one for one in terms if one]
    if not isinstance(by, int) or by < 2 or len(names) != 1 or len(names[0]) != 1 or terms[names[0]] != 1:
        return None
    index = int(names[0][0][1:])
    return (index, Exact(by, terms.get((), 0))) if index < count else None
