"""Single flight in one process: equal calls run once, and all waiters get result and stages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Seconds after its beginning for which others join a look into the store.
LOOK_WINDOW = 1.0


class InFlightCall(Generic[T]):
    """A running call for all its waiters. Without waiters it goes on, unless ``abandon`` was given."""

    def __init__(self, work: Callable[[InFlightCall[T]], Awaitable[T]], abandon: bool = False) -> None:
        self._abandon = abandon
        self._waiters = 0
        #: Whether it was cancelled because its last waiter left.
        self.abandoned = False
        #: Estimate of the seconds that its compile takes; ``None``: there is none yet.
        self.expected: float | None = None
        self._stages: list[str] = []
        self._changes: set[asyncio.Future[None]] = set()
        self._ends: set[asyncio.Future[None]] = set()
        self._listeners: list[Callable[[str], None]] = []
        self.began = asyncio.get_running_loop().time()
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    def report(self, stage: str) -> None:
        """Reports to all waiters that a stage began."""
        self._stages.append(stage)
        for listener in self._listeners:
            listener(stage)
        _wake(self._changes)

    def expect(self, seconds: float) -> None:
        """Reports to all waiters how many seconds the compile is expected to take."""
        self.expected = seconds
        _wake(self._changes)

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Calls ``listener`` with every stage, at once with those that began before."""
        for stage in self._stages:
            listener(stage)
        self._listeners.append(listener)

    @property
    def stages(self) -> tuple[str, ...]:
        """All that began, oldest first."""
        return tuple(self._stages)

    async def changed(self, seen: int, seconds: float) -> None:
        """Until more than ``seen`` stages began, the work ends, or this many seconds passed."""
        if len(self._stages) <= seen and not self._task.done():
            await _among(self._changes, seconds)

    async def ended(self, seconds: float) -> bool:
        """Waits until the work ends, or this many seconds; whether it did."""
        if not self._task.done():
            await _among(self._ends, seconds)
        return self._task.done()

    @contextmanager
    def waiter(self) -> Generator[None]:
        """Counts a waiter. When the last one leaves, a call with ``abandon`` is cancelled."""
        self._waiters += 1
        try:
            yield
        finally:
            self._waiters -= 1
            if self._abandon and not self._waiters and not self._task.done():
                self.abandoned = True
                self._task.cancel()

    def keep(self) -> None:
        """From here on the call goes on without waiters: its result will be stored."""
        self._abandon = False

    async def result(self) -> T:
        """Its result. A waiter may be cancelled; the call is not, while others wait or after ``keep``."""
        if self._task.done():
            return self._task.result()
        with self.waiter():
            return await asyncio.shield(self._task)

    @property
    def task(self) -> asyncio.Task[T]:
        """The work itself."""
        return self._task

    async def _run(self, work: Callable[[InFlightCall[T]], Awaitable[T]]) -> T:
        return await work(self)

    def finish(self) -> None:
        """Wakes all waiters; to be called once the task is done."""
        _wake(self._changes)
        _wake(self._ends)
        if not self._task.cancelled():
            self._task.exception()  # somebody's, or nobody's: never a warning of asyncio


async def _among(waiting: set[asyncio.Future[None]], seconds: float) -> None:
    """Until ``_wake``, or this many seconds. Cheap: many wait for one."""
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


class SingleFlight(Generic[K, T]):
    """The running calls by key.

    ``window``: seconds after its beginning for which others join a call. A later request begins another, so
    that no result is older than that: after a process was suspended, a call may have begun long ago.
    ``abandon``: a call without waiters is cancelled, until ``keep``.
    """

    def __init__(self, window: float = float("inf"), abandon: bool = False) -> None:
        self._abandon = abandon
        self._abandoned: set[asyncio.Task[T]] = set()
        self._calls: dict[K, InFlightCall[T]] = {}
        self._window = window

    def join(self, key: K, work: Callable[[InFlightCall[T]], Awaitable[T]]) -> tuple[InFlightCall[T], bool]:
        """The running call for ``key``, and whether this request started it with ``work``."""
        call = self._calls.get(key)
        if call is not None and call.abandoned:
            self._abandoned.add(call.task)
            call.task.add_done_callback(self._abandoned.discard)
            call = None
        if call is not None and asyncio.get_running_loop().time() - call.began < self._window:
            return call, False
        call = InFlightCall(work, self._abandon)
        self._calls[key] = call

        def finished(_: asyncio.Task[T]) -> None:
            if self._calls.get(key) is call:
                del self._calls[key]
            call.finish()

        call.task.add_done_callback(finished)
        return call, True

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, key: K) -> bool:
        return key in self._calls

    async def drain(self, grace: float) -> None:
        """Waits up to ``grace`` seconds for all to end, then cancels the rest and waits for that."""
        tasks = [*(call.task for call in self._calls.values()), *self._abandoned]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=max(grace, 0))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
