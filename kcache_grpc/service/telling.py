"""What those who wait for a compile are told of its stages, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any

from kcache_grpc.service.flight import Flight
from kcache_grpc.service.values import Stage

#: Seconds within which stages are told together. A compile may have fifty in a tenth of a second.
_PACE = 0.1
#: What each who waits adds to the pace of those who joined: no more than 100 messages a second go out, each
#: costs server and client 0.4 ms. And the slowest pace.
_SHARE, _SLOWEST = 0.01, 4.0


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
    """One request that waits for flights, one after another."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self._untold: tuple[str, ...] = ()

    async def follow(self, flight: Flight[Any], *, ours: bool) -> AsyncIterator[Stage]:
        """The stages of a flight until it ends.

        Who joined is told less often, and nothing as it ends: there is more to come, or the result.
        """
        seen, done = 0, False
        while not done:
            if ours:
                await flight.changed(seen)
                done = flight.task.done()
            else:
                done = await flight.ended(self._audience.pace)
            new = flight.stages[seen:]
            seen += len(new)
            self._untold += new
            if self._untold and (ours or not done):
                *earlier, name = self.rest()
                yield Stage(name, tuple(earlier))
            if ours and not done:
                await flight.ended(_PACE)

    def rest(self) -> tuple[str, ...]:
        """Stages that began and were not told; they count as told now."""
        rest, self._untold = self._untold, ()
        return rest
