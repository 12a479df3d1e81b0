"""The sizes over which a value is broadcast at its uses, through views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kcache_compiler.shapes.monomial import is_symbolic, product
from kcache_compiler.spec.graph.native import integers
from kcache_compiler.spec.graph.nodes import DYNAMIC, ValueType
from kcache_compiler.spec.graph.reshape import reshape_groups
from kcache_compiler.spec.importers.flatten import Entry

#: Operations whose result has the dims and broadcasts of their operand.
_SHAPE_PRESERVING = frozenset({"convert", "negate"})

_ADDITIVE = frozenset({"stablehlo.add", "stablehlo.subtract"})

#: A dim as a product of sizes, each with whether the value is broadcast along it.
_Dim = tuple[tuple[int, bool], ...]
_Dims = tuple[_Dim, ...]


class Broadcasts:
    """Follows the uses of values of one tape. ``stated`` are their types in the program; ``is_zero`` returns
    whether a value is a constant 0.
    """

    def __init__(
        self,
        users: Mapping[int, Sequence[tuple[Entry, int]]],
        stated: Sequence[ValueType],
        is_zero: Callable[[int], bool],
    ) -> None:
        self._users = users
        self._stated = stated
        self._is_zero = is_zero

    def sizes(self, value: int, steps: int) -> list[tuple[int, bool]]:
        """Return the symbolic sizes over which a value is broadcast, sorted, each with whether it is summed.

        It is summed over dims of size 1, or by an addition of 0 that is left of such a sum, in gradients of
        operations that keep reduced dims. ``steps`` bounds the number of views.
        """
        dims = self._stated[value].dims or ()
        if any(size < 1 for size in dims):
            return []
        unbroadcast = tuple(((size, False),) if size != 1 else () for size in dims)
        return sorted(set(self._follow(value, unbroadcast, steps, False)))

    def _follow(self, value: int, dims: _Dims, steps: int, is_summed: bool) -> Iterator[tuple[int, bool]]:
        for entry, position in self._users.get(value, ()):
            size = self._broadcast_size(entry, position, dims)
            if size is not None:
                yield size, is_summed
            if steps <= 0:
                continue
            if entry.name in _ADDITIVE and self._is_zero(entry.operands[1 - position]):
                yield from self._follow(entry.results[0], dims, steps - 1, True)
                continue
            result = self._dims_of_result(entry, position, dims)
            if result is not None:
                number = position if entry.name == "stablehlo.optimization_barrier" else 0
                summed = is_summed or entry.name == "stablehlo.reduce"
                yield from self._follow(entry.results[number], result, steps - 1, summed)

    @staticmethod
    def _broadcast_size(entry: Entry, position: int, dims: _Dims) -> int | None:
        """The symbolic size over which one use broadcasts the value; None if there is none."""
        if not entry.uses or not any(is_broadcast for dim in dims for _, is_broadcast in dim):
            return None
        sizes = entry.uses[position]
        sizes_broadcast: list[int] = []
        for dim, size in zip(dims, sizes, strict=True):
            kinds = {is_broadcast for _, is_broadcast in dim}
            if len(kinds) == 2 or size < 1:
                return None
            if kinds == {True}:
                sizes_broadcast.append(size)
        return symbolic_product(sizes_broadcast)

    def _dims_of_result(self, entry: Entry, position: int, dims: _Dims) -> _Dims | None:
        """The dims of a view's result; None if the operation is no view of its operand ``position``."""
        kind = entry.name.removeprefix("stablehlo.")
        attributes = entry.operation.attributes
        if kind in _SHAPE_PRESERVING or kind == "optimization_barrier":
            return dims
        shape = self._stated[entry.results[0]].dims or ()
        if any(size == DYNAMIC or size < 1 for size in shape):
            return None
        if kind == "transpose":
            permutation: list[int] = integers(attributes, "permutation")
            return tuple(dims[d] for d in permutation)
        if kind == "broadcast_in_dim":
            source = dict(zip(integers(attributes, "broadcast_dimensions"), dims, strict=True))
            return tuple(
                source.get(axis) or (((size, True),) if size != 1 else ()) for axis, size in enumerate(shape)
            )
        if kind == "reshape":
            return _reshape_dims(dims, shape)
        if kind == "reduce" and len(entry.results) == 1 and position == 0:
            reduced = set(integers(attributes, "dimensions"))
            if all(not dim for d, dim in enumerate(dims) if d in reduced):
                return tuple(dim for d, dim in enumerate(dims) if d not in reduced)
        return None


def _reshape_dims(dims: _Dims, shape: Sequence[int]) -> _Dims | None:
    """The dims after a reshape; None if it splits a dim that is broadcast in part."""
    result: list[_Dim] = [()] * len(shape)
    sizes = [1] * len(dims)
    for d, dim in enumerate(dims):
        for size, _ in dim:
            sizes[d] *= size
    for ins, outs in reshape_groups(sizes, shape):
        run = [part for d in ins for part in dims[d]]
        kinds = {is_broadcast for _, is_broadcast in run}
        for out in outs:
            remaining = shape[out]
            if len(kinds) == 1:
                result[out] = ((remaining, run[0][1]),)
                continue
            taken: list[tuple[int, bool]] = []
            while run and remaining % run[0][0] == 0 and remaining > 1:
                remaining //= run[0][0]
                taken.append(run.pop(0))
            if remaining > 1:
                return None
            result[out] = tuple(taken)
    return tuple(result)


def symbolic_product(sizes: Sequence[int]) -> int | None:
    """Return a product of sizes if it is symbolic, else None."""
    if any(size < 1 for size in sizes):
        return None
    size = product(sizes)
    return size if size is not None and is_symbolic(size) else None
