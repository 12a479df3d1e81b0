"""The whole store on SQL."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from sqlalchemy import select

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.contract import Store
from kcache_grpc.storage.errors import CorruptStore
from kcache_grpc.storage.schema import store_meta
from kcache_grpc.storage.sql.blobs import SqlBlobs
from kcache_grpc.storage.sql.database import Database
from kcache_grpc.storage.sql.graphs import SqlGraphs
from kcache_grpc.storage.sql.kernels import SqlKernels
from kcache_grpc.storage.sql.leases import SqlLeases
from kcache_grpc.storage.sql.ledger import SqlLedger
from kcache_grpc.storage.sql.namespaces import SqlNamespaces
from kcache_grpc.storage.sql.nearby import SqlNearby

_ID = select(store_meta.c.value).where(store_meta.c.name == "store_id")


class SqlStore(SqlNamespaces, SqlGraphs, SqlBlobs, SqlKernels, SqlLeases, SqlLedger, SqlNearby, Store):
    """``Store`` on a database that has our schema. ``on_close`` runs once, after the database is closed."""

    def __init__(
        self, database: Database, url: str, clock: Clock, on_close: Callable[[], None] | None = None
    ) -> None:
        super().__init__(database, clock, writer=f"{os.getpid()}-{secrets.token_hex(8)}")
        self._url = url
        self._on_close = on_close
        self._id = self._read_id()

    @property
    def url(self) -> str:
        return self._url

    @property
    def id(self) -> str:
        return self._id

    def check(self) -> None:
        self._read_id()

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
