"""The tape: the program as one list of operations, with calls inlined and values numbered.

Shapes are erased on the tape, before nodes are built, so that values that are equal only at the program's
sizes are not merged. Calls are inlined without recursion, and once per distinct operands; regions recurse, to
the depth that ``Limits`` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.program import Program
from kcache_compiler.mlir import context as mlir
from kcache_compiler.spec.graph.native import TypeReader, string
from kcache_compiler.spec.graph.nodes import ValueType
from kcache_compiler.spec.graph.operations import MAX_DUPLICATED_VIEWS, TERMINATORS

if TYPE_CHECKING:
    from torch_mlir import ir

#: Operations that are constants.
CONSTANTS = frozenset({"stablehlo.constant", "arith.constant", "chlo.constant"})

#: Operations that reshape, permute or convert an iota or a constant.
_VIEWS = frozenset(
    {"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.convert"}
)


class Entry:
    """One operation: its operands and results by number.

    ``dims`` are the dims of each operand for this use, and ``uses`` their sizes after erasure.
    """

    __slots__ = ("dims", "live", "name", "operands", "operation", "regions", "results", "splat", "uses")

    def __init__(
        self, operation: ir.Operation, name: str, operands: tuple[int, ...], results: tuple[int, ...]
    ) -> None:
        self.operation = operation
        self.name = name
        self.operands = operands
        self.results = results
        self.regions: tuple[Block, ...] = ()
        self.live = False
        #: Whether it is a constant that repeats one element.
        self.splat = False
        self.dims: tuple[tuple[int, ...], ...] = ()
        self.uses: tuple[tuple[int, ...], ...] = ()


class Block:
    """A function body or a region: parameters, operations and results."""

    __slots__ = ("calls", "dims", "entries", "parameters", "results", "uses")

    def __init__(self, parameters: tuple[int, ...]) -> None:
        self.parameters = parameters
        self.entries: list[Entry] = []
        self.results: tuple[int, ...] = ()
        self.dims: tuple[tuple[int, ...], ...] = ()
        self.uses: tuple[tuple[int, ...], ...] = ()
        #: Results of the calls inlined here, by (function, operands).
        self.calls: dict[_Call, list[int]] = {}


class Tape:
    """A program; ``types`` are the types of its values, as the program states them."""

    __slots__ = ("body", "types")

    def __init__(self, types: list[ValueType], body: Block) -> None:
        self.types = types
        self.body = body


_Call = tuple[str, tuple[int, ...]]

#: Numbers of the values of one function body and its regions.
_Values: TypeAlias = "dict[ir.Value, int]"


class _Frame:
    __slots__ = ("call", "draws", "key", "operations", "values")

    def __init__(
        self,
        operations: Iterator[ir.Operation],
        values: _Values,
        call: ir.Operation | None,
        key: _Call,
        draws: int,
    ) -> None:
        self.operations = operations
        self.values = values
        self.call = call
        self.key = key
        self.draws = draws


class Recorder:
    """Records one program as a tape.

    ``callee`` returns the function that is inlined for an operation, if any; ``reject`` raises for operations
    that no kernel computes, also if they are dead.
    """

    def __init__(
        self,
        program: Program,
        limits: Limits,
        read_type: TypeReader,
        callee: Callable[[str, ir.Operation], str | None],
        reject: Callable[[str, ir.Operation], None],
    ) -> None:
        self._program = program
        self._limits = limits
        self._read_type = read_type
        self._callee = callee
        self._reject = reject
        self._types: list[ValueType] = []
        self._operations = 0
        #: Random draws so far: a function that draws is inlined at each call.
        self._draws = 0
        self._bodies: dict[str, list[ir.Operation]] = {}
        #: Iotas, constants of one element, and views of them, with the number of view operations.
        self._duplicated: dict[int, tuple[Entry, int]] = {}

    def run(self, function: ir.Operation) -> Tape:
        """Record a function of one block."""
        arguments = list(function.regions[0].blocks[0].arguments)
        values: _Values = {a: self._value(a.type) for a in arguments}
        block = Block(tuple(values.values()))
        results = self._record(self._body(function), values, block, 0)
        block.results = tuple(self._use(block, value) for value in results)
        return Tape(self._types, block)

    def _value(self, type: ir.Type) -> int:
        self._types.append(self._read_type(type))
        return len(self._types) - 1

    # -- blocks and calls

    def _record(self, operations: list[ir.Operation], values: _Values, block: Block, depth: int) -> list[int]:
        frames = [_Frame(iter(operations), values, None, ("", ()), 0)]
        while True:
            frame = frames[-1]
            entered = self._advance(frame, block, depth)
            if isinstance(entered, _Frame):
                check("depth of calls", len(frames), self._limits.call_depth)
                frames.append(entered)
                continue
            frames.pop()
            if frame.call is None:
                return entered
            if frame.draws == self._draws:
                block.calls[frame.key] = entered
            frames[-1].values.update(zip(frame.call.results, entered, strict=True))

    def _advance(self, frame: _Frame, block: Block, depth: int) -> _Frame | list[int]:
        """Run a frame until it calls (return the callee's frame) or ends (return its results)."""
        values = frame.values
        for operation in frame.operations:
            self._operations += 1
            if self._operations > self._limits.operations:
                check("number of operations after inlining", self._operations, self._limits.operations)
            name: str = operation.name
            operands = [values[value] for value in operation.operands]
            if name in TERMINATORS:
                return operands
            callee = self._callee(name, operation)
            if callee is None:
                self._entry(block, operation, name, operands, values, depth)
                continue
            key = (callee, tuple(operands))
            known = block.calls.get(key)
            if known is None:
                return self._enter(operation, callee, operands, key)
            values.update(zip(operation.results, known, strict=True))
        raise InvalidProgram("a block ends without a terminator")

    def _enter(self, call: ir.Operation, callee: str, operands: list[int], key: _Call) -> _Frame:
        function = self._program.functions.get(callee)
        if function is None or not len(function.regions[0].blocks):
            where = mlir.describe_location(call.location)
            raise InvalidProgram(
                f"{call.name} of @{callee}, which has no body{' at ' + where if where else ''}"
            )
        arguments = list(function.regions[0].blocks[0].arguments)
        values: _Values = dict(zip(arguments, operands, strict=True))
        return _Frame(iter(self._body(function)), values, call, key, self._draws)

    def _body(self, function: ir.Operation) -> list[ir.Operation]:
        if len(function.regions[0].blocks) != 1:
            name = string(function.attributes, "sym_name")
            raise UnsupportedOp(
                "func.func", "its body has several blocks: use structured control flow", f"@{name}"
            )
        if "sym_name" not in function.attributes:
            return mlir.child_operations(function)
        name = string(function.attributes, "sym_name")
        body = self._bodies.get(name)
        if body is None or self._program.functions.get(name) != function:
            body = self._bodies[name] = mlir.child_operations(function)
        return body

    # -- operations

    def _entry(
        self,
        block: Block,
        operation: ir.Operation,
        name: str,
        operands: Sequence[int],
        values: _Values,
        depth: int,
    ) -> None:
        self._reject(name, operation)
        if name == "stablehlo.rng":
            self._draws += 1
        used = tuple([self._use(block, value) for value in operands] if self._duplicated else operands)
        entry = Entry(operation, name, used, ())
        if len(operation.regions):
            entry.regions = self._regions(operation, values, depth)
        results: list[ir.Value] = list(operation.results)
        entry.results = tuple([self._value(result.type) for result in results])
        values.update(zip(results, entry.results, strict=True))
        block.entries.append(entry)
        self._mark_duplicated(entry)

    def _mark_duplicated(self, entry: Entry) -> None:
        if entry.name in CONSTANTS:
            entry.splat = is_splat(entry.operation)
        if entry.name == "stablehlo.iota" or (entry.name in CONSTANTS and self._has_one_element(entry)):
            self._duplicated[entry.results[0]] = (entry, 0)
        elif entry.name in _VIEWS and entry.operands[0] in self._duplicated:
            steps = self._duplicated[entry.operands[0]][1] + 1
            if steps < MAX_DUPLICATED_VIEWS:
                self._duplicated[entry.results[0]] = (entry, steps)

    def _has_one_element(self, constant: Entry) -> bool:
        dims = self._types[constant.results[0]].dims
        return constant.splat or (dims is not None and {0, 1}.issuperset(dims))

    def _use(self, block: Block, value: int) -> int:
        """Return a value for one use: iotas and constants are duplicated, so that uses share no dims, and one
        use may be an extent where another is not.
        """
        known = self._duplicated.get(value)
        if known is None:
            return value
        entry = known[0]
        operands = tuple(self._use(block, operand) for operand in entry.operands)
        self._types.append(self._types[value])
        copy = Entry(entry.operation, entry.name, operands, (len(self._types) - 1,))
        copy.splat = entry.splat
        block.entries.append(copy)
        self._duplicated[copy.results[0]] = (copy, known[1])
        return copy.results[0]

    def _regions(self, operation: ir.Operation, values: _Values, depth: int) -> tuple[Block, ...]:
        check("nesting of regions", depth + 1, self._limits.region_depth)
        bodies: list[list[ir.Operation]] = [[]]
        for child in mlir.child_operations(operation):
            bodies[-1].append(child)
            if child.name in TERMINATORS:
                bodies.append([])
        filled = [r for r in operation.regions if len(r.blocks)]
        if any(len(r.blocks) != 1 for r in filled) or bodies.pop() or len(bodies) != len(filled):
            raise _unsupported(operation, "its regions are not one block each with a known terminator")
        if len(filled) != len(operation.regions):
            raise _unsupported(operation, "it has an empty region")
        return tuple(
            self._region(region, body, values, depth) for region, body in zip(filled, bodies, strict=True)
        )

    def _region(self, region: ir.Region, body: list[ir.Operation], values: _Values, depth: int) -> Block:
        arguments = list(region.blocks[0].arguments)
        numbers = [self._value(a.type) for a in arguments]
        values.update(zip(arguments, numbers, strict=True))
        block = Block(tuple(numbers))
        results = self._record(body, values, block, depth + 1)
        block.results = tuple(self._use(block, value) for value in results)
        return block


def is_assertion(entry: Entry) -> bool:
    """Return whether an operation is a ``shape_assertion``."""
    return (
        not entry.results
        and entry.name == "stablehlo.custom_call"
        and string(entry.operation.attributes, "call_target_name") == "shape_assertion"
    )


def mark_live(block: Block, live: set[int] | None = None) -> None:
    """Mark the operations that the results and assertions of a block depend on."""
    live = set() if live is None else live
    live.update(block.results)
    for entry in reversed(block.entries):
        if is_assertion(entry):
            entry.live = True
            live.update(entry.operands)
        elif not live.isdisjoint(entry.results):
            entry.live = True
            for region in entry.regions:
                mark_live(region, live)
            live.update(entry.operands)


def is_splat(operation: ir.Operation) -> bool:
    """Return whether a constant is a splat; False of complex constants, which the bindings do not expose."""
    try:
        return bool(getattr(operation.attributes["value"], "is_splat", False))
    except TypeError:
        return False


def _unsupported(operation: ir.Operation, reason: str) -> UnsupportedOp:
    return UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
