"""Binds inputs of an ``onnx.ModelProto`` to values: what was an input becomes an initializer.

The edit is of the bytes, field by field: it needs no ``onnx`` package and parses no weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError
from kcache_grpc.programs.onnx.program import is_model

#: ``TensorProto.DataType`` -> the NumPy type with the same bytes.
_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
}
#: Fields of the messages ModelProto, GraphProto, ValueInfoProto, TypeProto and its Tensor, TensorProto.
_GRAPH = 7
_INITIALIZER, _INPUT = 5, 11
_NAME, _TYPE = 1, 2
_TENSOR_TYPE = 1
_ELEMENT, _SHAPE = 1, 2
_DIM, _DIM_VALUE = 1, 1
_TENSOR_DIMS, _TENSOR_ELEMENT, _TENSOR_NAME, _TENSOR_CONTENT = 1, 2, 8, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def bind_inputs(model: bytes, values: Mapping[str, Any]) -> bytes:
    """Return ``model`` with the inputs named in ``values`` as constants; the others keep their order.

    ``values``: name -> array or nested numbers, of the declared shape, exactly representable in the declared
    type. Raises ``ArgumentError`` for bytes that are no model, for names that are no input, and for values
    that do not fit.
    """
    if not is_model(model):
        raise ArgumentError("bind= is for ONNX models: this program is none")
    parts: list[bytes] = []
    names: list[str] = []
    for field, wire, start, content, stop in _fields(model, 0, len(model)):
        if field == _GRAPH and wire == _BYTES:
            graph, bound = _bound_graph(model[content:stop], values)
            names += bound
            parts.append(_field(_GRAPH, graph))
        else:
            parts.append(model[start:stop])
    unknown = sorted(set(values).difference(names))
    if unknown:
        inputs = ", ".join(map(repr, names)) or "none"
        raise ArgumentError(
            f"bind= names {unknown[0]!r}, which is no input of the model; its inputs: {inputs}"
        )
    return b"".join(parts)


def _bound_graph(graph: bytes, values: Mapping[str, Any]) -> tuple[bytes, list[str]]:
    """The graph without the inputs that have values, and the names of all inputs."""
    kept: list[bytes] = []
    initializers: list[bytes] = []
    names: list[str] = []
    for field, wire, start, content, stop in _fields(graph, 0, len(graph)):
        if wire == _BYTES and field == _INPUT:
            name = _text(graph, content, stop, _NAME)
            names.append(name)
            if name in values:
                initializers.append(_field(_INITIALIZER, _tensor(name, graph[content:stop], values[name])))
                continue
        elif wire == _BYTES and field == _INITIALIZER and _text(graph, content, stop, _TENSOR_NAME) in values:
            continue  # the default of an input that is bound
        kept.append(graph[start:stop])
    return b"".join([*kept, *initializers]), names


def _tensor(name: str, info: bytes, value: Any) -> bytes:
    """The ``TensorProto`` of a value, of the type that the input declares."""
    element, dims = _declared(info)
    if element not in _TYPES:
        raise ArgumentError(
            f"the input {name!r} has ONNX's element type {element}, of which no value is bound"
        )
    try:
        original: Any = np.asarray(value)
        with np.errstate(all="ignore"):
            array: Any = np.asarray(original.astype(_TYPES[element]), order="C")
        same = original.size == 0 or np.array_equal(array, original, equal_nan=original.dtype.kind in "fc")
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"the value bound to {name!r} is no array of numbers: {error}") from error
    if not same:
        raise ArgumentError(
            f"the value bound to {name!r} does not fit its type, {_TYPES[element]}: {value!r}"
        )
    if dims is not None and (
        len(dims) != array.ndim or any(d not in (None, n) for d, n in zip(dims, array.shape, strict=True))
    ):
        shown = ["?" if dim is None else dim for dim in dims]
        raise ArgumentError(f"the value bound to {name!r} has shape {list(array.shape)}; declared is {shown}")
    content: bytes = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return b"".join(
        [
            *(_tag(_TENSOR_DIMS, _VARINT) + _number(size) for size in array.shape),
            _tag(_TENSOR_ELEMENT, _VARINT) + _number(element),
            _field(_TENSOR_NAME, name.encode()),
            _field(_TENSOR_CONTENT, content),
        ]
    )


def _declared(info: bytes) -> tuple[int, list[int | None] | None]:
    """Element type and dims that a ``ValueInfoProto`` declares; ``None`` for dims without a number."""
    tensor = _inner(_inner(info, _TYPE), _TENSOR_TYPE)
    element = 0
    dims: list[int | None] | None = None
    for field, wire, _, content, stop in _fields(tensor, 0, len(tensor)):
        if field == _ELEMENT and wire == _VARINT:
            element = _varint(tensor, content)[0]
        elif field == _SHAPE and wire == _BYTES:
            shape = tensor[content:stop]
            dims = [
                _dim(shape[begin:end])
                for number, kind, _, begin, end in _fields(shape, 0, len(shape))
                if number == _DIM and kind == _BYTES
            ]
    return element, dims


def _dim(dim: bytes) -> int | None:
    for field, wire, _, content, _ in _fields(dim, 0, len(dim)):
        if field == _DIM_VALUE and wire == _VARINT:
            return _varint(dim, content)[0]
    return None


def _inner(message: bytes, wanted: int) -> bytes:
    parts = [
        message[content:stop]
        for field, wire, _, content, stop in _fields(message, 0, len(message))
        if field == wanted and wire == _BYTES
    ]
    return b"".join(parts)  # as protobuf merges a field that is there twice


def _text(message: bytes, at: int, end: int, wanted: int) -> str:
    for field, wire, _, content, stop in _fields(message, at, end):
        if field == wanted and wire == _BYTES:
            return message[content:stop].decode("utf-8", "replace")
    return ""


def _fields(message: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, wire type, start, start of the content, and end of each field of a message."""
    while at < end:
        start = at
        tag, at = _varint(message, at)
        field, wire = tag >> 3, tag & 7
        content = at
        if wire == _VARINT:
            _, at = _varint(message, at)
        elif wire == _BYTES:
            length, content = _varint(message, at)
            at = content + length
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise ArgumentError(f"the model is damaged: a field of wire type {wire}")
        if at > end:
            raise ArgumentError("the model is damaged: a field is longer than its message")
        yield field, wire, start, content, at


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    raise ArgumentError("the model is damaged: a number is cut off or too long")


def _number(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _tag(field: int, wire: int) -> bytes:
    return _number(field << 3 | wire)


def _field(field: int, content: bytes) -> bytes:
    return _tag(field, _BYTES) + _number(len(content)) + content
