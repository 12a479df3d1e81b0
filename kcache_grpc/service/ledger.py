"""Uses and served kernels, written down in batches off the hot path."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import defaultdict
from dataclasses import dataclass

from kcache_grpc.service.threads import StoreThreads
from kcache_grpc.service.values import Caller, KnownGraph, KnownKernel
from kcache_grpc.storage.contract import Store
from kcache_grpc.storage.errors import StorageError
from kcache_grpc.storage.records import AuditEvent, Namespace, UsageDelta

logger = logging.getLogger("kcache.service")

#: Entries kept while the store cannot be written; later ones are dropped and counted.
_MAX_WAITING = 100_000
_PERIOD = 0.2
#: Up to so many uses in one batch get an event each: 500 a second.
_SINGLE_EVENTS = 100


@dataclass
class _Use:
    namespace: Namespace
    caller: Caller
    graph: KnownGraph
    kernel: KnownKernel
    origin: str
    at: int


class Ledger:
    """``served`` costs a microsecond; a task writes every 200 ms. One event loop."""

    def __init__(self, store: Store, threads: StoreThreads, toolchain_digest: bytes) -> None:
        self._store = store
        self._threads = threads
        self._toolchain = toolchain_digest
        self._waiting: list[_Use] = []
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def start(self) -> None:
        """Begins to write periodically."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def served(
        self, namespace: Namespace, caller: Caller, graph: KnownGraph, kernel: KnownKernel, origin: str
    ) -> None:
        """A kernel was handed out without a compile."""
        if len(self._waiting) >= _MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append(_Use(namespace, caller, graph, kernel, origin, time.time_ns() // 1000))

    async def flush(self) -> None:
        """Writes what waits. When the store cannot be written it goes on waiting."""
        async with self._writing:
            uses, self._waiting = self._waiting, []
            if not uses:
                return
            try:
                await self._threads(self._write, uses)
            except StorageError as error:
                logger.warning("%d uses are not written down yet: %s", len(uses), error)
                self._waiting = uses + self._waiting

    async def close(self) -> None:
        """Stops the task and writes what waits."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.flush()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            await asyncio.shield(self.flush())

    def _write(self, uses: list[_Use]) -> None:
        groups: dict[Namespace, list[_Use]] = defaultdict(list)
        for use in uses:
            groups[use.namespace].append(use)
        for namespace, group in groups.items():
            self._store.add_usage(namespace, [delta for use in group for delta in _deltas(use)])
            self._store.append_audit(namespace, [self._event(use, count) for use, count in _summed(group)])

    def _event(self, use: _Use, count: int) -> AuditEvent:
        return AuditEvent(
            kind="serve",
            outcome="hit",
            origin=use.origin,
            actor=use.caller.client,
            peer=use.caller.peer,
            request_id=use.caller.request_id,
            program_digest=use.graph.program_digest,
            spec_digest=use.graph.spec_digest,
            key=use.graph.key,
            kernel_digest=use.kernel.digest,
            toolchain=self._toolchain,
            saved_us=use.kernel.compile_us * count,
            detail=json.dumps({"count": count}) if count > 1 else "",
            at=use.at,
        )


def _summed(uses: list[_Use]) -> list[tuple[_Use, int]]:
    """One event a use; in a busy batch, one for all equal uses of one peer, under the first request's id."""
    if len(uses) <= _SINGLE_EVENTS:
        return [(use, 1) for use in uses]
    groups: dict[tuple[bytes, bytes, str, str, str], list[_Use]] = defaultdict(list)
    for use in uses:
        who = use.caller
        groups[use.kernel.digest, use.graph.program_digest, who.client, who.peer, use.origin].append(use)
    return [(group[0], len(group)) for group in groups.values()]


def _deltas(use: _Use) -> tuple[UsageDelta, UsageDelta]:
    """A use of the kernel, and of the mapping that led to it: what eviction goes by."""
    return (
        UsageDelta("kernel", use.kernel.digest, 1, use.kernel.compile_us, use.at),
        UsageDelta("mapping", use.graph.program_digest, 1, 0, use.at),
    )
