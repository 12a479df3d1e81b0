"""Dims of size arguments: arguments whose axes, without elements, have the sizes that a program is given as
integers (``frontends/size_arguments.py``).

A dim that is computed as such a size is constrained to the argument's axis. If another argument has the dim
too, the two sizes must agree when the kernel is called.
"""

from __future__ import annotations

from collections.abc import Mapping

from kcache_compiler.spec.erasure.solver import Solver
from kcache_compiler.spec.graph.element_types import is_integer
from kcache_compiler.spec.graph.native_attributes import integer
from kcache_compiler.spec.graph.nodes import DYNAMIC, ValueType
from kcache_compiler.spec.importers.flatten import Entry

#: Operations -> the operand that is the shape of the result.
_SHAPE_OPERANDS = {
    "stablehlo.dynamic_broadcast_in_dim": 1,
    "stablehlo.dynamic_iota": 0,
    "stablehlo.dynamic_reshape": 1,
}
_COPIES = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.optimization_barrier"})


def is_size_argument(type: ValueType) -> bool:
    """Return whether an argument of this type only holds sizes, as lengths of its axes."""
    dims = type.dims or ()
    return is_integer(type.element) and dims[-1:] == (0,) and len(dims) > 1 and set(dims[:-1]) == {DYNAMIC}


class SizeArguments:
    """Follows sizes of arguments through small integer tensors: the dims of their elements, by value."""

    def __init__(self, solver: Solver, arguments: Mapping[int, tuple[int, ...]]) -> None:
        """``arguments``: dims of the size arguments, by value."""
        self._solver = solver
        self._arguments = arguments
        self._known: dict[int, tuple[int | None, ...]] = {}

    def follow(self, entry: Entry, results: list[tuple[int, ...]]) -> None:
        """Constrain dims that an operation takes from size arguments; ``results`` are dims of its results."""
        name, operands = entry.name, entry.operands
        if name == "stablehlo.get_dimension_size" and operands[0] in self._arguments:
            axis: int = integer(entry.operation.attributes, "dimension")
            self._known[entry.results[0]] = (self._arguments[operands[0]][axis],)
        elif name in _SHAPE_OPERANDS:
            for size, dim in zip(
                self._known.get(operands[_SHAPE_OPERANDS[name]], ()), results[0], strict=False
            ):
                if size is not None:
                    self._solver.union(size, dim)
        elif name == "stablehlo.concatenate":
            self._concatenate(entry)
        elif name in _COPIES and len(operands) == 1 and operands[0] in self._known:
            self._known[entry.results[0]] = self._known[operands[0]]

    def _concatenate(self, entry: Entry) -> None:
        if not any(value in self._known for value in entry.operands):
            return
        elements: list[int | None] = []
        for value, dims in zip(entry.operands, entry.dims, strict=True):
            count = self._solver.size(dims[0]) if dims else 1
            if count == DYNAMIC:
                return
            elements += self._known.get(value, (None,) * count)
        self._known[entry.results[0]] = tuple(elements)
