"""Typed reads of the attributes and types of native operations, and MLIR's text of types."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, cast

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.shapes.monomial import is_symbolic
from kcache_compiler.spec.graph.nodes import DYNAMIC, ValueType

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


_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)(.*)>\Z", re.DOTALL)
_SHORT = {"complex<f32>": "c64", "complex<f64>": "c128"}
_LONG = {short: long for long, short in _SHORT.items()}


def is_plain(type: ValueType) -> bool:
    """Return whether views may represent values of a type: a tensor without encoding or quantization."""
    return type.dims is not None and "!" not in type.element and "#" not in type.element


class TypeReader:
    """Converts MLIR types, each distinct one once, and checks their sizes against the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: dict[ir.Type, ValueType] = {}
        #: Whether some type had a dimension of unknown size.
        self.dynamic = False
        #: Whether all types were plain.
        self.plain = True

    def __call__(self, type: ir.Type) -> ValueType:
        known = self._known.get(type)
        if known is None:
            known = self._known[type] = self._read(str(type))
            self.plain = self.plain and is_plain(known)
        return known

    def _read(self, text: str) -> ValueType:
        match = _TENSOR.match(text)
        if not match:
            return ValueType(text, None)
        if match[2].startswith("*"):
            raise InvalidProgram(f"{text[:200]} is unranked: give every tensor its dimensions")
        dims = tuple(DYNAMIC if d == "?" else int(d) for d in match[1].split("x")[:-1])
        self.dynamic = self.dynamic or DYNAMIC in dims
        check("rank of a tensor", len(dims), self._limits.rank)
        check(
            "elements of a tensor",
            math.prod(d for d in dims if d not in (DYNAMIC, 0)),
            self._limits.tensor_elements,
        )
        return ValueType(_SHORT.get(match[2], match[2]), dims)


def mlir_element(element: str) -> str:
    """Return MLIR's name of an element type."""
    return _LONG.get(element, element)


def mlir_type(type: ValueType) -> str:
    """Return MLIR's text of a type."""
    if type.dims is None:
        return type.element
    dims = "".join("?x" if d == DYNAMIC or is_symbolic(d) else f"{d}x" for d in type.dims)
    return f"tensor<{dims}{mlir_element(type.element)}>"
