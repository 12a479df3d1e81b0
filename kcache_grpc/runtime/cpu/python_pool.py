"""A pool of Python threads, for kernels without a native pool (``native_pool.py``).

Passing a launch to it takes 10 to 20 us, as long as the smallest slices of kernels, so it splits launches of
four slices or more.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.threads import HOST_FAILED, thread_count

#: Launches with fewer slices of their grain run on the calling thread.
_LEAST_SLICES = 4
#: Slices a worker: more even out uneven ones, fewer cost less.
_SLICES_PER_WORKER = 4
_PARALLEL_FOR = "int32_t (*)(void *, int64_t, int64_t, kcache_task, void *)"


@lru_cache(maxsize=1)
def shared_pool() -> PythonThreads:
    """The pool of this process: one, however many clients there are."""
    return PythonThreads(thread_count(os.environ))


class _Launch:
    """One call of ``parallel_for``: slices that are taken by whoever comes, until none is left."""

    def __init__(self, task: CData, closure: CData, n: int, step: int) -> None:
        self._task, self._closure = task, closure
        self._n, self._step, self._next = n, step, 0
        self._lock = threading.Lock()
        self._running = 0
        self._closed = False
        self._idle = threading.Lock()
        self._idle.acquire()
        self.code = 0

    def help(self, worker: int) -> None:
        """A pool thread's part. Comes too late once the launch is closed."""
        with self._lock:
            if self._closed:
                return
            self._running += 1
        try:
            self.work(worker)
        finally:
            with self._lock:
                self._running -= 1
                if self._closed and not self._running:
                    self._idle.release()

    def work(self, worker: int) -> None:
        """Run slices until none is left or one failed."""
        task, closure = self._task, self._closure
        while (begin := self._take()) < self._n:
            code = task(closure, begin, min(begin + self._step, self._n), worker)
            if code:
                with self._lock:
                    self.code = self.code or code
                    self._next = self._n

    def _take(self) -> int:
        with self._lock:
            begin = self._next
            self._next = begin + self._step
        return begin

    def close(self) -> None:
        """Hand out no more, and wait for the slices that run: they use the caller's stack."""
        with self._lock:
            self._closed = True
            self._next = self._n
            if not self._running:
                return
        self._idle.acquire()


class PythonThreads:
    """``threads`` workers: the calling thread and the pool's own, which start with the first launch.

    Safe from many threads, and after a fork: the child starts its own threads. Launches of several
    callers share the pool's threads; each caller works on its own launch meanwhile.
    """

    def __init__(self, threads: int) -> None:
        self._workers = threads
        self._hosts: dict[int, CData] = {}
        self._failures: dict[int, BaseException] = {}
        self._callback = ffi.callback(_PARALLEL_FOR, self._parallel_for, HOST_FAILED)
        self._reset()
        if hasattr(os, "register_at_fork"):
            _reset_after_fork(weakref.ref(self))

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
        if known is not None:
            return known
        host = ffi.new("kcache_host *")
        host.size = ffi.sizeof("kcache_host")
        host.abi = 1
        host.workers = workers
        host.ctx = ffi.cast("void *", workers)
        host.parallel_for = self._callback
        return self._hosts.setdefault(workers, host)

    def failure(self) -> BaseException | None:
        """What stopped this thread's last launch with ``HOST_FAILED``; given once."""
        return self._failures.pop(threading.get_ident(), None)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._started = False
        self._waiting: SimpleQueue[tuple[_Launch, int]] = SimpleQueue()

    def _parallel_for(self, ctx: CData, n: int, grain: int, task: CData, closure: CData) -> int:
        """Called by kernels, on the thread that called the kernel. Never returns while a slice runs."""
        workers = int(ffi.cast("intptr_t", ctx)) if n >= grain * _LEAST_SLICES else 1
        step = max(grain, 1, -(-n // (workers * _SLICES_PER_WORKER))) if workers > 1 else n
        launch = _Launch(task, closure, n, step)
        failure: BaseException | None = None
        try:
            if workers > 1:
                self._share(launch, min(workers, -(-n // step)))
            launch.work(0)
        except BaseException as error:  # noqa: BLE001 - also an interrupt; raised again once the kernel is done
            failure = error
        failure = _close_for_certain(launch) or failure
        if failure is not None:
            self._failures[threading.get_ident()] = failure
            return HOST_FAILED
        return launch.code

    def _share(self, launch: _Launch, workers: int) -> None:
        self._start()
        for worker in range(1, workers):
            self._waiting.put((launch, worker))

    def _start(self) -> None:
        if self._started:
            return
        with self._lock:
            if self._started:
                return
            self._started = True
            for number in range(1, self._workers):
                arguments = (self._waiting,)
                threading.Thread(target=_serve, args=arguments, name=f"kcache-{number}", daemon=True).start()


def _close_for_certain(launch: _Launch) -> BaseException | None:
    """Close through interrupts: gives the last one."""
    failure: BaseException | None = None
    while True:
        try:
            launch.close()
        except BaseException as error:  # noqa: BLE001, PERF203 - an interrupt must not leave slices running
            failure = error
        else:
            return failure


def _serve(waiting: SimpleQueue[tuple[_Launch, int]]) -> None:
    _default_floating_point()
    while True:
        launch, worker = waiting.get()
        launch.help(worker)
        del launch


def _default_floating_point() -> None:
    """Threads inherit flush-to-zero from their creator; kernels need IEEE subnormals."""
    with suppress(OSError, AttributeError):
        ffi.dlopen(None).fesetenv(ffi.cast("void *", -1))


def _reset_after_fork(pool: weakref.ref[PythonThreads]) -> None:
    def reset() -> Any:
        alive = pool()
        if alive is not None:
            alive._reset()  # pyright: ignore[reportPrivateUsage]

    os.register_at_fork(after_in_child=reset)
