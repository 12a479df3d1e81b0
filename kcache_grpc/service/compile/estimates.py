"""Estimates the seconds of a compile from the compile times that the namespace has stored.

The estimate of a spec that has kernels is the median of the compile times of those that are most like the
requested one. Else it is a line over operation counts, fitted to the specs whose texts are nearest in size:
Theil and Sen's estimator, whose slope is the median of the slopes of all pairs, so that single compiles that
took long, on a cold or busy server, do not move it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from statistics import median
from typing import Any

from kcache_grpc.errors import KcacheError
from kcache_grpc.model.identity import Toolchains
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.single_flight import InFlightCall
from kcache_grpc.service.values import KernelRequirements
from kcache_grpc.storage.contract.nearby import CompileTime
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import Namespace

#: Seconds of a compile after which it is estimated: who waits for a shorter one is not told of an estimate.
ESTIMATE_DELAY = 0.2
#: Kernels of the requested spec that are read, and of each other spec.
_SAME_SPEC, _EACH_SPEC = 64, 8
#: Specs nearest in size whose kernels are looked for; specs with kernels that are enough; bytes of the texts
#: whose operations are counted.
_CANDIDATES, _ENOUGH, _TEXT_BYTES = 48, 16, 8 << 20
#: A single operation count says nothing of the slope: the time is in proportion, within this factor.
_MOST_SCALED = 8.0
#: What begins the line of an operation in the text of a spec.
_OPERATION = "\n%"


class Basis(Enum):
    """What an estimate is computed from."""

    HIT = "hit"
    SAME_SPEC = "same_spec"
    NEAREST_SPECS = "nearest_specs"
    NO_HISTORY = "no_history"


@dataclass(frozen=True)
class Estimate:
    """Expected seconds of a compile, from this many compile times; ``None`` without history."""

    seconds: float | None
    basis: Basis
    samples: int = 0


HIT = Estimate(0.0, Basis.HIT)
NO_HISTORY = Estimate(None, Basis.NO_HISTORY)


@dataclass(frozen=True)
class Subject:
    """What is to be compiled: a spec by its key, or by the text of one that is not stored."""

    key: int = 0
    text: str = ""


class Estimates:
    """Reads, within bounds: at most ``_CANDIDATES`` + 6 statements, by indexes. One event loop."""

    def __init__(self, store: Store, threads: StoreThreads, toolchains: Toolchains) -> None:
        self._store = store
        self._threads = threads
        self._toolchains = toolchains
        self._tasks: set[asyncio.Task[None]] = set()

    async def estimate(
        self, namespace: Namespace, subject: Subject, requirements: KernelRequirements
    ) -> Estimate:
        """The expected time of a compile that is not stored. Raises ``StoreUnavailable``."""
        return await self._threads(self._estimate, namespace, subject, requirements)

    def follow(
        self, call: InFlightCall[Any], namespace: Namespace, key: int, requirements: KernelRequirements
    ) -> Callable[[str], None]:
        """Takes the stages of a compile for ``call``. A long one is estimated concurrently."""
        begun = False

        def report(stage: str) -> None:
            nonlocal begun
            call.report(stage)
            if stage == "queued" and not begun:
                begun = True
                task = asyncio.get_running_loop().create_task(
                    self._report(call, namespace, key, requirements)
                )
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        return report

    async def close(self) -> None:
        """Ends the estimates that nobody waits for any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report(
        self, call: InFlightCall[Any], namespace: Namespace, key: int, requirements: KernelRequirements
    ) -> None:
        if await call.ended(ESTIMATE_DELAY):
            return
        with contextlib.suppress(KcacheError):
            estimate = await self.estimate(namespace, Subject(key), requirements)
            if estimate.seconds is not None:
                call.expect(estimate.seconds)

    def _estimate(self, namespace: Namespace, subject: Subject, requirements: KernelRequirements) -> Estimate:
        if subject.key:
            same = self._of_spec(namespace, subject.key, requirements)
            if same.seconds is not None:
                return same
        return self._of_nearest(namespace, subject, str(requirements.target))

    def _of_spec(self, namespace: Namespace, key: int, requirements: KernelRequirements) -> Estimate:
        """The median over the kernels of one spec that are most like the requested one."""
        target = str(requirements.target)
        times = self._store.list_compile_times(namespace, key, target, _SAME_SPEC)
        times = times or self._store.list_compile_times(namespace, key, None, _SAME_SPEC)
        alike = most_alike(
            times, target, str(requirements.options), self._toolchains.of(requirements.target).digest
        )
        if not alike:
            return NO_HISTORY
        return Estimate(median(time.compile_us for time in alike) / 1e6, Basis.SAME_SPEC, len(alike))

    def _of_nearest(self, namespace: Namespace, subject: Subject, target: str) -> Estimate:
        """By operation count, over the specs nearest in size that have kernels."""
        operations, size = self._measure(namespace, subject)
        samples, budget = 0, _TEXT_BYTES
        seconds: dict[int, float] = {}
        for spec in self._store.list_spec_sizes(namespace, size, _CANDIDATES):
            budget -= spec.text_size
            if len(seconds) == _ENOUGH or (seconds and budget < 0):
                break
            if spec.key == subject.key:
                continue
            times = self._store.list_compile_times(namespace, spec.key, target, _EACH_SPEC)
            times = times or self._store.list_compile_times(namespace, spec.key, None, _EACH_SPEC)
            if times:
                seconds[spec.key] = median(time.compile_us for time in times) / 1e6
                samples += len(times)
        counts = self._store.count_operations(namespace, list(seconds))
        points = [(counts[key], duration) for key, duration in seconds.items() if key in counts]
        if not points:
            return NO_HISTORY
        return Estimate(line_at(points, operations), Basis.NEAREST_SPECS, samples)

    def _measure(self, namespace: Namespace, subject: Subject) -> tuple[int, int]:
        """Operations of a spec, and bytes of its text."""
        text = subject.text
        if subject.key and not text:
            spec = self._store.get_spec(namespace, subject.key)
            text = "" if spec is None else spec.text
        return text.count(_OPERATION), len(text.encode())


def most_alike(
    times: Sequence[CompileTime], target: str, options: str, toolchain: bytes
) -> Sequence[CompileTime]:
    """Those that differ least from the requirements: in sizes, in toolchain, in options, or in target."""
    if not times:
        return ()

    def distance(time: CompileTime) -> int:
        return 4 * (time.target != target) + 2 * (time.options != options) + (time.toolchain != toolchain)

    least = min(map(distance, times))
    return [time for time in times if distance(time) == least]


def line_at(points: Sequence[tuple[int, float]], operations: int) -> float:
    """Seconds of this many operations, by Theil and Sen's line through points of operations and seconds.

    The slope is not negative, and the result is not below half of the shortest time. Where all points have
    one count of operations, the time is in proportion to it.
    """
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if a[0] != b[0]]
    if not slopes:
        scale = (operations + 1) / (points[0][0] + 1)
        return median(duration for _, duration in points) * min(max(scale, 1 / _MOST_SCALED), _MOST_SCALED)
    slope = max(median(slopes), 0.0)
    start = median(duration - slope * count for count, duration in points)
    return max(start + slope * operations, min(duration for _, duration in points) / 2)
