"""What a store tells reaches the event loop: waiters wake, memories drop what is stale."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

from kcache_grpc.service.change_notifications import ChangeNotifications
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.storage import Clock, Store
from kcache_grpc.storage.contract.change_notifications import (
    Change,
    ChangeListener,
    KernelPublished,
    LeaseChanged,
    Missed,
    NamespaceChanged,
)
from kcache_grpc.storage.memory import MemoryStore

DIGEST = b"k" * 32


class NotifyingStore(MemoryStore):
    """A store that notifies of what a test says, and counts how often it is asked for a namespace."""

    notify: ChangeListener
    asked: Counter[str]

    def watch(self, listener: ChangeListener) -> NotifyingStore:
        self.notify = listener
        return self

    def find_namespace(self, name: str) -> Any:
        self.asked[name] += 1
        return super().find_namespace(name)


def notifying_store() -> NotifyingStore:
    store = NotifyingStore(Clock.system())
    store.asked = Counter()
    return store


def notify_from_elsewhere(store: NotifyingStore, *changes: Change) -> None:
    thread = threading.Thread(target=lambda: [store.notify(change) for change in changes])
    thread.start()
    thread.join()


def test_only_who_waits_for_the_kernel_is_woken_and_everybody_when_something_was_missed() -> None:
    async def body() -> None:
        store = notifying_store()
        notifications = ChangeNotifications(store)
        notifications.start()
        assert notifications.available
        with notifications.subscribe(1, DIGEST, 7) as ours, notifications.subscribe(2, DIGEST, 7) as others:
            notify_from_elsewhere(store, LeaseChanged(1, DIGEST))
            await asyncio.wait_for(ours.wait(), 30)
            assert not others.is_set()
            ours.clear()
            notify_from_elsewhere(store, Missed())
            await asyncio.wait_for(asyncio.gather(ours.wait(), others.wait()), 30)
            assert not ours.published
        notify_from_elsewhere(store, LeaseChanged(1, DIGEST), KernelPublished(1, 7))

    asyncio.run(body())


def test_who_waits_for_a_kernel_of_a_key_hears_that_one_was_published() -> None:
    async def body() -> None:
        store = notifying_store()
        notifications = ChangeNotifications(store)
        notifications.start()
        with notifications.subscribe(1, DIGEST, 7) as ours, notifications.subscribe(1, DIGEST, 8) as others:
            notify_from_elsewhere(store, KernelPublished(2, 7), KernelPublished(1, 7))
            await asyncio.wait_for(ours.wait(), 30)
            assert ours.published
            assert not others.is_set()

    asyncio.run(body())


def test_hooks_are_told_of_kernels_and_namespaces() -> None:
    async def body() -> list[Any]:
        store, last = notifying_store(), asyncio.Event()
        told: list[Any] = []
        notifications = ChangeNotifications(store)
        notifications.on_published(lambda namespace, key: told.append((namespace, key)))
        notifications.on_changed(told.append)
        notifications.on_changed(lambda namespace: last.set() if namespace is None else None)
        notifications.start()
        notify_from_elsewhere(store, KernelPublished(3, 7), NamespaceChanged(3), Missed())
        await asyncio.wait_for(last.wait(), 30)
        return told

    assert asyncio.run(body()) == [(3, 7), 3, None]


def test_a_store_that_tells_nothing_is_not_heard(store: Store) -> None:
    async def body() -> bool:
        notifications = ChangeNotifications(store)
        notifications.start()
        notifications.close()
        return notifications.available

    assert not asyncio.run(body())


def test_what_comes_after_the_end_of_the_loop_does_no_harm() -> None:
    store = notifying_store()

    async def body() -> None:
        ChangeNotifications(store).start()

    asyncio.run(body())
    notify_from_elsewhere(store, Missed())


def test_many_who_ask_for_a_namespace_at_once_look_once_and_again_after_it_changed() -> None:
    async def body() -> Counter[str]:
        store, threads = notifying_store(), StoreThreads(4)
        store.get_or_create_namespace("default")
        namespaces = Namespaces(store, threads, max_age=3600.0)
        records = await asyncio.gather(*(namespaces.get("default") for _ in range(50)))
        assert len(set(records)) == 1
        assert store.asked == {"default": 1}
        namespaces.forget(records[0].id + 1)
        await namespaces.get("default")
        assert store.asked == {"default": 1}
        namespaces.forget(records[0].id)
        await namespaces.get("default")
        namespaces.forget(None)
        await namespaces.get("default")
        threads.close()
        return store.asked

    assert asyncio.run(body()) == {"default": 3}
