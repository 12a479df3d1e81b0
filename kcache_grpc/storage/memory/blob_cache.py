"""``BlobCacheStore`` in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.blob_cache import (
    CACHE_BYTES,
    CHUNK_BYTES,
    BlobCacheStore,
    PutOutcome,
    ValueConflict,
    ValueDraft,
    ValueRecord,
    ValueTotals,
)
from kcache_grpc.storage.errors import DigestMismatch, QuotaExceeded
from kcache_grpc.storage.memory.quotas import invalidate_caches, used
from kcache_grpc.storage.memory.state import HeldValue, MemoryPart, State
from kcache_grpc.storage.memory.usage_audit import hold_events
from kcache_grpc.storage.records import AuditEvent, Namespace


class MemoryBlobCache(MemoryPart, BlobCacheStore):
    """``BlobCacheStore`` in memory."""

    def put_values(
        self, namespace: Namespace, drafts: Sequence[ValueDraft], actor: str = ""
    ) -> tuple[PutOutcome, ...]:
        """Insert values whose keys are not stored; return the stored value for each.

        See ``BlobCacheStore``.
        """
        checks.values(drafts)
        checks.text("actor", actor)
        contents = [_content(draft) for draft in drafts]
        with self._state as state:
            new = {
                draft.key: draft.size
                for draft in drafts
                if (namespace.id, draft.key) not in state.cache_values
            }
            _require_room(state, namespace, sum(new.values()))
            return tuple(
                _put(state, namespace, draft, content, actor)
                for draft, content in zip(drafts, contents, strict=True)
            )

    def find_values(self, namespace: Namespace, keys: Sequence[bytes]) -> Mapping[bytes, ValueRecord]:
        checks.digests("key", keys)
        with self._state as state:
            values = {key: state.cache_values.get((namespace.id, key)) for key in keys}
            return {key: value.record for key, value in values.items() if value is not None}

    def read_chunk(self, namespace: Namespace, record: ValueRecord, seq: int) -> bytes | None:
        checks.number("chunk", seq)
        with self._state as state:
            entry = state.cache_values.get((namespace.id, record.key))
            if entry is None or entry.record.id != record.id:
                return None
            return entry.content[seq * CHUNK_BYTES : (seq + 1) * CHUNK_BYTES]

    def add_value_hits(self, namespace: Namespace, hits: Mapping[int, int]) -> None:
        with self._state as state:
            for entry in _of(state, namespace):
                if count := hits.get(entry.record.id, 0):
                    entry.hits += count
                    entry.last_used_at = state.clock.wall()

    def list_values(
        self, namespace: Namespace, after_id: int = 0, limit: int = 1000
    ) -> tuple[ValueRecord, ...]:
        checks.number("id or limit", after_id, limit)
        with self._state as state:
            records = sorted((entry.record for entry in _of(state, namespace)), key=lambda record: record.id)
            return tuple(record for record in records if record.id > after_id)[:limit]

    def list_value_conflicts(self, namespace: Namespace, limit: int = 100) -> tuple[ValueConflict, ...]:
        checks.number("limit", limit)
        with self._state as state:
            mine = [conflict for name, conflict in state.cache_conflicts.items() if name[0] == namespace.id]
            return tuple(reversed(mine))[:limit]

    def value_totals(self, namespace: Namespace) -> ValueTotals:
        with self._state as state:
            values = list(_of(state, namespace))
            return ValueTotals(
                len(values),
                sum(value.record.size for value in values),
                sum(value.hits for value in values) + state.removed_value_hits[namespace.id],
                sum(value.hits * value.record.saved_us for value in values)
                + state.removed_value_saved_us[namespace.id],
            )

    def remove_values(
        self,
        namespace: Namespace,
        unused_since: int,
        amount: int | None = None,
        *,
        reason: str = "idle",
        dry_run: bool = False,
    ) -> tuple[int, int]:
        """Remove unused values, longest unused first; return their number and bytes.

        See ``BlobCacheStore``.
        """
        checks.number("time", unused_since)
        with self._state as state:
            idle = [entry for entry in _of(state, namespace) if _last_use(entry) < unused_since]
            count = size = 0
            for entry in sorted(idle, key=lambda value: (_last_use(value), value.record.id)):
                if amount is not None and size >= amount:
                    break
                count, size = count + 1, size + entry.record.size
                if not dry_run:
                    del state.cache_values[namespace.id, entry.record.key]
                    state.removed_value_hits[namespace.id] += entry.hits
                    state.removed_value_saved_us[namespace.id] += entry.hits * entry.record.saved_us
            if count and not dry_run:
                detail = json.dumps({"table": "cache_values", "rows": count, "reason": reason})
                hold_events(state, namespace, [AuditEvent("collect", "ok", detail=detail)])
                invalidate_caches(state, namespace.id)
            return count, size


def _of(state: State, namespace: Namespace) -> list[HeldValue]:
    return [entry for name, entry in state.cache_values.items() if name[0] == namespace.id]


def _last_use(entry: HeldValue) -> int:
    return max(entry.last_used_at, entry.record.created_at)


def _content(draft: ValueDraft) -> bytes:
    content = b"".join(draft.chunks())
    if len(content) != draft.size or hashlib.sha256(content).digest() != draft.digest:
        raise DigestMismatch(f"the bytes of value {draft.key.hex()} do not match their digest")
    return content


def _require_room(state: State, namespace: Namespace, new: int) -> None:
    quota = state.quotas.get((namespace.id, CACHE_BYTES))
    if quota is None or not new:
        return
    total = used(state, namespace, CACHE_BYTES) + new
    if total > quota[0]:
        raise QuotaExceeded(namespace.name, CACHE_BYTES, quota[0], total, quota[1])


def _put(state: State, namespace: Namespace, draft: ValueDraft, content: bytes, actor: str) -> PutOutcome:
    entry = state.cache_values.get((namespace.id, draft.key))
    now = state.clock.wall()
    if entry is None:
        state.last_value_id += 1
        record = ValueRecord(
            state.last_value_id, draft.key, draft.digest, draft.size, draft.label, draft.saved_us, now
        )
        state.cache_values[namespace.id, draft.key] = HeldValue(record, content)
        return PutOutcome(record, inserted=True)
    if entry.record.digest != draft.digest:
        name = (namespace.id, draft.key, draft.digest)
        conflict = ValueConflict(draft.key, entry.record.digest, draft.digest, actor, now)
        state.cache_conflicts.setdefault(name, conflict)
    return PutOutcome(entry.record, inserted=False)
