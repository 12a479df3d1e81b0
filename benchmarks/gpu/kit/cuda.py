"""The GPU of this machine through ``cuda-bindings`` alone: loads code, launches it, copies memory."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.gpu.kit.devices import Execution, NoGpu
from kcache_grpc.errors import KcacheError
from kcache_grpc.model.gpu.launch import GpuCall, Param
from kcache_grpc.model.gpu.target import Version, newest_ptx

_LOG_BYTES = 8192
#: Bytes after each buffer that no kernel may change.
_GUARD = b"\xa5" * 512
#: What outputs and the workspace hold before a kernel writes them: NaN in every float type.
_POISON = b"\xff"


class CudaDevice:
    """GPU 0, in its primary context, which PyTorch shares; work goes to the legacy default stream.

    With ``poison``, outputs and the workspace are NaN before a kernel writes them.
    """

    def __init__(self) -> None:
        """Raises ``NoGpu`` where there is none."""
        self.poison = True
        try:
            self._cuda: Any = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise NoGpu("cuda-bindings is not installed: pip install cuda-bindings") from error
        try:
            (result,) = self._cuda.cuInit(0)
        except Exception as error:  # code of another project, which has several types for it
            raise NoGpu("there is no NVIDIA driver") from error
        if result != self._cuda.CUresult.CUDA_SUCCESS:
            raise NoGpu(f"the NVIDIA driver does not start: {result.name}")
        if int(self._call("cuDeviceGetCount")) == 0:
            raise NoGpu("the NVIDIA driver finds no GPU")
        handle = int(self._call("cuDeviceGet", 0))
        self._call("cuCtxPushCurrent", self._call("cuDevicePrimaryCtxRetain", handle))
        self.name = bytes(self._call("cuDeviceGetName", 256, handle)).partition(b"\0")[0].decode()
        major, minor = (
            int(self._attribute(handle, f"COMPUTE_CAPABILITY_{part}")) for part in ("MAJOR", "MINOR")
        )
        self.capability: Version = (major, minor)
        number = int(self._call("cuDriverGetVersion"))
        self.driver: Version = (number // 1000, number % 1000 // 10)
        self._shared_default = self._attribute(handle, "MAX_SHARED_MEMORY_PER_BLOCK")

    def description(self) -> dict[str, Any]:
        """What the device is, for the file of results."""
        versions = {"capability": self.capability, "cuda": self.driver}
        return {"device": self.name, **{name: ".".join(map(str, each)) for name, each in versions.items()}}

    def execute(self, execution: Execution) -> list[bytes]:
        """Contents of the outputs. Raises ``KcacheError`` for what the driver reports, or what it detects."""
        with self.prepared(execution) as work:
            work.launch()
            self.synchronize()
            return work.results()

    def prepared(self, execution: Execution) -> Prepared:
        """The kernel loaded, its memory allocated and filled."""
        return Prepared(self, execution)

    # Code.

    def load(self, execution: Execution) -> tuple[Any, str]:
        """The module, and what it was made of: the cubin where it is for this GPU, else the PTX."""
        kernel = execution.kernel
        cubin, ptx = kernel.artifact("cubin"), kernel.artifact("ptx")
        newest = newest_ptx(self.driver)
        takes_ptx = newest is not None and newest >= kernel.target.ptx
        fits = cubin is not None and kernel.target.cubin_runs_on(self.capability)
        if cubin is not None and fits and (kernel.target.capability == self.capability or not takes_ptx):
            return self._module(cubin), "cubin"
        if ptx is None:
            raise KcacheError("the pack has no PTX, and its cubin is not for this GPU")
        return self._module(ptx + b"\0"), "ptx"

    def _module(self, image: bytes) -> Any:
        options = self._cuda.CUjit_option
        log = bytearray(_LOG_BYTES)
        names = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        result, *module = self._cuda.cuModuleLoadDataEx(image, len(names), names, [log, _LOG_BYTES])
        said = bytes(log).partition(b"\0")[0].decode(errors="replace").strip()
        self._require("cuModuleLoadDataEx", result, said)
        return module[0]

    def unload(self, module: Any) -> None:
        """Gives the module back."""
        self._call("cuModuleUnload", module)

    def function(self, module: Any, call: GpuCall) -> Any:
        """The function of a launch, allowed the shared memory of the launch."""
        function = self._call("cuModuleGetFunction", module, call.entry.encode())
        attributes = self._cuda.CUfunction_attribute
        static = int(
            self._call("cuFuncGetAttribute", attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
        )
        if static + call.shared_bytes > self._shared_default:
            limit = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, limit, call.shared_bytes)
        return function

    def launch(self, function: Any, call: GpuCall, params: int) -> None:
        """``params`` is the address of an array of pointers to the values."""
        sizes = (*call.grid, *call.block, call.shared_bytes)
        self._call("cuLaunchKernel", function, *sizes, 0, params, 0)

    # Memory and time.

    def allocate(self, size: int) -> int:
        return int(self._call("cuMemAlloc", max(1, size)))

    def free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def fill(self, address: int, content: bytes) -> None:
        """Copies to the device, and waits for it."""
        if content:
            self._call("cuMemcpyHtoD", address, content, len(content))

    def download(self, address: int, size: int) -> bytes:
        content = bytearray(size)
        if size:
            self._call("cuMemcpyDtoH", content, address, size)
        return bytes(content)

    def copy(self, to: int, source: int, size: int) -> None:
        """Inside the device's memory, without waiting for it."""
        self._call("cuMemcpyDtoDAsync", to, source, size, 0)

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def seconds(self, work: Callable[[], object], calls: int) -> float:
        """Of one of so many calls one after the other, by events of the GPU."""
        flags = self._cuda.CUevent_flags.CU_EVENT_DEFAULT
        first, last = (self._call("cuEventCreate", flags) for _ in range(2))
        try:
            self._call("cuEventRecord", first, 0)
            for _ in range(calls):
                work()
            self._call("cuEventRecord", last, 0)
            self._call("cuEventSynchronize", last)
            return float(self._call("cuEventElapsedTime", first, last)) / 1e3 / calls
        finally:
            for event in (first, last):
                self._call("cuEventDestroy", event)

    def _attribute(self, handle: int, name: str) -> int:
        which = getattr(self._cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", which, handle))

    def _call(self, name: str, *arguments: Any) -> Any:
        result, *values = getattr(self._cuda, name)(*arguments)
        self._require(name, result)
        return values[0] if values else None

    def _require(self, name: str, result: Any, said: str = "") -> None:
        if result != self._cuda.CUresult.CUDA_SUCCESS:
            error = getattr(result, "name", str(result))
            raise KcacheError(f"{name}: {error}" + (f": {said[:2000]}" if said else ""), code=error)


class Prepared:
    """A kernel's launches at given sizes with all their memory; a context manager that gives it back."""

    def __init__(self, device: CudaDevice, execution: Execution) -> None:
        self._device, self._execution = device, execution
        self._module, self.image = device.load(execution)
        calls = execution.calls
        functions = [device.function(self._module, call) for call in calls]
        contents = [*execution.inputs, *execution.constants]
        sizes = [*map(len, contents), *execution.output_sizes, execution.workspace]
        self._sizes = sizes
        self._pointers = [device.allocate(size + len(_GUARD)) for size in sizes]
        for place, (pointer, size) in enumerate(zip(self._pointers, sizes, strict=True)):
            device.fill(pointer + size, _GUARD)
            if place < len(contents):
                device.fill(pointer, contents[place])
            elif device.poison:
                device.fill(pointer, _POISON * size)
        self._launches = [
            (function, call, *self._parameters(call.params))
            for function, call in zip(functions, calls, strict=True)
        ]

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        for pointer in self._pointers:
            self._device.free(pointer)
        self._device.unload(self._module)

    @property
    def inputs(self) -> list[int]:
        """Addresses of the arguments."""
        return self._pointers[: len(self._execution.inputs)]

    def launch(self) -> None:
        """Puts all launches on the stream."""
        for function, call, _, _, address in self._launches:
            self._device.launch(function, call, address)

    def results(self) -> list[bytes]:
        """Contents of the outputs. Raises ``KcacheError`` where something else was written too."""
        given = [*self._execution.inputs, *self._execution.constants]
        first = len(given)
        for place, (pointer, size) in enumerate(zip(self._pointers, self._sizes, strict=True)):
            if self._device.download(pointer + size, len(_GUARD)) != _GUARD:
                raise KcacheError(f"bytes after buffer {place} were overwritten")
            if place < first and self._device.download(pointer, size) != given[place]:
                raise KcacheError(f"buffer {place}, an input, was overwritten")
        outputs = zip(self._pointers[first:-1], self._sizes[first:-1], strict=True)
        return [self._device.download(pointer, size) for pointer, size in outputs]

    def _parameters(self, params: Sequence[Param]) -> tuple[Any, Any, int]:
        """Values, pointers to them, and the address of the pointers."""
        bases = {"buffer": 0, "workspace": self._pointers[-1], "i64": 0}
        numbers = [
            self._pointers[param.value] if param.kind == "buffer" else bases[param.kind] + param.value
            for param in params
        ]
        values = (ctypes.c_uint64 * max(1, len(numbers)))(*(number % (1 << 64) for number in numbers))
        start = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * max(1, len(numbers)))(*range(start, start + 8 * len(numbers), 8))
        return values, pointers, ctypes.addressof(pointers)
