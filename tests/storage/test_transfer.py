"""Moving a store: everything arrives, an interrupted move goes on, a target of its own is rejected."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from kcache_grpc.storage import migrate, open_store, transfer
from kcache_grpc.storage.errors import Conflict, CorruptStore, InvalidValue, SchemaMismatch
from kcache_grpc.storage.opening import open_database
from kcache_grpc.storage.records import AuditEvent, UsageDelta
from kcache_grpc.storage.transfer import move_store
from tests.postgres import PostgresServer
from tests.storage.drafts import Time, graph, kernel, sha256, spec
from tests.storage.inside import raw

KERNELS, EVENTS = 40, 200


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with rows in most tables, one of them of several batches, one blob of several chunks."""
    path = tmp_path_factory.mktemp("source") / "store.sqlite"
    with open_store(f"sqlite:///{path}", migrate=True, clock=Time().clock) as store:
        store.claim_signer(b"12345678")
        ns = store.get_or_create_namespace("default")
        for number in range(KERNELS):
            stored = store.put_graph(ns, graph(number, [b"weights", bytes([number])]), AuditEvent("store"))
            store.publish_kernel(
                ns, kernel(number, stored.spec.key), event=AuditEvent("publish", job="j'\"%")
            )
        store.publish_kernel(ns, kernel(99, 1, so=bytes(range(256)) * 9000))
        store.add_alias(ns, 3, 2)
        store.put_program(ns, sha256("program"), "stablehlo", b"body")
        store.quarantine_artifact(ns, sha256("object 3"), "test")
        store.add_usage(ns, [UsageDelta("kernel", kernel(1).kernel.kernel_digest, 7)])
        store.append_audit(ns, [AuditEvent("serve", detail=f"{number}") for number in range(EVENTS)])
        store.raise_epoch(store.get_or_create_namespace("ünïcode"))
        store.acquire_lease(ns, sha256("lease"), "holder", 60)
    return path


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_ROWS", 100)


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> str:
    shutil.copy(filled, tmp_path / "source.sqlite")
    return f"sqlite:///{tmp_path}/source.sqlite"


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path, postgres_server: PostgresServer) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/target.sqlite"
        return
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


def assert_moved(source: str, target: str) -> None:
    with open_store(source) as source_store, open_store(target) as other:
        assert source_store.id == other.id
        assert source_store.list_namespaces() == other.list_namespaces()
        ns = other.find_namespace("default")
        assert ns is not None
        assert source_store.stats(ns) == other.stats(ns)
        assert source_store.list_audit(ns, limit=9999) == other.list_audit(ns, limit=9999)
        for number in (0, 17, KERNELS - 1, 99):
            digest = kernel(number).kernel.kernel_digest
            assert source_store.find_kernel(ns, digest) == other.find_kernel(ns, digest)
        assert other.verify_artifact(ns, kernel(99, so=bytes(range(256)) * 9000).artifacts[0].digest)
        assert other.find_kernel(ns, kernel(3).kernel.kernel_digest) is None, "its bytes are in quarantine"
        assert other.resolve_key(ns, 3) == 2
        assert other.get_program(ns, sha256("program")) == ("stablehlo", b"body")
        assert other.count_specs(ns) == KERNELS
        assert other.put_spec(ns, spec(1000)).key == KERNELS + 1
        stored = other.publish_kernel(ns, kernel(1000, KERNELS + 1), event=AuditEvent("publish"))
        assert stored.stored.id > max(record.id for record in source_store.list_kernels(ns, 1))
        assert other.find_leases(ns, [sha256("lease")]) == {}
        other.claim_signer(b"12345678")


def test_everything_arrives(source, target):
    told: list[tuple[str, int]] = []
    moved = move_store(source, target, lambda table, rows: told.append((table, rows)))
    assert moved.rows["audit_events"] == EVENTS + 2 * KERNELS
    assert ("audit_events", 100) in told
    assert_moved(source, target)


def test_an_interrupted_move_goes_on_where_it_stopped(source, target, monkeypatch):
    class Interrupted(Exception):
        pass

    def interrupt(table: str, rows: int) -> None:
        if (table, rows) == ("audit_events", 200):
            raise Interrupted

    with pytest.raises(Interrupted):
        move_store(source, target, interrupt)
    told: list[tuple[str, int]] = []
    move_store(source, target, lambda table, rows: told.append((table, rows)))
    assert told[0] == ("audit_events", EVENTS + 2 * KERNELS)
    assert_moved(source, target)


@pytest.mark.sampled(3)
def test_a_killed_move_goes_on(source, target):
    """SIGKILL in the middle, as often as it takes."""
    line = [sys.executable, "-m", "kcache_grpc", "migrate", "--from", source, "--to", target, "--json"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        process.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"]["specs"] == KERNELS
    assert_moved(source, target)


def test_a_target_with_rows_of_its_own_is_rejected_and_left_alone(source, target):
    migrate(target)
    with open_store(target) as store:
        ns = store.get_or_create_namespace("mine")
        store.put_spec(ns, spec(0))
    with pytest.raises(Conflict, match="empty database"):
        move_store(source, target)
    with open_store(target) as store:
        assert [each.name for each in store.list_namespaces()] == ["mine"]
        assert store.count_specs(ns) == 1


def test_a_target_on_which_a_server_has_started_is_rejected(source, target):
    migrate(target)
    with open_store(target) as store:
        store.claim_signer(b"87654321")
    with pytest.raises(Conflict, match="empty database"):
        move_store(source, target)


def test_nobody_opens_a_store_that_has_not_arrived(source, target):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move_store(source, target, stop)
    with pytest.raises(CorruptStore, match="kcache migrate --from --to again"):
        open_store(target)
    move_store(source, target)
    assert_moved(source, target)


def test_a_finished_move_changes_nothing_when_it_is_typed_again(source, target):
    first = move_store(source, target)
    assert move_store(source, target) == first
    with open_store(source) as store:
        ns = store.get_or_create_namespace("default")
        store.put_spec(ns, spec(5000))
    with pytest.raises(Conflict, match="already"):
        move_store(source, target)
    with open_store(target) as store:
        assert store.count_specs(ns) == KERNELS
        assert store.put_spec(ns, spec(6000)).key == KERNELS + 1


def test_a_half_moved_store_is_not_taken_over_by_another(source, target, tmp_path):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move_store(source, target, stop)
    other = f"sqlite:///{tmp_path}/other.sqlite"
    migrate(other)
    with pytest.raises(Conflict):
        move_store(other, target)


def test_a_difference_is_found(source, target, tmp_path, monkeypatch):
    compare = transfer._compare

    def late(first: object, other: object, table: object) -> None:
        with raw(tmp_path / "source.sqlite") as connection:
            connection.execute("INSERT OR IGNORE INTO namespaces (name, created_at) VALUES ('late', 0)")
        compare(first, other, table)  # type: ignore[arg-type]

    monkeypatch.setattr(transfer, "_compare", late)
    with pytest.raises(CorruptStore, match="namespaces"):
        move_store(source, target)


def test_what_cannot_be_moved(source, tmp_path):
    for bad in ("memory:", "sqlite://"):
        with pytest.raises(InvalidValue):
            move_store(bad, f"sqlite:///{tmp_path}/target.sqlite")
    with pytest.raises(InvalidValue, match="same store"):
        move_store(source, source)
    with pytest.raises(SchemaMismatch, match="no schema"):
        move_store(f"sqlite:///{tmp_path}/nothing.sqlite", f"sqlite:///{tmp_path}/target.sqlite")
    assert not (tmp_path / "target.sqlite").exists()


def test_back_again(source, postgres_server, tmp_path):
    url = postgres_server.create()
    move_store(source, url)
    back = f"sqlite:///{tmp_path}/back.sqlite"
    move_store(url, back)
    with raw(tmp_path / "source.sqlite") as source_db, raw(tmp_path / "back.sqlite") as other:
        for table in ("specs", "kernels", "artifact_chunks", "audit_events", "usage", "key_counters"):
            query = f"SELECT * FROM {table}"
            assert sorted(source_db.execute(query)) == sorted(other.execute(query))
    database = open_database(url)
    assert database.fetch(text("SELECT count(*) FROM transfers WHERE finished_at = 0"))[0][0] == 0
    database.close()
    postgres_server.drop(url)
