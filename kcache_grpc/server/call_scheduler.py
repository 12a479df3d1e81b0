"""Schedules large calls on the event loop: callers take turns, and all other calls run in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kcache_grpc.worker.fairness import FairQueue

#: Seconds of work that need no pause: what some clients that start at once ask for.
_BURST = 0.05
#: Seconds of pause for each second of work beyond that.
_PAUSE = 3.0


class CallScheduler:
    """Large calls work in slices, one slice at a time, at most a quarter of the time.

    A slice is what a task does from the end of ``wait`` to its next pause. A call of few things never waits
    here: it runs between two slices. One event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        #: A slice is worked on, or the pause after it.
        self._busy = False
        self._began = self._ended = clock()
        #: Seconds that slices may take before there is a pause.
        self._credit = _BURST

    async def wait(self, caller: str) -> None:
        """Returns when ``caller`` may begin its next slice."""
        if self._busy:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(caller, turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._waiting.remove(caller, turn)
                if turn.done() and not turn.cancelled():
                    self._next()  # cancelled with its turn, before it could begin
                raise
        self._busy = True
        self._began = self._clock()
        asyncio.get_running_loop().call_soon(self._over)

    def _over(self) -> None:
        """Ends a slice. If slices have used up their credit, a pause follows, several times as long."""
        now = self._clock()
        self._credit = min(_BURST, self._credit + (self._began - self._ended) / _PAUSE) - (now - self._began)
        self._ended = now
        if self._credit < 0:
            asyncio.get_running_loop().call_later(-self._credit * _PAUSE, self._next)
        else:
            self._next()

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
