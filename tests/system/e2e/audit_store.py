"""Reads a SQLite store with nothing but sqlite3, and lists all that is not whole in it."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

_INGREDIENTS = ("spec", "arg_spec", "guard", "target", "options", "toolchain")


def complaints(database: Path) -> list[str]:
    """Every broken promise about what a store contains, in words; empty for a sound store."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return [
            *_integrity(connection),
            *_keys(connection),
            *_specs(connection),
            *_artifacts(connection),
            *_kernels(connection),
        ]
    finally:
        connection.close()


def count(database: Path, table: str) -> int:
    """Rows of a table."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    finally:
        connection.close()


def _integrity(connection: sqlite3.Connection) -> list[str]:
    problems = [
        f"integrity: {row[0]}" for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"
    ]
    return problems + [f"dangling reference: {row}" for row in connection.execute("PRAGMA foreign_key_check")]


def _keys(connection: sqlite3.Connection) -> list[str]:
    """Keys are 1..n without duplicate or gap, and the counter stands at n."""
    problems: list[str] = []
    counters = dict(connection.execute("SELECT namespace_id, last_key FROM key_counters").fetchall())
    for namespace, last in counters.items():
        rows = connection.execute("SELECT key FROM specs WHERE namespace_id = ? ORDER BY key", (namespace,))
        keys = [row[0] for row in rows]
        if keys != list(range(1, len(keys) + 1)) or last != len(keys):
            problems.append(f"namespace {namespace}: counter {last}, keys {keys}")
    return problems


def _specs(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT key, spec_digest, text FROM specs")
    return [
        f"spec {key} does not match its digest"
        for key, digest, text in rows
        if hashlib.sha256(text.encode()).digest() != digest
    ]


def _artifacts(connection: sqlite3.Connection) -> list[str]:
    problems: list[str] = []
    for artifact, digest, size in connection.execute("SELECT id, digest, size FROM artifacts").fetchall():
        chunks = connection.execute(
            "SELECT content FROM artifact_chunks WHERE artifact_id = ? AND generation = "
            "(SELECT max(generation) FROM artifact_chunks WHERE artifact_id = ?) ORDER BY seq",
            (artifact, artifact),
        )
        content = b"".join(row[0] for row in chunks)
        if len(content) != size or hashlib.sha256(content).digest() != digest:
            problems.append(f"artifact {digest.hex()} is torn: {len(content)} of {size} bytes")
    return problems


def _kernels(connection: sqlite3.Connection) -> list[str]:
    """A kernel has a shared object, or PTX for a GPU, and all ingredients."""
    problems: list[str] = []
    for kernel, digest in connection.execute("SELECT id, kernel_digest FROM kernels").fetchall():
        kinds = connection.execute(
            "SELECT kind FROM kernel_artifacts WHERE kernel_id = ?", (kernel,)
        ).fetchall()
        if not {("so",), ("ptx",)} & set(kinds):
            problems.append(f"kernel {digest.hex()} has no code: {kinds}")
        rows = connection.execute(
            "SELECT name FROM kernel_ingredients WHERE kernel_id = ? ORDER BY position LIMIT 6", (kernel,)
        )
        if tuple(row[0] for row in rows) != _INGREDIENTS:
            problems.append(f"kernel {digest.hex()} lacks ingredients")
    return problems
