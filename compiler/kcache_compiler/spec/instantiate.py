"""Instantiation of a spec: sizes are substituted for symbols, and the graph is built again.

Building merges values that are equal at these sizes only, as canonicalization without erasure does:
``instantiate`` of a program's spec at the program's sizes *is* its static canonical graph. This law makes
erasure sound; tests check it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from kcache_compiler.shapes.monomial import evaluate, read_size, size_text
from kcache_compiler.spec.graph.builder import Builder, FinishedRegion
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.nodes import (
    Graph,
    Node,
    Ref,
    Region,
    ValueType,
    compose,
    spread,
    spread_size,
    unit_reshape,
    whole,
)
from kcache_compiler.spec.graph.operations import is_elementwise, is_structured
from kcache_compiler.spec.graph.reduction import ReductionInput, add_reduction
from kcache_compiler.spec.graph.reshape import reshape
from kcache_compiler.spec.importers.extents import extent_value
from kcache_compiler.spec.rendering.contraction import read_ints
from kcache_compiler.spec.rewrites.table import RewriteSite, reduce, simplify

#: Operations whose attributes contain erased sizes.
_SIZED = frozenset({"slice", "gather", "dynamic_slice"})
_SIZE = re.compile(r"(?<![\w.])(?:\d+\*)?s\d+(?:\*s\d+)*")

#: The value in the new graph of each result of each node of the spec.
_Values = list[list[Ref]]


def instantiate(graph: Graph, sizes: Mapping[int, int], constants: Sequence[bytes] | None = None) -> Graph:
    """Return the graph with these sizes for its symbols, by index; symbols that are not given stay.

    ``constants``: digests of the lifted constants, which order equal operands as they did in the program.
    Without them, lifted constants keep their order and become the last parameters of the body.
    """
    body = _Replay(graph.numerics, sizes).run(graph.body, constants)
    return Graph(graph.family, graph.numerics, body)


def evaluated_attributes(node: Node, sizes: Mapping[int, int]) -> str:
    """Return the attributes of a node that names sizes in them, at these sizes."""
    if node.op not in _SIZED:
        return node.attributes
    return _SIZE.sub(lambda m: size_text(evaluate(read_size(m[0]), sizes)), node.attributes)


def extent_content(attributes: str, element: str, sizes: Mapping[int, int]) -> str | None:
    """Return the constant content of an extent; None if a size in it is symbolic."""
    number = extent_value(attributes, dict(sizes))
    return None if number is None else Constant.number(number, element).content


def _distinct_names(digests: Sequence[bytes]) -> list[bytes]:
    """A distinct name of each constant: equal contents of two lifted constants are two weights."""
    names: dict[bytes, None] = {}
    for i, digest in enumerate(digests):
        names[hashlib.sha256(b"%d" % i + digest).digest() if digest in names else digest] = None
    return list(names)


class _Replay:
    """Builds the nodes of a spec again, with sizes for symbols."""

    def __init__(self, numerics: str, sizes: Mapping[int, int]) -> None:
        self.numerics = numerics
        self.sizes = sizes

    def run(self, body: Region, constants: Sequence[bytes] | None) -> Region:
        builder = Builder()
        params = [self._type(t) for t in body.params]
        captures = [self._type(t) for t in body.captures]
        values = [[builder.parameter(i, t)] for i, t in enumerate(params)]
        if constants is None:
            values += [[builder.parameter(len(params) + i, t)] for i, t in enumerate(captures)]
            params += captures
        else:
            values += [
                [builder.lifted(d, t)] for d, t in zip(_distinct_names(constants), captures, strict=True)
            ]
        return self._finish(builder, body, values, tuple(params)).region

    def _finish(
        self, builder: Builder, region: Region, values: _Values, params: tuple[ValueType, ...]
    ) -> FinishedRegion:
        for node in region.nodes:
            values.append(self._node(builder, node, [self._ref(ref, values) for ref in node.operands]))
        return builder.finish(params, [self._ref(ref, values) for ref in region.results])

    # -- sizes

    def _type(self, type: ValueType) -> ValueType:
        if type.dims is None:
            return type
        return ValueType(type.element, tuple(evaluate(d, self.sizes) for d in type.dims))

    def _view(self, view: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(e if e >= 0 else spread(evaluate(spread_size(e), self.sizes)) for e in view)

    def _ref(self, ref: Ref, values: _Values) -> Ref:
        source = values[ref.node][ref.result]
        return source._replace(view=compose(self._view(ref.view), source.view))

    # -- nodes

    def _node(self, builder: Builder, node: Node, operands: list[Ref]) -> list[Ref]:
        types = tuple(self._type(t) for t in node.results)
        if node.op == "constant":
            index = builder.node(node.op, node.attributes, (), (), types)
            return [Ref(index, 0, whole(types[0].dims))]
        if node.op == "extent":
            content = extent_content(node.attributes, types[0].element, self.sizes)
            if content is not None:
                return [builder.constant(content, types[0].element, (), ())]
        if is_elementwise(node):
            site = RewriteSite(builder, self.numerics, node.op, node.attributes, types[0], tuple(operands))
            return [simplify(site)]
        if is_structured(node):
            return self._reduce(builder, node, operands, types)
        if node.op == "reshape" and node.attributes:
            return [self._reshape(builder, operands[0], types[0])]
        return self._opaque(builder, node, operands, types)

    @staticmethod
    def _reshape(builder: Builder, operand: Ref, type: ValueType) -> Ref:
        old, new = builder.viewed_type(operand).dims or (), type.dims or ()
        view = unit_reshape(operand.view, old, new)
        return operand._replace(view=view) if view is not None else reshape(builder, operand, new)

    def _reduce(
        self, builder: Builder, node: Node, operands: list[Ref], types: tuple[ValueType, ...]
    ) -> list[Ref]:
        head, _, dims = node.attributes.rpartition("dimensions = ")
        head = head.removesuffix(", ")
        rank = len(node.operands[0].view)
        reduced = read_ints(dims)
        inputs = operands[: 2 if node.op == "dot_general" else len(types)]
        assert all(len(ref.view) == rank for ref in inputs)
        order = list(range(rank))
        for position, label in zip(sorted(reduced), reduced, strict=True):
            order[position] = label
        inputs = [ref._replace(view=tuple([ref.view[label] for label in order])) for ref in inputs]
        initial = [] if node.op == "dot_general" else operands[len(inputs) : 2 * len(inputs)]
        source = ReductionInput(inputs, initial, frozenset(reduced))
        elements = [t.element for t in types]
        if node.regions:
            captured = operands[2 * len(inputs) :]
            region = self._region(builder, node.regions[0], captured)
            return add_reduction(builder, node.op, head, source, elements, region)
        combiner = head.removeprefix("combiner = ") if head.startswith("combiner = ") else ""
        if combiner:
            return [reduce(builder, self.numerics, combiner, source, types[0])]
        return add_reduction(builder, node.op, head, source, elements)

    def _opaque(
        self, builder: Builder, node: Node, operands: list[Ref], types: tuple[ValueType, ...]
    ) -> list[Ref]:
        regions: list[FinishedRegion] = []
        end = len(operands) - sum(len(region.captures) for region in node.regions)
        start = end
        for region in node.regions:
            stop = start + len(region.captures)
            regions.append(self._region(builder, region, operands[start:stop]))
            start = stop
        return builder.opaque(node.op, evaluated_attributes(node, self.sizes), operands[:end], types, regions)

    def _region(self, parent: Builder, region: Region, captured: Sequence[Ref]) -> FinishedRegion:
        builder = Builder(parent)
        params = tuple(self._type(t) for t in region.params)
        values = [[builder.parameter(i, t)] for i, t in enumerate(params)]
        values += [[builder.capture(ref)] for ref in captured]
        return self._finish(builder, region, values, params)
