"""Decides which bytes of a call go into the object store, and puts them there before the transaction."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.contract.store import CHUNK_BYTES
from kcache_grpc.storage.objects.client import DIRECTORY, ObjectStore
from kcache_grpc.storage.records import Blob

#: Microseconds that a row may come after its object. Far below the least grace of a sweep: what a sweep
#: finds without a row will never get one.
PUBLISH_WITHIN = 600_000_000
_NAME = re.compile(rf"{DIRECTORY}/[0-9a-f]{{2}}/[0-9a-f]{{64}}-[0-9a-f]{{16}}")


class NotPlacedError(Exception):
    """A transaction wants bytes in the object store that were not put, or too long ago. Put, and repeat."""

    def __init__(self, blob: Blob) -> None:
        super().__init__(blob.digest.hex())
        self.blob = blob


@dataclass(frozen=True)
class _Put:
    location: str
    wall: int
    steady: int


class Placing:
    """The places of the blobs of one call."""

    def __init__(self, objects: ObjectStore | None, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._put: dict[bytes, _Put] = {}
        self._parts: dict[bytes, tuple[bytes, ...]] = {}

    @property
    def objects_id(self) -> str:
        """Which object store it is."""
        assert self._objects is not None
        return self._objects.id

    def wants(self, blob: Blob) -> bool:
        """Whether these bytes belong into the object store."""
        return self._objects is not None and len(blob.content) > self._objects.inline_bytes

    def put(self, blob: Blob) -> None:
        """Put an object under a name that nobody ever used: what one call does no other one undoes."""
        assert self._objects is not None
        location = f"{DIRECTORY}/{blob.digest.hex()[:2]}/{blob.digest.hex()}-{secrets.token_hex(8)}"
        began = _Put(location, self._clock.wall(), self._clock.steady())
        self._objects.put(location, blob.content)
        self._put[blob.digest] = began

    def location(self, blob: Blob) -> str | None:
        """Where the row says that the bytes are: ``None`` for the row itself.

        Raises ``NotPlacedError``. For the transaction: a sweep may have deleted what was put long ago.
        """
        if not self.wants(blob):
            return None
        place = self._put.get(blob.digest)
        if place is None:
            raise NotPlacedError(blob)
        age = max(self._clock.wall() - place.wall, self._clock.steady() - place.steady)
        if not age < PUBLISH_WITHIN:
            raise NotPlacedError(blob)
        return place.location

    def parts(self, blob: Blob) -> tuple[bytes, ...]:
        """The digests of the chunks; hashed once, outside of the transaction if ``prepare`` was called."""
        parts = self._parts.get(blob.digest)
        if parts is None:
            parts = self._parts[blob.digest] = chunk_digests(blob)
        return parts

    def prepare(self, blobs: Iterable[Blob]) -> None:
        """Hash the chunks of large blobs."""
        for blob in blobs:
            if len(blob.content) > CHUNK_BYTES:
                self.parts(blob)


def chunk_digests(blob: Blob) -> tuple[bytes, ...]:
    """SHA-256 of each chunk; the blob's own where it is one chunk."""
    if len(blob.content) <= CHUNK_BYTES:
        return (blob.digest,)
    view = memoryview(blob.content)
    return tuple(
        hashlib.sha256(view[start : start + CHUNK_BYTES]).digest()
        for start in range(0, len(view), CHUNK_BYTES)
    )


def is_name(location: str) -> bool:
    """Whether a row's location may be an object of ours: rows may have been edited by hand."""
    return _NAME.fullmatch(location) is not None
