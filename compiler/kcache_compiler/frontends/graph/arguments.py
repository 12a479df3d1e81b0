"""What a node gives its operation: operands and attributes as the table of the op set has them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.program import AttributeValue, DtypeValue, GraphTensor, ShapeValue
from kcache_compiler.frontends.graph.table import DTYPE_CLASSES, REQUIRED, Attribute, Op, Operand
from kcache_compiler.frontends.graph.values import Value
from kcache_compiler.types import PLAIN_DTYPES


def operands_of(op: Op, given: Sequence[Value | None]) -> list[Value | None]:
    """The operands, checked for number and dtype; None for optional ones that are left out."""
    wanted = _spread(op.operands, len(given))
    least = sum(not operand.optional for operand in op.operands)
    if not least <= len(given) <= len(wanted):
        raise InvalidProgram(f"{op.name} takes {_counted(op.operands)}, not {len(given)}")
    for operand, value in zip(wanted, given, strict=False):
        if value is None:
            if not operand.optional:
                raise InvalidProgram(f"the operand {operand.name} is left out, and is not optional")
        elif value.dtype not in operand.dtypes:
            kind = DTYPE_CLASSES[operand.dtypes]
            raise InvalidProgram(f"the operand {operand.name} is {value}: {op.name} takes {kind}")
    return list(given)


def _spread(operands: Sequence[Operand], count: int) -> list[Operand]:
    """One entry for each operand that is given: the last may stand for many."""
    wanted = list(operands)
    if wanted and wanted[-1].many:
        wanted += [wanted[-1]] * (count - len(wanted))
    return wanted


def _counted(operands: Sequence[Operand]) -> str:
    names = [f"{o.name}{'...' * o.many}{'?' * o.optional}" for o in operands]
    return f"the operands {', '.join(names)}" if names else "no operands"


def attributes_of(op: Op, given: Iterable[tuple[str, AttributeValue]]) -> dict[str, Any]:
    """The attributes that are given, checked; defaults are those of the builder."""
    known = {attribute.name: attribute for attribute in op.attributes}
    found: dict[str, Any] = {}
    for name, value in given:
        if name not in known:
            raise InvalidProgram(f"{op.name} has no attribute {name!r}{_instead(name, known)}")
        if name in found:
            raise InvalidProgram(f"the attribute {name} is given twice")
        found[name] = _checked(known[name], value)
    for attribute in op.attributes:
        if attribute.default is REQUIRED and attribute.name not in found:
            raise InvalidProgram(f"the attribute {attribute.name} ({attribute.kind}) is missing")
    return found


def _instead(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name[:256], known, 1)
    if close:
        return f": did you mean {close[0]!r}?"
    return f": it has {', '.join(map(repr, known))}" if known else ""


def _checked(attribute: Attribute, value: AttributeValue) -> Any:
    wrong = InvalidProgram(
        f"the attribute {attribute.name} is {_kind_of(value)}: it must be {attribute.kind}"
    )
    match attribute.kind, value:
        case "int" | "float" | "number", bool() if attribute.kind != "number":
            raise wrong
        case "int", int():
            return value
        case "float", int() | float():
            return float(value)
        case "number", int() | float():
            return value
        case "bool", bool():
            return value
        case "string", str():
            return _chosen(attribute, value)
        case "dtype", DtypeValue(name):
            return _chosen(attribute, name) if name in PLAIN_DTYPES else _unknown_dtype(name)
        case "ints", tuple():
            return value
        case ("shape", ShapeValue()) | ("tensor", GraphTensor()):
            return value
        case _:
            raise wrong


def _unknown_dtype(name: str) -> Any:
    raise InvalidProgram(f"{name[:64]!r} is no dtype: use one of {', '.join(PLAIN_DTYPES)}")


def _chosen(attribute: Attribute, value: str) -> str:
    if attribute.choices and value not in attribute.choices:
        raise InvalidProgram(
            f"the attribute {attribute.name} is {value[:64]!r}: use one of {', '.join(attribute.choices)}"
        )
    return value


def _kind_of(value: AttributeValue) -> str:
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known."""
    close = difflib.get_close_matches(name[:256], list(known), 1)
    return f": did you mean {close[0]!r}?" if close else ""
