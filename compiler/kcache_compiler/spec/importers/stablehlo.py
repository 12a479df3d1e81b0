"""StableHLO and CHLO into the canonical graph."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.program import Program
from kcache_compiler.frontends.stablehlo.chlo_definition import chlo_definition
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native
from kcache_compiler.shapes.monomial import product, size_text
from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.element_types import lossless
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
from kcache_compiler.spec.graph.reduction import ReductionInput, add_reduction, combiner_of, is_combiner
from kcache_compiler.spec.graph.reshape import reshape
from kcache_compiler.spec.importers.dot_general import DotNumbers, contracted_space, dot_numbers
from kcache_compiler.spec.importers.importer import Scope
from kcache_compiler.spec.importers.stablehlo_elementwise import ElementsImporter, optional
from kcache_compiler.spec.rewrites.table import Site, reduce, simplest


class StablehloImporter(ElementsImporter):
    """Imports a StableHLO program."""

    def __init__(
        self, program: Program, limits: Limits, numerics: str, lifted: dict[int, bytes] | None = None
    ) -> None:
        super().__init__(program, limits, numerics, lifted)
        #: What must hold of sizes.
        self._asserted: list[Ref] = []
        #: (name, decomposition) of a composite -> whether it is the CHLO op of that name
        self._natives: dict[tuple[str, str], bool] = {}
        self._proving = False
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

    def callee(self, name: str, operation: Native) -> str | None:
        """Inline calls, and composites that are not an operation of ours."""
        if name == "stablehlo.composite" and not self._is_native(operation):
            return operation.attributes["decomposition"].value
        return super().callee(name, operation)

    def _is_native(self, composite: Native) -> bool:
        """Whether a composite is the CHLO op of its name.

        A composite means its decomposition, whatever its name: it is the op where the decomposition is what
        the toolchain legalizes the op to.
        """
        name: str = composite.attributes["name"].value
        if native_chlo(name) is None or self._proving:
            return False
        decomposition: str = composite.attributes["decomposition"].value
        known = self._natives.get((name, decomposition))
        if known is None:
            known = self._natives[name, decomposition] = self._defines(name, decomposition)
        return known

    def _defines(self, name: str, decomposition: str) -> bool:
        function = self.program.functions.get(decomposition)
        if function is None or len(function.regions[0].blocks) != 1:
            return False
        type = function.attributes["function_type"].value
        if len(type.results) != 1:
            return False
        definition = chlo_definition(name, type.inputs, type.results[0])
        if definition is None:
            return False
        kept = self.draws, self._constant_bytes
        self._proving = True
        try:
            (wanted,) = mlir.child_operations(definition.operation)
            given, defined = self.alone(function), self.alone(wanted)
        finally:
            self._proving = False
            self.draws, self._constant_bytes = kept
        return given == defined and not given.captures

    def _operation(
        self, scope: Scope, name: str, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if name.startswith("chlo.broadcast_"):
            given = optional(operation.attributes, "broadcast_dimensions")
            return self._implicit_broadcast(scope, operation, name, given, operands, types[0])
        return super()._operation(scope, name, operation, operands, types)

    def refuse(self, name: str, operation: Native) -> None:
        """Raise for an operation that no kernel does, whether its results are needed or not."""
        super().refuse(name, operation)
        if name != "stablehlo.custom_call":
            return
        attributes = operation.attributes
        target = attributes["call_target_name"].value
        if target == "shape_assertion" and not len(operation.results):
            return
        if target in IDENTITY_CALLS or target.startswith("chlo.broadcast_"):
            return
        if "has_side_effect" in attributes and attributes["has_side_effect"].value:
            raise self.unsupported(operation, f"the custom call @{target} has side effects")
        if "called_computations" in attributes and len(attributes["called_computations"]):
            raise self.unsupported(operation, f"the custom call @{target} calls functions of the program")

    # -- views

    @staticmethod
    def _identity(
        scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        return operands

    def _broadcast_in_dim(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        # A dim of unknown size may turn out to be 1, and is then repeated: no view says that.
        unknown = self.read_type.dynamic and DYNAMIC in (
            self.read_type(operation.operands[0].type).dims or ()
        )
        if unknown or not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        dims = tuple(operation.attributes["broadcast_dimensions"])
        node, result, view = operands[0]
        return [Ref(node, result, broadcast_in_dim(view, dims, types[0].dims or ()))]

    def _broadcast(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        sizes = tuple(operation.attributes["broadcast_sizes"])
        return [operands[0]._replace(view=(*map(spread, sizes), *operands[0].view))]

    def _transpose(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        view = operands[0].view
        permutation: list[int] = list(operation.attributes["permutation"])
        return [operands[0]._replace(view=tuple(view[d] for d in permutation))]

    def _reshape(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        old = scope.builder.viewed_type(operands[0]).dims or ()
        new = types[0].dims or ()
        if not self._plain(scope, operands, types) or any(d < 0 for d in (*old, *new)):
            return self.generic(scope, operation, operands, types)
        count, wanted = product(old), product(new)
        if count is not None and wanted is not None and count != wanted:
            raise self.unsupported(operation, "it fixes the product of sizes that are open")
        view = unit_reshape(operands[0].view, old, new)
        return [
            operands[0]._replace(view=view) if view is not None else reshape(scope.builder, operands[0], new)
        ]

    def _iota(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        shape = types[0].dims or ()
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        dim: int = operation.attributes["iota_dimension"].value
        along = scope.builder.opaque("iota", "", [], (ValueType(types[0].element, (shape[dim],)),))[0]
        return [along._replace(view=broadcast_in_dim(along.view, (dim,), shape))]

    # -- reductions

    def _reduce(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        half = len(operands) // 2
        dims = frozenset(operation.attributes["dimensions"])
        (block,) = scope.entry.regions
        simple = combiner_of(block) if half == 1 else None
        region = None if simple else self.regions(scope)[0]
        if region is not None and half == 1:
            simple = is_combiner(region.region, COMBINERS)
        inputs, initial = (
            [self._widened(scope, ref, type) for ref, type in zip(part, types, strict=True)]
            for part in (operands[:half], operands[half:])
        )
        source = ReductionInput(inputs, initial, dims)
        if simple:
            return [reduce(scope.builder, self.numerics, simple, source, types[0])]
        return add_reduction(scope.builder, "reduce", "", source, [t.element for t in types], region)

    def _dot_general(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        numbers = dot_numbers(operation.attributes["dot_dimension_numbers"])
        return self._contract(scope, operation, operands, types, numbers)

    def _dot(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        contracted = ([len(operands[0].view) - 1], [0])
        return self._contract(scope, operation, operands, types, ([], [], *contracted))

    def _contract(
        self,
        scope: Scope,
        operation: Native,
        operands: list[Ref],
        types: list[ValueType],
        numbers: DotNumbers,
    ) -> Sequence[Ref]:
        """A contraction is a sum over a product in the index space batch, lhs free, rhs free, contracted."""
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        lhs, rhs, reduced, space = contracted_space(scope.builder, operands, numbers)
        attributes = self._attributes(operation, ("dot_dimension_numbers",))
        result = types[0]
        sources = [scope.builder.type_of(o).element for o in operands]
        if attributes or not all(lossless(s, result.element) for s in sources):
            source = ReductionInput([lhs, rhs], [], reduced)
            return add_reduction(scope.builder, "dot_general", attributes, source, [result.element])
        factors = [self._widened(scope, factor, result) for factor in (lhs, rhs)]
        product = self._build(scope, "multiply", "", ValueType(result.element, space), factors)
        zero = scope.builder.constant(Constant.scalar("0", result.element).content, result.element, (), ())
        source = ReductionInput(product, [zero], reduced)
        return [reduce(scope.builder, self.numerics, "add", source, result)]

    # -- the rest

    def _sort(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Name the sorted dimension from the front."""
        rank = len(types[0].dims or ())
        attributes = operation.attributes
        dimension = attributes["dimension"].value if "dimension" in attributes else -1
        return self.generic(
            scope, operation, operands, types, {"dimension": f"{dimension % max(rank, 1)} : i64"}
        )

    def _concatenate(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """One operand is itself."""
        return operands if len(operands) == 1 else self.generic(scope, operation, operands, types)

    def _slice(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Dims that are taken whole say so by their size, which may be erased; all of them is the operand."""
        (source,) = operands
        shown = scope.builder.viewed_type(source).dims or ()
        starts, limits, strides = (
            list(operation.attributes[f"{name}s"]) for name in ("start_indice", "limit_indice", "stride")
        )
        stated = self.read_type(operation.operands[0].type).dims or ()
        taken = [
            (start, stride) == (0, 1) and limit == size != DYNAMIC
            for start, limit, stride, size in zip(starts, limits, strides, stated, strict=True)
        ]
        if all(taken) and self._plain(scope, operands, types):
            return operands
        ends = [size if all_ else limit for all_, size, limit in zip(taken, shown, limits, strict=True)]
        text = f"array<i64: {', '.join(map(size_text, ends))}>"
        return self.generic(scope, operation, operands, types, {"limit_indices": text})

    def _sized_slice(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Sizes of slices that are whole axes are those axes' sizes, which may be erased."""
        shown = scope.builder.viewed_type(operands[0]).dims or ()
        stated = self.read_type(operation.operands[0].type).dims or ()
        given = list(operation.attributes["slice_sizes"])
        if not given:
            return self.generic(scope, operation, operands, types)
        sizes = [a if n == s else n for n, s, a in zip(given, stated, shown, strict=True)]
        text = f"array<i64: {', '.join(map(size_text, sizes))}>"
        return self.generic(scope, operation, operands, types, {"slice_sizes": text})

    def _reverse(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Name the dims in order, without those along which all is the same; reversed twice is not
        reversed.
        """
        (source,) = operands
        plain = self._plain(scope, operands, types)
        dims = sorted(d for d in operation.attributes["dimensions"] if not plain or source.view[d] >= 0)
        if not dims:
            return operands
        text = f"array<i64: {', '.join(map(str, dims))}>"
        (made,) = self.generic(scope, operation, operands, types, {"dimensions": text})
        inner, outer = (scope.builder.nodes[ref.node] for ref in (source, made))
        same = inner.op == "reverse" and inner.attributes == outer.attributes
        return inner.operands if same and source.view == whole(inner.results[0].dims) else [made]

    def _custom_call(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        attributes = operation.attributes
        target = attributes["call_target_name"].value
        if target == "shape_assertion" and not types:
            return self._assert(scope, operation, operands)
        native = native_chlo(target)
        given = [scope.builder.viewed_type(ref) for ref in operands]
        if native and self._plain(scope, operands, types):
            if not fits(native, given, types):
                raise self.unsupported(operation, f"@{target} does not have these operands and results")
            return self._build(scope, native, "", types[0], operands)
        if target.startswith("chlo.broadcast_"):
            given = optional(attributes, "mhlo.attributes")
            dims = optional(given, "broadcast_dimensions") if given is not None else None
            return self._implicit_broadcast(scope, operation, target, dims, operands, types[0])
        if target in IDENTITY_CALLS:
            if given != types:
                raise self.unsupported(
                    operation, f"@{target} changes the shape of a value; a kernel runs on one device"
                )
            return operands
        return self.generic(scope, operation, operands, types)

    def _assert(self, scope: Scope, operation: Native, operands: list[Ref]) -> Sequence[Ref]:
        """What must hold of sizes, remembered until there are results that it may stop."""
        if scope.outer is not None or self._proving:
            raise self.unsupported(operation, "an assertion of sizes inside a region or a composite")
        if not operands or scope.builder.viewed_type(operands[0]) != ValueType("i1", ()):
            raise self.unsupported(operation, "what it asserts is not a scalar of i1")
        self._asserted.append(operands[0])
        return []

    def finish(self, builder: Builder, results: list[Ref]) -> list[Ref]:
        """The first result is one only where all assertions hold."""
        if not self._asserted or not results:
            return results
        both = ValueType("i1", ())
        condition, *others = dict.fromkeys(self._asserted)
        for other in others:
            condition = simplest(Site(builder, self.numerics, "and", "", both, (condition, other)))
        first = builder.viewed_type(results[0])
        attributes = f'call_target_name = "{ASSERTED}"'
        made = builder.opaque("custom_call", attributes, [results[0], condition], (first,))
        return [*made, *results[1:]]

    def _composite(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        native = native_chlo(operation.attributes["name"].value)
        assert native is not None
        return self._build(scope, native, "", types[0], operands)

    def _rng(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Two draws are two values: each is numbered, in the order of the program."""
        self.draws += 1
        return self.generic(scope, operation, operands, types, {"kcache.draw": f"{self.draws} : i64"})
