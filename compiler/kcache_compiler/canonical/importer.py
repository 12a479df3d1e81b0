"""Walks a verified native module into a ``Builder``: scopes, calls, regions and the generic operation.

Families add handlers for the operations that they know better. Calls are inlined without recursion and once
per distinct operands; regions recurse, to the depth that ``Limits`` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kcache_compiler.canonical.attributes import canonical_attributes
from kcache_compiler.canonical.builder import Builder, FinishedRegion
from kcache_compiler.canonical.graph import DYNAMIC, Ref, Region, ValueType
from kcache_compiler.canonical.native_types import TypeReader
from kcache_compiler.canonical.ops import SIDE_EFFECTS, TERMINATORS
from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends import context as mlir
from kcache_compiler.frontends.context import Native
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.program import Program


class Scope:
    """Values by name of one function body or region, and where to look further."""

    __slots__ = ("builder", "depth", "outer", "values")

    def __init__(self, builder: Builder, values: dict[Native, Ref], outer: Scope | None, depth: int) -> None:
        self.builder = builder
        self.values = values
        self.outer = outer
        self.depth = depth

    def __getitem__(self, value: Native) -> Ref:
        found = self.values.get(value)
        if found is None:
            assert self.outer is not None
            found = self.values[value] = self.builder.capture(self.outer[value])
        return found


#: Function and operands of a call.
_Call = tuple[str, tuple[Ref, ...]]


class _Frame:
    __slots__ = ("call", "draws", "key", "operations", "scope")

    def __init__(
        self, operations: Iterator[Native], scope: Scope, call: Native, key: _Call, draws: int
    ) -> None:
        self.operations = operations
        self.scope = scope
        self.call = call
        self.key = key
        self.draws = draws


Handler = Callable[[Scope, Native, "list[Ref]", "list[ValueType]"], "Sequence[Ref]"]


class Importer:
    """Imports one program. Subclasses fill ``handlers``, by native operation name.

    ``lifted``, when a rendered spec is read back: for the last arguments, by index, the digest of the lifted
    constant that each stands for.
    """

    def __init__(self, program: Program, limits: Limits, lifted: dict[int, bytes] | None = None) -> None:
        self.program = program
        self.limits = limits
        self.read_type = TypeReader(limits)
        self.handlers: dict[str, Handler] = {}
        self.operations = 0
        #: Random numbers drawn so far: what draws is not the same value when it is called again.
        self.draws = 0
        #: Bytes of lifted constants by their digest.
        self.contents: dict[bytes, bytes] = {}
        self._lifted = lifted or {}
        self._bodies: dict[str, list[Native]] = {}

    def run(self) -> tuple[FinishedRegion, tuple[ValueType, ...]]:
        """Import the entry function; return its region and its result types."""
        entry = self.program.entry
        arguments = list(entry.regions[0].blocks[0].arguments)
        params = tuple(self.read_type(a.type) for a in arguments)
        builder = Builder()
        values = self.parameters(builder, arguments, params)
        results = self._run_block(self._body(entry), Scope(builder, values, None, 0))
        types = tuple(builder.viewed_type(r) for r in results)
        inputs = params[: len(params) - len(self._lifted)]
        return builder.finish(inputs, results), types

    def parameters(
        self, builder: Builder, arguments: list[Native], params: Sequence[ValueType]
    ) -> dict[Native, Ref]:
        """Bind block arguments; where a rendered spec is read back, those that stand for lifted constants."""
        values = {a: builder.parameter(i, t) for i, (a, t) in enumerate(zip(arguments, params, strict=True))}
        if builder.parent is None:
            for index, digest in self._lifted.items():
                values[arguments[index]] = builder.lifted(digest, params[index])
        return values

    def alone(self, function: Native) -> Region:
        """Import a function of one block by itself."""
        arguments = list(function.regions[0].blocks[0].arguments)
        params = tuple(self.read_type(a.type) for a in arguments)
        builder = Builder()
        values = {a: builder.parameter(i, t) for i, (a, t) in enumerate(zip(arguments, params, strict=True))}
        results = self._run_block(mlir.child_operations(function), Scope(builder, values, None, 0))
        return builder.finish(params, results).region

    # -- blocks and calls

    def _run_block(self, operations: list[Native], scope: Scope) -> list[Ref]:
        frames = [_Frame(iter(operations), scope, None, ("", ()), 0)]
        while True:
            frame = frames[-1]
            entered = self._advance(frame)
            if isinstance(entered, _Frame):
                check("depth of calls", len(frames), self.limits.call_depth)
                frames.append(entered)
                continue
            frames.pop()
            if not frames:
                return entered
            if frame.draws == self.draws:
                frame.scope.builder.calls[frame.key] = entered
            self._bind(frames[-1].scope, frame.call, entered)

    def _advance(self, frame: _Frame) -> _Frame | list[Ref]:
        """Run a frame until it calls (return the callee's frame) or ends (return its results)."""
        scope = frame.scope
        for operation in frame.operations:
            self.operations += 1
            if self.operations > self.limits.operations:
                check("number of operations after inlining", self.operations, self.limits.operations)
            name: str = operation.name
            operands = [scope[value] for value in operation.operands]
            if name in TERMINATORS:
                return operands
            callee = self.callee(name, operation)
            if callee is None:
                self._bind(scope, operation, self._operation(scope, name, operation, operands))
                continue
            key = (callee, tuple(operands))
            known = scope.builder.calls.get(key)
            if known is None:
                return self._enter(scope, operation, callee, operands, key)
            self._bind(scope, operation, known)
        raise InvalidProgram("a block ends without a terminator")

    def callee(self, name: str, operation: Native) -> str | None:
        """Return the function to inline in place of this operation, if there is one."""
        if name != "func.call":
            return None
        return operation.attributes["callee"].value

    def _enter(self, scope: Scope, call: Native, callee: str, operands: list[Ref], key: _Call) -> _Frame:
        function = self.program.functions.get(callee)
        if function is None or not len(function.regions[0].blocks):
            raise InvalidProgram(f"{call.name} of @{callee}, which has no body{self._where(call)}")
        arguments = list(function.regions[0].blocks[0].arguments)
        values = dict(zip(arguments, operands, strict=True))
        return _Frame(
            iter(self._body(function)), Scope(scope.builder, values, None, scope.depth), call, key, self.draws
        )

    def _body(self, function: Native) -> list[Native]:
        name = function.attributes["sym_name"].value
        body = self._bodies.get(name)
        if body is None:
            if len(function.regions[0].blocks) != 1:
                raise UnsupportedOp(
                    "func.func", "its body has several blocks: use structured control flow", f"@{name}"
                )
            body = self._bodies[name] = mlir.child_operations(function)
        return body

    def _bind(self, scope: Scope, operation: Native, results: Sequence[Ref]) -> None:
        values = scope.values
        for value, ref in zip(operation.results, results, strict=True):
            values[value] = ref

    # -- operations

    def _operation(self, scope: Scope, name: str, operation: Native, operands: list[Ref]) -> Sequence[Ref]:
        reason = SIDE_EFFECTS.get(name)
        if reason:
            raise self.unsupported(operation, reason)
        types = [self.read_type(result.type) for result in operation.results]
        handler = self.handlers.get(name)
        if handler is None:
            return self.generic(scope, operation, operands, types)
        results = handler(scope, operation, operands, types)
        if self.read_type.dynamic:
            self._refuse_refinement(scope, operation, results, types)
        return results

    def _refuse_refinement(
        self, scope: Scope, operation: Native, results: Sequence[Ref], types: list[ValueType]
    ) -> None:
        """A declared size that the operands do not show would be lost: it has no place in the graph."""
        for result, declared in zip(results, types, strict=True):
            inferred = scope.builder.viewed_type(result).dims or ()
            for size, wanted in zip(inferred, declared.dims or (), strict=False):
                if size == DYNAMIC != wanted:
                    reason = f"its result has size {wanted} along a dimension that is unknown in its operands"
                    raise self.unsupported(operation, reason)

    def generic(
        self,
        scope: Scope,
        operation: Native,
        operands: list[Ref],
        types: list[ValueType],
        replaced: dict[str, str] | None = None,
        skip: Sequence[str] = (),
    ) -> Sequence[Ref]:
        """Import any operation whole: attributes as text, regions as sub-graphs, operands in their own
        dims.
        """
        name: str = operation.name
        if len(operation.successors):
            raise self.unsupported(operation, "control flow between blocks is not structured")
        attributes = canonical_attributes(
            name, operation.attributes, self.limits.attribute_characters, skip, replaced
        )
        regions = self.regions(scope, operation)
        return scope.builder.opaque(self.node_name(name), attributes, operands, tuple(types), regions)

    @staticmethod
    def node_name(name: str) -> str:
        """Return the node's name for a native operation."""
        return name.removeprefix("stablehlo.")

    def regions(self, scope: Scope, operation: Native) -> list[FinishedRegion]:
        """Import all regions of an operation."""
        if not len(operation.regions):
            return []
        check("nesting of regions", scope.depth + 1, self.limits.region_depth)
        bodies: list[list[Native]] = [[]]
        for child in mlir.child_operations(operation):
            bodies[-1].append(child)
            if child.name in TERMINATORS:
                bodies.append([])
        filled = [r for r in operation.regions if len(r.blocks)]
        if any(len(r.blocks) != 1 for r in filled) or bodies.pop() or len(bodies) != len(filled):
            raise self.unsupported(operation, "its regions are not one block each with a known terminator")
        if len(filled) != len(operation.regions):
            raise self.unsupported(operation, "it has an empty region")
        return [self._region(scope, region, body) for region, body in zip(filled, bodies, strict=True)]

    def _region(self, scope: Scope, region: Native, body: list[Native]) -> FinishedRegion:
        arguments = list(region.blocks[0].arguments)
        params = tuple(self.read_type(a.type) for a in arguments)
        builder = Builder(scope.builder)
        inner = Scope(builder, self.parameters(builder, arguments, params), scope, scope.depth + 1)
        return builder.finish(params, self._run_block(body, inner))

    # -- errors

    def unsupported(self, operation: Native, reason: str) -> UnsupportedOp:
        """Return the error for an operation that cannot be imported."""
        return UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))

    @staticmethod
    def _where(operation: Native) -> str:
        where = mlir.describe_location(operation.location)
        return f" at {where}" if where else ""
