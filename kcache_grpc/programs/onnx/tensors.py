"""Tensors of serialized ONNX models as NumPy arrays: in the model, or in external files. Imports no onnx."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from kcache_grpc.errors import InvalidProgram
from kcache_grpc.programs.onnx.protobuf_fields import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Array,
    Field,
    bytes_field,
    fields,
    joined,
    number_field,
    signed,
    varints,
)
from kcache_grpc.runtime.dtypes import numpy_dtypes

_EXTERNAL = 1

#: Fields of ``TensorProto``.
_DIMS, _TYPE, _SEGMENT, _NAME, _RAW, _DATA, _LOCATION = 1, 2, 3, 8, 9, 13, 14
_FLOATS, _INT32S, _STRINGS, _INT64S, _DOUBLES, _UINT64S = 4, 5, 6, 7, 10, 11

#: ``TensorProto.DataType`` -> dtype of the elements of a kernel's argument, as ``runtime.dtypes`` names it.
_ELEMENTS = {
    1: "f32", 2: "ui8", 3: "i8", 4: "ui16", 5: "i16", 6: "i32", 7: "i64", 9: "i1", 10: "f16", 11: "f64",
    12: "ui32", 13: "ui64", 14: "c64", 15: "c128", 16: "bf16", 17: "ui8", 18: "ui8", 19: "ui8", 20: "ui8",
    21: "ui8", 22: "i8", 23: "ui8", 24: "ui8", 25: "ui8", 26: "i8",
}  # fmt: skip
#: Types of which a byte has several elements -> bits of one, and whether it is signed.
_PACKED = {21: (4, False), 22: (4, True), 23: (4, False), 25: (2, False), 26: (2, True)}
#: Types whose elements decide sizes: they are weights only where there are many.
_MAYBE_SIZES = frozenset({6, 7, 9, 12, 13})
_INLINE_BYTES = 1024


@dataclass(frozen=True)
class Tensor:
    """A serialized ``TensorProto``, as far as its outermost fields tell."""

    name: str
    dims: tuple[int, ...]
    data_type: int
    external: bool
    #: Where its elements are, if in another file: file, offset, length (-1: to the end of the file).
    location: tuple[str, int, int] | None
    body: memoryview

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.dims)

    @property
    def known(self) -> bool:
        """Whether a buffer has such elements."""
        return self.data_type in _ELEMENTS and min(self.dims, default=0) >= 0

    @property
    def packed(self) -> bool:
        """Whether a byte has several elements."""
        return self.data_type in _PACKED

    @property
    def nbytes(self) -> int:
        """Bytes of a kernel's argument."""
        return self.size * numpy_dtypes()[_ELEMENTS[self.data_type]].itemsize if self.known else 0

    @property
    def is_weight(self) -> bool:
        """Whether a program takes the elements as an argument, wherever it reads no size from them."""
        if not self.known or self.size < 2:
            return False
        return self.data_type not in _MAYBE_SIZES or self.nbytes > _INLINE_BYTES


def read_tensor(body: memoryview) -> Tensor:
    """Read what a tensor is, not its elements. Raises ``MalformedMessage``."""
    dims: list[int] = []
    name, data_type, external = "", 0, False
    entries: dict[str, str] = {}
    for field in fields(body):
        if field.tag == _DIMS:
            dims += [signed(field.number)] if field.wire == VARINT else varints(field.payload).tolist()
        elif field.tag == _TYPE:
            data_type = field.number
        elif field.tag == _NAME:
            name = str(field.payload, "utf-8", "replace")
        elif field.tag == _LOCATION:
            external = field.number == _EXTERNAL
        elif field.tag == _DATA:
            key, value = _entry(field.payload)
            entries[key] = value
    location = _location_of(entries, name) if external else None
    return Tensor(name, tuple(dims), data_type, external, location, body)


def _entry(body: memoryview) -> tuple[str, str]:
    texts = {field.tag: str(field.payload, "utf-8", "replace") for field in fields(body)}
    return texts.get(1, ""), texts.get(2, "")


def _location_of(entries: dict[str, str], name: str) -> tuple[str, int, int]:
    try:
        return entries["location"], int(entries.get("offset") or 0), int(entries.get("length") or -1)
    except (KeyError, ValueError):
        raise InvalidProgram(f"the tensor {name!r} does not say in which file its elements are") from None


class ExternalFiles:
    """The external files of a model, mapped when first read and kept while an array shows them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, memoryview] = {}

    def read(self, tensor: Tensor) -> memoryview:
        """Return the bytes of a tensor. Raises ``InvalidProgram``."""
        assert tensor.location is not None
        file, offset, length = tensor.location
        content = self._files.get(file)
        if content is None:
            content = self._files[file] = self._map(file, tensor.name)
        end = len(content) if length < 0 else offset + length
        if not 0 <= offset <= end <= len(content):
            raise InvalidProgram(
                f"the tensor {tensor.name!r} has bytes {offset} to {end} of {self._directory / file}, "
                f"which has {len(content)}: the file is cut off, or belongs to another model"
            )
        return content[offset:end]

    def _map(self, location: str, name: str) -> memoryview:
        pure = PurePosixPath(location.replace("\\", "/"))
        path = self._directory / pure
        inside = not pure.is_absolute() and ".." not in pure.parts
        if not inside or not path.resolve().is_relative_to(self._directory.resolve()):
            raise InvalidProgram(
                f"the tensor {name!r} is in {location!r}, outside of the model's directory: move it there"
            )
        if not path.is_file():
            raise InvalidProgram(f"the tensor {name!r} is in {path}, which is no file")
        return map_file(path)


def map_file(path: Path) -> memoryview:
    """Return a file's bytes, read from the disk where they are looked at. Raises ``OSError``."""
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:  # an empty file
            return memoryview(b"")


def tensor_array(tensor: Tensor, files: ExternalFiles | None) -> Array:
    """Return a tensor's elements as a kernel's argument has them: a view where that is possible.

    Raises ``InvalidProgram`` where they are not those of its shape.
    """
    name = _ELEMENTS[tensor.data_type]
    dtype = numpy_dtypes()[name]
    try:
        if tensor.external:
            assert files is not None
            array: Array = _from_bytes(files.read(tensor), tensor, dtype)
        else:
            array = _from_fields(tensor, dtype)
    except ValueError as error:
        raise InvalidProgram(f"the elements of the tensor {tensor.name!r} cannot be read: {error}") from error
    if array.size != tensor.size:
        raise InvalidProgram(
            f"the tensor {tensor.name!r} has {array.size} elements, and its shape {list(tensor.dims)} has "
            f"{tensor.size}"
        )
    return array.reshape(tensor.dims)


def _from_bytes(content: memoryview, tensor: Tensor, dtype: np.dtype[Any]) -> Array:
    """Elements from ``raw_data``, little-endian."""
    if tensor.data_type in _PACKED:
        return _unpacked(np.frombuffer(content, np.uint8), tensor)
    return np.frombuffer(content, dtype)


def _unpacked(content: Array, tensor: Tensor) -> Array:
    """One byte for each element, of content with several in a byte, the low bits first."""
    bits, is_signed = _PACKED[tensor.data_type]
    shifts: Array = np.arange(0, 8, bits, dtype=np.uint8)
    parts: Array = ((content[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[: tensor.size]
    if content.size != -(-tensor.size * bits // 8):
        raise ValueError(f"{content.size} bytes")
    if not is_signed:
        return parts
    sign = np.int8(1 << (bits - 1))
    return (parts.view(np.int8) ^ sign) - sign


def _from_fields(tensor: Tensor, dtype: np.dtype[Any]) -> Array:
    """Elements in the model: ``raw_data``, or a repeated field of the type."""
    parts: list[Array] = []
    for field in fields(tensor.body):
        if field.tag == _RAW:
            return _from_bytes(field.payload, tensor, dtype)
        if field.tag == _SEGMENT:
            raise ValueError("they are a segment")
        if field.tag in (_FLOATS, _DOUBLES, _INT32S, _INT64S, _UINT64S):
            parts.append(_repeated(field))
    numbers: Array = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, dtype)
    if numbers.dtype.kind == "f":
        return numbers.view(dtype)
    if tensor.data_type in _PACKED:
        return _unpacked(numbers.astype(np.uint8), tensor)
    carrier = np.dtype(f"i{dtype.itemsize}") if dtype.kind != "b" else dtype
    # Half-precision elements, bytes and similar are the low bits of int32_data.
    return numbers.astype(carrier).view(dtype)


def _repeated(field: Field) -> Array:
    if field.tag in (_FLOATS, _DOUBLES):
        expected = {FIXED32: np.float32, FIXED64: np.float64}
        return np.frombuffer(
            field.payload,
            expected.get(field.wire, np.float32 if field.tag == _FLOATS else np.float64),
        )
    if field.wire == LENGTH:
        return varints(field.payload)
    return np.array([signed(field.number)], np.int64)


def argument_field(tag: int, name: str, tensor: Tensor) -> bytes:
    """Return a ``ValueInfoProto`` of a tensor's type and shape, as a field of a graph."""
    dims = [bytes_field(1, number_field(1, size)) for size in tensor.dims]
    tensor_type = bytes_field(1, number_field(1, tensor.data_type), bytes_field(2, *dims))
    return bytes_field(tag, bytes_field(1, name.encode()), bytes_field(2, tensor_type))


def inlined(tensor: Tensor, content: memoryview) -> bytes:
    """Return the serialized tensor with the elements of an external one inside."""
    kept = [field.raw for field in fields(tensor.body) if field.tag not in (_RAW, _DATA, _LOCATION)]
    return joined([*kept, bytes_field(_RAW, content)])
