"""Shape inference over a graph: every size becomes an integer or a monomial of symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kcache_compiler.shapes.arithmetic import Arithmetic, Elements
from kcache_compiler.shapes.formula import UnresolvedSize
from kcache_compiler.shapes.inferred_sizes import InferredSizes
from kcache_compiler.shapes.monomial import evaluate
from kcache_compiler.shapes.requirements import Facts, Requirements
from kcache_compiler.shapes.size_relations import Check
from kcache_compiler.shapes.symbols import SymbolTable
from kcache_compiler.spec.dynamic_graph import DynamicGraph, SizedGraph
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
from kcache_compiler.spec.shape_inference.block import Block, with_sizes, with_sizes_all
from kcache_compiler.spec.shape_inference.table import infer_node
from kcache_compiler.spec.size_limits import size_limits

#: Most runs over a graph, each of which learns a fact.
_MAX_ROUNDS = 24


def infer_sizes(graph: DynamicGraph, unclamped_windows: bool = False) -> SizedGraph:
    """Return the graph with all sizes stated, and their formulas and guards.

    ``unclamped_windows``: as ``shapes.shape_functions.window_count`` says, of ``select_and_scatter``. Raises
    ``UnresolvedSize`` if a size depends on data, or an operation has no shape function.
    """
    facts = Facts({}, {})
    for _ in range(_MAX_ROUNDS):
        inference = Inference(
            SymbolTable(len(graph.names), facts.lower_bounds, facts.exact), unclamped_windows
        )
        body = inference.run(graph.graph.body)
        if inference.requirements.learn(facts):
            continue
        if inference.failure is not None:
            raise inference.failure
        stated = DynamicGraph(Graph(graph.graph.family, graph.graph.numerics, body), graph.names)
        return SizedGraph(stated, _size_system(graph, stated, inference, facts))
    raise UnresolvedSize("facts that never end")


def _size_system(
    graph: DynamicGraph, stated: DynamicGraph, inference: Inference, facts: Facts
) -> InferredSizes:
    symbols, requirements = inference.symbols, inference.requirements
    limits = [
        Check(symbols.formula(a), symbols.formula(b), equal=False) for a, b in size_limits(stated.graph)
    ]
    guards = requirements.checks(facts, limits)
    run_time = requirements.run_time_checks
    if graph.graph.family == "linalg":
        expand = symbols.expand
        run_time = (*run_time, *(Check(expand(c.left), expand(c.right), c.equal) for c in limits))
    return InferredSizes(stated.sizes, symbols, guards, run_time, facts.exact)


class Inference:
    """One run over the graph: the region that it builds, and the requirements that it collects."""

    def __init__(self, symbols: SymbolTable, unclamped_windows: bool) -> None:
        self.symbols = symbols
        self.unclamped_windows = unclamped_windows
        self.requirements = Requirements(symbols)
        self.arithmetic = Arithmetic(
            symbols, lambda formula, bound: self.requirements.require(bound, formula, equal=False)
        )
        #: The first size that was not resolved: requirements further on may resolve it in the next run.
        self.failure: UnresolvedSize | None = None
        #: Sizes of the new graph for symbols of the old one, by index.
        self.replacements: Mapping[int, int] = {
            index: symbols.size(expansion)
            for index, expansion in enumerate(symbols.expansions[: symbols.argument_count])
            if expansion is not None
        }

    def run(self, body: Region) -> Region:
        """Return the body of the new graph."""
        leaves = [with_sizes(kind, self.replacements) for kind in (*body.params, *body.captures)]
        count = len(body.params)
        return self.region(body, leaves[:count], leaves[count:], [None] * len(body.captures))

    def region(
        self,
        region: Region,
        params: Sequence[ValueType],
        captures: Sequence[ValueType],
        known: Sequence[Elements | None],
    ) -> Region:
        """Return a region with these types of its leaves; ``known`` are elements of the captures."""
        block = Block([*params, *captures], [*[None] * len(params), *known])
        for node in region.nodes:
            block.values.append(self._node(block, node))
        results = tuple(self.ref(block, ref) for ref in region.results)
        return Region(tuple(params), tuple(captures), tuple(block.nodes), results)

    def _node(self, block: Block, node: Node) -> list[Ref]:
        try:
            return infer_node(self, block, node)
        except UnresolvedSize as error:
            self.failure = self.failure or error
            return block.add(node._replace(results=with_sizes_all(node.results, self.replacements)))

    def ref(self, block: Block, ref: Ref) -> Ref:
        """Return an operand of the old graph in the new one."""
        source = block.values[ref.node][ref.result]
        view = tuple(
            entry
            if entry >= 0 or spread_size(entry) == DYNAMIC
            else spread(evaluate(spread_size(entry), self.replacements))
            for entry in ref.view
        )
        return source._replace(view=compose(view, source.view))
