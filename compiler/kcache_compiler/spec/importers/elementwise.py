"""The importer of elementwise operations of StableHLO and CHLO, and of constants."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.limits import INLINE_CONSTANT_BYTES, Limits, check
from kcache_compiler.frontends.program import Program
from kcache_compiler.mlir import context as mlir
from kcache_compiler.shapes.monomial import is_symbolic
from kcache_compiler.spec.graph.attributes import canonical_attributes
from kcache_compiler.spec.graph.constants import Constant, read_constant
from kcache_compiler.spec.graph.native import is_plain, optional
from kcache_compiler.spec.graph.nodes import Ref, ValueType, broadcast_in_dim, spread
from kcache_compiler.spec.graph.operations import ELEMENTWISE
from kcache_compiler.spec.importers.importer import Importer, Scope
from kcache_compiler.spec.importers.linalg import lift
from kcache_compiler.spec.rewrites.table import RewriteSite, simplify
from kcache_compiler.types import PLAIN_DTYPES

if TYPE_CHECKING:
    from torch_mlir import ir

_MIRRORED = {"GT": "LT", "GE": "LE"}


class ElementwiseImporter(Importer):
    """Imports elementwise operations and constants under a numerics class.

    ``contents`` collects the bytes of lifted constants by digest.
    """

    def __init__(
        self, program: Program, limits: Limits, numerics: str, lifted: dict[int, bytes] | None = None
    ) -> None:
        super().__init__(program, limits, lifted)
        self.numerics = numerics
        self._constant_bytes = 0
        self.handlers = {
            **dict.fromkeys(ELEMENTWISE, self._elementwise),
            "stablehlo.constant": self._constant,
            "arith.constant": self._scalar_or_constant,
            "chlo.constant": self._constant,
            "chlo.constant_like": self._constant_like,
            "stablehlo.compare": self._compare,
            "stablehlo.bitcast_convert": self._bitcast,
        }

    def _build(
        self, scope: Scope, op: str, attributes: str, type: ValueType, operands: list[Ref]
    ) -> list[Ref]:
        assert type.dims is not None
        rank = len(type.dims)
        shaped = [
            o if len(o.view) == rank else Ref(o.node, o.result, tuple(map(spread, type.dims)))
            for o in operands
        ]
        return [simplify(RewriteSite(scope.builder, self.numerics, op, attributes, type, tuple(shaped)))]

    def _elementwise(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        attributes = self._attributes(operation)
        return self._build(scope, ELEMENTWISE[operation.name], attributes, types[0], operands)

    def _attributes(self, operation: ir.Operation, skip: tuple[str, ...] = ()) -> str:
        native = operation.attributes
        return (
            canonical_attributes(operation.name, native, self.limits.attribute_characters, skip)
            if len(native)
            else ""
        )

    def _plain(self, scope: Scope, operands: list[Ref], types: list[ValueType]) -> bool:
        """Whether views may represent these values."""
        return self.read_type.plain or all(map(is_plain, [*types, *map(scope.builder.type_of, operands)]))

    def _compare(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        direction = _enumerator(operation.attributes["comparison_direction"])
        kind = _compare_type(operation, scope.builder.viewed_type(operands[0]).element)
        return self._comparison(scope, direction, kind, operands, types[0])

    def _comparison(
        self, scope: Scope, direction: str, kind: str, operands: list[Ref], type: ValueType
    ) -> Sequence[Ref]:
        if direction in _MIRRORED:
            direction, operands = _MIRRORED[direction], operands[::-1]
        attributes = f"{direction}, TOTALORDER" if kind == "TOTALORDER" else direction
        return self._build(scope, "compare", attributes, type, operands)

    def _bitcast(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        source = scope.builder.viewed_type(operands[0])
        if self._plain(scope, operands, types) and len(source.dims or ()) == len(types[0].dims or ()):
            return self._build(scope, "bitcast_convert", "", types[0], operands)
        return self.generic(scope, operation, operands, types)

    def _implicit_broadcast(
        self,
        scope: Scope,
        operation: ir.Operation,
        name: str,
        broadcast_dims: Sequence[int] | None,
        operands: list[Ref],
        type: ValueType,
    ) -> Sequence[Ref]:
        """Import an elementwise operation with implicit broadcasting as views and the operation itself."""
        op = name.removeprefix("chlo.broadcast_")
        shapes = [scope.builder.viewed_type(o).dims or () for o in operands]
        if any(d < 0 for dims in (*shapes, type.dims or ()) for d in dims):
            if not operation.name.startswith("chlo."):
                raise self.unsupported(operation, "it broadcasts dynamic dimensions")
            return self.generic(scope, operation, operands, [type])
        largest, result = max(map(len, shapes)), type.dims or ()
        shaped: list[Ref] = []
        for ref, dims in zip(operands, shapes, strict=True):
            if broadcast_dims is not None and len(dims) < largest:
                axes = tuple(broadcast_dims)
            else:
                axes = tuple(range(len(result) - len(dims), len(result)))
            _check_broadcast(operation, dims, axes, result)
            shaped.append(Ref(ref.node, ref.result, broadcast_in_dim(ref.view, axes, result)))
        if op == "compare":
            direction = _enumerator(operation.attributes["comparison_direction"])
            kind = _compare_type(operation, scope.builder.viewed_type(operands[0]).element)
            return self._comparison(scope, direction, kind, shaped, type)
        return self._build(
            scope, f"chlo.{op}" if f"stablehlo.{op}" not in ELEMENTWISE else op, "", type, shaped
        )

    # -- constants

    def _constant(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        type = types[0]
        if "!" in type.element:
            return self.generic(scope, operation, operands, types)
        extent = self.extents.get(scope.entry.results[0])
        if extent is not None:
            index = scope.builder.node("extent", extent.text, (), (), (ValueType(type.element, ()),))
            value = Ref(index, 0, tuple(map(spread, type.dims or ())))
            return self._build(scope, "negate", "", type, [value]) if extent.negative else [value]
        constant = self.constants.get(operation)
        if constant is None:
            constant = read_constant(operation, self.read_type(operation.results[0].type))
            self.constants[operation] = constant
            self._constant_bytes += constant.size
            check("bytes of constants", self._constant_bytes, self.limits.constant_bytes)
        return [self._add_constant(scope, constant, type)]

    def _scalar_or_constant(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """Import an ``arith.constant``: a tensor as a constant; scalars and indices as they are."""
        if types[0].dims is None or types[0].element not in PLAIN_DTYPES:
            return self.generic(scope, operation, operands, types)
        return self._constant(scope, operation, operands, types)

    def _add_constant(self, scope: Scope, constant: Constant, type: ValueType) -> Ref:
        assert type.dims is not None
        builder = scope.builder
        if constant.splat:
            return builder.constant(constant.content, type.element, (), type.dims)
        if constant.size <= INLINE_CONSTANT_BYTES or constant.content.startswith("="):
            return builder.constant(constant.content, type.element, type.dims, type.dims)
        content = bytes.fromhex(constant.content)
        digest = hashlib.sha256(content).digest()
        self.contents[digest] = content
        return lift(builder, digest, type)

    def _constant_like(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        text = str(operation.attributes["value"]).partition(" : ")[0]
        return [self._add_constant(scope, Constant.scalar(text, types[0].element), types[0])]

    def _promote(self, scope: Scope, ref: Ref, type: ValueType) -> Ref:
        """Convert an operand that a reduction or contraction promotes to the element of ``type``."""
        if scope.builder.type_of(ref).element == type.element:
            return ref
        promoted = ValueType(type.element, scope.builder.viewed_type(ref).dims)
        return self._build(scope, "convert", "", promoted, [ref])[0]


def _compare_type(operation: ir.Operation, element: str) -> str:
    """The ``compare_type``, which must fit the element type; empty if it is absent."""
    kind = _enumerator(optional(operation.attributes, "compare_type"))
    integers, floats = element.startswith(("i", "ui")), element.startswith(("f", "bf"))
    of_floats, of_integers = kind in ("FLOAT", "TOTALORDER"), kind in ("SIGNED", "UNSIGNED")
    complex = element in ("c64", "c128") and kind not in ("", "FLOAT")
    if (integers and of_floats) or (floats and of_integers) or complex:
        raise _invalid(operation, f"compare_type {kind} is not for elements of {element}")
    return kind


def _check_broadcast(
    operation: ir.Operation, dims: Sequence[int], axes: Sequence[int], result: Sequence[int]
) -> None:
    """Raise if ``dims`` cannot be broadcast to ``axes`` of ``result``; symbolic sizes are checked at run
    time.
    """
    if len(axes) != len(dims) or not set(axes) <= set(range(len(result))) or len(set(axes)) < len(axes):
        raise _invalid(
            operation, f"broadcast_dimensions {list(axes)} do not place {len(dims)} axes in {len(result)}"
        )
    for size, axis in zip(dims, axes, strict=True):
        known = not is_symbolic(size) and not is_symbolic(result[axis])
        if known and size not in (1, result[axis]):
            raise _invalid(operation, f"an axis of {size} is not broadcast to {result[axis]}")


def _invalid(operation: ir.Operation, reason: str) -> InvalidProgram:
    where = mlir.describe_location(operation.location)
    return InvalidProgram(f"{operation.name}{' at ' + where if where else ''}: {reason}")


def _enumerator(attribute: ir.Attribute | None) -> str:
    """Return ``LT`` of ``#stablehlo<comparison_direction LT>``; empty if the attribute is absent."""
    return "" if attribute is None else str(attribute).rstrip(">").rpartition(" ")[2]
