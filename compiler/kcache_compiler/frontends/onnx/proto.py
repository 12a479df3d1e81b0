"""The one seam to the ``onnx`` package: imported at first use, and what its data types are here."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from kcache_compiler.errors import InvalidProgram, UnsupportedOp

#: A message or module of ``onnx``, which is used without its types.
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
    """Return the package, imported at first use, with the modules that are used."""
    import onnx.reference  # noqa: F401  # pyright: ignore[reportUnusedImport]

    return importlib.import_module("onnx")


@functools.cache
def _by_number() -> dict[int, str]:
    types = onnx().TensorProto.DataType
    return {types.Value(name): element for name, element in _ELEMENTS.items()}


def element_name(data_type: int) -> str | None:
    """Return the element that buffers have for an ONNX data type, if they have one."""
    return _by_number().get(data_type)


def data_type(element: str) -> int:
    """Return the ONNX data type of an element."""
    return next(number for number, name in _by_number().items() if name == element)


def data_type_name(data_type: int) -> str:
    """Return the name of a data type, for messages."""
    try:
        return onnx().TensorProto.DataType.Name(data_type)
    except ValueError:
        return str(data_type)


def tensor_array(tensor: Proto, where: str) -> Array:
    """Return the elements of a ``TensorProto``; raises ``InvalidProgram`` or ``UnsupportedOp``."""
    if tensor.data_location == onnx().TensorProto.EXTERNAL or len(tensor.external_data):
        raise InvalidProgram(
            f"{where} keeps its elements in another file: pass the model's path, as pathlib.Path, beside "
            "which the client finds it, or load the model with onnx.load, which reads external data"
        )
    if element_name(tensor.data_type) is None:
        raise UnsupportedOp(
            "onnx.TensorProto",
            f"elements of type {data_type_name(tensor.data_type)}, which no buffer has",
            where,
        )
    try:
        return onnx().numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InvalidProgram(f"{where} does not hold the elements of its shape: {error}") from None
