"""Shape erasure: the sizes of every value of a tape, as far as the program determines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.canonical.graph import ValueType
from kcache_compiler.canonical.shapes.rules import Step, rule_of
from kcache_compiler.canonical.shapes.solver import Place, Solver
from kcache_compiler.canonical.tape import Block, Entry, Tape, mark_live

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


def erase(tape: Tape, fixed_arguments: int = 0, known: Shapes | None = None, ties: Ties = _NONE) -> Shapes:
    """Apply the rules to what the results need. The last ``fixed_arguments`` (constants) keep their sizes.

    ``ties``: what is ``known`` of some dims from an erasure without it.
    """
    mark_live(tape.body)
    walk = _Walk(tape)
    if known is not None:
        walk.ties, walk.symbols = ties, known.symbols
    parameters = tape.body.parameters
    for index, value in enumerate(parameters):
        dims = walk.dims[value]
        if index >= len(parameters) - fixed_arguments:
            walk.solver.pin(*dims)
        for axis, dim in enumerate(dims):
            walk.solver.read_from(dim, (index, axis))
    walk.block(tape.body)
    symbols, values = walk.solver.solve()
    return Shapes(walk.sizes(tape.body), symbols, values)


class _Walk:
    def __init__(self, tape: Tape) -> None:
        self.solver = Solver()
        self.types = tape.types
        self.parameters = tape.body.parameters
        self.ties = _NONE
        self.symbols: Sequence[Place] = ()
        #: dims of each value that is met, by number
        self.dims: dict[int, tuple[int, ...]] = {}
        self.loose: dict[int, frozenset[int]] = {}
        for value in tape.body.parameters:
            self._new(value)

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
        block.uses = tuple([self._use(value) for value in block.results])

    def _entry(self, entry: Entry) -> None:
        entry.uses = tuple([self._use(value) for value in entry.operands])
        results = [self._new(value) for value in entry.results]
        blocks: list[tuple[Block, Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]] = []
        for region in entry.regions:
            parameters = [self._new(value) for value in region.parameters]
            self.block(region)
            blocks.append((region, parameters, region.uses))
        types = [self.types[v] for v in (*entry.operands, *entry.results)]
        loose = [self.loose.get(v, _NOTHING) for v in entry.operands]
        for dim, symbol in self.ties.get(id(entry), ()):
            if symbol is None:
                self.solver.pin(entry.uses[0][dim])
            elif dim in loose[0]:
                argument, axis = self.symbols[symbol]
                self.solver.union(self.dims[self.parameters[argument]][axis], entry.uses[0][dim])
        step = Step(self.solver, entry.operation.attributes, entry.uses, results, loose, types, blocks)
        rule_of(entry.name)(step)
        for value, found in zip(entry.results, step.loose_out, strict=True):
            if found:
                self.loose[value] = found

    # -- sizes

    def sizes(self, body: Block) -> list[ValueType]:
        """Return all types with their sizes after the solver is done; write those of the uses."""
        code = self.solver.code
        types = list(self.types)
        for value, dims in self.dims.items():
            if dims:
                types[value] = ValueType(types[value].element, tuple([code(dim) for dim in dims]))
        self._uses(body)
        return types

    def _uses(self, block: Block) -> None:
        code = self.solver.code
        for entry in block.entries:
            if entry.live:
                entry.uses = tuple([tuple([code(dim) for dim in dims]) for dims in entry.uses])
                for region in entry.regions:
                    self._uses(region)
        block.uses = tuple([tuple([code(dim) for dim in dims]) for dims in block.uses])
