"""Builds a graph value by value, and writes and reads the message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from google.protobuf.message import DecodeError

from kcache_grpc._proto.kcache.v1 import graph_pb2 as pb
from kcache_grpc.errors import ArgumentError, InvalidProgram
from kcache_grpc.graph import convert
from kcache_grpc.graph.convert import ArrayLike, Dims, DtypeLike, ValueLike
from kcache_grpc.graph.ops import Operations
from kcache_grpc.graph.value import Value

FORMAT = "kcache.graph.v1"
_MAX_NAME = 256
#: How every serialized graph begins: field 1, its length, the format.
MAGIC = b"\x0a" + bytes([len(FORMAT)]) + FORMAT.encode()


class Graph(Operations):
    """A program that is built here: inputs, operations and outputs.

    Every operation of docs/graph-format.md is a method that adds a node and gives a ``Value``; all take
    ``name``, the name of the result. Names are made up where none is given, and do not change a key.
    Raises ``ArgumentError`` for what cannot be a graph; dtypes and shapes are checked by the service, which
    names the node. Not thread-safe while it is built.
    """

    def __init__(self) -> None:
        self._message = pb.Graph(format=FORMAT)
        self._values: dict[str, Value] = {}
        self._counts: dict[str, int] = {}

    def input(self, name: str, dtype: DtypeLike, shape: Dims) -> Value:
        """An argument of the kernel; an axis is a size, the name of a symbol, or ``None`` for an open one."""
        dims = convert.dimensions(shape, f"the shape of {name!r}")
        value = self._define(name, "input")
        self._message.inputs.append(pb.GraphValue(name=name, dtype=convert.dtype_of(dtype), dims=dims))
        return value

    def constant(self, value: ArrayLike, dtype: DtypeLike | None = None, *, name: str | None = None) -> Value:
        """A tensor by value, in the dtype of an array unless one is given."""
        tensor = convert.tensor(value, dtype)
        made = self._define(name, "constant")
        self._message.constants.append(pb.GraphConstant(name=made.name, value=tensor))
        return made

    def output(self, *values: Value) -> None:
        """Make values the next results of the kernel."""
        self._message.outputs.extend([self._own(value) for value in values])

    def expect(self, value: Value, dtype: DtypeLike, shape: Dims) -> Value:
        """State the type of a value: the service compares it with what the rules give."""
        dims = convert.dimensions(shape, f"the shape expected of {value.name!r}")
        expected = pb.GraphValue(name=self._own(value), dtype=convert.dtype_of(dtype), dims=dims)
        self._message.expected.append(expected)
        return value

    def node(
        self,
        op: str,
        operands: Iterable[ValueLike | None],
        attributes: Sequence[pb.GraphAttribute] = (),
        results: int = 1,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """Any operation by name: what the methods of the operations call."""
        given = list(operands)
        while given and given[-1] is None:
            given.pop()
        first = next((operand for operand in given if isinstance(operand, Value)), None)
        names = ["" if operand is None else self._operand(op, operand, first) for operand in given]
        if results == 1:
            made = (self._define(name, op),)
        else:
            base = self._free(op) if name is None else name
            made = tuple(self._define(f"{base}.{index}", op) for index in range(results))
        node = pb.GraphNode(op=op, operands=names, attributes=attributes, results=[v.name for v in made])
        self._message.nodes.append(node)
        return made

    def __getitem__(self, name: str) -> Value:
        """The value of a name. Raises ``ArgumentError``."""
        if name not in self._values:
            raise ArgumentError(f"the graph has no value {name!r}")
        return self._values[name]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """In the order of the kernel's arguments."""
        return tuple(self._values[each.name] for each in self._message.inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """In the order of the kernel's results."""
        return tuple(self._values[name] for name in self._message.outputs)

    def to_bytes(self) -> bytes:
        """The message ``kcache.v1.Graph``. Raises ``ArgumentError`` for a graph without outputs."""
        if not self._message.outputs:
            raise ArgumentError("the graph has no outputs: call output(value) first")
        return self._message.SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, body: bytes) -> Graph:
        """Read what ``to_bytes`` or another client wrote; it can be extended. Raises ``InvalidProgram``."""
        try:
            message = pb.Graph.FromString(body)
        except DecodeError as error:
            raise InvalidProgram(f"the bytes are no kcache.v1.Graph: {error}") from None
        if message.format != FORMAT:
            raise InvalidProgram(
                f"the graph's format is {message.format[:64]!r}, and this version reads {FORMAT!r}"
            )
        graph = cls()
        named = [*(each.name for each in message.inputs), *(each.name for each in message.constants)]
        named += [name for node in message.nodes for name in node.results]
        for name in named:
            if name in graph._values:
                raise InvalidProgram(f"the graph defines {name[:80]!r} twice")
            graph._values[name] = Value(graph, name)
        for name in message.outputs:
            if name not in graph._values:
                raise InvalidProgram(f"the graph's output {name[:80]!r} is defined nowhere")
        graph._message = message
        return graph

    def __repr__(self) -> str:
        sizes = (len(self._message.inputs), len(self._message.nodes), len(self._message.outputs))
        return "<kcache.Graph with {} inputs, {} nodes, {} outputs>".format(*sizes)

    # -- names

    def _define(self, name: str | None, kind: str) -> Value:
        if name is None:
            name = self._free(kind)
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"a value's name is a str that is not empty, not {name!r}")
        if name in self._values:
            raise ArgumentError(f"the graph has a value {name!r} already")
        if len(convert.encoded(name, "the name of a value")) > _MAX_NAME:
            raise ArgumentError(f"the name of a value has more than {_MAX_NAME} bytes: {name[:40]!r}...")
        value = self._values[name] = Value(self, name)
        return value

    def _free(self, kind: str) -> str:
        while True:
            self._counts[kind] = self._counts.get(kind, -1) + 1
            name = f"{kind}_{self._counts[kind]}"
            if name not in self._values and f"{name}.0" not in self._values:
                return name

    def _own(self, value: Value) -> str:
        if not isinstance(value, Value):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"{value!r} is no value of a graph")
        if value.graph is not self:
            raise ArgumentError(f"{value!r} belongs to another graph")
        return value.name

    def _operand(self, op: str, operand: Any, first: Value | None) -> str:
        if isinstance(operand, Value):
            return self._own(operand)
        if isinstance(operand, (np.ndarray, np.generic)):
            return self.constant(cast("ArrayLike", operand)).name
        if isinstance(operand, (bool, int, float)):
            if first is None:
                raise ArgumentError(f"{op} of numbers alone: make one of them a constant with a dtype")
            return self.scalar_like(first, operand).name
        raise ArgumentError(f"{op} takes values, arrays and numbers, not {type(operand).__qualname__}")
