"""Batches reads of the store: those that arrive during one share the next, as rows cost less than calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

G = TypeVar("G", bound=Hashable)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Seconds after which the next read does not wait for the one before: a connection that hangs delays only the
#: callers of that read.
_PATIENCE = 0.1


class ReadBatch(Generic[G, K, V]):
    """Looks up keys of a group by ``read_many``, one call for all that wait. One event loop."""

    def __init__(self, read_many: Callable[[G, Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read_many = read_many
        self._pending: dict[G, dict[K, asyncio.Future[V | None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0

    async def read(self, group: G, key: K) -> V | None:
        """What is there now: it is asked for after this call began. Raises what ``read_many`` raises."""
        loop = asyncio.get_running_loop()
        pending = self._pending.setdefault(group, {})
        if key not in pending:
            pending[key] = loop.create_future()
        future = pending[key]
        if self._task is None or self._task.done() or loop.time() > self._began + _PATIENCE:
            self._began = loop.time()
            self._task = loop.create_task(self._read_all())
        return await asyncio.shield(future)

    async def _read_all(self) -> None:
        while self._pending:
            self._began = asyncio.get_running_loop().time()
            all_wanted, self._pending = self._pending, {}
            await asyncio.gather(*(self._read_group(group, pending) for group, pending in all_wanted.items()))

    async def _read_group(self, group: G, pending: dict[K, asyncio.Future[V | None]]) -> None:
        try:
            results = await self._read_many(group, list(pending))
        except Exception as error:  # noqa: BLE001 - for those who wait
            for future in pending.values():
                future.set_exception(error)
                future.exception()  # all may have left
        else:
            for key, future in pending.items():
                future.set_result(results.get(key))
