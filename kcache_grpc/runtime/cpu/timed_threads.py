"""Threads that measure how long launches take, for kernels whose schedule has ``launches:reported``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kcache_grpc.errors import KcacheError
from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.threads import HostThreads

_POINTER = "void *"


def timing_extension() -> Any:
    """The extension module, whose ``TIMED_PARALLEL_FOR``, ``multiply_adds`` and ``read_buffer`` measure.

    Raises ``KcacheError`` if the installation has none, or one of an older version.
    """
    try:
        from kcache_grpc.runtime import _fastcall
    except ImportError:
        _fastcall = None
    if not hasattr(_fastcall, "TIMED_PARALLEL_FOR"):
        raise KcacheError(
            "measuring launches needs the extension module of this version, which this installation lacks: "
            "install kcache-grpc again where there is a C compiler, or a wheel for this platform"
        )
    return _fastcall


class TimedThreads:
    """``threads`` with the time of each launch of one kernel, of which only one call may run at a time.

    ``nanoseconds`` and ``calls`` are sums by the launch's position in the manifest, of type i64.
    """

    def __init__(self, threads: HostThreads, launches: int) -> None:
        self._threads = threads
        self._parallel_for = timing_extension().TIMED_PARALLEL_FOR
        self._kept: list[CData] = []
        self.nanoseconds: NDArray[np.int64] = np.zeros(launches, np.int64)
        self.calls: NDArray[np.int64] = np.zeros(launches, np.int64)

    @property
    def workers(self) -> int:
        """Most worker ids, the calling thread's included."""
        return self._threads.workers

    @property
    def least_slices(self) -> int:
        """Kernels whose launches all have fewer slices of their grain need no threads."""
        return self._threads.least_slices

    def host(self, workers: int) -> CData:
        """A ``kcache_host *`` for this many workers, valid as long as this object."""
        inner = self._threads.host(workers) if workers > 1 else ffi.NULL
        sums = [ffi.from_buffer(array) for array in (self.nanoseconds, self.calls)]
        launches = ffi.cast(_POINTER, len(self.nanoseconds))
        context = ffi.new("void *[]", [inner, launches, *(ffi.cast(_POINTER, each) for each in sums)])
        host = ffi.new("kcache_host *")
        host.size, host.abi, host.workers = ffi.sizeof("kcache_host"), 1, workers
        host.ctx = context
        host.parallel_for = ffi.cast("kcache_parallel_for", self._parallel_for)
        self._kept += [*sums, context, host]
        return host

    def failure(self) -> BaseException | None:
        """What stopped this thread's last launch; given once."""
        return self._threads.failure()
