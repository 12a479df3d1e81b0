"""The operations of a StableHLO program, each compiled separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kcache_compiler.errors import CompilerError, InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.program import Program
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy
from kcache_compiler.spec.graph.native import string
from kcache_compiler.support.single_operation import NotExtractableError, single_operation

if TYPE_CHECKING:
    from torch_mlir import ir

#: Operations that compute nothing.
_STRUCTURE = frozenset({"func.return", "stablehlo.return", "func.call", "stablehlo.composite"})
#: Operations whose regions are checked operation by operation.
_CONTROL = frozenset({"stablehlo.if", "stablehlo.case", "stablehlo.while"})


@dataclass(frozen=True)
class RejectedOperation:
    """An operation that does not compile, its name, the reason and its location."""

    operation: ir.Operation
    op: str
    reason: str
    where: str


class StablehloOperations:
    """The operations that the entry function reaches, also those in branches and loops."""

    def __init__(self, program: Program) -> None:
        self._module = program.module  # owns the operations
        self._operations = [
            operation
            for function in _reachable_functions(program)
            for operation in _nested_operations(function)
        ]

    @property
    def count(self) -> int:
        """The number of operations."""
        return len(self._operations)

    def rejected(
        self, compile_error: Callable[[str], CompilerError | None], on_stage: Callable[[str], None]
    ) -> list[RejectedOperation]:
        """Return the operations that do not compile separately.

        ``compile_error`` returns the error of a module's text, and is called once for equal operations.
        """
        known: dict[str, CompilerError | None] = {}
        rejected: list[RejectedOperation] = []
        for operation in self._operations:
            if operation.name == "stablehlo.constant":
                continue
            if operation.name in _CONTROL:
                inner = {child.operation for child in mlir.all_operations(operation)}
                if any(other.operation.operation in inner for other in rejected):
                    continue
            try:
                program = single_operation(operation)
            except NotExtractableError:
                continue
            if program.text not in known:
                on_stage(_name(operation))
                known[program.text] = compile_error(program.text)
            error = known[program.text]
            if error is None or isinstance(error, InvalidProgram):
                continue
            rejection = error if isinstance(error, UnsupportedOp) else None
            if rejection is not None and rejection.op in program.size_operations:
                continue  # compiled separately, too
            reason = rejection.reason if rejection else str(error)
            rejected.append(
                RejectedOperation(
                    operation, _name(operation), reason, mlir.describe_location(operation.location)
                )
            )
        return rejected

    def without(self, operations: Sequence[RejectedOperation]) -> str | None:
        """Return the module with zeros for the results of operations; None for types without a zero.

        The module is changed: no other method may be called afterwards.
        """
        native = mlir.native_ir()
        try:
            with self._module.context, native.Location.unknown():
                for rejected in operations:
                    _replace(rejected.operation)
                return self._module.operation.get_asm()
        except (mlir.mlir_error(), ValueError):
            return None


def _reachable_functions(program: Program) -> Iterator[ir.Operation]:
    """The entry function, and the functions that it calls."""
    pending, seen = [program.entry], {lazy.string(program.entry.attributes["sym_name"])}
    while pending:
        function = pending.pop(0)
        yield function
        for operation in mlir.all_operations(function):
            for key in ("callee", "decomposition"):
                called = string(operation.attributes, key) if key in operation.attributes else ""
                if called in program.functions and called not in seen:
                    seen.add(called)
                    pending.append(program.functions[called])


def _nested_operations(parent: ir.Operation) -> Iterator[ir.Operation]:
    for operation in mlir.child_operations(parent):
        if operation.name in _STRUCTURE:
            continue
        if operation.name in _CONTROL:
            yield from _nested_operations(operation)
        yield operation


def _name(operation: ir.Operation) -> str:
    """The name of an operation; a custom call that stands for a CHLO operation has the name of that."""
    if operation.name != "stablehlo.custom_call":
        return operation.name
    target = string(operation.attributes, "call_target_name")
    return target if target.startswith("chlo.") else f"{operation.name} @{target}"


def _replace(operation: ir.Operation) -> None:
    native = mlir.native_ir()
    for result in operation.results:
        element = str(cast("ir.RankedTensorType", result.type).element_type)
        zero = "(0.0, 0.0)" if "complex" in element else "false" if element == "i1" else "0"
        if zero == "0" and "i" not in element:
            zero = "0.0"
        constant = native.Operation.create(
            "stablehlo.constant",
            results=[result.type],
            attributes={"value": native.Attribute.parse(f"dense<{zero}> : {result.type}")},
            ip=native.InsertionPoint(operation),
        )
        result.replace_all_uses_with(constant.results[0])
    operation.erase()
