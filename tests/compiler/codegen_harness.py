"""Run compiled kernels with ctypes alone, serially or through a ``parallel_for`` of our own."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.llvm.target import target_named
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import CompiledKernel, CompileOptions, TensorType
from kcache_grpc.runtime.cpu.library import TILES, may_use_tiles, unique_path

NUMPY: dict[str, Any] = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "ui64": np.uint64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
}

TASK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


class Host(ctypes.Structure):
    """``kcache_host`` of the design's section 5."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("abi", ctypes.c_uint32),
        ("workers", ctypes.c_int64),
        ("ctx", ctypes.c_void_p),
        ("parallel_for", PARALLEL_FOR),
    )


class ThreadedHost(Host):
    """A host that records the launches it was asked to spread."""

    calls: list[tuple[int, int]]


def threaded_host(
    workers: int = 3, order: Callable[[list[int]], list[int]] = lambda starts: starts, code: int = 0
) -> ThreadedHost:
    """A host whose slices start in ``order`` and run in ``workers`` threads, each worker id in one.

    With a ``code`` other than 0 it runs nothing and returns that.
    """
    host = ThreadedHost(ctypes.sizeof(Host), 1, workers, None)
    host.calls = []

    def parallel_for(_: int, n: int, grain: int, task: int, closure: int) -> int:
        host.calls.append((n, grain))
        if code:
            return code
        call = TASK(task)
        starts = order(list(range(0, n, grain)))
        codes = [0] * workers

        def work(worker: int) -> None:
            for start in starts[worker::workers]:
                codes[worker] = codes[worker] or call(closure, start, min(start + grain, n), worker)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return max(codes)

    host.parallel_for = PARALLEL_FOR(parallel_for)
    return host


def load(shared_object: bytes) -> ctypes.CDLL:
    """The library, loaded from memory.

    The dynamic loader knows libraries by the path they were opened with: each path is unique in the process,
    kernels that kcache itself loads included, so that no kernel is silently an earlier one.
    """
    descriptor = os.memfd_create("kernel")
    try:
        os.write(descriptor, shared_object)
        return ctypes.CDLL(unique_path(descriptor))
    finally:
        os.close(descriptor)


def aligned(shape: Sequence[int], dtype: Any, fill: int = 0xA5) -> np.ndarray:
    """An array at a 64-byte boundary, its bytes set to ``fill``."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.full(size + 64, fill, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def runs_here(target: str) -> bool:
    """Whether this machine has the architecture of ``target`` and all of its instructions."""
    described = target_named(target)
    native = described.triple.startswith(llvm.get_process_triple().split("-")[0])
    return native and not missing_features(described.features)


def missing_features(features: Iterable[str]) -> list[str]:
    """Those of ``features``, by LLVM's names, that this machine's processor does not have."""
    here = llvm.get_host_cpu_features()
    missing = {feature for feature in features if not here.get(feature, False)}
    if not missing and TILES in features and not may_use_tiles():
        missing.add(TILES)
    return sorted(missing)


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy that ends where memory ends: what reads on dies."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    whole = mmap.mmap(-1, size + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + size), mmap.PAGESIZE, 0) == 0
    copy = np.frombuffer(whole, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    copy[...] = array
    return copy


#: Bytes behind the workspace of a call, and their value before and after it.
_BEHIND, _UNWRITTEN = 1024, 0xA5


class Kernel:
    """A compiled kernel with NumPy arrays in and out.

    A call skips the test if the processor lacks an instruction set of the kernel.
    """

    def __init__(self, compiled: CompiledKernel) -> None:
        self.interface = compiled.interface
        self.compiled = compiled
        self.library = load(compiled.artifacts["so"])
        self.library.kcache_run.restype = ctypes.c_int32
        self.library.kcache_abi.restype = ctypes.c_uint32

    def __call__(self, *arrays: Any, host: Host | None = None) -> tuple[np.ndarray, ...]:
        missing = missing_features(self.interface.required_isa)
        if missing:
            pytest.skip(f"this processor lacks {', '.join(missing)}")
        kinds = (*self.interface.inputs, *self.interface.constants)
        assert len(arrays) == len(kinds)
        inputs = [
            np.ascontiguousarray(np.asarray(array).astype(NUMPY[kind.dtype], copy=False)).reshape(
                np.shape(array)
            )
            for array, kind in zip(arrays, kinds, strict=True)
        ]
        symbols: dict[str, int] = {s.name: inputs[s.arg].shape[s.axis] for s in self.interface.symbols}
        outputs = [aligned(_shape(kind, symbols), NUMPY[kind.dtype]) for kind in self.interface.outputs]
        workers = host.workers if host is not None else 1
        bytes_needed = evaluate_text(self.interface.workspace, {**symbols, "workers": workers})
        size = max(0, bytes_needed)  # less where the kernel rejects the sizes
        workspace = aligned((size + _BEHIND,), np.uint8)
        workspace[size:] = _UNWRITTEN
        pointers = [array.ctypes.data if array.size else None for array in (*inputs, *outputs)]
        buffers = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        dims = (ctypes.c_int64 * max(1, len(symbols)))(*symbols.values())
        code = self.library.kcache_run(
            buffers,
            dims if symbols else None,
            ctypes.c_void_p(workspace.ctypes.data if size else None),
            ctypes.byref(host) if host is not None else None,
        )
        if code != 0:
            raise RuntimeError(self.interface.error_codes.get(code, str(code)))
        assert (workspace[size:] == _UNWRITTEN).all(), "the kernel writes behind its workspace"
        return tuple(outputs)


def _shape(kind: TensorType, symbols: dict[str, int]) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else evaluate_text(dim, symbols) for dim in kind.dims)


def compile_text(
    text: str, target: str = "x86-64-v2", opt_level: int = 3, numerics: str = "default"
) -> CompiledKernel:
    """The kernel of a module, all of whose arguments are inputs."""
    options = CompileOptions(numerics=numerics, opt_level=opt_level)
    return lower_module(text, len(text), target, options, lambda _: None)


def kernel_of(text: str, target: str = "x86-64-v2", opt_level: int = 3, numerics: str = "default") -> Kernel:
    return Kernel(compile_text(text, target, opt_level, numerics))
