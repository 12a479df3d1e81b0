"""Entries of the op set, from which operations are checked, lowered and documented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kcache_compiler.frontends.graph.values import (
    ANY,
    BITS,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REALS,
    SIGNED,
    UNSIGNED,
    Value,
)

#: Class of dtypes -> its name in the documentation and in messages.
DTYPE_CLASSES: dict[tuple[str, ...], str] = {
    ANY: "any",
    BITS: "i1 or integers",
    COMPLEX: "complex",
    FLOATS: "floats",
    (*FLOATS, *COMPLEX): "floats or complex",
    INTEGERS: "integers",
    NUMBERS: "numbers",
    REALS: "integers or floats",
    ("i1", *REALS): "i1, integers or floats",
    SIGNED: "signed",
    (*SIGNED, *FLOATS): "signed or floats",
    (*SIGNED, *FLOATS, *COMPLEX): "signed, floats or complex",
    UNSIGNED: "unsigned",
    ("i1",): "i1",
    ("f32", "f64"): "f32 or f64",
    ("f32", "f64", *COMPLEX): "f32, f64 or complex",
}


class Required:
    """The default of a required attribute."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = Required()


@dataclass(frozen=True)
class Operand:
    """An operand. ``optional``: may be omitted. ``variadic``: one or more."""

    name: str
    dtypes: tuple[str, ...] = ANY
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True)
class Attribute:
    """An attribute. ``kind`` is that of ``GraphAttribute`` ("number" accepts an int, a float or a bool).

    A default of None is derived by the operation, as ``doc`` describes.
    """

    name: str
    kind: str
    doc: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Op:
    """An operation.

    ``build(emitter, *operands, **attributes)`` checks shapes and emits the operation; it returns as many
    values as ``results`` names. The dtypes of operands and the kinds of attributes have been checked before.
    """

    name: str
    doc: str
    operands: tuple[Operand, ...]
    build: Callable[..., Value | tuple[Value, ...]] = field(repr=False)
    #: Shape and dtype of the results.
    rule: str
    #: The StableHLO operations that are emitted.
    stablehlo: str
    attributes: tuple[Attribute, ...] = ()
    results: tuple[str, ...] = ("y",)
    #: Whether it is defined by a formula of other operations of the format.
    composite: bool = False


@dataclass(frozen=True)
class Group:
    """Operations under one title of the documentation."""

    title: str
    ops: tuple[Op, ...]
    note: str = ""
