"""Timings of schedule choices on SQL."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.autotune import AutotuneStore, Timing, TimingRecord
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.schema import autotune_timings
from kcache_grpc.storage.sql.engine.bulk import insert_once
from kcache_grpc.storage.sql.engine.database import SqlPart

# The subject's column is ``kernel_digest``: the first schema named it before subjects lost their toolchain.
_T = autotune_timings.c
_INSERT = insert_once(autotune_timings).returning(_T.id)
_LIST = (
    select(_T.config, _T.nanoseconds, _T.samples, _T.created_at)
    .where(
        _T.namespace_id == bindparam("ns"),
        _T.kernel_digest == bindparam("subject"),
        _T.shape == bindparam("of_shape"),
        _T.device == bindparam("on_device"),
    )
    .order_by(_T.nanoseconds, _T.id)
)
_LIST_SHAPES = (
    select(_T.shape, _T.config, _T.nanoseconds, _T.samples, _T.created_at)
    .where(
        _T.namespace_id == bindparam("ns"),
        _T.kernel_digest == bindparam("subject"),
        _T.device == bindparam("on_device"),
    )
    .order_by(_T.shape, _T.nanoseconds, _T.id)
)
_LIST_SUBJECT = select(_T.shape, _T.device, _T.config, _T.nanoseconds, _T.samples, _T.created_at).where(
    _T.namespace_id == bindparam("ns"), _T.kernel_digest == bindparam("subject")
)
_COUNT = select(func.count()).select_from(autotune_timings).where(_T.namespace_id == bindparam("ns"))
_OLDEST = select(_T.id).where(_T.namespace_id == bindparam("ns")).order_by(_T.id).limit(bindparam("most"))
_REMOVE_OLDEST = delete(autotune_timings).where(_T.id.in_(_OLDEST))


class SqlAutotune(SqlPart, AutotuneStore):
    """``AutotuneStore`` on SQL."""

    def add_timings(self, namespace: Namespace, batch: Sequence[Timing]) -> int:
        """Insert timings that are not stored, in one transaction; return how many were new.

        If the namespace then has too many, the oldest are removed.
        """
        checks.timings(batch)
        if not batch:
            return 0
        now = self._clock.wall()
        # The first of a name counts; sorted, so that two writers of the same names never wait for each other.
        named = {(each.subject, each.shape, each.device, each.config): each for each in reversed(batch)}
        rows = [
            {
                "namespace_id": namespace.id,
                "kernel_digest": each.subject,
                "shape": each.shape,
                "config": each.config,
                "device": each.device,
                "nanoseconds": each.nanoseconds,
                "samples": each.samples,
                "created_at": now,
            }
            for _, each in sorted(named.items(), key=lambda pair: pair[0])
        ]

        def work(connection: Connection) -> int:
            added = sum(len(connection.execute(_INSERT, row).all()) for row in rows)
            if added:
                count = connection.execute(_COUNT, {"ns": namespace.id}).scalar_one()
                if excess := self._too_many(count):
                    connection.execute(_REMOVE_OLDEST, {"ns": namespace.id, "most": excess})
            return added

        return self._db.transact(work)

    def list_timings(
        self, namespace: Namespace, subject: bytes, shape: str, device: str
    ) -> tuple[TimingRecord, ...]:
        checks.digest("subject", subject)
        checks.indexed("shape or device", shape, device)
        values = {"ns": namespace.id, "subject": subject, "of_shape": shape, "on_device": device}
        return tuple(
            TimingRecord(
                Timing(subject, shape, row.config, device, row.nanoseconds, row.samples), row.created_at
            )
            for row in self._db.fetch(_LIST, values)
        )

    def list_shapes(self, namespace: Namespace, subject: bytes, device: str) -> tuple[TimingRecord, ...]:
        checks.digest("subject", subject)
        checks.indexed("device", device)
        values = {"ns": namespace.id, "subject": subject, "on_device": device}
        return tuple(
            TimingRecord(
                Timing(subject, row.shape, row.config, device, row.nanoseconds, row.samples), row.created_at
            )
            for row in self._db.fetch(_LIST_SHAPES, values)
        )

    def list_subject(self, namespace: Namespace, subject: bytes) -> tuple[TimingRecord, ...]:
        checks.digest("subject", subject)
        records = (
            TimingRecord(
                Timing(subject, row.shape, row.config, row.device, row.nanoseconds, row.samples),
                row.created_at,
            )
            for row in self._db.fetch(_LIST_SUBJECT, {"ns": namespace.id, "subject": subject})
        )
        # Sorted here: databases differ in the order of texts.
        return tuple(sorted(records, key=lambda r: (r.timing.shape, r.timing.device, r.timing.config)))
