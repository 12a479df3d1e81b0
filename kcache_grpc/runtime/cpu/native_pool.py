"""The native thread pool, which is linked into kernels (docs/reference/c-abi.md).

Its source is ``compiler/kcache_compiler/lower/cpu/runtime/thread_pool.c``; ``python_pool.py`` is the fallback
for kernels without it.
A process has one pool: that of the first loaded kernel that contains one. A launch costs well below a
microsecond if its threads are awake, so it splits launches of two slices of their grain or more. A second
caller, or a kernel called by a task, runs on its own thread.
After a fork the child's first launch starts its own threads.
"""

from __future__ import annotations

import atexit
import os
import threading
from functools import lru_cache

from kcache_grpc.runtime.cpu._abi import CData, Library, ffi
from kcache_grpc.runtime.cpu.python_pool import shared_pool
from kcache_grpc.runtime.cpu.threads import HostThreads, thread_count

_LEAST_SLICES = 2


class NativeThreads:
    """The pool inside ``library``, which must contain one; at most ``threads`` workers.

    Threads start with the first host that wants them, and end at the interpreter's exit, before
    anything unloads their code.
    """

    def __init__(self, library: Library, threads: int) -> None:
        self._library = library
        self._workers = threads
        self._hosts: dict[int, CData] = {}
        atexit.register(self.stop)

    @property
    def workers(self) -> int:
        """The number of worker ids at most, including that of the calling thread."""
        return self._workers

    @property
    def least_slices(self) -> int:
        """Kernels whose launches all have fewer slices of their grain need no threads."""
        return _LEAST_SLICES

    def host(self, workers: int) -> CData:
        """A ``kcache_host *`` for this many workers."""
        workers = max(1, min(workers, self._workers))
        known = self._hosts.get(workers)
        if known is None:
            known = self._hosts.setdefault(workers, self._library.kcache_pool_start(workers))
        return known

    def failure(self) -> BaseException | None:
        """None: no Python code runs in a launch, so none can fail."""
        return None

    def stop(self) -> None:
        """End the threads; launches run on their callers from then on, until a new host is made."""
        self._hosts = {}
        self._library.kcache_pool_stop()


class ProcessThreads:
    """Which threads the kernels of a process get. Safe from many threads at once."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._native: NativeThreads | None = None

    def of(self, library: Library) -> HostThreads:
        """The pool of an earlier kernel, else that of ``library``, else the pool of Python threads."""
        native = self._native
        if native is not None:
            return native
        if not _brings_pool(library):
            return shared_pool()
        with self._lock:
            if self._native is None:
                self._native = NativeThreads(library, self._threads)
            return self._native


def _brings_pool(library: Library) -> bool:
    try:
        _ = library.kcache_pool_start, library.kcache_pool_stop
    except ffi.error:
        return False
    return True


@lru_cache(maxsize=1)
def process_threads() -> ProcessThreads:
    """The threads of this process."""
    return ProcessThreads(thread_count(os.environ))


def is_of_process(threads: HostThreads) -> bool:
    """Whether these are threads that the process shares, not those of one client."""
    return isinstance(threads, NativeThreads) or threads is shared_pool()
