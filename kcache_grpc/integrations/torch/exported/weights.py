"""Tensors in the format of safetensors: 8 bytes with the size of a JSON header, the header, the elements."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from kcache_grpc.errors import ArgumentError, IntegrityError

torch: Any = import_module("torch")

_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_NAME_OF = {getattr(torch, name): text for name, text in _NAMES.items() if hasattr(torch, name)}
_DTYPE_OF = {text: dtype for dtype, text in _NAME_OF.items()}
#: Elements of every dtype are aligned in the file.
_ALIGNMENT = 16


def encode_tensors(tensors: Mapping[str, Any]) -> list[Any]:
    """The file in pieces of bytes. Raises ``ArgumentError`` for tensors that the format does not have."""
    header: dict[str, Any] = {}
    pieces: list[Any] = []
    offset = 0
    for name, tensor in tensors.items():
        piece = _elements(name, tensor)
        entry = {"dtype": _NAME_OF[tensor.dtype], "shape": list(tensor.shape)}
        header[name] = {**entry, "data_offsets": [offset, offset + piece.nbytes]}
        padding = -piece.nbytes % _ALIGNMENT
        if padding and len(header) < len(tensors):
            # The format has no gaps: what fills them is a tensor too.
            begin = offset + piece.nbytes
            fill = {"dtype": "U8", "shape": [padding], "data_offsets": [begin, begin + padding]}
            header[f"{_FILL}{len(pieces)}"] = fill
            pieces += [piece, bytes(padding)]
            offset = begin + padding
        else:
            pieces.append(piece)
            offset += piece.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return [len(text).to_bytes(8, "little") + text, *pieces]


_FILL = "__padding__"


def _elements(name: str, tensor: Any) -> memoryview:
    if tensor.dtype not in _NAME_OF or tensor.layout is not torch.strided or tensor.is_meta:
        raise ArgumentError(
            f"{name} is of {tensor.dtype}, {tensor.layout} on {tensor.device}, which a package cannot hold",
            argument=name,
        )
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return memoryview(plain.view(torch.uint8).numpy()) if plain.numel() else memoryview(b"")


def decode_tensors(content: bytearray) -> dict[str, Any]:
    """The tensors, over the memory of ``content``. Raises ``IntegrityError`` for other bytes."""
    try:
        length = int.from_bytes(content[:8], "little")
        header = cast("dict[str, Any]", json.loads(bytes(content[8 : 8 + length])))
        start = 8 + length
        return {
            str(name): _tensor(content, start, entry)
            for name, entry in header.items()
            if name != "__metadata__" and not name.startswith(_FILL)
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"the weights of the package cannot be read: {error}") from error


def _tensor(content: bytearray, start: int, entry: Mapping[str, Any]) -> Any:
    dtype, shape = _DTYPE_OF[entry["dtype"]], cast("Sequence[Any]", entry["shape"])
    begin, end = entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError("a size or an offset is no integer")
    count = math.prod(shape)
    if start + end > len(content) or end - begin != count * dtype.itemsize:
        raise ValueError("a tensor lies outside of the file")
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=start + begin).reshape(shape)
