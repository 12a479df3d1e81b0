"""Constants that a client keeps: ``stablehlo.custom_call @kcache.argument`` becomes an argument.

A client that binds large constants writes such a call, without operands, in place of each:

    %0 = stablehlo.custom_call @kcache.argument() {backend_config = "3"} : () -> tensor<512x512xf32>

or, for programs without StableHLO, a constant of a resource that is not there:

    %0 = arith.constant dense_resource<kcache.argument.3> : tensor<512x512xf32>

The constants are numbered from 0. They become arguments of the entry function, behind its own,
in the order of their numbers; equal numbers are one argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: The target of the calls.
TARGET = "kcache.argument"

_RESOURCE = re.compile(r"dense_resource<\"?kcache\.argument\.(\d{1,9})\"?> : ")


def bind_arguments(entry: Native, functions: Mapping[str, Native], limits: Limits) -> None:
    """Make arguments of the entry function of all such calls, in functions that it calls too.

    Raises ``InvalidProgram`` for calls that are not as the client writes them.
    """
    marks = {name: _marks(function) for name, function in functions.items()}
    types = _types(marks)
    if not types:
        return
    check("number of arguments", len(types), limits.arguments)
    _Threading(functions, marks, types).run(entry)


def _marks(function: Native) -> list[tuple[int, Native]]:
    """Return the calls of a function with their numbers."""
    found: list[tuple[int, Native]] = []
    for operation in mlir.all_operations(function):
        if operation.name == "arith.constant":
            match = _RESOURCE.match(str(operation.attributes["value"]))
            if match:
                found.append((int(match[1]), operation))
            continue
        if operation.name != "stablehlo.custom_call" or _text(operation, "call_target_name") != TARGET:
            continue
        number = _text(operation, "backend_config")
        if (
            not number.isdecimal()
            or len(number) > 9
            or len(operation.operands)
            or len(operation.results) != 1
        ):
            raise InvalidProgram(
                f"@{TARGET} at {mlir.describe_location(operation.location)} must have no operands, one "
                "result, and a number as backend_config"
            )
        found.append((int(number), operation))
    return found


def _text(operation: Native, name: str) -> str:
    attributes = operation.attributes
    if name not in attributes:
        return ""
    return str(getattr(attributes[name], "value", ""))


def _types(marks: Mapping[str, Sequence[tuple[int, Native]]]) -> list[Native]:
    """Return the types of the arguments by number."""
    types: dict[int, Native] = {}
    for found in marks.values():
        for number, operation in found:
            type = operation.results[0].type
            if types.setdefault(number, type) != type:
                raise InvalidProgram(f"@{TARGET} {number} is {types[number]} and {type}")
    if sorted(types) != list(range(len(types))):
        raise InvalidProgram(f"the numbers of @{TARGET} are not those from 0 to {len(types) - 1}")
    return [types[number] for number in range(len(types))]


class _Threading:
    """Passes arguments from the entry to the functions that use them, callees first."""

    def __init__(
        self,
        functions: Mapping[str, Native],
        marks: Mapping[str, Sequence[tuple[int, Native]]],
        types: Sequence[Native],
    ) -> None:
        self.functions = functions
        self.marks = marks
        self.types = types
        #: Function -> the numbers of the arguments that it has got.
        self.taken: dict[str, list[int]] = {}

    def run(self, entry: Native) -> None:
        for name in _callees_first(self.functions):
            function = self.functions[name]
            calls = [
                operation
                for operation in mlir.all_operations(function)
                if operation.name == "func.call" and self.taken.get(_callee(operation))
            ]
            needed = {number for number, _ in self.marks[name]}
            needed.update(number for call in calls for number in self.taken[_callee(call)])
            if function == entry:
                needed = set(range(len(self.types)))
            self.taken[name] = sorted(needed)
            if needed:
                self._thread(function, name, calls)

    def _thread(self, function: Native, name: str, calls: Sequence[Native]) -> None:
        """Add the arguments to a function, and pass them on in its calls."""
        if not len(function.regions[0].blocks):
            return
        native = mlir.native_ir()
        block = function.regions[0].blocks[0]
        where = native.Location.unknown(function.context)
        added = {number: block.add_argument(self.types[number], where) for number in self.taken[name]}
        type = function.attributes["function_type"].value
        inputs = [*type.inputs, *(self.types[number] for number in added)]
        with function.context:
            made = native.FunctionType.get(inputs, type.results)
            function.attributes["function_type"] = native.TypeAttr.get(made)
            if "arg_attrs" in function.attributes:
                own = list(function.attributes["arg_attrs"])
                empty = [native.DictAttr.get({}) for _ in added]
                function.attributes["arg_attrs"] = native.ArrayAttr.get([*own, *empty])
        for number, operation in self.marks[name]:
            operation.results[0].replace_all_uses_with(added[number])
            operation.erase()
        for call in calls:
            operands = [*call.operands, *(added[number] for number in self.taken[_callee(call)])]
            _replace(call, operands)


def _replace(call: Native, operands: Sequence[Native]) -> None:
    native = mlir.native_ir()
    attributes = {name: call.attributes[name] for name in call.attributes if name != "arg_attrs"}
    with native.InsertionPoint(call), call.location:
        made = native.Operation.create(
            "func.call", [result.type for result in call.results], list(operands), attributes
        )
    for old, new in zip(call.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    call.erase()


def _callee(call: Native) -> str:
    return call.attributes["callee"].value


def _callees_first(functions: Mapping[str, Native]) -> list[str]:
    """Return the functions so that each stands behind those that it calls; the program has no recursion."""
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
