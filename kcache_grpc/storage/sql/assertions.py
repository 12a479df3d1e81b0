"""``AssertionStore`` on SQL."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, case, delete, exists, func, or_, select, update

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.assertions import (
    ASSERTION_BYTES,
    AssertionConflict,
    AssertionDraft,
    AssertionOutcome,
    AssertionRecord,
    AssertionStore,
    AssertionTotals,
    Dispute,
)
from kcache_grpc.storage.errors import MissingReference, StoreUnavailable
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.schema import (
    assertion_conflicts,
    assertion_disputes,
    assertion_usage,
    assertions,
    namespaces,
    store_meta,
)
from kcache_grpc.storage.sql.engine.bulk import BulkInsert, batches, insert_once, up_to_size
from kcache_grpc.storage.sql.engine.database import Removal, Row, SqlPart
from kcache_grpc.storage.sql.quotas import Charge, decrement_quotas

logger = logging.getLogger("kcache.storage")

_A = assertions.c
_C = assertion_conflicts.c
_D = assertion_disputes.c
_NS: BindParameter[int] = bindparam("ns")
_HERE = (_A.namespace_id == _NS, _A.epoch == bindparam("now_epoch"))
_DISPUTED = exists().where(
    _D.namespace_id == _A.namespace_id,
    _D.epoch == _A.epoch,
    _D.source_digest == _A.source_digest,
    _D.actor == _A.actor,
    _D.record_digest == _A.record_digest,
)
_COLUMNS = (
    _A.id,
    _A.source_digest,
    _A.actor,
    _A.role,
    _A.record_digest,
    _A.record_size,
    _A.programs,
    _A.toolchain,
    _A.size,
    _A.created_at,
    _DISPUTED.label("quarantined"),
)
_FIND = (
    select(*_COLUMNS)
    .where(
        *_HERE,
        _A.source_digest.in_(bindparam("named", expanding=True)),
        or_(_A.actor == bindparam("own"), _A.role.in_(bindparam("roles", expanding=True))),
    )
    .order_by(_A.id)
)
_OWN = select(*_COLUMNS).where(*_HERE, _A.source_digest == bindparam("named"), _A.actor == bindparam("own"))
_LIST = select(*_COLUMNS).where(*_HERE, _A.id > bindparam("after")).order_by(_A.id).limit(bindparam("most"))
_RECORDS = select(_A.id, _A.record).where(_A.id.in_(bindparam("ids", expanding=True)))
_INSERT = insert_once(assertions).returning(_A.id)
_INSERT_CONFLICT = insert_once(assertion_conflicts)
_CONFLICT = select(_C.id).where(
    _C.namespace_id == _NS,
    _C.epoch == bindparam("now_epoch"),
    _C.source_digest == bindparam("named"),
    _C.actor == bindparam("own"),
    _C.offered == bindparam("other"),
)
_CONFLICTS = (
    select(assertion_conflicts).where(_C.namespace_id == _NS).order_by(_C.id.desc()).limit(bindparam("most"))
)
_INSERT_DISPUTE = insert_once(assertion_disputes).returning(_D.id)
_DISPUTE = select(_D.id).where(
    _D.namespace_id == _NS,
    _D.epoch == bindparam("now_epoch"),
    _D.source_digest == bindparam("named"),
    _D.actor == bindparam("own"),
    _D.record_digest == bindparam("other"),
)
_DISPUTES = (
    select(assertion_disputes).where(_D.namespace_id == _NS).order_by(_D.id.desc()).limit(bindparam("most"))
)
_TOTALS = select(func.count().label("count"), func.coalesce(func.sum(_A.size), 0).label("bytes")).where(
    *_HERE
)
_COUNT_CONFLICTS = (
    select(func.count())
    .select_from(assertion_conflicts)
    .where(_C.namespace_id == _NS, _C.epoch == bindparam("now_epoch"))
)
_COUNT_DISPUTES = (
    select(func.count())
    .select_from(assertion_disputes)
    .where(_D.namespace_id == _NS, _D.epoch == bindparam("now_epoch"))
)
#: Locked in the order of ids: two transactions never wait for each other.
_PRESENT = (
    select(_A.id)
    .where(_A.id.in_(bindparam("ids", expanding=True)))
    .order_by(_A.id)
    .with_for_update(key_share=True)
)
_HITS = BulkInsert(
    assertion_usage,
    ("assertion_id", "hits", "last_used_at"),
    lambda rows: rows.on_conflict_do_update(
        index_elements=["assertion_id"],
        set_={
            "hits": assertion_usage.c.hits + rows.excluded.hits,
            "last_used_at": case(
                (
                    rows.excluded.last_used_at > assertion_usage.c.last_used_at,
                    rows.excluded.last_used_at,
                ),
                else_=assertion_usage.c.last_used_at,
            ),
        },
    ),
)
_FORGET_USAGE = delete(assertion_usage).where(
    assertion_usage.c.assertion_id.in_(bindparam("ids", expanding=True))
)
_LAST_USE = func.coalesce(assertion_usage.c.last_used_at, _A.created_at)
_IDLE = (
    select(_A.id, _A.size)
    .select_from(assertions.outerjoin(assertion_usage, assertion_usage.c.assertion_id == _A.id))
    .where(_A.namespace_id == _NS, bindparam("before") > _LAST_USE, _A.created_at < bindparam("before"))
    .order_by(_LAST_USE, _A.id)
    .limit(bindparam("most"))
)
_STALE = _IDLE.where(_A.epoch < bindparam("now_epoch"))
_EXISTS = select(namespaces.c.id).where(namespaces.c.name == bindparam("name"))
_META = select(store_meta.c.value).where(store_meta.c.name == bindparam("named"))
_INSERT_META = insert_once(store_meta)
_UPDATE_META = (
    update(store_meta)
    .where(store_meta.c.name == bindparam("named"), store_meta.c.value != bindparam("new"))
    .values(value=bindparam("new"))
)
#: Assertions of one transaction that removes, and attempts to insert during one.
_BATCH, _TRIES = 500, 10


class SqlAssertions(SqlPart, AssertionStore):
    """``AssertionStore`` on SQL: one row for each assertion, its record included."""

    def put_assertion(self, namespace: Namespace, draft: AssertionDraft) -> AssertionOutcome:
        checks.assertion(draft)
        now = self._clock.wall()

        def work(connection: Connection) -> AssertionOutcome:
            charge = Charge(connection, namespace)
            outcome = _put(connection, namespace, draft, now, charge)
            charge.apply()
            return outcome

        return self._db.transact(work)

    def find_assertions(
        self,
        namespace: Namespace,
        source_digests: Sequence[bytes],
        actor: str,
        roles: Sequence[str] = (),
        *,
        quarantined: bool = False,
    ) -> Mapping[bytes, tuple[AssertionRecord, ...]]:
        """Return the assertions that ``actor`` may trust, by source digest: its own first, then by age.

        See ``AssertionStore``.
        """
        checks.digests("source digest", source_digests)
        trusted: dict[bytes, list[AssertionRecord]] = {}
        values = {**_here(namespace), "own": actor, "roles": list(roles)}
        for batch in batches(source_digests):
            for row in self._db.fetch(_FIND, {**values, "named": list(batch)}):
                if quarantined or not row.quarantined:
                    trusted.setdefault(row.source_digest, []).append(_record(row))
        return {
            digest: tuple(sorted(rows, key=lambda row: (row.actor != actor, row.id)))
            for digest, rows in trusted.items()
        }

    def read_records(
        self, namespace: Namespace, assertions: Sequence[AssertionRecord]
    ) -> Mapping[int, bytes]:
        """Return records by id of their assertion.

        An assertion whose record is damaged is removed and left out.
        """
        expected = {assertion.id: assertion for assertion in assertions}
        records: dict[int, bytes] = {}
        for batch in batches(sorted(expected)):
            for row in self._db.fetch(_RECORDS, {"ids": list(batch)}):
                content = bytes(row.record)
                if hashlib.sha256(content).digest() == expected[row.id].record_digest:
                    records[row.id] = content
                else:
                    logger.error("the record of assertion %d is damaged: it is removed", row.id)
                    sizes = {row.id: expected[row.id].size}
                    self._collect_assertions(namespace, sizes, "the record is damaged")
        return records

    def dispute_assertion(
        self,
        namespace: Namespace,
        assertion: AssertionRecord,
        observed: bytes,
        disputed_by: str,
        reason: str = "",
    ) -> bool:
        """Put an assertion into quarantine; return False if it was there already."""
        checks.dispute(observed, disputed_by, reason)
        name = {
            **_here(namespace),
            "named": assertion.source_digest,
            "own": assertion.actor,
            "other": assertion.record_digest,
        }
        values = {
            "namespace_id": namespace.id,
            "epoch": namespace.epoch,
            "source_digest": assertion.source_digest,
            "actor": assertion.actor,
            "record_digest": assertion.record_digest,
            "observed": observed,
            "disputed_by": disputed_by,
            "reason": reason,
            "created_at": self._clock.wall(),
        }

        def work(connection: Connection) -> bool:
            if connection.execute(_DISPUTE, name).first() is not None:
                return False
            return connection.execute(_INSERT_DISPUTE, values).first() is not None

        return self._db.transact(work)

    def add_assertion_hits(self, namespace: Namespace, hits: Mapping[int, int]) -> None:
        """Add to the hits of assertions, by id, in one transaction. Ids that are not stored are ignored."""
        now = self._clock.wall()

        def work(connection: Connection) -> None:
            for batch in batches(sorted(hits)):
                present = connection.execute(_PRESENT, {"ids": list(batch)}).scalars().all()
                rows = [
                    {"assertion_id": number, "hits": hits[number], "last_used_at": now}
                    for number in sorted(present)
                ]
                if rows:
                    _HITS.execute(connection, rows)

        if hits:
            self._db.transact(work, durable=False)

    def list_assertions(
        self, namespace: Namespace, after_id: int = 0, limit: int = 1000
    ) -> tuple[AssertionRecord, ...]:
        checks.number("id or limit", after_id, limit)
        rows = self._db.fetch(_LIST, {**_here(namespace), "after": after_id, "most": limit})
        return tuple(map(_record, rows))

    def list_assertion_conflicts(
        self, namespace: Namespace, limit: int = 100
    ) -> tuple[AssertionConflict, ...]:
        checks.number("limit", limit)
        rows = self._db.fetch(_CONFLICTS, {"ns": namespace.id, "most": limit})
        return tuple(
            AssertionConflict(row.source_digest, row.actor, row.kept, row.offered, row.created_at)
            for row in rows
        )

    def list_disputes(self, namespace: Namespace, limit: int = 100) -> tuple[Dispute, ...]:
        """Return disputes of all epochs, youngest first."""
        checks.number("limit", limit)
        rows = self._db.fetch(_DISPUTES, {"ns": namespace.id, "most": limit})
        return tuple(
            Dispute(
                row.source_digest,
                row.actor,
                row.record_digest,
                row.observed,
                row.disputed_by,
                row.reason,
                row.created_at,
            )
            for row in rows
        )

    def assertion_totals(self, namespace: Namespace) -> AssertionTotals:
        here = _here(namespace)
        row = self._db.fetch(_TOTALS, here)[0]
        conflicts = self._db.fetch(_COUNT_CONFLICTS, here)[0][0]
        quarantined = self._db.fetch(_COUNT_DISPUTES, here)[0][0]
        return AssertionTotals(int(row.count), int(row.bytes), int(conflicts), int(quarantined))

    def remove_assertions(
        self,
        namespace: Namespace,
        unused_since: int,
        amount: int | None = None,
        *,
        stale: bool = False,
        reason: str = "idle",
        dry_run: bool = False,
    ) -> tuple[int, int]:
        """Remove unused assertions, longest unused first; return their number and bytes.

        Each batch is one transaction. See ``AssertionStore``.
        """
        checks.number("time", unused_since)
        count = size = 0
        most = 2**31 if dry_run else _BATCH
        values: dict[str, Any] = {"ns": namespace.id, "before": unused_since, "most": most}
        if stale:
            values["now_epoch"] = namespace.epoch
        while amount is None or size < amount:
            rows = self._db.fetch(_STALE if stale else _IDLE, values)
            chosen = up_to_size(rows, None if amount is None else amount - size)
            if not chosen:
                break
            if not dry_run and not self._collect_assertions(
                namespace, {row.id: row.size for row in chosen}, reason
            ):
                break
            count, size = count + len(chosen), size + sum(row.size for row in chosen)
            if dry_run or len(rows) < most:
                break
        return count, size

    def _collect_assertions(self, namespace: Namespace, sizes: Mapping[int, int], reason: str) -> int:
        def work(connection: Connection) -> int:
            removal = Removal(namespace.id, namespace.epoch, self._writer, self._clock.wall(), reason)
            # Locked first: nobody counts a hit of these assertions until they are gone.
            present = [
                number
                for batch in batches(sorted(sizes))
                for number in connection.execute(_PRESENT, {"ids": list(batch)}).scalars()
            ]
            if not present:
                return 0
            for batch in batches(present):
                connection.execute(_FORGET_USAGE, {"ids": list(batch)})
            removed = self._db.collect(connection, "assertions", "id", present, removal)
            decrement_quotas(
                connection, namespace, {ASSERTION_BYTES: sum(sizes[number] for number in present)}
            )
            return removed

        return self._db.transact(work)

    def trusted_roles(self, namespace: Namespace) -> tuple[str, ...]:
        rows = self._db.fetch(_META, {"named": _trusted_roles(namespace)})
        return tuple(json.loads(rows[0].value)) if rows else ()

    def set_trusted_roles(self, namespace: Namespace, roles: Sequence[str]) -> bool:
        checks.roles(roles)
        name, value = _trusted_roles(namespace), json.dumps(sorted(set(roles)))

        def work(connection: Connection) -> bool:
            if connection.execute(_EXISTS, {"name": namespace.name}).first() is None:
                raise MissingReference(f"namespace {namespace.name!r} is not stored")
            connection.execute(_INSERT_META, {"name": name, "value": "[]"})
            return connection.execute(_UPDATE_META, {"named": name, "new": value}).rowcount > 0

        return self._db.transact(work)


def _trusted_roles(namespace: Namespace) -> str:
    """The name of a namespace's setting in ``store_meta``."""
    return f"trusted_roles/{namespace.name}"


def _here(namespace: Namespace) -> dict[str, Any]:
    return {"ns": namespace.id, "now_epoch": namespace.epoch}


def _put(
    connection: Connection, namespace: Namespace, draft: AssertionDraft, now: int, charge: Charge
) -> AssertionOutcome:
    """Insert an assertion or find the stored one of its actor; another record is stored as a conflict."""
    own = {**_here(namespace), "named": draft.source_digest, "own": draft.actor}
    values: dict[str, Any] = {
        "namespace_id": namespace.id,
        "epoch": namespace.epoch,
        "source_digest": draft.source_digest,
        "actor": draft.actor,
        "role": draft.role,
        "record_digest": draft.record_digest,
        "record_size": len(draft.record),
        "size": draft.size,
        "toolchain": draft.toolchain,
        "created_at": now,
        "programs": b"".join(draft.programs),
        "record": draft.record,
    }
    inserted = False
    for _ in range(_TRIES):
        row = connection.execute(_OWN, own).first()
        if row is not None:
            assertion = _record(row)
            if assertion.record_digest != draft.record_digest:
                _record_conflict(connection, namespace, draft, assertion.record_digest, now)
            return AssertionOutcome(assertion, inserted)
        if connection.execute(_INSERT, values).first() is not None:
            inserted = True
            charge.add(ASSERTION_BYTES, draft.size)
    raise StoreUnavailable(
        f"assertion {draft.source_digest.hex()} is removed as often as it is written: try again"
    )


def _record_conflict(
    connection: Connection, namespace: Namespace, draft: AssertionDraft, stored: bytes, now: int
) -> None:
    name = {**_here(namespace), "named": draft.source_digest, "own": draft.actor}
    if connection.execute(_CONFLICT, {**name, "other": draft.record_digest}).first() is None:
        values: dict[str, Any] = {
            "namespace_id": namespace.id,
            "epoch": namespace.epoch,
            "source_digest": draft.source_digest,
            "actor": draft.actor,
            "kept": stored,
            "offered": draft.record_digest,
            "created_at": now,
        }
        connection.execute(_INSERT_CONFLICT, values)


def _record(row: Row) -> AssertionRecord:
    programs = bytes(row.programs)
    return AssertionRecord(
        row.id,
        row.source_digest,
        row.actor,
        row.role,
        row.record_digest,
        row.record_size,
        tuple(programs[start : start + 32] for start in range(0, len(programs), 32)),
        row.toolchain,
        row.size,
        row.created_at,
        bool(row.quarantined),
    )
