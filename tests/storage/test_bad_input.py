"""Bad input to a store: strings that look like SQL, files that cannot be written, full disks, edited rows.

A clear error, nothing lost, nothing read that fails its digest.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import fields, replace

import pytest
from sqlalchemy import select

from kcache_grpc.errors import KcacheError
from kcache_grpc.storage import open_store
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.errors import CorruptStore, StorageError, StoreUnavailable
from kcache_grpc.storage.records import AuditEvent, Failure, SpecDraft, UsageDelta
from kcache_grpc.storage.schema import specs
from kcache_grpc.storage.sql.sqlite.engine import BUSY_TIMEOUT_SECONDS, SqliteDatabase
from tests.repository.sources import ROOT
from tests.storage.drafts import Time, graph, kernel, mapping, program, sha256, spec
from tests.storage.inside import assert_sound, contents, path_of, raw, tamper

HOSTILE = [
    "'; DROP TABLE specs; --",
    '" OR ""="',
    "%' OR 1=1 --",
    "a\\'; DELETE FROM kernels",
    "$1 :ns %(ns)s ? {0}",
    "\u202e\u0000".replace("\u0000", "") + "𝔘𝔫𝔦",
    "line\nbreak\ttab",
    "x' || (SELECT text FROM specs) || '",
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("text", HOSTILE)
def test_every_string_is_a_value(store, text):
    """Each comes back as it went in, and is found again; nothing else is touched."""
    name = "".join(each for each in text if each.isprintable())
    ns = store.get_or_create_namespace(name)
    assert store.find_namespace(name) == ns
    store.put_spec(ns, spec(0))
    content = f"{text}\n"
    draft = SpecDraft(sha256(content), content, text, canonicalizer=1, family=text)
    assert store.put_spec(ns, draft).text == content
    published = kernel(1, guard=text, extra=[(text, b"bytes")])
    identity = replace(published.kernel, arg_spec=text, target=text, options=text)
    store.publish_kernel(ns, replace(published, kernel=identity, ingredients=((text, text),)))
    (variant,) = store.find_variants(ns, 1, text, text, identity.toolchain)
    assert variant.kernel == identity
    assert text in [ref.kind for ref in variant.artifacts]
    assert store.list_ingredients(ns, identity.kernel_digest) == ((text, text),)
    store.put_mapping(ns, replace(mapping(1, 1), numerics=text))
    assert store.find_mapping(ns, program(1), text) is not None
    store.put_program(ns, program(2), text, b"body")
    assert store.get_program(ns, program(2)) == (text, b"body")
    failure = Failure(text, text, text, ((text, text),))
    assert store.record_failure(ns, sha256("f"), failure, 60).failure == failure
    store.quarantine_artifact(ns, sha256(b"bytes"), text)
    words = {each.name: text for each in fields(AuditEvent) if each.type == "str"}
    store.append_audit(ns, [AuditEvent(**words)])
    (event,) = [record.event for record in store.list_audit(ns) if record.event.kind == text]
    assert {name: getattr(event, name) for name in words} == words
    store.add_usage(ns, [UsageDelta(text, sha256("u"), 1)])
    assert store.find_usage(ns, text, [sha256("u")])[sha256("u")].hits == 1
    store.pin(ns, "kernel", sha256("p"), text)
    assert store.list_pins(ns)[0].reason == text
    store.disown_toolchain(ns, sha256("t"), text)
    assert store.list_disowned(ns)[0].reason == text
    store.collect(ns, Step(RowKind.IDLE_KERNELS, before=2**62, reason=text))
    assert store.count_specs(ns) == 2


@pytest.mark.parametrize("text", ["nul\0", "lone \ud800 surrogate"])
def test_what_no_database_keeps_is_rejected_before_anything_is_touched(store, ns, text):
    before = store.stats(ns)
    calls = [
        lambda: store.put_spec(ns, replace(spec(0), numerics=text)),
        lambda: store.append_audit(ns, [AuditEvent(text)]),
        lambda: store.pin(ns, "kernel", sha256("p"), text),
        lambda: store.disown_toolchain(ns, sha256("t"), text),
        lambda: store.collect(ns, Step(RowKind.BLOBS, reason=text)),
        lambda: store.remove_quota(ns, text),
        lambda: store.quarantine_artifact(ns, sha256(b"x"), text),
    ]
    for call in calls:
        with pytest.raises(KcacheError, match=r"UTF-8|NUL"):
            call()
    assert store.stats(ns) == before


def fill(store) -> object:
    ns = store.get_or_create_namespace("default")
    store.put_graph(ns, graph(0, [b"weights"]))
    store.publish_kernel(ns, kernel(0))
    return ns


@pytest.mark.parametrize(
    ("damage", "call"),
    [
        ("UPDATE specs SET text = text || ' '", lambda store, ns: store.get_spec(ns, 1)),
        ("UPDATE specs SET text = text || ' '", lambda store, ns: store.find_spec(ns, spec(0).spec_digest)),
        ("UPDATE specs SET spec_digest = zeroblob(32)", lambda store, ns: store.get_spec(ns, 1)),
    ],
)
def test_an_edited_spec_is_never_read(sqlite, damage, call):
    ns = fill(sqlite)
    tamper(path_of(sqlite), damage)
    with pytest.raises(CorruptStore, match="does not hash to its digest"):
        call(sqlite, ns)


def test_edited_bytes_are_never_read_and_come_again(sqlite):
    ns = fill(sqlite)
    tamper(path_of(sqlite), "UPDATE artifact_chunks SET content = zeroblob(size) WHERE size = 8")
    assert sqlite.read_artifact(ns, sha256(b"object 0")) is None
    assert sqlite.find_kernel(ns, kernel(0).kernel.kernel_digest) is None
    assert sqlite.publish_kernel(ns, kernel(0)).repaired == 1
    assert sqlite.read_artifact(ns, sha256(b"object 0")) == b"object 0"


def test_a_counter_that_was_set_back_gives_no_key_twice(sqlite):
    ns = fill(sqlite)
    before = contents(path_of(sqlite))
    with raw(path_of(sqlite)) as connection:
        connection.execute("UPDATE key_counters SET last_key = 0")
    for _ in range(2):
        with pytest.raises(StorageError):
            sqlite.put_spec(ns, spec(1))
    assert sqlite.get_spec(ns, 1).spec_digest == spec(0).spec_digest
    with raw(path_of(sqlite)) as connection:
        connection.execute("UPDATE key_counters SET last_key = 1")
    assert contents(path_of(sqlite)) == before
    assert sqlite.put_spec(ns, spec(1)).key == 2


def test_a_circle_of_aliases_is_an_error_and_not_for_ever(sqlite):
    ns = fill(sqlite)
    sqlite.put_spec(ns, spec(1))
    statements = ["PRAGMA ignore_check_constraints = ON"]
    statements += [f"INSERT INTO key_aliases VALUES (1, {a}, {b}, 0)" for a, b in ((1, 2), (2, 1))]
    tamper(path_of(sqlite), *statements)
    with pytest.raises(CorruptStore, match="stand for each other"):
        sqlite.resolve_key(ns, 1)
    with pytest.raises(CorruptStore, match="stand for each other"):
        sqlite.list_aliases(ns, 1)


def test_a_read_only_store_is_read_and_writes_are_rejected(sqlite):
    ns = fill(sqlite)
    before = contents(path_of(sqlite))
    connection = sqlite._db  # type: ignore[attr-defined]
    connection.transact(lambda writer: writer.exec_driver_sql("PRAGMA query_only = ON"))
    calls = [
        lambda: sqlite.put_spec(ns, spec(1)),
        lambda: sqlite.publish_kernel(ns, kernel(1)),
        lambda: sqlite.collect(ns, Step(RowKind.IDLE_KERNELS, before=2**62)),
        lambda: sqlite.set_quota(ns, "kernels", 1),
        lambda: sqlite.disown_toolchain(ns, bytes(32)),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="read-only"):
            call()
    assert sqlite.find_kernel(ns, kernel(0).kernel.kernel_digest) is not None
    assert contents(path_of(sqlite)) == before


FULL = """
import resource, signal, sys
sys.path.insert(0, sys.argv[1])
from kcache_grpc.storage import open_store
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.contract.lifecycle import Step, RowKind
from tests.storage.drafts import kernel
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open_store("sqlite:///" + sys.argv[2]) as store:
    ns = store.find_namespace("default")
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
    rejected = published = 0
    for number in range(1, 60):
        try:
            store.publish_kernel(ns, kernel(number, so=bytes([number]) * 40_000))
            published += 1
        except StoreUnavailable as error:
            assert "space" in str(error) or "failed" in str(error), error
            rejected += 1
    assert rejected, "the disk was not full"
    found = store.find_kernels(ns, [kernel(n).kernel.kernel_digest for n in range(60)])
    assert len(found) == published + 1, (len(found), published)
    for each in found.values():
        assert store.verify_artifact(ns, each.artifacts[0].digest)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    # Space again: it goes on by itself.
    assert store.publish_kernel(ns, kernel(99)).inserted
    assert store.collect(ns, Step(RowKind.IDLE_KERNELS, before=2**62)).rows == published + 2
"""


def test_a_full_disk_loses_nothing_and_is_got_over(sqlite):
    """The limit on the size of files stands for the disk: SQLite meets the same error."""
    fill(sqlite)
    path = path_of(sqlite)
    sqlite.close()
    room = str(path.stat().st_size + 600_000)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(ROOT), str(path), room],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_sound(path)


def test_a_file_that_may_not_be_opened(tmp_path):
    path = tmp_path / "store.sqlite"
    path.mkdir()
    with pytest.raises(StorageError):
        open_store(f"sqlite:///{path}")
    assert path.is_dir()


def test_who_is_in_a_hurry_does_not_wait_for_who_locks_the_whole_file(sqlite):
    """As another program may, and SQLite itself while it recovers its log."""
    fill(sqlite)
    path = path_of(sqlite)
    sqlite.close()
    database = SqliteDatabase(path, Time().clock)
    with raw(path) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        with database.short_lock_waits(), pytest.raises(StoreUnavailable, match="locked"):
            database.fetch(select(specs.c.key))
        assert time.monotonic() - began < BUSY_TIMEOUT_SECONDS / 4
    with database.short_lock_waits():
        assert [row.key for row in database.fetch(select(specs.c.key))] == [1]
    database.close()
