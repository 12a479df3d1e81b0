"""A kernel on one device: its module, its functions and its constants, for the life of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError
from kcache_grpc.model.gpu.launch import GpuCall
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.runtime.gpu.device import Device
from kcache_grpc.runtime.gpu.driver import Function

_NOT_FOUND = "CUDA_ERROR_NOT_FOUND"


class Loaded:
    """Module, functions and constants in the primary context of ``device``."""

    def __init__(
        self,
        device: Device,
        manifest: Manifest,
        target: GpuTarget,
        artifact: Callable[[str], bytes],
        constants: Sequence[bytes],
    ) -> None:
        self._device = device
        self._functions: dict[str, Function] = {}
        self._allowed: dict[str, int] = {}
        self._lock = threading.Lock()
        with device.driver.within(device.context):
            self._module = device.driver.load_module(_image(device, manifest, target, artifact))
            #: Their addresses, in buffer order.
            self.constants = tuple(device.driver.upload(content) for content in constants)

    def function(self, call: GpuCall) -> Function:
        """The function of a launch, which may then be launched so. Raises ``ArgumentError``."""
        driver, most = self._device.driver, self._device.shared_most
        function = self._functions.get(call.entry)
        if function is None:
            function = self._functions[call.entry] = self._find(call.entry)
        static = driver.static_shared(function)
        if static + call.shared_bytes > most:
            raise ArgumentError(
                f"launch {call.name} takes {static + call.shared_bytes} bytes of shared memory a block, and "
                f"cuda:{self._device.ordinal} has {most}; compile for its own architecture"
            )
        x, y, z = call.block
        threads = driver.most_threads(function)
        if x * y * z > threads:
            raise ArgumentError(
                f"launch {call.name} takes blocks of {x * y * z} threads, and its code allows {threads} here"
            )
        if static + call.shared_bytes > self._device.shared_default:
            self._allow(call.entry, function, call.shared_bytes)
        return function

    def _find(self, entry: str) -> Function:
        try:
            return self._device.driver.function(self._module, entry)
        except KcacheError as error:
            if error.metadata.get("code") != _NOT_FOUND:
                raise
            raise IntegrityError(
                f"the kernel's code has no entry {entry!r}, which its manifest names"
            ) from error

    def _allow(self, entry: str, function: Function, size: int) -> None:
        """The limit only rises: launches of other sizes may run at the same time."""
        with self._lock:
            if size > self._allowed.get(entry, 0):
                self._device.driver.allow_dynamic_shared(function, size)
                self._allowed[entry] = size


def _image(device: Device, manifest: Manifest, target: GpuTarget, artifact: Callable[[str], bytes]) -> bytes:
    """The cubin where the device runs it, which costs no compile; else the PTX."""
    cubin = manifest.artifact("cubin") is not None and target.cubin_runs_on(device.capability)
    if cubin and (target.capability == device.capability or not device.takes_ptx(target)):
        return artifact("cubin")
    device.require_ptx(target)
    return artifact("ptx") + b"\0"
