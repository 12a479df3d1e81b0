"""The base class of the parts of the SQL store, and inserts that ignore conflicts."""

from __future__ import annotations

from sqlalchemy import Table

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.objects.client import ObjectStore
from kcache_grpc.storage.sql.engine.bulk import BATCH as BATCH
from kcache_grpc.storage.sql.engine.bulk import batches as batches
from kcache_grpc.storage.sql.engine.database import Database
from kcache_grpc.storage.sql.engine.upsert import Insert, insert


class SqlPart:
    """The database, the object store beside it if there is one, the clock, and the name under which this
    store writes audit events.
    """

    def __init__(
        self, database: Database, clock: Clock, writer: str, objects: ObjectStore | None = None
    ) -> None:
        self._db = database
        self._objects = objects
        self._clock = clock
        self._writer = writer


def insert_once(table: Table) -> Insert:
    """Insert unless a row of that name is there."""
    return insert(table).on_conflict_do_nothing()
