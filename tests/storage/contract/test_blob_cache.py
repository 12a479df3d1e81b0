"""Values of ``BlobCache`` in every store."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kcache_grpc.storage import Store
from kcache_grpc.storage.contract.blob_cache import CHUNK_BYTES, ValueDraft
from kcache_grpc.storage.contract.lifecycle import REFUSE
from kcache_grpc.storage.errors import DigestMismatch, InvalidValue, QuotaExceeded
from kcache_grpc.storage.records import Namespace
from tests.storage.drafts import Time
from tests.storage.inside import path_of, tamper

pytestmark = pytest.mark.issue(number=20, point=2)

LARGE = bytes(range(256)) * 10_000


def sha(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def draft(name: str, content: bytes, **fields: Any) -> ValueDraft:
    return ValueDraft.of(sha(name.encode()), sha(content), content, **fields)


def put(store: Store, ns: Namespace, name: str, content: bytes, **fields: Any) -> bool:
    return store.put_values(ns, [draft(name, content, **fields)])[0].inserted


def read(store: Store, ns: Namespace, name: str) -> bytes | None:
    record = store.find_values(ns, [sha(name.encode())]).get(sha(name.encode()))
    if record is None:
        return None
    chunks = [store.read_chunk(ns, record, seq) for seq in range(record.chunk_count)]
    return None if None in chunks else b"".join(chunk for chunk in chunks if chunk is not None)


@pytest.mark.parametrize("content", [b"", b"x", b"y" * CHUNK_BYTES, LARGE])
def test_a_value_comes_back_as_it_was_put(store: Store, ns: Namespace, content: bytes) -> None:
    assert read(store, ns, "a") is None
    outcome = store.put_values(ns, [draft("a", content, label="a", saved_us=5)])[0]
    assert (outcome.inserted, outcome.record.size, outcome.record.saved_us) == (True, len(content), 5)
    assert read(store, ns, "a") == content


def test_the_pieces_of_a_draft_may_have_any_size(store: Store, ns: Namespace) -> None:
    parts = [LARGE[:7], LARGE[7 : CHUNK_BYTES + 9], b"", LARGE[CHUNK_BYTES + 9 :]]
    offered = ValueDraft(sha(b"a"), sha(LARGE), len(LARGE), lambda: parts)
    assert store.put_values(ns, [offered])[0].inserted
    assert read(store, ns, "a") == LARGE


def test_the_first_value_stays_and_another_one_is_a_conflict(store: Store, ns: Namespace) -> None:
    assert put(store, ns, "a", b"first")
    again = store.put_values(ns, [draft("a", b"first")], "alice")[0]
    assert (again.inserted, again.record.digest) == (False, sha(b"first"))
    assert store.list_value_conflicts(ns) == ()
    for _ in range(2):
        lost = store.put_values(ns, [draft("a", b"second")], "alice")[0]
        assert (lost.inserted, lost.record.digest) == (False, sha(b"first"))
    (conflict,) = store.list_value_conflicts(ns)
    assert (conflict.kept, conflict.offered, conflict.actor) == (sha(b"first"), sha(b"second"), "alice")
    assert read(store, ns, "a") == b"first"


def test_namespaces_are_apart_and_epochs_are_not(store: Store, ns: Namespace) -> None:
    other = store.get_or_create_namespace("another")
    put(store, ns, "a", b"mine")
    assert read(store, other, "a") is None
    assert put(store, other, "a", b"theirs")
    assert read(store, store.raise_epoch(ns), "a") == b"mine"


def test_values_are_listed_in_the_order_of_inserts(store: Store, ns: Namespace) -> None:
    store.put_values(ns, [draft(name, name.encode()) for name in "abc"])
    records = store.list_values(ns)
    assert {record.key for record in records} == {sha(name.encode()) for name in "abc"}
    assert store.list_values(ns, records[0].id, 1) == (records[1],)


def test_what_cannot_be_stored_changes_nothing(store: Store, ns: Namespace) -> None:
    wrong = ValueDraft(sha(b"k"), sha(b"other"), 4, lambda: [b"data"])
    with pytest.raises(DigestMismatch):
        store.put_values(ns, [draft("a", b"good"), wrong])
    with pytest.raises(InvalidValue, match="32"):
        store.put_values(ns, [ValueDraft.of(b"short", sha(b""), b"")])
    with pytest.raises(InvalidValue, match="twice"):
        store.put_values(ns, [draft("a", b"1"), draft("a", b"2")])
    assert store.value_totals(ns).values == 0


def test_hits_are_counted_and_keep_values(store: Store, ns: Namespace, time: Time) -> None:
    store.put_values(ns, [draft("used", b"u" * 10, saved_us=7), draft("idle", b"i" * 10)])
    ids = {record.key: record.id for record in store.list_values(ns)}
    time.advance(100)
    store.add_value_hits(ns, {ids[sha(b"used")]: 3, 10**9: 1})
    totals = store.value_totals(ns)
    assert (totals.values, totals.bytes, totals.hits, totals.saved_us) == (2, 20, 3, 21)
    before = time.clock.wall() - 50_000_000
    assert store.remove_values(ns, before, dry_run=True) == (1, 10)
    assert store.value_totals(ns).values == 2
    assert store.remove_values(ns, before) == (1, 10)
    assert read(store, ns, "idle") is None
    assert read(store, ns, "used") == b"u" * 10
    kinds = [record.event.kind for record in store.list_audit(ns, 0, 100)]
    assert "collect" in kinds
    assert put(store, ns, "idle", b"again")


def test_totals_of_hits_do_not_fall_when_values_are_removed(store: Store, ns: Namespace, time: Time) -> None:
    for turn in range(2):
        put(store, ns, "a", b"x" * 10, saved_us=7)
        store.add_value_hits(ns, {store.list_values(ns)[0].id: 3})
        time.advance(10)
        assert store.remove_values(ns, time.clock.wall()) == (1, 10)
        totals = store.value_totals(ns)
        assert (totals.values, totals.bytes) == (0, 0)
        assert (totals.hits, totals.saved_us) == (3 * (turn + 1), 21 * (turn + 1))


def test_the_longest_unused_go_first_until_enough_bytes_are_free(
    store: Store, ns: Namespace, time: Time
) -> None:
    for name in "abcd":
        put(store, ns, name, name.encode() * 100)
        time.advance(10)
    time.advance(10)
    assert store.remove_values(ns, time.clock.wall(), 150) == (2, 200)
    assert [read(store, ns, name) is None for name in "abcd"] == [True, True, False, False]


def test_a_quota_counts_the_bytes_of_values(store: Store, ns: Namespace) -> None:
    put(store, ns, "a", b"x" * 60)
    assert store.set_quota(ns, "cache_bytes", 100, REFUSE).used == 60
    with pytest.raises(QuotaExceeded, match="cache bytes"):
        put(store, ns, "b", b"x" * 41)
    assert read(store, ns, "b") is None
    assert put(store, ns, "b", b"x" * 40)
    assert store.list_quotas(ns)["cache_bytes"].used == 100


def test_of_many_threads_one_inserts(store: Store, ns: Namespace) -> None:
    def insert(number: int) -> list[bool]:
        return [put(store, ns, f"k{turn}", b"%d" % number) for turn in range(10)]

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(insert, range(8)))
    assert [sum(column) for column in zip(*won, strict=True)] == [1] * 10
    winners = [next(number for number in range(8) if won[number][turn]) for turn in range(10)]
    assert [read(store, ns, f"k{turn}") for turn in range(10)] == [b"%d" % number for number in winners]


def test_a_damaged_chunk_removes_its_value_which_can_be_put_again(sqlite: Store) -> None:
    ns = sqlite.get_or_create_namespace("default")
    put(sqlite, ns, "a", LARGE)
    tamper(path_of(sqlite), "UPDATE cache_chunks SET content = x'00' WHERE seq = 1")
    assert read(sqlite, ns, "a") is None
    assert sqlite.find_values(ns, [sha(b"a")]) == {}
    assert put(sqlite, ns, "a", LARGE)
    assert read(sqlite, ns, "a") == LARGE
