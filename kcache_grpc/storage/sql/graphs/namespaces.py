"""Namespaces on SQL."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, func, select, update

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import NamespaceStore
from kcache_grpc.storage.errors import MissingReference, SignerMismatch, TooManyNamespaces
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.schema import key_counters, namespaces, store_meta
from kcache_grpc.storage.sql.engine.bulk import insert_once
from kcache_grpc.storage.sql.engine.database import Row, SqlPart

_COLUMNS = (namespaces.c.id, namespaces.c.name, namespaces.c.epoch, namespaces.c.removals)
_FIND = select(*_COLUMNS).where(namespaces.c.name == bindparam("name"))
_COUNT = select(func.count()).select_from(namespaces)
#: The number is arbitrary; nothing else takes it.
_ONE_AT_A_TIME = select(func.pg_advisory_xact_lock(7_420_001_913))
_LIST = select(*_COLUMNS).order_by(namespaces.c.id)
_INSERT = insert_once(namespaces).returning(namespaces.c.id)
_INSERT_COUNTER = insert_once(key_counters)
_RAISE = (
    update(namespaces)
    .where(namespaces.c.id == bindparam("of"), namespaces.c.epoch == bindparam("present"))
    .values(epoch=namespaces.c.epoch + 1)
)
_SIGNER = select(store_meta.c.value).where(store_meta.c.name == "signer")
_INSERT_META = insert_once(store_meta)
_UPDATE_SIGNER = update(store_meta).where(store_meta.c.name == "signer").values(value=bindparam("key_id"))
_META = select(store_meta.c.value).where(store_meta.c.name == bindparam("named"))
_UPDATE_META = (
    update(store_meta)
    .where(store_meta.c.name == bindparam("named"), store_meta.c.value != bindparam("new"))
    .values(value=bindparam("new"))
)
_RAISE_ALL = update(namespaces).values(epoch=namespaces.c.epoch + 1)


#: Values of the setting in ``store_meta``.
_ALLOWED, _REJECTED = "allowed", "refused"


class SqlNamespaces(SqlPart, NamespaceStore):
    """``NamespaceStore`` on SQL."""

    def get_or_create_namespace(self, name: str, most: int | None = None) -> Namespace:
        checks.namespace_name(name)
        return self.find_namespace(name) or self._db.transact(
            lambda connection: self._create(connection, name, most)
        )

    def _create(self, connection: Connection, name: str, most: int | None) -> Namespace:
        if connection.dialect.name == "postgresql":  # two that count at once would both find room
            connection.execute(_ONE_AT_A_TIME)
        row = connection.execute(_FIND, {"name": name}).first()
        if row is None:
            if most is not None and connection.execute(_COUNT).scalar_one() >= most:
                raise TooManyNamespaces(name, most)
            values = {"name": name, "epoch": 1, "created_at": self._clock.wall()}
            created = connection.execute(_INSERT, values).scalar()
            if created is not None:
                connection.execute(_INSERT_COUNTER, {"namespace_id": created, "last_key": 0})
            row = connection.execute(_FIND, {"name": name}).one()
        return _namespace(row)

    def find_namespace(self, name: str) -> Namespace | None:
        checks.namespace_name(name)
        rows = self._db.fetch(_FIND, {"name": name})
        return _namespace(rows[0]) if rows else None

    def list_namespaces(self) -> tuple[Namespace, ...]:
        return tuple(map(_namespace, self._db.fetch(_LIST)))

    def raise_epoch(self, namespace: Namespace) -> Namespace:
        values = {"of": namespace.id, "present": namespace.epoch}
        self._db.transact(lambda connection: connection.execute(_RAISE, values).rowcount)
        raised = self.find_namespace(namespace.name)
        if raised is None:
            raise MissingReference(f"namespace {namespace.name!r} is not stored")
        return raised

    def allows_compatible_targets(self, namespace: Namespace) -> bool:
        rows = self._db.fetch(_META, {"named": _compatible_targets(namespace)})
        return bool(rows) and rows[0].value == _ALLOWED

    def set_compatible_targets(self, namespace: Namespace, allowed: bool) -> bool:
        name = _compatible_targets(namespace)

        def work(connection: Connection) -> bool:
            if connection.execute(_FIND, {"name": namespace.name}).first() is None:
                raise MissingReference(f"namespace {namespace.name!r} is not stored")
            connection.execute(_INSERT_META, {"name": name, "value": _REJECTED})
            value = _ALLOWED if allowed else _REJECTED
            return connection.execute(_UPDATE_META, {"named": name, "new": value}).rowcount > 0

        return self._db.transact(work)

    def find_signer(self) -> bytes | None:
        rows = self._db.fetch(_SIGNER)
        return bytes.fromhex(rows[0].value) if rows else None

    def claim_signer(self, key_id: bytes, *, disown: bool = False) -> None:
        checks.signer(key_id)
        self._db.transact(lambda connection: _claim(connection, key_id.hex(), disown=disown))


def _compatible_targets(namespace: Namespace) -> str:
    """The name of a namespace's setting in ``store_meta``."""
    return f"compatible_targets/{namespace.name}"


def _claim(connection: Connection, key_id: str, *, disown: bool) -> None:
    connection.execute(_INSERT_META, {"name": "signer", "value": key_id})
    stored = connection.execute(_SIGNER).scalar_one()
    if stored == key_id:
        return
    if not disown:
        raise SignerMismatch(f"the store was signed by key {stored}, not by {key_id}", stored=stored)
    connection.execute(_UPDATE_SIGNER, {"key_id": key_id})
    connection.execute(_RAISE_ALL)


def _namespace(row: Row) -> Namespace:
    return Namespace(row.id, row.name, row.epoch, row.removals)
