"""Records requests and their outcomes: entries on the hot path, written in batches off it.

The rows in which a store sums what hits saved, by caller, are bounded: names of callers are up to them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.target import Target
from kcache_grpc.service.audit.events import Batch, Entry, Lookup, Note, Use, batches
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.background_task import BackgroundTask
from kcache_grpc.service.values import Caller, Found, KnownGraph, KnownKernel, Missing
from kcache_grpc.storage.contract.saved_time import CALLER, caller_usage
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import InvalidValue, StorageError
from kcache_grpc.storage.records import AuditEvent, Namespace, UsageDelta

logger = logging.getLogger("kcache.service")

#: Requests kept while the store cannot be written; later ones are dropped and counted.
MOST_WAITING = 100_000
#: Requests of namespaces without a first write that are kept for it; the oldest of more are forgotten.
MOST_EARLY = 1000
#: Seconds between two writes: what a crash loses at most, together with the write under way.
PERIOD = 0.2
#: Callers of a namespace that have their own rows; each server that shares the store may add a few more.
MOST_CALLERS = 10_000
#: Namespaces whose callers are remembered; those of others are read again.
_MOST_NAMESPACES = 16


class AuditRecorder:
    """Noting costs a microsecond or two; a task writes every 200 ms. One event loop."""

    def __init__(self, store: Store, threads: StoreThreads, toolchains: Toolchains) -> None:
        self._store = store
        self._threads = threads
        self._toolchains = toolchains
        self._callers = Callers()
        self._waiting: list[Entry] = []
        self._count = 0
        self._unwritten: list[Batch] = []
        #: Of namespaces that are not stored, by their names.
        self._early: dict[str, list[Batch]] = {}
        self._lost: Counter[Namespace] = Counter()
        self._writing = asyncio.Lock()
        self._task = BackgroundTask.periodic(PERIOD, self.flush)
        #: Requests that were not written down since the start, as too many waited.
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Requests that wait to be written down."""
        return self._count

    def start(self) -> None:
        """Begins to write periodically."""
        self._task.start()

    def looked_up(
        self,
        namespace: Namespace,
        caller: Caller,
        target: Target,
        digests: Sequence[bytes],
        results: Sequence[Found | Missing],
    ) -> None:
        """Kernels were looked up by program digest, and found or not."""
        self._note(Lookup(namespace, caller, time.time_ns(), _since(caller), target, digests, results))

    def served(
        self,
        namespace: Namespace,
        caller: Caller,
        graph: KnownGraph,
        kernel: KnownKernel,
        origin: str,
        target: Target | None = None,
        size: int = 0,
    ) -> None:
        """A kernel was handed out that this request did not compile, with this many bytes."""
        self._note(
            Use(namespace, caller, time.time_ns(), _since(caller), graph, kernel, origin, target, size)
        )

    def note(self, namespace: Namespace, caller: Caller, event: AuditEvent) -> None:
        """Something else was done: ``event`` is filled with who, when and how long."""
        self._note(Note(namespace, caller, time.time_ns(), _since(caller), event))

    def _note(self, entry: Entry) -> None:
        count = entry.count
        if self._count + count > MOST_WAITING:
            self.dropped += count
            self._lost[entry.namespace] += count
            return
        self._count += count
        self._waiting.append(entry)

    async def flush(self) -> None:
        """Writes what waits. When the store cannot be written it goes on waiting."""
        async with self._writing:
            entries, self._waiting = self._waiting, []
            lost, self._lost = self._lost, Counter()
            if not (entries or lost or self._unwritten):
                return
            if lost:
                logger.error("%d requests are not written to the audit log: too many wait", lost.total())
            before = sum(batch.count for batch in self._unwritten)
            added = sum(entry.count for entry in entries)
            try:
                await self._threads(self._write, entries, lost)
            except StorageError as error:
                logger.warning("audit events and uses are not written down yet: %s", error)
            self._count += sum(batch.count for batch in self._unwritten) - before - added

    async def close(self) -> None:
        """Stops the task and writes what waits."""
        await self._task.close()
        await self.flush()

    def _write(self, entries: Sequence[Entry], lost: Counter[Namespace]) -> None:
        """In a thread; each batch as far as it is not written yet."""
        for batch in batches(entries, lost, self._toolchains):
            self._unwritten += self._writable(batch)
        while self._unwritten:
            batch = self._unwritten[0]
            try:
                if batch.uses:
                    uses = self._callers.bounded(self._store, batch.namespace, batch.uses)
                    self._store.add_usage(batch.namespace, uses)
                    batch.uses = []
                if batch.events:
                    self._store.append_audit(batch.namespace, batch.events)
            except InvalidValue:
                # Never a reason to stand still: what callers say is checked where it comes in.
                logger.exception("%d audit events cannot be stored, and are dropped", len(batch.events))
            del self._unwritten[0]

    def _writable(self, batch: Batch) -> list[Batch]:
        """The batch, and what came before the first write in its namespace; nothing while that is to come.

        A namespace that is not stored has no log: what is noted for it waits, within ``MOST_EARLY`` requests.
        """
        name = batch.namespace.name
        if not batch.namespace.is_stored:
            self._early.setdefault(name, []).append(batch)
            namespace = self._store.find_namespace(name)
            if namespace is None:
                while sum(each.count for group in self._early.values() for each in group) > MOST_EARLY:
                    del self._early[next(iter(self._early))]
                return []
            return self._in(namespace, self._early.pop(name))
        return [*self._in(batch.namespace, self._early.pop(name, [])), batch]

    def _in(self, namespace: Namespace, early: list[Batch]) -> list[Batch]:
        for batch in early:
            batch.namespace = namespace
        return early


def _since(caller: Caller) -> int:
    """Microseconds since the request came in; 0 where nobody looked at the clock."""
    return round((time.perf_counter() - caller.started) * 1e6) if caller.started else 0


class Callers:
    """The callers that have a row. Not thread-safe: used by whoever writes, one at a time."""

    def __init__(self, most: int = MOST_CALLERS) -> None:
        self._most = most
        self._known: dict[int, set[str]] = {}

    def bounded(self, store: Store, namespace: Namespace, uses: Iterable[UsageDelta]) -> list[UsageDelta]:
        """The uses, those of callers beyond the bound as uses of the caller without a name."""
        return [
            self._bounded(store, namespace, use) if use.subject.startswith(CALLER) else use for use in uses
        ]

    def _bounded(self, store: Store, namespace: Namespace, use: UsageDelta) -> UsageDelta:
        known = self._callers(store, namespace)
        if use.subject in known:
            return use
        if len(known) >= self._most:
            unnamed = caller_usage("", "", 0, 0, 0)
            return replace(use, subject=unnamed.subject, digest=unnamed.digest)
        known.add(use.subject)
        return use

    def _callers(self, store: Store, namespace: Namespace) -> set[str]:
        known = self._known.get(namespace.id)
        if known is None:
            while len(self._known) >= _MOST_NAMESPACES:
                del self._known[next(iter(self._known))]
            stored = store.list_savings(namespace, self._most)
            known = {caller_usage(each.actor, each.job, 0, 0, 0).subject for each in stored}
            self._known[namespace.id] = known
        return known
