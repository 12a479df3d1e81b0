"""Hits that are counted in memory and written to the store periodically."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.background_task import BackgroundTask
from kcache_grpc.storage.errors import StorageError
from kcache_grpc.storage.records import Namespace

logger = logging.getLogger("kcache.service")

#: Seconds between two writes.
_PERIOD = 1.0


class HitCounts:
    """Counts the hits of rows, and writes the sums with ``write(namespace, row id -> hits)``.

    Where the store cannot be written they are dropped: they are hints. ``of`` names the rows in the log.
    """

    def __init__(
        self, threads: StoreThreads, write: Callable[[Namespace, Mapping[int, int]], None], of: str
    ) -> None:
        self._threads = threads
        self._write = write
        self._of = of
        self._waiting: dict[Namespace, defaultdict[int, int]] = {}
        self._writing = asyncio.Lock()
        self._task = BackgroundTask.periodic(_PERIOD, self.flush)

    def start(self) -> None:
        """Begin to write periodically."""
        self._task.start()

    async def close(self) -> None:
        """Stop, and write what waits."""
        await self._task.close()
        await self.flush()

    def add(self, namespace: Namespace, row_ids: Iterable[int]) -> None:
        """Count one hit of each row."""
        counts = self._waiting.get(namespace)
        if counts is None:
            counts = self._waiting[namespace] = defaultdict(int)
        for row_id in row_ids:
            counts[row_id] += 1

    async def flush(self) -> None:
        """Write what waits. All hits that were added before are written when it returns."""
        async with self._writing:
            waiting, self._waiting = self._waiting, {}
            for namespace, hits in waiting.items():
                await self._write_or_drop(namespace, hits)

    async def _write_or_drop(self, namespace: Namespace, hits: Mapping[int, int]) -> None:
        try:
            await self._threads(self._write, namespace, hits)
        except StorageError as error:
            logger.warning("hits of %s are not counted: %s", self._of, error)
