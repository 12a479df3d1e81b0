"""A host that splits every launch that it is given among threads of their own."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

_TASK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_FOR = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


class Host(ctypes.Structure):
    """``kcache_host``."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("abi", ctypes.c_uint32),
        ("workers", ctypes.c_int64),
        ("ctx", ctypes.c_void_p),
        ("parallel_for", _FOR),
    ]


def host_of(workers: int) -> Host:
    """A host that gives each of ``workers`` threads its part of a launch."""

    def parallel_for(_: Any, count: int, grain: int, task: int, closure: int) -> int:
        part = -(-count // workers)
        codes: list[int] = []
        run = _TASK(task)

        def run_part(worker: int) -> None:
            codes.append(run(closure, worker * part, min((worker + 1) * part, count), worker))

        threads = [threading.Thread(target=run_part, args=(n,)) for n in range(workers) if n * part < count]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return next((code for code in codes if code), 0)

    return Host(ctypes.sizeof(Host), 1, workers, None, _FOR(parallel_for))
