"""Removal of rows on SQL: one transaction removes rows and what only they refer to, and updates the totals.

On Postgres, a transaction that is about to refer to a row locks it (``FOR KEY SHARE``), and collection skips
locked rows. Once collection has locked a row, it reads again whether the row is unused, with a snapshot that
is younger than the lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, Select, bindparam, delete, exists, func, select

from kcache_grpc.storage.records import AuditEvent, Namespace
from kcache_grpc.storage.schema import (
    artifacts,
    constants,
    graph_mappings,
    kernel_artifacts,
    kernels,
    mapping_constants,
    quarantine,
    usage,
)
from kcache_grpc.storage.sql.audit.usage_audit import ADD_USAGE, REMOVED_KERNELS, insert_events
from kcache_grpc.storage.sql.blobs.blobs import tombstone_objects
from kcache_grpc.storage.sql.blobs.generations import IN_QUARANTINE
from kcache_grpc.storage.sql.engine.bulk import batches
from kcache_grpc.storage.sql.engine.database import Database, Removal, Row
from kcache_grpc.storage.sql.gc.candidates import UNUSED
from kcache_grpc.storage.sql.quotas import decrement_quotas

#: The digest under which the usage of removed subjects is added up, so that totals stay what they were.
REMOVED_SUBJECT = bytes(32)
#: Digests that an audit event of a removal names.
_MOST_NAMED = 200

_NS: BindParameter[int] = bindparam("ns")
_IDS: BindParameter[list[int]] = bindparam("ids", expanding=True)
_OF_SUBJECT = (
    usage.c.namespace_id == _NS,
    usage.c.subject == bindparam("subject"),
    usage.c.digest.in_(bindparam("digests", expanding=True)),
)
_TOTALS = select(
    func.coalesce(func.sum(usage.c.hits), 0).label("hits"),
    func.coalesce(func.sum(usage.c.saved_us), 0).label("saved"),
).where(*_OF_SUBJECT)
_DELETE_USAGE = delete(usage).where(*_OF_SUBJECT)
_PRESENT: dict[str, Select[Any]] = {
    "kernel": select(kernels.c.kernel_digest.label("digest")).where(
        kernels.c.namespace_id == _NS,
        kernels.c.epoch == bindparam("epoch"),
        kernels.c.kernel_digest.in_(bindparam("digests", expanding=True)),
    ),
    "mapping": select(graph_mappings.c.program_digest.label("digest")).where(
        graph_mappings.c.namespace_id == _NS,
        graph_mappings.c.epoch == bindparam("epoch"),
        graph_mappings.c.program_digest.in_(bindparam("digests", expanding=True)),
    ),
}

_BLOBS_OF = select(kernel_artifacts.c.artifact_id).where(kernel_artifacts.c.kernel_id.in_(_IDS)).distinct()
_LOCK_BLOBS = select(artifacts.c.id).where(artifacts.c.id.in_(_IDS)).with_for_update(skip_locked=True)
_UNUSED_BLOBS = select(artifacts.c.id, artifacts.c.size).where(artifacts.c.id.in_(_IDS), *UNUSED)
_QUARANTINED = (
    select(quarantine.c.artifact_id)
    .where(quarantine.c.artifact_id.in_(_IDS), exists().where(IN_QUARANTINE))
    .distinct()
)
_LOCK_CONSTANTS = (
    select(constants.c.artifact_id.label("id"))
    .where(constants.c.artifact_id.in_(_IDS))
    .with_for_update(skip_locked=True)
)
_UNUSED_CONSTANTS = select(constants.c.artifact_id.label("id")).where(
    constants.c.artifact_id.in_(_IDS),
    ~exists().where(
        mapping_constants.c.namespace_id == constants.c.namespace_id,
        mapping_constants.c.digest == constants.c.digest,
    ),
)


class RemovalTransaction:
    """The statements of one transaction that removes rows; ``finalize`` is the last.

    ``rows``, ``blobs`` and ``blob_bytes`` count what was removed.
    """

    def __init__(
        self, database: Database, connection: Connection, namespace: Namespace, removal: Removal
    ) -> None:
        self._db = database
        self._connection = connection
        self._namespace = namespace
        self._removal = removal
        self._counts: dict[str, int] = {}
        self.rows = self.blobs = self.blob_bytes = 0

    def kernels(self, rows: Sequence[Row], *, keep_blobs: bool = False) -> None:
        """Remove kernels, which are locked, and the blobs that nothing else refers to."""
        ids = [row.id for row in rows]
        if not ids:
            return
        linked = self._ids(_BLOBS_OF, ids)
        for table in ("kernel_ingredients", "kernel_artifacts"):
            self._collect(table, "kernel_id", ids)
        removed = self._collect("kernels", "id", ids)
        self._count("kernels", removed)
        self._add_usage(REMOVED_KERNELS, removed, 0)
        if not keep_blobs:
            self._unused_blobs(linked)
        self._merge_usage("kernel", {row.kernel_digest for row in rows})
        self._write_event("kernels", [row.kernel_digest for row in rows])
        self.rows += removed

    def mappings(self, rows: Sequence[Row]) -> None:
        """Remove mappings, which are locked. Constants that only they lifted are collected on their own."""
        ids = [row.id for row in rows]
        if not ids:
            return
        self._collect("mapping_constants", "mapping_id", ids)
        removed = self._collect("graph_mappings", "id", ids)
        self._count("mappings", removed)
        self._merge_usage("mapping", {row.program_digest for row in rows})
        self._write_event("mappings", [row.program_digest for row in rows])
        self.rows += removed

    def constants(self, blobs: Sequence[int]) -> None:
        """Remove constants, given by their blobs, that no mapping lifts."""
        unused = self._ids(_UNUSED_CONSTANTS, self._ids(_LOCK_CONSTANTS, blobs))
        self.rows += self._collect("constants", "artifact_id", unused)
        self._unused_blobs(unused)

    def programs(self, blobs: Sequence[int]) -> None:
        """Remove stored programs, given by their blobs."""
        self.rows += self._collect("programs", "artifact_id", blobs)
        self._unused_blobs(blobs)

    def unused_blobs(self, blobs: Sequence[int]) -> None:
        """Remove those of these blobs that nothing refers to."""
        self.rows += self._unused_blobs(blobs)

    def quarantined(self, blobs: Sequence[int]) -> None:
        """Remove the quarantined bytes of these blobs; the blobs stay."""
        blob_ids = self._ids(_QUARANTINED, self._ids(_LOCK_BLOBS, blobs))
        tombstone_objects(self._connection, blob_ids, self._removal.at, quarantined=True)
        self._collect("artifact_chunks", "quarantined", blob_ids)
        self.rows += len(blob_ids)

    def finalize(self) -> None:
        """Decrement the quotas by what was removed, and invalidate caches. Last in the transaction."""
        if self.rows:
            decrement_quotas(self._connection, self._namespace, self._counts)

    def _unused_blobs(self, blobs: Sequence[int]) -> int:
        locked = self._ids(_LOCK_BLOBS, blobs)
        sizes: dict[int, int] = {}
        for batch in batches(locked):
            for row in self._connection.execute(_UNUSED_BLOBS, {"ids": batch}):
                sizes[row.id] = row.size
        unused = sorted(sizes)
        if unused:
            tombstone_objects(self._connection, unused, self._removal.at)
            for table in ("artifact_chunks", "quarantine"):
                self._collect(table, "artifact_id", unused)
            self._collect("artifacts", "id", unused)
        self._count("artifact_bytes", sum(sizes.values()))
        self.blobs += len(unused)
        self.blob_bytes += sum(sizes.values())
        return len(unused)

    def _collect(self, table: str, column: str, ids: Sequence[int]) -> int:
        return self._db.collect(self._connection, table, column, ids, self._removal) if ids else 0

    def _ids(self, statement: Select[Any], ids: Sequence[int]) -> list[int]:
        result: set[int] = set()
        for batch in batches(ids):
            result.update(row[0] for row in self._connection.execute(statement, {"ids": batch}))
        return sorted(result)

    def _count(self, resource: str, amount: int) -> None:
        self._counts[resource] = self._counts.get(resource, 0) + amount

    def _merge_usage(self, subject: str, digests: Iterable[bytes]) -> None:
        """Add the usage of subjects without a row in the current epoch to ``REMOVED_SUBJECT``."""
        name = {"ns": self._namespace.id, "subject": subject}
        for batch in batches(sorted(digests)):
            present = {**name, "epoch": self._namespace.epoch, "digests": batch}
            left = {row.digest for row in self._connection.execute(_PRESENT[subject], present)}
            gone = {**name, "digests": [digest for digest in batch if digest not in left]}
            if not gone["digests"]:
                continue
            total = self._connection.execute(_TOTALS, gone).one()
            self._connection.execute(_DELETE_USAGE, gone)
            if total.hits or total.saved:
                self._add_usage(subject, int(total.hits), int(total.saved))

    def _add_usage(self, subject: str, hits: int, saved_us: int) -> None:
        """Add to the totals of removed subjects."""
        values = {"namespace_id": self._namespace.id, "subject": subject, "digest": REMOVED_SUBJECT}
        sums = {"hits": hits, "saved_us": saved_us, "last_used_at": 0}
        ADD_USAGE.execute(self._connection, [values | sums])

    def _write_event(self, subject: str, digests: Sequence[bytes]) -> None:
        """Write audit events with the digests of removed rows; ``Database.collect`` writes the counts."""
        for start in range(0, len(digests), _MOST_NAMED):
            named = [digest.hex() for digest in digests[start : start + _MOST_NAMED]]
            detail = json.dumps({"reason": self._removal.reason, subject: named})
            event = AuditEvent("collect", outcome=subject, detail=detail)
            insert_events(self._connection, self._namespace, [event], self._removal.writer, self._removal.at)
