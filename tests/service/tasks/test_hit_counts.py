"""Hits that are written in the background."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.hit_counts import HitCounts
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.records import Namespace

_NAMESPACE = Namespace(1, "default", 0)


def test_a_flush_waits_for_one_that_writes() -> None:
    began, may_end = threading.Event(), threading.Event()
    written: list[Mapping[int, int]] = []

    def write(_: Namespace, hits: Mapping[int, int]) -> None:
        began.set()
        assert may_end.wait(60)
        written.append(dict(hits))

    async def run() -> None:
        counts = HitCounts(StoreThreads(2), write, "values")
        counts.add(_NAMESPACE, [7, 8])
        counts.add(_NAMESPACE, [7])
        first = asyncio.create_task(counts.flush())
        await asyncio.to_thread(began.wait, 60)
        second = asyncio.create_task(counts.flush())
        await asyncio.wait([second], timeout=0)
        may_end.set()
        await second
        assert written == [{7: 2, 8: 1}]
        await first

    asyncio.run(run())


def test_hits_of_a_store_that_cannot_be_written_are_dropped() -> None:
    written: list[Mapping[int, int]] = []

    def write(_: Namespace, hits: Mapping[int, int]) -> None:
        written.append(dict(hits))
        if len(written) == 1:
            raise StoreUnavailable("the store is gone")

    async def run() -> None:
        counts = HitCounts(StoreThreads(1), write, "values")
        counts.add(_NAMESPACE, [7])
        await counts.flush()
        counts.add(_NAMESPACE, [8])
        await counts.close()

    asyncio.run(run())
    assert written == [{7: 1}, {8: 1}]
