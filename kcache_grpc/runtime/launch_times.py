"""How long each launch of a call takes, with ``launches:reported`` in its schedule; and what the CPUs can do
at most, measured: multiply-adds, and reading memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.manifest import LaunchSpec
from kcache_grpc.model.sizes.expression import evaluate
from kcache_grpc.runtime.cpu.threads import HostThreads, TimedThreads, timing_extension
from kcache_grpc.runtime.kernel import Kernel

#: Calls before those that count.
_WARM = 2
#: Bytes that the threads read together: more than caches hold.
_BYTES = 512 << 20
_ROUNDS = 400_000
_REPEATS = 5


@dataclass(frozen=True)
class LaunchTime:
    """A launch within one call: its seconds, how often it ran, and what one run of it does."""

    spec: LaunchSpec
    seconds: float
    runs: float
    flops: int
    bytes: int


@dataclass(frozen=True)
class CallTimes:
    """Means over the measured calls: the whole call in seconds, and its launches in the manifest's order.

    ``seconds`` is at least the sum of the launches: the rest is code between them, and measuring. ``low`` and
    ``high`` are the fastest and the slowest call of all.
    """

    seconds: float
    low: float
    high: float
    calls: int
    workers: int
    launches: tuple[LaunchTime, ...]

    @property
    def between(self) -> float:
        """Seconds outside of launches."""
        return self.seconds - sum(launch.seconds for launch in self.launches)


def measure_launches(kernel: Kernel, arrays: Sequence[Any], calls: int) -> CallTimes:
    """Call ``kernel`` this many times; the half of the calls nearest to the median counts.

    ``arrays`` are NumPy arrays or tensors on the CPU. Raises ``ArgumentError`` for a kernel that does not
    report its launches.
    """
    manifest = kernel.manifest
    if isinstance(manifest.target, GpuTarget):
        raise ArgumentError("launches are measured on CPUs; this is a kernel for a GPU")
    if not all(launch.flops for launch in manifest.launches):
        raise ArgumentError("the kernel does not report its launches: compile it with launches:reported")
    buffers = kernel.read(arrays)
    timed: list[TimedThreads] = []

    def threads_for(threads: HostThreads) -> TimedThreads:
        timed.append(TimedThreads(threads, len(manifest.launches)))
        return timed[0]

    plan = kernel.plan(buffers, threads_for)
    pointers = [buffer.pointer for buffer in buffers]
    (times,) = timed
    seconds, sums, runs = np.zeros(calls), np.zeros((calls, len(manifest.launches))), times.calls
    for number in (*[0] * _WARM, *range(calls)):
        _, tail = plan.outputs.take()
        times.nanoseconds[:], times.calls[:] = 0, 0
        began = time.perf_counter_ns()
        plan.call([*pointers, *tail])
        seconds[number] = (time.perf_counter_ns() - began) * 1e-9
        sums[number] = times.nanoseconds * 1e-9
    kept = np.argsort(np.abs(seconds - np.median(seconds)))[: (calls + 1) // 2]
    sizes = {symbol.name: buffers[symbol.arg].shape[symbol.axis] for symbol in manifest.symbols}
    launches = tuple(
        LaunchTime(
            launch, float(spent), int(count), evaluate(launch.flops, sizes), evaluate(launch.bytes, sizes)
        )
        for launch, spent, count in zip(manifest.launches, sums[kept].mean(0), runs, strict=True)
    )
    whole = float(seconds[kept].mean())
    return CallTimes(whole, float(seconds.min()), float(seconds.max()), calls, times.workers, launches)


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
