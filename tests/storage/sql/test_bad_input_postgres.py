"""Bad input to a store on Postgres: rows that somebody edited, a full disk. test_bad_input.py has SQLite."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.errors import CorruptStore, StorageError, StoreUnavailable
from kcache_grpc.storage.records import Namespace
from tests.postgres import PostgresServer
from tests.storage.drafts import graph, kernel, sha256, spec
from tests.system.chaos.faults.shim import build
from tests.system.chaos.stores import PostgresStore, postgres_store


@pytest.fixture
def store(postgres_server: PostgresServer) -> Iterator[Store]:
    """In a database of its own: some damage stays."""
    url = postgres_server.create_migrated()
    with open_store(url) as opened:
        yield opened
    postgres_server.drop(url)


@pytest.fixture
def ns(store: Store) -> Namespace:
    namespace = store.get_or_create_namespace("default")
    store.put_graph(namespace, graph(0, [b"weights"]))
    store.publish_kernel(namespace, kernel(0))
    return namespace


def tamper(store: Store, statement: str) -> None:
    """As somebody does who takes the triggers away: even replication does not pass them."""
    with psycopg.connect(store.url) as connection:
        triggers = connection.execute(
            "SELECT tgrelid::regclass::text, tgname FROM pg_trigger "
            "WHERE NOT tgisinternal AND tgenabled = 'A'"
        ).fetchall()
        for table, name in triggers:
            connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER {name}".encode())
        assert connection.execute(statement.encode()).rowcount > 0
        for table, name in triggers:
            connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}".encode())


@pytest.mark.parametrize(
    ("damage", "call"),
    [
        ("UPDATE specs SET text = text || ' '", lambda store, ns: store.get_spec(ns, 1)),
        ("UPDATE specs SET text = text || ' '", lambda store, ns: store.find_spec(ns, spec(0).spec_digest)),
        ("UPDATE specs SET spec_digest = sha256('')", lambda store, ns: store.get_spec(ns, 1)),
    ],
)
def test_an_edited_spec_is_never_read(
    store: Store, ns: Namespace, damage: str, call: Callable[[Store, Namespace], Any]
) -> None:
    tamper(store, damage)
    with pytest.raises(CorruptStore, match="does not hash to its digest"):
        call(store, ns)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE artifact_chunks SET content = decode('6f626a6563742031', 'hex') WHERE size = 8",
        "DELETE FROM artifact_chunks WHERE size = 8",
    ],
)
def test_edited_bytes_are_never_read_and_come_again(store: Store, ns: Namespace, damage: str) -> None:
    tamper(store, damage)
    assert store.read_artifact(ns, sha256(b"object 0")) is None
    assert store.find_kernel(ns, kernel(0).kernel.kernel_digest) is None
    assert store.publish_kernel(ns, kernel(0)).repaired == 1
    assert store.read_artifact(ns, sha256(b"object 0")) == b"object 0"


def test_a_counter_that_was_set_back_gives_no_key_twice(store: Store, ns: Namespace) -> None:
    tamper(store, "UPDATE key_counters SET last_key = 0")
    for _ in range(2):
        with pytest.raises(StorageError):
            store.put_spec(ns, spec(1))
    first = store.get_spec(ns, 1)
    assert first is not None
    assert first.spec_digest == spec(0).spec_digest
    tamper(store, "UPDATE key_counters SET last_key = 1")
    assert store.put_spec(ns, spec(1)).key == 2


def test_a_circle_of_aliases_is_an_error_and_not_for_ever(store: Store, ns: Namespace) -> None:
    store.put_spec(ns, spec(1))
    with psycopg.connect(store.url) as connection:
        checks = connection.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = 'key_aliases'::regclass AND contype = 'c'"
        ).fetchall()
        for (name,) in checks:
            connection.execute(f"ALTER TABLE key_aliases DROP CONSTRAINT {name}".encode())
    tamper(store, "INSERT INTO key_aliases VALUES (1, 1, 2, 0), (1, 2, 1, 0)")
    with pytest.raises(CorruptStore, match="stand for each other"):
        store.resolve_key(ns, 1)


def retried(call: Callable[[], Any]) -> Any:
    """Retries while Postgres replays its log."""
    deadline = time.monotonic() + 240
    while True:
        with contextlib.suppress(StoreUnavailable):
            return call()
        assert time.monotonic() < deadline


def test_a_full_disk_loses_nothing_and_is_got_over() -> None:
    with tempfile.TemporaryDirectory(prefix="kc-full-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shim = build(folder)
        shim.chmod(0o755)
        with postgres_store(folder, shim) as shared, open_store(shared.url) as store:
            assert isinstance(shared, PostgresStore)
            ns = store.get_or_create_namespace("default")
            assert store.put_spec(ns, spec(0)).key == 1
            shared.fill_database_disk()
            with pytest.raises(StoreUnavailable) as rejected:
                store.put_spec(ns, spec(1))
            assert "closed (" not in str(rejected.value)  # the store is not
            shared.heal()
            first = retried(lambda: store.get_spec(ns, 1))
            assert first is not None
            assert first.text == spec(0).text
            last = retried(lambda: store.put_spec(ns, spec(2)))
            assert last.key == retried(lambda: store.count_specs(ns))
            assert shared.rows("SELECT key FROM specs ORDER BY key") == [
                (key + 1,) for key in range(store.count_specs(ns))
            ]
