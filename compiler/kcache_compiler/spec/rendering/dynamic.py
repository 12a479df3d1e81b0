"""Rendering of a graph at a sample of its symbolic sizes.

Values that are computed from sizes must not be folded at the sample. So ``main`` has further arguments, i64
scalars: one for each size of an ``extent``, and one that is 0 at run time and is added to constant indices,
which would be clamped to the sample otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kcache_compiler.shapes.monomial import read_size
from kcache_compiler.spec.dynamic_graph import DynamicGraph, substitute
from kcache_compiler.spec.graph.native import mlir_element, mlir_type
from kcache_compiler.spec.graph.nodes import Graph, Node, Region, ValueType
from kcache_compiler.spec.rendering.stablehlo import Body, LinalgRenderer, StablehloRenderer

#: First operand that is an index, of operations that clamp indices.
_CLAMPED = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}

#: The same of linalg programs.
_INDEXED = {"tensor.extract": 1, "tensor.insert": 2, "tensor.extract_slice": 1, "tensor.insert_slice": 2}
_NEVER = 1 << 30
_INDEX = ValueType("index", None)

_NARROW = frozenset({"i8", "i16", "ui8", "ui16"})
#: Operations that divide by an element count.
_COUNTING = frozenset({"batch_norm_grad", "batch_norm_training"})


def extent_sizes(graph: DynamicGraph) -> tuple[int, ...]:
    """Return the sizes that are last arguments of ``main``; 0 stands for the argument that is 0."""
    sizes: dict[int, None] = {}
    for node in _nodes(graph.graph.body):
        if node.op == "extent":
            sizes[read_extent(node.attributes)[0]] = None
        elif node.op in _CLAMPED or node.op in _COUNTING or node.operands[_INDEXED.get(node.op, _NEVER) :]:
            sizes[0] = None
    return tuple(sizes)


def read_extent(attributes: str) -> tuple[int, bool, bool]:
    """Return the size of an extent, whether it is less one, and whether it is inverted."""
    inverse = attributes.startswith("1/")
    size, less, _ = attributes.removeprefix("1/").strip("()").partition("-")
    return read_size(size), bool(less), inverse


def render_sample(graph: DynamicGraph, values: Mapping[int, int]) -> str:
    """Return the module text at these sizes of all symbols."""
    sample = substitute(graph.graph, values)
    if sample.family == "linalg":
        return render_linalg(sample, hides_indices=bool(extent_sizes(graph)))
    return SampleRenderer(extent_sizes(graph)).module(sample.body)


def render_linalg(graph: Graph, hides_indices: bool) -> str:
    """Return the module text of a linalg program; ``hides_indices``: ``main`` takes a 0 that is added to
    indices.
    """
    return _SampleLinalgRenderer(hides_indices).module(graph.body)


class _SampleLinalgRenderer(LinalgRenderer):
    """Adds an argument that is 0 to indices, so that no pass folds them with the sizes of the sample."""

    def __init__(self, hides_indices: bool) -> None:
        super().__init__()
        self._hides_indices = hides_indices

    def _more_arguments(self, body: Region) -> list[str]:
        return ["%n0: tensor<i64>"] if self._hides_indices else []

    def _preamble(self) -> list[str]:
        if not self._hides_indices:
            return []
        return [
            '    %n0s = "tensor.extract"(%n0) : (tensor<i64>) -> i64',
            '    %n0i = "arith.index_cast"(%n0s) : (i64) -> index',
        ]

    def _emit(
        self,
        body: Body,
        op: str,
        operands: Sequence[tuple[str, ValueType]],
        results: Sequence[ValueType],
        attributes: str = "",
        regions: Sequence[tuple[Region, Sequence[str]]] = (),
    ) -> list[str]:
        first = _INDEXED.get(op, len(operands))
        operands = [*operands[:first], *(self._hidden(body, *index) for index in operands[first:])]
        return super()._emit(body, op, operands, results, attributes, regions)

    def _hidden(self, body: Body, name: str, type: ValueType) -> tuple[str, ValueType]:
        (sum_,) = super()._emit(body, "arith.addi", [(name, type), ("%n0i", _INDEX)], [_INDEX])
        return sum_, _INDEX


class SampleRenderer(StablehloRenderer):
    """Renders one module of a graph with static sizes, except in extents; an instance is used once."""

    def __init__(self, extents: Sequence[int]) -> None:
        super().__init__()
        self._extents = extents
        self._extent_names: dict[tuple[str, ValueType], str] = {}

    def _more_arguments(self, body: Region) -> list[str]:
        keys = {(node.attributes, node.results[0]): None for node in _nodes(body) if node.op == "extent"}
        self._extent_names = {key: f"%e{number}" for number, key in enumerate(keys)}
        return [f"%n{position}: tensor<i64>" for position in range(len(self._extents))]

    def _preamble(self) -> list[str]:
        return [line for key, name in self._extent_names.items() for line in self._extent(name, *key)]

    def _extent(self, name: str, attributes: str, type: ValueType) -> list[str]:
        """Operations that compute an extent: in f64, then rounded to its type; integers directly."""
        size, less, inverse = read_extent(attributes)
        source, kind = f"%n{self._extents.index(size)}", "tensor<i64>"
        lines: list[str] = []

        def step(op: str, operands: str, kinds: str, to: str, result: str) -> None:
            lines.append(f'    {result} = "stablehlo.{op}"({operands}) : ({kinds}) -> {to}')

        if less:
            literal = '"stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>'
            lines.append(f"    {name}m = {literal}")
            step("subtract", f"{source}, {name}m", f"{kind}, {kind}", kind, f"{name}l")
            source = f"{name}l"
        if inverse or mlir_element(type.element)[0] in "fbc":
            step("convert", source, kind, "tensor<f64>", f"{name}f")
            source, kind = f"{name}f", "tensor<f64>"
        if inverse:
            literal = '"stablehlo.constant"() {value = dense<1.0> : tensor<f64>} : () -> tensor<f64>'
            lines.append(f"    {name}o = {literal}")
            step("divide", f"{name}o, {source}", f"{kind}, {kind}", kind, f"{name}i")
            source = f"{name}i"
        step("convert", source, kind, mlir_type(type), name)
        return lines

    def _node(self, body: Body, node: Node) -> list[str]:
        if node.op == "extent":
            return [self._extent_names[node.attributes, node.results[0]]]
        return super()._node(body, node)

    def _emit(
        self,
        body: Body,
        op: str,
        operands: Sequence[tuple[str, ValueType]],
        results: Sequence[ValueType],
        attributes: str = "",
        regions: Sequence[tuple[Region, Sequence[str]]] = (),
    ) -> list[str]:
        first = _CLAMPED.get(op.removeprefix("stablehlo."))
        if first is not None:
            operands = [*operands[:first], *(self._hidden(body, *index) for index in operands[first:])]
        return super()._emit(body, op, operands, results, attributes, regions)

    def _hidden(self, body: Body, name: str, type: ValueType) -> tuple[str, ValueType]:
        """Indices plus the argument that is 0, in a type that holds sizes."""
        if type.element in _NARROW:
            wide = type._replace(element="i32")
            (name,) = super()._emit(body, "stablehlo.convert", [(name, type)], [wide])
            type = wide
        zero = f"%n{self._extents.index(0)}"
        scalar = ValueType(type.element, ())
        (zero,) = super()._emit(body, "stablehlo.convert", [(zero, ValueType("i64", ()))], [scalar])
        attributes = "broadcast_dimensions = array<i64>"
        if type.dims:
            (zero,) = super()._emit(body, "stablehlo.broadcast_in_dim", [(zero, scalar)], [type], attributes)
        (sum_,) = super()._emit(body, "stablehlo.add", [(name, type), (zero, type)], [type])
        return sum_, type


def _nodes(region: Region) -> list[Node]:
    nodes: list[Node] = []
    for node in region.nodes:
        nodes.append(node)
        for inner in node.regions:
            nodes += _nodes(inner)
    return nodes
