"""Examines a store for ``kcache doctor``, also one that cannot be opened. Reads only."""

# ruff: noqa: S608 (statements of our own names and numbers, and text that is shown)
from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from kcache_grpc.errors import KcacheError
from kcache_grpc.storage.errors import UnsupportedStore
from kcache_grpc.storage.opening import postgres_parsed, sqlite_path
from kcache_grpc.storage.revision import migrate_command
from kcache_grpc.storage.schema import SCHEMA_REVISION, triggers
from kcache_grpc.storage.sql.engine.errors import translated

#: Bytes left on the disk below which a store is in danger, and below which it is about to stop.
_LOW_DISK, _FULL_DISK = 1 << 30, 64 << 20
#: Seconds by which clocks may differ.
_SKEW = 5.0
#: Files up to this size are read from end to end.
_READ_WHOLE = 1 << 30
#: Objects that are asked for.
_OBJECTS = 50


@dataclass(frozen=True)
class Finding:
    """``state`` is ok, warning, failed or skipped; ``advice`` says what to do."""

    name: str
    state: str
    detail: str
    advice: str = ""


@dataclass(frozen=True)
class Subject:
    """What is examined. ``key_id``: of the server's signing key, empty where it is not known."""

    url: str
    connection: Connection
    path: Path | None
    key_id: bytes = b""
    objects: str | None = None

    def rows(self, query: str) -> list[Any]:
        """All rows of a query."""
        return list(self.connection.exec_driver_sql(query).all())

    def one(self, query: str) -> Any:
        """The value of a query that has one."""
        return self.connection.exec_driver_sql(query).scalar()


Check = Callable[[Subject], Finding]


def examine(url: str, key_id: bytes = b"", objects: str | None = None) -> list[Finding]:
    """All findings, in order. Only the first ones where the rest would make no sense."""
    try:
        with _connected(url) as (connection, path):
            subject = Subject(url, connection, path, key_id, objects)
            checks = [_guarded("schema", _schema, subject)]
            if checks[0].state == "failed":
                return checks
            return checks + [_guarded(name, check, subject) for name, check in _CHECKS.items()]
    except KcacheError as error:
        return [Finding("store", "failed", str(error), _advice_of(error))]


@contextmanager
def _connected(url: str) -> Generator[tuple[Connection, Path | None]]:
    """Yield a connection to the store at ``url``, and its path if it is a file.

    Raises ``UnsupportedStore``.
    """
    parsed = postgres_parsed(url)
    if parsed is not None:
        from kcache_grpc.storage.sql.postgres import roles
        from kcache_grpc.storage.sql.postgres.engine import postgres_engine

        engine = postgres_engine(parsed, connections=1)
        try:
            with translated(), engine.connect() as connection:
                roles.reject_unfit(connection)
                yield connection, None
        finally:
            engine.dispose()
        return
    from kcache_grpc.storage.sql.sqlite import file
    from kcache_grpc.storage.sql.sqlite.engine import driver, sqlite_engine

    path = sqlite_path(url)
    if path is None:
        raise UnsupportedStore(f"{url} is a new store each time: there is nothing to examine")
    file.reject_network_file_system(path)
    if file.is_empty(path):
        raise UnsupportedStore(f"there is no store in {path} yet; run: {migrate_command(url)}")
    with translated(), sqlite_engine(path).connect() as connection:
        file.reject_foreign(driver(connection), path)
        yield connection, path.absolute()


def _guarded(name: str, check: Check, subject: Subject) -> Finding:
    try:
        with translated():
            return check(subject)
    except KcacheError as error:
        return Finding(name, "failed", str(error), _advice_of(error))


def _count(number: int, noun: str) -> str:
    """``1 key``, ``2 keys``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _advice_of(error: KcacheError) -> str:
    return error.metadata.get("command", "")


def _schema(subject: Subject) -> Finding:
    named = "alembic_version"
    tables = (
        "SELECT count(*) FROM sqlite_master WHERE name = '{}'"
        if subject.path
        else "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
        "AND relname = '{}'"
    )
    there = subject.one(tables.format(named))
    revision = str(subject.one("SELECT version_num FROM alembic_version") or "") if there else ""
    if revision == SCHEMA_REVISION:
        return Finding("schema", "ok", f"revision {revision}")
    if revision > SCHEMA_REVISION:
        advice = "run: pip install --upgrade kcache-grpc"
        return Finding("schema", "failed", f"revision {revision} is from a newer version of kcache", advice)
    advice = f"run: {migrate_command(subject.url)}"
    detail = f"revision {revision or '-'}, this version needs {SCHEMA_REVISION}"
    return Finding("schema", "failed", detail, advice)


def _guards(subject: Subject) -> Finding:
    if subject.path:
        query = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"
        expected = triggers("sqlite")
    else:
        query = (
            "SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
            "WHERE c.relnamespace = current_schema()::regnamespace AND t.tgenabled = 'A'"
        )
        expected = triggers("postgresql")
    missing = sorted(name for name, _ in expected - {tuple(row) for row in subject.rows(query)})
    if missing:
        advice = "rows may have been changed: run kcache verify --all, or restore a backup"
        return Finding("guards", "failed", f"triggers are missing: {', '.join(missing)}", advice)
    permits = subject.one("SELECT count(*) FROM gc_permits")
    if permits:
        advice = "somebody took the protection away: run kcache verify --all, then DELETE FROM gc_permits"
        return Finding("guards", "failed", "rows may be deleted by anybody: a permit was left behind", advice)
    return Finding("guards", "ok", f"{len(expected)} triggers keep rows as they were written")


def _roles(subject: Subject) -> Finding:
    if subject.path:
        return Finding("roles", "ok", "SQLite has none: who may write the file may delete")
    from kcache_grpc.storage.sql.postgres.roles import deletes_freely

    why = deletes_freely(subject.connection)
    if why is None:
        return Finding("roles", "ok", "the server deletes by the function that writes an audit event, alone")
    advice = (
        "as an administrator, run: kcache migrate --db URL --server-role ROLE (docs/operate/deployment.md)"
    )
    return Finding("roles", "warning", f"{why}: it could delete rows without an audit event", advice)


def _integrity(subject: Subject) -> Finding:
    if subject.path is None:
        return Finding("integrity", "skipped", "checked by Postgres itself (pg_amcheck)")
    size = subject.path.stat().st_size
    if size > _READ_WHOLE:
        return Finding("integrity", "skipped", f"{size >> 20} MiB are not read for this: kcache backup does")
    verdict = subject.one("PRAGMA quick_check(1)")
    advice = "restore a backup (kcache restore)"
    if verdict != "ok":
        return Finding("integrity", "failed", f"the file is damaged: {verdict}", advice)
    broken = subject.rows("PRAGMA foreign_key_check")
    if broken:
        detail = f"{_count(len(broken), 'reference')} to rows that are not there, the first in {broken[0][0]}"
        return Finding("integrity", "failed", detail, advice)
    return Finding("integrity", "ok", f"{size >> 20} MiB")


def _counters(subject: Subject) -> Finding:
    rows = subject.rows(
        "SELECT n.name, c.last_key, coalesce(max(s.key), 0), count(s.key) FROM namespaces n "
        "LEFT JOIN key_counters c ON c.namespace_id = n.id LEFT JOIN specs s ON s.namespace_id = n.id "
        "GROUP BY n.id, n.name, c.last_key ORDER BY n.id"
    )
    for name, last, largest, count in rows:
        if last is None or last < largest:
            advice = (
                f"stop its servers, then: UPDATE key_counters SET last_key = {largest} WHERE namespace_id = "
                f"(SELECT id FROM namespaces WHERE name = '{name}')"
            )
            return Finding(
                "key counters", "failed", f"that of {name} is at {last}, behind key {largest}", advice
            )
        if not last == largest == count:
            detail = f"that of {name} is at {last}, with {_count(count, 'spec')} up to key {largest}"
            return Finding("key counters", "failed", detail, "rows were removed: restore a backup")
    return Finding(
        "key counters",
        "ok",
        f"{_count(sum(row[1] for row in rows), 'key')} in {_count(len(rows), 'namespace')}",
    )


def _aliases(subject: Subject) -> Finding:
    stands_for = {
        (row[0], row[1]): row[2] for row in subject.rows("SELECT namespace_id, alias, key FROM key_aliases")
    }
    for space, alias in stands_for:
        seen, key = {alias}, stands_for[space, alias]
        while (space, key) in stands_for:
            if key in seen:
                advice = "rows were edited: restore a backup"
                return Finding("aliases", "failed", f"keys {sorted(seen)} stand for each other", advice)
            seen.add(key)
            key = stands_for[space, key]
    return Finding("aliases", "ok", f"aliases of keys: {len(stands_for)}")


def _bytes(subject: Subject) -> Finding:
    """Check that artifacts are whole: chunks without a row, missing bytes, and bytes in quarantine."""
    orphans = subject.one(
        "SELECT count(*) FROM artifact_chunks c LEFT JOIN artifacts a ON a.id = c.artifact_id "
        "WHERE a.id IS NULL"
    )
    if orphans:
        advice = "rows were removed by hand: restore a backup"
        return Finding("bytes", "failed", f"{_count(orphans, 'chunk')} without an artifact", advice)
    lost = subject.one(
        "SELECT count(*) FROM artifacts a WHERE NOT EXISTS (SELECT 1 FROM artifact_chunks c "
        "LEFT JOIN quarantine q ON q.artifact_id = c.artifact_id AND q.generation = c.generation "
        "WHERE c.artifact_id = a.id AND q.artifact_id IS NULL "
        "GROUP BY c.generation HAVING sum(c.size) = a.size)"
    )
    bad = subject.rows(
        "SELECT count(DISTINCT c.artifact_id), coalesce(sum(c.size), 0) FROM quarantine q "
        "JOIN artifact_chunks c ON c.artifact_id = q.artifact_id AND c.generation = q.generation"
    )[0]
    damaged = f"{_count(bad[0], 'blob')} with bytes in quarantine ({_count(int(bad[1]), 'byte')})"
    if lost:
        advice = (
            "compiling their kernels again repairs them; kcache gc --apply removes those that nothing uses"
        )
        return Finding(
            "bytes", "warning", f"{_count(lost, 'blob')} without readable bytes, {damaged}", advice
        )
    if bad[0]:
        return Finding(
            "bytes", "warning", f"{damaged}, all with a younger copy", "run: kcache verify --all --apply"
        )
    return Finding("bytes", "ok", f"whole: {_count(subject.one('SELECT count(*) FROM artifacts'), 'blob')}")


def _objects(subject: Subject) -> Finding:
    named = subject.rows(
        "SELECT location, sum(size) FROM artifact_chunks WHERE location IS NOT NULL "
        f"GROUP BY location ORDER BY location LIMIT {_OBJECTS}"
    )
    if not named:
        return Finding("objects", "ok", "all bytes are in the database")
    if subject.objects is None:
        advice = "name the object store with --objects or KCACHE_OBJECTS"
        return Finding("objects", "skipped", "some bytes are in an object store that is not named", advice)
    from kcache_grpc.storage.objects import INLINE_BYTES, Lost, open_objects

    store, missing = open_objects(subject.objects, INLINE_BYTES), list[str]()
    for location, size in named:
        try:
            store.require(location, int(size))
        except (Lost, KcacheError) as loss:  # noqa: PERF203 (each is counted)
            missing.append(str(loss))
    if missing:
        detail = f"{len(missing)} of {len(named)} objects cannot be read, the first: {missing[0]}"
        advice = "run: kcache verify --all --apply; compiling again repairs what it quarantines"
        return Finding("objects", "failed", detail, advice)
    return Finding("objects", "ok", f"found: {_count(len(named), 'object')}")


def _signer(subject: Subject) -> Finding:
    stored = subject.one("SELECT value FROM store_meta WHERE name = 'signer'")
    if stored is None:
        return Finding("signer", "ok", "no server has signed anything yet")
    if not subject.key_id:
        return Finding("signer", "skipped", f"signed by key {stored}; no key file is here to compare")
    if stored != subject.key_id.hex():
        advice = "bring the other key file back, or start kcache serve with --disown to compile all anew"
        detail = f"the store was signed by key {stored}, the key file is {subject.key_id.hex()}"
        return Finding("signer", "failed", detail, advice)
    return Finding("signer", "ok", f"key {stored}")


def _clock(subject: Subject) -> Finding:
    now = time.time()
    newest = subject.one("SELECT at FROM audit_events ORDER BY id DESC LIMIT 1") or 0
    ahead = newest / 1e6 - now
    if subject.path is None:
        database = float(subject.one("SELECT extract(epoch FROM clock_timestamp())"))
        if abs(database - now) > _SKEW:
            detail = f"this machine and the database differ by {database - now:.1f} s"
            return Finding("clock", "warning", detail, "let NTP set both clocks")
    if ahead > _SKEW:
        detail = f"the newest audit event is {ahead:.0f} s in the future"
        return Finding("clock", "warning", detail, "let NTP set the clocks of all servers")
    return Finding("clock", "ok", "no time of the store is in the future")


def _disk(subject: Subject) -> Finding:
    if subject.path is None:
        return Finding("disk", "skipped", "the database's own")
    free = shutil.disk_usage(subject.path.parent).free
    detail = f"{free >> 20} MiB are free in the directory of {subject.path.name}"
    if free < _FULL_DISK:
        return Finding("disk", "failed", detail, "free space, or run: kcache gc --apply --max-bytes SIZE")
    if free < _LOW_DISK:
        return Finding("disk", "warning", detail, "free space, or run: kcache gc --apply --max-bytes SIZE")
    return Finding("disk", "ok", detail)


def _quotas(subject: Subject) -> Finding:
    rows = subject.rows(
        "SELECT n.name, q.resource, q.used, q.most, q.policy FROM quotas q "
        "JOIN namespaces n ON n.id = q.namespace_id ORDER BY n.id, q.resource"
    )
    full = [
        f"{name} {resource} {used} of {most}"
        for name, resource, used, most, policy in rows
        if used >= most * 0.95 and policy == "refuse"
    ]
    if full:
        advice = "raise them (kcache quota set) or remove what is not used (kcache gc --apply)"
        return Finding("quotas", "warning", f"nearly used up: {', '.join(full)}", advice)
    return Finding("quotas", "ok", _count(len(rows), "quota"))


_CHECKS: dict[str, Check] = {
    "guards": _guards,
    "roles": _roles,
    "integrity": _integrity,
    "key counters": _counters,
    "aliases": _aliases,
    "bytes": _bytes,
    "objects": _objects,
    "signer": _signer,
    "clock": _clock,
    "disk": _disk,
    "quotas": _quotas,
}
