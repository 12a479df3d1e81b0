"""The base importer: builds the canonical graph of a tape from scopes, regions and generic operations.

Subclasses add handlers of operations. Operands are views with erased sizes; a broadcast dim has the size of
its use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.program import Program
from kcache_compiler.mlir import context as mlir
from kcache_compiler.spec.erasure import Erasure, Shapes, without_erasure
from kcache_compiler.spec.graph.attributes import canonical_attributes
from kcache_compiler.spec.graph.builder import Builder, FinishedRegion
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.native import TypeReader, string
from kcache_compiler.spec.graph.nodes import DYNAMIC, Ref, Region, ValueType, spread
from kcache_compiler.spec.graph.operations import SIDE_EFFECTS
from kcache_compiler.spec.importers.extents import Extent, find_extents
from kcache_compiler.spec.importers.flatten import Block, Entry, Recorder, Tape
from kcache_compiler.spec.importers.index_axes import index_axes

if TYPE_CHECKING:
    from torch_mlir import ir


class Scope:
    """The values of one block by number, its current operation, and the enclosing scope."""

    __slots__ = ("builder", "entry", "outer", "values")

    def __init__(self, builder: Builder, values: dict[int, Ref], outer: Scope | None) -> None:
        self.builder = builder
        self.values = values
        self.outer = outer
        self.entry: Entry

    def __getitem__(self, value: int) -> Ref:
        ref = self.values.get(value)
        if ref is None:
            assert self.outer is not None
            ref = self.values[value] = self.builder.capture(self.outer[value])
        return ref

    def use(self, value: int, sizes: tuple[int, ...]) -> Ref:
        """Return a value for a use, whose broadcast dims have these sizes."""
        ref = self[value]
        if not sizes or min(ref.view, default=0) >= 0:
            return ref
        view = tuple([e if e >= 0 else spread(size) for e, size in zip(ref.view, sizes, strict=True)])
        return ref if view == ref.view else Ref(ref.node, ref.result, view)


Handler = Callable[[Scope, "ir.Operation", "list[Ref]", "list[ValueType]"], "Sequence[Ref]"]


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
        #: Constants that were read, by operation, and constants that are extents, by value.
        self.constants: dict[ir.Operation, Constant] = {}
        self.extents: dict[int, Extent] = {}
        self._lifted = lifted or {}

    def run(
        self, erasing: bool = True
    ) -> tuple[FinishedRegion, tuple[ValueType, ...], tuple[ValueType, ...]]:
        """Import the entry function; return its region, and the stated types of its arguments and results.

        Without ``erasing`` all sizes are kept.
        """
        tape = self.record(self.program.entry)
        stated = list(tape.types)
        erasure = Erasure(tape, len(self._lifted)) if erasing else None
        self.shapes = erasure.shapes() if erasure else without_erasure(tape)
        index_ties = index_axes(tape, self.shapes, self.constants)
        self.extents, ties = find_extents(tape, self.shapes, self.constants)
        if erasure and (ties or index_ties):
            self.shapes = erasure.shapes({**ties, **index_ties}, self.shapes.symbols)
            self.extents, _ = find_extents(tape, self.shapes, self.constants)
        builder = Builder()
        try:
            finished = self._import(tape, builder)
        finally:
            # Bound methods would keep the importer and its module alive in a reference cycle.
            self.handlers = {}
        arguments = tuple(stated[v] for v in tape.body.parameters)
        return finished, arguments, tuple(stated[v] for v in tape.body.results)

    def record(self, function: ir.Operation) -> Tape:
        """Record a function with its calls inlined."""
        return Recorder(self.program, self.limits, self.read_type, self.callee, self.reject).run(function)

    def import_function(self, function: ir.Operation) -> Region:
        """Import a function of one block as a separate region, without erasure."""
        tape = self.record(function)
        outside = getattr(self, "shapes", None)
        self.shapes = without_erasure(tape)
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
        """Return the results of the program, given those of its body."""
        return results

    def callee(self, name: str, operation: ir.Operation) -> str | None:
        """Return the function that is inlined for an operation, if any."""
        if name != "func.call":
            return None
        return string(operation.attributes, "callee")

    def reject(self, name: str, operation: ir.Operation) -> None:
        """Raise for an operation with side effects or unstructured control flow, also if it is dead."""
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
        self, scope: Scope, name: str, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        handler = self.handlers.get(name)
        if handler is None:
            return self.generic(scope, operation, operands, types)
        results = handler(scope, operation, operands, types)
        if self.read_type.dynamic:
            self._reject_refinement(scope, operation, results, types)
        return results

    def _reject_refinement(
        self, scope: Scope, operation: ir.Operation, results: Sequence[Ref], types: list[ValueType]
    ) -> None:
        """Raise if a result has a static size that does not follow from the operands: the graph would lose
        it.
        """
        for result, declared in zip(results, types, strict=True):
            inferred = scope.builder.viewed_type(result).dims or ()
            for size, stated in zip(inferred, declared.dims or (), strict=False):
                if size == DYNAMIC != stated:
                    reason = f"its result has size {stated} along a dimension that is unknown in its operands"
                    raise self.unsupported(operation, reason)

    def generic(
        self,
        scope: Scope,
        operation: ir.Operation,
        operands: list[Ref],
        types: list[ValueType],
        replaced: dict[str, str] | None = None,
        skip: Sequence[str] = (),
    ) -> Sequence[Ref]:
        """Import an operation as an opaque node: attributes as text, regions as graphs, operands in their
        own dims. ``replaced`` are texts of attributes; ``skip`` are attributes to leave out.
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
        """Return the node name of a native operation."""
        return name.removeprefix("stablehlo.")

    def regions(self, scope: Scope) -> list[FinishedRegion]:
        """Import all regions of the current operation."""
        return [self._region(scope, region) for region in scope.entry.regions]

    def _region(self, scope: Scope, block: Block) -> FinishedRegion:
        params = tuple(self.shapes.types[v] for v in block.parameters)
        builder = Builder(scope.builder)
        values = {
            v: builder.parameter(i, t) for i, (v, t) in enumerate(zip(block.parameters, params, strict=True))
        }
        return builder.finish(params, self._block(block, Scope(builder, values, scope)))

    # -- errors

    def unsupported(self, operation: ir.Operation, reason: str) -> UnsupportedOp:
        """Return the error for an operation that cannot be imported."""
        return UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
