"""Single flight in one process: equal work runs once, and everybody sees its stages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Flight(Generic[T]):
    """Work that goes on whether or not anybody waits for it."""

    def __init__(self, work: Callable[[Flight[T]], Awaitable[T]]) -> None:
        self._stages: list[str] = []
        self._pulse = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    def report(self, stage: str) -> None:
        """Tells all who follow that a stage began."""
        self._stages.append(stage)
        self._beat()

    async def stages(self) -> AsyncIterator[str]:
        """All stages from the first, as they come, until the work ends."""
        seen = 0
        while True:
            pulse = self._pulse
            while seen < len(self._stages):
                seen += 1
                yield self._stages[seen - 1]
            if self._task.done():
                return
            await pulse.wait()

    async def paced(self, pace: float) -> AsyncIterator[tuple[str, ...]]:
        """As ``stages``, those that come within ``pace`` seconds together: for the many who only joined."""
        seen = 0
        while True:
            pulse = self._pulse
            if seen < len(self._stages):
                new = tuple(self._stages[seen:])
                seen += len(new)
                yield new
                if not self._task.done():
                    await asyncio.wait({self._task}, timeout=pace)
            elif self._task.done():
                return
            else:
                await pulse.wait()

    async def result(self) -> T:
        """What came of it. Who waits may be cancelled, the work is not."""
        return await asyncio.shield(self._task)

    @property
    def task(self) -> asyncio.Task[T]:
        """The work itself."""
        return self._task

    async def _run(self, work: Callable[[Flight[T]], Awaitable[T]]) -> T:
        return await work(self)

    def _beat(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    def land(self) -> None:
        """Wakes all who follow; to be called once the task is done."""
        self._beat()
        if not self._task.cancelled():
            self._task.exception()  # somebody's, or nobody's: never a warning of asyncio


class Flights(Generic[K, T]):
    """The flights in the air, by what they make."""

    def __init__(self) -> None:
        self._flights: dict[K, Flight[T]] = {}

    def join(self, key: K, work: Callable[[Flight[T]], Awaitable[T]]) -> tuple[Flight[T], bool]:
        """The flight for ``key``, and whether this call started it with ``work``."""
        flight = self._flights.get(key)
        if flight is not None:
            return flight, False
        flight = Flight(work)
        self._flights[key] = flight

        def landed(_: asyncio.Task[T]) -> None:
            self._flights.pop(key, None)
            flight.land()

        flight.task.add_done_callback(landed)
        return flight, True

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: K) -> bool:
        return key in self._flights

    async def drain(self, grace: float) -> None:
        """Waits up to ``grace`` seconds for all to land, then cancels the rest and waits for that."""
        tasks = [flight.task for flight in self._flights.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=max(grace, 0))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
