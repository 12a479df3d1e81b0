"""The importer of linalg programs on tensors.

Structured operations are nodes with their indexing maps, iterator types and a canonical region; scalar and
other tensor operations are nodes of their own. Names, order, duplicates and dead code are removed, and
operands of commutative scalar arithmetic are ordered. There are no views, so these programs share no keys
with StableHLO's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcache_compiler.frontends.limits import INLINE_CONSTANT_BYTES, Limits, check
from kcache_compiler.frontends.program import Program
from kcache_compiler.spec.graph.builder import Builder
from kcache_compiler.spec.graph.constants import dense_text, is_resource, read_constant
from kcache_compiler.spec.graph.nodes import Ref, ValueType
from kcache_compiler.spec.importers.importer import Importer, Scope

if TYPE_CHECKING:
    from torch_mlir import ir


class LinalgImporter(Importer):
    """Imports a linalg program. ``contents`` collects the bytes of lifted constants by their digest."""

    def __init__(self, program: Program, limits: Limits, lifted: dict[int, bytes] | None = None) -> None:
        super().__init__(program, limits, lifted)
        self._constant_bytes = 0
        self.handlers = {"arith.constant": self._constant}

    def generic(
        self,
        scope: Scope,
        operation: ir.Operation,
        operands: list[Ref],
        types: list[ValueType],
        replaced: dict[str, str] | None = None,
        skip: Sequence[str] = (),
    ) -> Sequence[Ref]:
        """Import an operation with canonically ordered operands, if it is commutative."""
        ordered = list(scope.builder.commuted(operation.name, "", operands))
        return super().generic(scope, operation, ordered, types, replaced, skip)

    def _constant(
        self, scope: Scope, operation: ir.Operation, operands: list[Ref], types: list[ValueType]
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
    """Return a lifted constant: a leaf of the outermost builder, captured by each nested one."""
    if builder.parent is None:
        return builder.lifted(digest, type)
    return builder.capture(lift(builder.parent, digest, type))
