"""Single flight in one process: equal work runs once, and everybody sees its stages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Seconds after its beginning for which others join a look into the store.
LOOK_WINDOW = 1.0


class Flight(Generic[T]):
    """Work for all who wait for it. It goes on when nobody does, unless it was begun to be ``abandoned``."""

    def __init__(self, work: Callable[[Flight[T]], Awaitable[T]], abandon: bool = False) -> None:
        self._abandon = abandon
        self._waiters = 0
        #: Whether it was cancelled because nobody waited for it any more.
        self.abandoned = False
        #: Estimate of the seconds that its compile takes; ``None``: there is none yet.
        self.expected: float | None = None
        self._stages: list[str] = []
        self._changes: set[asyncio.Future[None]] = set()
        self._ends: set[asyncio.Future[None]] = set()
        self._hearers: list[Callable[[str], None]] = []
        self.began = asyncio.get_running_loop().time()
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    def report(self, stage: str) -> None:
        """Tells all who follow that a stage began."""
        self._stages.append(stage)
        for hear in self._hearers:
            hear(stage)
        _wake(self._changes)

    def expect(self, seconds: float) -> None:
        """Tells all who follow how long the compile is expected to take."""
        self.expected = seconds
        _wake(self._changes)

    def tell(self, hear: Callable[[str], None]) -> None:
        """Calls ``hear`` with every stage, at once with those that began before."""
        for stage in self._stages:
            hear(stage)
        self._hearers.append(hear)

    @property
    def stages(self) -> tuple[str, ...]:
        """All that began, oldest first."""
        return tuple(self._stages)

    async def changed(self, seen: int, seconds: float) -> None:
        """Until more than ``seen`` stages began, the work ends, or so many seconds passed."""
        if len(self._stages) <= seen and not self._task.done():
            await _among(self._changes, seconds)

    async def ended(self, seconds: float) -> bool:
        """Waits until the work ends, or so many seconds; whether it did."""
        if not self._task.done():
            await _among(self._ends, seconds)
        return self._task.done()

    @contextmanager
    def waited(self) -> Generator[None]:
        """While somebody waits. The last one to leave ends work that is to be abandoned."""
        self._waiters += 1
        try:
            yield
        finally:
            self._waiters -= 1
            if self._abandon and not self._waiters and not self._task.done():
                self.abandoned = True
                self._task.cancel()

    def keep(self) -> None:
        """From here on the work goes on whether or not anybody waits: what it makes is worth keeping."""
        self._abandon = False

    async def result(self) -> T:
        """What came of it. Who waits may be cancelled, the work is not, while others wait or it is kept."""
        if self._task.done():
            return self._task.result()
        with self.waited():
            return await asyncio.shield(self._task)

    @property
    def task(self) -> asyncio.Task[T]:
        """The work itself."""
        return self._task

    async def _run(self, work: Callable[[Flight[T]], Awaitable[T]]) -> T:
        return await work(self)

    def land(self) -> None:
        """Wakes all who follow; to be called once the task is done."""
        _wake(self._changes)
        _wake(self._ends)
        if not self._task.cancelled():
            self._task.exception()  # somebody's, or nobody's: never a warning of asyncio


async def _among(waiting: set[asyncio.Future[None]], seconds: float) -> None:
    """Until ``_wake``, or so many seconds. Cheap: many wait for one."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()
    waiting.add(woken)
    alarm = loop.call_later(seconds, _wake, (woken,))
    try:
        await woken
    finally:
        waiting.discard(woken)
        alarm.cancel()


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


class Flights(Generic[K, T]):
    """The flights in the air, by what they make.

    ``window``: seconds after its beginning for which others join a flight. Who comes later begins another, so
    that nobody is told what was true long before: of a process that was frozen, a flight may be old.
    ``abandon``: a flight that nobody waits for any more is cancelled, until it is kept.
    """

    def __init__(self, window: float = float("inf"), abandon: bool = False) -> None:
        self._abandon = abandon
        self._leaving: set[asyncio.Task[T]] = set()
        self._flights: dict[K, Flight[T]] = {}
        self._window = window

    def join(self, key: K, work: Callable[[Flight[T]], Awaitable[T]]) -> tuple[Flight[T], bool]:
        """The flight for ``key``, and whether this call started it with ``work``."""
        flight = self._flights.get(key)
        if flight is not None and flight.abandoned:
            self._leaving.add(flight.task)
            flight.task.add_done_callback(self._leaving.discard)
            flight = None
        if flight is not None and asyncio.get_running_loop().time() - flight.began < self._window:
            return flight, False
        flight = Flight(work, self._abandon)
        self._flights[key] = flight

        def landed(_: asyncio.Task[T]) -> None:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.land()

        flight.task.add_done_callback(landed)
        return flight, True

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: K) -> bool:
        return key in self._flights

    async def drain(self, grace: float) -> None:
        """Waits up to ``grace`` seconds for all to land, then cancels the rest and waits for that."""
        tasks = [*(flight.task for flight in self._flights.values()), *self._leaving]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=max(grace, 0))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
