"""How often a value is repeated where it is used, through broadcasts and other views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kcache_compiler.shapes.monomial import is_symbolic, product
from kcache_compiler.spec.erasure.reshape_groups import reshape_groups
from kcache_compiler.spec.graph.nodes import DYNAMIC, ValueType
from kcache_compiler.spec.importers.flatten import Entry

#: Operations whose result has the dims of their operand.
_ALIKE = frozenset({"convert", "negate"})

_ADDING = frozenset({"stablehlo.add", "stablehlo.subtract"})

#: A dim as the run of sizes that it is the product of, and whether the value is repeated along each.
_Dim = tuple[tuple[int, bool], ...]
_Dims = tuple[_Dim, ...]


class Repeats:
    """The uses of the values of one tape. ``stated`` are their types in the program; ``is_zero`` says which
    are zeros.
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

    def codes(self, value: int, steps: int) -> list[tuple[int, bool]]:
        """Return the numbers of times that a value is repeated, with erased sizes in them, in order, and
        whether it went through a sum over dims of size 1, or what is left of one, the addition of zero:
        gradients do, where a result kept such dims.

        ``steps``: how many views are followed.
        """
        dims = self._stated[value].dims or ()
        if any(size < 1 for size in dims):
            return []
        whole = tuple(((size, False),) if size != 1 else () for size in dims)
        return sorted(set(self._below(value, whole, steps, False)))

    def _below(self, value: int, dims: _Dims, steps: int, gathered: bool) -> Iterator[tuple[int, bool]]:
        for entry, position in self._users.get(value, ()):
            code = self._code(entry, position, dims)
            if code is not None:
                yield code, gathered
            if steps <= 0:
                continue
            if entry.name in _ADDING and self._is_zero(entry.operands[1 - position]):
                yield from self._below(entry.results[0], dims, steps - 1, True)
                continue
            made = self._shown(entry, position, dims)
            if made is not None:
                number = position if entry.name == "stablehlo.optimization_barrier" else 0
                summed = gathered or entry.name == "stablehlo.reduce"
                yield from self._below(entry.results[number], made, steps - 1, summed)

    @staticmethod
    def _code(entry: Entry, position: int, dims: _Dims) -> int | None:
        """Return the number of repetitions that one use sees."""
        if not entry.uses or not any(repeated for dim in dims for _, repeated in dim):
            return None
        sizes = entry.uses[position]
        seen: list[int] = []
        for dim, size in zip(dims, sizes, strict=True):
            kinds = {repeated for _, repeated in dim}
            if len(kinds) == 2 or size < 1:
                return None
            if kinds == {True}:
                seen.append(size)
        return symbolic_product(seen)

    def _shown(self, entry: Entry, position: int, dims: _Dims) -> _Dims | None:
        """Return the dims of what a view makes of a value, its operand ``position``; None if the operation is
        no view of that.
        """
        kind = entry.name.removeprefix("stablehlo.")
        attributes = entry.operation.attributes
        if kind in _ALIKE or kind == "optimization_barrier":
            return dims
        made = self._stated[entry.results[0]].dims or ()
        if any(size == DYNAMIC or size < 1 for size in made):
            return None
        if kind == "transpose":
            permutation: list[int] = list(attributes["permutation"])
            return tuple(dims[d] for d in permutation)
        if kind == "broadcast_in_dim":
            source = dict(zip(attributes["broadcast_dimensions"], dims, strict=True))
            return tuple(
                source.get(at) or (((size, True),) if size != 1 else ()) for at, size in enumerate(made)
            )
        if kind == "reshape":
            return _reshaped(dims, made)
        if kind == "reduce" and len(entry.results) == 1 and position == 0:
            reduced = set(attributes["dimensions"])
            if all(not dim for d, dim in enumerate(dims) if d in reduced):
                return tuple(dim for d, dim in enumerate(dims) if d not in reduced)
        return None


def _reshaped(dims: _Dims, made: Sequence[int]) -> _Dims | None:
    """Return the dims behind a reshape, None if it splits what is repeated in part."""
    found: list[_Dim] = [()] * len(made)
    sizes = [1] * len(dims)
    for d, dim in enumerate(dims):
        for size, _ in dim:
            sizes[d] *= size
    for ins, outs in reshape_groups(sizes, made):
        run = [part for d in ins for part in dims[d]]
        kinds = {repeated for _, repeated in run}
        for out in outs:
            wanted = made[out]
            if len(kinds) == 1:
                found[out] = ((wanted, run[0][1]),)
                continue
            taken: list[tuple[int, bool]] = []
            while run and wanted % run[0][0] == 0 and wanted > 1:
                wanted //= run[0][0]
                taken.append(run.pop(0))
            if wanted > 1:
                return None
            found[out] = tuple(taken)
    return tuple(found)


def symbolic_product(sizes: Sequence[int]) -> int | None:
    """Return a product of sizes some of which are erased, else None."""
    if any(size < 1 for size in sizes):
        return None
    code = product(sizes)
    return code if code is not None and is_symbolic(code) else None
