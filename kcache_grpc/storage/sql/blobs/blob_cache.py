"""``BlobCacheStore`` on SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from sqlalchemy import BindParameter, Connection, bindparam, case, delete, func, select

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
    rechunked,
)
from kcache_grpc.storage.errors import DigestMismatch, StoreUnavailable
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.schema import cache_chunks, cache_conflicts, cache_totals, cache_usage, cache_values
from kcache_grpc.storage.sql.engine.bulk import BulkInsert, batches, insert_once, up_to_size
from kcache_grpc.storage.sql.engine.database import Removal, Row, SqlPart
from kcache_grpc.storage.sql.quotas import Charge, decrement_quotas

_V = cache_values.c
_NS: BindParameter[int] = bindparam("ns")
_COLUMNS = (_V.id, _V.key, _V.digest, _V.size, _V.label, _V.saved_us, _V.created_at)
_FIND = select(*_COLUMNS).where(_V.namespace_id == _NS, _V.key.in_(bindparam("keys", expanding=True)))
_LIST = (
    select(*_COLUMNS)
    .where(_V.namespace_id == _NS, _V.id > bindparam("after"))
    .order_by(_V.id)
    .limit(bindparam("most"))
)
_INSERT = insert_once(cache_values).returning(_V.id, _V.created_at)
_INSERT_CHUNK = insert_once(cache_chunks)
_INSERT_CONFLICT = insert_once(cache_conflicts)
_CHUNK = select(cache_chunks.c.content, cache_chunks.c.digest).where(
    cache_chunks.c.value_id == bindparam("value_id"), cache_chunks.c.seq == bindparam("chunk")
)
#: Locked in the order of ids: two transactions never wait for each other.
_PRESENT = (
    select(_V.id)
    .where(_V.id.in_(bindparam("ids", expanding=True)))
    .order_by(_V.id)
    .with_for_update(key_share=True)
)
_HITS = BulkInsert(
    cache_usage,
    ("value_id", "hits", "last_used_at"),
    lambda rows: rows.on_conflict_do_update(
        index_elements=["value_id"],
        set_={
            "hits": cache_usage.c.hits + rows.excluded.hits,
            "last_used_at": case(
                (rows.excluded.last_used_at > cache_usage.c.last_used_at, rows.excluded.last_used_at),
                else_=cache_usage.c.last_used_at,
            ),
        },
    ),
)
_CONFLICT = select(cache_conflicts.c.id).where(
    cache_conflicts.c.namespace_id == _NS,
    cache_conflicts.c.key == bindparam("named"),
    cache_conflicts.c.offered == bindparam("other"),
)
_CONFLICTS = (
    select(cache_conflicts)
    .where(cache_conflicts.c.namespace_id == _NS)
    .order_by(cache_conflicts.c.id.desc())
    .limit(bindparam("most"))
)
_WITH_USAGE = cache_values.outerjoin(cache_usage, cache_usage.c.value_id == _V.id)
_TOTALS = (
    select(
        func.count().label("count"),
        func.coalesce(func.sum(_V.size), 0).label("bytes"),
        func.coalesce(func.sum(cache_usage.c.hits), 0).label("hits"),
        func.coalesce(func.sum(cache_usage.c.hits * _V.saved_us), 0).label("saved"),
    )
    .select_from(_WITH_USAGE)
    .where(_V.namespace_id == _NS)
)
_REMOVED_TOTALS = select(cache_totals.c.hits, cache_totals.c.saved_us).where(
    cache_totals.c.namespace_id == _NS
)
_SUM_USAGE = (
    select(
        func.coalesce(func.sum(cache_usage.c.hits), 0).label("hits"),
        func.coalesce(func.sum(cache_usage.c.hits * _V.saved_us), 0).label("saved_us"),
    )
    .join_from(cache_usage, cache_values, cache_usage.c.value_id == _V.id)
    .where(_V.id.in_(bindparam("ids", expanding=True)))
)
_ADD_TOTALS = BulkInsert(
    cache_totals,
    ("namespace_id", "hits", "saved_us"),
    lambda rows: rows.on_conflict_do_update(
        index_elements=["namespace_id"],
        set_={
            "hits": cache_totals.c.hits + rows.excluded.hits,
            "saved_us": cache_totals.c.saved_us + rows.excluded.saved_us,
        },
    ),
)
_LAST_USE = func.coalesce(cache_usage.c.last_used_at, _V.created_at)
_IDLE = (
    select(_V.id, _V.size)
    .select_from(_WITH_USAGE)
    .where(_V.namespace_id == _NS, bindparam("before") > _LAST_USE, _V.created_at < bindparam("before"))
    .order_by(_LAST_USE, _V.id)
    .limit(bindparam("most"))
)
_FORGET_USAGE = delete(cache_usage).where(cache_usage.c.value_id.in_(bindparam("ids", expanding=True)))
#: Values of one transaction that removes, and attempts to insert during one.
_BATCH, _TRIES = 500, 10


class SqlBlobCache(SqlPart, BlobCacheStore):
    """``BlobCacheStore`` on SQL: chunk rows of 1 MiB."""

    def put_values(
        self, namespace: Namespace, drafts: Sequence[ValueDraft], actor: str = ""
    ) -> tuple[PutOutcome, ...]:
        """Insert values whose keys are not stored, in one transaction; return the stored value for each.

        See ``BlobCacheStore``.
        """
        checks.values(drafts)
        checks.text("actor", actor)
        now = self._clock.wall()

        def work(connection: Connection) -> dict[int, PutOutcome]:
            charge = Charge(connection, namespace)
            # In the order of keys: two writers of the same keys never wait for each other.
            order = sorted(range(len(drafts)), key=lambda index: drafts[index].key)
            done = {index: _put(connection, namespace, drafts[index], now, charge, actor) for index in order}
            charge.apply()
            return done

        outcomes = self._db.transact(work)
        return tuple(outcomes[index] for index in range(len(drafts)))

    def find_values(self, namespace: Namespace, keys: Sequence[bytes]) -> Mapping[bytes, ValueRecord]:
        checks.digests("key", keys)
        records: dict[bytes, ValueRecord] = {}
        for batch in batches(keys):
            for row in self._db.fetch(_FIND, {"ns": namespace.id, "keys": list(batch)}):
                records[row.key] = _record(row)
        return records

    def read_chunk(self, namespace: Namespace, record: ValueRecord, seq: int) -> bytes | None:
        checks.number("chunk", seq)
        rows = self._db.fetch(_CHUNK, {"value_id": record.id, "chunk": seq})
        size = min(CHUNK_BYTES, record.size - seq * CHUNK_BYTES)
        if rows and len(rows[0].content) == size:
            content = bytes(rows[0].content)
            if hashlib.sha256(content).digest() == rows[0].digest:
                return content
        still = self.find_values(namespace, [record.key]).get(record.key)
        if still is not None and still.id == record.id:
            self._remove(namespace, [record.id], [record.size], f"chunk {seq} is damaged")
        return None

    def add_value_hits(self, namespace: Namespace, hits: Mapping[int, int]) -> None:
        now = self._clock.wall()

        def work(connection: Connection) -> None:
            for batch in batches(sorted(hits)):
                present = sorted(connection.execute(_PRESENT, {"ids": list(batch)}).scalars())
                rows = [{"value_id": number, "hits": hits[number], "last_used_at": now} for number in present]
                if rows:
                    _HITS.execute(connection, rows)

        if hits:
            self._db.transact(work, durable=False)

    def list_values(
        self, namespace: Namespace, after_id: int = 0, limit: int = 1000
    ) -> tuple[ValueRecord, ...]:
        checks.number("id or limit", after_id, limit)
        rows = self._db.fetch(_LIST, {"ns": namespace.id, "after": after_id, "most": limit})
        return tuple(map(_record, rows))

    def list_value_conflicts(self, namespace: Namespace, limit: int = 100) -> tuple[ValueConflict, ...]:
        checks.number("limit", limit)
        rows = self._db.fetch(_CONFLICTS, {"ns": namespace.id, "most": limit})
        return tuple(ValueConflict(row.key, row.kept, row.offered, row.actor, row.created_at) for row in rows)

    def value_totals(self, namespace: Namespace) -> ValueTotals:
        row = self._db.fetch(_TOTALS, {"ns": namespace.id})[0]
        removed = self._db.fetch(_REMOVED_TOTALS, {"ns": namespace.id})
        hits, saved = (removed[0].hits, removed[0].saved_us) if removed else (0, 0)
        return ValueTotals(int(row.count), int(row.bytes), int(row.hits) + hits, int(row.saved) + saved)

    def remove_values(
        self,
        namespace: Namespace,
        unused_since: int,
        amount: int | None = None,
        *,
        reason: str = "idle",
        dry_run: bool = False,
    ) -> tuple[int, int]:
        """Remove unused values, longest unused first, a batch per transaction; return their number and bytes.

        See ``BlobCacheStore``.
        """
        checks.number("time", unused_since)
        count = size = 0
        most = 2**31 if dry_run else _BATCH
        values = {"ns": namespace.id, "before": unused_since, "most": most}
        while amount is None or size < amount:
            rows = self._db.fetch(_IDLE, values)
            chosen = up_to_size(rows, None if amount is None else amount - size)
            if not chosen:
                break
            if not dry_run:
                removed = self._remove(
                    namespace, [row.id for row in chosen], [row.size for row in chosen], reason
                )
                if not removed:
                    break
            count, size = count + len(chosen), size + sum(row.size for row in chosen)
            if dry_run or len(rows) < most:
                break
        return count, size

    def _remove(self, namespace: Namespace, ids: Sequence[int], sizes: Sequence[int], reason: str) -> int:
        size_of = dict(zip(ids, sizes, strict=True))

        def work(connection: Connection) -> int:
            removal = Removal(namespace.id, namespace.epoch, self._writer, self._clock.wall(), reason)
            # Locked first: nobody counts a hit of these values until they are gone.
            present = [
                number
                for batch in batches(sorted(ids))
                for number in connection.execute(_PRESENT, {"ids": list(batch)}).scalars()
            ]
            if not present:
                return 0
            _merge_usage(connection, namespace, present)
            self._db.collect(connection, "cache_chunks", "value_id", present, removal)
            removed = self._db.collect(connection, "cache_values", "id", present, removal)
            decrement_quotas(connection, namespace, {CACHE_BYTES: sum(size_of[number] for number in present)})
            return removed

        return self._db.transact(work)


def _put(
    connection: Connection,
    namespace: Namespace,
    draft: ValueDraft,
    now: int,
    charge: Charge,
    actor: str,
) -> PutOutcome:
    """Insert a value or find the stored one of its key; a different value is stored as a conflict."""
    name = {"ns": namespace.id, "keys": [draft.key]}
    for _ in range(_TRIES):
        row = connection.execute(_FIND, name).first()
        if row is not None:
            record = _record(row)
            if record.digest != draft.digest:
                _record_conflict(connection, namespace, draft, record.digest, actor, now)
            return PutOutcome(record, inserted=False)
        values = {"namespace_id": namespace.id, "key": draft.key, "digest": draft.digest, "size": draft.size}
        values |= {"label": draft.label, "saved_us": draft.saved_us, "created_at": now}
        inserted = connection.execute(_INSERT, values).first()
        if inserted is not None:
            _insert_chunks(connection, int(inserted.id), draft)
            charge.add(CACHE_BYTES, draft.size)
            record = ValueRecord(
                int(inserted.id), draft.key, draft.digest, draft.size, draft.label, draft.saved_us, now
            )
            return PutOutcome(record, inserted=True)
    raise StoreUnavailable(f"value {draft.key.hex()} is removed as often as it is written: ask again")


def _merge_usage(connection: Connection, namespace: Namespace, ids: Sequence[int]) -> None:
    """Add the hits of values that are about to be removed to the totals of their namespace."""
    for batch in batches(ids):
        total = connection.execute(_SUM_USAGE, {"ids": list(batch)}).one()
        connection.execute(_FORGET_USAGE, {"ids": list(batch)})
        if total.hits:
            sums = {"hits": int(total.hits), "saved_us": int(total.saved_us)}
            _ADD_TOTALS.execute(connection, [{"namespace_id": namespace.id, **sums}])


def _record_conflict(
    connection: Connection, namespace: Namespace, draft: ValueDraft, stored: bytes, actor: str, now: int
) -> None:
    name = {"ns": namespace.id, "named": draft.key, "other": draft.digest}
    if connection.execute(_CONFLICT, name).first() is None:
        values = {"namespace_id": namespace.id, "key": draft.key, "kept": stored, "offered": draft.digest}
        connection.execute(_INSERT_CONFLICT, {**values, "actor": actor, "created_at": now})


def _insert_chunks(connection: Connection, value_id: int, draft: ValueDraft) -> None:
    """One row at a time: a value is never in memory as a whole. Raises ``DigestMismatch``."""
    digest, size = hashlib.sha256(), 0
    for seq, content in enumerate(rechunked(draft.chunks())):
        digest.update(content)
        size += len(content)
        row = {"value_id": value_id, "seq": seq, "content": content}
        connection.execute(_INSERT_CHUNK, {**row, "digest": hashlib.sha256(content).digest()})
    if size != draft.size or digest.digest() != draft.digest:
        raise DigestMismatch(f"the bytes of value {draft.key.hex()} do not match their digest")


def _record(row: Row) -> ValueRecord:
    return ValueRecord(row.id, row.key, row.digest, row.size, row.label, row.saved_us, row.created_at)
