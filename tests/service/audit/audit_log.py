"""Audit logs to be proven: appended and sealed by the real parts, then meddled with behind their back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kcache_grpc.model.signing import Signer
from kcache_grpc.service.audit.proof import Chain, Finding, KeptHead, Verification
from kcache_grpc.service.audit.sealer import Sealer
from kcache_grpc.storage import Store
from kcache_grpc.storage.records import AuditEvent

#: Later than everything: every seal counts as made long ago.
LATE = 2**62


def append(store: Store, count: int, *, first: int = 0, at: int = 1000) -> None:
    """Events that differ."""
    ns = store.get_or_create_namespace("default")
    for number in range(first, first + count):
        store.append_audit(
            ns, [AuditEvent("serve", outcome=f"o{number}", job="j", key=number, at=at + number)]
        )


def sealer(store: Store, signer: Signer, at: int = 5000) -> Sealer:
    instance = Sealer(store, signer, clock=lambda: at)
    instance.begin()
    return instance


def prove(store: Store, heads: tuple[KeptHead, ...] = (), keys: tuple[bytes, ...] = ()) -> list[Chain]:
    return Verification(store, keys).all(heads, overdue=LATE)


def findings(store: Store, heads: tuple[KeptHead, ...] = (), keys: tuple[bytes, ...] = ()) -> list[Finding]:
    return [finding for chain in prove(store, heads, keys) for finding in chain.findings]


def kept_heads(store: Store) -> tuple[KeptHead, ...]:
    last_seals = [(writer.writer, store.last_seal(writer.writer)) for writer in store.list_writers()]
    return tuple(KeptHead(name, seal.sequence, seal.root) for name, seal in last_seals if seal is not None)


@contextmanager
def meddling(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for which no row is protected; the triggers are back afterwards."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in triggers:
            connection.execute(sql)
        connection.execute("COMMIT")
    finally:
        connection.close()
