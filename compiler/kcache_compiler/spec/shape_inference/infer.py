"""Shape inference over a graph: every size becomes an integer or a monomial of symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kcache_compiler.shapes.arithmetic import Arithmetic, Elements
from kcache_compiler.shapes.formula import Check, UnresolvedSize
from kcache_compiler.shapes.inferred_sizes import InferredSizes
from kcache_compiler.shapes.monomial import evaluate
from kcache_compiler.shapes.requirements import Facts, Requirements
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
from kcache_compiler.spec.shape_inference import convolution, custom_calls, size_scalars, slices
from kcache_compiler.spec.shape_inference import dynamic_operations as dynamic
from kcache_compiler.spec.shape_inference.context import Block, NodeContext, with_sizes, with_sizes_all
from kcache_compiler.spec.shape_inference.generic import (
    BROADCAST_PREFIX,
    infer_any,
    infer_broadcasting,
    infer_constant,
)
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


Rule = Callable[[NodeContext], list[Ref]]

#: The rule of each operation that computes sizes, takes them as operands, or relates them.
RULES: dict[str, Rule] = {
    "arith.addi": size_scalars.infer_arithmetic,
    "arith.cmpi": size_scalars.infer_cmpi,
    "arith.constant": size_scalars.infer_arith_constant,
    "arith.divsi": size_scalars.infer_arithmetic,
    "arith.extsi": size_scalars.infer_sign_preserving_cast,
    "arith.extui": size_scalars.infer_extui,
    "arith.floordivsi": size_scalars.infer_floordivsi,
    "arith.index_cast": size_scalars.infer_sign_preserving_cast,
    "arith.maxsi": size_scalars.infer_arithmetic,
    "arith.minsi": size_scalars.infer_arithmetic,
    "arith.muli": size_scalars.infer_arithmetic,
    "arith.remsi": size_scalars.infer_arithmetic,
    "arith.select": size_scalars.infer_arithmetic,
    "arith.subi": size_scalars.infer_arithmetic,
    "arith.trunci": size_scalars.infer_sign_preserving_cast,
    "concatenate": dynamic.infer_concatenate,
    "constant": infer_constant,
    "convolution": convolution.infer_convolution,
    "custom_call": custom_calls.infer_custom_call,
    "dynamic_broadcast_in_dim": dynamic.infer_dynamic_broadcast_in_dim,
    "dynamic_conv": convolution.infer_dynamic_conv,
    "dynamic_gather": dynamic.infer_dynamic_gather,
    "dynamic_iota": dynamic.infer_dynamic_iota,
    "dynamic_pad": dynamic.infer_dynamic_pad,
    "dynamic_reshape": dynamic.infer_dynamic_reshape,
    "dynamic_slice": slices.infer_dynamic_slice,
    "dynamic_update_slice": slices.infer_dynamic_update_slice,
    "einsum": dynamic.infer_einsum,
    "fft": dynamic.infer_fft,
    "get_dimension_size": dynamic.infer_get_dimension_size,
    "get_tuple_element": size_scalars.infer_get_tuple_element,
    "real_dynamic_slice": slices.infer_real_dynamic_slice,
    "reshape": dynamic.infer_reshape,
    "select_and_scatter": dynamic.infer_select_and_scatter,
    "set_dimension_size": slices.infer_set_dimension_size,
    "shape.shape_of": size_scalars.infer_shape_of,
    "slice": slices.infer_slice,
    "tensor.dim": size_scalars.infer_tensor_dim,
    "tensor.from_elements": size_scalars.infer_from_elements,
    "tuple": size_scalars.infer_tuple,
    "unary_einsum": dynamic.infer_einsum,
}


def infer_node(inference: Inference, block: Block, node: Node) -> list[Ref]:
    """Return the results of a node in the new region; raises ``UnresolvedSize``."""
    context = NodeContext(inference, block, node)
    default = infer_broadcasting if node.op.startswith(BROADCAST_PREFIX) else infer_any
    results = RULES.get(node.op, default)(context)
    return slices.cut_to_stated_sizes(context, results)
