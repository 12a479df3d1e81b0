"""Summing the audit log again, into its summaries."""

# ruff: noqa: S608 (the statements are put together from our own names)
from __future__ import annotations

from sqlalchemy import Connection, text

from kcache_grpc.storage.sql.engine.database import Database
from kcache_migrations.summaries import DAY, summaries_of_what_is_there

_SUMS = ("served", "saved_us", "compiled", "compile_us")
_TOTALS = ", ".join(f"SUM({name}) AS {name}" for name in _SUMS)
_MISSES = "namespace, program_digest, target, reason, key, misses, first_at, last_at, last_actor, last_job"
_LAST_PRUNED = text("SELECT MAX(last_at) FROM audit_checkpoints")
_PREPARE = (
    # Who appends waits: an event is summed by its trigger or here, never by both or by none.
    "LOCK TABLE audit_events IN SHARE ROW EXCLUSIVE MODE",
    "SET LOCAL statement_timeout = 0",
)


def _more(name: str) -> str:
    """By how much more the summary told than the events that are left."""
    return f"CASE WHEN o.{name} > coalesce(n.{name}, 0) THEN o.{name} - coalesce(n.{name}, 0) ELSE 0 END"


#: What the summary told of days of which events were pruned, where it is more than the events that are left.
_KEEP_DAYS = text(f"""
INSERT INTO audit_days (namespace, day, slot, {", ".join(_SUMS)})
SELECT o.namespace, o.day, 0, {", ".join(map(_more, _SUMS))}
FROM (SELECT namespace, day, {_TOTALS} FROM kcache_old_days GROUP BY namespace, day) o
LEFT JOIN (SELECT namespace, day, {_TOTALS} FROM audit_days GROUP BY namespace, day) n
     ON n.namespace = o.namespace AND n.day = o.day
WHERE o.day <= :last_day
ON CONFLICT (namespace, day, slot)
DO UPDATE SET {", ".join(f"{name} = audit_days.{name} + excluded.{name}" for name in _SUMS)}
""")
_KEEP_MISSES = text(f"""
INSERT INTO audit_misses ({_MISSES}) SELECT {_MISSES} FROM kcache_old_misses WHERE first_at <= :last_at
ON CONFLICT (namespace, program_digest, target, reason) DO UPDATE SET
    misses = CASE WHEN excluded.misses > audit_misses.misses THEN excluded.misses
                  ELSE audit_misses.misses END,
    first_at = CASE WHEN excluded.first_at < audit_misses.first_at THEN excluded.first_at
                    ELSE audit_misses.first_at END
""")


def rebuild(database: Database) -> None:
    """One transaction. What is known of pruned events by the summaries alone stays in them."""
    database.transact(_rebuild)


def _rebuild(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        for statement in _PREPARE:
            connection.exec_driver_sql(statement)
    last_at = connection.execute(_LAST_PRUNED).scalar()
    for summary in ("days", "misses"):
        if last_at is not None:
            copy = f"CREATE TEMPORARY TABLE kcache_old_{summary} AS SELECT * FROM audit_{summary}"
            connection.exec_driver_sql(copy)
        connection.exec_driver_sql(f"DELETE FROM audit_{summary}")
    for statement in summaries_of_what_is_there(connection.dialect.name):
        connection.exec_driver_sql(statement)
    if last_at is not None:
        connection.execute(_KEEP_DAYS, {"last_day": last_at // DAY})
        connection.execute(_KEEP_MISSES, {"last_at": last_at})
        for summary in ("days", "misses"):
            connection.exec_driver_sql(f"DROP TABLE kcache_old_{summary}")
