"""What the CPUs of this machine can do at most, measured: multiply-adds, and reading memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier

import numpy as np

from kcache_grpc.runtime.cpu.timed_threads import timing_extension

#: Bytes that the threads read together: more than caches hold.
_BYTES = 512 << 20
_ROUNDS = 400_000
_REPEATS = 5


@dataclass(frozen=True)
class Peaks:
    """Of ``threads`` threads together: floating-point operations in f32 and bytes read, per second."""

    threads: int
    flops: float
    bandwidth: float


def measure_peaks(threads: int) -> Peaks:
    """Run loops of multiply-adds and of loads on this many threads; the best of some repetitions counts.

    Takes about a second. Raises ``KcacheError`` without the extension module.
    """
    extension = timing_extension()
    size = _BYTES // threads
    buffers = [np.ones(size, np.uint8) for _ in range(threads)]

    def multiply_adds(_: int) -> float:
        return extension.multiply_adds(_ROUNDS)

    def read(thread: int) -> float:
        extension.read_buffer(buffers[thread])
        return float(size)

    with ThreadPoolExecutor(threads) as pool:
        flops, bandwidth = (
            max(_together(pool, threads, work) for _ in range(_REPEATS)) for work in (multiply_adds, read)
        )
    return Peaks(threads, flops, bandwidth)


def _together(pool: ThreadPoolExecutor, threads: int, work: Callable[[int], float]) -> float:
    """The rates of all threads, which begin together."""
    return sum(pool.map(partial(_rate, Barrier(threads), work), range(threads)))


def _rate(barrier: Barrier, work: Callable[[int], float], thread: int) -> float:
    barrier.wait()
    began = time.perf_counter()
    done = work(thread)
    return done / (time.perf_counter() - began)
