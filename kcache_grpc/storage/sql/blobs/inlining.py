"""Leaving an object store: its bytes become rows, generation by generation."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import Connection, bindparam, select

from kcache_grpc.storage.errors import CorruptStore
from kcache_grpc.storage.records import Blob, Inlined, Namespace
from kcache_grpc.storage.schema import artifact_chunks, artifacts, quarantine
from kcache_grpc.storage.sql.blobs.blobs import SqlBlobs, write_generation
from kcache_grpc.storage.sql.blobs.generations import IN_QUARANTINE, KEEP_ARTIFACT
from kcache_grpc.storage.sql.engine.bulk import insert_once

#: Blobs of one page.
_PAGE = 100
_MOVED = "the bytes were moved into the database"

#: Blobs with a generation in the object store that is served, or would be.
_BLOBS = (
    select(artifacts.c.id, artifacts.c.digest, artifacts.c.size)
    .where(
        artifacts.c.namespace_id == bindparam("ns"),
        artifacts.c.id > bindparam("after"),
        select(artifact_chunks.c.seq)
        .outerjoin(quarantine, IN_QUARANTINE)
        .where(
            artifact_chunks.c.artifact_id == artifacts.c.id,
            artifact_chunks.c.location.is_not(None),
            quarantine.c.artifact_id.is_(None),
        )
        .correlate(artifacts)
        .exists(),
    )
    .order_by(artifacts.c.id)
    .limit(_PAGE)
)
_GENERATIONS = (
    select(artifact_chunks.c.generation)
    .where(artifact_chunks.c.artifact_id == bindparam("artifact_id"), artifact_chunks.c.location.is_not(None))
    .distinct()
)
_INSERT_QUARANTINE = insert_once(quarantine)


class SqlInlining(SqlBlobs):
    """``BlobStore.inline_objects`` on SQL."""

    def inline_objects(self, namespace: Namespace, *, dry_run: bool = False) -> Inlined:
        total, after = Inlined(), 0
        while rows := self._db.fetch(_BLOBS, {"ns": namespace.id, "after": after}):
            for row in rows:
                total += Inlined(1, row.size) if dry_run else self._inline(namespace, row)
            after = rows[-1].id
        return total

    def _inline(self, namespace: Namespace, row: Any) -> Inlined:
        """Reads in full and checks, then writes rows and disowns the object, in one transaction."""
        content = self.read_artifact(namespace, row.digest)
        if content is None:  # it has been quarantined, or collected meanwhile
            return Inlined(lost=1)
        if hashlib.sha256(content).digest() != row.digest:
            raise CorruptStore(f"blob {row.digest.hex()} does not hash to its digest: run kcache doctor")
        now = self._clock.wall()

        def work(connection: Connection) -> bool:
            of = {"artifact_id": row.id}
            if connection.execute(KEEP_ARTIFACT, of).first() is None:
                return False
            write_generation(connection, row.id, Blob(row.digest, content))
            for (generation,) in connection.execute(_GENERATIONS, of).all():
                entry = {**of, "generation": generation, "reason": _MOVED, "created_at": now}
                connection.execute(_INSERT_QUARANTINE, entry)
            return True

        return Inlined(1, row.size) if self._db.transact(work) else Inlined()
