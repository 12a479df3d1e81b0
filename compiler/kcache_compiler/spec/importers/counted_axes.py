"""Axes whose size the program states as an integer, where it computes an index along them.

``x[i]`` counts a negative index from the end, by a literal that is the axis's size, and a loop over an axis
holds its size as the number of its turns. At another size the program has another literal, and so another
spec: such an axis keeps its size, or a kernel for all sizes would index by the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kcache_compiler.mlir.context import Native, native_stablehlo
from kcache_compiler.shapes.monomial import evaluate, is_symbolic
from kcache_compiler.spec.erasure import Shapes
from kcache_compiler.spec.graph.constants import Constant, read_constant
from kcache_compiler.spec.graph.element_types import is_integer
from kcache_compiler.spec.graph.nodes import DYNAMIC
from kcache_compiler.spec.importers.flatten import CONSTANTS, Block, Entry, Tape

#: Operations whose result is an index where an operand is.
_ARITHMETIC = frozenset(
    f"stablehlo.{op}"
    for op in (
        *("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "clamp", "select"),
        *("compare", "convert", "reshape", "broadcast_in_dim", "transpose", "concatenate"),
        *("negate", "and", "or", "optimization_barrier", "slice"),
    )
)
_PARTS = frozenset({"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"})
_LOOKUPS = frozenset({"stablehlo.gather", "stablehlo.scatter"})
_INDEXING = _PARTS | _LOOKUPS

#: Most values that are looked at for one index.
_VALUES = 256


def counted_axes(
    tape: Tape, shapes: Shapes, constants: dict[Native, Constant]
) -> dict[int, list[tuple[int, None]]]:
    """Return the dims of first operands that keep their sizes, by ``id`` of the entry."""
    if not shapes.symbols:
        return {}
    return _Search(tape, shapes, constants).run()


class _Search:
    def __init__(self, tape: Tape, shapes: Shapes, constants: dict[Native, Constant]) -> None:
        self.types = tape.types
        self.sizes = {i: v for i, v in enumerate(shapes.values) if v != DYNAMIC}
        self.constants = constants
        self.made: dict[int, Entry] = {}
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
            self.made.update(dict.fromkeys(entry.results, entry))
            if entry.name in _INDEXING and entry.uses:
                self.indexing.append(entry)

    def run(self) -> dict[int, list[tuple[int, None]]]:
        found: dict[int, list[tuple[int, None]]] = {}
        for entry in self.indexing:
            for axis, indices in self._axes(entry):
                size = entry.uses[0][axis]
                count = evaluate(size, self.sizes) if is_symbolic(size) else DYNAMIC
                if count != DYNAMIC and not is_symbolic(count) and count in self._numbers(indices):
                    found.setdefault(id(entry), []).append((axis, None))
        return found

    def _axes(self, entry: Entry) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the axes of the first operand that an index may choose along, and the values of the index."""
        if entry.name in _PARTS:
            first = 1 if entry.name == "stablehlo.dynamic_slice" else 2
            part = entry.results[0] if first == 1 else entry.operands[1]
            whole = zip(self._dims(entry.operands[0]), self._dims(part), strict=True)
            for axis, (size, taken) in enumerate(whole):
                if size != taken:
                    yield axis, [entry.operands[first + axis]]
            return
        axes = _looked_up(entry)
        position = len(entry.results) if entry.name == "stablehlo.scatter" else 1
        made = self.made.get(entry.operands[position])
        apart = made is not None and made.name == "stablehlo.concatenate" and len(made.operands) == len(axes)
        for number, axis in enumerate(axes):
            yield axis, [made.operands[number] if apart and made else entry.operands[position]]

    def _dims(self, value: int) -> tuple[int, ...]:
        return self.types[value].dims or ()

    def _numbers(self, values: Sequence[int]) -> set[int]:
        """Return the integers that an index is computed with, the turns of loops that it counts included."""
        found: set[int] = set()
        seen: set[int] = set()
        pending = list(values)
        while pending and len(seen) < _VALUES:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            loop = self.loops.get(value)
            entry = self.made.get(value)
            if loop is not None:
                pending += loop.regions[0].results
            elif entry is None:
                continue
            elif entry.name in CONSTANTS:
                found |= self._number(value, entry)
            elif entry.name in _ARITHMETIC:
                pending += entry.operands
        return found

    def _number(self, value: int, entry: Entry) -> set[int]:
        type = self.types[value]
        if not is_integer(type.element) or type.element == "i1" or type.dims is None:
            return set()
        known = self.constants.get(entry.operation)
        if known is None:
            known = self.constants[entry.operation] = read_constant(entry.operation, type)
        if not known.splat or known.content.startswith("="):
            return set()
        return {int.from_bytes(bytes.fromhex(known.content), "little")}


def _looked_up(entry: Entry) -> list[int]:
    native, attributes = native_stablehlo(), entry.operation.attributes
    if entry.name == "stablehlo.gather":
        return list(native.GatherDimensionNumbers(attributes["dimension_numbers"]).start_index_map)
    numbers = native.ScatterDimensionNumbers(attributes["scatter_dimension_numbers"])
    return list(numbers.scattered_dims_to_operand_dims)
