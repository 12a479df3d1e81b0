"""GPU 0 of this machine: loads, launches and times the kernels of a pack, with memory that it checks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.kit.runtime.devices import Execution, NoGpu
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.model.gpu.launch import GpuCall
from kcache_grpc.model.gpu.target import Version
from kcache_grpc.runtime.gpu.device import Device, device_numbered
from kcache_grpc.runtime.gpu.driver import Function, Handle
from kcache_grpc.runtime.gpu.packed_launches import Packed

#: Bytes after each buffer that no kernel may change.
_GUARD = b"\xa5" * 512
#: What the workspace holds before a kernel writes it: NaN in every float type.
_POISON = b"\xff"
#: The legacy default stream, which PyTorch shares.
_STREAM = 0


class CudaDevice:
    """GPU 0, in its primary context, which PyTorch shares; work goes to the legacy default stream.

    With ``poison``, outputs hold their ``fills``, and the workspace NaN, before a kernel writes them.
    """

    def __init__(self) -> None:
        """Raises ``NoGpu`` where there is none."""
        self.poison = True
        try:
            importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise NoGpu("cuda-bindings is not installed: pip install cuda-bindings") from error
        try:
            self.gpu: Device = device_numbered(0)
        except ArgumentError as error:
            raise NoGpu(error.message) from error
        self.driver = self.gpu.driver
        self.driver.push_context(self.gpu.context)

    @property
    def capability(self) -> Version:
        return self.gpu.capability

    def description(self) -> dict[str, Any]:
        """What the device is, for the file of results."""
        versions = {"capability": self.capability, "cuda": self.driver.version}
        said = {name: ".".join(map(str, version)) for name, version in versions.items()}
        return {"device": self.gpu.name, **said}

    def execute(self, execution: Execution) -> list[bytes]:
        """Contents of the outputs. Raises ``KcacheError`` for what the driver reports, or what it detects."""
        with self.prepared(execution) as work:
            work.launch()
            self.synchronize()
            return work.results()

    def prepared(self, execution: Execution) -> Prepared:
        """The kernel loaded, its memory allocated and filled."""
        return Prepared(self, execution)

    def load(self, execution: Execution) -> tuple[Handle, str]:
        """The module, and what it was made of: the cubin where it is for this GPU, else the PTX."""
        kernel, gpu = execution.kernel, self.gpu
        cubin, ptx = kernel.artifact("cubin"), kernel.artifact("ptx")
        fits = cubin is not None and kernel.target.cubin_runs_on(gpu.capability)
        same = kernel.target.capability == gpu.capability
        if cubin is not None and fits and (same or not gpu.takes_ptx(kernel.target)):
            return self.driver.load_module(cubin), "cubin"
        if ptx is None:
            raise KcacheError("the pack has no PTX, and its cubin is not for this GPU")
        return self.driver.load_module(ptx + b"\0"), "ptx"

    def function(self, module: Handle, call: GpuCall) -> Function:
        """The function of a launch, allowed the shared memory of the launch."""
        function = self.driver.function(module, call.entry)
        if self.driver.static_shared(function) + call.shared_bytes > self.gpu.shared_default:
            self.driver.allow_dynamic_shared(function, call.shared_bytes)
        return function

    # What times kernels needs.

    def allocate(self, size: int) -> Handle:
        return self.driver.allocate(size, _STREAM)

    def free(self, address: Handle) -> None:
        self.driver.free(address, _STREAM)

    def copy(self, to: Handle, source: Handle, size: int) -> None:
        """Inside the device's memory, without waiting for it."""
        self.driver.copy(to, source, size, _STREAM)

    def synchronize(self) -> None:
        self.driver.synchronize()

    def seconds(self, work: Callable[[], object], calls: int) -> float:
        """Of one of so many calls one after the other, by events of the GPU."""

        def repeated() -> None:
            for _ in range(calls):
                work()

        return self.driver.seconds(_STREAM, repeated) / calls


class Prepared:
    """A kernel's launches at given sizes with all their memory; a context manager that gives it back."""

    def __init__(self, device: CudaDevice, execution: Execution) -> None:
        self._device, self._driver, self._execution = device, device.driver, execution
        self._module, self.image = device.load(execution)
        calls = [(device.function(self._module, call), call) for call in execution.calls]
        self._packed = Packed(calls)
        outputs = zip(execution.output_sizes, execution.fills, strict=True)
        contents = [*execution.inputs, *execution.constants]
        contents += [fill * (size // len(fill)) for size, fill in outputs]
        contents.append(_POISON * execution.workspace)
        self._contents = contents
        self._pointers = [device.allocate(len(content) + len(_GUARD)) for content in contents]
        provided = len(execution.inputs) + len(execution.constants)
        for place, (pointer, content) in enumerate(zip(self._pointers, contents, strict=True)):
            self._driver.fill(pointer + len(content), _GUARD)
            if place < provided or device.poison:
                self._driver.fill(pointer, content)

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        for pointer in self._pointers:
            self._device.free(pointer)
        self._driver.unload_module(self._module)

    def launch(self) -> None:
        """Puts all launches on the stream."""
        self._packed.run(self._driver, _STREAM, self._pointers[-1], self._pointers[:-1])

    def results(self) -> list[bytes]:
        """Contents of the outputs. Raises ``KcacheError`` where something else was written too."""
        first = len(self._execution.inputs) + len(self._execution.constants)
        results = list[bytes]()
        for place, (pointer, content) in enumerate(zip(self._pointers, self._contents, strict=True)):
            size = len(content)
            if self._driver.download(pointer + size, len(_GUARD)) != _GUARD:
                raise KcacheError(f"bytes after buffer {place} were overwritten")
            if place < first and self._driver.download(pointer, size) != content:
                raise KcacheError(f"buffer {place}, an input, was overwritten")
            if first <= place < len(self._pointers) - 1:
                results.append(self._driver.download(pointer, size))
        return results
