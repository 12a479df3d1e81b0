"""Use cases of ``BlobCache``: lookups and inserts of opaque values, their counters and audit events."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from kcache_grpc.errors import ArgumentError, IntegrityError, ResourceExhausted
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.lifecycle.garbage_collection import QuotaEviction
from kcache_grpc.service.lru_cache import ByteLru
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.hit_counts import HitCounts
from kcache_grpc.service.values import Caller
from kcache_grpc.storage.contract.blob_cache import (
    CHUNK_BYTES,
    PutOutcome,
    ValueDraft,
    ValueRecord,
    ValueTotals,
)
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace

logger = logging.getLogger("kcache.service")

#: Keys of one call.
MOST_KEYS = 4096
#: Bytes of one value, and of all values that are being received at a time.
MOST_VALUE_BYTES, MOST_SPOOLED_BYTES = 1 << 30, 4 << 30
#: Bytes of values that one transaction stores together; a larger one has its own transaction.
_GROUP_BYTES = 8 << 20
#: Bytes of small values that are kept in memory.
_MEMORY_BYTES = 64 << 20
_MOST_LABEL = 200
#: What a process counts.
COUNTERS: tuple[str, ...] = (
    "blob_hits",
    "blob_misses",
    "blob_inserts",
    "blob_conflicts",
    "blob_milliseconds_saved",
)


@dataclass(frozen=True)
class ValueHead:
    """What the first part of a value says."""

    key: bytes
    digest: bytes
    size: int
    label: str = ""
    saved_us: int = 0

    def check(self) -> None:
        """Raises ``ArgumentError`` for what cannot be stored."""
        if len(self.key) != 32 or len(self.digest) != 32:
            raise ArgumentError("key and sha256 of a value have 32 bytes each", field="parts")
        if self.size > MOST_VALUE_BYTES:
            raise ResourceExhausted(
                f"value {self.key.hex()} has {self.size} bytes; a value has at most {MOST_VALUE_BYTES}",
                limit="blob_bytes",
            )
        if len(self.label.encode()) > _MOST_LABEL or "\0" in self.label:
            raise ArgumentError(f"a label has at most {_MOST_LABEL} bytes, without NUL", field="label")


@dataclass(frozen=True)
class ValuePart:
    """A part of a value on its way out. ``record`` is set in the first part."""

    index: int
    content: bytes
    record: ValueRecord | None = None


class SmallValue:
    """A value of one chunk in memory: from its first reply on as the message of that reply, which it ends."""

    __slots__ = ("_content", "_message", "record")

    def __init__(self, record: ValueRecord, content: bytes) -> None:
        self.record = record
        self._content = content
        self._message = b""

    @property
    def content(self) -> bytes:
        """Its bytes."""
        return self._message[len(self._message) - self.record.size :] if self._message else self._content

    def message(self, write: Callable[[ValueRecord, bytes], bytes]) -> bytes:
        """What ``write`` made of it the first time: a message whose last bytes are those of the value."""
        if not self._message:
            self._message, self._content = write(self.record, self._content), b""
        return self._message


class BlobCache:
    """One event loop. ``spool_dir`` holds values while they are received."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        writers: StoreThreads,
        namespaces: Namespaces,
        audit_recorder: AuditRecorder,
        quotas: QuotaEviction,
        spool_dir: Path,
    ) -> None:
        self._store = store
        self._threads = threads
        self._writers = writers
        self._namespaces = namespaces
        self._audit_recorder = audit_recorder
        self._quotas = quotas
        self._spool_dir = spool_dir
        self._memory: ByteLru[tuple[int, int, bytes], SmallValue] = ByteLru(_MEMORY_BYTES)
        self._hits = HitCounts(threads, store.add_value_hits, "cached values")
        self._spooled = 0
        self._counted: dict[str, int] = dict.fromkeys(COUNTERS, 0)

    def start(self) -> None:
        """Begins to write hit counters periodically."""
        self._hits.start()

    async def close(self) -> None:
        """Stops, and writes the hit counters."""
        await self._hits.close()

    async def get(self, caller: Caller, keys: Sequence[bytes]) -> AsyncIterator[ValuePart]:
        """The parts of the stored values, in the order of ``keys``. Raises ``ArgumentError``."""
        if len(keys) > MOST_KEYS or len(set(keys)) < len(keys) or any(len(key) != 32 for key in keys):
            raise ArgumentError(f"keys are 1 to {MOST_KEYS} different ones of 32 bytes", field="keys")
        namespace = await self._namespaces.get(caller.namespace)
        records = await self._find(namespace, keys)
        served: list[ValueRecord] = []
        try:
            for index, key in enumerate(keys):
                record = records.get(key)
                if record is None:
                    continue
                first = True
                async for content in self._chunks(namespace, record):
                    yield ValuePart(index, content, record if first else None)
                    first = False
                served.append(record)
        finally:
            self._note_hits(namespace, caller, served, len(keys))

    async def get_small(self, caller: Caller, key: bytes) -> SmallValue | ValueRecord | None:
        """The value of one key, ``None`` where there is none. Raises ``ArgumentError``.

        Of a value with more than one chunk only the record: no lookup is counted, for ``get`` follows.
        """
        namespace = self._namespaces.known(caller.namespace) or await self._namespaces.get(caller.namespace)
        value = self._memory.get((namespace.id, namespace.removals, key))
        if value is None:
            if len(key) != 32:
                raise ArgumentError(f"a key has 32 bytes, not {len(key)}", field="key")
            loaded = await self._load(namespace, key)
            if isinstance(loaded, ValueRecord):
                return loaded
            value = loaded
        # After the reply, which gRPC sends before the loop calls what comes later.
        served = () if value is None else (value.record,)
        asyncio.get_running_loop().call_soon(self._note_hits, namespace, caller, served, 1)
        return value

    async def put(
        self, caller: Caller, parts: AsyncIterator[tuple[ValueHead | None, bytes]]
    ) -> list[PutOutcome]:
        """Stores values that arrive in parts: a part without a head continues the value before.

        Raises ``ArgumentError`` for parts that make no value, ``IntegrityError`` for bytes that do not match
        their digest, and ``ResourceExhausted``.
        """
        receiver = _Receiver(self, caller)
        try:
            async for head, content in parts:
                await receiver.take(head, content)
            return await receiver.finish()
        finally:
            receiver.close()

    async def totals(self, caller: Caller) -> ValueTotals:
        """What the namespace holds, and its hits, with those that are not written down yet."""
        namespace = await self._namespaces.get(caller.namespace)
        await self._hits.flush()
        return await self._threads(self._store.value_totals, namespace)

    def counters(self) -> dict[str, int]:
        """What this process did since it started, for metrics."""
        return dict(self._counted)

    async def _find(self, namespace: Namespace, keys: Sequence[bytes]) -> dict[bytes, ValueRecord]:
        records: dict[bytes, ValueRecord] = {}
        missing: list[bytes] = []
        for key in keys:
            cached = self._memory.get((namespace.id, namespace.removals, key))
            if cached is None:
                missing.append(key)
            else:
                records[key] = cached.record
        if missing and namespace.is_stored:
            hurry = self._store.short_lock_waits if self._store.answers_from_memory else None
            records.update(await self._threads.look(hurry, self._store.find_values, namespace, missing))
        return records

    async def _load(self, namespace: Namespace, key: bytes) -> SmallValue | ValueRecord | None:
        """A value that is not in memory."""
        record = (await self._find(namespace, (key,))).get(key)
        if record is None or record.size > CHUNK_BYTES:
            return record
        content = await self._chunk(namespace, record, 0) if record.size else b""
        return None if content is None else SmallValue(record, content)

    async def _chunks(self, namespace: Namespace, record: ValueRecord) -> AsyncIterator[bytes]:
        """All chunks. Raises ``IntegrityError`` when a value goes after its first chunk was sent."""
        cached = self._memory.get((namespace.id, namespace.removals, record.key))
        if cached is not None and cached.record.id == record.id:
            yield cached.content
            return
        if not record.size:
            yield b""
        for seq in range(record.chunk_count):
            content = await self._chunk(namespace, record, seq)
            if content is None:
                if seq == 0:
                    return
                raise IntegrityError(f"value {record.key.hex()} was removed while it was read: ask again")
            yield content

    async def _chunk(self, namespace: Namespace, record: ValueRecord, seq: int) -> bytes | None:
        """A chunk from the store; the only one of a value is kept in memory."""
        hurry = self._store.short_lock_waits if self._store.answers_from_memory else None
        content = await self._threads.look(hurry, self._store.read_chunk, namespace, record, seq)
        if content is not None and record.chunk_count == 1:
            name = (namespace.id, namespace.removals, record.key)
            self._memory.put(name, SmallValue(record, content), len(content))
        return content

    def _note_hits(
        self, namespace: Namespace, caller: Caller, served: Sequence[ValueRecord], asked: int
    ) -> None:
        saved_us = sum(record.saved_us for record in served)
        if served:
            self._hits.add(namespace, [record.id for record in served])
        counted = self._counted
        counted["blob_hits"] += len(served)
        counted["blob_misses"] += asked - len(served)
        counted["blob_milliseconds_saved"] += saved_us // 1000
        size = sum(record.size for record in served)
        self._audit_recorder.note(namespace, caller, _get_event(asked, len(served), size, saved_us))

    # Used by _Receiver.

    def reserve(self, size: int) -> None:
        """Raises ``ResourceExhausted`` where too much is being received at a time."""
        if self._spooled + size > MOST_SPOOLED_BYTES:
            raise ResourceExhausted(
                f"values of {self._spooled} bytes are being received already: try again later",
                limit="spool_bytes",
            )
        self._spooled += size

    def release(self, size: int) -> None:
        """Ends a reservation."""
        self._spooled -= size

    def open_spool(self) -> IO[bytes]:
        """A file without a name, which ends with its handle."""
        self._spool_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._spool_dir, prefix="blob-")

    async def write(self, file: IO[bytes], content: bytes) -> None:
        """Append to a spool."""
        await self._threads(file.write, content)

    async def store(self, caller: Caller, drafts: Sequence[ValueDraft]) -> tuple[PutOutcome, ...]:
        """Store a group, and note what came of it."""
        namespace = await self._namespaces.create(await self._namespaces.get(caller.namespace))
        put = self._quotas.insert_evicting
        outcomes = await self._writers(put, self._store.put_values, namespace, drafts, caller.actor)
        conflicts = [
            outcome.record.key.hex()
            for draft, outcome in zip(drafts, outcomes, strict=True)
            if outcome.record.digest != draft.digest
        ]
        inserted = sum(outcome.inserted for outcome in outcomes)
        self._counted["blob_inserts"] += inserted
        self._counted["blob_conflicts"] += len(conflicts)
        detail = {"values": len(drafts), "inserted": inserted, "conflicts": conflicts[:20]}
        self._audit_recorder.note(
            namespace,
            caller,
            AuditEvent(
                "blob_put",
                "conflict" if conflicts else "inserted" if inserted else "known",
                byte_count=sum(draft.size for draft in drafts),
                detail=json.dumps(detail),
            ),
        )
        return outcomes


class _Receiver:
    """Values of one call on their way in: small ones in memory, large ones in files."""

    def __init__(self, cache: BlobCache, caller: Caller) -> None:
        self._cache = cache
        self._caller = caller
        self._head: ValueHead | None = None
        self._received = 0
        self._hash = hashlib.sha256()
        self._parts: list[bytes] = []
        self._spool: IO[bytes] | None = None
        self._group: list[ValueDraft] = []
        self._open: list[IO[bytes]] = []
        self._reserved = 0
        self._keys: set[bytes] = set()
        self._outcomes: list[PutOutcome] = []

    async def take(self, head: ValueHead | None, content: bytes) -> None:
        """The next part."""
        if head is not None:
            await self._begin(head)
        elif self._head is None:
            raise ArgumentError("the first part of a value names its key", field="parts")
        assert self._head is not None
        self._received += len(content)
        if self._received > self._head.size:
            raise ArgumentError(
                f"value {self._head.key.hex()} has more bytes than size_bytes says", field="parts"
            )
        self._hash.update(content)
        if self._spool is None:
            self._parts.append(content)
        else:
            await self._cache.write(self._spool, content)

    async def finish(self) -> list[PutOutcome]:
        """The outcomes of all values, in order."""
        await self._end()
        await self._store()
        return self._outcomes

    def close(self) -> None:
        """Frees what is left of a call that failed."""
        for file in self._open:
            # On a full device closing it fails as well: the bytes in its buffer are written again.
            with contextlib.suppress(OSError):
                file.close()
        self._open.clear()
        self._cache.release(self._reserved)
        self._reserved = 0

    async def _begin(self, head: ValueHead) -> None:
        await self._end()
        head.check()
        if head.key in self._keys or len(self._keys) >= MOST_KEYS:
            raise ArgumentError(f"a call stores at most {MOST_KEYS} different keys", field="parts")
        self._keys.add(head.key)
        if self._reserved + head.size > _GROUP_BYTES and self._group:
            await self._store()
        self._cache.reserve(head.size)
        self._reserved += head.size
        self._head, self._received, self._hash, self._parts = head, 0, hashlib.sha256(), []
        if head.size > CHUNK_BYTES:
            self._spool = self._cache.open_spool()
            self._open.append(self._spool)

    async def _end(self) -> None:
        """Turns what was received into a draft. Raises ``IntegrityError`` for other bytes than announced."""
        head, self._head = self._head, None
        if head is None:
            return
        if self._received != head.size:
            raise ArgumentError(
                f"value {head.key.hex()} has {self._received} bytes; size_bytes says {head.size}",
                field="parts",
            )
        if self._hash.digest() != head.digest:
            raise IntegrityError(
                f"the bytes of value {head.key.hex()} do not match their sha256", key=head.key.hex()
            )
        spool, self._spool = self._spool, None
        if spool is None:
            content = b"".join(self._parts)
            draft = ValueDraft.of(head.key, head.digest, content, head.label, head.saved_us)
        else:
            draft = ValueDraft(
                head.key, head.digest, head.size, lambda: _read(spool), head.label, head.saved_us
            )
        self._parts = []
        self._group.append(draft)

    async def _store(self) -> None:
        group, self._group = self._group, []
        if group:
            self._outcomes += await self._cache.store(self._caller, group)
        self.close()


@lru_cache(maxsize=256)
def _get_event(asked: int, hits: int, size: int, saved_us: int) -> AuditEvent:
    return AuditEvent(
        "blob_get",
        "hit" if hits == asked else "miss",
        request_count=max(1, asked),
        byte_count=size,
        saved_us=saved_us,
        detail=json.dumps({"keys": asked, "hits": hits}),
    )


def _read(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while content := file.read(CHUNK_BYTES):
        yield content
