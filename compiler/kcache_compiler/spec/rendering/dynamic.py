"""StableHLO text of a graph at a sample of its open sizes.

What the program computes *from* sizes must not be folded at the sample, so it comes from arguments that
follow those of the program, i64 scalars, one for each size that some ``extent`` names; and one that is 0 at
run time, which hides constant indices from whoever would clamp them to the sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kcache_compiler.shapes.monomial import read_size
from kcache_compiler.spec.dynamic_samples import OpenGraph, substitute
from kcache_compiler.spec.graph.native_types import mlir_element, mlir_type
from kcache_compiler.spec.graph.nodes import Graph, Node, Region, ValueType
from kcache_compiler.spec.rendering.stablehlo import Body, LinalgRenderer, StablehloRenderer

#: Operand from which on an operation's operands are indices that are clamped to what they index.
_CLAMPED = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}

#: The same of linalg programs.
_PLACED = {"tensor.extract": 1, "tensor.insert": 2, "tensor.extract_slice": 1, "tensor.insert_slice": 2}
_NEVER = 1 << 30
_INDEX = ValueType("index", None)

_NARROW = frozenset({"i8", "i16", "ui8", "ui16"})
#: Operations that divide by a number of elements.
_COUNTING = frozenset({"batch_norm_grad", "batch_norm_training"})


def extent_sizes(graph: OpenGraph) -> tuple[int, ...]:
    """Return the sizes that ``main`` takes as its last arguments, in order; 0 where it takes a zero."""
    found: dict[int, None] = {}
    for node in _nodes(graph.graph.body):
        if node.op == "extent":
            found[read_extent(node.attributes)[0]] = None
        elif node.op in _CLAMPED or node.op in _COUNTING or node.operands[_PLACED.get(node.op, _NEVER) :]:
            found[0] = None
    return tuple(found)


def read_extent(attributes: str) -> tuple[int, bool, bool]:
    """Return the size that an extent's text names, whether it is one less, and whether that is inverted."""
    inverse = attributes.startswith("1/")
    size, less, _ = attributes.removeprefix("1/").strip("()").partition("-")
    return read_size(size), bool(less), inverse


def render_sample(graph: OpenGraph, values: Mapping[int, int]) -> str:
    """Return the module text at these sizes of all open symbols."""
    sample = substitute(graph.graph, values)
    if sample.family == "linalg":
        return render_places(sample, hides=bool(extent_sizes(graph)))
    return SampleRenderer(extent_sizes(graph)).module(sample.body)


def render_places(graph: Graph, hides: bool) -> str:
    """Return the module text of a linalg program; ``hides``: ``main`` takes a zero, which places have."""
    return _SampleLinalgRenderer(hides).module(graph.body)


class _SampleLinalgRenderer(LinalgRenderer):
    """The zero is added to places, which no pass then makes numbers that a sample's sizes hold."""

    def __init__(self, hides: bool) -> None:
        super().__init__()
        self._hides = hides

    def _more_arguments(self, body: Region) -> list[str]:
        return ["%n0: tensor<i64>"] if self._hides else []

    def _preamble(self) -> list[str]:
        if not self._hides:
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
        first = _PLACED.get(op, len(operands))
        operands = [*operands[:first], *(self._hidden(body, place) for place in operands[first:])]
        return super()._emit(body, op, operands, results, attributes, regions)

    def _hidden(self, body: Body, place: tuple[str, ValueType]) -> tuple[str, ValueType]:
        (moved,) = super()._emit(body, "arith.addi", [place, ("%n0i", _INDEX)], [_INDEX])
        return moved, _INDEX


class SampleRenderer(StablehloRenderer):
    """Renders one module; use once. Its graph has literal sizes, but for the texts of extents."""

    def __init__(self, extents: Sequence[int]) -> None:
        super().__init__()
        self._extents = extents
        self._made: dict[tuple[str, ValueType], str] = {}

    def _more_arguments(self, body: Region) -> list[str]:
        made = {(node.attributes, node.results[0]): None for node in _nodes(body) if node.op == "extent"}
        self._made = {key: f"%e{number}" for number, key in enumerate(made)}
        return [f"%n{position}: tensor<i64>" for position in range(len(self._extents))]

    def _preamble(self) -> list[str]:
        return [line for key, name in self._made.items() for line in self._extent(name, *key)]

    def _extent(self, name: str, attributes: str, type: ValueType) -> list[str]:
        """The size, or one less, or the inverse, in f64, then rounded to the type; integers directly."""
        size, less, inverse = read_extent(attributes)
        source, kind = f"%n{self._extents.index(size)}", "tensor<i64>"
        lines: list[str] = []

        def step(op: str, operands: str, kinds: str, to: str, result: str) -> None:
            lines.append(f'    {result} = "stablehlo.{op}"({operands}) : ({kinds}) -> {to}')

        if less:
            one = '"stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>'
            lines.append(f"    {name}m = {one}")
            step("subtract", f"{source}, {name}m", f"{kind}, {kind}", kind, f"{name}l")
            source = f"{name}l"
        if inverse or mlir_element(type.element)[0] in "fbc":
            step("convert", source, kind, "tensor<f64>", f"{name}f")
            source, kind = f"{name}f", "tensor<f64>"
        if inverse:
            one = '"stablehlo.constant"() {value = dense<1.0> : tensor<f64>} : () -> tensor<f64>'
            lines.append(f"    {name}o = {one}")
            step("divide", f"{name}o, {source}", f"{kind}, {kind}", kind, f"{name}i")
            source = f"{name}i"
        step("convert", source, kind, mlir_type(type), name)
        return lines

    def _node(self, body: Body, node: Node) -> list[str]:
        if node.op == "extent":
            return [self._made[node.attributes, node.results[0]]]
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
        """The same indices, plus a zero that is not known before the call, in a type that sizes fit."""
        if type.element in _NARROW:
            wide = type._replace(element="i32")
            (name,) = super()._emit(body, "stablehlo.convert", [(name, type)], [wide])
            type = wide
        zero = f"%n{self._extents.index(0)}"
        scalar = ValueType(type.element, ())
        (zero,) = super()._emit(body, "stablehlo.convert", [(zero, ValueType("i64", ()))], [scalar])
        where = "broadcast_dimensions = array<i64>"
        if type.dims:
            (zero,) = super()._emit(body, "stablehlo.broadcast_in_dim", [(zero, scalar)], [type], where)
        (moved,) = super()._emit(body, "stablehlo.add", [(name, type), (zero, type)], [type])
        return moved, type


def _nodes(region: Region) -> list[Node]:
    found: list[Node] = []
    for node in region.nodes:
        found.append(node)
        for inner in node.regions:
            found += _nodes(inner)
    return found
