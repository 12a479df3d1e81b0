"""Questions to the store that come while one is asked are asked together: rows cost less than statements."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

G = TypeVar("G", bound=Hashable)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Seconds after which an answer is not waited for any more before the next questions are asked: a connection
#: that hangs holds up those who asked by it, and nobody else.
_PATIENCE = 0.1


class Gathering(Generic[G, K, V]):
    """Looks up keys of a group by ``ask``, one call for all that wait. One event loop."""

    def __init__(self, ask: Callable[[G, Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._ask = ask
        self._wanted: dict[G, dict[K, asyncio.Future[V | None]]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._began = 0.0

    async def look(self, group: G, key: K) -> V | None:
        """What is there now: it is asked for after this call began. Raises what ``ask`` raises."""
        loop = asyncio.get_running_loop()
        pending = self._wanted.setdefault(group, {})
        if key not in pending:
            pending[key] = loop.create_future()
        answer = pending[key]
        if self._asking is None or self._asking.done() or loop.time() > self._began + _PATIENCE:
            self._began = loop.time()
            self._asking = loop.create_task(self._ask_for_all())
        return await asyncio.shield(answer)

    async def _ask_for_all(self) -> None:
        while self._wanted:
            self._began = asyncio.get_running_loop().time()
            all_wanted, self._wanted = self._wanted, {}
            await asyncio.gather(*(self._ask_for(group, pending) for group, pending in all_wanted.items()))

    async def _ask_for(self, group: G, pending: dict[K, asyncio.Future[V | None]]) -> None:
        try:
            results = await self._ask(group, list(pending))
        except Exception as error:  # noqa: BLE001 - for those who wait
            for answer in pending.values():
                answer.set_exception(error)
                answer.exception()  # all may have left
        else:
            for key, answer in pending.items():
                answer.set_result(results.get(key))
