"""Stores of any size, filled past the statements of the store itself, which would take hours."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import psycopg
from psycopg import sql
from sqlalchemy import Connection, text

from kcache_grpc.storage import Store
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.schema import METADATA, key_counters
from kcache_grpc.storage.sql.engine.database import Database
from kcache_grpc.storage.sql.sqlite.engine import driver

#: Mappings and audit events a spec, bytes an artifact: 200,000 specs make 1,000,000 of both, and 20 GB.
MAPPINGS, EVENTS, ARTIFACT_BYTES = 5, 5, 100_000
#: Events of one job, and jobs that run at the same time.
JOB_EVENTS, JOBS_AT_ONCE = 200, 5
#: One kernel in so many is of a disowned toolchain; one blob has a generation in quarantine.
DISOWNED, QUARANTINED = 4, 8
TOOLCHAIN, OLD_TOOLCHAIN, RARE_TOOLCHAIN = (
    hashlib.sha256(name).digest() for name in (b"toolchain", b"old toolchain", b"rare toolchain")
)
#: The last kernel of the rare toolchain.
RARE = 20
NOW = 1_750_000_000_000_000
_BATCH = 200_000
#: KiB of pages that SQLite keeps while it is filled: rows come in the order of no index of digests.
_FILLING, _USUAL = 256 << 10, 2000

Row = tuple[Any, ...]
Rows = Iterator[Row]


def digest(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def spec_text(number: int) -> str:
    """Of some hundred to some thousand bytes, as specs are."""
    lines = "".join(f"%{line} = add a0[0,1] a0[0,1] : f32[s0,s1]\n" for line in range(4 + number * 31 % 97))
    return f"kcache.spec v2 default\narg a0 f32[s0,s1]\n{lines}ret %{number}\n"


def spec_digest(number: int) -> bytes:
    return hashlib.sha256(spec_text(number).encode()).digest()


def job_of(event: int) -> str:
    """The job of an event, from 0: some run at the same time, each for as long as its events last."""
    together = JOB_EVENTS * JOBS_AT_ONCE
    return f"job{event // together * JOBS_AT_ONCE + event % JOBS_AT_ONCE}"


def toolchain_of(kernel: int) -> bytes:
    if kernel % DISOWNED == 0:
        return OLD_TOOLCHAIN
    return RARE_TOOLCHAIN if kernel <= RARE else TOOLCHAIN


def fill(store: Store, count: int) -> Namespace:
    """``count`` specs with all that hangs on them: rows that name objects in the place of bytes."""
    ns = store.get_or_create_namespace("default")
    store.disown_toolchain(ns, OLD_TOOLCHAIN)
    database: Database = store._db  # type: ignore[attr-defined]
    for table, columns, rows in _tables(ns, count):
        for batch in _batched(rows):
            database.transact(
                lambda connection, table=table, columns=columns, batch=batch: _insert(
                    connection, table, columns, batch
                )
            )
    advance = key_counters.update().where(key_counters.c.namespace_id == ns.id).values(last_key=count)
    database.transact(lambda connection: connection.execute(advance).rowcount)
    database.transact(_settle)
    return ns


def filled(store: Store, count: int) -> Namespace:
    """``fill``, unless an earlier run did. Raises ``ValueError`` for a store that it began to fill only."""
    ns = store.get_or_create_namespace("default")
    if store.count_specs(ns) >= count:
        return ns
    if store.get_spec(ns, 1) is not None:
        raise ValueError(f"{store.url} was filled in part, or for fewer specs: remove it")
    return fill(store, count)


def _batched(rows: Iterable[Row]) -> Iterator[list[Row]]:
    source = iter(rows)
    while batch := list(itertools.islice(source, _BATCH)):
        yield batch


def _insert(connection: Connection, table: str, columns: Sequence[str], batch: Sequence[Row]) -> None:
    """By the driver's own way of inserting many rows."""
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" for _ in columns)
        _keep_pages(connection, _FILLING)
        driver(connection).executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", batch)
        return
    raw = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    # As long as a busy machine takes.
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    with raw.cursor() as cursor, cursor.copy(statement) as copy:
        for row in batch:
            copy.write_row(row)


def _keep_pages(connection: Connection, kibibytes: int) -> None:
    driver(connection).execute(f"PRAGMA cache_size = -{kibibytes}").close()


def _settle(connection: Connection) -> None:
    """Numbers behind the rows, and connections as they were."""
    if connection.dialect.name == "sqlite":
        _keep_pages(connection, _USUAL)
    else:
        for table in ("artifacts", "graph_mappings", "kernels", "audit_events"):
            connection.execute(text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))


def vacuum(store: Store) -> None:
    """What autovacuum does within minutes on Postgres: statistics, and pages marked as visible to all.

    On SQLite nothing does: its planner knows no statistics of a store.
    """
    engine = store._db._engine  # type: ignore[attr-defined]
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as connection:
        connection.execute(text("SET statement_timeout = 0"))
        for table in METADATA.tables:
            connection.execute(text(f"VACUUM ANALYZE {table}"))
        connection.invalidate()


def _tables(ns: Namespace, count: int) -> Iterator[tuple[str, Sequence[str], Rows]]:
    numbers = range(1, count + 1)
    yield (
        "specs",
        ("namespace_id", "key", "spec_digest", "numerics", "canonicalizer", "family", "text_size")
        + ("created_at", "text"),
        _specs(ns, numbers),
    )
    yield (
        "graph_mappings",
        ("id", "namespace_id", "epoch", "program_digest", "numerics", "key", "created_at", "binding")
        + ("signature",),
        (
            ((n - 1) * MAPPINGS + m + 1, ns.id, ns.epoch, digest("program", n, m), "default", n, NOW)
            + (b"b" * 200, b"s" * 64)
            for n in numbers
            for m in range(MAPPINGS)
        ),
    )
    yield (
        "artifacts",
        ("id", "namespace_id", "digest", "size", "created_at"),
        ((n, ns.id, digest("so", n), ARTIFACT_BYTES, NOW) for n in numbers),
    )
    yield (
        "artifact_chunks",
        ("artifact_id", "generation", "seq", "size", "location"),
        (
            (n, generation, 0, ARTIFACT_BYTES, f"objects/{n}-{generation}")
            for n in numbers
            for generation in ((1, 2) if n % QUARANTINED == 0 else (1,))
        ),
    )
    yield (
        "quarantine",
        ("artifact_id", "generation", "reason", "created_at"),
        ((n, 1, "as a benchmark wants it", NOW) for n in numbers if n % QUARANTINED == 0),
    )
    yield from _kernels(ns, numbers)
    columns = ("namespace_id", "subject", "digest", "hits", "saved_us", "last_used_at")
    kernels = ((ns.id, "kernel", digest("kernel", n), 3, 1000, NOW + n) for n in numbers)
    yield "usage", columns, kernels
    programs = (
        (ns.id, "mapping", digest("program", n, m), 3, 1000, NOW + n)
        for n in numbers
        for m in range(MAPPINGS)
    )
    yield "usage", columns, programs
    yield _events(ns, count)


def _specs(ns: Namespace, numbers: Iterable[int]) -> Rows:
    for n in numbers:
        text = spec_text(n)
        name = hashlib.sha256(text.encode()).digest()
        yield (ns.id, n, name, "default", 2, "stablehlo", len(text), NOW, text)


def _kernels(ns: Namespace, numbers: Sequence[int]) -> Iterator[tuple[str, Sequence[str], Rows]]:
    yield (
        "kernels",
        ("id", "namespace_id", "epoch", "kernel_digest", "key", "target", "options", "toolchain")
        + ("compile_us", "fencing_token", "created_at", "arg_spec", "guard", "manifest", "signature"),
        (
            (n, ns.id, ns.epoch, digest("kernel", n), n, "x86-64-v3", "numerics=default", toolchain_of(n))
            + (100_000, 1, NOW, "f32[8,8]", "", b"m" * 900, b"s" * 64)
            for n in numbers
        ),
    )
    yield (
        "kernel_artifacts",
        ("kernel_id", "position", "kind", "artifact_id"),
        ((n, 0, "so", n) for n in numbers),
    )
    yield (
        "kernel_ingredients",
        ("kernel_id", "position", "name", "value"),
        (
            (n, position, name, f"{name} {n % 7}")
            for n in numbers
            for position, name in enumerate(("spec", "target", "toolchain.llvm"))
        ),
    )


def _events(ns: Namespace, count: int) -> tuple[str, Sequence[str], Rows]:
    """Every fourth a miss, one in 50 a publish; of jobs that run side by side."""
    columns = (
        ("namespace_id", "epoch", "at", "writer", "kind", "outcome", "origin", "actor", "peer", "request_id")
        + ("program_digest", "spec_digest", "key", "kernel_digest", "target", "toolchain", "duration_us")
        + ("byte_count", "saved_us", "detail", "job", "request_count")
    )
    kinds = {0: ("publish", "ok"), **dict.fromkeys(range(1, 50, 4), ("miss", "need_program"))}

    def rows() -> Rows:
        for event in range(count * EVENTS):
            # As many kernels a job in a small store as in a large one.
            n = (event * 7919 + event // count) % count + 1
            kind, outcome = kinds.get(event % 50, ("serve", "hit"))
            yield (
                (ns.id, 1, NOW + event * 1000, f"w{event % 3}", kind, outcome, "stored", f"user{event % 50}")
                + (f"ipv4:10.0.0.{event % 250}:4711", f"request {event:024}", digest("program", n, event % 5))
                + (digest("spec", n), n, None if kind == "miss" else digest("kernel", n), "x86-64-v3")
                + (toolchain_of(n), 900, ARTIFACT_BYTES, 100_000, "", job_of(event), 1)
            )

    return "audit_events", columns, rows()
