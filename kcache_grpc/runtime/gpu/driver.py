"""The CUDA driver as far as kernels need it: through ``cuda-bindings``, and what each call needs directly.

Everything that touches the driver is here. ``open_driver`` says why there is none, where there is none.
Needs only ``cuda-bindings``: packs of the replay kit contain this module (``benchmarks/gpu/kit``).
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from kcache_grpc.errors import ArgumentError, KcacheError, ResourceExhausted
from kcache_grpc.model.gpu.launch import Triple
from kcache_grpc.model.gpu.target import Version

#: Handles of the driver: contexts, modules, streams, addresses of device memory.
Handle = int
#: A function as cuda-bindings has it, whose number is its address.
Function = Any
#: A graph of work that can be run, as cuda-bindings has it.
Graph = Any
#: Function, grid, block and dynamic shared bytes, as ``launch_of`` makes it.
Launch = tuple[Any, ...]
#: A handle or an address as a pointer of C.
Pointer = ctypes.c_void_p

_READABLE = "its artifacts can be read, but not run"
_LOG_BYTES = 8192
_NUMBER = ctypes.c_uint64


class Driver:
    """The calls, each with its error checked. Safe from many threads: the driver is."""

    def __init__(self, cuda: Any) -> None:
        """``cuda`` is the module ``cuda.bindings.driver``; its driver is initialized."""
        self._cuda = cuda
        self._success = cuda.CUresult.CUDA_SUCCESS
        # The library that cuda-bindings has loaded, under the name that it has everywhere on Linux.
        library, number_to = ctypes.CDLL("libcuda.so.1"), ctypes.POINTER(_NUMBER)
        self._current = _function(library, "cuCtxGetCurrent", number_to)
        self._push = _function(library, "cuCtxPushCurrent_v2", Pointer)
        self._pop = _function(library, "cuCtxPopCurrent_v2", number_to)
        self._allocate = _function(library, "cuMemAllocAsync", number_to, ctypes.c_size_t, Pointer)
        self._free = _function(library, "cuMemFreeAsync", ctypes.c_uint64, Pointer)
        # Without types: its arguments are values of C already, which takes a third of the time.
        self._launch = library.cuLaunchKernel
        number = int(self._call("cuDriverGetVersion"))
        #: The newest CUDA version that the driver is for.
        self.version: Version = (number // 1000, number % 1000 // 10)

    # Devices and contexts.

    def device_count(self) -> int:
        return int(self._call("cuDeviceGetCount"))

    def device(self, ordinal: int) -> Handle:
        return int(self._call("cuDeviceGet", ordinal))

    def attribute(self, device: Handle, name: str) -> int:
        """``CU_DEVICE_ATTRIBUTE_`` and ``name``."""
        which = getattr(self._cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", which, device))

    def name(self, device: Handle) -> str:
        """Such as ``NVIDIA H200``."""
        return bytes(self._call("cuDeviceGetName", 256, device)).partition(b"\0")[0].decode(errors="replace")

    def primary_context(self, device: Handle) -> Handle:
        """Kept for the life of the process, as frameworks do."""
        return int(self._call("cuDevicePrimaryCtxRetain", device))

    def current_context(self) -> Handle:
        """0 where the thread has none."""
        context = _NUMBER()
        if error := self._current(context):
            self._fail("cuCtxGetCurrent", error)
        return context.value

    def push_context(self, context: Handle) -> None:
        if error := self._push(context):
            self._fail("cuCtxPushCurrent", error)

    def pop_context(self) -> None:
        if error := self._pop(_NUMBER()):
            self._fail("cuCtxPopCurrent", error)

    @contextmanager
    def within(self, context: Handle) -> Generator[None, None, None]:
        """``context`` is the thread's, until the end."""
        if self.current_context() == context:
            yield
            return
        self.push_context(context)
        try:
            yield
        finally:
            self.pop_context()

    # Modules.

    def load_module(self, image: bytes) -> Handle:
        """PTX with its zero byte, or a cubin, into the current context. Errors hold the compiler's log."""
        options = self._cuda.CUjit_option
        log = bytearray(_LOG_BYTES)
        names = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        result, *module = self._cuda.cuModuleLoadDataEx(image, len(names), names, [log, _LOG_BYTES])
        log_text = bytes(log).partition(b"\0")[0].decode(errors="replace").strip()
        self._require("cuModuleLoadDataEx", result, log_text)
        return int(module[0])

    def unload_module(self, module: Handle) -> None:
        self._call("cuModuleUnload", module)

    def function(self, module: Handle, entry: str) -> Function:
        return self._call("cuModuleGetFunction", module, entry.encode())

    def static_shared(self, function: Function) -> int:
        """Bytes of a block, without the dynamic ones."""
        which = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        return int(self._call("cuFuncGetAttribute", which, function))

    def most_threads(self, function: Function) -> int:
        """Of a block: fewer than the device has where the function takes many registers."""
        which = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        return int(self._call("cuFuncGetAttribute", which, function))

    def allow_dynamic_shared(self, function: Function, size: int) -> None:
        """Lets launches take this many bytes: needed above 48 KiB."""
        which = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", function, which, size)

    # Memory.

    def upload(self, content: bytes) -> Handle:
        """A copy in device memory, for good. Waits for the copy: not for calls."""
        address = int(self._call("cuMemAlloc", max(1, len(content))))
        self.fill(address, content)
        return address

    def fill(self, address: Handle, content: bytes) -> None:
        """Copies to device memory, and waits for it."""
        if content:
            self._call("cuMemcpyHtoD", address, content, len(content))

    def synchronize(self) -> None:
        """Waits for all that the current context was given."""
        self._call("cuCtxSynchronize")

    def download(self, address: Handle, size: int) -> bytes:
        """A copy in host memory, once all that the current context was given is done."""
        self.synchronize()
        content = bytearray(size)
        if size:
            self._call("cuMemcpyDtoH", content, address, size)
        return bytes(content)

    def allocate(self, size: int, stream: Handle) -> Handle:
        """In the order of ``stream``; from the device's own pool."""
        address = _NUMBER()
        if error := self._allocate(address, size or 1, stream):
            self._fail("cuMemAllocAsync", error)
        return address.value

    def release(self, address: Handle, stream: Handle, context: Handle) -> None:
        """``free`` of what was allocated in ``context``, from any thread."""
        if self.current_context() == context:
            self.free(address, stream)
            return
        self.push_context(context)
        try:
            self.free(address, stream)
        finally:
            self.pop_context()

    def free(self, address: Handle, stream: Handle) -> None:
        """Once ``stream`` is through with what it has so far."""
        if error := self._free(address, stream):
            self._fail("cuMemFreeAsync", error)

    def copy(self, to: Handle, source: Handle, size: int, stream: Handle) -> None:
        """Inside device memory, in the order of ``stream``."""
        self._call("cuMemcpyDtoDAsync", to, source, size, stream)

    # Streams.

    def is_capturing(self, stream: Handle) -> bool:
        """Whether what is put on ``stream`` becomes part of a graph instead of running."""
        status = self._call("cuStreamIsCapturing", stream)
        return int(status) != int(self._cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)

    def order(self, first: Handle, then: Handle) -> None:
        """What comes onto ``then`` waits for what is on ``first`` now; nobody else does."""
        flag = self._cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
        event = int(self._call("cuEventCreate", flag))
        self._call("cuEventRecord", event, first)
        self._call("cuStreamWaitEvent", then, event, 0)
        self._call("cuEventDestroy", event)

    def stream(self) -> Handle:
        """A stream of the current context that waits for no other."""
        return int(self._call("cuStreamCreate", self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def close_stream(self, stream: Handle) -> None:
        self._call("cuStreamDestroy", stream)

    def recorded(self, stream: Handle, work: Callable[[], None]) -> Graph:
        """What ``work`` puts on ``stream``, as a graph that runs it without the host."""
        mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", stream, mode)
        try:
            work()
        finally:
            graph = self._call("cuStreamEndCapture", stream)
        try:
            return self._call("cuGraphInstantiate", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)

    def discard(self, graph: Graph) -> None:
        self._call("cuGraphExecDestroy", graph)

    def run_graph(self, graph: Graph, stream: Handle) -> None:
        self._call("cuGraphLaunch", graph, stream)

    def seconds(self, stream: Handle, work: Callable[[], object]) -> float:
        """How long what ``work`` puts on ``stream`` runs, by events of the GPU. Waits for it."""
        events = [self._call("cuEventCreate", self._cuda.CUevent_flags.CU_EVENT_DEFAULT) for _ in range(2)]
        try:
            self._call("cuEventRecord", events[0], stream)
            work()
            self._call("cuEventRecord", events[1], stream)
            self._call("cuEventSynchronize", events[1])
            return float(self._call("cuEventElapsedTime", *events)) / 1e3
        finally:
            for event in events:
                self._call("cuEventDestroy", event)

    def launch(self, launch: Launch, stream: Pointer, params: Pointer) -> None:
        """``params`` points to an array of pointers to the values; it is read before this returns."""
        if error := self._launch(*launch, stream, params, None):
            self._fail("cuLaunchKernel", error)

    def _call(self, name: str, *arguments: Any) -> Any:
        """The one value that a function gives besides its result; None where there is none."""
        result, *values = getattr(self._cuda, name)(*arguments)
        if result != self._success:
            self._require(name, result)
        return values[0] if values else None

    def _fail(self, name: str, error: int) -> None:
        self._require(name, self._cuda.CUresult(error))

    def _require(self, name: str, result: Any, message: str = "") -> None:
        if result == self._success:
            return
        _, text = self._cuda.cuGetErrorName(result)
        error = bytes(text).decode() if text else f"error {int(result)}"
        detail = f"{name}: {error}" + (f": {message[:2000]}" if message else "")
        if result == self._cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise ResourceExhausted(f"the GPU has no memory left ({detail})", limit="device memory")
        raise KcacheError(f"the CUDA driver rejected a call: {detail}", code=error)


def launch_of(function: Function, grid: Triple, block: Triple, shared_bytes: int) -> Launch:
    """What ``Driver.launch`` takes."""
    return (Pointer(int(function)), *map(ctypes.c_uint, (*grid, *block, shared_bytes)))


def _function(library: ctypes.CDLL, name: str, *types: Any) -> Any:
    function = library[name]
    function.argtypes = types
    return function


@lru_cache(maxsize=1)
def open_driver() -> Driver:
    """The driver of this machine. Raises ``ArgumentError`` where there is none, or no GPU."""
    try:
        cuda: Any = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise ArgumentError(
            "kernels for a GPU run through cuda-bindings, which is not installed: "
            f"pip install 'kcache-grpc[cuda]'; {_READABLE}"
        ) from error
    try:
        (result,) = cuda.cuInit(0)
    except Exception as error:  # code of another project, which has several types for it
        raise ArgumentError(f"no NVIDIA driver was found; the kernel is for a GPU, {_READABLE}") from error
    if result == cuda.CUresult.CUDA_ERROR_NO_DEVICE:
        raise ArgumentError(f"the NVIDIA driver finds no GPU; {_READABLE}")
    if result != cuda.CUresult.CUDA_SUCCESS:
        raise ArgumentError(f"the NVIDIA driver does not start ({result!s}); {_READABLE}")
    try:
        return Driver(cuda)
    except OSError as error:
        raise ArgumentError(f"the NVIDIA driver has no libcuda.so.1 ({error}); {_READABLE}") from error
