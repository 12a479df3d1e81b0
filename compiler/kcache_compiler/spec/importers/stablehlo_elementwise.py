"""StableHLO and CHLO into the canonical graph: what works element by element, and constants."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.limits import INLINE_CONSTANT_BYTES, Limits, check
from kcache_compiler.frontends.program import Program
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native
from kcache_compiler.shapes.monomial import is_symbolic
from kcache_compiler.spec.graph.attributes import canonical_attributes
from kcache_compiler.spec.graph.constants import Constant, read_constant
from kcache_compiler.spec.graph.native_types import is_plain
from kcache_compiler.spec.graph.nodes import Ref, ValueType, broadcast_in_dim, spread
from kcache_compiler.spec.graph.operations import ELEMENTWISE
from kcache_compiler.spec.importers.importer import Importer, Scope
from kcache_compiler.spec.importers.linalg import lift
from kcache_compiler.spec.rewrites.table import Site, simplest
from kcache_compiler.types import PLAIN_DTYPES

_SWAPPED = {"GT": "LT", "GE": "LE"}


class ElementsImporter(Importer):
    """Imports what works element by element, and constants, for ``numerics``.

    ``contents`` collects the bytes of lifted constants by their digest.
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
        return [simplest(Site(scope.builder, self.numerics, op, attributes, type, tuple(shaped)))]

    def _elementwise(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        attributes = self._attributes(operation)
        return self._build(scope, ELEMENTWISE[operation.name], attributes, types[0], operands)

    def _attributes(self, operation: Native, skip: tuple[str, ...] = ()) -> str:
        native = operation.attributes
        return (
            canonical_attributes(operation.name, native, self.limits.attribute_characters, skip)
            if len(native)
            else ""
        )

    def _plain(self, scope: Scope, operands: list[Ref], types: list[ValueType]) -> bool:
        """Whether views may show these."""
        return self.read_type.plain or all(map(is_plain, [*types, *map(scope.builder.type_of, operands)]))

    def _compare(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        if not self._plain(scope, operands, types):
            return self.generic(scope, operation, operands, types)
        direction = _enumerator(operation.attributes["comparison_direction"])
        kind = _compare_type(operation, scope.builder.viewed_type(operands[0]).element)
        return self._comparison(scope, direction, kind, operands, types[0])

    def _comparison(
        self, scope: Scope, direction: str, kind: str, operands: list[Ref], type: ValueType
    ) -> Sequence[Ref]:
        if direction in _SWAPPED:
            direction, operands = _SWAPPED[direction], operands[::-1]
        attributes = f"{direction}, TOTALORDER" if kind == "TOTALORDER" else direction
        return self._build(scope, "compare", attributes, type, operands)

    def _bitcast(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        source = scope.builder.viewed_type(operands[0])
        if self._plain(scope, operands, types) and len(source.dims or ()) == len(types[0].dims or ()):
            return self._build(scope, "bitcast_convert", "", types[0], operands)
        return self.generic(scope, operation, operands, types)

    def _implicit_broadcast(
        self,
        scope: Scope,
        operation: Native,
        name: str,
        given: Native,
        operands: list[Ref],
        type: ValueType,
    ) -> Sequence[Ref]:
        """CHLO's broadcasting ops over static shapes: views, and the op itself."""
        op = name.removeprefix("chlo.broadcast_")
        shapes = [scope.builder.viewed_type(o).dims or () for o in operands]
        if any(d < 0 for dims in (*shapes, type.dims or ()) for d in dims):
            if not operation.name.startswith("chlo."):
                raise self.unsupported(operation, "it broadcasts dimensions that are not static")
            return self.generic(scope, operation, operands, [type])
        largest, whole = max(map(len, shapes)), type.dims or ()
        shaped: list[Ref] = []
        for ref, dims in zip(operands, shapes, strict=True):
            numpy_like = range(len(whole) - len(dims), len(whole))
            where = tuple(given) if given is not None and len(dims) < largest else tuple(numpy_like)
            _check_broadcast(operation, dims, where, whole)
            shaped.append(Ref(ref.node, ref.result, broadcast_in_dim(ref.view, where, whole)))
        if op == "compare":
            direction = _enumerator(operation.attributes["comparison_direction"])
            kind = _compare_type(operation, scope.builder.viewed_type(operands[0]).element)
            return self._comparison(scope, direction, kind, shaped, type)
        return self._build(
            scope, f"chlo.{op}" if f"stablehlo.{op}" not in ELEMENTWISE else op, "", type, shaped
        )

    # -- constants

    def _constant(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        type = types[0]
        if "!" in type.element:
            return self.generic(scope, operation, operands, types)
        extent = self.extents.get(scope.entry.results[0])
        if extent is not None:
            index = scope.builder.node("extent", extent.text, (), (), (ValueType(type.element, ()),))
            shown = Ref(index, 0, tuple(map(spread, type.dims or ())))
            return self._build(scope, "negate", "", type, [shown]) if extent.negative else [shown]
        constant = self.constants.get(operation)
        if constant is None:
            constant = read_constant(operation, self.read_type(operation.results[0].type))
            self.constants[operation] = constant
            self._constant_bytes += constant.size
            check("bytes of constants", self._constant_bytes, self.limits.constant_bytes)
        return [self._place(scope, constant, type)]

    def _scalar_or_constant(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        """A tensor of another dialect's constant is a constant; scalars and indices are that dialect's."""
        if types[0].dims is None or types[0].element not in PLAIN_DTYPES:
            return self.generic(scope, operation, operands, types)
        return self._constant(scope, operation, operands, types)

    def _place(self, scope: Scope, constant: Constant, type: ValueType) -> Ref:
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
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        text = str(operation.attributes["value"]).partition(" : ")[0]
        return [self._place(scope, Constant.scalar(text, types[0].element), types[0])]

    def _widened(self, scope: Scope, ref: Ref, type: ValueType) -> Ref:
        """Convert to the element of ``type``; what a reduction or contraction promotes, it promotes first."""
        if scope.builder.type_of(ref).element == type.element:
            return ref
        shown = ValueType(type.element, scope.builder.viewed_type(ref).dims)
        return self._build(scope, "convert", "", shown, [ref])[0]


def optional(attributes: Native, name: str) -> Native:
    """Return an attribute, or None: the native mappings have no common ``get``."""
    return attributes[name] if name in attributes else None  # noqa: SIM401


def _compare_type(operation: Native, element: str) -> str:
    """The attribute, which must be one for the elements; nothing where there is none."""
    kind = _enumerator(optional(operation.attributes, "compare_type"))
    whole, floats = element.startswith(("i", "ui")), element.startswith(("f", "bf"))
    of_floats, of_integers = kind in ("FLOAT", "TOTALORDER"), kind in ("SIGNED", "UNSIGNED")
    complex = element in ("c64", "c128") and kind not in ("", "FLOAT")
    if (whole and of_floats) or (floats and of_integers) or complex:
        raise _invalid(operation, f"compare_type {kind} is not for elements of {element}")
    return kind


def _check_broadcast(
    operation: Native, dims: Sequence[int], where: Sequence[int], whole: Sequence[int]
) -> None:
    """Raise where ``dims`` cannot stand on axes ``where`` of ``whole``; open sizes are checked at calls."""
    if len(where) != len(dims) or not set(where) <= set(range(len(whole))) or len(set(where)) < len(where):
        raise _invalid(
            operation, f"broadcast_dimensions {list(where)} do not place {len(dims)} axes in {len(whole)}"
        )
    for size, at in zip(dims, where, strict=True):
        known = not is_symbolic(size) and not is_symbolic(whole[at])
        if known and size not in (1, whole[at]):
            raise _invalid(operation, f"an axis of {size} is not broadcast to {whole[at]}")


def _invalid(operation: Native, reason: str) -> InvalidProgram:
    where = mlir.describe_location(operation.location)
    return InvalidProgram(f"{operation.name}{' at ' + where if where else ''}: {reason}")


def _enumerator(attribute: Native) -> str:
    """Return ``LT`` of ``#stablehlo<comparison_direction LT>``, and nothing of nothing."""
    return "" if attribute is None else str(attribute).rstrip(">").rpartition(" ")[2]
