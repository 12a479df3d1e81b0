"""Opening and migrating: what is rejected, with what to type; what breaks, and that nothing is lost."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy

from kcache_grpc import errors
from kcache_grpc.storage import migrate, migration, open_store
from kcache_grpc.storage.errors import (
    CorruptStore,
    ForeignDatabase,
    InvalidValue,
    SchemaMismatch,
    StorageError,
    StoreUnavailable,
    UnsupportedStore,
)
from kcache_grpc.storage.records import AuditEvent, Lease
from kcache_grpc.storage.schema import SCHEMA_REVISION
from kcache_grpc.storage.sql.sqlite import file
from kcache_grpc.storage.sql.sqlite.engine import driver
from tests.repository.sources import ROOT
from tests.storage.drafts import blob, graph, kernel, sha256, spec
from tests.storage.inside import assert_sound, contents, database, path_of, raw, rows, tamper, writer

REVISE = "UPDATE alembic_version SET version_num = '{}'"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


@pytest.fixture
def url(path):
    return f"sqlite:///{path}"


class TestUrls:
    def test_a_temporary_store_goes_with_its_folder(self):
        with open_store("sqlite://") as store:
            path = Path(database(store)._engine.url.database or "")
            assert path.is_file()
            assert store.put_spec(store.get_or_create_namespace("default"), spec(0)).key == 1
        assert not path.parent.exists()

    def test_two_stores_in_memory_share_nothing(self):
        with open_store("memory:") as first, open_store("memory:") as other:
            first.get_or_create_namespace("default")
            assert other.find_namespace("default") is None
            assert first.id != other.id

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("name", ["a b", "ünï", "per%20cent", "question?mark", "hash#", "quote'\"; --"])
    def test_any_file_name_will_do(self, tmp_path, name):
        path = tmp_path / name / "store.sqlite"
        url = sqlalchemy.URL.create("sqlite", database=str(path)).render_as_string()
        migrate(url)
        with open_store(url) as store:
            assert store.list_namespaces() == ()
        assert path.exists()

    def test_two_stores_of_one_database_agree_on_its_id(self, url):
        with open_store(url, migrate=True) as first, open_store(url) as other:
            assert first.id == other.id
            assert len(first.id) == 32

    @pytest.mark.parametrize("bad", ["", "store.sqlite", "sqlite", "sqlite://host/x", "sqlite:///x?mode=ro"])
    def test_what_is_not_a_url_of_a_store(self, bad):
        for call in (open_store, migrate):
            with pytest.raises(InvalidValue):
                call(bad)

    @pytest.mark.parametrize("bad", ["mysql://host/x", "sqlite+aiosqlite:///x", "redis://host"])
    def test_engines_that_are_not_known(self, bad):
        with pytest.raises(UnsupportedStore):
            open_store(bad)

    def test_there_is_nothing_to_migrate_in_a_new_temporary_store(self):
        migrate("memory:")
        with pytest.raises(InvalidValue):
            migrate("sqlite://")


class TestRevisions:
    def test_a_missing_store_is_rejected_with_the_command_and_not_made(self, path, url):
        with pytest.raises(SchemaMismatch) as rejected:
            open_store(url)
        assert (rejected.value.current, rejected.value.expected) == ("", SCHEMA_REVISION)
        assert rejected.value.command == f"kcache migrate --db {url}"
        assert rejected.value.command in str(rejected.value)
        assert not path.exists()

    def test_the_command_can_be_pasted(self, tmp_path):
        url = f"sqlite:///{tmp_path}/with space; rm -rf .sqlite"
        with pytest.raises(SchemaMismatch) as rejected:
            open_store(url)
        assert rejected.value.command == f"kcache migrate --db '{url}'"

    def test_an_older_schema_is_rejected_with_the_command(self, path, url):
        migrate(url)
        tamper(path, REVISE.format("0000"))
        with pytest.raises(SchemaMismatch) as rejected:
            open_store(url)
        assert "migrate" in rejected.value.command

    def test_a_schema_from_the_future_is_left_alone(self, path, url):
        migrate(url)
        tamper(path, REVISE.format("9999"))
        before = contents(path)
        for call in (open_store, migrate):
            with pytest.raises(SchemaMismatch) as rejected:
                call(url)
            assert rejected.value.command == "pip install --upgrade kcache-grpc"
        assert contents(path) == before

    def test_migrating_twice_changes_nothing(self, path, url):
        migrate(url)
        before = contents(path)
        migrate(url)
        assert contents(path) == before

    def test_a_migration_that_fails_leaves_what_was_there(self, path, url, monkeypatch):
        def fail(*_: object) -> None:
            raise RuntimeError("killed in the middle")

        with monkeypatch.context() as patch:
            patch.setattr(migration, "_finish", fail)
            with pytest.raises(RuntimeError):
                migrate(url)
        assert rows(path, "SELECT * FROM sqlite_master") == []
        migrate(url)
        with open_store(url):
            pass

    @pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.long)])
    def test_many_processes_may_start_at_once(self, path, url, count):
        command = [sys.executable, "-W", "error", "-m", "tests.storage.racer", "migrate", url]
        running = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) for _ in range(count)]
        for process in running:
            process.communicate(b"go\n", timeout=240)
        assert [process.returncode for process in running] == [0] * count
        with open_store(url) as store:
            assert store.list_namespaces() == ()
        assert len(rows(path, "SELECT * FROM store_meta")) == 1


class TestForeignFiles:
    @pytest.mark.parametrize(
        "content", [b"not a database at all", b"SQL", b"\x7fELF" + bytes(200), b"text " * 999]
    )
    def test_a_file_of_another_kind_is_left_alone(self, path, url, content):
        path.write_bytes(content)
        for call in (open_store, migrate):
            with pytest.raises(ForeignDatabase):
                call(url)
        assert path.read_bytes() == content

    def test_a_database_of_another_application_is_left_alone(self, path, url):
        with raw(path) as connection:
            connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
            connection.execute(f"INSERT INTO alembic_version VALUES ('{SCHEMA_REVISION}')")
        before = path.read_bytes()
        for call in (open_store, migrate):
            with pytest.raises(ForeignDatabase):
                call(url)
        assert path.read_bytes() == before

    def test_a_folder_is_no_store(self, tmp_path):
        for call in (open_store, migrate):
            with pytest.raises(StorageError):
                call(f"sqlite:///{tmp_path}")

    def test_a_network_file_system_is_rejected(self, path, url, monkeypatch):
        migrate(url)
        monkeypatch.setattr(file, "file_system_type", lambda _: 0x6969)
        for call in (open_store, migrate):
            with pytest.raises(UnsupportedStore, match="NFS"):
                call(url)

    def test_this_file_system_has_a_type(self, tmp_path):
        assert file.file_system_type(tmp_path) not in (0, 0x6969)
        assert file.file_system_type(Path("/proc")) == 0x9FA0

    def test_files_are_private(self, tmp_path):
        url = f"sqlite:///{tmp_path}/a/b/store.sqlite"
        before = os.umask(0)
        try:
            with open_store(url, migrate=True) as store:
                store.get_or_create_namespace("default")
                modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "a").rglob("*")}
        finally:
            os.umask(before)
        assert modes.pop("b") == 0o700
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
        assert {"store.sqlite", "store.sqlite-wal", "store.sqlite-shm"} <= set(modes)
        assert set(modes.values()) == {0o600}


#: ``PRAGMA synchronous``.
NORMAL, FULL = 1, 2


def writer_of(store):
    """The writing connection as the last call left it."""
    connection = database(store)._writer
    assert connection is not None
    return driver(connection)


class TestTrouble:
    @pytest.fixture
    def ns(self, sqlite):
        namespace = sqlite.get_or_create_namespace("default")
        sqlite.put_graph(namespace, graph(0, [b"weights"]))
        return namespace

    def assert_nothing_lost(self, store, ns):
        assert store.count_specs(ns) == 1
        assert store.read_artifact(ns, sha256(b"weights")) == b"weights"
        assert store.put_graph(ns, graph(1)).spec.key == 2
        assert_sound(path_of(store))

    def test_a_full_disk(self, sqlite, ns):
        (pages,) = writer(sqlite).execute("PRAGMA page_count").fetchone()
        writer(sqlite).execute(f"PRAGMA max_page_count = {pages + 8}").fetchone()
        big = blob(bytes(1 << 20))
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="no space"):
                sqlite.put_constants(ns, [big])
        assert sqlite.artifact_size(ns, big.digest) is None
        writer(sqlite).execute("PRAGMA max_page_count = 1000000").fetchone()
        sqlite.put_constants(ns, [big])
        self.assert_nothing_lost(sqlite, ns)

    def test_a_read_only_database(self, sqlite, ns):
        connection = writer(sqlite)
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreUnavailable, match="read-only"):
            sqlite.put_spec(ns, spec(1))
        assert sqlite.get_spec(ns, 1) is not None
        connection.execute("PRAGMA query_only = OFF")
        self.assert_nothing_lost(sqlite, ns)

    def test_a_writer_that_does_not_let_go(self, sqlite, ns):
        writer(sqlite).execute("PRAGMA busy_timeout = 20")
        with raw(path_of(sqlite)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                sqlite.put_spec(ns, spec(1))
            assert sqlite.get_spec(ns, 1) is not None
            other.execute("ROLLBACK")
        self.assert_nothing_lost(sqlite, ns)

    def test_what_must_survive_a_power_loss_waits_for_the_disk(self, sqlite, ns):
        def mode() -> int:
            return writer_of(sqlite).execute("PRAGMA synchronous").fetchone()[0]

        lease = sqlite.acquire_lease(ns, sha256("kernel"), "holder", 10)
        assert isinstance(lease, Lease)
        assert mode() == NORMAL
        for call in (
            lambda: sqlite.put_spec(ns, spec(1)),
            lambda: sqlite.append_audit(ns, [AuditEvent("serve")]),
        ):
            sqlite.report_stage(lease, "lower")
            assert mode() == NORMAL
            call()
            assert mode() == FULL

    def test_errors_are_those_of_the_public_tree(self, sqlite, ns):
        writer(sqlite).execute("PRAGMA query_only = ON")
        with pytest.raises(errors.Unavailable) as raised:
            sqlite.put_spec(ns, spec(1))
        assert raised.value.retryable
        with pytest.raises(errors.ArgumentError):
            sqlite.find_spec(ns, b"short")

    def test_lost_triggers_are_noticed(self, sqlite, ns):
        path = path_of(sqlite)
        with raw(path) as connection:
            connection.execute("DROP TRIGGER specs_refuse_update")
        with pytest.raises(CorruptStore, match="specs_refuse_update"):
            open_store(sqlite.url)

    def test_a_lost_table_is_told(self, sqlite, ns):
        with raw(path_of(sqlite)) as connection:
            connection.execute("DROP TABLE usage")
        with pytest.raises(CorruptStore, match="table"):
            sqlite.stats(ns)

    def test_a_damaged_file_is_told(self, sqlite, ns):
        path = path_of(sqlite)
        sqlite.close()
        content = bytearray(path.read_bytes())
        content[100:] = bytes(byte ^ 0x5A for byte in content[100:])
        path.write_bytes(content)
        with pytest.raises(CorruptStore):
            open_store(f"sqlite:///{path}")

    def test_a_spec_that_was_edited_is_not_served(self, sqlite, ns):
        tamper(path_of(sqlite), "UPDATE specs SET text = 'something else'")
        with pytest.raises(CorruptStore):
            sqlite.get_spec(ns, 1)
        with pytest.raises(CorruptStore):
            sqlite.put_spec(ns, spec(0))

    def test_text_that_is_not_utf8_is_not_served(self, sqlite, ns):
        tamper(path_of(sqlite), "UPDATE specs SET text = CAST(x'ff00fe' AS TEXT)")
        with pytest.raises(CorruptStore):
            sqlite.get_spec(ns, 1)

    def test_bytes_that_were_edited_are_found_out_and_repaired(self, sqlite, ns):
        draft = kernel(1)
        sqlite.publish_kernel(ns, draft)
        sqlite.publish_kernel(ns, kernel(2))
        tamper(path_of(sqlite), "UPDATE artifact_chunks SET content = x'00' WHERE content = 'object 1'")
        tamper(
            path_of(sqlite),
            "UPDATE artifact_chunks SET content = zeroblob(9) WHERE content = x'736861726564204952'",
        )
        assert not sqlite.verify_artifact(ns, sha256(b"shared IR"))
        for number in (1, 2):
            assert sqlite.find_kernel(ns, kernel(number).kernel.kernel_digest) is None
        assert sqlite.publish_kernel(ns, draft).repaired == 1
        assert sqlite.verify_artifact(ns, sha256(b"shared IR"))
        assert sqlite.find_kernel(ns, kernel(2).kernel.kernel_digest) is not None

    @pytest.mark.parametrize("where", ["1", "seq = 1", "seq = 2"])
    def test_lost_chunks_are_a_miss_and_a_repair(self, sqlite, ns, where):
        draft = kernel(1, so=bytes(range(256)) * 4096 * 3)
        so = draft.artifacts[0]
        first = sqlite.publish_kernel(ns, draft)
        tamper(path_of(sqlite), f"DELETE FROM artifact_chunks WHERE {where}")
        assert sqlite.find_kernel(ns, draft.kernel.kernel_digest) is None
        assert sqlite.artifact_size(ns, so.digest) is None
        assert sqlite.read_artifact(ns, so.digest, 0, 10) is None
        repaired = sqlite.publish_kernel(ns, draft)
        assert repaired.repaired >= 1
        assert repaired.stored == first.stored
        assert sqlite.read_artifact(ns, so.digest) == so.content


def test_a_child_of_a_fork_goes_on_with_the_store(path, url):
    script = f"""
import os
from kcache_grpc.storage import open_store
from tests.storage.drafts import spec
store = open_store({url!r}, migrate=True)
ns = store.get_or_create_namespace("default")
assert store.put_spec(ns, spec(0)).key == 1
child = os.fork()
keys = [store.put_spec(ns, spec(number)).key for number in range(20)]
assert len(set(keys)) == 20
assert store.find_spec(ns, spec(7).spec_digest).key == keys[7]
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
store.close()
"""
    command = [sys.executable, "-W", "error", "-c", script]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    with open_store(url) as store:
        assert store.count_specs(store.get_or_create_namespace("default")) == 20
    assert_sound(path)
