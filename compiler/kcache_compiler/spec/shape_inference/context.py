"""Shape inference of one node: the region that it is added to, and what rules for operations need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.shapes.arithmetic import MAX_ELEMENTS, Elements
from kcache_compiler.shapes.formula import Formula, UnresolvedSize
from kcache_compiler.shapes.monomial import evaluate, is_symbolic, size_text
from kcache_compiler.shapes.shape_functions import Dims, OperationShapes
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.nodes import (
    DYNAMIC,
    Node,
    Ref,
    Region,
    ValueType,
    spread_size,
    view_dims,
    whole,
)
from kcache_compiler.types import PLAIN_DTYPES

if TYPE_CHECKING:
    from kcache_compiler.spec.shape_inference.infer import Inference


#: A result of a node: leaf and result number.
Value = tuple[int, int]


class Block:
    """The new nodes of a region, and for each leaf and node of the old region its values in the new one."""

    def __init__(self, leaves: Sequence[ValueType], known: Sequence[Elements | None]) -> None:
        """``known``: the elements of leaves, where they are known."""
        self.types: list[tuple[ValueType, ...]] = [(kind,) for kind in leaves]
        self.values: list[list[Ref]] = [
            [Ref(index, 0, whole(kind.dims))] for index, kind in enumerate(leaves)
        ]
        self.known: dict[Value, Elements] = {
            (index, 0): elements for index, elements in enumerate(known) if elements is not None
        }
        self.nodes: list[Node] = []
        #: The elements of tuples, by the scalar that stands for the tuple.
        self.tuples: dict[Value, tuple[Ref, ...]] = {}
        #: Scalars that may be negative: their value is known to inference only, and has no representation.
        self.unrepresented: set[Value] = set()
        #: Scalars of type i1 in the program.
        self.booleans: set[Value] = set()

    def add(self, node: Node) -> list[Ref]:
        """Append a node and return its results."""
        self.nodes.append(node)
        self.types.append(node.results)
        leaf = len(self.types) - 1
        return [Ref(leaf, number, whole(kind.dims)) for number, kind in enumerate(node.results)]

    def defining_node(self, ref: Ref) -> Node | None:
        """Return the node of this region that defines a value; None of a parameter or capture."""
        first = len(self.types) - len(self.nodes)
        return self.nodes[ref.node - first] if ref.node >= first else None

    def viewed(self, ref: Ref) -> ValueType:
        """Return the type of the value that ``ref`` denotes."""
        kind = self.types[ref.node][ref.result]
        return kind if kind.dims is None else kind._replace(dims=view_dims(ref.view, kind.dims))

    def elements(self, ref: Ref) -> Elements | None:
        """Return the elements of a small integer value, row major; None where they are not known."""
        elements = self.known.get((ref.node, ref.result))
        kind = self.viewed(ref)
        if elements is None or kind.dims is None:
            return None
        is_static = not any(is_symbolic(size) or size < 0 for size in kind.dims)
        count = math.prod(kind.dims) if is_static else MAX_ELEMENTS + 1
        if count > MAX_ELEMENTS:
            return None
        if all(entry < 0 for entry in ref.view):
            return elements * count if len(elements) == 1 else None
        axes = [entry for entry in ref.view if entry >= 0]
        keeps_order = len(axes) == 1 or ref.view == whole(self.types[ref.node][ref.result].dims)
        return elements if keeps_order and len(elements) == count else None


#: Type of scalars that hold sizes, whatever integer or index type the program has.
SCALAR = ValueType("i64", ())


class NodeContext:
    """A node of the old graph, and the region of the new graph that its replacement is added to."""

    def __init__(self, inference: Inference, block: Block, node: Node) -> None:
        self.block, self.node = block, node
        self.symbols = inference.symbols
        self.requirements = inference.requirements
        self.arithmetic = inference.arithmetic
        self.unclamped_windows = inference.unclamped_windows
        self.operands = [inference.ref(block, ref) for ref in node.operands]
        self._inference = inference

    # -- operands

    def dims(self, position: int) -> Dims:
        """Return the shape of an operand."""
        return self.block.viewed(self.operands[position]).dims or ()

    def operand_dims(self) -> list[Dims]:
        """Return the shapes of all operands."""
        return [self.dims(position) for position in range(len(self.operands))]

    def elements(self, position: int) -> Elements:
        """Return the elements of an operand; raises ``UnresolvedSize`` where they depend on data."""
        elements = self.block.elements(self.operands[position])
        if elements is None:
            raise UnresolvedSize(f"{self.node.op} of sizes that depend on data")
        return elements

    def sizes(self, position: int) -> Dims:
        """Return the elements of an operand as sizes."""
        return tuple(self.symbols.size(element) for element in self.elements(position))

    def shapes(self, operands: Sequence[Dims] = ()) -> OperationShapes:
        """Return the operation as shape functions take it."""
        results = [kind.dims for kind in self.node.results]
        return OperationShapes(self.symbols, self.node.op, self.node.attributes, operands, results)

    def evaluate(self, sizes: Sequence[int]) -> Dims:
        """Return sizes of the old graph in the new one."""
        return tuple(evaluate(size, self._inference.replacements) for size in sizes)

    def operand(self, ref: Ref) -> Ref:
        """Return an operand of the old graph in the new one."""
        return self._inference.ref(self.block, ref)

    def region(self, region: Region, params: Sequence[ValueType], captures: Sequence[Ref]) -> Region:
        """Return a nested region with these types of its parameters, and these captured values."""
        return self._inference.region(
            region,
            params,
            [self.block.viewed(ref) for ref in captures],
            [self.block.elements(ref) for ref in captures],
        )

    # -- results

    def result_types(self, shapes: Sequence[Dims]) -> tuple[ValueType, ...]:
        """Return the result types with these shapes, which must agree with what the program states."""
        kinds: list[ValueType] = []
        for kind, dims in zip(self.node.results, shapes, strict=True):
            stated = self.evaluate(kind.dims or ())
            if len(stated) != len(dims):
                raise UnresolvedSize(f"the rank of {self.node.op}")
            for own, size in zip(stated, dims, strict=True):
                if own not in (DYNAMIC, size) and not self._is_checked_at_run_time(own, size):
                    self.require_equal(own, size)
            kinds.append(kind._replace(dims=tuple(dims)))
        return tuple(kinds)

    def _is_checked_at_run_time(self, stated: int, size: int) -> bool:
        """Whether a static size is stated for an opaque one, which no sample has but by chance."""
        if is_symbolic(stated) or not is_symbolic(size) or not self.symbols.is_opaque(size):
            return False
        self.requirements.require_at_run_time(self.symbols.formula(size), stated, equal=True)
        return True

    def require_equal(self, left: int, right: int) -> None:
        """Require two sizes to be equal."""
        self.requirements.require(self.symbols.formula(left), self.symbols.formula(right), equal=True)

    def add(self, node: Node) -> list[Ref]:
        """Append a node to the new region and return its results."""
        for ref in node.operands:
            if any(entry < 0 and spread_size(entry) == DYNAMIC for entry in ref.view):
                raise UnresolvedSize("a broadcast to a size that depends on data")
        return self.block.add(node)

    def record(self, refs: list[Ref], elements: Elements | None) -> list[Ref]:
        """Record the elements of the first result, and return the results."""
        if elements is not None:
            self.block.known[refs[0].node, refs[0].result] = elements
        return refs

    # -- attributes

    def size_list(self, sizes: Sequence[Formula]) -> str:
        """Return sizes as an ``array<i64: ...>`` attribute; symbolic ones are required not to be below 0."""
        return f"array<i64: {', '.join(map(self._size_text, sizes))}>" if sizes else "array<i64>"

    def size_lists(self, names: Sequence[str], lists: Sequence[Sequence[Formula]]) -> str:
        """Return several named lists of sizes."""
        return ", ".join(
            f"{name} = {self.size_list(sizes)}" for name, sizes in zip(names, lists, strict=True)
        )

    def size_pairs(self, rows: Sequence[tuple[Formula, Formula]]) -> str:
        """Return padding as a ``dense<...>`` attribute."""
        inner = ", ".join(f"[{self._size_text(low)}, {self._size_text(high)}]" for low, high in rows)
        return f"dense<{f'[{inner}]' if rows else ''}> : tensor<{len(rows)}x2xi64>"

    def _size_text(self, size: Formula) -> str:
        if isinstance(size, int):
            return str(size)
        self.requirements.require(0, size, equal=False)
        return size_text(self.symbols.size(size))

    # -- nodes that several rules add

    def constant(self, value: int, element: str) -> Ref:
        """Return a scalar constant."""
        content = Constant.scalar(str(value), element).content
        return self.add(Node("constant", content, (), (), (ValueType(element, ()),)))[0]

    def zero(self, element: str) -> Ref:
        """Return a scalar 0; raises ``UnresolvedSize`` of an element type without constants."""
        if element not in PLAIN_DTYPES:
            raise UnresolvedSize(f"a zero of {element}")
        return self.constant(0, element)

    def size_scalar(self, formula: Formula) -> list[Ref]:
        """Return a formula as an i64 scalar, whose value inference knows."""
        if isinstance(formula, int):
            refs = [self.constant(formula, "i64")]
        elif self.symbols.range(formula)[0] < 0:
            # Only sizes, which are not negative, can be extents.
            refs = [self.constant(0, "i64")]
            self.block.unrepresented.add((refs[0].node, refs[0].result))
        else:
            refs = self.add(Node("extent", size_text(self.symbols.size(formula)), (), (), (SCALAR,)))
        if self.node.results[0].element == "i1":
            self.block.booleans.add((refs[0].node, refs[0].result))
        return self.record(refs, [formula])

    def slice_to(self, source: Ref, limits: Dims, element: str) -> Ref:
        """Return ``source`` from index 0 to ``limits`` along each axis."""
        starts, strides = self.size_list([0] * len(limits)), self.size_list([1] * len(limits))
        ends = f"array<i64: {', '.join(map(size_text, limits))}>"
        text = f"start_indices = {starts}, limit_indices = {ends}, strides = {strides}"
        kind = self.node.results[0]._replace(element=element, dims=limits)
        return self.add(Node("slice", text, (source,), (), (kind,)))[0]


def with_sizes_all(kinds: Sequence[ValueType], replacements: Mapping[int, int]) -> tuple[ValueType, ...]:
    """Return types with these sizes for their symbols, by index."""
    return tuple(with_sizes(kind, replacements) for kind in kinds)


def with_sizes(kind: ValueType, replacements: Mapping[int, int]) -> ValueType:
    """Return a type with these sizes for its symbols, by index."""
    if kind.dims is None:
        return kind
    return kind._replace(dims=tuple(evaluate(size, replacements) for size in kind.dims))
