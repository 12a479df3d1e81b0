"""What a doctor finds in a store that somebody broke, and what it says to do."""

from __future__ import annotations

import time as clock_of_machine
from collections import namedtuple

import pytest

from kcache_grpc.storage import examination as module
from kcache_grpc.storage import migrate, open_store
from kcache_grpc.storage.examination import Finding, examine
from kcache_grpc.storage.records import AuditEvent
from tests.postgres import PostgresServer
from tests.storage.drafts import graph, kernel, sha256, spec
from tests.storage.inside import path_of, raw, tamper

SIGNER = b"8 bytes."


@pytest.fixture
def url(sqlite):
    ns = sqlite.get_or_create_namespace("default")
    sqlite.put_graph(ns, graph(0, [b"weights"]))
    for number in (1, 2):
        sqlite.put_spec(ns, spec(number))
    sqlite.add_alias(ns, 3, 2)
    sqlite.publish_kernel(ns, kernel(0))
    sqlite.claim_signer(SIGNER)
    return sqlite.url


def findings(url: str, **options: object) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(url, **options)}  # type: ignore[arg-type]


def test_a_healthy_store(url):
    states = {name: finding.state for name, finding in findings(url, key_id=SIGNER).items()}
    assert set(states.values()) == {"ok"}
    assert {"guards", "key counters", "aliases", "bytes", "signer", "clock", "disk"} <= set(states)


@pytest.mark.parametrize(
    ("name", "state", "damage", "told", "advice"),
    [
        (
            "key counters",
            "failed",
            "UPDATE key_counters SET last_key = 1",
            "is at 1, behind key 3",
            "UPDATE key_counters SET last_key = 3",
        ),
        ("key counters", "failed", "UPDATE key_counters SET last_key = 9", "is at 9, with 3 specs", "backup"),
        ("guards", "failed", "DROP TRIGGER kernels_refuse_update", "kernels_refuse_update", "verify --all"),
        ("guards", "failed", "INSERT INTO gc_permits VALUES (1, 'x', 0)", "permit", "DELETE FROM gc_permits"),
        ("schema", "failed", "UPDATE alembic_version SET version_num = '0001'", "0001", "kcache migrate"),
        ("schema", "failed", "UPDATE alembic_version SET version_num = '9999'", "newer", "--upgrade"),
        ("schema", "failed", "DROP TABLE alembic_version", "revision -", "kcache migrate"),
        ("guards", "failed", "DROP TABLE failures; DROP TRIGGER specs_refuse_delete", "specs_", "verify"),
        ("quotas", "warning", "INSERT INTO quotas VALUES (1, 'specs', 3, 0, 'refuse', 3)", "3 of 3", "quota"),
    ],
)
def test_what_was_broken_is_found_with_what_to_do(url, sqlite, name, state, damage, told, advice):
    with raw(path_of(sqlite)) as connection:
        connection.executescript(damage)
    finding = findings(url)[name]
    assert (finding.state, told in finding.detail, advice in finding.advice) == (state, True, True), finding


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("aliases", "UPDATE key_aliases SET key = 3, alias = 2", "stand for each other"),
        ("bytes", "DELETE FROM artifacts WHERE size = 7", "without an artifact"),
        ("bytes", "DELETE FROM artifact_chunks WHERE size = 7", "without readable bytes"),
        ("integrity", "DELETE FROM artifacts WHERE size = 7", "to rows that are not there"),
    ],
)
def test_rows_that_were_edited(url, sqlite, name, damage, told):
    statements = [damage]
    if name == "aliases":  # a chain of two, which the check of the table allows only one of
        statements = ["PRAGMA ignore_check_constraints = ON", "INSERT INTO key_aliases VALUES (1, 2, 3, 0)"]
    tamper(path_of(sqlite), *statements)
    finding = findings(url)[name]
    assert finding.state in ("failed", "warning")
    assert told in finding.detail
    assert finding.advice


def test_quarantined_bytes_are_counted(url, sqlite):
    ns = sqlite.get_or_create_namespace("default")
    sqlite.quarantine_artifact(ns, sha256(b"object 0"), "test")
    lost = findings(url)["bytes"]
    assert lost.state == "warning"
    assert "1 blob without readable bytes, 1 blob with bytes in quarantine (8 bytes)" in lost.detail
    sqlite.publish_kernel(ns, kernel(0))
    assert "all with a younger copy" in findings(url)["bytes"].detail


def test_another_signer(url):
    finding = findings(url, key_id=b"another.")["signer"]
    assert finding.state == "failed"
    assert "--disown" in finding.advice
    assert findings(url)["signer"].state == "skipped"


def test_a_clock_that_was_ahead(url, sqlite):
    ns = sqlite.get_or_create_namespace("default")
    ahead = int((clock_of_machine.time() + 3600) * 1e6)
    sqlite.append_audit(ns, [AuditEvent("serve", at=ahead)])
    finding = findings(url)["clock"]
    assert (finding.state, "NTP" in finding.advice) == ("warning", True)


@pytest.mark.parametrize(("free", "state"), [(1 << 20, "failed"), (500 << 20, "warning"), (9 << 30, "ok")])
def test_a_disk_that_fills_up(url, monkeypatch, free, state):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage(1 << 40, 0, free))
    assert findings(url)["disk"].state == state


def test_objects_that_are_gone(tmp_path):
    url, folder = f"sqlite:///{tmp_path}/store.sqlite", tmp_path / "objects"
    folder.mkdir()
    objects = f"file://{folder}"
    with open_store(url, migrate=True, objects=objects, inline_bytes=10) as store:
        store.publish_kernel(
            store.get_or_create_namespace("default"), kernel(0, key=put(store), so=bytes(4321))
        )
    assert findings(url)["objects"].state == "skipped"
    assert findings(url, objects=objects)["objects"].state == "ok"
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size == 4321:
            path.unlink()
    lost = findings(url, objects=objects)["objects"]
    assert lost.state == "failed"
    assert "verify" in lost.advice


def put(store) -> int:
    return store.put_spec(store.get_or_create_namespace("default"), spec(0)).key


@pytest.mark.parametrize("content", [b"", b"short", b"no database, but long enough to be one" * 20])
def test_what_is_no_store(tmp_path, content):
    path = tmp_path / "store.sqlite"
    path.write_bytes(content)
    (finding,) = examine(f"sqlite:///{path}")
    assert finding.state == "failed"
    assert path.read_bytes() == content


def test_a_store_on_postgres(postgres_server: PostgresServer) -> None:
    url = postgres_server.create()
    (finding,) = examine(url)
    assert (finding.state, "kcache migrate" in finding.advice) == ("failed", True)
    migrate(url)
    with open_store(url) as store:
        ns = store.get_or_create_namespace("default")
        store.put_graph(ns, graph(0, [b"weights"]))
        store.publish_kernel(ns, kernel(0))
        states = {finding.name: finding.state for finding in examine(url)}
        # The tests connect as a superuser.
        assert states.pop("roles") == "warning"
        assert set(states.values()) <= {"ok", "skipped"}, examine(url)
        store._db.transact(
            lambda connection: connection.exec_driver_sql("UPDATE key_counters SET last_key = 0")
        )  # type: ignore[attr-defined]
        assert findings(url)["key counters"].state == "failed"
