"""Types of the Torch dialect, and the numbers that it gives to PyTorch's enumerations."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")

#: Element types of tensors; signs are those of the Torch dialect.
ELEMENT_TYPES: dict[Any, str] = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.uint8: "ui8",
    torch.int8: "si8",
    torch.int16: "si16",
    torch.int32: "si32",
    torch.int64: "si64",
    torch.bool: "i1",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fn: "f8E4M3FN",
}
#: ``c10::ScalarType``, ``c10::Layout`` and ``c10::MemoryFormat``, as schemas pass them.
NUMBERS: dict[Any, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.strided: 0,
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


def tensor_type(sizes: Sequence[int], dtype: Any) -> str:
    """Such as ``!torch.vtensor<[2,3],f32>``."""
    return f"!torch.vtensor<[{','.join(map(str, sizes))}],{ELEMENT_TYPES[dtype]}>"
