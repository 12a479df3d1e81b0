"""The shortest caller of a compiled kernel: dlopen, one call. What any language does."""

from __future__ import annotations

import _ctypes
import ctypes
import math
import os
from collections.abc import Callable
from typing import Any

from kcache_compiler.types import DTYPE_BYTES, CompiledKernel, KernelInterface
from kcache_grpc.model.sizes.expression import evaluate
from tests.ops.harness.split import host_of

_ALIGNMENT = 64


#: ``kcache_run`` on addresses of buffers, sizes of symbols or ``None``, workspace address, host or none.
Entry = Callable[[Any, Any, Any, Any], int]


def run(
    kernel: CompiledKernel,
    inputs: list[bytes],
    constants: list[bytes],
    dims: tuple[int, ...] = (),
    workers: int = 1,
) -> list[bytes]:
    """Calls ``kcache_run`` on copies of the inputs; raw bytes of the outputs. ``dims``: symbol sizes.
    ``workers``: threads that launches are split among which the kernel finds worth it.
    """
    library = _load(kernel.artifacts["so"])
    library.kcache_run.restype = ctypes.c_int32
    try:
        return call(library.kcache_run, kernel.interface, inputs + constants, dims, workers)
    finally:
        _ctypes.dlclose(library._handle)  # the next one may come on the same descriptor, hence path


def call(
    entry: Entry,
    interface: KernelInterface,
    arguments: list[bytes],
    dims: tuple[int, ...] = (),
    workers: int = 1,
) -> list[bytes]:
    """One call on copies of the inputs and constants; raw bytes of the outputs."""
    symbols = dict(zip((symbol.name for symbol in interface.symbols), dims, strict=True)) | {
        "workers": workers
    }
    sizes = [
        DTYPE_BYTES[output.dtype] * math.prod(evaluate(str(dim), symbols) for dim in output.dims)
        for output in interface.outputs
    ]
    inputs = [_Buffer(len(data), data) for data in arguments]
    outputs = [_Buffer(size) for size in sizes]
    workspace = _Buffer(evaluate(interface.workspace, symbols))
    pointers = (ctypes.c_void_p * (len(inputs) + len(outputs)))(
        *[buffer.address for buffer in inputs + outputs]
    )
    sizes_array = (ctypes.c_int64 * len(dims))(*dims) if dims else None
    host = None if workers == 1 else ctypes.byref(host_of(workers))
    code = entry(pointers, sizes_array, ctypes.c_void_p(workspace.address), host)
    if code:
        raise RuntimeError(
            f"kcache_run returned {code}: {interface.error_codes.get(code, 'an unlisted code')}"
        )
    for buffer in [*inputs, *outputs, workspace]:
        buffer.check_canaries()
    return [buffer.content() for buffer in outputs]


def _load(data: bytes) -> ctypes.CDLL:
    descriptor = os.memfd_create("kernel")
    try:
        os.write(descriptor, data)
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}", mode=os.RTLD_NOW)
    finally:
        os.close(descriptor)


class _Buffer:
    """64-byte aligned memory between canaries that show a write out of bounds."""

    CANARY = b"\xa5" * 64

    def __init__(self, size: int, data: bytes = b"") -> None:
        self._size = size
        self._memory = ctypes.create_string_buffer(size + 3 * _ALIGNMENT)
        start = ctypes.addressof(self._memory)
        self.address = (start + 2 * _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        ctypes.memset(start, self.CANARY[0], size + 3 * _ALIGNMENT)
        ctypes.memmove(self.address, data, len(data))

    def content(self) -> bytes:
        return ctypes.string_at(self.address, self._size)

    def check_canaries(self) -> None:
        before = self.address - ctypes.addressof(self._memory)
        after = len(self._memory) - before - self._size
        around = self._memory.raw
        if set(around[:before] + around[len(around) - after :]) - {self.CANARY[0]}:
            raise RuntimeError("the kernel wrote outside its buffers")
