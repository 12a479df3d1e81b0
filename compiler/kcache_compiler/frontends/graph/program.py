"""A graph program as plain values: the compiler's input in place of the protobuf message.

``kcache_grpc.worker.child.graph_program`` decodes the message. Nothing is checked here: names may be missing
or
defined twice, sizes negative, contents of any length. ``lower`` rejects such programs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: A static size; the name of a symbol; None for a dynamic dimension with its own symbol.
Dim = int | str | None


@dataclass(frozen=True)
class GraphTensor:
    """A constant tensor: little-endian, row-major; a single element stands for a splat."""

    dtype: str
    dims: tuple[int, ...]
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class GraphType:
    """A named value with its type: an input, or the expected type of a value."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]


@dataclass(frozen=True)
class GraphConstant:
    """A named constant."""

    name: str
    value: GraphTensor


@dataclass(frozen=True)
class DtypeValue:
    """An attribute that is a dtype, as opposed to a string."""

    name: str


@dataclass(frozen=True)
class ShapeValue:
    """An attribute that is a shape."""

    dims: tuple[Dim, ...]


AttributeValue = int | float | bool | str | tuple[int, ...] | DtypeValue | ShapeValue | GraphTensor


@dataclass(frozen=True)
class GraphNode:
    """One operation; an omitted operand has the empty name."""

    op: str
    operands: tuple[str, ...]
    attributes: tuple[tuple[str, AttributeValue], ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class GraphProgram:
    """A whole program; ``format`` names the version of the op set."""

    format: str
    inputs: tuple[GraphType, ...]
    constants: tuple[GraphConstant, ...]
    nodes: tuple[GraphNode, ...]
    outputs: tuple[str, ...]
    expected: tuple[GraphType, ...] = ()
