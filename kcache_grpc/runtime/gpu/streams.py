"""Where a call runs: the caller's device and stream, and where its results and workspace come from.

The framework of the first argument decides. Nothing here waits for the GPU: memory is taken and given back in
the order of the stream.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from kcache_grpc.errors import ArgumentError
from kcache_grpc.runtime.arrays import is_torch
from kcache_grpc.runtime.dtypes import NAMELESS, numpy_dtype, torch_dtypes
from kcache_grpc.runtime.gpu.device_memory import DeviceArray
from kcache_grpc.runtime.gpu.driver import Driver, Handle


class StreamContext(Protocol):
    """One call's stream and memory."""

    stream: Handle

    def empty(self, dtype: str, shape: tuple[int, ...]) -> tuple[Any, Handle]:
        """A result, the caller's own, and its address."""
        ...

    def scratch(self, size: int) -> tuple[object, Handle]:
        """Bytes for work put on the stream as long as the first value lives."""
        ...

    def finish(self, results: Sequence[Any]) -> tuple[Any, ...]:
        """The results as the caller gets them, once the launches are on the stream."""
        ...


class TorchStreamContext:
    """PyTorch's current stream of a device, and its caching allocator."""

    def __init__(self, ordinal: int) -> None:
        self._torch: Any = sys.modules["torch"]
        self._device = self._torch.device("cuda", ordinal)
        self.stream: Handle = int(self._torch.cuda.current_stream(ordinal).cuda_stream)

    def empty(self, dtype: str, shape: tuple[int, ...]) -> tuple[Any, Handle]:
        theirs = torch_dtypes().get(dtype)
        if theirs is None:
            raise ArgumentError(f"this PyTorch has no dtype for the output {dtype}")
        tensor = self._torch.empty(shape, dtype=theirs, device=self._device)
        return tensor, int(tensor.data_ptr())

    def scratch(self, size: int) -> tuple[object, Handle]:
        return self.empty("ui8", (size,))

    def finish(self, results: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(results)


class CupyStreamContext:
    """CuPy's current stream, and its pool. CuPy has no bfloat16: such results are of the driver's memory."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._cupy: Any = sys.modules["cupy"]
        self._others = DriverStreamContext(driver, ordinal, None)
        self._ordinal = ordinal
        with self._cupy.cuda.Device(ordinal):
            self.stream: Handle = int(self._cupy.cuda.get_current_stream().ptr)
        self._others.stream = self.stream

    def empty(self, dtype: str, shape: tuple[int, ...]) -> tuple[Any, Handle]:
        if dtype in NAMELESS:
            return self._others.empty(dtype, shape)
        with self._cupy.cuda.Device(self._ordinal):
            array = self._cupy.empty(shape, numpy_dtype(dtype))
        return array, int(array.data.ptr)

    def scratch(self, size: int) -> tuple[object, Handle]:
        return self.empty("ui8", (size,))

    def finish(self, results: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(results)


class DriverStreamContext:
    """The legacy default stream and the driver's own pool: for frameworks that tell of neither, as JAX.

    Results are ``DeviceArray``, handed to the framework of ``like`` through DLPack if it has a namespace.
    """

    def __init__(self, driver: Driver, ordinal: int, like: Any) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self._like = like
        self.stream: Handle = 0

    def empty(self, dtype: str, shape: tuple[int, ...]) -> tuple[Any, Handle]:
        array = DeviceArray(self._driver, self._ordinal, self.stream, dtype, shape)
        return array, array.pointer

    def scratch(self, size: int) -> tuple[object, Handle]:
        return self.empty("ui8", (size,))

    def finish(self, results: Sequence[Any]) -> tuple[Any, ...]:
        convert = array_converter(self._like)
        return tuple(results) if convert is None else tuple(map(convert, results))


def stream_context(driver: Driver, like: Any, ordinal: int) -> StreamContext:
    """The stream context of a call whose first argument is ``like``, in the memory of GPU ``ordinal``."""
    if is_torch(like):
        return TorchStreamContext(ordinal)
    if is_cupy(like):
        return CupyStreamContext(driver, ordinal)
    return DriverStreamContext(driver, ordinal, like)


def is_cupy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "cupy"


def array_converter(like: Any) -> Any:
    """Return the function that converts to arrays of the framework of ``like``; None if it is unknown."""
    if type(like).__module__.partition(".")[0].startswith("jax"):
        return importlib.import_module("jax.numpy").from_dlpack
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__().from_dlpack
    return None
