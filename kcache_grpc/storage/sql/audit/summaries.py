"""Verifies that the summaries of the audit log agree with its events, and sums the log again."""

# ruff: noqa: S608 (the statements are put together from our own names)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, TextClause, text

from kcache_grpc.storage.sql.engine.database import Database
from kcache_migrations.summaries import DAY, summaries_of_what_is_there

#: Differences that are reported.
_MOST = 20
_NO_LIMIT = text("SET LOCAL statement_timeout = 0")

#: What the summary says and what the events come to, where they differ: one statement sees one state of both.
#: Where events were pruned, a summary may say more.
_DAYS = text("""
WITH e AS (
    SELECT n.name AS namespace, t.at / 86400000000 AS day,
           SUM(CASE WHEN t.kind = 'serve' THEN t.request_count ELSE 0 END) AS served,
           SUM(t.saved_us) AS saved_us, SUM(CASE WHEN t.kind = 'publish' THEN 1 ELSE 0 END) AS compiled,
           SUM(CASE WHEN t.kind = 'publish' THEN t.duration_us ELSE 0 END) AS compile_us
    FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
    WHERE t.kind IN ('serve', 'publish') GROUP BY n.name, t.at / 86400000000
), s AS (
    SELECT namespace, day, SUM(served) AS served, SUM(saved_us) AS saved_us, SUM(compiled) AS compiled,
           SUM(compile_us) AS compile_us
    FROM audit_days GROUP BY namespace, day
)
SELECT s.namespace, s.day, s.served, e.served AS served_of_events
FROM s LEFT JOIN e ON e.namespace = s.namespace AND e.day = s.day
WHERE NOT EXISTS (SELECT 1 FROM audit_checkpoints) AND (e.day IS NULL OR s.served > e.served
      OR s.saved_us > e.saved_us OR s.compiled > e.compiled OR s.compile_us > e.compile_us)
UNION ALL
SELECT e.namespace, e.day, s.served, e.served
FROM e LEFT JOIN s ON s.namespace = e.namespace AND s.day = e.day
WHERE s.day IS NULL OR s.served < e.served OR s.saved_us < e.saved_us OR s.compiled < e.compiled
      OR s.compile_us < e.compile_us
LIMIT :most
""")
#: Targets and reasons are cut as the triggers cut them (``kcache_migrations.summaries``).
_MISSES = text("""
WITH e AS (
    SELECT n.name AS namespace, coalesce(t.program_digest, :none) AS program_digest,
           substr(t.target, 1, 100) AS target, substr(t.outcome, 1, 100) AS reason,
           SUM(t.request_count) AS misses
    FROM audit_events t JOIN namespaces n ON n.id = t.namespace_id
    WHERE t.kind = 'miss' AND t.at > coalesce((SELECT MAX(last_at) FROM audit_checkpoints), -1)
    GROUP BY n.name, coalesce(t.program_digest, :none), substr(t.target, 1, 100), substr(t.outcome, 1, 100)
)
SELECT s.namespace, s.program_digest, s.misses, e.misses AS misses_of_events
FROM audit_misses s LEFT JOIN e ON e.namespace = s.namespace AND e.program_digest = s.program_digest
     AND e.target = s.target AND e.reason = s.reason
WHERE NOT EXISTS (SELECT 1 FROM audit_checkpoints) AND (e.misses IS NULL OR s.misses > e.misses)
UNION ALL
SELECT e.namespace, e.program_digest, s.misses, e.misses
FROM e LEFT JOIN audit_misses s ON s.namespace = e.namespace AND s.program_digest = e.program_digest
     AND s.target = e.target AND s.reason = e.reason
WHERE s.misses IS NULL OR s.misses < e.misses
LIMIT :most
""")
_SUMS = ("served", "saved_us", "compiled", "compile_us")
_TOTALS = ", ".join(f"SUM({name}) AS {name}" for name in _SUMS)
_MISS_COLUMNS = (
    "namespace, program_digest, target, reason, key, misses, first_at, last_at, last_actor, last_job"
)
_LAST_PRUNED = text("SELECT MAX(last_at) FROM audit_checkpoints")
_PREPARE = (
    # Who appends waits: an event is summed by its trigger or here, never by both or by none.
    "LOCK TABLE audit_events IN SHARE ROW EXCLUSIVE MODE",
    "SET LOCAL statement_timeout = 0",
)
_KEEP_MISSES = text(f"""
INSERT INTO audit_misses ({_MISS_COLUMNS})
SELECT {_MISS_COLUMNS} FROM kcache_old_misses WHERE first_at <= :last_at
ON CONFLICT (namespace, program_digest, target, reason) DO UPDATE SET
    misses = CASE WHEN excluded.misses > audit_misses.misses THEN excluded.misses
                  ELSE audit_misses.misses END,
    first_at = CASE WHEN excluded.first_at < audit_misses.first_at THEN excluded.first_at
                    ELSE audit_misses.first_at END
""")


def differences(database: Database) -> Sequence[str]:
    """In words, the first ones. Reads all events."""
    days = [
        f"the day {row.day} (since 1970) of {row.namespace}: audit_days has {row.served} served, "
        f"the events {row.served_of_events}, or other sums differ"
        for row in _asked(database, _DAYS, {"most": _MOST})
    ]
    misses = [
        f"misses of program {bytes(row.program_digest).hex() or '-'} in {row.namespace}: audit_misses has "
        f"{row.misses}, the events {row.misses_of_events}"
        for row in _asked(database, _MISSES, {"most": _MOST, "none": b""})
    ]
    return days + misses


def _asked(database: Database, statement: TextClause, values: Mapping[str, Any]) -> Sequence[Row[Any]]:
    """On Postgres without the time limit of statements that clients wait for."""
    if not database.shared:
        return database.fetch(statement, values)

    def work(connection: Connection) -> Sequence[Row[Any]]:
        connection.execute(_NO_LIMIT)
        return connection.execute(statement, values).all()

    return database.transact(work)


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
