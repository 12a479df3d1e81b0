"""Operations of a StableHLO module as programs of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kcache_compiler.errors import CompilerError, InvalidProgram, UnsupportedOp
from kcache_compiler.frontends import Program
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native
from kcache_compiler.support.alone import NotAloneError, alone

#: What computes nothing.
_STRUCTURE = frozenset({"func.return", "stablehlo.return", "func.call", "stablehlo.composite"})
#: What holds operations that are looked at one by one.
_CONTROL = frozenset({"stablehlo.if", "stablehlo.case", "stablehlo.while"})


@dataclass(frozen=True)
class Unit:
    """An operation that is refused, and why."""

    operation: Native
    op: str
    reason: str
    where: str


class Units:
    """The operations that a program's entry reaches, those inside of branches and loops too."""

    def __init__(self, program: Program) -> None:
        self._module = program.module  # owns the operations
        self._operations = [operation for function in _reached(program) for operation in _inside(function)]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._operations)

    def refused(
        self, why: Callable[[str], CompilerError | None], on_stage: Callable[[str], None]
    ) -> list[Unit]:
        """Those that are refused alone: ``why`` says of a program why it is. Equal ones are asked once."""
        known: dict[str, CompilerError | None] = {}
        found: list[Unit] = []
        for operation in self._operations:
            if operation.name == "stablehlo.constant":
                continue
            if operation.name in _CONTROL:
                inner = {child.operation for child in mlir.all_operations(operation)}
                if any(unit.operation.operation in inner for unit in found):
                    continue
            try:
                program = alone(operation)
            except NotAloneError:
                continue
            if program.text not in known:
                on_stage(_name(operation))
                known[program.text] = why(program.text)
            error = known[program.text]
            if error is None or isinstance(error, InvalidProgram):
                continue
            refusal = error if isinstance(error, UnsupportedOp) else None
            if refusal is not None and refusal.op in program.others:
                continue  # one of those that make its sizes, which are asked too
            reason = refusal.reason if refusal else str(error)
            found.append(
                Unit(operation, _name(operation), reason, mlir.describe_location(operation.location))
            )
        return found

    def without(self, units: Sequence[Unit]) -> str | None:
        """The module with zeros in place of their results; None where these have no zeros.

        Changes the module: the last thing to ask for.
        """
        native = mlir.native_ir()
        try:
            with self._module.context, native.Location.unknown():
                for unit in units:
                    _replace(native, unit.operation)
                return self._module.operation.get_asm()
        except (mlir.mlir_error(), ValueError):
            return None


def _reached(program: Program) -> Iterator[Native]:
    """The entry, and the functions that it calls."""
    pending, seen = [program.entry], {program.entry.attributes["sym_name"].value}
    while pending:
        function = pending.pop(0)
        yield function
        for operation in mlir.all_operations(function):
            for key in ("callee", "decomposition"):
                called = operation.attributes[key].value if key in operation.attributes else ""
                if called in program.functions and called not in seen:
                    seen.add(called)
                    pending.append(program.functions[called])


def _inside(parent: Native) -> Iterator[Native]:
    for operation in mlir.child_operations(parent):
        if operation.name in _STRUCTURE:
            continue
        if operation.name in _CONTROL:
            yield from _inside(operation)
        yield operation


def _name(operation: Native) -> str:
    """Its name; that of CHLO where it stands for it."""
    if operation.name != "stablehlo.custom_call":
        return operation.name
    target = operation.attributes["call_target_name"].value
    return target if target.startswith("chlo.") else f"{operation.name} @{target}"


def _replace(native: Native, operation: Native) -> None:
    for result in operation.results:
        element = str(result.type.element_type)
        zero = "(0.0, 0.0)" if "complex" in element else "false" if element == "i1" else "0"
        if zero == "0" and "i" not in element:
            zero = "0.0"
        made = native.Operation.create(
            "stablehlo.constant",
            results=[result.type],
            attributes={"value": native.Attribute.parse(f"dense<{zero}> : {result.type}")},
            ip=native.InsertionPoint(operation),
        )
        result.replace_all_uses_with(made.results[0])
    operation.erase()
