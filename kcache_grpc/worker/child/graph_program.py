"""The message ``kcache.v1.Graph`` into plain values of the compiler. Runs in workers: parsers crash there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized

from google.protobuf.message import DecodeError

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.program import (
    AttributeValue,
    Dim,
    DtypeValue,
    GraphConstant,
    GraphNode,
    GraphProgram,
    GraphTensor,
    GraphType,
    ShapeValue,
)
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.prescan import is_bytecode
from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import graph_pb2 as pb
from kcache_grpc.model.wire import dtype_name

#: What one node may have of each: more than any operation takes.
_NODE_ENTRIES = 64

_DTYPES: Mapping[int, str] = {number: dtype_name(name) for name, number in common_pb2.DataType.items()}


def decode_graph(body: bytes, limits: Limits) -> GraphProgram:
    """Read a serialized graph.

    Raises ``InvalidProgram`` for what is no such message, ``LimitExceeded`` for one that is too large. What
    the message says is not judged here: the compiler does that.
    """
    check("program size in bytes", len(body), limits.program_bytes)
    _count_entries(body, limits)
    try:
        message = pb.Graph.FromString(body)
    except DecodeError:
        raise InvalidProgram(f"the program is no serialized message kcache.v1.Graph{_other(body)}") from None
    if not message.format:
        raise InvalidProgram(f"the program is no kcache.v1.Graph with a format{_other(body)}")
    return GraphProgram(
        format=message.format,
        inputs=tuple(_type(each, limits) for each in message.inputs),
        constants=tuple(GraphConstant(each.name, _tensor(each.value, limits)) for each in message.constants),
        nodes=tuple(_node(each, limits) for each in message.nodes),
        outputs=tuple(message.outputs),
        expected=tuple(_type(each, limits) for each in message.expected),
    )


def _count_entries(body: bytes, limits: Limits) -> None:
    """Reject too many fields of the message before objects are made of them.

    Walks the outermost level of the wire format, and stops where that is broken: the parser says so.
    """
    most = limits.operations + 3 * limits.arguments
    position, count = 0, 0
    while position < len(body):
        tag, position = _varint(body, position)
        if tag & 7 != 2:  # every field of the message has a length
            return
        length, position = _varint(body, position)
        position += length
        count += 1
        if count > most:
            check("number of operations", count, most)


def _other(body: bytes) -> str:
    """A hint where the bytes look like a program of another format."""
    if is_bytecode(body) or b"func.func" in body[:65536]:
        return ": it looks like MLIR, which has its own format, such as 'stablehlo'"
    return ""


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(body) and shift < 64:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
    return 0, len(body)


def _type(value: pb.GraphValue, limits: Limits) -> GraphType:
    return GraphType(value.name, _dtype(value.dtype), _dims(value.dims, limits))


def _dims(dims: Iterable[pb.GraphDimension], limits: Limits) -> tuple[Dim, ...]:
    if isinstance(dims, Sized):
        check("rank of a tensor", len(dims), limits.rank)
    return tuple(_dim(each) for each in dims)


def _dim(dim: pb.GraphDimension) -> Dim:
    match dim.WhichOneof("kind"):
        case "size":
            return dim.size
        case "symbol":
            return dim.symbol
        case _:
            return None


def _dtype(number: int) -> str:
    return _DTYPES.get(number, f"number {number}")


def _tensor(tensor: pb.GraphTensor, limits: Limits) -> GraphTensor:
    check("rank of a tensor", len(tensor.dims), limits.rank)
    return GraphTensor(_dtype(tensor.dtype), tuple(tensor.dims), tensor.content)


def _node(node: pb.GraphNode, limits: Limits) -> GraphNode:
    check("operands of a node", len(node.operands), limits.arguments)
    check("attributes of a node", len(node.attributes), _NODE_ENTRIES)
    check("results of a node", len(node.results), _NODE_ENTRIES)
    attributes = tuple((each.name, _attribute(node, each, limits)) for each in node.attributes)
    return GraphNode(node.op, tuple(node.operands), attributes, tuple(node.results))


def _attribute(node: pb.GraphNode, attribute: pb.GraphAttribute, limits: Limits) -> AttributeValue:
    match attribute.WhichOneof("value"):
        case "int_value":
            return attribute.int_value
        case "float_value":
            return attribute.float_value
        case "bool_value":
            return attribute.bool_value
        case "string_value":
            return attribute.string_value
        case "dtype_value":
            return DtypeValue(_dtype(attribute.dtype_value))
        case "ints_value":
            check("entries of an attribute", len(attribute.ints_value.values), limits.rank)
            return tuple(attribute.ints_value.values)
        case "shape_value":
            return ShapeValue(_dims(attribute.shape_value.dims, limits))
        case "tensor_value":
            return _tensor(attribute.tensor_value, limits)
        case _:
            name, op = attribute.name[:80], node.op[:64]
            raise InvalidProgram(
                f"the attribute {name!r} of a node of {op!r} has no value that is known here"
            )
