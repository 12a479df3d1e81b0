"""Builds the canonical graph of a tape: scopes, regions and the generic operation.

Families add handlers for the operations that they know better. Operands are views over the sizes that
erasure left; a broadcast dim has the size of its use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.program import Program
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native
from kcache_compiler.spec.erasure import Erasure, Shapes, keep
from kcache_compiler.spec.graph.attributes import canonical_attributes
from kcache_compiler.spec.graph.builder import Builder, FinishedRegion
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.native_types import TypeReader
from kcache_compiler.spec.graph.nodes import DYNAMIC, Ref, Region, ValueType, spread
from kcache_compiler.spec.graph.operations import SIDE_EFFECTS
from kcache_compiler.spec.importers.counted_axes import counted_axes
from kcache_compiler.spec.importers.extents import Extent, find_extents
from kcache_compiler.spec.importers.flatten import Block, Entry, Recorder, Tape


class Scope:
    """Values by number of one block, the operation at hand, and where to look further."""

    __slots__ = ("builder", "entry", "outer", "values")

    def __init__(self, builder: Builder, values: dict[int, Ref], outer: Scope | None) -> None:
        self.builder = builder
        self.values = values
        self.outer = outer
        self.entry: Entry

    def __getitem__(self, value: int) -> Ref:
        found = self.values.get(value)
        if found is None:
            assert self.outer is not None
            found = self.values[value] = self.builder.capture(self.outer[value])
        return found

    def use(self, value: int, sizes: tuple[int, ...]) -> Ref:
        """Return a value as it is used: its broadcast dims have these sizes."""
        ref = self[value]
        if not sizes or min(ref.view, default=0) >= 0:
            return ref
        view = tuple([e if e >= 0 else spread(size) for e, size in zip(ref.view, sizes, strict=True)])
        return ref if view == ref.view else Ref(ref.node, ref.result, view)


Handler = Callable[[Scope, Native, "list[Ref]", "list[ValueType]"], "Sequence[Ref]"]


class Importer:
    """Imports one program. Subclasses fill ``handlers``, by native operation name.

    ``lifted``: for the last arguments, by index, the digest of the lifted constant that each stands for.
    """

    def __init__(self, program: Program, limits: Limits, lifted: dict[int, bytes] | None = None) -> None:
        self.program = program
        self.limits = limits
        self.read_type = TypeReader(limits)
        self.handlers: dict[str, Handler] = {}
        #: Random numbers drawn so far.
        self.draws = 0
        #: Bytes of lifted constants by their digest.
        self.contents: dict[bytes, bytes] = {}
        self.shapes: Shapes
        #: Constants that were read, and those that are sizes, by number of the value.
        self.constants: dict[Native, Constant] = {}
        self.extents: dict[int, Extent] = {}
        self._lifted = lifted or {}

    def run(
        self, erasing: bool = True
    ) -> tuple[FinishedRegion, tuple[ValueType, ...], tuple[ValueType, ...]]:
        """Import the entry function; return its region, and the types of its arguments and results as the
        program states them. Without ``erasing`` every size stays.
        """
        tape = self.record(self.program.entry)
        stated = list(tape.types)
        erasure = Erasure(tape, len(self._lifted)) if erasing else None
        self.shapes = erasure.shapes() if erasure else keep(tape)
        counted = counted_axes(tape, self.shapes, self.constants)
        self.extents, ties = find_extents(tape, self.shapes, self.constants)
        if erasure and (ties or counted):
            self.shapes = erasure.shapes({**ties, **counted}, self.shapes.symbols)
            self.extents, _ = find_extents(tape, self.shapes, self.constants)
        builder = Builder()
        try:
            finished = self._import(tape, builder)
        finally:
            # Bound methods: with them the importer, and the module that it reads, would be a cycle.
            self.handlers = {}
        arguments = tuple(stated[v] for v in tape.body.parameters)
        return finished, arguments, tuple(stated[v] for v in tape.body.results)

    def record(self, function: Native) -> Tape:
        """Record a function with its calls inlined."""
        return Recorder(self.program, self.limits, self.read_type, self.callee, self.refuse).run(function)

    def alone(self, function: Native) -> Region:
        """Import a function of one block by itself, its sizes kept."""
        tape = self.record(function)
        outside = getattr(self, "shapes", None)
        self.shapes = keep(tape)
        builder = Builder()
        params = tuple(tape.types[v] for v in tape.body.parameters)
        values = {
            v: builder.parameter(i, t)
            for i, (v, t) in enumerate(zip(tape.body.parameters, params, strict=True))
        }
        region = builder.finish(params, self._block(tape.body, Scope(builder, values, None))).region
        if outside is not None:
            self.shapes = outside
        return region

    def _import(self, tape: Tape, builder: Builder) -> FinishedRegion:
        params = tuple(self.shapes.types[v] for v in tape.body.parameters)
        values: dict[int, Ref] = {}
        for index, (value, type) in enumerate(zip(tape.body.parameters, params, strict=True)):
            digest = self._lifted.get(index)
            values[value] = builder.parameter(index, type) if digest is None else builder.lifted(digest, type)
        results = self.finish(builder, self._block(tape.body, Scope(builder, values, None)))
        return builder.finish(params[: len(params) - len(self._lifted)], results)

    def finish(self, builder: Builder, results: list[Ref]) -> list[Ref]:
        """Return the results of the program, of what its blocks gave."""
        return results

    def callee(self, name: str, operation: Native) -> str | None:
        """Return the function to inline in place of this operation, if there is one."""
        if name != "func.call":
            return None
        return operation.attributes["callee"].value

    def refuse(self, name: str, operation: Native) -> None:
        """Raise for an operation that no kernel does, whether its results are needed or not."""
        reason = SIDE_EFFECTS.get(name)
        if reason:
            raise self.unsupported(operation, reason)
        if len(operation.successors):
            raise self.unsupported(operation, "control flow between blocks is not structured")

    # -- blocks

    def _block(self, block: Block, scope: Scope) -> list[Ref]:
        values, types = scope.values, self.shapes.types
        for entry in block.entries:
            if not entry.live:
                continue
            if entry.uses:
                operands = [scope.use(v, s) for v, s in zip(entry.operands, entry.uses, strict=True)]
            else:
                operands = [scope[v] for v in entry.operands]
            scope.entry = entry
            results = self._operation(
                scope, entry.name, entry.operation, operands, [types[v] for v in entry.results]
            )
            for value, ref in zip(entry.results, results, strict=True):
                values[value] = ref
        if block.uses:
            return [scope.use(v, s) for v, s in zip(block.results, block.uses, strict=True)]
        return [scope[v] for v in block.results]

    def _operation(
        self, scope: Scope, name: str, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
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
        attributes = canonical_attributes(
            name, operation.attributes, self.limits.attribute_characters, skip, replaced
        )
        return scope.builder.opaque(
            self.node_name(name), attributes, operands, tuple(types), self.regions(scope)
        )

    @staticmethod
    def node_name(name: str) -> str:
        """Return the node's name for a native operation."""
        return name.removeprefix("stablehlo.")

    def regions(self, scope: Scope) -> list[FinishedRegion]:
        """Import all regions of the operation at hand."""
        return [self._region(scope, region) for region in scope.entry.regions]

    def _region(self, scope: Scope, block: Block) -> FinishedRegion:
        params = tuple(self.shapes.types[v] for v in block.parameters)
        builder = Builder(scope.builder)
        values = {
            v: builder.parameter(i, t) for i, (v, t) in enumerate(zip(block.parameters, params, strict=True))
        }
        return builder.finish(params, self._block(block, Scope(builder, values, scope)))

    # -- errors

    def unsupported(self, operation: Native, reason: str) -> UnsupportedOp:
        """Return the error for an operation that cannot be imported."""
        return UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
