"""Sizes that arguments give as lengths of axes without elements (``frontends/size_arguments.py``).

A dim that is computed as such a length, and nothing else, is that length: what else is known of the dim, that
another argument has it above all, is then known of the argument, and checked where the kernel is called.
"""

from __future__ import annotations

from collections.abc import Mapping

from kcache_compiler.spec.erasure.solver import Solver
from kcache_compiler.spec.graph.element_types import is_integer
from kcache_compiler.spec.graph.nodes import DYNAMIC, ValueType
from kcache_compiler.spec.importers.flatten import Entry

#: Operations -> the operand that is the shape of the result.
_SHAPED = {
    "stablehlo.dynamic_broadcast_in_dim": 1,
    "stablehlo.dynamic_iota": 0,
    "stablehlo.dynamic_reshape": 1,
}
_SAME = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.optimization_barrier"})


def gives_sizes(type: ValueType) -> bool:
    """Whether an argument of this type has nothing but lengths of axes to say."""
    dims = type.dims or ()
    return is_integer(type.element) and dims[-1:] == (0,) and len(dims) > 1 and set(dims[:-1]) == {DYNAMIC}


class Given:
    """Which elements of small integer tensors are lengths that arguments give: their dims, by value."""

    def __init__(self, solver: Solver, arguments: Mapping[int, tuple[int, ...]]) -> None:
        """``arguments``: dims of the arguments that give sizes, by value."""
        self._solver = solver
        self._arguments = arguments
        self._known: dict[int, tuple[int | None, ...]] = {}

    def follow(self, entry: Entry, results: list[tuple[int, ...]]) -> None:
        """Learn what an operation says of sizes; ``results`` are the dims of its results."""
        name, operands = entry.name, entry.operands
        if name == "stablehlo.get_dimension_size" and operands[0] in self._arguments:
            axis: int = entry.operation.attributes["dimension"].value
            self._known[entry.results[0]] = (self._arguments[operands[0]][axis],)
        elif name in _SHAPED:
            for given, dim in zip(self._known.get(operands[_SHAPED[name]], ()), results[0], strict=False):
                if given is not None:
                    self._solver.union(given, dim)
        elif name == "stablehlo.concatenate":
            self._concatenate(entry)
        elif name in _SAME and len(operands) == 1 and operands[0] in self._known:
            self._known[entry.results[0]] = self._known[operands[0]]

    def _concatenate(self, entry: Entry) -> None:
        if not any(value in self._known for value in entry.operands):
            return
        found: list[int | None] = []
        for value, dims in zip(entry.operands, entry.dims, strict=True):
            count = self._solver.size(dims[0]) if dims else 1
            if count == DYNAMIC:
                return
            found += self._known.get(value, (None,) * count)
        self._known[entry.results[0]] = tuple(found)
