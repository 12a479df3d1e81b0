"""A call's launches as a graph of the GPU, which times them without the host between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime.arrays import is_torch
from kcache_grpc.runtime.dtypes import numpy_dtype
from kcache_grpc.runtime.gpu.device import Device, device_numbered
from kcache_grpc.runtime.gpu.device_memory import DeviceArray
from kcache_grpc.runtime.gpu.driver import Graph, Handle
from kcache_grpc.runtime.gpu.packed_launches import Packed


class Prepared:
    """Launches on one device, with all the memory that they need. For one thread at a time."""

    def __init__(
        self,
        device: Device,
        packed: Packed,
        workspace: Handle,
        buffers: tuple[Handle, ...],
        keeps: object,
    ) -> None:
        self._device, self._packed = device, packed
        self._workspace, self._buffers = workspace, buffers
        self._keeps = keeps
        self._calls, self._graph = 0, None
        with device.driver.within(device.context):
            device.driver.synchronize()
            self._stream = device.driver.stream()

    def sample(self, calls: int) -> float:
        """Seconds of a call, of this many one after the other."""
        driver = self._device.driver
        with driver.within(self._device.context):
            if calls != self._calls:
                self._discard()
                self._graph, self._calls = driver.recorded(self._stream, lambda: self._put(calls)), calls
            return driver.seconds(self._stream, lambda: driver.run_graph(self._graph, self._stream)) / calls

    def _put(self, calls: int) -> None:
        for _ in range(calls):
            self._packed.run(self._device.driver, self._stream, self._workspace, self._buffers)

    def close(self) -> None:
        """Gives back the stream and its graph."""
        driver = self._device.driver
        with driver.within(self._device.context):
            self._discard()
            driver.close_stream(self._stream)

    def _discard(self) -> None:
        graph: Graph = self._graph
        if graph is not None:
            self._device.driver.discard(graph)
        self._graph = None


def to_device(
    specs: Sequence[TensorSpec], arrays: Sequence[Any], ordinal: int = 0
) -> tuple[DeviceArray, ...]:
    """Copies of NumPy arrays in the memory of a GPU."""
    device = device_numbered(ordinal)
    with device.driver.within(device.context):
        copies = [
            DeviceArray(device.driver, ordinal, 0, spec.dtype, tuple(array.shape))
            for spec, array in zip(specs, arrays, strict=True)
        ]
        for copy, array in zip(copies, arrays, strict=True):
            device.driver.fill(copy.pointer, np.ascontiguousarray(array).tobytes())
    return tuple(copies)


def to_host(value: Any) -> Any:
    """A result of a kernel as a NumPy array; of types that NumPy lacks the bits."""
    if isinstance(value, DeviceArray):
        array: Any = np.frombuffer(value.content(), numpy_dtype(value.dtype))
        return array.reshape(value.shape)
    if is_torch(value):
        import torch

        host = value.detach().cpu()
        return (host.view(torch.int16) if host.dtype == torch.bfloat16 else host).numpy()
    return value.get() if hasattr(value, "get") else np.asarray(value)
