"""Linalg on tensors into the canonical graph.

Structured operations are nodes with their indexing maps, iterator types and a canonical region; scalars and
other tensor operations are nodes as they are. Names, order, duplicates and dead code are gone, and operands
of
commutative scalar arithmetic are ordered. There are no views: these programs do not meet StableHLO's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from kcache_compiler.frontends.limits import INLINE_CONSTANT_BYTES, Limits, check
from kcache_compiler.frontends.program import Program
from kcache_compiler.mlir.context import Native
from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.constants import dense_text, is_resource, read_constant
from kcache_compiler.spec.graph.nodes import Ref, ValueType
from kcache_compiler.spec.importers.importer import Importer, Scope


class LinalgImporter(Importer):
    """Imports a linalg program. ``contents`` collects the bytes of lifted constants by their digest."""

    def __init__(self, program: Program, limits: Limits, lifted: dict[int, bytes] | None = None) -> None:
        super().__init__(program, limits, lifted)
        self._constant_bytes = 0
        self.handlers = {"arith.constant": self._constant}

    def generic(
        self,
        scope: Scope,
        operation: Native,
        operands: list[Ref],
        types: list[ValueType],
        replaced: dict[str, str] | None = None,
        skip: Sequence[str] = (),
    ) -> Sequence[Ref]:
        """Import any operation, its operands ordered where they commute."""
        ordered = list(scope.builder.commuted(operation.name, "", operands))
        return super().generic(scope, operation, ordered, types, replaced, skip)

    def _constant(
        self, scope: Scope, operation: Native, operands: list[Ref], types: list[ValueType]
    ) -> Sequence[Ref]:
        type = types[0]
        if type.dims is None:
            return self.generic(scope, operation, operands, types)
        constant = read_constant(operation, type)
        self._constant_bytes += constant.size
        check("bytes of constants", self._constant_bytes, self.limits.constant_bytes)
        if constant.splat or constant.size <= INLINE_CONSTANT_BYTES or constant.content.startswith("="):
            inline = {"value": dense_text(operation, constant)} if is_resource(operation) else None
            return self.generic(scope, operation, operands, types, inline)
        content = bytes.fromhex(constant.content)
        digest = hashlib.sha256(content).digest()
        self.contents[digest] = content
        return [lift(scope.builder, digest, type)]


def lift(builder: Builder, digest: bytes, type: ValueType) -> Ref:
    """Return a lifted constant: a leaf of the outermost builder, captured on the way back in."""
    if builder.parent is None:
        return builder.lifted(digest, type)
    return builder.capture(lift(builder.parent, digest, type))
