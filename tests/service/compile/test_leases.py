"""Leases are kept alive, and let go when they are lost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcache_grpc.service.compile.lease_renewal import LeaseRenewal
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import Lease
from tests.storage.drafts import Time


def name(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def eventually(condition: Callable[[], bool]) -> None:
    """Polls; a test that waits for ever is ended by its time limit."""
    while not condition():
        pass


def test_a_held_lease_does_not_expire_and_its_stages_are_seen(tmp_path: Path) -> None:
    """Leases expire by a clock that is turned by hand: the keeper's own time is as real as it gets."""
    ttl, time = 0.3, Time()
    with open_store(f"sqlite:///{tmp_path}/store.sqlite", migrate=True, clock=time.clock) as store:
        namespace = store.get_or_create_namespace("default")
        renewal = LeaseRenewal(store, ttl)
        lease = store.acquire_lease(namespace, name("k"), "me", ttl)
        assert isinstance(lease, Lease)
        renewal.add(lease)
        renewal.report(lease, "lower")
        renewal.report(lease, "link")

        def state() -> Any:
            return store.find_leases(namespace, [name("k")])[name("k")]

        eventually(lambda: state().stages == ("lower", "link"))
        first = state().acquired_at
        for _ in range(3):  # longer than the time to live
            time.advance(0.2)
            assert state().held
            eventually(lambda: state().expires_in > 200_000)
        assert not isinstance(store.acquire_lease(namespace, name("k"), "other", 1.0), Lease)
        renewal.remove(lease)
        renewal.close()
        time.advance(ttl)
        assert not state().held
        assert isinstance(store.acquire_lease(namespace, name("k"), "other", 1.0), Lease)
        assert state().acquired_at > first


def test_a_lost_lease_is_let_go_and_the_others_are_kept(store: Store) -> None:
    namespace = store.get_or_create_namespace("default")
    renewal = LeaseRenewal(store, ttl=0.1)
    lost, kept = (store.acquire_lease(namespace, name(k), "me", 0.1) for k in "ab")
    assert isinstance(lost, Lease)
    assert isinstance(kept, Lease)
    store.release_lease(lost)
    taken = store.acquire_lease(namespace, name("a"), "other", 100.0)
    assert isinstance(taken, Lease)
    renewal.add(lost)
    renewal.add(kept)
    renewal.report(lost, "late")
    renewal.report(kept, "lower")
    eventually(lambda: store.find_leases(namespace, [name("b")])[name("b")].stages == ("lower",))
    state = store.find_leases(namespace, [name("a")])[name("a")]
    assert (state.holder, state.stages) == ("other", ())
    renewal.close()
