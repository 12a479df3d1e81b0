"""Axes that are indexed by values that are computed with a literal equal to their size.

``x[i]`` adds the size of the axis, a literal, to a negative index, and a loop over an axis has the size as
its trip count. At another size the program has another literal, so the axis must keep its size: a kernel for
all sizes would index with the wrong literal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.mlir.context import native_stablehlo
from kcache_compiler.shapes.monomial import evaluate, is_symbolic
from kcache_compiler.spec.erasure import Shapes
from kcache_compiler.spec.graph.constants import Constant, read_constant
from kcache_compiler.spec.graph.element_types import is_integer
from kcache_compiler.spec.graph.nodes import DYNAMIC
from kcache_compiler.spec.importers.flatten import CONSTANTS, Block, Entry, Tape

if TYPE_CHECKING:
    from torch_mlir import ir

#: Operations by which an index is computed from an index.
_ARITHMETIC = frozenset(
    f"stablehlo.{op}"
    for op in (
        *("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "clamp", "select"),
        *("compare", "convert", "reshape", "broadcast_in_dim", "transpose", "concatenate"),
        *("negate", "and", "or", "optimization_barrier", "slice"),
    )
)
_SLICES = frozenset({"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"})
_LOOKUPS = frozenset({"stablehlo.gather", "stablehlo.scatter"})
_INDEXING = _SLICES | _LOOKUPS

#: Most values that are visited for one index.
_MAX_VALUES = 256


def index_axes(
    tape: Tape, shapes: Shapes, constants: dict[ir.Operation, Constant]
) -> dict[int, list[tuple[int, None]]]:
    """Return the dims of first operands that keep their sizes, as ties, by ``id`` of the entry."""
    if not shapes.symbols:
        return {}
    return _Search(tape, shapes, constants).run()


class _Search:
    """Searches the tape for axes that are indexed by values that a literal of their size computed."""

    def __init__(self, tape: Tape, shapes: Shapes, constants: dict[ir.Operation, Constant]) -> None:
        self.types = tape.types
        self.sizes = {i: v for i, v in enumerate(shapes.values) if v != DYNAMIC}
        self.constants = constants
        self.producers: dict[int, Entry] = {}
        self.loops: dict[int, Entry] = {}
        self.indexing: list[Entry] = []
        self._index(tape.body)

    def _index(self, block: Block) -> None:
        for entry in block.entries:
            if not entry.live:
                continue
            for region in entry.regions:
                self._index(region)
                if entry.name == "stablehlo.while":
                    self.loops.update(dict.fromkeys(region.parameters, entry))
            self.producers.update(dict.fromkeys(entry.results, entry))
            if entry.name in _INDEXING and entry.uses:
                self.indexing.append(entry)

    def run(self) -> dict[int, list[tuple[int, None]]]:
        ties: dict[int, list[tuple[int, None]]] = {}
        for entry in self.indexing:
            for axis, indices in self._axes(entry):
                size = entry.uses[0][axis]
                count = evaluate(size, self.sizes) if is_symbolic(size) else DYNAMIC
                if count != DYNAMIC and not is_symbolic(count) and count in self._literals(indices):
                    ties.setdefault(id(entry), []).append((axis, None))
        return ties

    def _axes(self, entry: Entry) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the indexed axes of the first operand, and the values of their indices."""
        if entry.name in _SLICES:
            first = 1 if entry.name == "stablehlo.dynamic_slice" else 2
            part = entry.results[0] if first == 1 else entry.operands[1]
            sizes = zip(self._dims(entry.operands[0]), self._dims(part), strict=True)
            for axis, (size, part_size) in enumerate(sizes):
                if size != part_size:
                    yield axis, [entry.operands[first + axis]]
            return
        axes = _indexed_axes(entry)
        position = len(entry.results) if entry.name == "stablehlo.scatter" else 1
        vector = self.producers.get(entry.operands[position])
        has_parts = (
            vector is not None
            and vector.name == "stablehlo.concatenate"
            and len(vector.operands) == len(axes)
        )
        for number, axis in enumerate(axes):
            yield axis, [vector.operands[number] if has_parts and vector else entry.operands[position]]

    def _dims(self, value: int) -> tuple[int, ...]:
        return self.types[value].dims or ()

    def _literals(self, values: Sequence[int]) -> set[int]:
        """Return the literals that an index is computed with, also those of loops that carry it."""
        literals: set[int] = set()
        seen: set[int] = set()
        pending = list(values)
        while pending and len(seen) < _MAX_VALUES:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            loop = self.loops.get(value)
            entry = self.producers.get(value)
            if loop is not None:
                pending += loop.regions[0].results
            elif entry is None:
                continue
            elif entry.name in CONSTANTS:
                literals |= self._literal(value, entry)
            elif entry.name in _ARITHMETIC:
                pending += entry.operands
        return literals

    def _literal(self, value: int, entry: Entry) -> set[int]:
        type = self.types[value]
        if not is_integer(type.element) or type.element == "i1" or type.dims is None:
            return set()
        known = self.constants.get(entry.operation)
        if known is None:
            known = self.constants[entry.operation] = read_constant(entry.operation, type)
        if not known.splat or known.content.startswith("="):
            return set()
        return {int.from_bytes(bytes.fromhex(known.content), "little")}


def _indexed_axes(entry: Entry) -> list[int]:
    native, attributes = native_stablehlo(), entry.operation.attributes
    if entry.name == "stablehlo.gather":
        return list(native.GatherDimensionNumbers(attributes["dimension_numbers"]).start_index_map)
    numbers = native.ScatterDimensionNumbers(attributes["scatter_dimension_numbers"])
    return list(numbers.scattered_dims_to_operand_dims)
