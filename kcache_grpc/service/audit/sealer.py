"""Seals audit events with the server's key."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import replace

from kcache_grpc.model.signing import SEAL_DOMAIN, Signer
from kcache_grpc.service.audit.seal_chains import ChainState, Head, head, head_of, seals, update_state
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.background_task import BackgroundTask
from kcache_grpc.storage.audit.sealing import (
    MOST_SEALED,
    Seal,
    chain_root,
    event_leaf,
    seal_marks,
)
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import StorageError
from kcache_grpc.storage.records import AuditEvent, Namespace

logger = logging.getLogger("kcache.service")

#: Seconds between two seals of a writer with new events.
SEAL_PERIOD = 60.0
#: Seconds after which events that their own writer did not seal are sealed by whoever finds them.
ADOPT_AFTER = 600.0
#: Events that belong to no namespace are written down under this one.
NOWHERE = Namespace(0, "", 0)


def _wall() -> int:
    return time.time_ns() // 1000


class Sealer:
    """Makes seals. Blocks; one thread at a time."""

    def __init__(self, store: Store, signer: Signer, clock: Callable[[], int] = _wall) -> None:
        self._store = store
        self._signer = signer
        self._clock = clock
        self._own = Head()
        self._seen: dict[str, ChainState] = {}

    def begin(self) -> None:
        """From here on the store remembers what it appends."""
        self._store.begin_sealing(self._signer.public_key, socket.gethostname())
        self._own = head(self._store, self._store.audit_writer)

    def seal_own(self) -> int:
        """Seals what this store appended since; how many events."""
        writer, sealed = self._store.audit_writer, 0
        while entries := self._store.unsealed(MOST_SEALED):
            ids, leaves = tuple(number for number, _ in entries), [leaf for _, leaf in entries]
            seal = self._put(writer, self._own, ids, leaves)
            if seal is not None:
                self._own, sealed = head_of(seal), sealed + len(ids)
                continue
            # Another process took this one for dead and sealed some of its events.
            for other, _ in seals(self._store, writer, self._own.sequence):
                self._store.sealed_by_others(other.event_ids)
            self._own = head(self._store, writer)
        return sealed

    def adopt(self, before: int) -> int:
        """Seals events of any writer that are older than ``before`` and in no seal; how many.

        They are what a process left that died between appending and sealing. Nobody remembers their
        hashes, so they are sealed as they are read, which the log says: an event of kind ``adopt``.
        """
        others = (writer.writer for writer in self._store.list_writers())
        return sum(self._adopt(writer, before) for writer in others if writer != self._store.audit_writer)

    def _adopt(self, writer: str, before: int) -> int:
        seen = update_state(self._store, writer, self._seen.get(writer, ChainState()))
        records = self._store.read_events(seen.unlisted)
        old = [number for number in seen.unlisted if number in records and records[number].event.at < before]
        adopted, last = 0, seen.head
        for start in range(0, len(old), MOST_SEALED):
            ids = tuple(old[start : start + MOST_SEALED])
            seal = self._put(writer, last, ids, [event_leaf(records[number]) for number in ids])
            if seal is None:
                break
            adopted, last = adopted + len(ids), head_of(seal)
        left = tuple(number for number in seen.unlisted if number not in set(old[:adopted]))
        self._seen[writer] = ChainState(last, seen.last_id, left)
        if adopted:
            self._log_adopted(writer, adopted)
        return adopted

    def _put(self, writer: str, last: Head, ids: tuple[int, ...], leaves: list[bytes]) -> Seal | None:
        """The seal; ``None`` when the chain has moved on."""
        seal = Seal(
            writer=writer,
            sequence=last.sequence + 1,
            previous_root=last.root,
            root=chain_root(last.root, leaves),
            event_ids=ids,
            created_at=self._clock(),
        )
        marks = seal_marks(leaves)
        signed = self._signer.sign(SEAL_DOMAIN, seal.payload(marks))
        seal = replace(seal, signature=signed.signature)
        return seal if self._store.put_seal(seal, marks) else None

    def _log_adopted(self, writer: str, events: int) -> None:
        logger.warning("%d audit events that %s left unsealed are sealed as they were found", events, writer)
        detail = json.dumps({"writer": writer, "events": events})
        self._store.append_audit(NOWHERE, [AuditEvent("adopt", outcome="ok", detail=detail)])


class SealTask:
    """Seals periodically, and at the end. One event loop."""

    def __init__(self, sealer: Sealer, threads: StoreThreads, period: float = SEAL_PERIOD) -> None:
        self._sealer = sealer
        self._threads = threads
        self._period = period
        self._task = BackgroundTask(self._run)

    async def start(self) -> None:
        """Registers the writer, begins. Raises what the store raises."""
        await self._threads(self._sealer.begin)
        self._task.start()

    async def now(self) -> None:
        """Seals what there is."""
        await self._attempt(self._sealer.seal_own)

    async def close(self) -> None:
        """Seals what there is and stops. Idempotent."""
        if await self._task.close():
            await self.now()

    async def _run(self) -> None:
        adopted = -ADOPT_AFTER
        while True:
            if time.monotonic() - adopted >= ADOPT_AFTER:
                adopted = time.monotonic()
                await self._attempt(lambda: self._sealer.adopt(_wall() - round(ADOPT_AFTER * 1e6)))
            await asyncio.sleep(self._period)
            await self._attempt(self._sealer.seal_own)

    async def _attempt(self, work: Callable[[], int]) -> None:
        """What does not succeed now is tried again at the next turn."""
        try:
            await asyncio.shield(self._threads(work))
        except StorageError as error:
            logger.warning("audit events are not sealed yet: %s", error)
