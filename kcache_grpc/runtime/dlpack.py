"""Reading arrays of any framework through DLPack, without taking them over.

The capsule stays unconsumed and alive for the call; its own destructor gives it back.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.dtypes import DLPACK

_CPU = 1
CUDA = 2
_DEVICES = {
    1: "CPU",
    2: "CUDA",
    3: "CUDA host",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    13: "CUDA managed",
    14: "oneAPI",
}

_CODES = {name: code for code, name in DLPACK.items()}
_ADDRESS = ffi.typeof("uintptr_t")
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@dataclass(frozen=True)
class View:
    """What a capsule says; ``owner`` keeps the memory. ``strides`` are in elements, None when row-major."""

    pointer: CData
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    owner: object


class NotOnCpu(Exception):
    """The array lives on another device; the text names it."""


def read(array: Any) -> View:
    """Raises ``NotOnCpu``, or whatever the array's own export raises."""
    kind, number = device_of(array)
    if kind != _CPU:
        raise NotOnCpu(device_name(kind, number))
    return _view(array, _export(array))


def read_cuda(array: Any, stream: int) -> View:
    """An array in the memory of a GPU, for use on ``stream``, which its exporter lets wait for what it still
    computes. Raises whatever the array's own export raises.
    """
    return _view(array, _export(array, stream=stream or 1))


@dataclass(frozen=True)
class Facts:
    """What an array is that was taken before: its type, its shape and its steps in elements."""

    code: int
    bits: int
    sizes: list[int]
    steps: list[int]

    @staticmethod
    def of(dtype: str, shape: tuple[int, ...]) -> Facts:
        """Of a row-major array."""
        code, bits = _CODES.get(dtype, (-1, 0))  # which no array says
        return Facts(code, bits, [*shape], [math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def exported(array: Any, stream: int, facts: Facts) -> tuple[int, object] | None:
    """Address of an array, and what keeps it; None where it is not just as the facts say, or
    says nothing.
    """
    try:
        capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
        tensor = _tensor(capsule)
    except Exception:  # noqa: BLE001 - code of other projects: the long way asks again and explains
        return None
    ndim = len(facts.sizes)
    if tensor.code != facts.code or tensor.bits != facts.bits or tensor.lanes != 1 or tensor.ndim != ndim:
        return None
    if ndim and list(tensor.shape[0:ndim]) != facts.sizes:
        return None
    if tensor.strides and list(tensor.strides[0:ndim]) != facts.steps:
        return None
    return int(ffi.cast(_ADDRESS, tensor.data)) + tensor.byte_offset, capsule


def device_of(array: Any) -> tuple[int, int]:
    """DLPack's device type and the number of the device."""
    kind, number = array.__dlpack_device__()
    return int(kind), int(number)


def on_cpu(array: Any) -> bool:
    """Whether an array says that it lies in the memory of the CPU."""
    try:
        return device_of(array)[0] == _CPU
    except Exception:  # noqa: BLE001 - code of other projects
        return False


def device_name(kind: int, number: int) -> str:
    """For people."""
    return f"{_DEVICES.get(kind, f'DLPack device type {kind}')}:{number}"


def _view(array: object, capsule: object) -> View:
    tensor = _tensor(capsule)
    shape = tuple(int(tensor.shape[axis]) for axis in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(int(tensor.strides[axis]) for axis in range(tensor.ndim))
    code, bits, lanes = int(tensor.code), int(tensor.bits), int(tensor.lanes)
    dtype = DLPACK.get((code, bits)) if lanes == 1 else None
    pointer = ffi.cast("char *", tensor.data) + int(tensor.byte_offset)
    text = dtype or f"DLPack type (code {code}, {bits} bits, {lanes} lanes)"
    if bits % 8:
        text += ", which may pack elements into a byte: pass one byte an element, as ml_dtypes has them"
    return View(pointer, text, shape, strides, (array, capsule))


def _export(array: Any, **stream: int) -> object:
    try:
        return array.__dlpack__(**stream, max_version=(1, 0))
    except TypeError:
        return array.__dlpack__(**stream)


def _tensor(capsule: object) -> Any:
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = ffi.cast("dlpack_versioned *", _pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise BufferError(f"DLPack version {versioned.major} is not known")
        return versioned.tensor
    return ffi.cast("dlpack_tensor *", _pointer(capsule, b"dltensor"))
