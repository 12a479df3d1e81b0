"""Progress events of a compile for its waiters, and their rate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

from kcache_grpc.service.tasks.single_flight import InFlightCall
from kcache_grpc.service.values import Stage

#: Seconds within which stages are sent together. A compile may have fifty in a tenth of a second.
_PACE = 0.1
#: Seconds that each waiter adds to the pace of those that joined: no more than 33 messages a second go out,
#: each costs server and client 0.4 ms. And the slowest paces, of those that joined and of the first.
_SHARE, _SLOWEST, _SLOWEST_LEAD = 0.03, 4.0, 1.0
#: Seconds until a request that joined gets a stage: most kernels are there by then, and all that will join.
_FIRST_STAGE_DELAY = 0.5


#: Takes a stage, or ``None``: nothing began for a while.
SendStage = Callable[[Stage | None], Awaitable[None]]


class Waiters:
    """All requests of this process that wait for a compile. One event loop."""

    def __init__(self) -> None:
        self._size = 0

    @property
    def pace(self) -> float:
        """Seconds between two messages to a request that joined."""
        return min(max(_PACE, self._size * _SHARE), _SLOWEST)

    @contextmanager
    def waiter(self) -> Generator[Waiter]:
        """One request, from its first call to its last."""
        self._size += 1
        try:
            yield Waiter(self)
        finally:
            self._size -= 1


class Waiter:
    """One request that waits for a call, and gets its stages."""

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._sent = 0
        self._expected: float | None = None

    async def follow(self, call: InFlightCall[Any], send: SendStage, *, ours: bool, silence: float) -> None:
        """Sends the stages of a call until it ends; ``None`` after each ``silence``, seconds without one.

        ``ours``: the request started the call. One that joined gets stages less often, and none as the call
        ends: the rest comes with the result.
        """
        await (self._lead(call, send, silence) if ours else self._join(call, send, silence))

    async def _lead(self, call: InFlightCall[Any], send: SendStage, silence: float) -> None:
        now = asyncio.get_running_loop().time
        last_sent = now()
        while True:
            done = call.task.done()
            if stage := self._next(call):
                await send(stage)
                last_sent = now()
                await call.ended(min(self._waiters.pace, _SLOWEST_LEAD, silence))
            elif done:
                return
            elif now() >= last_sent + silence:
                await send(None)
                last_sent = now()
            else:
                await call.changed(self._sent, last_sent + silence - now())

    async def _join(self, call: InFlightCall[Any], send: SendStage, silence: float) -> None:
        now = asyncio.get_running_loop().time
        began = last_sent = looked = now()
        while not call.task.done():
            time = now()
            # As it is now: others may have come meanwhile.
            due = max(looked + self._waiters.pace, began + _FIRST_STAGE_DELAY)
            if time >= last_sent + silence:
                await send(None)
                last_sent = now()
            elif time < due:
                await call.ended(min(due, last_sent + silence) - time)
            else:
                looked = time
                if stage := self._next(call):
                    await send(stage)
                    last_sent = now()

    def _next(self, call: InFlightCall[Any]) -> Stage | None:
        """What began, or is expected, since the last message; the latest stage again where none began."""
        new, expected = self.rest(call), call.expected
        if not new and (expected == self._expected or not call.stages or call.task.done()):
            return None
        self._expected = expected
        stages = new or call.stages[-1:]
        return Stage(stages[-1], stages[:-1], expected)

    def rest(self, call: InFlightCall[Any]) -> tuple[str, ...]:
        """Stages that began and were not sent; they count as sent now."""
        rest = call.stages[self._sent :]
        self._sent += len(rest)
        return rest
