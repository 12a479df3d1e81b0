"""Access to the ``onnx`` package, imported at first use: data types, tensors, walks over graphs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from typing import Any

from kcache_compiler.errors import InvalidProgram, UnsupportedOp

#: A message or module of ``onnx``, which is untyped.
Proto = Any

#: A NumPy array.
Array = Any

_ELEMENTS = {
    "FLOAT": "f32",
    "UINT8": "ui8",
    "INT8": "i8",
    "UINT16": "ui16",
    "INT16": "i16",
    "INT32": "i32",
    "INT64": "i64",
    "BOOL": "i1",
    "FLOAT16": "f16",
    "DOUBLE": "f64",
    "UINT32": "ui32",
    "UINT64": "ui64",
    "COMPLEX64": "complex<f32>",
    "COMPLEX128": "complex<f64>",
    "BFLOAT16": "bf16",
    "FLOAT8E4M3FN": "f8E4M3FN",
    "FLOAT8E4M3FNUZ": "f8E4M3FNUZ",
    "FLOAT8E5M2": "f8E5M2",
    "FLOAT8E5M2FNUZ": "f8E5M2FNUZ",
    "FLOAT8E8M0": "f8E8M0FNU",
    "FLOAT4E2M1": "f4E2M1FN",
    "UINT4": "ui4",
    "INT4": "i4",
    "UINT2": "ui2",
    "INT2": "i2",
}


@functools.cache
def onnx() -> Proto:
    """Return the package with the modules that are used, imported at first use."""
    import onnx.reference  # noqa: F401  # pyright: ignore[reportUnusedImport]

    return importlib.import_module("onnx")


@functools.cache
def _elements_by_number() -> dict[int, str]:
    types = onnx().TensorProto.DataType
    return {types.Value(name): element for name, element in _ELEMENTS.items()}


def element_name(data_type: int) -> str | None:
    """Return the element type of buffers for an ONNX data type, None if there is none."""
    return _elements_by_number().get(data_type)


def data_type(element: str) -> int:
    """Return the ONNX data type of an element type."""
    return next(number for number, name in _elements_by_number().items() if name == element)


def data_type_name(data_type: int) -> str:
    """Return the name of a data type for messages."""
    try:
        return onnx().TensorProto.DataType.Name(data_type)
    except ValueError:
        return str(data_type)


def tensor_array(tensor: Proto, owner: str) -> Array:
    """Return the elements of a ``TensorProto``. Raises ``InvalidProgram`` or ``UnsupportedOp``."""
    if tensor.data_location == onnx().TensorProto.EXTERNAL or len(tensor.external_data):
        raise InvalidProgram(
            f"{owner} stores its elements in another file: pass the path of the model as a pathlib.Path, "
            f"so that "
            "the client finds the file, or load the model with onnx.load, which reads external data"
        )
    if element_name(tensor.data_type) is None:
        raise UnsupportedOp(
            "onnx.TensorProto",
            f"elements of type {data_type_name(tensor.data_type)}, which buffers do not support",
            owner,
        )
    try:
        return onnx().numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InvalidProgram(f"{owner} does not have the number of elements of its shape: {error}") from None


def graphs(model: Proto) -> Iterator[Proto]:
    """Yield every graph of a model."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        pending.extend(inner_graphs(graph.node))


def inner_graphs(body: Proto) -> list[Proto]:
    """Return the graphs in the attributes of nodes."""
    return [g for node in body for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]


def nodes(graph: Proto) -> Iterator[Proto]:
    """Yield the nodes of a graph and of its inner graphs."""
    pending = [graph]
    while pending:
        body = pending.pop().node
        yield from body
        pending.extend(inner_graphs(body))


def all_nodes(model: Proto) -> Iterator[Proto]:
    """Yield the nodes of all graphs and functions of a model."""
    yield from nodes(model.graph)
    for function in model.functions:
        yield from function_nodes(function)


def function_nodes(function: Proto) -> Iterator[Proto]:
    """Yield the nodes of a function and of its inner graphs."""
    yield from function.node
    for graph in inner_graphs(function.node):
        yield from nodes(graph)


def own_opsets(model: Proto) -> set[int]:
    """Return the versions of ONNX's own domain that a model imports."""
    return {o.version for o in model.opset_import if o.domain in ("", "ai.onnx")}
