"""Quotas, pins and disowned toolchains on SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, func, select, update

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.lifecycle import EVICT, Disowned, LifecycleStore, Pin, Quota
from kcache_grpc.storage.errors import MissingReference, QuotaExceeded, ToolchainDisowned
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.schema import (
    artifacts,
    assertions,
    cache_values,
    disowned_toolchains,
    graph_mappings,
    kernels,
    key_counters,
    namespaces,
    pins,
    quotas,
    usage,
)
from kcache_grpc.storage.sql.engine.bulk import BulkInsert, insert, insert_once
from kcache_grpc.storage.sql.engine.database import SqlPart

_HERE = quotas.c.namespace_id == bindparam("ns")
_ONE = quotas.c.resource == bindparam("of")
_QUOTAS = (
    select(quotas.c.resource, quotas.c.most, quotas.c.policy, quotas.c.used)
    .where(_HERE)
    .order_by(quotas.c.resource)
)
_SET = insert(quotas)
_SET_QUOTA = _SET.on_conflict_do_update(
    index_elements=["namespace_id", "resource"],
    set_={name: _SET.excluded[name] for name in ("most", "policy", "updated_at")},
)
_REMOVE_QUOTA = delete(quotas).where(_HERE, _ONE)
_CHARGE = (
    update(quotas)
    .where(_HERE, _ONE)
    .values(used=quotas.c.used + bindparam("added"))
    .returning(quotas.c.most, quotas.c.used, quotas.c.policy)
)
_LEFT = quotas.c.used - bindparam("removed")
_DECREMENT_QUOTA = update(quotas).where(_HERE, _ONE).values(used=case((_LEFT > 0, _LEFT), else_=0))
_LOCK_QUOTA = select(quotas.c.resource).where(_HERE, _ONE).with_for_update()
_RECOUNT = update(quotas).where(_HERE, _ONE).values(used=bindparam("counted"))
_COUNTS = {
    "kernels": select(func.count()).select_from(kernels).where(kernels.c.namespace_id == bindparam("ns")),
    "mappings": select(func.count())
    .select_from(graph_mappings)
    .where(graph_mappings.c.namespace_id == bindparam("ns")),
    "specs": select(key_counters.c.last_key).where(key_counters.c.namespace_id == bindparam("ns")),
    "artifact_bytes": select(func.coalesce(func.sum(artifacts.c.size), 0)).where(
        artifacts.c.namespace_id == bindparam("ns")
    ),
    "cache_bytes": select(func.coalesce(func.sum(cache_values.c.size), 0)).where(
        cache_values.c.namespace_id == bindparam("ns")
    ),
    "assertion_bytes": select(func.coalesce(func.sum(assertions.c.size), 0)).where(
        assertions.c.namespace_id == bindparam("ns")
    ),
}
_PINS = (
    select(pins.c.subject, pins.c.digest, pins.c.reason, pins.c.created_at)
    .where(pins.c.namespace_id == bindparam("ns"))
    .order_by(pins.c.subject, pins.c.digest)
)
_PIN = insert_once(pins).returning(pins.c.subject)
_UNPIN = delete(pins).where(
    pins.c.namespace_id == bindparam("ns"),
    pins.c.subject == bindparam("of"),
    pins.c.digest == bindparam("named"),
)

_IS_DISOWNED = select(disowned_toolchains.c.toolchain).where(
    disowned_toolchains.c.namespace_id == bindparam("ns")
)
_DISOWNED = select(
    disowned_toolchains.c.toolchain, disowned_toolchains.c.reason, disowned_toolchains.c.created_at
).where(disowned_toolchains.c.namespace_id == bindparam("ns"))
_DISOWN = insert_once(disowned_toolchains).returning(disowned_toolchains.c.toolchain)
_READMIT = delete(disowned_toolchains).where(
    disowned_toolchains.c.namespace_id == bindparam("ns"),
    disowned_toolchains.c.toolchain == bindparam("named"),
)
_EXISTS = select(namespaces.c.id).where(namespaces.c.id == bindparam("ns"))
_COUNT_REMOVAL = (
    update(namespaces).where(namespaces.c.id == bindparam("ns")).values(removals=namespaces.c.removals + 1)
)
_TOUCH = BulkInsert(
    usage,
    usage.columns.keys(),
    lambda rows: rows.on_conflict_do_update(
        index_elements=["namespace_id", "subject", "digest"],
        set_={
            "last_used_at": case(
                (rows.excluded.last_used_at > usage.c.last_used_at, rows.excluded.last_used_at),
                else_=usage.c.last_used_at,
            )
        },
    ),
)


class Charge:
    """What one transaction adds to a namespace, counted against its quotas where it has any."""

    def __init__(self, connection: Connection, namespace: Namespace) -> None:
        self._connection = connection
        self._namespace = namespace
        rows = connection.execute(_QUOTAS, {"ns": namespace.id}).all()
        self._limited = {row.resource for row in rows}
        self._added: dict[str, int] = {}
        #: The quotas that are exceeded.
        self.full: list[QuotaExceeded] = []

    def add(self, resource: str, amount: int = 1) -> None:
        """Count inserted rows, or bytes."""
        if resource in self._limited:
            self._added[resource] = self._added.get(resource, 0) + amount

    def added(self, resource: str) -> int:
        """The amount added so far; 0 for a resource without a quota."""
        return self._added.get(resource, 0)

    def apply(self) -> None:
        """Add to the quotas, last in the transaction: their rows are locked until it ends.

        Raises ``QuotaExceeded``.
        """
        for resource, amount in sorted(self._added.items()):
            if not amount:
                continue
            values = {"ns": self._namespace.id, "of": resource, "added": amount}
            row = self._connection.execute(_CHARGE, values).first()
            if row is not None and row.used > row.most:
                full = QuotaExceeded(self._namespace.name, resource, row.most, row.used, row.policy)
                self.full.append(full)
        if self.full:
            raise self.full[0]


def decrement_quotas(connection: Connection, namespace: Namespace, removed: Mapping[str, int]) -> None:
    """Subtract removed rows from the quotas, in the caller's transaction, and invalidate caches."""
    for resource, amount in sorted(removed.items()):
        if amount:
            connection.execute(_DECREMENT_QUOTA, {"ns": namespace.id, "of": resource, "removed": amount})
    invalidate_caches(connection, namespace.id)


def invalidate_caches(connection: Connection, namespace_id: int) -> None:
    """Invalidate caches of a namespace: something that was served is served no longer."""
    connection.execute(_COUNT_REMOVAL, {"ns": namespace_id})


def touch(connection: Connection, namespace: Namespace, names: Iterable[tuple[str, bytes]], now: int) -> None:
    """Mark subjects as used now, without counting a hit."""
    values = {"namespace_id": namespace.id, "hits": 0, "saved_us": 0, "last_used_at": now}
    rows = [{**values, "subject": subject, "digest": digest} for subject, digest in sorted(names)]
    if rows:
        _TOUCH.execute(connection, rows)


def require_owned(connection: Connection, namespace: Namespace, toolchain: bytes) -> None:
    """Raises ``ToolchainDisowned``."""
    rows = connection.execute(_IS_DISOWNED, {"ns": namespace.id})
    if toolchain in {row.toolchain for row in rows}:
        raise ToolchainDisowned(namespace.name, toolchain)


class SqlQuotas(SqlPart, LifecycleStore):
    """The part of ``LifecycleStore`` that sets quotas, pins and disowned toolchains."""

    def set_quota(self, namespace: Namespace, resource: str, most: int, policy: str = EVICT) -> Quota:
        checks.quota(resource, most, policy)
        values: dict[str, Any] = {"namespace_id": namespace.id, "resource": resource, "most": most}
        values |= {"policy": policy, "used": 0, "updated_at": self._clock.wall()}
        # Two transactions: inserts that begin after the first charge the quota, and wait for the second.
        self._db.transact(lambda connection: connection.execute(_SET_QUOTA, values).rowcount)
        self._db.transact(lambda connection: _recount(connection, namespace, resource))
        return self.list_quotas(namespace)[resource]

    def remove_quota(self, namespace: Namespace, resource: str) -> bool:
        checks.text("resource", resource)
        values = {"ns": namespace.id, "of": resource}
        return self._db.transact(lambda connection: connection.execute(_REMOVE_QUOTA, values).rowcount) > 0

    def list_quotas(self, namespace: Namespace) -> Mapping[str, Quota]:
        rows = self._db.fetch(_QUOTAS, {"ns": namespace.id})
        return {row.resource: Quota(row.resource, row.most, row.policy, row.used) for row in rows}

    def recount_quotas(self, namespace: Namespace) -> None:
        for resource in self.list_quotas(namespace):
            self._db.transact(lambda connection, of=resource: _recount(connection, namespace, of))

    def pin(self, namespace: Namespace, subject: str, digest: bytes, reason: str = "") -> bool:
        checks.pin(subject, digest, reason)
        values = {"namespace_id": namespace.id, "subject": subject, "digest": digest, "reason": reason}
        values["created_at"] = self._clock.wall()
        return self._db.transact(lambda connection: connection.execute(_PIN, values).first()) is not None

    def unpin(self, namespace: Namespace, subject: str, digest: bytes) -> bool:
        checks.pin(subject, digest, "")
        values = {"ns": namespace.id, "of": subject, "named": digest}
        return self._db.transact(lambda connection: connection.execute(_UNPIN, values).rowcount) > 0

    def list_pins(self, namespace: Namespace) -> tuple[Pin, ...]:
        rows = self._db.fetch(_PINS, {"ns": namespace.id})
        return tuple(Pin(row.subject, row.digest, row.reason, row.created_at) for row in rows)

    def disown_toolchain(self, namespace: Namespace, toolchain: bytes, reason: str = "") -> bool:
        checks.digest("toolchain", toolchain)
        checks.text("reason", reason)
        values = {"namespace_id": namespace.id, "toolchain": toolchain, "reason": reason}
        values["created_at"] = self._clock.wall()

        def work(connection: Connection) -> bool:
            if connection.execute(_EXISTS, {"ns": namespace.id}).first() is None:
                raise MissingReference(f"namespace {namespace.name!r} is not stored")
            return connection.execute(_DISOWN, values).first() is not None

        return self._db.transact(work)

    def readmit_toolchain(self, namespace: Namespace, toolchain: bytes) -> bool:
        checks.digest("toolchain", toolchain)
        values = {"ns": namespace.id, "named": toolchain}
        return self._db.transact(lambda connection: connection.execute(_READMIT, values).rowcount) > 0

    def list_disowned(self, namespace: Namespace) -> tuple[Disowned, ...]:
        rows = self._db.fetch(_DISOWNED.order_by(disowned_toolchains.c.toolchain), {"ns": namespace.id})
        return tuple(Disowned(row.toolchain, row.reason, row.created_at) for row in rows)


def _recount(connection: Connection, namespace: Namespace, resource: str) -> None:
    """The lock waits for transactions that charged the quota; later ones charge it after the recount."""
    name = {"ns": namespace.id, "of": resource}
    if connection.execute(_LOCK_QUOTA, name).first() is None:
        return
    counted = int(connection.execute(_COUNTS[resource], {"ns": namespace.id}).scalar() or 0)
    connection.execute(_RECOUNT, {**name, "counted": counted})
