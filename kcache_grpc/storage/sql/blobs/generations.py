"""Generations of bytes: rows that hold them, or that name the object that does. Reads are checked here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import BindParameter, ColumnElement, Connection, and_, bindparam, func, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import CHUNK_BYTES
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.objects import Lost, ObjectStore
from kcache_grpc.storage.objects.placing import NotPlacedError, Placing, is_name
from kcache_grpc.storage.records import Blob, Namespace
from kcache_grpc.storage.schema import artifact_chunks, artifacts, constants, mapping_constants, quarantine
from kcache_grpc.storage.sql.engine.bulk import insert_once
from kcache_grpc.storage.sql.engine.database import Rows, SqlPart
from kcache_grpc.storage.sql.engine.prepared import Prepared
from kcache_grpc.storage.sql.quotas import invalidate_caches

T = TypeVar("T")

#: Times that one call puts objects anew, for others that take away what it found.
_MOST_PUTS = 8
#: Chunks that are hashed at a time.
_HASHED_CHUNKS = 16
_FAILED = "the bytes do not hash to their digest"

_NS: BindParameter[int] = bindparam("ns")
_CHUNK = artifact_chunks.c
#: Kept from collection until the transaction ends.
KEEP_ARTIFACT = (
    select(artifacts.c.id)
    .where(artifacts.c.id == bindparam("artifact_id"))
    .with_for_update(read=True, key_share=True)
)
#: A chunk and the quarantine that may hang over its generation.
IN_QUARANTINE = and_(
    quarantine.c.artifact_id == artifact_chunks.c.artifact_id,
    quarantine.c.generation == artifact_chunks.c.generation,
)
#: The youngest generation that is whole and not in quarantine.
WHOLE = (
    select(artifacts.c.id, artifacts.c.size, _CHUNK.generation)
    .join_from(artifacts, artifact_chunks, _CHUNK.artifact_id == artifacts.c.id)
    .outerjoin(quarantine, IN_QUARANTINE)
    .where(
        artifacts.c.namespace_id == _NS,
        artifacts.c.digest == bindparam("digest"),
        quarantine.c.artifact_id.is_(None),
    )
    .group_by(artifacts.c.id, artifacts.c.size, _CHUNK.generation)
    .having(func.sum(_CHUNK.size) == artifacts.c.size)
    .order_by(_CHUNK.generation.desc())
    .limit(1)
)
_READ = (
    select(_CHUNK.seq, _CHUNK.size, _CHUNK.content, _CHUNK.location, _CHUNK.digest)
    .where(
        _CHUNK.artifact_id == bindparam("artifact_id"),
        _CHUNK.generation == bindparam("generation"),
        _CHUNK.seq.between(bindparam("first"), bindparam("last")),
    )
    .order_by(_CHUNK.seq)
)
#: The bytes of a blob of one chunk, in one statement: what a hit costs that no memory answers.
_ONE_CHUNK = Prepared(
    select(_CHUNK.content, _CHUNK.location)
    .join_from(artifacts, artifact_chunks, _CHUNK.artifact_id == artifacts.c.id)
    .outerjoin(quarantine, IN_QUARANTINE)
    .where(
        artifacts.c.namespace_id == _NS,
        artifacts.c.digest == bindparam("digest"),
        _CHUNK.seq == 0,
        _CHUNK.size == artifacts.c.size,
        quarantine.c.artifact_id.is_(None),
    )
    .order_by(_CHUNK.generation.desc())
    .limit(1)
)
_LOCATION = (
    select(_CHUNK.location)
    .where(_CHUNK.artifact_id == bindparam("artifact_id"), _CHUNK.generation == bindparam("generation"))
    .limit(1)
)
_INSERT_QUARANTINE = insert_once(quarantine)


def lost_constants(mapping_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether a constant of a mapping has no whole generation. One probe of an index where it has none."""
    complete = (
        select(_CHUNK.generation)
        .outerjoin(quarantine, IN_QUARANTINE)
        .where(_CHUNK.artifact_id == artifacts.c.id, quarantine.c.artifact_id.is_(None))
        .group_by(_CHUNK.generation)
        .having(func.sum(_CHUNK.size) == artifacts.c.size)
        .correlate(artifacts)
    )
    return (
        select(mapping_constants.c.position)
        .join(
            constants,
            and_(
                constants.c.namespace_id == mapping_constants.c.namespace_id,
                constants.c.digest == mapping_constants.c.digest,
            ),
        )
        .join(artifacts, artifacts.c.id == constants.c.artifact_id)
        .where(mapping_constants.c.mapping_id == mapping_id, ~complete.exists())
        .exists()
    )


class SqlGenerations(SqlPart):
    """What the calls that read or store bytes share."""

    def _whole(self, namespace: Namespace, digest: bytes) -> Any:
        checks.digest("digest", digest)
        rows = self._db.fetch(WHOLE, {"ns": namespace.id, "digest": digest})
        return rows[0] if rows else None

    def _read_small(self, namespace: Namespace, digest: bytes) -> bytes | None:
        """All bytes of a blob that is one row, checked; ``None``: look closer."""
        rows = self._db.read(_ONE_CHUNK, {"ns": namespace.id, "digest": digest})
        if not rows or rows[0].location is not None:
            return None
        content: bytes = rows[0].content or b""
        return content if hashlib.sha256(content).digest() == digest else None

    def _transact_with(
        self, namespace: Namespace, blobs: Iterable[Blob], work: Callable[[Connection, Placing], T]
    ) -> T:
        """Put what belongs into the object store, then run ``work`` in one transaction."""
        return self._with_placed(
            namespace,
            blobs,
            lambda placing: self._db.transact(lambda connection: work(connection, placing)),
        )

    def _with_placed(self, namespace: Namespace, blobs: Iterable[Blob], write: Callable[[Placing], T]) -> T:
        """Put what belongs into the object store, then ``write``; again while it raises NotPlacedError."""
        by_digest = {blob.digest: blob for blob in blobs}
        placing = Placing(self._objects, self._clock)
        placing.prepare(by_digest.values())
        for blob in by_digest.values():
            if placing.wants(blob) and not self._placed(namespace, blob):
                placing.put(blob)
        for _ in range(_MOST_PUTS):
            try:
                return write(placing)
            except NotPlacedError as missing:  # noqa: PERF203 (what we found was collected, or we are late)
                placing.put(missing.blob)
        raise StoreUnavailable("other processes took away again and again what this one put")

    def _placed(self, namespace: Namespace, blob: Blob) -> bool:
        """Whether the bytes are stored, also in the eyes of the object store."""
        while (generation := self._whole(namespace, blob.digest)) is not None:
            place = {"artifact_id": generation.id, "generation": generation.generation}
            rows = self._db.fetch(_LOCATION, place)
            try:
                if rows and rows[0].location is not None:
                    self._objects_with(rows[0].location).require(rows[0].location, generation.size)
                return True
            except Lost as loss:
                self._quarantine(namespace, generation.id, generation.generation, loss.message)
        return False

    def _objects_with(self, location: str) -> ObjectStore:
        if self._objects is None:
            raise StoreUnavailable("these bytes are in an object store; start with --objects and its URL")
        if not is_name(location):
            raise Lost("the row names no object")
        return self._objects

    def _read(self, generation: Any, digest: bytes, first: int, last: int) -> list[bytes] | None:
        """Chunks of a generation, checked; ``None`` when they are no longer there. Raises ``Lost``."""
        place = {"artifact_id": generation.id, "generation": generation.generation}
        rows = self._db.fetch(_READ, {**place, "first": first, "last": last})
        if [row.seq for row in rows] != list(range(first, last + 1)):
            return None
        # What comes over a network is asked for again before it is given up.
        for _ in range(1 if rows[0].location is None else 2):
            chunks = self._contents(rows, generation.size)
            if _are_right(rows, chunks, generation.size, digest):
                return chunks
        raise Lost(_FAILED)

    def _contents(self, rows: Rows, size: int) -> list[bytes]:
        location = rows[0].location
        if location is None:
            return [row.content or b"" for row in rows]
        start = rows[0].seq * CHUNK_BYTES
        end = min((rows[-1].seq + 1) * CHUNK_BYTES, size)
        content = self._objects_with(location).read(location, start, end, size)
        if len(rows) == 1:
            return [content]
        return [content[at : at + CHUNK_BYTES] for at in range(0, end - start, CHUNK_BYTES)]

    def _fault(self, generation: Any, digest: bytes) -> str:
        """Hash a generation: what is wrong with it, or nothing."""
        hashed = hashlib.sha256()
        last = max(generation.size - 1, 0) // CHUNK_BYTES
        try:
            for seq in range(0, last + 1, _HASHED_CHUNKS):
                for chunk in self._read(generation, digest, seq, min(last, seq + _HASHED_CHUNKS - 1)) or ():
                    hashed.update(chunk)
        except Lost as loss:
            return loss.message
        return "" if hashed.digest() == digest else _FAILED

    def _quarantine(self, namespace: Namespace, artifact_id: int, generation: int, reason: str) -> None:
        values = {"artifact_id": artifact_id, "generation": generation, "reason": reason}
        values = {**values, "created_at": self._clock.wall()}

        def work(connection: Connection) -> None:
            if connection.execute(KEEP_ARTIFACT, {"artifact_id": artifact_id}).first() is None:
                return  # a collection was faster
            connection.execute(_INSERT_QUARANTINE, values)
            invalidate_caches(connection, namespace.id)

        self._db.transact(work)


def _are_right(rows: Rows, chunks: Sequence[bytes], size: int, digest: bytes) -> bool:
    """Whether chunks are what was stored: by the digest of the blob where it is one chunk, else by theirs.

    Rows of older schemas have no digests of chunks: several of them are checked when all are read.
    """
    if size <= CHUNK_BYTES:
        return hashlib.sha256(chunks[0]).digest() == digest
    pairs = list(zip(rows, chunks, strict=True))
    if all(row.digest is not None for row in rows):
        return all(hashlib.sha256(chunk).digest() == row.digest for row, chunk in pairs)
    if sum(map(len, chunks)) == size:
        hashed = hashlib.sha256()
        for chunk in chunks:
            hashed.update(chunk)
        return hashed.digest() == digest
    return all(len(chunk) == row.size for row, chunk in pairs)
