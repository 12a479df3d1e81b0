"""Work that a service does in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any


class BackgroundTask:
    """A coroutine that runs as a task of one event loop, from ``start`` until it returns or ``close``."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._run = run
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def periodic(cls, seconds: float, work: Callable[[], Awaitable[None]]) -> BackgroundTask:
        """Awaits ``work`` at intervals of ``seconds``; ``close`` does not cancel work that has begun."""

        async def run() -> None:
            while True:
                await asyncio.sleep(seconds)
                await asyncio.shield(work())

        return cls(run)

    def start(self) -> None:
        """Creates the task, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def wait(self) -> None:
        """Returns when the coroutine has returned, or was cancelled."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def close(self) -> bool:
        """Cancels the task and waits for its end; whether there was one. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return False
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return True
