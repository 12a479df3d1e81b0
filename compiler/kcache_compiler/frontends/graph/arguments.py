"""Checks the operands and attributes of a node against the table of the op set."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.program import AttributeValue, DtypeValue, GraphTensor, ShapeValue
from kcache_compiler.frontends.graph.table import DTYPE_CLASSES, REQUIRED, Attribute, Op, Operand
from kcache_compiler.frontends.graph.values import Value
from kcache_compiler.types import PLAIN_DTYPES


def check_operands(op: Op, operands: Sequence[Value | None]) -> list[Value | None]:
    """Return the operands, checked for number and dtype; None for optional ones that are omitted."""
    expected = _expand_variadic(op.operands, len(operands))
    required = sum(not operand.optional for operand in op.operands)
    if not required <= len(operands) <= len(expected):
        raise InvalidProgram(f"{op.name} takes {_operand_list(op.operands)}, not {len(operands)}")
    for operand, value in zip(expected, operands, strict=False):
        if value is None:
            if not operand.optional:
                raise InvalidProgram(f"the operand {operand.name} is omitted, and is not optional")
        elif value.dtype not in operand.dtypes:
            dtypes = DTYPE_CLASSES[operand.dtypes]
            raise InvalidProgram(f"the operand {operand.name} is {value}: {op.name} takes {dtypes}")
    return list(operands)


def _expand_variadic(operands: Sequence[Operand], count: int) -> list[Operand]:
    """Return one entry for each operand: the last declared operand may be variadic."""
    expanded = list(operands)
    if expanded and expanded[-1].variadic:
        expanded += [expanded[-1]] * (count - len(expanded))
    return expanded


def _operand_list(operands: Sequence[Operand]) -> str:
    names = [f"{o.name}{'...' * o.variadic}{'?' * o.optional}" for o in operands]
    return f"the operands {', '.join(names)}" if names else "no operands"


def check_attributes(op: Op, attributes: Iterable[tuple[str, AttributeValue]]) -> dict[str, Any]:
    """Return the given attributes, checked; the builders have the defaults."""
    declared = {attribute.name: attribute for attribute in op.attributes}
    checked: dict[str, Any] = {}
    for name, value in attributes:
        if name not in declared:
            raise InvalidProgram(f"{op.name} has no attribute {name!r}{_suggestion(name, declared)}")
        if name in checked:
            raise InvalidProgram(f"the attribute {name} occurs twice")
        checked[name] = _check_attribute(declared[name], value)
    for attribute in op.attributes:
        if attribute.default is REQUIRED and attribute.name not in checked:
            raise InvalidProgram(f"the attribute {attribute.name} ({attribute.kind}) is missing")
    return checked


def _suggestion(name: str, names: Mapping[str, object]) -> str:
    """Return a hint with the closest name, or all names."""
    close = difflib.get_close_matches(name[:256], names, 1)
    if close:
        return f": did you mean {close[0]!r}?"
    return f": it has {', '.join(map(repr, names))}" if names else ""


def _check_attribute(attribute: Attribute, value: AttributeValue) -> Any:
    """Return the value of an attribute, converted to its kind. Raises ``InvalidProgram`` for another kind."""
    mismatch = InvalidProgram(
        f"the attribute {attribute.name} is {_kind_name(value)}: it must be {attribute.kind}"
    )
    match attribute.kind, value:
        case "int" | "float" | "number", bool() if attribute.kind != "number":
            raise mismatch
        case "int", int():
            return value
        case "float", int() | float():
            return float(value)
        case "number", int() | float():
            return value
        case "bool", bool():
            return value
        case "string", str():
            return _check_choice(attribute, value)
        case "dtype", DtypeValue(name):
            return _check_choice(attribute, name) if name in PLAIN_DTYPES else _unknown_dtype(name)
        case "ints", tuple():
            return value
        case ("shape", ShapeValue()) | ("tensor", GraphTensor()):
            return value
        case _:
            raise mismatch


def _unknown_dtype(name: str) -> Any:
    raise InvalidProgram(f"{name[:64]!r} is not a dtype: use one of {', '.join(PLAIN_DTYPES)}")


def _check_choice(attribute: Attribute, value: str) -> str:
    if attribute.choices and value not in attribute.choices:
        raise InvalidProgram(
            f"the attribute {attribute.name} is {value[:64]!r}: use one of {', '.join(attribute.choices)}"
        )
    return value


def _kind_name(value: AttributeValue) -> str:
    match value:
        case bool():
            return "a bool"
        case int():
            return "an int"
        case float():
            return "a float"
        case str():
            return "a string"
        case tuple():
            return "ints"
        case DtypeValue():
            return "a dtype"
        case ShapeValue():
            return "a shape"
        case GraphTensor():
            return "a tensor"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint with the closest known name, or an empty string."""
    close = difflib.get_close_matches(name[:256], list(names), 1)
    return f": did you mean {close[0]!r}?" if close else ""
