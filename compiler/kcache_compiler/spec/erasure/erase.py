"""Shape erasure: the sizes of every value of a tape, as far as the program determines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.spec.erasure.rules import rule_of
from kcache_compiler.spec.erasure.size_arguments import Given, gives_sizes
from kcache_compiler.spec.erasure.solver import Place, Solver
from kcache_compiler.spec.erasure.step import Step
from kcache_compiler.spec.graph.nodes import ValueType
from kcache_compiler.spec.importers.flatten import Block, Entry, Tape, mark_live

_NOTHING: frozenset[int] = frozenset()
_NONE: Mapping[int, Sequence[tuple[int, int | None]]] = {}


@dataclass(frozen=True)
class Shapes:
    """Types of the values with erased sizes; the symbols, by where they are read from, and their sizes.

    ``uses`` of entries and blocks hold the sizes that operands have where they are used.
    """

    types: list[ValueType]
    symbols: list[Place]
    values: list[int]


def keep(tape: Tape) -> Shapes:
    """Return the types as they are: nothing is erased."""
    mark_live(tape.body)
    return Shapes(tape.types, [], [])


#: By ``id`` of an entry: dims of its first operand, and the numbers of the symbols that they are: no rule
#: says of what is repeated how often. None: the dim keeps its size.
Ties = Mapping[int, Sequence[tuple[int, int | None]]]


class Erasure:
    """What the rules say of a tape, from which its shapes follow."""

    def __init__(self, tape: Tape, fixed_arguments: int = 0) -> None:
        """Apply the rules to what the results need. The last ``fixed_arguments`` (constants) keep their
        sizes.
        """
        mark_live(tape.body)
        self._walk = _Walk(tape)
        self._tape = tape
        parameters = tape.body.parameters
        for index, value in enumerate(parameters):
            dims = self._walk.dims[value]
            if index >= len(parameters) - fixed_arguments:
                self._walk.solver.pin(*dims)
            for axis, dim in enumerate(dims):
                self._walk.solver.read_from(dim, (index, axis))
        self._walk.block(tape.body)

    def shapes(self, ties: Ties = _NONE, symbols: Sequence[Place] = ()) -> Shapes:
        """Return the shapes; ``ties`` say of some dims that they are ``symbols``, or none."""
        walk = self._walk
        solver = walk.solver.copy()
        for entry in walk.entries if ties else ():
            dims = entry.dims[0] if entry.dims else ()
            for at, symbol in ties.get(id(entry), ()):
                if symbol is None:
                    solver.pin(dims[at])
                elif at in walk.loose.get(entry.operands[0], _NOTHING):
                    argument, axis = symbols[symbol]
                    solver.union(walk.dims[self._tape.body.parameters[argument]][axis], dims[at])
        found, values = solver.solve()
        return Shapes(walk.sizes(self._tape.body, solver.codes()), found, values)


class _Walk:
    def __init__(self, tape: Tape) -> None:
        self.solver = Solver()
        self.types = tape.types
        #: live operations, as they are met
        self.entries: list[Entry] = []
        #: dims of each value that is met, by number
        self.dims: dict[int, tuple[int, ...]] = {}
        self.loose: dict[int, frozenset[int]] = {}
        for value in tape.body.parameters:
            self._new(value)
        giving = {v: self.dims[v] for v in tape.body.parameters if gives_sizes(tape.types[v])}
        self._given = Given(self.solver, giving) if giving else None

    def _new(self, value: int) -> tuple[int, ...]:
        dims = self.dims[value] = self.solver.shape(self.types[value].dims or ())
        return dims

    def _use(self, value: int) -> tuple[int, ...]:
        """Return the dims of a value where it is used: loose ones are new each time."""
        dims = self.dims[value]
        loose = self.loose.get(value)
        if not loose:
            return dims
        sizes = self.types[value].dims or ()
        return tuple([self.solver.new(sizes[d]) if d in loose else dim for d, dim in enumerate(dims)])

    def block(self, block: Block) -> None:
        """Apply the rules to a block; its parameters have dims already."""
        for entry in block.entries:
            if entry.live:
                self._entry(entry)
        block.dims = tuple([self._use(value) for value in block.results])

    def _entry(self, entry: Entry) -> None:
        self.entries.append(entry)
        entry.dims = tuple([self._use(value) for value in entry.operands])
        results = [self._new(value) for value in entry.results]
        blocks: list[tuple[Block, Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]] = []
        for region in entry.regions:
            parameters = [self._new(value) for value in region.parameters]
            self.block(region)
            blocks.append((region, parameters, region.dims))
        types = [self.types[v] for v in (*entry.operands, *entry.results)]
        loose = [self.loose.get(v, _NOTHING) for v in entry.operands]
        step = Step(self.solver, entry, results, loose, types, blocks)
        rule_of(entry.name)(step)
        if self._given is not None:
            self._given.follow(entry, results)
        for value, found in zip(entry.results, step.loose_out, strict=True):
            if found:
                self.loose[value] = found

    # -- sizes

    def sizes(self, body: Block, codes: Sequence[int]) -> list[ValueType]:
        """Return all types with the sizes of their dims; write those of the uses."""
        types = list(self.types)
        for value, dims in self.dims.items():
            if dims:
                types[value] = ValueType(types[value].element, tuple([codes[dim] for dim in dims]))
        for entry in self.entries:
            entry.uses = _sized(entry.dims, codes)
            for region in entry.regions:
                region.uses = _sized(region.dims, codes)
        body.uses = _sized(body.dims, codes)
        return types


def _sized(shapes: Sequence[tuple[int, ...]], codes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple([tuple([codes[dim] for dim in dims]) for dims in shapes])
