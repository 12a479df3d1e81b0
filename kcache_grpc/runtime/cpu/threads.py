"""``HostThreads``, the interface of the threads that run a launch, and the number of threads of a process.

``native_pool.py`` implements it by the pool that is linked into kernels, ``python_pool.py`` by threads of
Python, for kernels without a pool. ``LimitedThreads`` and ``TimedThreads`` wrap another implementation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.runtime.cpu._abi import CData, ffi

#: What ``parallel_for`` returns when Python failed, not the kernel.
HOST_FAILED = -0x6B6361
_MAX_THREADS = 1024
_POINTER = "void *"


class HostThreads(Protocol):
    """The threads that a kernel runs its launches on."""

    @property
    def workers(self) -> int:
        """The number of worker ids at most, including that of the calling thread."""
        ...

    @property
    def least_slices(self) -> int:
        """Kernels whose launches all have fewer slices of their grain need no threads."""
        ...

    def host(self, workers: int) -> CData:
        """A ``kcache_host *`` for this many workers, valid as long as this object."""
        ...

    def failure(self) -> BaseException | None:
        """What stopped this thread's last launch with ``HOST_FAILED``; given once."""
        ...


class LimitedThreads:
    """The threads of ``threads``, of which ``most`` workers at most are used."""

    def __init__(self, threads: HostThreads, most: int) -> None:
        self._threads = threads
        self._most = most

    @property
    def workers(self) -> int:
        """The number of worker ids at most, including that of the calling thread."""
        return min(self._most, self._threads.workers)

    @property
    def least_slices(self) -> int:
        """Kernels whose launches all have fewer slices of their grain need no threads."""
        return self._threads.least_slices

    def host(self, workers: int) -> CData:
        """A ``kcache_host *`` for this many workers, valid as long as ``threads``."""
        return self._threads.host(min(workers, self.workers))

    def failure(self) -> BaseException | None:
        """What stopped this thread's last launch with ``HOST_FAILED``; given once."""
        return self._threads.failure()


def thread_count(environment: Mapping[str, str]) -> int:
    """``KCACHE_NUM_THREADS``, else the CPUs that this process may use. Raises ``ArgumentError``."""
    text = environment.get("KCACHE_NUM_THREADS", "")
    if not text:
        return available_cpus()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MAX_THREADS:
        raise ArgumentError(f"KCACHE_NUM_THREADS is {text!r}; use a number from 1 to {_MAX_THREADS}")
    return int(text)


def available_cpus() -> int:
    """CPUs of the affinity mask, less where a container's quota allows less."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cpus = min(cpus, max(1, -(-int(quota) // int(period))))
    return cpus


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
        """The number of worker ids at most, including that of the calling thread."""
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
