"""Failures that are remembered for a while: visible, expiring, retried on request."""

from __future__ import annotations

import logging
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
from kcache_grpc.service.gathering import Gathering
from kcache_grpc.service.threads import StoreThreads
from kcache_grpc.storage.contract import Store
from kcache_grpc.storage.errors import LeaseLost, StorageError
from kcache_grpc.storage.records import Failure, FailureRecord, Lease, Namespace

logger = logging.getLogger("kcache.service")

_MAX_DIAGNOSTIC = 16_000


class Failures:
    """Remembers what would fail again in the same way, for ``ttl`` seconds."""

    def __init__(self, store: Store, threads: StoreThreads, ttl: float) -> None:
        self._store = store
        self._threads = threads
        self._ttl = ttl
        self._records: Gathering[Namespace, bytes, FailureRecord] = Gathering(
            lambda namespace, digests: threads(store.find_failures, namespace, digests)
        )

    async def find(self, namespace: Namespace, digests: Sequence[bytes]) -> Mapping[bytes, FailureRecord]:
        """The failures remembered for these kernels."""
        return await self._threads(self._store.find_failures, namespace, digests) if digests else {}

    async def find_one(self, namespace: Namespace, digest: bytes) -> FailureRecord | None:
        """As ``find``, together with what others look for meanwhile."""
        return await self._records.look(namespace, digest)

    async def check(self, namespace: Namespace, digest: bytes) -> None:
        """Raises the failure that is remembered, if one is."""
        record = await self.find_one(namespace, digest)
        if record is not None:
            raise as_error(record)

    async def remember(
        self, namespace: Namespace, digest: bytes, error: KcacheError, lease: Lease | None = None
    ) -> None:
        """Writes a failure down if it would happen again; gives the lease back. Never raises."""
        if not lasting(error):
            return
        detail = tuple((k, v) for k, v in error.metadata.items() if k not in ("stage", "diagnostic"))
        failure = Failure(
            error.reason,
            error.metadata.get("stage", ""),
            error.metadata.get("diagnostic", "")[-_MAX_DIAGNOSTIC:],
            (("message", error.message), *detail),
        )
        try:
            await self._threads(self._store.record_failure, namespace, digest, failure, self._ttl, lease)
        except LeaseLost:
            logger.info("a failure on %s was not recorded: another process took over", digest.hex()[:12])
        except StorageError as problem:
            logger.warning("a failure on %s was not recorded: %s", digest.hex()[:12], problem)


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
