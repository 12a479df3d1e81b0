"""The whole store on SQL."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager

from sqlalchemy import select

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import CorruptStore
from kcache_grpc.storage.objects.client import ObjectStore
from kcache_grpc.storage.schema import store_meta
from kcache_grpc.storage.sql.assertions import SqlAssertions
from kcache_grpc.storage.sql.audit.audit import SqlAudit
from kcache_grpc.storage.sql.audit.usage_audit import SqlUsageAudit
from kcache_grpc.storage.sql.blobs.blob_cache import SqlBlobCache
from kcache_grpc.storage.sql.blobs.inlining import SqlInlining
from kcache_grpc.storage.sql.blobs.object_store import attach
from kcache_grpc.storage.sql.engine.database import Database
from kcache_grpc.storage.sql.gc.collection import SqlLifecycle
from kcache_grpc.storage.sql.graphs.graphs import SqlGraphs
from kcache_grpc.storage.sql.graphs.namespaces import SqlNamespaces
from kcache_grpc.storage.sql.graphs.nearby import SqlNearby
from kcache_grpc.storage.sql.kernels.autotune import SqlAutotune
from kcache_grpc.storage.sql.kernels.hits import SqlHits
from kcache_grpc.storage.sql.kernels.kernels import SqlKernels
from kcache_grpc.storage.sql.leases import SqlLeases

_ID = select(store_meta.c.value).where(store_meta.c.name == "store_id")


class SqlStore(
    SqlNamespaces,
    SqlGraphs,
    SqlInlining,
    SqlKernels,
    SqlHits,
    SqlLeases,
    SqlUsageAudit,
    SqlAudit,
    SqlAutotune,
    SqlBlobCache,
    SqlAssertions,
    SqlNearby,
    SqlLifecycle,
    Store,
):
    """``Store`` on a database that has our schema. ``on_close`` runs once, after the database is closed."""

    def __init__(
        self,
        database: Database,
        url: str,
        clock: Clock,
        on_close: Callable[[], None] | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        super().__init__(database, clock, f"{os.getpid()}-{secrets.token_hex(8)}", objects)
        self._url = url
        self._on_close = on_close
        try:
            self._id = self._read_id()
            attach(database, self._id, objects)
        except BaseException:
            self._db.close()
            raise

    @property
    def url(self) -> str:
        return self._url

    @property
    def shared(self) -> bool:
        return self._db.shared

    @property
    def answers_from_memory(self) -> bool:
        return self._db.answers_from_memory and self._objects is None

    def short_lock_waits(self) -> AbstractContextManager[None]:
        return self._db.short_lock_waits()

    @property
    def id(self) -> str:
        return self._id

    @property
    def objects_url(self) -> str | None:
        return None if self._objects is None else self._objects.url

    def check(self) -> None:
        self._read_id()
        if self._objects is not None:
            self._objects.check()

    def _read_id(self) -> str:
        rows = self._db.fetch(_ID)
        if not rows:
            raise CorruptStore("the store has lost its id")
        return rows[0].value

    def close(self) -> None:
        self._db.close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()
