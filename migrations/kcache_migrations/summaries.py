"""Summaries of the audit log, kept by triggers in the transaction that appends the events.

``audit_days``: what was served and compiled, by namespace and day. ``audit_misses``: what was missed. A
question that would read the whole log reads them instead. On Postgres rows of a day are partial sums, by
writer, so that servers which append at the same time seldom wait for each other; SQLite has one at a time.
"""

# ruff: noqa: S608 (the statements are put together from our own names)
from __future__ import annotations

import re
from collections.abc import Iterator

DAY = 86_400_000_000
#: Sums stop here: a number of an event may be as large as this itself.
_MOST = 2**63 - 1
#: Characters of a target and a reason that name a row: rows of an index are short.
_CHARS = 100
#: Partial sums of one day.
_SLOTS = 16

_MISS_NAME = "namespace, program_digest, target, reason"
_MISS_COLUMNS = f"{_MISS_NAME}, key, misses, first_at, last_at, last_actor, last_job"
_DAY_NAME = "namespace, day, slot"
_SUMS = ("served", "saved_us", "compiled", "compile_us")
_DAY_COLUMNS = f"{_DAY_NAME}, {', '.join(_SUMS)}"
#: What each sum adds of an event ``e``.
_PARTS = (
    "CASE WHEN e.kind = 'serve' THEN e.request_count ELSE 0 END",
    "e.saved_us",
    "CASE WHEN e.kind = 'publish' THEN 1 ELSE 0 END",
    "CASE WHEN e.kind = 'publish' THEN e.duration_us ELSE 0 END",
)
_OF_DAYS = "e.kind IN ('serve', 'publish')"


def summary_statements(dialect: str, schema: str = "") -> Iterator[str]:
    """Statements that make the triggers. ``schema``: of Postgres, quoted."""
    if dialect == "postgresql":
        yield _function()
        yield f"ALTER FUNCTION kcache_summarize() SET search_path = {schema}, pg_temp"
        yield (
            "CREATE TRIGGER audit_events_summarize AFTER INSERT ON audit_events REFERENCING NEW TABLE AS "
            "appended FOR EACH STATEMENT EXECUTE FUNCTION kcache_summarize()"
        )
        yield "ALTER TABLE audit_events ENABLE ALWAYS TRIGGER audit_events_summarize"
        return
    for name, condition, statement in (
        ("miss", "e.kind = 'miss'", _add_misses_of_sqlite()),
        ("day", _OF_DAYS, _add_days_of_sqlite()),
    ):
        when, body = (re.sub(r"\be\.", "NEW.", text) for text in (condition, statement))
        named = f"CREATE TRIGGER audit_events_add_{name} AFTER INSERT ON audit_events"
        yield f"{named} WHEN {when} BEGIN {body}; END"


def summary_removal(dialect: str) -> Iterator[str]:
    """Statements that take them away."""
    if dialect == "postgresql":
        yield "DROP TRIGGER audit_events_summarize ON audit_events"
        yield "DROP FUNCTION kcache_summarize()"
        return
    yield "DROP TRIGGER audit_events_add_miss"
    yield "DROP TRIGGER audit_events_add_day"


def summaries_of_what_is_there(dialect: str) -> Iterator[str]:
    """Statements that fill empty summaries from all events."""
    if dialect == "postgresql":
        yield _misses_of_postgres("audit_events")
        yield _days_of_postgres("audit_events")
        return
    latest = [f"substr(max(printf('%020d', e.at) || e.{column}), 21)" for column in ("actor", "job")]
    yield (
        f"INSERT INTO audit_misses ({_MISS_COLUMNS}) {_missed(_X)}, max(e.key), "
        f"CAST(min(total(e.request_count), {_MOST}) AS INTEGER), min(e.at), max(e.at), {', '.join(latest)} "
        "FROM audit_events e JOIN namespaces n ON n.id = e.namespace_id WHERE e.kind = 'miss' "
        "GROUP BY 1, 2, 3, 4"
    )
    sums = ", ".join(f"CAST(min(total({part}), {_MOST}) AS INTEGER)" for part in _PARTS)
    yield (
        f"INSERT INTO audit_days ({_DAY_COLUMNS}) SELECT n.name, e.at / {DAY}, 0, {sums} "
        f"FROM audit_events e JOIN namespaces n ON n.id = e.namespace_id WHERE {_OF_DAYS} GROUP BY 1, 2"
    )


_X, _EMPTY = "x''", "''::bytea"


def _missed(none: str) -> str:
    """The name of a row of ``audit_misses``."""
    return (
        f"SELECT n.name, coalesce(e.program_digest, {none}), substr(e.target, 1, {_CHARS}), "
        f"substr(e.outcome, 1, {_CHARS})"
    )


def _add_misses_of_sqlite() -> str:
    return (
        f"INSERT INTO audit_misses ({_MISS_COLUMNS}) {_missed(_X)}, e.key, e.request_count, e.at, "
        "e.at, e.actor, e.job FROM namespaces n WHERE n.id = e.namespace_id "
        f"ON CONFLICT ({_MISS_NAME}) DO UPDATE SET key = coalesce(excluded.key, key), "
        f"misses = min(misses + excluded.misses, {_MOST}), "
        "first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at), "
        "last_actor = CASE WHEN excluded.last_at < last_at THEN last_actor ELSE excluded.last_actor END, "
        "last_job = CASE WHEN excluded.last_at < last_at THEN last_job ELSE excluded.last_job END"
    )


def _add_days_of_sqlite() -> str:
    sums = ", ".join(f"{name} = min({name} + excluded.{name}, {_MOST})" for name in _SUMS)
    return (
        f"INSERT INTO audit_days ({_DAY_COLUMNS}) SELECT n.name, e.at / {DAY}, 0, {', '.join(_PARTS)} "
        "FROM namespaces n WHERE n.id = e.namespace_id "
        f"ON CONFLICT ({_DAY_NAME}) DO UPDATE SET {sums}"
    )


def _misses_of_postgres(source: str) -> str:
    """Rows in one order: who waits for another's never has that one waiting for its own."""
    latest = [f"(array_agg(e.{column} ORDER BY e.at DESC, e.id DESC))[1]" for column in ("actor", "job")]
    older = "excluded.last_at < m.last_at"
    return (
        f"INSERT INTO audit_misses AS m ({_MISS_COLUMNS}) {_missed(_EMPTY)}, max(e.key), "
        f"least(sum(e.request_count), {_MOST})::bigint, min(e.at), max(e.at), {', '.join(latest)} "
        f"FROM {source} e JOIN namespaces n ON n.id = e.namespace_id WHERE e.kind = 'miss' "
        "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 "
        f"ON CONFLICT ({_MISS_NAME}) DO UPDATE SET key = coalesce(excluded.key, m.key), "
        f"misses = least(m.misses::numeric + excluded.misses, {_MOST})::bigint, "
        "first_at = least(m.first_at, excluded.first_at), last_at = greatest(m.last_at, excluded.last_at), "
        f"last_actor = CASE WHEN {older} THEN m.last_actor ELSE excluded.last_actor END, "
        f"last_job = CASE WHEN {older} THEN m.last_job ELSE excluded.last_job END"
    )


def _days_of_postgres(source: str) -> str:
    slot = f"hashtext(e.writer) & {_SLOTS - 1}"
    sums = ", ".join(f"least(sum({part}), {_MOST})::bigint" for part in _PARTS)
    added = ", ".join(
        f"{name} = least(d.{name}::numeric + excluded.{name}, {_MOST})::bigint" for name in _SUMS
    )
    return (
        f"INSERT INTO audit_days AS d ({_DAY_COLUMNS}) SELECT n.name, e.at / {DAY}, {slot}, {sums} "
        f"FROM {source} e JOIN namespaces n ON n.id = e.namespace_id WHERE {_OF_DAYS} "
        f"GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 ON CONFLICT ({_DAY_NAME}) DO UPDATE SET {added}"
    )


def _function() -> str:
    return f"""
CREATE FUNCTION kcache_summarize() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM appended e WHERE e.kind = 'miss') THEN
        {_misses_of_postgres("appended")};
    END IF;
    IF EXISTS (SELECT 1 FROM appended e WHERE {_OF_DAYS}) THEN
        {_days_of_postgres("appended")};
    END IF;
    RETURN NULL;
END $$
"""
