"""A group of graphs is stored as if each had come alone, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.errors import QuotaExceeded
from kcache_grpc.storage.objects.placing import Placing
from kcache_grpc.storage.records import AuditEvent, GraphDraft, Namespace, SignedBytes
from kcache_grpc.storage.sql.graphs.writes import Entry, Written
from kcache_grpc.storage.sql.store import SqlStore
from tests.storage.drafts import blob, graph, program, sha256, spec

_names = itertools.count()

databases = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


class Rejected(Exception):
    """What a bad binding raises."""


def reject(key: int) -> SignedBytes:
    raise Rejected(key)


@dataclass(frozen=True)
class Item:
    """Numbers of a spec and of a program, which is none for a spec alone; few of each, so that they meet."""

    spec: int
    program: int | None
    constants: tuple[bytes, ...]
    bad: bool
    told: bool

    @property
    def draft(self) -> GraphDraft:
        assert self.program is not None
        plan = graph(self.spec, self.constants)
        return replace(plan, program_digest=program(self.program), bind=reject if self.bad else plan.bind)

    @property
    def event(self) -> AuditEvent | None:
        return AuditEvent("store", actor=f"{self.spec} {self.program}") if self.told else None


ITEMS = st.builds(
    Item,
    st.integers(0, 5),
    st.none() | st.integers(0, 5),
    st.sampled_from([(), (), (b"weights",), (b"bias", b"weights", b"bias")]),
    st.booleans(),
    st.booleans(),
)


def put_alone(store: Store, ns: Namespace, item: Item) -> Any:
    """What the caller is told."""
    try:
        if item.program is None:
            return store.put_spec(ns, spec(item.spec)).key
        stored = store.put_graph(ns, item.draft, item.event)
    except (Rejected, QuotaExceeded) as rejected:
        return "rejected", rejected.args
    return seen(stored.spec.key, stored.mapping, stored.new_spec, stored.new_mapping)


def seen(key: int, mapping: Any, new_spec: bool, new_mapping: bool) -> tuple[object, ...]:
    return key, mapping.key, mapping.binding, mapping.program_digest, new_spec, new_mapping


def put_together(store: SqlStore, ns: Namespace, items: Sequence[Item]) -> list[Any]:
    """The results that callers of one group commit receive."""
    entries = [
        Entry(spec(item.spec))
        if item.program is None
        else Entry(item.draft.spec, item.draft, item.event, Placing(None, store._clock))
        for item in items
    ]
    outcomes = store._writes._outcomes(ns, entries)
    return [told(item, outcome) for item, outcome in zip(items, outcomes, strict=True)]


def told(item: Item, outcome: Written | Exception) -> Any:
    if isinstance(outcome, Exception):
        assert isinstance(outcome, (Rejected, QuotaExceeded)), outcome
        return "rejected", outcome.args
    if item.program is None:
        return outcome.spec.key
    return seen(outcome.spec.key, outcome.mapping, outcome.new_spec, outcome.new_mapping)


def contents(store: Store, ns: Namespace) -> list[object]:
    """Specs by key, who was told of, and the counter."""
    count = store.count_specs(ns)
    specs = [store.get_spec(ns, key) for key in range(1, count + 1)]
    events = [(each.event.actor, each.event.key) for each in store.list_audit(ns)]
    constants = [store.read_artifact(ns, sha256(content)) for content in (b"weights", b"bias")]
    return [count, [each and each.text for each in specs], events, constants]


@databases
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(known=st.lists(ITEMS, max_size=4), items=st.lists(ITEMS, min_size=1, max_size=12))
def test_a_group_is_stored_as_if_each_came_alone(store, known, items):
    assert isinstance(store, SqlStore)
    ns = store.get_or_create_namespace(f"group {next(_names)}")
    with open_store("memory:") as model:
        alone = model.get_or_create_namespace("alone")
        for item in known:
            assert put_alone(store, ns, item) == put_alone(model, alone, item)
        assert put_together(store, ns, items) == [put_alone(model, alone, item) for item in items]
        assert contents(store, ns) == contents(model, alone)


GOOD = ITEMS.map(lambda item: replace(item, bad=False))
QUOTAS = st.dictionaries(
    st.sampled_from(["specs", "mappings", "artifact_bytes"]), st.integers(0, 8), min_size=1
)


@databases
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(known=st.lists(GOOD, max_size=4), items=st.lists(GOOD, min_size=1, max_size=12), quotas=QUOTAS)
def test_a_group_meets_quotas_as_if_each_came_alone(store, known, items, quotas):
    assert isinstance(store, SqlStore)
    ns = store.get_or_create_namespace(f"full {next(_names)}")
    with open_store("memory:") as model:
        alone = model.get_or_create_namespace(ns.name)
        for item in known:
            assert put_alone(store, ns, item) == put_alone(model, alone, item)
        for resource, most in quotas.items():
            store.set_quota(ns, resource, most, "refuse")
            model.set_quota(alone, resource, most, "refuse")
        assert put_together(store, ns, items) == [put_alone(model, alone, item) for item in items]
        assert contents(store, ns) == contents(model, alone)
        assert store.list_quotas(ns) == model.list_quotas(alone)


@databases
def test_a_group_in_a_full_namespace_takes_two_transactions(store, ns):
    for number in range(4):
        store.put_graph(ns, graph(number))
    store.set_quota(ns, "specs", 4, "refuse")
    transactions: list[int] = []
    write = store._write_entries
    store._writes._write = lambda ns, entries: transactions.append(len(entries)) or write(ns, entries)
    entries = [Entry(graph(number).spec, graph(number)) for number in range(64)]
    outcomes = store._writes._outcomes(ns, entries)
    assert transactions == [64, 4]
    assert [each.spec.key for each in outcomes[:4]] == [1, 2, 3, 4]
    assert [each.wanted for each in outcomes[4:]] == [5] * 60


@databases
def test_a_quota_lets_as_many_of_a_group_in_as_there_is_room_for(store, ns):
    store.set_quota(ns, "specs", 5, "refuse")
    entries = [Entry(graph(number).spec, graph(number)) for number in range(8)]
    outcomes = store._writes._outcomes(ns, entries)
    stored = [each for each in outcomes if isinstance(each, Written)]
    assert [each.spec.key for each in stored] == [1, 2, 3, 4, 5]
    assert all(isinstance(each, QuotaExceeded) for each in outcomes[5:])
    assert store.count_specs(ns) == 5
    assert store.list_quotas(ns)["specs"].used == 5


@databases
def test_a_group_whose_specs_another_writer_stored_meanwhile_leaves_no_gap(store, ns, monkeypatch):
    """On Postgres: the statement that adds them all at once cannot see those, and is undone."""
    added = store._db.add_specs

    def behind(connection: Any, rows: Any) -> Any:
        monkeypatch.undo()
        if store.shared:
            for number in (2, 5):
                assert store.put_spec(ns, spec(number)).key in (1, 2)
        return added(connection, rows)

    monkeypatch.setattr(store._db, "add_specs", behind)
    entries = [Entry(graph(number).spec, graph(number)) for number in range(8)]
    written = store._write_entries(ns, entries)
    keys = {number: each.spec.key for number, each in enumerate(written)}
    assert sorted(keys.values()) == list(range(1, 9))
    assert store.count_specs(ns) == 8
    if store.shared:
        assert (keys[2], keys[5]) == (1, 2)
        assert [number for number, each in enumerate(written) if not each.new_spec] == [2, 5]
    assert {key: store.get_spec(ns, key).spec_digest for key in range(1, 9)} == {
        key: spec(number).spec_digest for number, key in keys.items()
    }


@databases
def test_one_blob_of_many_graphs_is_stored_once(store, ns):
    entries = [
        Entry(draft.spec, draft, None, Placing(None, store._clock))
        for draft in (graph(number, [b"weights", str(number).encode()]) for number in range(6))
    ]
    assert all(isinstance(each, Written) for each in store._writes._outcomes(ns, entries))
    assert store.stats(ns).artifacts == 7
    assert store.read_artifact(ns, blob(b"weights").digest) == b"weights"
    for number in range(6):
        assert store.find_mapping(ns, program(number), "default") is not None
