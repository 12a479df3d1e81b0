"""Shape erasure of a tape: the sizes of all values as integers and monomials of symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.spec.erasure.operation_dims import OperationDims
from kcache_compiler.spec.erasure.rules import rule_of
from kcache_compiler.spec.erasure.solver import ArgumentAxis, Solver
from kcache_compiler.spec.graph.element_types import is_integer
from kcache_compiler.spec.graph.native import integer
from kcache_compiler.spec.graph.nodes import DYNAMIC, ValueType
from kcache_compiler.spec.importers.flatten import Block, Entry, Tape, mark_live

_NO_DIMS: frozenset[int] = frozenset()
_NO_TIES: Mapping[int, Sequence[tuple[int, int | None]]] = {}


@dataclass(frozen=True)
class Shapes:
    """Types of the values with erased sizes; the argument axis of each symbol; and the symbols' sizes.

    Sizes of operands where they are used are in ``uses`` of entries and blocks.
    """

    types: list[ValueType]
    symbols: list[ArgumentAxis]
    values: list[int]


def without_erasure(tape: Tape) -> Shapes:
    """Return the types as the program states them."""
    mark_live(tape.body)
    return Shapes(tape.types, [], [])


#: By ``id`` of an entry: dims of its first operand that no rule constrains, each with the number of the
#: symbol that it is, or None if it keeps its size.
Ties = Mapping[int, Sequence[tuple[int, int | None]]]


class Erasure:
    """The constraints of a tape, which are solved once or several times."""

    def __init__(self, tape: Tape, fixed_arguments: int = 0) -> None:
        """Apply the rules to all live operations. The last ``fixed_arguments``, lifted constants, are
        pinned.
        """
        mark_live(tape.body)
        self._constraints = _Constraints(tape)
        self._tape = tape
        parameters = tape.body.parameters
        for index, value in enumerate(parameters):
            dims = self._constraints.dims[value]
            if index >= len(parameters) - fixed_arguments:
                self._constraints.solver.pin(*dims)
            for axis, dim in enumerate(dims):
                self._constraints.solver.set_argument_axis(dim, (index, axis))
        self._constraints.block(tape.body)

    def shapes(self, ties: Ties = _NO_TIES, symbols: Sequence[ArgumentAxis] = ()) -> Shapes:
        """Return the shapes; ``ties`` constrain dims to ``symbols`` of an earlier solution."""
        constraints = self._constraints
        solver = constraints.solver.copy()
        for entry in constraints.entries if ties else ():
            dims = entry.dims[0] if entry.dims else ()
            for dim, symbol in ties.get(id(entry), ()):
                if symbol is None:
                    solver.pin(dims[dim])
                elif dim in constraints.uniform.get(entry.operands[0], _NO_DIMS):
                    argument, axis = symbols[symbol]
                    solver.union(constraints.dims[self._tape.body.parameters[argument]][axis], dims[dim])
        symbols_found, values = solver.solve()
        return Shapes(constraints.types_with(solver.sizes(), self._tape.body), symbols_found, values)


class _Constraints:
    """Dims of all values of a tape, and the solver that the rules constrain."""

    def __init__(self, tape: Tape) -> None:
        self.solver = Solver()
        self.types = tape.types
        #: Live operations, in order.
        self.entries: list[Entry] = []
        #: Dims of each value, by number.
        self.dims: dict[int, tuple[int, ...]] = {}
        self.uniform: dict[int, frozenset[int]] = {}
        for value in tape.body.parameters:
            self._new(value)
        arguments = {v: self.dims[v] for v in tape.body.parameters if is_size_argument(tape.types[v])}
        self._size_arguments = SizeArguments(self.solver, arguments) if arguments else None

    def _new(self, value: int) -> tuple[int, ...]:
        dims = self.dims[value] = self.solver.shape(self.types[value].dims or ())
        return dims

    def _use(self, value: int) -> tuple[int, ...]:
        """Return the dims of a value for one use: uniform dims are new."""
        dims = self.dims[value]
        uniform = self.uniform.get(value)
        if not uniform:
            return dims
        sizes = self.types[value].dims or ()
        return tuple([self.solver.new(sizes[d]) if d in uniform else dim for d, dim in enumerate(dims)])

    def block(self, block: Block) -> None:
        """Apply the rules to a block whose parameters have dims."""
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
        uniform = [self.uniform.get(v, _NO_DIMS) for v in entry.operands]
        op = OperationDims(self.solver, entry, results, uniform, types, blocks)
        rule_of(entry.name)(op)
        if self._size_arguments is not None:
            self._size_arguments.follow(entry, results)
        for value, dims in zip(entry.results, op.uniform_out, strict=True):
            if dims:
                self.uniform[value] = dims

    # -- sizes

    def types_with(self, sizes: Sequence[int], body: Block) -> list[ValueType]:
        """Return all types with the sizes of their dims, and set ``uses`` of entries and blocks."""
        types = list(self.types)
        for value, dims in self.dims.items():
            if dims:
                types[value] = ValueType(types[value].element, tuple([sizes[dim] for dim in dims]))
        for entry in self.entries:
            entry.uses = _sizes_of(entry.dims, sizes)
            for region in entry.regions:
                region.uses = _sizes_of(region.dims, sizes)
        body.uses = _sizes_of(body.dims, sizes)
        return types


def _sizes_of(shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple([tuple([sizes[dim] for dim in dims]) for dims in shapes])


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
    """Follows sizes of arguments through small integer tensors: the dims of their elements, by value.

    Size arguments are arguments whose axes, without elements, have the sizes that a program is given as
    integers (``frontends/size_arguments.py``). A dim that is computed as such a size is constrained to the
    argument's axis. If another argument has the dim too, the two sizes must agree when the kernel is called.
    """

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
