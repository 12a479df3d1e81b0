"""Assertions of ``SourceAssertions`` in every store."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kcache_grpc.service.lifecycle.garbage_collection import CollectionOptions, Collector
from kcache_grpc.storage import Store
from kcache_grpc.storage.contract.assertions import AssertionDraft, AssertionRecord
from kcache_grpc.storage.contract.lifecycle import REFUSE
from kcache_grpc.storage.errors import InvalidValue, MissingReference, QuotaExceeded
from kcache_grpc.storage.records import Namespace
from tests.storage.drafts import Time
from tests.storage.inside import path_of, tamper


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def draft(source: str, record: bytes = b"{}", actor: str = "alice", **fields: Any) -> AssertionDraft:
    return AssertionDraft(sha(source), actor, record, **fields)


def trusted(
    store: Store, ns: Namespace, source: str, actor: str, roles: tuple[str, ...] = ()
) -> list[AssertionRecord]:
    return list(store.find_assertions(ns, [sha(source)], actor, roles).get(sha(source), ()))


def record_of(store: Store, ns: Namespace, source: str, actor: str = "alice") -> bytes | None:
    rows = trusted(store, ns, source, actor)
    return store.read_records(ns, rows).get(rows[0].id) if rows else None


@pytest.mark.parametrize("record", [b"x", '{"ü": [1]}'.encode(), b"r" * (1 << 20)])
def test_an_assertion_comes_back_as_it_was_put(store: Store, ns: Namespace, record: bytes) -> None:
    assert record_of(store, ns, "a") is None
    programs = (sha("p1"), sha("p2"))
    offered = draft("a", record, programs=programs, toolchain="torch 2.13", role="ci")
    outcome = store.put_assertion(ns, offered)
    assert outcome.inserted
    assert store.find_assertions(ns, [sha("a"), sha("b")], "alice") == {sha("a"): (outcome.assertion,)}
    row = outcome.assertion
    assert (row.source_digest, row.actor, row.role, row.toolchain) == (sha("a"), "alice", "ci", "torch 2.13")
    assert (row.programs, row.record_size, row.quarantined) == (programs, len(record), False)
    assert row.record_digest == hashlib.sha256(record).digest()
    assert row.size == len(record) + 64 + len("torch 2.13")
    assert record_of(store, ns, "a") == record


def test_the_first_record_of_an_actor_stays_and_another_one_is_a_conflict(
    store: Store, ns: Namespace
) -> None:
    assert store.put_assertion(ns, draft("a", b"first")).inserted
    again = store.put_assertion(ns, draft("a", b"first"))
    assert (again.inserted, store.list_assertion_conflicts(ns)) == (False, ())
    for _ in range(2):
        lost = store.put_assertion(ns, draft("a", b"second"))
        assert (lost.inserted, lost.assertion) == (False, again.assertion)
    (conflict,) = store.list_assertion_conflicts(ns)
    assert (conflict.source_digest, conflict.actor) == (sha("a"), "alice")
    assert (conflict.kept, conflict.offered) == (
        hashlib.sha256(b"first").digest(),
        hashlib.sha256(b"second").digest(),
    )
    assert record_of(store, ns, "a") == b"first"
    assert store.assertion_totals(ns).conflicts == 1


def test_actors_are_apart_unless_their_role_is_trusted(store: Store, ns: Namespace) -> None:
    store.put_assertion(ns, draft("a", b"of mallory", "mallory", role="dev"))
    store.put_assertion(ns, draft("a", b"of ci 1", "ci-1", role="ci"))
    store.put_assertion(ns, draft("a", b"of ci 2", "ci-2", role="ci"))
    assert trusted(store, ns, "a", "alice") == []
    assert [row.actor for row in trusted(store, ns, "a", "alice", ("ci",))] == ["ci-1", "ci-2"]
    assert store.put_assertion(ns, draft("a", b"of alice", role="dev")).inserted
    assert [row.actor for row in trusted(store, ns, "a", "alice", ("ci",))] == ["alice", "ci-1", "ci-2"]
    assert [row.actor for row in trusted(store, ns, "a", "ci-2", ("ci",))] == ["ci-2", "ci-1"]
    assert [row.actor for row in trusted(store, ns, "a", "bob", ("",))] == []


def test_namespaces_and_epochs_are_apart(store: Store, ns: Namespace) -> None:
    other = store.get_or_create_namespace("another")
    store.put_assertion(ns, draft("a", b"mine"))
    assert record_of(store, other, "a") is None
    assert store.put_assertion(other, draft("a", b"theirs")).inserted
    raised = store.raise_epoch(ns)
    assert record_of(store, raised, "a") is None
    assert store.list_assertions(raised) == ()
    assert store.put_assertion(raised, draft("a", b"anew")).inserted
    assert record_of(store, raised, "a") == b"anew"
    assert record_of(store, ns, "a") == b"mine"


def test_a_disputed_assertion_is_returned_to_nobody(store: Store, ns: Namespace) -> None:
    row = store.put_assertion(ns, draft("a", b"wrong", "ci", role="ci")).assertion
    store.put_assertion(ns, draft("a", b"wrong", "other", role="ci"))
    assert store.dispute_assertion(ns, row, sha("right"), "alice", "another program")
    assert not store.dispute_assertion(ns, row, sha("right"), "bob")
    assert trusted(store, ns, "a", "ci") == []
    assert [each.actor for each in trusted(store, ns, "a", "alice", ("ci",))] == ["other"]
    (dispute,) = store.list_disputes(ns)
    assert (dispute.actor, dispute.record_digest, dispute.observed) == ("ci", row.record_digest, sha("right"))
    assert (dispute.disputed_by, dispute.reason) == ("alice", "another program")
    again = store.put_assertion(ns, draft("a", b"wrong", "ci", role="ci"))
    assert (again.inserted, again.assertion.quarantined) == (False, True)
    assert [each.quarantined for each in store.list_assertions(ns)] == [True, False]
    assert store.assertion_totals(ns).quarantined == 1


def test_a_disputed_record_stays_in_quarantine_when_its_assertion_was_removed(
    store: Store, ns: Namespace, time: Time
) -> None:
    row = store.put_assertion(ns, draft("a", b"wrong")).assertion
    store.dispute_assertion(ns, row, sha("right"), "alice")
    time.advance(10)
    assert store.remove_assertions(ns, time.clock.wall()) == (1, row.size)
    again = store.put_assertion(ns, draft("a", b"wrong"))
    assert (again.inserted, again.assertion.quarantined) == (True, True)
    time.advance(10)
    store.remove_assertions(ns, time.clock.wall())
    store.put_assertion(ns, draft("a", b"right"))
    assert record_of(store, ns, "a") == b"right"


def test_what_cannot_be_stored_changes_nothing(store: Store, ns: Namespace) -> None:
    row = store.put_assertion(ns, draft("a")).assertion
    for wrong in (
        AssertionDraft(b"short", "alice", b"{}"),
        draft("b", programs=(b"short",)),
        draft("b", actor=""),
        draft("b", b""),
        draft("b", toolchain="a\0b"),
        draft("b", actor="x" * 1000),
    ):
        with pytest.raises(InvalidValue):
            store.put_assertion(ns, wrong)
    with pytest.raises(InvalidValue):
        store.find_assertions(ns, [b"short"], "alice")
    with pytest.raises(InvalidValue):
        store.dispute_assertion(ns, row, b"short", "alice")
    assert store.list_assertions(ns) == (row,)
    assert store.list_disputes(ns) == ()


def test_eight_writers_of_one_digest_have_one_winner(store: Store, ns: Namespace) -> None:
    for turn in range(10):
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(
                pool.map(
                    lambda number, turn=turn: store.put_assertion(ns, draft(f"s{turn}", b"%d" % number)),
                    range(8),
                )
            )
        assert sum(outcome.inserted for outcome in outcomes) == 1
        assert len({outcome.assertion.record_digest for outcome in outcomes}) == 1
        assert len({outcome.assertion.id for outcome in outcomes}) == 1
    assert len(store.list_assertions(ns)) == 10
    assert len(store.list_assertion_conflicts(ns)) == 70


def test_assertions_are_listed_in_the_order_of_inserts(store: Store, ns: Namespace) -> None:
    rows = [store.put_assertion(ns, draft(name)).assertion for name in "abc"]
    assert store.list_assertions(ns) == tuple(rows)
    assert store.list_assertions(ns, rows[0].id, 1) == (rows[1],)


def test_hits_keep_assertions(store: Store, ns: Namespace, time: Time) -> None:
    used, idle = (store.put_assertion(ns, draft(name)).assertion for name in ("used", "idle"))
    time.advance(100)
    store.add_assertion_hits(ns, {used.id: 3, 10**9: 1})
    before = time.clock.wall() - 50_000_000
    assert store.remove_assertions(ns, before, dry_run=True) == (1, idle.size)
    assert len(store.list_assertions(ns)) == 2
    assert store.remove_assertions(ns, before) == (1, idle.size)
    assert store.list_assertions(ns) == (used,)
    assert "collect" in [record.event.kind for record in store.list_audit(ns, 0, 100)]
    assert store.put_assertion(ns, draft("idle", b"anew")).inserted


def test_the_longest_unused_go_first_until_enough_bytes_are_free(
    store: Store, ns: Namespace, time: Time
) -> None:
    for name in "abcd":
        store.put_assertion(ns, draft(name, b"r" * 100))
        time.advance(10)
    time.advance(10)
    assert store.remove_assertions(ns, time.clock.wall(), 150) == (2, 200)
    assert [record_of(store, ns, name) is None for name in "abcd"] == [True, True, False, False]


def test_a_quota_counts_the_bytes_of_assertions(store: Store, ns: Namespace) -> None:
    store.put_assertion(ns, draft("a", b"r" * 60))
    assert store.set_quota(ns, "assertion_bytes", 100, REFUSE).used == 60
    with pytest.raises(QuotaExceeded):
        store.put_assertion(ns, draft("b", b"r" * 41))
    assert store.put_assertion(ns, draft("b", b"r" * 40)).inserted
    assert store.list_quotas(ns)["assertion_bytes"].used == 100
    assert not store.put_assertion(ns, draft("a", b"another" * 20)).inserted
    store.recount_quotas(ns)
    assert store.list_quotas(ns)["assertion_bytes"].used == 100


def test_a_collection_removes_earlier_epochs_idle_ones_and_what_is_above_the_quota(
    store: Store, ns: Namespace, time: Time
) -> None:
    collector = Collector(store, time.clock.wall)
    store.put_assertion(ns, draft("stale", b"r" * 10))
    raised = store.raise_epoch(ns)
    for name in "abc":
        time.advance(10)
        store.put_assertion(raised, draft(name, b"r" * 100))
    time.advance(10)
    options = CollectionOptions(min_age=0.0)
    assert collector.run(raised, CollectionOptions(min_age=0.0, dry_run=True)).rows["assertions"] == 1
    assert collector.run(raised, options).rows["assertions"] == 1
    assert record_of(store, ns, "stale") is None
    assert collector.run(raised, CollectionOptions(older_than=25.0, min_age=0.0)).rows["assertions"] == 1
    store.set_quota(raised, "assertion_bytes", 150)
    assert collector.run(raised, options).rows["assertions"] == 1
    assert [record_of(store, raised, name) is None for name in "abc"] == [True, True, False]
    assert collector.evict(raised, "assertion_bytes", 100, 0.0) == 100


def test_trusted_roles_are_a_setting_of_the_namespace(store: Store, ns: Namespace) -> None:
    other = store.get_or_create_namespace("another")
    assert store.trusted_roles(ns) == ()
    assert store.set_trusted_roles(ns, []) is False
    assert store.set_trusted_roles(ns, ["ci", "admin", "ci"]) is True
    assert store.set_trusted_roles(ns, ["admin", "ci"]) is False
    assert (store.trusted_roles(ns), store.trusted_roles(other)) == (("admin", "ci"), ())
    assert store.trusted_roles(store.raise_epoch(ns)) == ("admin", "ci")
    for wrong in (["CI"], [""], ["a b"], ["x" * 65], [f"r{number}" for number in range(33)]):
        with pytest.raises(InvalidValue):
            store.set_trusted_roles(ns, wrong)
    with pytest.raises(MissingReference):
        store.set_trusted_roles(Namespace(99, "nowhere", 1), ["ci"])


def test_a_damaged_record_removes_its_assertion(sqlite: Store) -> None:
    ns = sqlite.get_or_create_namespace("ns")
    row = sqlite.put_assertion(ns, draft("a", b"record")).assertion
    tamper(path_of(sqlite), "UPDATE assertions SET record = x'00'")
    assert sqlite.read_records(ns, [row]) == {}
    assert sqlite.list_assertions(ns) == ()
    assert sqlite.put_assertion(ns, draft("a", b"record")).inserted
    assert record_of(sqlite, ns, "a") == b"record"
