"""Typed reads of attributes of native operations. Callers know the kinds: the parser has verified them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from torch_mlir import ir

    Attributes = ir.OpAttributeMap | ir.DictAttr


def integer(attributes: Attributes, name: str) -> int:
    """Return an integer attribute."""
    return cast("ir.IntegerAttr", attributes[name]).value


def boolean(attributes: Attributes, name: str) -> bool:
    """Return a boolean attribute."""
    return cast("ir.BoolAttr", attributes[name]).value


def string(attributes: Attributes, name: str) -> str:
    """Return a string, or the name of a symbol."""
    return cast("ir.StringAttr | ir.FlatSymbolRefAttr", attributes[name]).value


def integers(attributes: Attributes, name: str) -> list[int]:
    """Return an array of integers."""
    return list(cast("ir.DenseI64ArrayAttr", attributes[name]))


def function_type(function: ir.Operation) -> ir.FunctionType:
    """Return the type of a function."""
    return cast("ir.FunctionType", cast("ir.TypeAttr", function.attributes["function_type"]).value)


def optional(attributes: Attributes, name: str) -> ir.Attribute | None:
    """Return an attribute, or None: the native mappings have no common ``get``."""
    return attributes[name] if name in attributes else None  # noqa: SIM401


def optional_integers(attributes: Attributes, name: str, within: str = "") -> list[int] | None:
    """Return an array of integers, of the dictionary attribute ``within`` if it is named; None if absent."""
    if within:
        if within not in attributes:
            return None
        attributes = cast("ir.DictAttr", attributes[within])
    return integers(attributes, name) if name in attributes else None


def array(attributes: Attributes, name: str) -> list[ir.Attribute]:
    """Return the elements of an array; empty if it is absent."""
    return list(cast("ir.ArrayAttr", attributes[name])) if name in attributes else []
