"""Leases and remembered failures on SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, or_, select, update

from kcache_grpc.storage import checks
from kcache_grpc.storage.clock import STEADY_SLACK
from kcache_grpc.storage.contract.change_notifications import ChangeListener, Claim, Watch
from kcache_grpc.storage.contract.store import LeaseStore
from kcache_grpc.storage.errors import LeaseLost
from kcache_grpc.storage.records import Failure, FailureRecord, Lease, LeaseState, Namespace
from kcache_grpc.storage.schema import failures, leases
from kcache_grpc.storage.sql.engine.bulk import batches, insert
from kcache_grpc.storage.sql.engine.database import Row, SqlPart
from kcache_grpc.storage.sql.engine.prepared import Prepared

_NAME = ["namespace_id", "epoch", "kernel_digest"]
_TAKE = insert(leases)
_TAKE_LEASE = _TAKE.on_conflict_do_update(
    index_elements=_NAME,
    set_={
        **{column: _TAKE.excluded[column] for column in ("holder", "boot", "renewed_at", "expires_at")},
        "fencing_token": leases.c.fencing_token + 1,
        "acquired_at": _TAKE.excluded.acquired_at,
        "stages": "",
    },
    where=or_(
        leases.c.boot != _TAKE.excluded.boot,
        leases.c.expires_at <= _TAKE.excluded.renewed_at,
        leases.c.renewed_at > _TAKE.excluded.renewed_at + STEADY_SLACK,
    ),
).returning(leases.c.fencing_token)
_TAKE_AT_ONCE = Prepared(_TAKE_LEASE)
_OWN = and_(
    leases.c.namespace_id == bindparam("ns"),
    leases.c.epoch == bindparam("of_epoch"),
    leases.c.kernel_digest == bindparam("digest"),
    leases.c.holder == bindparam("by"),
    leases.c.fencing_token == bindparam("token"),
)
_LOCK_OWN = select(leases.c.fencing_token).where(_OWN).with_for_update()
_RENEW = (
    update(leases)
    .where(_OWN)
    .values(boot=bindparam("on_boot"), renewed_at=bindparam("now"), expires_at=bindparam("until"))
)
_REPORT = Prepared(
    update(leases)
    .where(_OWN)
    .values(stages=leases.c.stages + bindparam("line"))
    .returning(leases.c.fencing_token)
)
_RELEASE = update(leases).where(_OWN).values(holder="", expires_at=0)
_HERE = select(leases).where(
    leases.c.namespace_id == bindparam("ns"), leases.c.epoch == bindparam("of_epoch")
)
_FIND = _HERE.where(leases.c.kernel_digest.in_(bindparam("digests", expanding=True)))
_FIND_ONE = Prepared(_HERE.where(leases.c.kernel_digest == bindparam("digest")))

#: In the order of ``_failure``.
_FAILURE = (
    failures.c.kernel_digest,
    failures.c.reason,
    failures.c.stage,
    failures.c.diagnostic,
    failures.c.detail,
    failures.c["count"].label("times"),
    failures.c.first_at,
    failures.c.last_at,
    failures.c.expires_at,
)
_FAIL = insert(failures)
_RECORD_FAILURE = _FAIL.on_conflict_do_update(
    index_elements=_NAME,
    set_={
        **{
            column: _FAIL.excluded[column]
            for column in ("reason", "stage", "diagnostic", "detail", "last_at", "expires_at")
        },
        "count": failures.c["count"] + 1,
    },
).returning(*_FAILURE)
_FAILED_HERE = select(*_FAILURE).where(
    failures.c.namespace_id == bindparam("ns"),
    failures.c.epoch == bindparam("of_epoch"),
    failures.c.expires_at > bindparam("now"),
)
_FIND_FAILURES = _FAILED_HERE.where(failures.c.kernel_digest.in_(bindparam("digests", expanding=True)))
_FIND_FAILURE = Prepared(_FAILED_HERE.where(failures.c.kernel_digest == bindparam("digest")))
_CLEAR_FAILURE = delete(failures).where(
    failures.c.namespace_id == bindparam("ns"),
    failures.c.epoch == bindparam("of_epoch"),
    failures.c.kernel_digest == bindparam("digest"),
)


class SqlLeases(SqlPart, LeaseStore):
    """``LeaseStore`` on SQL."""

    def watch(self, listener: ChangeListener) -> Watch | None:
        return self._db.watch(listener)

    def claim(self, name: bytes) -> Claim | None:
        checks.digest("name", name)
        return self._db.claim(name)

    def acquire_lease(
        self, namespace: Namespace, kernel_digest: bytes, holder: str, ttl: float
    ) -> Lease | LeaseState:
        """Take the lease of a kernel for ``ttl`` seconds, or return the state of another holder's.

        A database with cheap writes first tries single statements, without a transaction.
        """
        checks.holder(kernel_digest, holder)
        duration = checks.ttl(ttl)
        values = {
            "namespace_id": namespace.id,
            "epoch": namespace.epoch,
            "kernel_digest": kernel_digest,
            "holder": holder,
            "fencing_token": 1,
            "acquired_at": self._clock.wall(),
            "stages": "",
        }

        def work(connection: Connection) -> Lease | LeaseState:
            # Read in the transaction: a time from before a wait would be older than the row.
            boot, now = self._db.lease_time(connection)
            times = {"boot": boot, "renewed_at": now, "expires_at": now + duration}
            token = connection.execute(_TAKE_LEASE, values | times).scalar()
            if token is not None:
                return Lease(namespace, kernel_digest, holder, token)
            row = connection.execute(_FIND, _names(namespace, [kernel_digest])).one()
            return _own_lease(namespace, row, holder) or _state(row, boot, now)

        if self._db.cheap_writes:
            boot, now = self._db.lease_time()
            times = {"boot": boot, "renewed_at": now, "expires_at": now + duration}
            for row in self._db.write(_TAKE_AT_ONCE, values | times):
                return Lease(namespace, kernel_digest, holder, row.fencing_token)
            for row in self._db.read(_FIND_ONE, _name(namespace, kernel_digest)):
                state = _own_lease(namespace, row, holder) or _state(row, boot, now)
                if isinstance(state, Lease) or state.held:
                    return state
        return self._db.transact(work, durable=False)

    def heartbeat_lease(self, lease: Lease, ttl: float) -> None:
        duration = checks.ttl(ttl)

        def work(connection: Connection) -> None:
            boot, now = self._db.lease_time(connection)
            values = {**_own(lease), "on_boot": boot, "now": now, "until": now + duration}
            _require(connection.execute(_RENEW, values).rowcount, lease)

        self._db.transact(work, durable=False)

    def report_stage(self, lease: Lease, *stages: str) -> None:
        for stage in stages:
            checks.stage(stage)
        values = {**_own(lease), "line": "".join(f"{stage}\n" for stage in stages)}
        _require(len(self._db.write(_REPORT, values)), lease)

    def release_lease(self, lease: Lease) -> None:
        self._db.transact(lambda connection: release(connection, lease), durable=False)

    def find_leases(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, LeaseState]:
        checks.digests("kernel digest", kernel_digests)
        by_digest: dict[bytes, LeaseState] = {}
        for batch in batches(kernel_digests):
            if len(batch) == 1:
                rows = self._db.read(_FIND_ONE, _name(namespace, batch[0]))
            else:
                rows = self._db.fetch(_FIND, _names(namespace, batch))
            boot, now = self._db.lease_time()
            for row in rows:
                by_digest[row.kernel_digest] = _state(row, boot, now)
        return by_digest

    def record_failure(
        self,
        namespace: Namespace,
        kernel_digest: bytes,
        failure: Failure,
        ttl: float,
        lease: Lease | None = None,
    ) -> FailureRecord:
        """Record a failed compile for ``ttl`` seconds, and release the lease, in one transaction.

        Raises ``LeaseLost`` for a lease that the caller no longer holds.
        """
        checks.failure(kernel_digest, failure)
        checks.lease(lease, namespace, kernel_digest)
        duration, now = checks.ttl(ttl), self._clock.wall()
        values = {
            "namespace_id": namespace.id,
            "epoch": namespace.epoch,
            "kernel_digest": kernel_digest,
            "reason": failure.reason,
            "stage": failure.stage,
            "diagnostic": failure.diagnostic,
            "detail": json.dumps(failure.detail),
            "count": 1,
            "first_at": now,
            "last_at": now,
            "expires_at": now + duration,
        }

        def work(connection: Connection) -> FailureRecord:
            if lease is not None:
                lock(connection, lease)
                release(connection, lease)
            return _failure(connection.execute(_RECORD_FAILURE, values).one())

        return self._db.transact(work)

    def find_failures(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, FailureRecord]:
        checks.digests("kernel digest", kernel_digests)
        by_digest: dict[bytes, FailureRecord] = {}
        for batch in batches(kernel_digests):
            now = {"now": self._clock.wall()}
            if len(batch) == 1:
                rows = self._db.read(_FIND_FAILURE, {**_name(namespace, batch[0]), **now})
            else:
                rows = self._db.fetch(_FIND_FAILURES, {**_names(namespace, batch), **now})
            for row in rows:
                by_digest[row.kernel_digest] = _failure(row)
        return by_digest


def lock(connection: Connection, lease: Lease) -> None:
    """Keep the lease from being taken until the transaction ends. Raises ``LeaseLost``."""
    _require(connection.execute(_LOCK_OWN, _own(lease)).scalar() or 0, lease)


def release(connection: Connection, lease: Lease) -> None:
    """Give the lease back, if it is still the caller's."""
    connection.execute(_RELEASE, _own(lease))


def forget_failure(connection: Connection, namespace: Namespace, kernel_digest: bytes) -> None:
    """Forget the failure of a kernel, if one is remembered."""
    values = {"ns": namespace.id, "of_epoch": namespace.epoch, "digest": kernel_digest}
    connection.execute(_CLEAR_FAILURE, values)


def _require(count: int, lease: Lease) -> None:
    if not count:
        raise LeaseLost(f"{lease.holder} no longer holds the lease for kernel {lease.kernel_digest.hex()}")


def _own(lease: Lease) -> dict[str, Any]:
    return {
        "ns": lease.namespace.id,
        "of_epoch": lease.namespace.epoch,
        "digest": lease.kernel_digest,
        "by": lease.holder,
        "token": lease.fencing_token,
    }


def _own_lease(namespace: Namespace, row: Row, holder: str) -> Lease | None:
    """What was taken in a statement whose answer was lost."""
    if row.holder != holder:
        return None
    return Lease(namespace, row.kernel_digest, holder, row.fencing_token)


def _name(namespace: Namespace, digest: bytes) -> dict[str, Any]:
    return {"ns": namespace.id, "of_epoch": namespace.epoch, "digest": digest}


def _names(namespace: Namespace, digests: Sequence[bytes]) -> dict[str, Any]:
    return {"ns": namespace.id, "of_epoch": namespace.epoch, "digests": digests}


def _state(row: Row, boot: str, now: int) -> LeaseState:
    left = row.expires_at - now if row.boot == boot and row.renewed_at <= now + STEADY_SLACK else 0
    stages = tuple(row.stages.splitlines())
    return LeaseState(
        row.kernel_digest, row.holder, row.fencing_token, stages, max(left, 0), left > 0, row.acquired_at
    )


def _failure(row: Row) -> FailureRecord:
    detail = tuple((name, value) for name, value in json.loads(row.detail))
    return FailureRecord(
        row.kernel_digest,
        Failure(row.reason, row.stage, row.diagnostic, detail),
        row.times,
        row.first_at,
        row.last_at,
        row.expires_at,
    )
