"""Objects go after their rows, after a grace, after a second look; never before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kcache_grpc.storage import Store
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.errors import InvalidValue, LeaseLost, StoreUnavailable
from kcache_grpc.storage.objects import ObjectStore
from kcache_grpc.storage.objects.placing import PUBLISH_WITHIN
from kcache_grpc.storage.records import Lease, Swept
from kcache_grpc.storage.sql.blobs import object_store as sql_objects
from kcache_grpc.storage.sql.blobs.object_store import LEAST_GRACE
from kcache_grpc.storage.sql.store import SqlStore
from tests.storage.conftest import OBJECT_STORES
from tests.storage.drafts import blob, kernel, sha256, spec

pytestmark = pytest.mark.parametrize("store", OBJECT_STORES, indirect=True)

HOUR = 3600
GRACE = 24 * HOUR
BIG = bytes(range(256)) * 6000
KERNEL = kernel(1).kernel.kernel_digest


@pytest.fixture
def ns(store):
    namespace = store.get_or_create_namespace("default")
    store.put_spec(namespace, spec(0))
    return namespace


def objects_of(store: Store) -> ObjectStore:
    assert isinstance(store, SqlStore)
    assert store._objects is not None
    return store._objects


def names(store: Store) -> set[str]:
    return {each.name for page in objects_of(store).pages() for each in page}


def sweep(store: Store, hours: float, grace: float = GRACE, dry_run: bool = False) -> Swept:
    """As if so many hours had passed for the object store."""
    now = objects_of(store).now() + int(hours * HOUR * 1_000_000)
    return store.sweep_objects(grace, now=now, dry_run=dry_run)


def forget(store: Store, ns, kernels: int = 1) -> None:
    """Collect all kernels, of which there are so many, and blobs that nothing refers to."""
    assert store.collect(ns, Step(RowKind.IDLE_KERNELS, before=2**62)).rows == kernels
    store.collect(ns, Step(RowKind.BLOBS, before=2**62))


def test_what_rows_name_stays_for_ever(store, ns):
    store.publish_kernel(ns, kernel(1, so=BIG))
    assert sweep(store, 1e6) == Swept()
    assert store.read_artifact(ns, sha256(BIG)) == BIG


def test_rows_go_first_and_objects_after_the_grace(store, ns, time):
    store.publish_kernel(ns, kernel(1, so=BIG))
    there = names(store)
    forget(store, ns)
    assert store.read_artifact(ns, sha256(BIG)) is None
    assert sweep(store, 0) == Swept()
    time.advance(GRACE + 1)
    # The row is dead for long enough, but the object is young: the clock of the rows may have jumped.
    assert sweep(store, 1) == Swept(waiting=2)
    assert names(store) == there
    gone = Swept(2, len(BIG) + len(b"shared IR"))
    assert sweep(store, 25, dry_run=True) == gone
    assert names(store) == there
    assert sweep(store, 25) == gone
    assert names(store) == set()
    assert sweep(store, 25) == Swept()


def test_the_row_too_must_be_dead_for_the_grace(store, ns, time):
    """An old object, collected just now: a reader may be in the middle of it."""
    store.publish_kernel(ns, kernel(1, so=BIG))
    time.advance(GRACE)
    forget(store, ns)
    there = names(store)
    assert sweep(store, 1000) == Swept()
    assert names(store) == there
    time.advance(GRACE + 1)
    assert sweep(store, 1000).objects == 2


def test_bytes_that_come_back_before_the_sweep_have_an_object_of_their_own(store, ns, time):
    store.publish_kernel(ns, kernel(1, so=BIG))
    old = names(store)
    forget(store, ns)
    store.publish_kernel(ns, kernel(1, so=BIG))
    new = names(store) - old
    time.advance(GRACE + 1)
    assert sweep(store, 1000).objects == 2
    assert names(store) == new
    assert store.read_artifact(ns, sha256(BIG)) == BIG


def test_what_a_failed_publish_left_behind_is_found(store, ns):
    forged = Lease(ns, KERNEL, "nobody", 7)
    with pytest.raises(LeaseLost):
        store.publish_kernel(ns, kernel(1, so=BIG), forged)
    assert len(names(store)) == 2
    assert sweep(store, 23) == Swept()
    assert sweep(store, 25, dry_run=True) == sweep(store, 25) == Swept(2, len(BIG) + len(b"shared IR"))
    assert names(store) == set()


def test_objects_of_others_are_left_alone(store, ns):
    for name in ("objects/ab/readme.txt", "objects/stray"):
        objects_of(store).put(name, b"not ours")
    assert sweep(store, 1000) == Swept()
    assert names(store) == {"objects/ab/readme.txt", "objects/stray"}


def test_a_quarantined_generation_keeps_its_object_until_the_blob_is_collected(store, ns, time):
    store.publish_kernel(ns, kernel(1, so=BIG))
    store.quarantine_artifact(ns, sha256(BIG), "for a test")
    store.publish_kernel(ns, kernel(1, so=BIG))
    assert len(names(store)) == 3
    assert sweep(store, 1000) == Swept()
    forget(store, ns)
    time.advance(GRACE + 1)
    assert sweep(store, 1000).objects == 3


def test_the_object_of_a_quarantined_generation_goes_alone(store, ns, time):
    for _ in range(2):
        store.publish_kernel(ns, kernel(1, so=BIG))
        store.quarantine_artifact(ns, sha256(BIG), "for a test")
    store.publish_kernel(ns, kernel(1, so=BIG))
    assert len(names(store)) == 4
    assert store.collect(ns, Step(RowKind.QUARANTINED, before=time.wall + 1)).rows == 1
    time.advance(GRACE + 1)
    assert sweep(store, 1000).objects == 2
    assert store.read_artifact(ns, sha256(BIG)) == BIG


def test_a_grace_that_publishers_might_outlast_is_rejected(store, ns):
    assert LEAST_GRACE > PUBLISH_WITHIN
    with pytest.raises(InvalidValue, match="at least"):
        store.sweep_objects(LEAST_GRACE / 1e6 - 1)


def test_another_object_store_in_its_place_is_not_swept(store, ns, time):
    store.publish_kernel(ns, kernel(1, so=BIG))
    forget(store, ns)
    time.advance(GRACE + 1)
    objects = objects_of(store)
    objects.delete("kcache-store.json")
    with pytest.raises(StoreUnavailable):
        sweep(store, 1000)
    assert len(names(store)) == 2


def test_many_dead_objects_go_in_steps(store, ns, time, monkeypatch):
    monkeypatch.setattr(sql_objects, "_PAGE", 3)
    store.put_constants(ns, [blob(b"constant %d" % number) for number in range(30)])
    publishers = range(2, 9)
    for number in publishers:
        store.publish_kernel(ns, kernel(number, so=b"object %d" % number))
    forget(store, ns, len(publishers))
    time.advance(GRACE + 1)
    assert sweep(store, 1000).objects == len(publishers) + 1
    assert len(names(store)) == 30


@pytest.fixture
def sweeper(store) -> Iterator[threading.Event]:
    """Sweeps all the time, an hour before the grace ends."""
    stop, failed = threading.Event(), list[Exception]()

    def run() -> None:
        while not stop.is_set():
            try:
                sweep(store, 23)
            except Exception as error:  # noqa: PERF203
                failed.append(error)
                return

    thread = threading.Thread(target=run)
    thread.start()
    yield stop
    stop.set()
    thread.join(120)
    assert failed == []


def test_publishers_and_sweeps_do_not_meet(store, ns, sweeper):
    for number in range(6):
        store.publish_kernel(ns, kernel(number, so=BIG + bytes([number])))
        assert store.read_artifact(ns, sha256(BIG + bytes([number]))) == BIG + bytes([number])
        forget(store, ns)
