"""Bytes beside the database: where they lie, what is checked, what becomes of those that are lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import time_ns

import pytest

from kcache_grpc.storage import CHUNK_BYTES, Store, migrate, open_store
from kcache_grpc.storage.errors import (
    InvalidValue,
    ObjectStoreMismatch,
    StoreUnavailable,
    UnsupportedStore,
)
from kcache_grpc.storage.objects import INLINE_BYTES, open_objects
from kcache_grpc.storage.records import Namespace, Swept
from tests.repository.sources import ROOT
from tests.storage.drafts import Time, blob, kernel, sha256, spec
from tests.storage.inside import path_of, rows, tamper

#: An object code of three chunks and a bit.
BIG = random.Random(4).randbytes(3 * CHUNK_BYTES + 100)


@dataclass
class Beside:
    """A store in a folder and its objects in another."""

    folder: Path
    time: Time

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'store.sqlite'}"

    @property
    def objects(self) -> Path:
        return self.folder / "objects"

    def open(self, objects: Path | None, inline_bytes: int = INLINE_BYTES) -> Store:
        place = None if objects is None else f"file://{objects}"
        return open_store(self.url, clock=self.time.clock, objects=place, inline_bytes=inline_bytes)

    def files(self) -> list[Path]:
        """The objects of bytes."""
        return sorted(path for path in (self.objects / "objects").glob("*/*") if path.is_file())


@pytest.fixture
def beside(tmp_path, template, time) -> Beside:
    shutil.copy(template, tmp_path / "store.sqlite")
    return Beside(tmp_path, time)


@pytest.fixture
def store(beside) -> Iterator[Store]:
    with beside.open(beside.objects) as opened:
        yield opened


@pytest.fixture
def ns(store) -> Namespace:
    namespace = store.get_or_create_namespace("default")
    store.put_spec(namespace, spec(0))
    return namespace


class TestPlaces:
    @pytest.mark.parametrize(("size", "objects"), [(0, 0), (INLINE_BYTES, 0), (INLINE_BYTES + 1, 1)])
    def test_small_bytes_stay_in_rows(self, store, ns, beside, size, objects):
        store.put_constants(ns, [blob(bytes(size))])
        assert len(beside.files()) == objects
        assert store.read_artifact(ns, sha256(bytes(size))) == bytes(size)

    def test_an_object_is_named_by_its_digest_and_holds_the_bytes_alone(self, store, ns, beside):
        store.publish_kernel(ns, kernel(1, so=BIG))
        (file,) = beside.files()
        digest = sha256(BIG).hex()
        assert file.parent.name == digest[:2]
        assert file.name.startswith(f"{digest}-")
        assert file.read_bytes() == BIG
        named = "SELECT seq, size, content FROM artifact_chunks WHERE location = ? ORDER BY seq"
        chunks = rows(path_of(store), named, [str(file.relative_to(beside.objects))])
        assert chunks == [(seq, CHUNK_BYTES if seq < 3 else 100, None) for seq in range(4)]

    def test_equal_bytes_of_two_kernels_are_one_object(self, store, ns, beside):
        store.publish_kernel(ns, kernel(1, so=BIG))
        store.publish_kernel(ns, kernel(2, so=BIG))
        assert len(beside.files()) == 1

    def test_folders_of_objects_are_their_owners_alone(self, store, beside):
        assert beside.objects.stat().st_mode & 0o777 == 0o700

    def test_a_range_reads_the_chunks_that_it_needs(self, store, ns, beside):
        """The last chunk of the file is spoiled: nobody notices who reads the others."""
        store.publish_kernel(ns, kernel(1, so=BIG))
        (file,) = beside.files()
        file.write_bytes(BIG[: 3 * CHUNK_BYTES] + bytes(100))
        end = 3 * CHUNK_BYTES
        assert store.read_artifact(ns, sha256(BIG), 10, end - 10) == BIG[10:end]
        assert store.read_artifact(ns, sha256(BIG), end, 1) is None
        assert store.read_artifact(ns, sha256(BIG), 10, 10) is None

    def test_the_url_is_told_without_the_rest(self, store, beside):
        assert store.objects_url == f"file://{beside.objects}"
        with beside.open(None) as plain:
            assert plain.objects_url is None


def _gone(file: Path) -> None:
    file.unlink()


def _truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _empty(file: Path) -> None:
    os.truncate(file, 0)


def _longer(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"x")


def _altered(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        byte = opened.read(1)
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte[0] ^ 1]))


LOSSES = [_gone, _truncated, _empty, _altered]


class TestLoss:
    @pytest.fixture(params=[100_000, len(BIG)])
    def so(self, request) -> bytes:
        return BIG[: request.param]

    @pytest.mark.parametrize("lose", LOSSES)
    def test_lost_bytes_are_never_served_and_come_back_as_a_new_object(self, store, ns, beside, so, lose):
        first = store.publish_kernel(ns, kernel(1, so=so))
        (old,) = beside.files()
        lose(old)
        assert store.read_artifact(ns, sha256(so)) is None
        assert store.artifact_size(ns, sha256(so)) is None
        assert store.find_kernel(ns, kernel(1).kernel.kernel_digest) is None
        repaired = store.publish_kernel(ns, kernel(1, so=so))
        assert (repaired.inserted, repaired.repaired, repaired.differs) == (False, 1, False)
        assert repaired.stored == first.stored
        assert store.read_artifact(ns, sha256(so)) == so
        (new,) = set(beside.files()) - {old}
        assert new.read_bytes() == so

    @pytest.mark.parametrize("lose", [*LOSSES, _longer])
    def test_verification_finds_what_is_lost(self, store, ns, beside, so, lose):
        store.publish_kernel(ns, kernel(1, so=so))
        assert store.verify_artifact(ns, sha256(so))
        lose(beside.files()[0])
        expected = lose is _longer  # what was put is there, and more
        assert store.verify_artifact(ns, sha256(so)) == expected

    @pytest.mark.parametrize("lose", [_gone, _truncated, _empty])
    def test_a_publisher_that_brings_the_bytes_repairs_what_nobody_read(self, store, ns, beside, so, lose):
        store.publish_kernel(ns, kernel(1, so=so))
        lose(beside.files()[0])
        store.publish_kernel(ns, kernel(2, so=so))
        assert store.read_artifact(ns, sha256(so)) == so
        assert store.find_kernel(ns, kernel(1).kernel.kernel_digest) is not None

    def test_a_disk_that_is_not_mounted_is_no_loss(self, store, ns, beside):
        store.publish_kernel(ns, kernel(1, so=BIG))
        away = beside.folder / "away"
        beside.objects.rename(away)
        beside.objects.mkdir()
        for call in (store.read_artifact, store.verify_artifact):
            with pytest.raises(StoreUnavailable, match="mounted"):
                call(ns, sha256(BIG))
        with pytest.raises(StoreUnavailable, match="mounted"):
            store.check()
        shutil.rmtree(beside.objects)
        away.rename(beside.objects)
        assert store.read_artifact(ns, sha256(BIG)) == BIG
        assert rows(path_of(store), "SELECT * FROM quarantine") == []

    @pytest.mark.parametrize("location", ["../../etc/passwd", "objects/00/else", "", "kcache-store.json"])
    def test_a_row_that_was_edited_names_nothing(self, store, ns, location):
        store.publish_kernel(ns, kernel(1, so=BIG))
        tamper(
            path_of(store), f"UPDATE artifact_chunks SET location = '{location}' WHERE location IS NOT NULL"
        )
        assert store.read_artifact(ns, sha256(BIG)) is None
        assert store.publish_kernel(ns, kernel(1, so=BIG)).repaired == 1
        assert store.read_artifact(ns, sha256(BIG)) == BIG

    def test_edited_rows_that_hold_bytes_are_not_served_either(self, store, ns):
        small, large = b"small one", BIG
        with open_store(
            store.url, clock=Time().clock, objects=store.objects_url, inline_bytes=1 << 30
        ) as rowed:
            rowed.put_constants(ns, [blob(small), blob(large)])
        tamper(path_of(store), "UPDATE artifact_chunks SET content = zeroblob(size) WHERE seq <> 1")
        assert store.read_artifact(ns, sha256(small)) is None
        middle = (CHUNK_BYTES + 5, 100)
        assert store.read_artifact(ns, sha256(large), *middle) == large[middle[0] : sum(middle)]
        assert store.read_artifact(ns, sha256(large), 5, 100) is None

    def test_an_uploaded_program_is_in_the_object_store_too(self, store, ns, beside):
        store.put_program(ns, sha256("program"), "stablehlo", BIG)
        assert store.get_program(ns, sha256("program")) == ("stablehlo", BIG)
        _gone(beside.files()[0])
        assert store.get_program(ns, sha256("program")) is None
        store.put_program(ns, sha256("program"), "stablehlo", BIG)
        assert store.get_program(ns, sha256("program")) == ("stablehlo", BIG)


class TestBelonging:
    def test_an_object_store_joins_a_store_that_has_bytes(self, beside):
        with beside.open(None) as plain:
            ns = plain.get_or_create_namespace("default")
            plain.put_spec(ns, spec(0))
            plain.publish_kernel(ns, kernel(1, so=BIG))
        with beside.open(beside.objects) as joined:
            assert joined.read_artifact(ns, sha256(BIG)) == BIG
            joined.publish_kernel(ns, kernel(2, so=BIG + b"2"))
            assert len(beside.files()) == 1
            assert joined.read_artifact(ns, sha256(BIG + b"2")) == BIG + b"2"

    def test_rows_that_point_away_are_not_served_without_it(self, store, ns, beside):
        with beside.open(None):
            pass  # nothing is there yet
        store.put_constants(ns, [blob(BIG)])
        with pytest.raises(ObjectStoreMismatch, match="--objects file://"):
            beside.open(None)
        with pytest.raises(ObjectStoreMismatch, match="--objects file://"):
            beside.open(beside.folder / "elsewhere")
        with beside.open(beside.objects) as again:
            assert again.read_artifact(ns, sha256(BIG)) == BIG

    def test_it_may_move_with_its_marker(self, store, ns, beside):
        store.put_constants(ns, [blob(BIG)])
        moved = beside.folder / "moved"
        beside.objects.rename(moved)
        with beside.open(moved) as again:
            assert again.read_artifact(ns, sha256(BIG)) == BIG
        with pytest.raises(ObjectStoreMismatch, match="moved"):
            beside.open(None)

    def test_it_belongs_to_one_store(self, store, beside, tmp_path, time):
        other = Beside(tmp_path / "other", time)
        other.folder.mkdir()
        migrate(other.url)
        with pytest.raises(ObjectStoreMismatch, match="another store"):
            other.open(beside.objects)
        # Nothing is held open or half made.
        with other.open(other.objects):
            pass

    def test_another_may_be_chosen_while_nothing_is_in_it_and_old_servers_notice(self, store, ns, beside):
        with beside.open(beside.folder / "second") as second:
            with pytest.raises(StoreUnavailable, match="restart"):
                store.put_constants(ns, [blob(BIG)])
            assert store.artifact_size(ns, sha256(BIG)) is None
            second.put_constants(ns, [blob(BIG)])
        with pytest.raises(ObjectStoreMismatch, match="second"):
            beside.open(beside.objects)

    def test_a_foreign_marker_is_left_alone(self, beside):
        beside.objects.mkdir()
        marker = beside.objects / "kcache-store.json"
        for content in (b"", b"[]", b"{}", b"\xff"):
            marker.write_bytes(content)
            with pytest.raises(StoreUnavailable, match="damaged or not of kcache"):
                beside.open(beside.objects)
            assert marker.read_bytes() == content

    def test_a_server_without_it_cannot_read_rows_of_one_that_has_it(self, store, ns, beside):
        with beside.open(None) as plain:
            store.put_constants(ns, [blob(BIG)])
            with pytest.raises(StoreUnavailable, match="--objects"):
                plain.read_artifact(ns, sha256(BIG))
            assert rows(path_of(store), "SELECT * FROM quarantine") == []


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "",
            "objects",
            "/objects",
            "http://host/x",
            "memory:///",
            "ftp://host/x",
            "sqlite:///x",
            "s3:bucket",
        ],
    )
    def test_no_object_store_is_there(self, url):
        with pytest.raises((UnsupportedStore, InvalidValue)):
            open_objects(url)

    @pytest.mark.parametrize(
        "url",
        [
            "s3://user:secret@bucket/x",
            "s3://bucket/x?secret=1",
            "s3:///x",
            "file://relative/x",
            "file:x",
            "s3://[bucket/x",
            "s3://bucket/x#y",
        ],
    )
    def test_what_is_wrong_is_told_without_secrets(self, url):
        with pytest.raises(InvalidValue) as told:
            open_objects(url)
        assert "secret" not in str(told.value)

    def test_a_folder_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreUnavailable):
            open_objects(f"file://{tmp_path}/file/objects")

    def test_memory_has_none(self, tmp_path):
        with pytest.raises(UnsupportedStore):
            open_store("memory:", objects=f"file://{tmp_path}")

    def test_spaces_in_a_folder(self, beside, tmp_path, time):
        with open_store(beside.url, clock=time.clock, objects=f"file://{tmp_path}/a%20b") as opened:
            ns = opened.get_or_create_namespace("default")
            opened.put_constants(ns, [blob(BIG)])
            assert opened.read_artifact(ns, sha256(BIG)) == BIG
        assert (tmp_path / "a b" / "objects").is_dir()


def test_what_a_killed_writer_left_in_the_folder_is_swept(store, ns, beside):
    store.put_constants(ns, [blob(BIG)])
    (file,) = beside.files()
    part, young, other = (file.with_name(name) for name in (f"{file.name}#1", f"{file.name}#2", "readme#1"))
    for path in (part, young, other):
        path.write_bytes(b"half")
    file.with_name(f"{file.name}#3").symlink_to("renamed by its writer after it was listed")
    day = 24 * 3600
    for path in (part, other):
        os.utime(path, (path.stat().st_mtime - day, path.stat().st_mtime - day))
    assert store.sweep_objects(3600, dry_run=True) == store.sweep_objects(3600) == Swept(1, 4)
    assert set(beside.files()) == {file, young, other}


def test_many_publish_the_same_at_once(store, ns, beside):
    """Through two stores: one row, and every object but one is an orphan that a sweep finds."""
    with beside.open(beside.objects) as second:
        stores = [store, second] * 4
        with ThreadPoolExecutor(len(stores)) as pool:
            done = list(pool.map(lambda each: each.publish_kernel(ns, kernel(1, so=BIG)), stores))
        assert sum(each.inserted for each in done) == 1
        assert {each.stored for each in done} == {done[0].stored}
        ((location,),) = rows(
            path_of(store), "SELECT DISTINCT location FROM artifact_chunks WHERE size > 100"
        )
        assert [each.read_artifact(ns, sha256(BIG)) == BIG for each in stores] == [True] * len(stores)
        day = 24 * 3600 * 1_000_000
        store.sweep_objects(3600, now=time_ns() // 1000 + day)
    assert [str(file.relative_to(beside.objects)) for file in beside.files()] == [location]


def test_the_first_servers_of_a_store_agree_on_whose_place_it_is(beside):
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: beside.open(beside.objects), range(6)))
    ns = opened[0].get_or_create_namespace("default")
    for number, store in enumerate(opened):
        store.put_constants(ns, [blob(BIG + bytes([number]))])
        store.close()
    assert len(beside.files()) == 6


FORK = """
import os, sys, warnings
warnings.filterwarnings("ignore", category=DeprecationWarning)  # 3.12: fork in a process with threads
from hashlib import sha256
from kcache_grpc.storage import open_store
from kcache_grpc.storage.errors import StoreUnavailable
from tests.storage.objects.test_objects import BIG, INLINE_BYTES, blob
url, objects = sys.argv[1:]
with open_store(url, objects=objects, inline_bytes=INLINE_BYTES) as store:
    ns = store.get_or_create_namespace("default")
    store.put_constants(ns, [blob(BIG)])
    digest = sha256(BIG).digest()
    pid = os.fork()
    if pid == 0:
        try:
            store.read_artifact(ns, digest)
        except StoreUnavailable:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert store.read_artifact(ns, digest) == BIG
"""


def test_a_forked_child_is_told_that_it_cannot(beside):
    """In a process of its own: what other tests loaded into this one may not survive a fork."""
    command = [sys.executable, "-W", "error", "-c", FORK, beside.url, f"file://{beside.objects}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
