"""Copies of a store: taken while it is written, checked, put back; what is wrong with one is told."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from kcache_grpc.storage import migrate, open_store
from kcache_grpc.storage.backup import back_up, check_copy, restore
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.errors import (
    CorruptStore,
    ForeignDatabase,
    InvalidValue,
    SchemaMismatch,
    StoreUnavailable,
    UnsupportedStore,
)
from tests.postgres import PostgresServer, binaries
from tests.storage.drafts import graph, kernel, sha256, spec
from tests.storage.inside import assert_sound, contents, path_of, raw, tamper


@pytest.fixture
def filled(sqlite):
    ns = sqlite.get_or_create_namespace("default")
    sqlite.put_graph(ns, graph(0, [b"weights"]))
    sqlite.publish_kernel(ns, kernel(0, so=bytes(3 << 20)))
    return sqlite


def test_a_copy_holds_everything_and_is_one_private_file(filled, tmp_path):
    copy = back_up(filled.url, tmp_path / "copies" / "one.sqlite")
    target = tmp_path / "copies" / "one.sqlite"
    assert [path.name for path in target.parent.iterdir()] == ["one.sqlite"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert (copy.store_id, copy.last_keys) == (filled.id, {"default": 1})
    assert copy.size == target.stat().st_size
    assert contents(target) == contents(path_of(filled))


def test_a_copy_that_is_put_back_is_the_store(filled, tmp_path):
    back_up(filled.url, tmp_path / "copy.sqlite")
    ns = filled.get_or_create_namespace("default")
    restore(tmp_path / "copy.sqlite", f"sqlite:///{tmp_path}/new/store.sqlite")
    with open_store(f"sqlite:///{tmp_path}/new/store.sqlite") as again:
        assert again.id == filled.id
        stored = again.find_kernel(ns, kernel(0).kernel.kernel_digest)
        assert stored is not None
        assert again.verify_artifact(ns, stored.artifacts[0].digest)
        assert again.put_spec(ns, spec(1)).key == 2
    assert_sound(tmp_path / "new" / "store.sqlite")


def test_a_store_that_was_put_back_has_a_log_again_once_it_is_opened(filled, tmp_path):
    copy, back = tmp_path / "copy.sqlite", tmp_path / "back.sqlite"
    back_up(filled.url, copy)
    restore(copy, f"sqlite:///{back}")
    with open_store(f"sqlite:///{back}"), raw(back) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_copy_taken_while_others_write_is_of_one_moment(filled, tmp_path):
    ns = filled.get_or_create_namespace("default")
    written, stop = [1], threading.Event()

    def write() -> None:
        with open_store(filled.url) as other:
            while not stop.is_set():
                number = written[-1]
                other.put_graph(ns, graph(number, [str(number).encode()]))
                other.publish_kernel(ns, kernel(number, key=number + 1))
                written.append(number + 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(4):
            before = written[-1]
            while written[-1] == before:
                assert writer.is_alive()
            copy = back_up(filled.url, tmp_path / f"{number}.sqlite")
            assert before <= copy.last_keys["default"] <= written[-1] + 1
            assert_sound(tmp_path / f"{number}.sqlite")
    finally:
        stop.set()
        writer.join()


def test_nothing_is_overwritten(filled, tmp_path):
    copy = tmp_path / "copy.sqlite"
    back_up(filled.url, copy)
    before = copy.read_bytes()
    with pytest.raises(InvalidValue, match="exists"):
        back_up(filled.url, copy)
    with pytest.raises(InvalidValue, match="exists"):
        restore(copy, filled.url)
    assert copy.read_bytes() == before


def test_a_log_of_the_lost_store_is_not_mixed_in(filled, tmp_path):
    back_up(filled.url, tmp_path / "copy.sqlite")
    (tmp_path / "lost.sqlite-wal").write_bytes(b"old")
    with pytest.raises(InvalidValue, match="move it away"):
        restore(tmp_path / "copy.sqlite", f"sqlite:///{tmp_path}/lost.sqlite")
    assert not (tmp_path / "lost.sqlite").exists()


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("UPDATE key_counters SET last_key = 0", CorruptStore),
        ("UPDATE key_counters SET last_key = 7", CorruptStore),
        ("DROP TRIGGER specs_refuse_delete", CorruptStore),
        ("DELETE FROM artifacts", CorruptStore),
        ("UPDATE alembic_version SET version_num = '9999'", SchemaMismatch),
        ("PRAGMA application_id = 1", ForeignDatabase),
    ],
)
def test_a_copy_that_is_wrong_is_not_put_back(filled, tmp_path, damage, error):
    copy = tmp_path / "copy.sqlite"
    back_up(filled.url, copy)
    if damage.startswith("DELETE"):
        tamper(copy, damage)
    else:
        with raw(copy) as connection:
            connection.execute(damage)
    target = tmp_path / "restored.sqlite"
    with pytest.raises(error):
        restore(copy, f"sqlite:///{target}")
    assert [path for path in tmp_path.iterdir() if "restored" in path.name] == []


def test_a_damaged_file_is_no_copy(filled, tmp_path):
    copy = tmp_path / "copy.sqlite"
    back_up(filled.url, copy)
    content = bytearray(copy.read_bytes())
    content[40_000:60_000] = os.urandom(20_000)
    copy.write_bytes(content)
    with pytest.raises((CorruptStore, ForeignDatabase)):
        check_copy(copy)
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidValue):
        restore(tmp_path / "empty", f"sqlite:///{tmp_path}/store2.sqlite")


def test_what_cannot_be_copied_is_told_with_what_can(tmp_path):
    for url in ("memory:", "postgresql://nobody@127.0.0.1:1/none"):
        with pytest.raises(UnsupportedStore, match="pg_dump"):
            back_up(url, tmp_path / "copy.sqlite")


def test_a_folder_that_cannot_be_written(filled, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable):
        back_up(filled.url, tmp_path / "file" / "copy.sqlite")


def test_a_dump_of_postgres_is_the_store(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """As docs/operate/lifecycle.md says: pg_dump --format=custom, pg_restore, counters as they were."""
    dump, load = (str(binaries() / name) for name in ("pg_dump", "pg_restore"))
    url, copy = postgres_server.create(), postgres_server.create()
    migrate(url)
    with open_store(url) as store:
        ns = store.get_or_create_namespace("default")
        store.put_graph(ns, graph(0, [b"weights"]))
        store.publish_kernel(ns, kernel(0))
        file = str(tmp_path / "store.dump")
        subprocess.run([dump, "--format=custom", f"--file={file}", url], check=True)
        subprocess.run([load, "--exit-on-error", f"--dbname={copy}", file], check=True)
        with open_store(copy) as again:
            assert again.id == store.id
            assert again.find_kernel(ns, kernel(0).kernel.kernel_digest) is not None
            assert again.read_artifact(ns, sha256(b"weights")) == b"weights"
            assert again.put_spec(ns, spec(1)).key == 2
            # The role that alone may delete owns its function in the copy too.
            assert again.collect(ns, Step(RowKind.IDLE_KERNELS, before=2**62)).rows == 1
