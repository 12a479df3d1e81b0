"""Notices: what a store tells of its own accord, on Postgres; and that nothing depends on them."""

from __future__ import annotations

import os
import queue
import resource
from collections.abc import Iterator

import psycopg
import pytest

from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.change_notifications import (
    Change,
    ClaimEnded,
    KernelPublished,
    LeaseChanged,
    Missed,
    NamespaceChanged,
)
from kcache_grpc.storage.records import Failure, Namespace
from kcache_grpc.storage.sql.postgres.listener import parse_change
from tests.storage.drafts import kernel, sha256, spec

KERNEL = kernel(1).kernel.kernel_digest
#: Seconds within which a notice is heard, on a busy machine too.
SOON = 120.0


class Heard:
    """Notices as they come."""

    def __init__(self) -> None:
        self._changes: queue.Queue[Change] = queue.Queue()

    def __call__(self, change: Change) -> None:
        self._changes.put(change)

    def next(self) -> Change:
        return self._changes.get(timeout=SOON)

    def until(self, change: Change) -> list[Change]:
        """What was heard before it."""
        before: list[Change] = []
        while (heard := self.next()) != change:
            before.append(heard)
        return before


@pytest.fixture
def ns(first_store: Store) -> Namespace:
    return first_store.get_or_create_namespace("default")


@pytest.fixture
def heard(second_store: Store, ns: Namespace) -> Iterator[Heard]:
    """What another replica hears, from the moment that it listens."""
    heard = Heard()
    watch = second_store.watch(heard)
    assert watch is not None
    assert heard.next() == Missed()
    yield heard
    watch.close()
    watch.close()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """The next descriptor of this process is above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    yield
    for descriptor in descriptors:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.issue(number=19, point=29)
def test_a_process_with_more_than_1024_descriptors_hears_too(many_descriptors, first_store, ns, heard):
    first_store.release_lease(first_store.acquire_lease(ns, KERNEL, "a", ttl=10))
    assert heard.until(LeaseChanged(ns.id, KERNEL)) == []


def test_waiters_hear_of_stages_and_of_the_end_but_not_of_heartbeats(first_store, ns, heard):
    changed = LeaseChanged(ns.id, KERNEL)
    lease = first_store.acquire_lease(ns, KERNEL, "a", ttl=10)
    first_store.heartbeat_lease(lease, 10)
    first_store.report_stage(lease, "lower")
    assert heard.until(changed) == []
    first_store.heartbeat_lease(lease, 10)
    first_store.release_lease(lease)
    assert heard.until(changed) == []
    lease = first_store.acquire_lease(ns, KERNEL, "b", ttl=10)
    assert heard.until(changed) == []
    first_store.record_failure(ns, KERNEL, Failure("COMPILE_FAILED", "", ""), 10, lease)
    assert heard.until(changed) == []


def test_a_published_kernel_is_told_under_its_key_and_ends_its_lease(first_store, ns, heard):
    first_store.put_spec(ns, spec(0))
    lease = first_store.acquire_lease(ns, KERNEL, "a", ttl=10)
    first_store.publish_kernel(ns, kernel(1), lease)
    told = {heard.next(), heard.next()}
    assert told == {KernelPublished(ns.id, 1), LeaseChanged(ns.id, KERNEL)}


def test_what_makes_memories_stale_is_told(first_store, ns, heard):
    changed = NamespaceChanged(ns.id)
    first_store.raise_epoch(ns)
    assert heard.until(changed) == []
    first_store.disown_toolchain(ns, sha256("toolchain"))
    assert heard.until(changed) == []
    first_store.readmit_toolchain(ns, sha256("toolchain"))
    assert heard.until(changed) == []


def test_nothing_is_told_of_what_is_undone(first_store, ns, heard):
    first_store.put_spec(ns, spec(0))
    lost = first_store.acquire_lease(ns, KERNEL, "a", ttl=10)
    first_store.release_lease(lost)
    heard.until(LeaseChanged(ns.id, KERNEL))
    with pytest.raises(Exception, match="no longer holds"):
        first_store.publish_kernel(ns, kernel(1), lost)
    first_store.raise_epoch(ns)
    assert heard.until(NamespaceChanged(ns.id)) == []


def test_the_end_of_a_claim_is_told_to_who_waits_for_it(first_store, second_store, ns, heard):
    claim = first_store.claim(KERNEL)
    assert second_store.claim(KERNEL) is None
    claim.release()
    assert heard.until(ClaimEnded(KERNEL)) == []
    assert second_store.claim(KERNEL) is not None


def test_a_listener_that_was_cut_off_says_so_and_hears_again(postgres_url, first_store, ns, heard):
    with psycopg.connect(postgres_url, autocommit=True) as administrator:
        query = (
            b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            b"WHERE application_name = 'kcache-listener' AND datname = current_database()"
        )
        assert administrator.execute(query).fetchall() == [(True,)]
    assert heard.until(Missed()) == []
    first_store.raise_epoch(ns)
    heard.until(NamespaceChanged(ns.id))


def test_a_closed_store_tells_nothing_more(postgres_url, first_store, ns):
    heard = Heard()
    with open_store(postgres_url) as other:
        other.watch(heard)
        assert heard.next() == Missed()
    first_store.raise_epoch(ns)
    with pytest.raises(queue.Empty):
        heard._changes.get_nowait()


@pytest.mark.parametrize("opened", ["memory:", "sqlite://"])
def test_other_stores_tell_nothing(opened):
    with open_store(opened) as store:
        assert store.watch(Heard()) is None


@pytest.mark.parametrize(
    "payload", ["", "lease", "lease:1:zz", "claim:zz", "claim", "kernel:x:1", "kernel:1", "later:1:2:3"]
)
def test_what_another_version_tells_is_not_understood_and_does_no_harm(payload):
    assert parse_change(payload) is None
