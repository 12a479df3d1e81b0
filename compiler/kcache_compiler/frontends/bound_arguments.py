"""Replaces the constants that a client keeps back by arguments of the entry function.

A client that binds large constants writes a call without operands in place of each:

    %0 = stablehlo.custom_call @kcache.argument() {backend_config = "3"} : () -> tensor<512x512xf32>

or, in programs without StableHLO, a constant with a resource that the program does not define:

    %0 = arith.constant dense_resource<kcache.argument.3> : tensor<512x512xf32>

The placeholders are numbered from 0. They become arguments of the entry function, after its own, in the
order of their numbers; placeholders of the same number are one argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Op, Type, Value

#: ``call_target_name`` of a placeholder.
PLACEHOLDER_TARGET = "kcache.argument"

_RESOURCE = re.compile(r"dense_resource<\"?kcache\.argument\.(\d{1,9})\"?> : ")


def bind_arguments(entry: Op, functions: Mapping[str, Op], limits: Limits) -> None:
    """Replace every placeholder by an argument of ``entry``, also in the functions that it calls.

    Raises ``InvalidProgram`` for placeholders that do not have the documented form.
    """
    placeholders = {name: _placeholders(function) for name, function in functions.items()}
    types = _argument_types(placeholders)
    if not types:
        return
    check("number of arguments", len(types), limits.arguments)
    _ArgumentForwarding(functions, placeholders, types).run(entry)


def _placeholders(function: Op) -> list[tuple[int, Op]]:
    """Return the placeholders of a function as (number, operation)."""
    placeholders: list[tuple[int, Op]] = []
    for operation in mlir.all_operations(function):
        if operation.name == "arith.constant":
            match = _RESOURCE.match(str(operation.attributes["value"]))
            if match:
                placeholders.append((int(match[1]), operation))
            continue
        if (
            operation.name != "stablehlo.custom_call"
            or _string_attribute(operation, "call_target_name") != PLACEHOLDER_TARGET
        ):
            continue
        number = _string_attribute(operation, "backend_config")
        if (
            not number.isdecimal()
            or len(number) > 9
            or len(operation.operands)
            or len(operation.results) != 1
        ):
            raise InvalidProgram(
                f"@{PLACEHOLDER_TARGET} at {mlir.describe_location(operation.location)} must have no "
                "operands, one result, and a number as backend_config"
            )
        placeholders.append((int(number), operation))
    return placeholders


def _string_attribute(operation: Op, name: str) -> str:
    attributes = operation.attributes
    if name not in attributes:
        return ""
    return str(getattr(attributes[name], "value", ""))


def _argument_types(placeholders: Mapping[str, Sequence[tuple[int, Op]]]) -> list[Type]:
    """Return the type of each argument in the order of their numbers."""
    types: dict[int, Type] = {}
    for numbered in placeholders.values():
        for number, operation in numbered:
            type = operation.results[0].type
            if types.setdefault(number, type) != type:
                raise InvalidProgram(
                    f"@{PLACEHOLDER_TARGET} {number} has the types {types[number]} and {type}"
                )
    if sorted(types) != list(range(len(types))):
        raise InvalidProgram(
            f"the numbers of @{PLACEHOLDER_TARGET} must be 0 to {len(types) - 1} without gaps"
        )
    return [types[number] for number in range(len(types))]


class _ArgumentForwarding:
    """Adds the arguments to the functions that need them and forwards them in calls, callees first."""

    def __init__(
        self,
        functions: Mapping[str, Op],
        placeholders: Mapping[str, Sequence[tuple[int, Op]]],
        types: Sequence[Type],
    ) -> None:
        self.functions = functions
        self.placeholders = placeholders
        self.types = types
        #: Function -> numbers of the arguments that were added to it.
        self.added_numbers: dict[str, list[int]] = {}

    def run(self, entry: Op) -> None:
        for name in _callees_first(self.functions):
            function = self.functions[name]
            calls = [
                operation
                for operation in mlir.all_operations(function)
                if operation.name == "func.call" and self.added_numbers.get(_callee(operation))
            ]
            needed = {number for number, _ in self.placeholders[name]}
            needed.update(number for call in calls for number in self.added_numbers[_callee(call)])
            if function == entry:
                needed = set(range(len(self.types)))
            self.added_numbers[name] = sorted(needed)
            if needed:
                self._add_arguments(function, name, calls)

    def _add_arguments(self, function: Op, name: str, calls: Sequence[Op]) -> None:
        """Add the arguments that a function needs, replace its placeholders, and extend its calls."""
        if not len(function.regions[0].blocks):
            return
        native = mlir.native_ir()
        block = function.regions[0].blocks[0]
        location = native.Location.unknown(function.context)
        added = {
            number: block.add_argument(self.types[number], location) for number in self.added_numbers[name]
        }
        old_type = lazy.function_type(function)
        inputs = [*old_type.inputs, *(self.types[number] for number in added)]
        with function.context:
            function_type = native.FunctionType.get(inputs, old_type.results)
            function.attributes["function_type"] = native.TypeAttr.get(function_type)
            if "arg_attrs" in function.attributes:
                existing = list(lazy.array(function.attributes["arg_attrs"]))
                empty = [native.DictAttr.get({}) for _ in added]
                function.attributes["arg_attrs"] = native.ArrayAttr.get([*existing, *empty])
        for number, operation in self.placeholders[name]:
            operation.results[0].replace_all_uses_with(added[number])
            operation.erase()
        for call in calls:
            operands = [*call.operands, *(added[number] for number in self.added_numbers[_callee(call)])]
            _replace_call(call, operands)


def _replace_call(call: Op, operands: Sequence[Value]) -> None:
    """Replace a ``func.call`` by one with ``operands``."""
    native = mlir.native_ir()
    with native.InsertionPoint(call), call.location:
        types = [result.type for result in call.results]
        new_call = mlir.native_func().CallOp(types, _callee(call), list(operands))
    for name in call.attributes:
        if name not in ("arg_attrs", "callee"):
            new_call.attributes[name] = call.attributes[name]
    for old, new in zip(call.results, new_call.results, strict=True):
        old.replace_all_uses_with(new)
    call.erase()


def _callee(call: Op) -> str:
    return lazy.string(call.attributes["callee"])


def _callees_first(functions: Mapping[str, Op]) -> list[str]:
    """Return the names of the functions in post-order of the call graph, which has no cycles."""
    calls = {
        name: [
            _callee(operation)
            for operation in mlir.all_operations(function)
            if operation.name == "func.call" and _callee(operation) in functions
        ]
        for name, function in functions.items()
    }
    order: dict[str, None] = {}
    for root in functions:
        pending = [(root, iter(calls[root]))]
        while pending:
            name, callees = pending[-1]
            callee = next(callees, None)
            if callee is None:
                order[name] = None
                pending.pop()
            elif callee not in order:
                pending.append((callee, iter(calls[callee])))
    return list(order)
