"""Collections from end to end: what goes, in which order, and that nothing goes that is still wanted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kcache_grpc.service.lifecycle.garbage_collection import CollectionOptions, Collector, QuotaEviction
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.lifecycle import RowKind
from kcache_grpc.storage.errors import QuotaExceeded
from kcache_grpc.storage.records import KernelDraft, Namespace
from tests.storage.drafts import Time, graph, kernel, program

HOUR = 3600


@pytest.fixture(params=["memory:", "sqlite://"])
def store(request: pytest.FixtureRequest, time: Time) -> Iterator[Store]:
    with open_store(request.param, migrate=True, clock=time.clock) as store:
        yield store


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def collector(store: Store, time: Time) -> Collector:
    return Collector(store, lambda: time.wall)


@pytest.fixture
def ns(store: Store, time: Time) -> Namespace:
    """Six kernels of 1000 bytes each, an hour between two of them; the youngest is an hour old."""
    namespace = store.get_or_create_namespace("default")
    for number in range(6):
        store.put_graph(namespace, graph(number, [b"weights"]))
        store.publish_kernel(namespace, large(number))
        time.advance(HOUR)
    return namespace


def large(number: int) -> KernelDraft:
    return kernel(number, so=f"{number:01000}".encode())


def left(store: Store, ns: Namespace) -> list[int]:
    names = {kernel(number).kernel.kernel_digest: number for number in range(20)}
    return sorted(names[digest] for digest in store.find_kernels(ns, list(names)))


def test_a_collection_without_a_wish_removes_nothing_that_is_wanted(store, ns, collector):
    report = collector.run(ns, CollectionOptions())
    assert not any(report.rows.values())
    assert report.blobs == 0
    assert left(store, ns) == [0, 1, 2, 3, 4, 5]


def test_what_is_older_goes(store, ns, collector):
    report = collector.run(ns, CollectionOptions(older_than=3.5 * HOUR))
    assert (report.rows["idle_kernels"], report.rows["idle_mappings"]) == (3, 3)
    assert report.blob_bytes == 3000
    assert left(store, ns) == [3, 4, 5]


def test_bytes_are_brought_down_and_no_further(store, ns, collector):
    before = store.stats(ns).artifact_bytes
    report = collector.run(ns, CollectionOptions(max_bytes=before - 1500))
    # Kernels go twenty at a time for their bytes: all six here, since they are few.
    assert report.blob_bytes >= 1500
    assert store.stats(ns).artifact_bytes <= before - 1500
    assert report.unmet == []


def test_a_limit_that_cannot_be_met_is_told(store, ns, collector):
    for number in range(6):
        store.pin(ns, "kernel", kernel(number).kernel.kernel_digest)
    report = collector.run(ns, CollectionOptions(max_bytes=10))
    assert report.unmet == ["--max-bytes"]
    assert left(store, ns) == [0, 1, 2, 3, 4, 5]


def test_a_quota_is_met_by_the_longest_unused(store, ns, collector):
    store.set_quota(ns, "kernels", 4)
    store.set_quota(ns, "mappings", 5)
    report = collector.run(ns, CollectionOptions())
    assert (report.rows["idle_kernels"], report.rows["idle_mappings"]) == (2, 1)
    assert left(store, ns) == [2, 3, 4, 5]
    assert {quota.used for quota in store.list_quotas(ns).values()} == {4, 5}


def test_a_young_one_is_no_room(store, ns, collector):
    store.set_quota(ns, "kernels", 2)
    report = collector.run(ns, CollectionOptions(min_age=2.5 * HOUR))
    assert left(store, ns) == [4, 5]
    assert report.unmet == []
    store.set_quota(ns, "kernels", 1)
    assert collector.run(ns, CollectionOptions(min_age=2.5 * HOUR)).unmet == ["quota of kernels"]
    assert left(store, ns) == [4, 5]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [
        CollectionOptions(),
        CollectionOptions(older_than=3.5 * HOUR),
        CollectionOptions(max_bytes=2500),
        CollectionOptions(older_than=4.5 * HOUR, max_bytes=0),
        CollectionOptions(older_than=10 * HOUR, min_age=0),
    ],
)
def test_a_dry_run_says_what_a_run_does(store, ns, collector, options):
    store.set_quota(ns, "kernels", 5)
    now = store.raise_epoch(store.get_or_create_namespace("other"))
    before = (store.stats(ns), store.find_namespace("default").removals)
    dry = collector.run(
        ns, CollectionOptions(options.older_than, options.max_bytes, options.min_age, dry_run=True)
    )
    assert (store.stats(ns), store.find_namespace("default").removals) == before
    real = collector.run(ns, options)
    assert dry.rows == real.rows
    assert (dry.blobs, dry.blob_bytes, dry.unmet) == (real.blobs, real.blob_bytes, real.unmet)
    assert now.epoch == 2


def test_a_collection_that_was_killed_goes_on(store, ns, collector):
    now = store.raise_epoch(ns)
    steps = collector.steps(now, CollectionOptions())
    next(steps)
    next(steps)
    steps.close()
    assert store.stats(ns).kernels == 0
    report = collector.run(now, CollectionOptions())
    assert report.rows["epoch_mappings"] == 6
    assert store.stats(now).artifacts == 0


class TestRoom:
    def test_an_insert_evicts_the_longest_unused(self, store, ns, time):
        store.set_quota(ns, "kernels", 6)
        room = QuotaEviction(store, min_age=0)
        assert room.insert_evicting(store.publish_kernel, ns, large(6)).inserted
        assert left(store, ns) == [1, 2, 3, 4, 5, 6]

    def test_bytes_make_room_too(self, store, ns):
        store.set_quota(ns, "artifact_bytes", store.stats(ns).artifact_bytes + 500)
        QuotaEviction(store, min_age=0).insert_evicting(store.publish_kernel, ns, large(6))
        assert 6 in left(store, ns)
        assert 0 not in left(store, ns)

    def test_mappings_make_room_too(self, store, ns):
        store.set_quota(ns, "mappings", 6)
        QuotaEviction(store, min_age=0).insert_evicting(store.put_graph, ns, graph(6))
        assert store.find_mapping(ns, program(0), "default") is None
        assert store.find_mapping(ns, program(6), "default") is not None

    def test_rows_of_earlier_epochs_go_first(self, store, ns):
        now = store.raise_epoch(ns)
        store.publish_kernel(now, large(7))
        store.set_quota(ns, "kernels", 7)
        QuotaEviction(store, min_age=0).insert_evicting(store.publish_kernel, now, large(8))
        assert left(store, now) == [7, 8]

    @pytest.mark.parametrize(
        ("policy", "min_age", "pinned"), [("refuse", 0, False), ("evict", 1e6, False), ("evict", 0, True)]
    )
    def test_where_none_is_to_be_had_the_insert_is_rejected(self, store, ns, time, policy, min_age, pinned):
        store.set_quota(ns, "kernels", 6, policy)
        for number in range(6) if pinned else ():
            store.pin(ns, "kernel", kernel(number).kernel.kernel_digest)
        with pytest.raises(QuotaExceeded):
            QuotaEviction(store, min_age, lambda: time.wall).insert_evicting(
                store.publish_kernel, ns, large(6)
            )
        assert left(store, ns) == [0, 1, 2, 3, 4, 5]

    def test_what_cannot_fit_evicts_nothing(self, store, ns):
        store.set_quota(ns, "artifact_bytes", 100)
        with pytest.raises(QuotaExceeded):
            QuotaEviction(store, min_age=0).insert_evicting(store.publish_kernel, ns, large(6))
        assert left(store, ns) == [0, 1, 2, 3, 4, 5]

    def test_a_rejection_comes_before_the_work(self, store, ns):
        room = QuotaEviction(store)
        store.set_quota(ns, "kernels", 6, "refuse")
        with pytest.raises(QuotaExceeded):
            room.require(ns, "kernels")
        store.set_quota(ns, "kernels", 7, "refuse")
        room.require(ns, "kernels")
        store.set_quota(ns, "kernels", 6, "evict")
        room.require(ns, "kernels")


def test_kinds_are_collected_in_the_order_in_which_they_free_each_other():
    order = list(RowKind)
    assert order.index(RowKind.IDLE_MAPPINGS) < order.index(RowKind.CONSTANTS) < order.index(RowKind.BLOBS)
