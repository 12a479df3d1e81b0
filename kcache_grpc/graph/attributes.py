"""Attributes of nodes, one function for each kind; ``None`` leaves an attribute out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kcache_grpc._proto.kcache.v1 import graph_pb2 as pb
from kcache_grpc.errors import ArgumentError
from kcache_grpc.graph import convert
from kcache_grpc.graph.convert import Dims, DtypeLike


def given(*attributes: pb.GraphAttribute | None) -> list[pb.GraphAttribute]:
    """Those that are not left out."""
    return [attribute for attribute in attributes if attribute is not None]


def integer(name: str, value: int | None) -> pb.GraphAttribute | None:
    """An int."""
    if value is None:
        return None
    return pb.GraphAttribute(name=name, int_value=convert.integer(value, name))


def real(name: str, value: float | None) -> pb.GraphAttribute | None:
    """A float; ints are taken too."""
    return None if value is None else pb.GraphAttribute(name=name, float_value=_float(name, value))


def number(name: str, value: float | None) -> pb.GraphAttribute | None:
    """An int, a float or a bool, as what it is given."""
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)):
        return pb.GraphAttribute(name=name, bool_value=bool(value))
    if isinstance(value, (int, np.integer)):
        return pb.GraphAttribute(name=name, int_value=convert.integer(value, name))
    return pb.GraphAttribute(name=name, float_value=_float(name, value))


def flag(name: str, value: bool | None) -> pb.GraphAttribute | None:
    """A bool."""
    if value is None:
        return None
    if not isinstance(value, (bool, np.bool_)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"{name} is {value!r}, not a bool")
    return pb.GraphAttribute(name=name, bool_value=bool(value))


def text(name: str, value: str | None) -> pb.GraphAttribute | None:
    """A string."""
    if value is None:
        return None
    if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"{name} is {value!r}, not a str")
    convert.encoded(value, name)
    return pb.GraphAttribute(name=name, string_value=value)


def dtype(name: str, value: DtypeLike | None) -> pb.GraphAttribute | None:
    """A dtype."""
    return None if value is None else pb.GraphAttribute(name=name, dtype_value=convert.dtype_of(value))


def ints(name: str, value: Sequence[int] | None) -> pb.GraphAttribute | None:
    """A list of ints."""
    if value is None:
        return None
    if isinstance(value, (int, str)):
        raise ArgumentError(f"{name} is {value!r}, not a sequence of ints")
    entries = [convert.integer(entry, f"an entry of {name}") for entry in value]
    return pb.GraphAttribute(name=name, ints_value=pb.GraphIntegers(values=entries))


def shape(name: str, value: Dims | None) -> pb.GraphAttribute | None:
    """A shape; -1 is left to the operation."""
    if value is None:
        return None
    dims = convert.dimensions(value, name, lowest=-1)
    return pb.GraphAttribute(name=name, shape_value=pb.GraphShape(dims=dims))


def _float(name: str, value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentError(f"{name} is {value!r}, not a number")
    return float(value)  # pyright: ignore[reportUnknownArgumentType]
