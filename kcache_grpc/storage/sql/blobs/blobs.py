"""Bytes by digest on SQL: chunk rows in generations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, exists, func, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import CHUNK_BYTES, BlobStore
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.objects import Lost
from kcache_grpc.storage.objects.placing import Placing, chunk_digests
from kcache_grpc.storage.records import Blob, Namespace, Swept
from kcache_grpc.storage.schema import (
    artifact_chunks,
    artifacts,
    constants,
    dead_objects,
    programs,
    quarantine,
)
from kcache_grpc.storage.sql.blobs.generations import IN_QUARANTINE, KEEP_ARTIFACT, WHOLE, SqlGenerations
from kcache_grpc.storage.sql.blobs.object_store import require_bound, sweep
from kcache_grpc.storage.sql.engine.bulk import BulkInsert, Probe, batches, insert_once
from kcache_grpc.storage.sql.quotas import Charge

_NS: BindParameter[int] = bindparam("ns")
_CHUNK = artifact_chunks.c
_ARTIFACT = select(artifacts.c.id, artifacts.c.size).where(
    artifacts.c.namespace_id == _NS, artifacts.c.digest == bindparam("digest")
)
_ARTIFACTS = Probe(select(artifacts.c.digest).where(artifacts.c.namespace_id == _NS), artifacts.c.digest)
#: How often a row is looked for and written, when other transactions write and collect it meanwhile.
TRIES = 10

_INSERT_ARTIFACT = insert_once(artifacts).returning(artifacts.c.id)
_INSERT_CHUNK = insert_once(artifact_chunks)
_INSERT_ARTIFACTS = BulkInsert(
    artifacts,
    ("namespace_id", "digest", "size", "created_at"),
    lambda rows: rows.on_conflict_do_nothing().returning(artifacts.c.id, artifacts.c.digest),
)

_NEWEST_CHUNK = select(func.max(_CHUNK.generation)).where(_CHUNK.artifact_id == bindparam("artifact_id"))
_NEWEST_BAD = select(func.max(quarantine.c.generation)).where(
    quarantine.c.artifact_id == bindparam("artifact_id")
)
_OBJECTS = (
    select(_CHUNK.location, func.sum(_CHUNK.size).label("size"))
    .where(_CHUNK.artifact_id.in_(bindparam("ids", expanding=True)), _CHUNK.location.is_not(None))
    .group_by(_CHUNK.location)
)
_QUARANTINED_OBJECTS = _OBJECTS.where(exists().where(IN_QUARANTINE))
_INSERT_DEAD = insert_once(dead_objects)
_INSERT_CONSTANT = insert_once(constants)
_CONSTANT_EXISTS = (
    select(constants.c.digest)
    .where(constants.c.namespace_id == _NS, constants.c.digest == bindparam("digest"))
    .with_for_update(read=True, key_share=True)
)
_PROGRAM = (
    select(programs.c.format, artifacts.c.digest)
    .join_from(programs, artifacts, artifacts.c.id == programs.c.artifact_id)
    .where(programs.c.namespace_id == _NS, programs.c.program_digest == bindparam("digest"))
)
_INSERT_PROGRAM = insert_once(programs)


class SqlBlobs(SqlGenerations, BlobStore):
    """``BlobStore`` on SQL, with or without an object store."""

    def put_constants(self, namespace: Namespace, constants: Sequence[Blob]) -> None:
        for constant in constants:
            checks.named_bytes("constant", constant.digest, constant.content)
        now = self._clock.wall()

        def work(connection: Connection, placing: Placing) -> None:
            charge = Charge(connection, namespace)
            store_constants(connection, namespace, constants, now, charge, placing)
            charge.apply()

        self._transact_with(namespace, constants, work)

    def put_program(self, namespace: Namespace, program_digest: bytes, format: str, body: bytes) -> None:
        """Store the bytes of a program, unless other bytes are stored under its digest.

        Missing or quarantined bytes are repaired. Raises ``QuotaExceeded``.
        """
        checks.digest("program digest", program_digest)
        checks.indexed("format", format)

        blob = Blob(hashlib.sha256(body).digest(), body)

        def work(connection: Connection, placing: Placing) -> None:
            name = {"ns": namespace.id, "digest": program_digest}
            row = connection.execute(_PROGRAM, name).first()
            if row is not None and row.digest != blob.digest:
                return
            now = self._clock.wall()
            charge = Charge(connection, namespace)
            artifact_id, _ = store_blob(connection, namespace, blob, now, charge, placing)
            charge.apply()
            if row is None:
                values = {"namespace_id": namespace.id, "program_digest": program_digest, "format": format}
                connection.execute(_INSERT_PROGRAM, {**values, "artifact_id": artifact_id, "created_at": now})

        self._transact_with(namespace, [blob], work)

    def get_program(self, namespace: Namespace, program_digest: bytes) -> tuple[str, bytes] | None:
        checks.digest("program digest", program_digest)
        rows = self._db.fetch(_PROGRAM, {"ns": namespace.id, "digest": program_digest})
        body = self.read_artifact(namespace, rows[0].digest) if rows else None
        return None if body is None else (rows[0].format, body)

    def artifact_size(self, namespace: Namespace, digest: bytes) -> int | None:
        row = self._whole(namespace, digest)
        return None if row is None else row.size

    def read_artifact(
        self, namespace: Namespace, digest: bytes, offset: int = 0, length: int | None = None
    ) -> bytes | None:
        """Return bytes of a blob from ``offset``, at most ``length``, or None if it is not stored whole.

        Reads and checks only the chunks that it needs. A generation that fails the check is quarantined, and
        an earlier whole one is read instead.
        """
        checks.number("offset", offset, 0 if length is None else length)
        checks.digest("digest", digest)
        if offset == 0 and length is None and (small := self._read_small(namespace, digest)) is not None:
            return small
        while (row := self._whole(namespace, digest)) is not None:
            end = row.size if length is None else min(row.size, offset + length)
            if offset >= end:
                return b""
            first = offset // CHUNK_BYTES
            try:
                chunks = self._read(row, digest, first, (end - 1) // CHUNK_BYTES)
            except Lost as loss:
                self._quarantine(namespace, row.id, row.generation, loss.message)
                continue
            if chunks is None:  # collected meanwhile
                return None
            start = first * CHUNK_BYTES
            content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            exact = offset == start and len(content) == end - start
            return content if exact else content[offset - start : end - start]
        return None

    def verify_artifact(self, namespace: Namespace, digest: bytes, *, quarantine: bool = True) -> bool:
        while (row := self._whole(namespace, digest)) is not None:
            fault = self._fault(row, digest)
            if not fault:
                return True
            if not quarantine:
                return False
            self._quarantine(namespace, row.id, row.generation, fault)
        return False

    def sweep_objects(self, grace: float, *, dry_run: bool = False, now: int | None = None) -> Swept:
        if self._objects is None:
            return Swept()
        return sweep(self._db, self._clock, self._objects, grace, dry_run, now)

    def quarantine_artifact(self, namespace: Namespace, digest: bytes, reason: str) -> bool:
        checks.text("reason", reason)
        row = self._whole(namespace, digest)
        if row is None:
            return False
        self._quarantine(namespace, row.id, row.generation, reason)
        return True


def store_constants(
    connection: Connection,
    namespace: Namespace,
    drafts: Iterable[Blob],
    now: int,
    charge: Charge,
    placing: Placing | None = None,
) -> None:
    """Store constants that are not there, in digest order, so that two writers never wait for each other."""
    for digest, draft in sorted({draft.digest: draft for draft in drafts}.items()):
        artifact_id, _ = store_blob(connection, namespace, draft, now, charge, placing)
        if connection.execute(_CONSTANT_EXISTS, {"ns": namespace.id, "digest": digest}).first() is None:
            values = {"namespace_id": namespace.id, "digest": digest, "artifact_id": artifact_id}
            connection.execute(_INSERT_CONSTANT, {**values, "created_at": now})


def store_blobs(
    connection: Connection,
    namespace: Namespace,
    drafts: Iterable[Blob],
    now: int,
    charge: Charge,
    placing: Placing | None = None,
) -> dict[bytes, int]:
    """The rows of blobs by digest, as ``store_blob`` for each; new ones take three statements for all.

    Inserted in digest order: two publishers of shared bytes never wait for each other.
    """
    blobs = {blob.digest: blob for blob in sorted(drafts, key=lambda blob: blob.digest)}
    there = _ARTIFACTS.rows(connection, {"ns": namespace.id}, list(blobs)) if blobs else ()
    known: set[bytes] = {row.digest for row in there}
    rows = [
        {"namespace_id": namespace.id, "digest": blob.digest, "size": len(blob.content), "created_at": now}
        for blob in blobs.values()
        if blob.digest not in known
    ]
    inserted = _INSERT_ARTIFACTS.execute(connection, rows).all() if rows else ()
    ids: dict[bytes, int] = {row.digest: row.id for row in inserted}
    charge.add("artifact_bytes", sum(len(blobs[digest].content) for digest in ids))
    # A row of this transaction has no bytes yet: they are its first generation.
    chunks: list[dict[str, Any]] = []
    for digest, number in ids.items():
        location, digests = _place(connection, blobs[digest], placing)
        chunks += _chunk_values(number, 1, blobs[digest], digests, location)
    if chunks:
        connection.execute(_INSERT_CHUNK, chunks)
    for digest, blob in blobs.items():
        if digest not in ids:
            ids[digest], _ = store_blob(connection, namespace, blob, now, charge, placing)
    return ids


def store_blob(
    connection: Connection,
    namespace: Namespace,
    blob: Blob,
    now: int,
    charge: Charge,
    placing: Placing | None = None,
) -> tuple[int, bool]:
    """The blob's row, and whether its bytes were written: they are unless a whole generation is there.

    ``placing``: where bytes lie; ``None``: all in rows. Raises ``NotPlacedError`` for those that belong into
    the object store and were not put there.
    """
    name = {"ns": namespace.id, "digest": blob.digest}
    row = connection.execute(WHOLE, name).first()
    if row is not None and _keep(connection, row.id):
        return row.id, False
    location, digests = _place(connection, blob, placing)
    number = _row(connection, namespace, blob, now, charge)
    write_generation(connection, number, blob, digests, location)
    return number, True


def _row(connection: Connection, namespace: Namespace, blob: Blob, now: int, charge: Charge) -> int:
    """The blob's row, which is there until this transaction has ended."""
    values = {"namespace_id": namespace.id, "digest": blob.digest, "size": len(blob.content)}
    for _ in range(TRIES):
        row = connection.execute(_ARTIFACT, {"ns": namespace.id, "digest": blob.digest}).first()
        if row is not None and _keep(connection, row.id):
            return int(row.id)
        inserted = connection.execute(_INSERT_ARTIFACT, {**values, "created_at": now}).scalar()
        if inserted is not None:
            charge.add("artifact_bytes", len(blob.content))
            return int(inserted)
        # Another transaction was faster. What it wrote may be collected before we look.
    raise StoreUnavailable(f"blob {blob.digest.hex()} is removed as often as it is written: ask again")


def write_generation(
    connection: Connection,
    artifact_id: int,
    blob: Blob,
    digests: Sequence[bytes] = (),
    location: str | None = None,
) -> None:
    """The bytes of a blob as its youngest generation: in rows, or where they lie already.

    ``digests``: of its chunks, where they are known.
    """
    of = {"artifact_id": artifact_id}
    newest = (connection.execute(statement, of).scalar() or 0 for statement in (_NEWEST_CHUNK, _NEWEST_BAD))
    for values in _chunk_values(artifact_id, max(newest) + 1, blob, digests or chunk_digests(blob), location):
        connection.execute(_INSERT_CHUNK, values)


def _chunk_values(
    artifact_id: int, generation: int, blob: Blob, digests: Sequence[bytes], location: str | None
) -> Iterator[dict[str, Any]]:
    """The rows of a generation."""
    for seq, (content, digest) in enumerate(zip(_cut(blob.content), digests, strict=True)):
        values = {"artifact_id": artifact_id, "generation": generation, "seq": seq, "size": len(content)}
        place = {"location": location, "content": content if location is None else None, "digest": digest}
        yield {**values, **place}


def _place(connection: Connection, blob: Blob, placing: Placing | None) -> tuple[str | None, Sequence[bytes]]:
    """Where the bytes lie, and the digests of their chunks. Raises ``NotPlacedError``."""
    if placing is None:
        return None, chunk_digests(blob)
    location = placing.location(blob)
    if location is not None:
        require_bound(connection, placing.objects_id)
    return location, placing.parts(blob)


def _keep(connection: Connection, artifact_id: int) -> bool:
    """False when a collection was faster."""
    return connection.execute(KEEP_ARTIFACT, {"artifact_id": artifact_id}).first() is not None


def tombstone_objects(
    connection: Connection, artifact_ids: Sequence[int], now: int, *, quarantined: bool = False
) -> None:
    """Mark the objects of blobs that are about to be removed in the same transaction: a sweep deletes them.

    ``quarantined``: only those of generations in quarantine.
    """
    objects = _QUARANTINED_OBJECTS if quarantined else _OBJECTS
    for batch in batches(artifact_ids):
        for row in connection.execute(objects, {"ids": batch}).all():
            values = {"location": row.location, "size": int(row.size), "dead_at": now}
            connection.execute(_INSERT_DEAD, values)


def _cut(content: bytes) -> Iterator[bytes | memoryview]:
    """Slices of a chunk each; one empty slice of nothing, so that an empty blob has a generation."""
    if len(content) <= CHUNK_BYTES:
        yield content
        return
    view = memoryview(content)
    for start in range(0, len(content), CHUNK_BYTES):
        yield view[start : start + CHUNK_BYTES]
