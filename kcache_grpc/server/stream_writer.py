"""One stream that several tasks write to: parts that wait are sent in one message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

#: Most seconds between two messages.
_SLOWEST = 1.0


class StreamWriter:
    """Joins serialized parts of several tasks to messages; one task writes them.

    ``most``: bytes of a message, above which ``put`` waits; a single part may be larger. ``pace``: seconds
    between two messages, except if parts do not fit, and for the last one, which is not delayed.
    """

    def __init__(self, most: int, pace: Callable[[], float]) -> None:
        self._most = most
        self._pace = pace
        self._parts: list[bytes] = []
        self._size = 0
        self._working = 0
        #: There is something to write, or nobody works any more.
        self._due = asyncio.Event()
        #: Somebody waits for room, nobody works any more, or it is time.
        self._urgent = asyncio.Event()
        self._not_full = asyncio.Event()

    async def put(self, part: bytes) -> None:
        """Adds a part; those of one task are sent in their order."""
        while self._parts and self._size + len(part) > self._most:
            self._not_full.clear()
            self._urgent.set()
            await self._not_full.wait()
        self._parts.append(part)
        self._size += len(part)
        self._due.set()

    async def write_all(
        self, works: Sequence[Coroutine[Any, Any, None]], write: Callable[[bytes], Awaitable[None]]
    ) -> bytes:
        """Runs ``works``, which put, and writes what they put; returns the last message unwritten.

        Their tasks end with this call. Raises what one of them raised, once all have ended.
        """
        now = asyncio.get_running_loop().time
        self._working, written = len(works), now()
        tasks = [asyncio.create_task(self._counted(work)) for work in works]
        try:
            while True:
                await self._due.wait()
                early = written + min(self._pace(), _SLOWEST) - now()
                if early > 0:
                    await self._urgent_within(early)
                message = self._take()
                if not self._working:
                    break
                await write(message)
                written = now()
            if any(task.cancelled() or task.exception() for task in await _all(tasks)):
                await write(message)
                for task in tasks:
                    task.result()
            return message
        finally:
            for task in tasks:
                task.cancel()
            await _all(tasks)

    async def _urgent_within(self, seconds: float) -> None:
        alarm = asyncio.get_running_loop().call_later(seconds, self._urgent.set)
        try:
            await self._urgent.wait()
        finally:
            alarm.cancel()

    def _take(self) -> bytes:
        self._due.clear()
        self._urgent.clear()
        self._not_full.set()
        message = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return message

    async def _counted(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._working -= 1
            if not self._working:
                self._due.set()
                self._urgent.set()


async def _all(tasks: Sequence[asyncio.Task[None]]) -> Sequence[asyncio.Task[None]]:
    """The tasks, when they have ended."""
    await asyncio.wait(tasks)
    return tasks
