"""Rows that are written once: no statement on any connection changes, removes or replaces them."""

from __future__ import annotations

import sqlite3

import pytest

from kcache_grpc.storage.contract.assertions import AssertionDraft
from kcache_grpc.storage.contract.blob_cache import ValueDraft
from kcache_grpc.storage.records import AuditEvent
from kcache_grpc.storage.schema import IMMUTABLE, METADATA, PERMANENT
from tests.storage.drafts import graph, kernel, sha256, spec
from tests.storage.inside import contents, path_of, raw

TABLES = sorted(IMMUTABLE)


@pytest.fixture
def filled(sqlite):
    """A file with a row in every protected table."""
    ns = sqlite.get_or_create_namespace("default")
    sqlite.put_graph(ns, graph(0, [b"weights"]), AuditEvent("store"))
    sqlite.put_spec(ns, spec(1))
    sqlite.add_alias(ns, 2, 1)
    sqlite.put_program(ns, sha256("program"), "stablehlo", b"body")
    sqlite.publish_kernel(ns, kernel(1))
    sqlite.publish_kernel(ns, kernel(1, so=b"other"))
    sqlite.put_values(ns, [ValueDraft.of(sha256("key"), sha256(b"value"), b"value")])
    sqlite.put_values(ns, [ValueDraft.of(sha256("key"), sha256(b"other"), b"other")])
    asserted = sqlite.put_assertion(ns, AssertionDraft(sha256("source"), "local", b"{}")).assertion
    sqlite.put_assertion(ns, AssertionDraft(sha256("source"), "local", b"[]"))
    sqlite.dispute_assertion(ns, asserted, sha256("observed"), "local")
    path = path_of(sqlite)
    root = "zeroblob(32)"
    with raw(path) as connection:
        connection.execute(
            "INSERT INTO audit_seals "
            "(writer, sequence, previous_root, root, event_ids, signature, created_at) "
            f"VALUES ('w', 1, {root}, {root}, x'', x'', 0)"
        )
        connection.execute(
            "INSERT INTO audit_writers (writer, public_key, host, started_at) VALUES ('w', x'', '', 0)"
        )
        connection.execute(
            "INSERT INTO audit_checkpoints "
            "(writer, sequence, root, events, first_at, last_at, signature, created_at) "
            f"VALUES ('w', 1, {root}, 1, 0, 0, x'', 0)"
        )
    return path


@pytest.fixture(params=["ours", "plain"])
def connection(request, filled):
    with raw(filled) as opened:
        if request.param == "ours":
            opened.execute("PRAGMA foreign_keys = ON")
            opened.execute("PRAGMA recursive_triggers = ON")
        yield opened


def rejected(connection: sqlite3.Connection, statement: str, *parameters: object) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=r"kcache: rows of .* are never"):
        connection.execute(statement, parameters)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("table", TABLES)
def test_rows_stay_as_they_were_written(filled, connection, table):
    before = contents(filled)
    columns = [column.name for column in METADATA.tables[table].columns]
    row = connection.execute(f"SELECT {', '.join(columns)} FROM {table} LIMIT 1").fetchone()
    assert row is not None
    for column in columns:
        rejected(connection, f"UPDATE {table} SET {column} = {column}")
        rejected(connection, f"UPDATE OR REPLACE {table} SET {column} = 0")
    rejected(connection, f"DELETE FROM {table}")
    rejected(connection, f"DELETE FROM {table} WHERE rowid = 1")
    marks = ", ".join("?" for _ in columns)
    for verb in ("INSERT OR REPLACE", "REPLACE", "INSERT", "INSERT OR IGNORE"):
        rejected(connection, f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({marks})", *row)
    assert contents(filled) == before


@pytest.mark.sampled(4)
@pytest.mark.parametrize("table", [table for table in TABLES if "id" not in METADATA.tables[table].columns])
def test_a_row_cannot_be_replaced_through_its_rowid(filled, connection, table):
    connection.execute("PRAGMA foreign_keys = OFF")
    columns = [column.name for column in METADATA.tables[table].columns]
    first = connection.execute(f"SELECT rowid, {', '.join(columns)} FROM {table} LIMIT 1").fetchone()
    values = [97 if isinstance(value, int) else value for value in first[1:]]
    values = [bytes(32) if isinstance(value, bytes) else value for value in values]
    marks = ", ".join("?" for _ in first)
    rejected(
        connection,
        f"INSERT OR REPLACE INTO {table} (rowid, {', '.join(columns)}) VALUES ({marks})",
        first[0],
        *values,
    )


@pytest.mark.sampled(12)
@pytest.mark.parametrize("table", TABLES)
def test_only_a_permit_within_the_transaction_lets_rows_go(connection, table):
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO gc_permits (reason, created_at) VALUES ('test', 0)")
    if table in PERMANENT:
        rejected(connection, f"DELETE FROM {table}")
    else:
        assert connection.execute(f"DELETE FROM {table}").rowcount > 0
    connection.execute("DELETE FROM gc_permits")
    rejected(connection, "DELETE FROM specs")
    connection.execute("ROLLBACK")


def test_every_table_that_only_grows_is_protected():
    mutable = {
        "store_meta",
        "namespaces",
        "key_counters",
        "leases",
        "failures",
        "quarantine",
        "quarantined_blobs",
        "quarantined_rows",
        "autotune_timings",
        "usage",
        "gc_permits",
        "quotas",
        "pins",
        "disowned_toolchains",
        "dead_objects",
        "transfers",
        "cache_usage",
        "cache_totals",
        "assertion_usage",
        # Sums of what is protected: verified against it.
        "audit_days",
        "audit_misses",
    }
    assert set(METADATA.tables) - mutable == set(IMMUTABLE)
