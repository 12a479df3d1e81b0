"""Where records of source graphs are kept: a directory of this user, and the service."""

from __future__ import annotations

from typing import NamedTuple

from kcache_grpc.caches import OnDiskCache
from kcache_grpc.client.client import Client
from kcache_grpc.errors import CacheError
from kcache_grpc.integrations.torch.dynamo.decisions import log


class Found(NamedTuple):
    """A record's bytes, and the tier that had it: "disk" or "remote"."""

    body: bytes
    origin: str


class RecordStore:
    """Records by source digest. A tier that fails is skipped: a record only saves time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._disk: OnDiskCache[bytes, bytes] = OnDiskCache(base_dir=client.cache_dir / "torch-sources")

    def find(self, digest: bytes) -> Found | None:
        """The record of a source graph, or ``None``."""
        try:
            body = self._disk.get(digest)
        except (CacheError, OSError) as error:
            log.info("records on disk: %s", error)
            body = None
        if body is not None:
            return Found(body, "disk")
        return None

    def add(self, digest: bytes, body: bytes, programs: tuple[bytes, ...]) -> None:
        """Keep a record. The first record of a digest stays."""
        try:
            self._disk.insert(digest, body)
        except (CacheError, OSError) as error:
            log.info("records on disk: %s", error)
