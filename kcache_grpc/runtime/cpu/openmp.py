"""The threads of PyTorch's OpenMP runtime, as threads of kernels.

A thread of OpenMP spins for milliseconds after an operation of PyTorch, and a thread of the kernels' own pool
(``thread_pool.c``) for up to 100 us after a launch. With as many of both as CPUs each takes time from the
other where operations of PyTorch and calls of kernels alternate (``python -m benchmarks.shared_threads``).
Kernels that are called from PyTorch's graphs therefore use the threads that are there.

What holds for PyTorch's operations holds for such launches. A parallel region waits for all of its threads:
with other busy processes that takes longer than a launch on the own pool, which ends without helpers that
come late. A process that was forked after a region hangs in the next one unless ``torch.set_num_threads(1)``
was called, which PyTorch's data loaders do.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from kcache_grpc.runtime.cpu import fast_call
from kcache_grpc.runtime.cpu._abi import CData, ffi

_LEAST_SLICES = 2


class OpenMp(NamedTuple):
    """Addresses of functions."""

    #: ``GOMP_parallel``, which the runtimes of GCC, LLVM and Intel have.
    parallel: int
    #: ``omp_get_thread_num``.
    thread_number: int
    #: The ``parallel_for`` of the extension module over both.
    parallel_for: int


class OpenMpThreads:
    """``workers`` threads of an OpenMP runtime at most, the calling thread included.

    A launch is a parallel region of as many threads as the runtime has for the calling thread, which
    ``torch.set_num_threads`` decides. Inside of another region it runs on the calling thread.
    """

    def __init__(self, openmp: OpenMp, workers: int) -> None:
        self._openmp = openmp
        self._workers = workers
        self._hosts: dict[int, tuple[CData, CData]] = {}

    @property
    def workers(self) -> int:
        """The number of worker ids at most, including that of the calling thread."""
        return self._workers

    @property
    def least_slices(self) -> int:
        """Kernels whose launches all have fewer slices of their grain need no threads."""
        return _LEAST_SLICES

    def host(self, workers: int) -> CData:
        """A ``kcache_host *`` for this many workers, valid as long as this object."""
        workers = max(1, min(workers, self._workers))
        known = self._hosts.get(workers)
        if known is None:
            known = self._hosts.setdefault(workers, self._new_host(workers))
        return known[0]

    def failure(self) -> BaseException | None:
        """Nothing of Python runs in a launch."""
        return None

    def _new_host(self, workers: int) -> tuple[CData, CData]:
        context = ffi.new("uint64_t[]", [workers, self._openmp.parallel, self._openmp.thread_number])
        host = ffi.new("kcache_host *")
        host.size = ffi.sizeof("kcache_host")
        host.abi = 1
        host.workers = workers
        host.ctx = context
        host.parallel_for = ffi.cast("kcache_parallel_for", self._openmp.parallel_for)
        return host, context


@lru_cache(maxsize=1)
def openmp_of_torch() -> OpenMp | None:
    """The runtime that PyTorch's operations use.

    None if they use another kind of threads, or without the extension module.
    """
    module, torch = fast_call.extension(), _torch()
    if module is None or "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return None
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        # Loaded already. A symbol is looked up in the library, then in those that it needs.
        library = ctypes.CDLL(str(path))
        functions = [library.GOMP_parallel, library.omp_get_thread_num]
    except (OSError, AttributeError):
        return None
    parallel, number = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return OpenMp(parallel, number, module.openmp_parallel_for)


def _torch() -> Any:
    return sys.modules["torch"]
