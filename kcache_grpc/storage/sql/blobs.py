"""Bytes by digest on SQL: chunk rows in generations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, and_, bindparam, func, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract import CHUNK_BYTES, BlobStore
from kcache_grpc.storage.records import Blob, Namespace
from kcache_grpc.storage.schema import artifact_chunks, artifacts, constants, programs, quarantine
from kcache_grpc.storage.sql.part import SqlPart, insert_once

_NS: BindParameter[int] = bindparam("ns")
_CHUNK = artifact_chunks.c
_ARTIFACT = select(artifacts.c.id, artifacts.c.size).where(
    artifacts.c.namespace_id == _NS, artifacts.c.digest == bindparam("digest")
)
_INSERT_ARTIFACT = insert_once(artifacts).returning(artifacts.c.id)
_INSERT_CHUNK = insert_once(artifact_chunks)

#: A chunk and the quarantine that may hang over its generation.
IN_QUARANTINE = and_(
    quarantine.c.artifact_id == artifact_chunks.c.artifact_id,
    quarantine.c.generation == artifact_chunks.c.generation,
)
#: The youngest generation that is whole and not in quarantine.
_WHOLE = (
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
_NEWEST_CHUNK = select(func.max(_CHUNK.generation)).where(_CHUNK.artifact_id == bindparam("artifact_id"))
_NEWEST_BAD = select(func.max(quarantine.c.generation)).where(
    quarantine.c.artifact_id == bindparam("artifact_id")
)
_READ = (
    select(_CHUNK.seq, _CHUNK.content)
    .where(
        _CHUNK.artifact_id == bindparam("artifact_id"),
        _CHUNK.generation == bindparam("generation"),
        _CHUNK.seq.between(bindparam("first"), bindparam("last")),
    )
    .order_by(_CHUNK.seq)
)
_INSERT_QUARANTINE = insert_once(quarantine)
_INSERT_CONSTANT = insert_once(constants)
_CONSTANT_EXISTS = select(constants.c.digest).where(
    constants.c.namespace_id == _NS, constants.c.digest == bindparam("digest")
)
_PROGRAM = (
    select(programs.c.format, artifacts.c.digest)
    .join_from(programs, artifacts, artifacts.c.id == programs.c.artifact_id)
    .where(programs.c.namespace_id == _NS, programs.c.program_digest == bindparam("digest"))
)
_INSERT_PROGRAM = insert_once(programs)


class SqlBlobs(SqlPart, BlobStore):
    """``BlobStore`` on SQL."""

    def put_constants(self, namespace: Namespace, constants: Sequence[Blob]) -> None:
        for constant in constants:
            checks.named_bytes("constant", constant.digest, constant.content)
        now = self._clock.wall()
        self._db.transact(lambda connection: store_constants(connection, namespace, constants, now))

    def put_program(self, namespace: Namespace, program_digest: bytes, format: str, body: bytes) -> None:
        checks.digest("program digest", program_digest)
        checks.indexed("format", format)

        def work(connection: Connection) -> None:
            name = {"ns": namespace.id, "digest": program_digest}
            found = connection.execute(_PROGRAM, name).first()
            blob = Blob(hashlib.sha256(body).digest(), body)
            if found is not None and found.digest != blob.digest:
                return
            now = self._clock.wall()
            artifact_id, _ = store_blob(connection, namespace, blob, now)
            if found is None:
                values = {"namespace_id": namespace.id, "program_digest": program_digest, "format": format}
                connection.execute(_INSERT_PROGRAM, {**values, "artifact_id": artifact_id, "created_at": now})

        self._db.transact(work)

    def get_program(self, namespace: Namespace, program_digest: bytes) -> tuple[str, bytes] | None:
        checks.digest("program digest", program_digest)
        rows = self._db.fetch(_PROGRAM, {"ns": namespace.id, "digest": program_digest})
        body = self.read_artifact(namespace, rows[0].digest) if rows else None
        return None if body is None else (rows[0].format, body)

    def _whole(self, namespace: Namespace, digest: bytes) -> Any:
        checks.digest("digest", digest)
        rows = self._db.fetch(_WHOLE, {"ns": namespace.id, "digest": digest})
        return rows[0] if rows else None

    def artifact_size(self, namespace: Namespace, digest: bytes) -> int | None:
        whole = self._whole(namespace, digest)
        return None if whole is None else whole.size

    def read_artifact(
        self, namespace: Namespace, digest: bytes, offset: int = 0, length: int | None = None
    ) -> bytes | None:
        checks.number("offset", offset, 0 if length is None else length)
        whole = self._whole(namespace, digest)
        if whole is None:
            return None
        end = whole.size if length is None else min(whole.size, offset + length)
        if offset >= end:
            return b""
        first = offset // CHUNK_BYTES
        span = {"first": first, "last": (end - 1) // CHUNK_BYTES}
        place = {"artifact_id": whole.id, "generation": whole.generation}
        rows = self._db.fetch(_READ, {**place, **span})
        start = first * CHUNK_BYTES
        if len(rows) == 1 and offset == start and len(rows[0].content) == end - start:
            return rows[0].content
        content = b"".join(row.content for row in rows)[offset - start : end - start]
        return content if len(content) == end - offset else None

    def verify_artifact(self, namespace: Namespace, digest: bytes) -> bool:
        while (whole := self._whole(namespace, digest)) is not None:
            if self._hash(whole) == digest:
                return True
            self._quarantine(whole.id, whole.generation, "the bytes do not hash to their digest")
        return False

    def _hash(self, whole: Any) -> bytes:
        place = {"artifact_id": whole.id, "generation": whole.generation}
        hashed = hashlib.sha256()
        for seq in range(-(-whole.size // CHUNK_BYTES)):
            for row in self._db.fetch(_READ, {**place, "first": seq, "last": seq}):
                hashed.update(row.content)
        return hashed.digest()

    def quarantine_artifact(self, namespace: Namespace, digest: bytes, reason: str) -> bool:
        checks.text("reason", reason)
        whole = self._whole(namespace, digest)
        if whole is None:
            return False
        self._quarantine(whole.id, whole.generation, reason)
        return True

    def _quarantine(self, artifact_id: int, generation: int, reason: str) -> None:
        values = {"artifact_id": artifact_id, "generation": generation, "reason": reason}
        values = {**values, "created_at": self._clock.wall()}
        self._db.transact(lambda connection: connection.execute(_INSERT_QUARANTINE, values).rowcount)


def store_constants(connection: Connection, namespace: Namespace, drafts: Iterable[Blob], now: int) -> None:
    """Store constants that are not there, in digest order, so that two writers never wait for each other."""
    for digest, draft in sorted({draft.digest: draft for draft in drafts}.items()):
        artifact_id, _ = store_blob(connection, namespace, draft, now)
        if connection.execute(_CONSTANT_EXISTS, {"ns": namespace.id, "digest": digest}).first() is None:
            values = {"namespace_id": namespace.id, "digest": digest, "artifact_id": artifact_id}
            connection.execute(_INSERT_CONSTANT, {**values, "created_at": now})


def store_blob(connection: Connection, namespace: Namespace, blob: Blob, now: int) -> tuple[int, bool]:
    """The blob's row, and whether its bytes were written: they are unless a whole generation is there."""
    name = {"ns": namespace.id, "digest": blob.digest}
    whole = connection.execute(_WHOLE, name).first()
    if whole is not None:
        return whole.id, False
    found = connection.execute(_ARTIFACT, name).first()
    if found is None:
        values = {"namespace_id": namespace.id, "digest": blob.digest, "size": len(blob.content)}
        connection.execute(_INSERT_ARTIFACT, {**values, "created_at": now})
        found = connection.execute(_ARTIFACT, name).one()
    of = {"artifact_id": found.id}
    newest = (connection.execute(statement, of).scalar() or 0 for statement in (_NEWEST_CHUNK, _NEWEST_BAD))
    generation = max(newest) + 1
    for seq, content in enumerate(_cut(blob.content)):
        values = {"artifact_id": found.id, "generation": generation, "seq": seq, "size": len(content)}
        connection.execute(_INSERT_CHUNK, {**values, "location": None, "content": content})
    return found.id, True


def _cut(content: bytes) -> Iterator[bytes | memoryview]:
    """Slices of a chunk each; one empty slice of nothing, so that an empty blob has a generation."""
    if len(content) <= CHUNK_BYTES:
        yield content
        return
    view = memoryview(content)
    for start in range(0, len(content), CHUNK_BYTES):
        yield view[start : start + CHUNK_BYTES]
