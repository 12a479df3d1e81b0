"""Collections beside publishers of the same bytes: nothing that anything refers to is ever gone."""

from __future__ import annotations

import contextlib
import random
import threading
import time as clock

import pytest

from kcache_grpc.service.lifecycle.garbage_collection import CollectionOptions, Collector
from kcache_grpc.storage import open_store
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.records import Namespace
from tests.postgres import PostgresServer
from tests.storage.drafts import graph, kernel
from tests.storage.inside import assert_sound, path_of

KERNELS = 6


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path, postgres_server: PostgresServer) -> str:
    if request.param == "postgres":
        return postgres_server.create_migrated()
    return f"sqlite:///{tmp_path}/store.sqlite"


@pytest.mark.parametrize("seconds", [0.7, pytest.param(10.0, marks=pytest.mark.long)])
def test_publishers_and_collectors_of_the_same_bytes(url, seconds):
    with open_store(url, migrate=True) as store:
        ns = store.get_or_create_namespace("default")
        store.put_graph(ns, graph(0, [b"weights"]))
        end = clock.monotonic() + seconds
        problems: list[BaseException] = []
        told: list[int] = []

        def publish(seed: int) -> None:
            draw = random.Random(seed)
            with open_store(url) as mine:
                # A slow machine may have published nothing when the collectors end: then it has now.
                while clock.monotonic() < end or not told:
                    number = draw.randrange(KERNELS)
                    # What a slow machine needs a moment too long for is collected before it is told of.
                    with contextlib.suppress(StoreUnavailable):
                        published = mine.publish_kernel(ns, kernel(number, so=b"bytes of all"))
                        assert {ref.kind for ref in published.stored.artifacts} == {"so", "llvm"}
                        told.append(number)
                    mine.put_graph(ns, graph(0, [b"weights"]))

        def collect(seed: int) -> None:
            draw = random.Random(seed)
            with open_store(url) as mine:
                while clock.monotonic() < end:
                    # A moment ago: what is used now is left alone, everything else goes.
                    before = clock.time_ns() // 1000 - 20_000
                    mine.collect(ns, Step(draw.choice(list(RowKind)), draw.randint(1, 5), before))

        def guarded(work, seed):
            try:
                work(seed)
            except BaseException as error:
                problems.append(error)

        workers = [publish, publish, collect, collect]
        threads = [threading.Thread(target=guarded, args=(work, n)) for n, work in enumerate(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert told
        for each in store.page_kernels(ns, 0, 100):
            assert store.find_kernel(ns, each.kernel.kernel_digest) is not None
            assert all(store.verify_artifact(ns, ref.digest) for ref in each.artifacts)
        used = {name: quota.used for name, quota in store.list_quotas(ns).items()}
        assert used == {}
        assert_nothing_is_left_over(store, ns)
        if url.startswith("sqlite"):
            assert_sound(path_of(store))


def assert_nothing_is_left_over(store, ns: Namespace) -> None:
    """All of it can be removed, and published again."""
    Collector(store, lambda: 2**62).run(ns, CollectionOptions(older_than=0.0, min_age=0.0))
    assert store.stats(ns).artifacts == 0
    assert store.publish_kernel(ns, kernel(0, so=b"bytes of all")).inserted


def test_what_is_removed_as_soon_as_it_is_published_is_asked_for_again(url, monkeypatch):
    with open_store(url, migrate=True) as store:
        ns = store.get_or_create_namespace("default")
        store.put_graph(ns, graph(0))
        draft = kernel(0)
        transact = store._transact_with

        def and_lose(*arguments):
            outcome = transact(*arguments)
            store.quarantine_artifact(ns, draft.artifacts[0].digest, "for a test")
            return outcome

        with monkeypatch.context() as patch:
            patch.setattr(store, "_transact_with", and_lose)
            with pytest.raises(StoreUnavailable, match="ask again"):
                store.publish_kernel(ns, draft)
        assert store.publish_kernel(ns, draft).repaired == 1


def test_quotas_stay_right_while_all_write(url):
    with open_store(url, migrate=True) as store:
        ns = store.get_or_create_namespace("default")
        store.put_graph(ns, graph(0))
        for resource in ("kernels", "mappings", "artifact_bytes"):
            store.set_quota(ns, resource, 10**9)

        def work(seed: int) -> None:
            with open_store(url) as mine:
                for number in range(15):
                    mine.publish_kernel(ns, kernel(1000 * seed + number))
                    mine.put_graph(ns, graph(1000 * seed + number, [str((seed, number)).encode()]))
                    if number % 5 == 4:
                        mine.collect(ns, Step(RowKind.IDLE_KERNELS, 3, 2**62))
                        mine.collect(ns, Step(RowKind.IDLE_MAPPINGS, 3, 2**62))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        before = {name: quota.used for name, quota in store.list_quotas(ns).items()}
        store.recount_quotas(ns)
        assert {name: quota.used for name, quota in store.list_quotas(ns).items()} == before
