"""The importer of StableHLO and CHLO: views, reductions, contractions, calls and composites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.program import Program
from kcache_compiler.frontends.stablehlo.legalize_chlo import chlo_definition
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy
from kcache_compiler.shapes.monomial import product, size_text
from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.element_types import lossless
from kcache_compiler.spec.graph.native import (
    array,
    boolean,
    integer,
    integers,
    optional_integers,
    string,
)
from kcache_compiler.spec.graph.nodes import (
    DYNAMIC,
    Ref,
    ValueType,
    broadcast_in_dim,
    spread,
    unit_reshape,
    whole,
)
from kcache_compiler.spec.graph.operations import ASSERTED, COMBINERS, IDENTITY_CALLS, fits, native_chlo
from kcache_compiler.spec.graph.reduction import (
    ReductionInput,
    add_reduction,
    combiner_of,
    combiner_of_region,
)
from kcache_compiler.spec.graph.reshape import reshape
from kcache_compiler.spec.importers.dot_general import DotNumbers, contracted_space, dot_numbers
from kcache_compiler.spec.importers.elementwise import ElementwiseImporter
from kcache_compiler.spec.importers.importer import Scope
from kcache_compiler.spec.rewrites.table import RewriteSite, reduce, simplify

if TYPE_CHECKING:
    from torch_mlir import ir


class StablehloImporter(ElementwiseImporter):
    """Imports a StableHLO program."""

    def __init__(
        self, program: Program, limits: Limits, numerics: str, lifted: dict[int, bytes] | None = None
    ) -> None:
        super().__init__(program, limits, numerics, lifted)
        #: Conditions of shape assertions.
        self._assertions: list[Ref] = []
        #: Whether a composite is the CHLO op of its name, by (name, decomposition).
        self._natives: dict[tuple[str, str], bool] = {}
        self._comparing_definitions = False
        self.handlers = {
            **self.handlers,
            "stablehlo.iota": self._iota,
            "stablehlo.broadcast_in_dim": self._broadcast_in_dim,
            "stablehlo.broadcast": self._broadcast,
            "stablehlo.transpose": self._transpose,
            "stablehlo.reshape": self._reshape,
            "stablehlo.reduce": self._reduce,
            "stablehlo.dot_general": self._dot_general,
            "stablehlo.dot": self._dot,
            "stablehlo.sort": self._sort,
            "stablehlo.optimization_barrier": self._identity,
            "stablehlo.custom_call": self._custom_call,
            "stablehlo.composite": self._composite,
            "stablehlo.concatenate": self._concatenate,
            "stablehlo.slice": self._slice,
            "stablehlo.gather": self._sized_slice,
            "stablehlo.dynamic_slice": self._sized_slice,
            "stablehlo.reverse": self._reverse,
            "stablehlo.rng": self._rng,
        }

    def callee(self, name: str, operation: ir.Operation) -> str | None:
        """Inline calls, and composites that are no CHLO operation."""
        if name == "stablehlo.composite" and not self._is_native(operation):
            return string(operation.attributes, "decomposition")
        return super().callee(name, operation)

    def _is_native(self, composite: ir.Operation) -> bool:
        """Whether a composite is the CHLO op of its name.

        The semantics of a composite is its decomposition, whatever its name: it is the op if the
        decomposition equals the one to which the toolchain legalizes the op.
        """
        name: str = string(composite.attributes, "name")
        if native_chlo(name) is None or self._comparing_definitions:
            return False
        decomposition: str = string(composite.attributes, "decomposition")
        known = self._natives.get((name, decomposition))
        if known is None:
            known = self._natives[name, decomposition] = self._equals_definition(name, decomposition)
        return known

    def _equals_definition(self, name: str, decomposition: str) -> bool:
        function = self.program.functions.get(decomposition)
        if function is None or len(function.regions[0].blocks) != 1:
            return False
        type = lazy.function_type(function)
        if len(type.results) != 1:
            return False
        definition = chlo_definition(name, type.inputs, type.results[0])
        if definition is None:
            return False
        saved = self.draws, self._constant_bytes
        self._comparing_definitions = True
        try:
            (expected,) = mlir.child_operations(definition.operation)
            actual, defined = self.import_function(function), self.import_function(expected)
        finally:
            self._comparing_definitions = False
            self.draws, self._constant_bytes = saved
        return actual == defined and not actual.captures

    def _operation(
        self, scope: Scope, name: str, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if name.startswith("chlo.broadcast_"):
            dims = optional_integers(operation.attributes, "broadcast_dimensions")
            return self._implicit_broadcast(scope, operation, name, dims, operands, types[0])
        return super()._operation(scope, name, operation, operands, types)

    def reject(self, name: str, operation: ir.Operation) -> None:
        """Raise for an operation with side effects or unstructured control flow, also if it is dead."""
        super().reject(name, operation)
        if name != "stablehlo.custom_call":
            return
        attributes = operation.attributes
        target = string(attributes, "call_target_name")
        if target == "shape_assertion" and not len(operation.results):
            return
        if target in IDENTITY_CALLS or target.startswith("chlo.broadcast_"):
            return
        if "has_side_effect" in attributes and boolean(attributes, "has_side_effect"):
            raise self.unsupported(operation, f"the custom call @{target} has side effects")
        if array(attributes, "called_computations"):
            raise self.unsupported(operation, f"the custom call @{target} calls functions of the program")

    # -- views

    @staticmethod
    def _identity(
        scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        return operands

    def _broadcast_in_dim(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        # A dim of unknown size may be 1, and is expanded then, which no view can express.
        unknown = self.read_type.dynamic and DYNAMIC in (
            self.read_type(operation.operands[0].type).dims or ()
        )
        if unknown or not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        dims = tuple(integers(operation.attributes, "broadcast_dimensions"))
        node, result, view = operands[0]
        return [Ref(node, result, broadcast_in_dim(view, dims, types[0].dims or ()))]

    def _broadcast(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        sizes = tuple(integers(operation.attributes, "broadcast_sizes"))
        return [operands[0]._replace(view=(*map(spread, sizes), *operands[0].view))]

    def _transpose(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        view = operands[0].view
        permutation: list[int] = integers(operation.attributes, "permutation")
        return [operands[0]._replace(view=tuple(view[d] for d in permutation))]

    def _reshape(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        old = scope.builder.viewed_type(operands[0]).dims or ()
        new = types[0].dims or ()
        if not self._plain(scope, operands, types) or any(d < 0 for d in (*old, *new)):
            return self.generic(scope, operation, operands, types)
        old_count, new_count = product(old), product(new)
        if None not in (old_count, new_count) and old_count != new_count:
            raise self.unsupported(operation, "it states the product of dynamic dimensions")
        view = unit_reshape(operands[0].view, old, new)
        return [
            operands[0]._replace(view=view) if view is not None else reshape(scope.builder, operands[0], new)
        ]

    def _iota(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        shape = types[0].dims or ()
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        dim: int = integer(operation.attributes, "iota_dimension")
        vector = scope.builder.opaque("iota", "", [], (ValueType(types[0].element, (shape[dim],)),))[0]
        return [vector._replace(view=broadcast_in_dim(vector.view, (dim,), shape))]

    # -- reductions

    def _reduce(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        half = len(operands) // 2
        dims = frozenset(integers(operation.attributes, "dimensions"))
        (block,) = scope.entry.regions
        combiner = combiner_of(block) if half == 1 else None
        region = None if combiner else self.regions(scope)[0]
        if region is not None and half == 1:
            combiner = combiner_of_region(region.region, COMBINERS)
        inputs, initial = (
            [self._promote(scope, ref, type) for ref, type in zip(part, types, strict=True)]
            for part in (operands[:half], operands[half:])
        )
        source = ReductionInput(inputs, initial, dims)
        if combiner:
            return [reduce(scope.builder, self.numerics, combiner, source, types[0])]
        return add_reduction(scope.builder, "reduce", "", source, [t.element for t in types], region)

    def _dot_general(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        numbers = dot_numbers(operation.attributes["dot_dimension_numbers"])
        return self._contract(scope, operation, operands, types, numbers)

    def _dot(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        contracted = ([len(operands[0].view) - 1], [0])
        return self._contract(scope, operation, operands, types, ([], [], *contracted))

    def _contract(
        self,
        scope: Scope,
        operation: ir.Operation,
        operands: list[Ref],
        types: list[ValueType],
        numbers: DotNumbers,
    ) -> Sequence[Ref]:
        """Import a contraction as a sum over a product, in the index space batch, lhs free, rhs free,
        contracted.
        """
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        lhs, rhs, reduced, space = contracted_space(scope.builder, operands, numbers)
        attributes = self._attributes(operation, ("dot_dimension_numbers",))
        result = types[0]
        sources = [scope.builder.type_of(o).element for o in operands]
        if attributes or not all(lossless(s, result.element) for s in sources):
            source = ReductionInput([lhs, rhs], [], reduced)
            return add_reduction(scope.builder, "dot_general", attributes, source, [result.element])
        factors = [self._promote(scope, factor, result) for factor in (lhs, rhs)]
        product = self._build(scope, "multiply", "", ValueType(result.element, space), factors)
        zero = scope.builder.constant(Constant.scalar("0", result.element).content, result.element, (), ())
        source = ReductionInput(product, [zero], reduced)
        return [reduce(scope.builder, self.numerics, "add", source, result)]

    # -- other operations

    def _sort(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Import a sort with a dimension that is not negative."""
        rank = len(types[0].dims or ())
        attributes = operation.attributes
        dimension = integer(attributes, "dimension") if "dimension" in attributes else -1
        return self.generic(
            scope, operation, operands, types, {"dimension": f"{dimension % max(rank, 1)} : i64"}
        )

    def _concatenate(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Import a concatenation of several operands; one operand is the result itself."""
        return operands if len(operands) == 1 else self.generic(scope, operation, operands, types)

    def _slice(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Import a slice; the limit of a dim that is taken whole is its size, which may be erased."""
        (source,) = operands
        sizes = scope.builder.viewed_type(source).dims or ()
        starts, limits, strides = (
            integers(operation.attributes, f"{name}s") for name in ("start_indice", "limit_indice", "stride")
        )
        stated = self.read_type(operation.operands[0].type).dims or ()
        is_whole = [
            (start, stride) == (0, 1) and limit == size != DYNAMIC
            for start, limit, stride, size in zip(starts, limits, strides, stated, strict=True)
        ]
        if all(is_whole) and self._plain(scope, operands, types):
            return operands
        ends = [size if w else limit for w, size, limit in zip(is_whole, sizes, limits, strict=True)]
        text = f"array<i64: {', '.join(map(size_text, ends))}>"
        return self.generic(scope, operation, operands, types, {"limit_indices": text})

    def _sized_slice(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Import slice sizes; that of a dim that is taken whole is its size, which may be erased."""
        erased = scope.builder.viewed_type(operands[0]).dims or ()
        stated = self.read_type(operation.operands[0].type).dims or ()
        slice_sizes = integers(operation.attributes, "slice_sizes")
        if not slice_sizes:
            return self.generic(scope, operation, operands, types)
        sizes = [e if n == s else n for n, s, e in zip(slice_sizes, stated, erased, strict=True)]
        text = f"array<i64: {', '.join(map(size_text, sizes))}>"
        return self.generic(scope, operation, operands, types, {"slice_sizes": text})

    def _reverse(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Import a reversal of sorted dims, without dims that are broadcast; two equal reversals cancel."""
        (source,) = operands
        plain = self._plain(scope, operands, types)
        dims = sorted(
            d for d in integers(operation.attributes, "dimensions") if not plain or source.view[d] >= 0
        )
        if not dims:
            return operands
        text = f"array<i64: {', '.join(map(str, dims))}>"
        (reversed_,) = self.generic(scope, operation, operands, types, {"dimensions": text})
        inner, outer = (scope.builder.nodes[ref.node] for ref in (source, reversed_))
        cancels = inner.op == "reverse" and inner.attributes == outer.attributes
        return inner.operands if cancels and source.view == whole(inner.results[0].dims) else [reversed_]

    def _custom_call(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        attributes = operation.attributes
        target = string(attributes, "call_target_name")
        if target == "shape_assertion" and not types:
            return self._assert(scope, operation, operands)
        native = native_chlo(target)
        operand_types = [scope.builder.viewed_type(ref) for ref in operands]
        if native and self._plain(scope, operands, types):
            if not fits(native, operand_types, types):
                raise self.unsupported(operation, f"@{target} does not have these operands and results")
            return self._build(scope, native, "", types[0], operands)
        if target.startswith("chlo.broadcast_"):
            dims = optional_integers(attributes, "broadcast_dimensions", within="mhlo.attributes")
            return self._implicit_broadcast(scope, operation, target, dims, operands, types[0])
        if target in IDENTITY_CALLS:
            if operand_types != types:
                raise self.unsupported(
                    operation, f"@{target} changes the shape of a value; a kernel runs on one device"
                )
            return operands
        return self.generic(scope, operation, operands, types)

    def _assert(self, scope: Scope, operation: ir.Operation, operands: list[Ref]) -> Sequence[Ref]:
        """Collect the condition of a shape assertion; ``finish`` makes the first result depend on it."""
        if scope.outer is not None or self._comparing_definitions:
            raise self.unsupported(operation, "a shape assertion inside a region or a composite")
        if not operands or scope.builder.viewed_type(operands[0]) != ValueType("i1", ()):
            raise self.unsupported(operation, "its condition is not a scalar of i1")
        self._assertions.append(operands[0])
        return []

    def finish(self, builder: Builder, results: list[Ref]) -> list[Ref]:
        """Make the first result depend on all assertions."""
        if not self._assertions or not results:
            return results
        boolean = ValueType("i1", ())
        condition, *others = dict.fromkeys(self._assertions)
        for other in others:
            condition = simplify(RewriteSite(builder, self.numerics, "and", "", boolean, (condition, other)))
        first = builder.viewed_type(results[0])
        attributes = f'call_target_name = "{ASSERTED}"'
        guarded = builder.opaque("custom_call", attributes, [results[0], condition], (first,))
        return [*guarded, *results[1:]]

    def _composite(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        native = native_chlo(string(operation.attributes, "name"))
        assert native is not None
        return self._build(scope, native, "", types[0], operands)

    def _rng(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Import a random draw; draws are numbered in program order, as two draws are different values."""
        self.draws += 1
        return self.generic(scope, operation, operands, types, {"kcache.draw": f"{self.draws} : i64"})
