"""Failures that are remembered for a while: visible, expiring, retried on request."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone

from kcache_grpc.errors import (
    CompileFailed,
    CompileTimeout,
    InvalidProgram,
    KcacheError,
    UnsupportedOp,
    from_reason,
)
from kcache_grpc.service.store_threads import ReadBatch, StoreThreads
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import LeaseLost, StorageError
from kcache_grpc.storage.records import Failure, FailureRecord, Lease, Namespace

logger = logging.getLogger("kcache.service")

_MAX_DIAGNOSTIC = 16_000
#: Failures kept for namespaces that are not stored.
_MOST_EARLY = 1000


class Failures:
    """Remembers what would fail again in the same way, for ``ttl`` seconds."""

    def __init__(self, store: Store, threads: StoreThreads, ttl: float) -> None:
        self._store = store
        self._threads = threads
        self._ttl = ttl
        #: Of namespaces that are not stored, the oldest first.
        self._early: dict[tuple[str, bytes], FailureRecord] = {}
        self._records: ReadBatch[Namespace, bytes, FailureRecord] = ReadBatch(
            lambda namespace, digests: threads(store.find_failures, namespace, digests)
        )

    async def find(self, namespace: Namespace, digests: Sequence[bytes]) -> Mapping[bytes, FailureRecord]:
        """The failures remembered for these kernels."""
        if not namespace.is_stored:
            records = {digest: self._find_early(namespace, digest) for digest in digests}
            return {digest: record for digest, record in records.items() if record is not None}
        return await self._threads(self._store.find_failures, namespace, digests) if digests else {}

    async def find_one(self, namespace: Namespace, digest: bytes) -> FailureRecord | None:
        """As ``find``, together with what others look for meanwhile."""
        if not namespace.is_stored:
            return self._find_early(namespace, digest)
        return await self._records.read(namespace, digest)

    async def check(self, namespace: Namespace, digest: bytes) -> None:
        """Raises the failure that is remembered, if one is."""
        record = await self.find_one(namespace, digest)
        if record is not None:
            raise as_error(record)

    async def remember(
        self, namespace: Namespace, digest: bytes, error: KcacheError, lease: Lease | None = None
    ) -> None:
        """Writes a failure down if it would happen again; gives the lease back. Never raises.

        In this process's memory where the namespace is not stored: a rejected request creates none.
        """
        if not lasting(error):
            return
        detail = tuple((k, v) for k, v in error.metadata.items() if k not in ("stage", "diagnostic"))
        failure = Failure(
            error.reason,
            error.metadata.get("stage", ""),
            error.metadata.get("diagnostic", "")[-_MAX_DIAGNOSTIC:],
            (("message", error.message), *detail),
        )
        if not namespace.is_stored:
            self._remember_early(namespace, digest, failure)
            return
        try:
            await self._threads(self._store.record_failure, namespace, digest, failure, self._ttl, lease)
        except LeaseLost:
            logger.info("a failure on %s was not recorded: another process took over", digest.hex()[:12])
        except StorageError as problem:
            logger.warning("a failure on %s was not recorded: %s", digest.hex()[:12], problem)

    def _find_early(self, namespace: Namespace, digest: bytes) -> FailureRecord | None:
        record = self._early.get((namespace.name, digest))
        return record if record is not None and record.expires_at > time.time_ns() // 1000 else None

    def _remember_early(self, namespace: Namespace, digest: bytes, failure: Failure) -> None:
        now = time.time_ns() // 1000
        before = self._early.pop((namespace.name, digest), None)
        count, first = (before.count + 1, before.first_at) if before else (1, now)
        expires = now + round(self._ttl * 1e6)
        self._early[namespace.name, digest] = FailureRecord(digest, failure, count, first, now, expires)
        if len(self._early) > _MOST_EARLY:
            del self._early[next(iter(self._early))]


def lasting(error: KcacheError) -> bool:
    """Whether the same request would fail again in the same way."""
    return isinstance(error, CompileFailed | UnsupportedOp | CompileTimeout)


@contextmanager
def suppress_lasting() -> Generator[None]:
    """Goes on after an error that the same request would meet again, and after a program's own."""
    try:
        yield
    except KcacheError as error:
        if not (lasting(error) or isinstance(error, InvalidProgram)):
            raise


def as_error(record: FailureRecord) -> KcacheError:
    """The error that was remembered, saying that it is one."""
    detail = dict(record.failure.detail)
    message = detail.pop("message", "the compile failed before")
    until = datetime.fromtimestamp(record.expires_at / 1e6, timezone.utc).isoformat(timespec="seconds")
    metadata = {
        **detail,
        "stage": record.failure.stage,
        "diagnostic": record.failure.diagnostic,
        "remembered_until": until,
    }
    metadata = {name: value for name, value in metadata.items() if value}
    return from_reason(record.failure.reason, message, metadata)
