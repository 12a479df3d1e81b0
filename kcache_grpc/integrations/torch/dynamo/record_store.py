"""Where records of source graphs are kept: a directory of this user, and the service."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from kcache_grpc.caches.disk import OnDiskCache
from kcache_grpc.client.client import Client
from kcache_grpc.errors import CacheError, KcacheError
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import log

#: The directory below the client's cache directory.
_FOLDER = "torch-sources"


class StoredRecord(NamedTuple):
    """A record's bytes, and the tier that had it: "disk" or "remote"."""

    body: bytes
    origin: str


class RecordStore:
    """Records by source digest. A tier that fails is skipped: a record only saves time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._disk: OnDiskCache[bytes, bytes] = OnDiskCache(base_dir=client.cache_dir / _FOLDER)

    def find(self, digest: bytes) -> StoredRecord | None:
        """The record of a source graph, or ``None``. One of the service is kept on disk from then on.

        An embedded service that does not run is started in a thread, and not asked: its records are those of
        this user, which are on disk, and the graph is traced meanwhile.
        """
        body = self._on_disk(digest)
        if body is not None:
            return StoredRecord(body, "disk")
        if self._client.start_service():
            return None
        try:
            assertion = self._client.get_assertion(digest)
        except KcacheError as error:
            log.info("records at the service: %s", error)
            return None
        if assertion is None:
            return None
        self._keep(digest, assertion.record)
        return StoredRecord(assertion.record, "remote")

    def add(self, digest: bytes, body: bytes, programs: Sequence[bytes]) -> None:
        """Keep a record, and assert it at the service. The first record of a digest stays."""
        self._keep(digest, body)
        torch: Any = import_module("torch")
        try:
            self._client.put_assertion(digest, body, programs, toolchain=f"torch {torch.__version__}")
        except KcacheError as error:
            log.info("records at the service: %s", error)

    def dispute(self, digest: bytes, stored: StoredRecord, observed: bytes) -> None:
        """Take a record out of use: tracing the graph again gave ``observed``."""
        reason = "tracing the source graph gave another record"
        try:
            self._disk.set_aside(digest, stored.body)
            record, other = (hashlib.sha256(body).digest() for body in (stored.body, observed))
            self._client.dispute_assertion(digest, record, other, reason)
        except (CacheError, OSError, KcacheError) as error:
            log.info("a disputed record: %s", error)

    def _on_disk(self, digest: bytes) -> bytes | None:
        try:
            return self._disk.get(digest)
        except (CacheError, OSError) as error:
            log.info("records on disk: %s", error)
            return None

    def _keep(self, digest: bytes, body: bytes) -> None:
        try:
            self._disk.insert(digest, body)
        except (CacheError, OSError) as error:
            log.info("records on disk: %s", error)
