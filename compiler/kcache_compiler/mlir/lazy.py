"""Typed reads of native objects for modules that import the bindings at first use.

The bindings return attributes and types as their most specific class; these functions tell the type checker
which class that is. They neither import the bindings nor check the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kcache_compiler.mlir.context import native_ir

if TYPE_CHECKING:
    from torch_mlir.ir import (
        ArrayAttr,
        Attribute,
        BoolAttr,
        DenseElementsAttr,
        DenseI64ArrayAttr,
        DictAttr,
        FloatAttr,
        FunctionType,
        IntegerAttr,
        IntegerType,
        Operation,
        RankedTensorType,
        StringAttr,
        TupleType,
        Type,
        TypeAttr,
        Value,
    )


def integer(attribute: Attribute) -> int:
    """Return the value of an integer attribute."""
    return cast("IntegerAttr", attribute).value


def boolean(attribute: Attribute) -> bool:
    """Return the value of a boolean attribute."""
    return cast("BoolAttr", attribute).value


def string(attribute: Attribute) -> str:
    """Return the value of a string or symbol attribute."""
    return cast("StringAttr", attribute).value


def number(attribute: Attribute) -> int | float:
    """Return the value of an integer, boolean or float attribute."""
    return cast("IntegerAttr | BoolAttr | FloatAttr", attribute).value


def array(attribute: Attribute) -> ArrayAttr:
    """Return an attribute that is an array of attributes."""
    return cast("ArrayAttr", attribute)


def integers(attribute: Attribute) -> DenseI64ArrayAttr:
    """Return an attribute that is a dense array of integers."""
    return cast("DenseI64ArrayAttr", attribute)


def dictionary(attribute: Attribute) -> DictAttr:
    """Return an attribute that is a dictionary."""
    return cast("DictAttr", attribute)


def ranked(type: Type) -> RankedTensorType | None:
    """Return a type if it is a ranked tensor type, otherwise None."""
    return type if isinstance(type, native_ir().RankedTensorType) else None


def integer_type(type: Type) -> IntegerType | None:
    """Return a type if it is an integer type, otherwise None."""
    return type if isinstance(type, native_ir().IntegerType) else None


def elements(attribute: Attribute) -> DenseElementsAttr:
    """Return an attribute that holds the elements of a tensor."""
    return cast("DenseElementsAttr", attribute)


def function_type(function: Operation) -> FunctionType:
    """Return the type of a function."""
    return cast("FunctionType", cast("TypeAttr", function.attributes["function_type"]).value)


def tensor(type: Type) -> RankedTensorType:
    """Return a type that is a ranked tensor type."""
    return cast("RankedTensorType", type)


def tensor_of(value: Value) -> RankedTensorType:
    """Return the type of a value that is a ranked tensor."""
    return cast("RankedTensorType", value.type)


def tuple_type(value: Value) -> TupleType:
    """Return the type of a value that is a tuple."""
    return cast("TupleType", value.type)


def definition(value: Value) -> Operation:
    """Return the operation that defines a value; a block argument has a block without a name instead."""
    return cast("Operation", value.owner)
