"""Progress events of a compile for its waiters, and their rate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

from kcache_grpc.service.tasks.single_flight import Flight
from kcache_grpc.service.values import Stage

#: Seconds within which stages are sent together. A compile may have fifty in a tenth of a second.
_PACE = 0.1
#: What each who waits adds to the pace of those who joined: no more than 33 messages a second go out, each
#: costs server and client 0.4 ms. And the slowest paces, of those who joined and of who asked first.
_SHARE, _SLOWEST, _SLOWEST_LEAD = 0.03, 4.0, 1.0
#: Seconds until who joined is told anything: most kernels are there by then, and so are the others who ask.
_PATIENCE = 0.5


#: Takes a stage, or ``None``: nothing began for a while.
Tell = Callable[[Stage | None], Awaitable[None]]


class Audience:
    """All requests of this process that wait. One event loop."""

    def __init__(self) -> None:
        self._size = 0

    @property
    def pace(self) -> float:
        """Seconds between two messages to one who joined."""
        return min(max(_PACE, self._size * _SHARE), _SLOWEST)

    @contextmanager
    def listener(self) -> Generator[Listener]:
        """One request, from its first flight to its last."""
        self._size += 1
        try:
            yield Listener(self)
        finally:
            self._size -= 1


class Listener:
    """One request that waits for a flight."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self._told = 0
        self._expected: float | None = None

    async def follow(self, flight: Flight[Any], tell: Tell, *, ours: bool, silence: float) -> None:
        """Tells the stages of a flight until it ends; ``None`` after each ``silence``, seconds without one.

        Who joined is told less often, and nothing as it ends: the rest comes with the result.
        """
        await (self._lead(flight, tell, silence) if ours else self._join(flight, tell, silence))

    async def _lead(self, flight: Flight[Any], tell: Tell, silence: float) -> None:
        now = asyncio.get_running_loop().time
        spoken = now()
        while True:
            done = flight.task.done()
            if stage := self._next(flight):
                await tell(stage)
                spoken = now()
                await flight.ended(min(self._audience.pace, _SLOWEST_LEAD, silence))
            elif done:
                return
            elif now() >= spoken + silence:
                await tell(None)
                spoken = now()
            else:
                await flight.changed(self._told, spoken + silence - now())

    async def _join(self, flight: Flight[Any], tell: Tell, silence: float) -> None:
        now = asyncio.get_running_loop().time
        began = spoken = looked = now()
        while not flight.task.done():
            time = now()
            # As it is now: others may have come meanwhile.
            due = max(looked + self._audience.pace, began + _PATIENCE)
            if time >= spoken + silence:
                await tell(None)
                spoken = now()
            elif time < due:
                await flight.ended(min(due, spoken + silence) - time)
            else:
                looked = time
                if stage := self._next(flight):
                    await tell(stage)
                    spoken = now()

    def _next(self, flight: Flight[Any]) -> Stage | None:
        """What began, or is expected, since the last message; the latest stage again where none began."""
        new, expected = self.rest(flight), flight.expected
        if not new and (expected == self._expected or not flight.stages or flight.task.done()):
            return None
        self._expected = expected
        stages = new or flight.stages[-1:]
        return Stage(stages[-1], stages[:-1], expected)

    def rest(self, flight: Flight[Any]) -> tuple[str, ...]:
        """Stages that began and were not told; they count as told now."""
        rest = flight.stages[self._told :]
        self._told += len(rest)
        return rest
