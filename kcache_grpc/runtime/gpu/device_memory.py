"""Device memory of our own, for callers whose framework gives none: shared through DLPack."""

from __future__ import annotations

import contextlib
import ctypes
import math
from typing import Any

from kcache_grpc.errors import KcacheError
from kcache_grpc.runtime.dlpack import CUDA
from kcache_grpc.runtime.dtypes import DLPACK, numpy_dtype
from kcache_grpc.runtime.gpu.driver import Driver, Handle

_CODES = {name: code for code, name in DLPACK.items()}


class _Tensor(ctypes.Structure):
    """DLPack's ``DLManagedTensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: Address of an exported tensor -> the tensor, its shape and the array: alive until the consumer lets go.
_exported: dict[int, tuple[Any, ...]] = {}


@_Deleter
def _delete(address: int) -> None:
    _exported.pop(address, None)


@_Destructor
def _destroy(capsule: int) -> None:
    """A capsule that nobody consumed gives its tensor back."""
    api = ctypes.pythonapi
    valid, pointer = api.PyCapsule_IsValid, api.PyCapsule_GetPointer
    name = ctypes.c_char_p(b"dltensor")
    if valid(ctypes.c_void_p(capsule), name):
        pointer.restype = ctypes.c_void_p
        _exported.pop(pointer(ctypes.c_void_p(capsule), name), None)


class DeviceArray:
    """A contiguous array in the memory of a GPU. Freed, in the order of its stream, with its last user.

    ``context`` is the current one, ``size`` the bytes of the array.
    """

    __slots__ = ("__weakref__", "_context", "_driver", "dtype", "ordinal", "pointer", "shape", "stream")

    def __init__(
        self,
        driver: Driver,
        ordinal: int,
        stream: Handle,
        dtype: str,
        shape: tuple[int, ...],
        context: Handle | None = None,
        size: int | None = None,
    ) -> None:
        self.pointer: Handle = 0
        self._driver = driver
        self._context = driver.current_context() if context is None else context
        self.ordinal = ordinal
        self.stream = stream
        self.dtype = dtype
        self.shape = shape
        self.pointer = driver.allocate(size_of(dtype, shape) if size is None else size, stream)

    def __del__(self) -> None:
        if self.pointer:
            with contextlib.suppress(KcacheError):
                self._driver.release(self.pointer, self.stream, self._context)

    def content(self) -> bytes:
        """A copy of its elements in host memory. Waits for all that the device does."""
        with self._driver.within(self._context):
            return self._driver.download(self.pointer, size_of(self.dtype, self.shape))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self.ordinal)

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> object:
        """A capsule; ``stream`` waits for what we launched (1, None: the legacy default one; -1: none)."""
        wanted = {None: 0, 1: 0}.get(stream, stream)
        if wanted != self.stream and stream != -1:
            with self._driver.within(self._context):
                self._driver.order(self.stream, int(wanted or 0))
        if self.dtype not in _CODES:
            raise BufferError(f"DLPack has no type for {self.dtype}, one byte an element")
        code, bits = _CODES[self.dtype]
        sizes = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        tensor = _Tensor(
            data=self.pointer,
            device_type=CUDA,
            device_id=self.ordinal,
            ndim=len(self.shape),
            code=code,
            bits=bits,
            lanes=1,
            shape=sizes,
            strides=None,
            byte_offset=0,
            manager_ctx=None,
            deleter=ctypes.cast(_delete, ctypes.c_void_p),
        )
        address = ctypes.addressof(tensor)
        _exported[address] = (tensor, sizes, self)
        api = ctypes.pythonapi
        api.PyCapsule_New.restype = ctypes.py_object
        return api.PyCapsule_New(ctypes.c_void_p(address), ctypes.c_char_p(b"dltensor"), _destroy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": _typestr(numpy_dtype(self.dtype)),
            "data": (self.pointer, False),
            "strides": None,
            "stream": self.stream or 1,
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}[{','.join(map(str, self.shape))}] on cuda:{self.ordinal}>"


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of an array."""
    return math.prod(shape) * numpy_dtype(dtype).itemsize


def _typestr(dtype: Any) -> str:
    """As NumPy's array interface says it."""
    return str(dtype.str)
