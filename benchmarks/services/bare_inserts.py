"""The rival of ``benchmarks.services.inserts``: the bare driver writes the rows of a program, a transaction
each.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import count
from typing import Any

import psycopg

from kcache_grpc.storage.records import AuditEvent, GraphDraft, Namespace

#: Executes statements with their rows in one transaction.
Execute = Callable[[list[tuple[str, tuple[Any, ...]]]], None]

#: SQLite has one writer at a time: a process that takes turns by itself is faster than one that polls.
_turn = threading.Lock()


@contextmanager
def bare_writer(
    url: str, namespace: Namespace, name: str
) -> Iterator[Callable[[GraphDraft, AuditEvent], object]]:
    """A connection of its own, and keys that nobody else makes up."""
    keys = count(1 + (zlib.crc32(name.encode()) << 20))

    def write(graph: GraphDraft, event: AuditEvent) -> None:
        rows = _rows(namespace, graph, event, next(keys))
        execute([(_insert(table, row, mark), tuple(row.values())) for table, row in rows])

    if url.startswith("sqlite:///"):
        mark = "?"
        with closing(_sqlite(url.removeprefix("sqlite:///"))) as connection:
            execute = _on_sqlite(connection)
            yield write
        return
    mark = "%s"
    with psycopg.connect(url) as connection:
        execute = _on_postgres(connection)
        yield write


def _sqlite(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _on_sqlite(connection: sqlite3.Connection) -> Execute:
    def execute(statements: list[tuple[str, tuple[Any, ...]]]) -> None:
        with _turn:
            connection.execute("BEGIN IMMEDIATE")
            for statement, values in statements:
                connection.execute(statement, values)
            connection.execute("COMMIT")

    return execute


def _on_postgres(connection: psycopg.Connection[Any]) -> Execute:
    def execute(statements: list[tuple[str, tuple[Any, ...]]]) -> None:
        for statement, values in statements:
            connection.execute(statement.encode(), values)
        connection.commit()

    return execute


def _insert(table: str, row: Mapping[str, Any], mark: str) -> str:
    marks = ", ".join([mark] * len(row))
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"


def _rows(
    namespace: Namespace, graph: GraphDraft, event: AuditEvent, key: int
) -> list[tuple[str, dict[str, Any]]]:
    spec, binding = graph.spec, graph.bind(key)
    here = {"namespace_id": namespace.id}
    return [
        (
            "specs",
            {
                **here,
                "key": key,
                "spec_digest": spec.spec_digest,
                "numerics": spec.numerics,
                "canonicalizer": spec.canonicalizer,
                "family": spec.family,
                "text_size": len(spec.text),
                "created_at": 1,
                "text": spec.text,
            },
        ),
        (
            "graph_mappings",
            {
                **here,
                "epoch": namespace.epoch,
                "program_digest": graph.program_digest,
                "numerics": spec.numerics,
                "key": key,
                "created_at": 1,
                "binding": binding.payload,
                "signature": binding.signature,
            },
        ),
        (
            "usage",
            {
                **here,
                "subject": "mapping",
                "digest": graph.program_digest,
                "hits": 0,
                "saved_us": 0,
                "last_used_at": 1,
            },
        ),
        ("audit_events", {**here, "epoch": namespace.epoch, "writer": "bare", **asdict(event)}),
    ]
