"""``TieredCache``: the contract over memory and disk, back-fill, and tiers that fail."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc.caches import Cache, CacheError, InMemoryCache, OnDiskCache, TieredCache
from kcache_grpc.errors import ArgumentError, KcacheError, PermissionDenied, ResourceExhausted, Unavailable
from tests.caches.harness import racing
from tests.caches.harness.contract import AsyncCacheContract, Subject
from tests.caches.harness.racing import memory_and_disk, memory_disk_and_server
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=20, point=1)

#: Keys of the race of 256 threads.
LONG_RACE_KEYS = 100


class TestTieredCache(AsyncCacheContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        reopen = functools.partial(memory_and_disk, tmp_path / "cache")
        return Subject(reopen(), reopen)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server")) as running:
        yield running


def race_over_three_tiers(
    server: ServerProcess, folder: Path, namespace: str, processes: int, threads: int, rounds: int
) -> None:
    """Processes of two machines, with a disk tier each, on one server: one winner of each key over all.

    Each thread has compared all tiers when it read. In the end a process that comes new finds the winner in
    each of them.
    """
    machines = [
        functools.partial(memory_disk_and_server, folder / name, server.address, namespace)
        for name in ("first", "second")
    ]
    seen = racing.processes(machines, processes, threads, rounds)
    assert len(seen) == processes * threads
    racing.check(seen, rounds)
    for reopen in machines:
        cache: Any = reopen()
        for turn in range(rounds):
            winner = next(thread[turn][1] for thread in seen if thread[turn][0])
            assert cache.insert(("race", turn), "late") is False
            assert cache.get(("race", turn))[:2] == winner
            assert [tier.get(("race", turn))[:2] for tier in cache.tiers] == [winner] * 3


def test_processes_of_two_machines_agree_over_memory_disk_and_server(
    server: ServerProcess, tmp_path: Path
) -> None:
    race_over_three_tiers(server, tmp_path, "race", 2, 4, 10)


@pytest.mark.long
def test_8_processes_with_32_threads_each_agree_over_memory_disk_and_server(
    server: ServerProcess, tmp_path: Path
) -> None:
    race_over_three_tiers(server, tmp_path, "long-race", 8, 32, LONG_RACE_KEYS)


class Unreachable(InMemoryCache[Any, Any]):
    """A tier whose server is down."""

    def get(self, key: Any) -> Any:
        raise Unavailable("the server is down")

    def insert(self, key: Any, value: Any) -> bool:
        raise Unavailable("the server is down")


class Damaged(InMemoryCache[Any, Any]):
    """A tier that finds its entry damaged, and sets it aside."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged = True

    def get(self, key: Any) -> Any:
        if self.damaged:
            self.damaged = False
            raise CacheError(f"the entry of key {key!r} is damaged")
        return super().get(key)


@pytest.fixture
def tiers() -> list[InMemoryCache[Any, Any]]:
    return [InMemoryCache(), InMemoryCache(), InMemoryCache()]


def values(tiers: list[InMemoryCache[Any, Any]], key: Any = "key") -> list[Any]:
    return [tier.get(key) for tier in tiers]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_hit_fills_the_tiers_before_it(tiers: list[InMemoryCache[Any, Any]], position: int) -> None:
    tiers[position].insert("key", "value")
    cache: TieredCache[Any, Any] = TieredCache(*tiers)
    assert cache.get("key") == "value"
    assert values(tiers) == ["value"] * (position + 1) + [None] * (2 - position)
    assert cache.get("missing") is None


def test_an_insert_fills_all_tiers(tiers: list[InMemoryCache[Any, Any]]) -> None:
    assert TieredCache(*tiers).insert("key", [1]) is True
    assert values(tiers) == [[1], [1], [1]]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_key_of_any_tier_exists_and_its_value_stays(
    tiers: list[InMemoryCache[Any, Any]], position: int
) -> None:
    tiers[position].insert("key", "first")
    cache: TieredCache[Any, Any] = TieredCache(*tiers)
    assert cache.insert("key", "second") is False
    assert cache.get("key") == "first"
    assert "second" not in values(tiers)


def test_the_last_tier_decides_between_caches_that_share_it(tiers: list[InMemoryCache[Any, Any]]) -> None:
    first: TieredCache[Any, Any] = TieredCache(tiers[0], tiers[2])
    second: TieredCache[Any, Any] = TieredCache(tiers[1], tiers[2])
    assert first.insert("key", "first") is True
    assert second.insert("key", "second") is False
    assert values(tiers) == ["first"] * 3


def test_caches_that_share_a_tier_agree_on_one_winner(tmp_path: Path) -> None:
    caches = [memory_and_disk(tmp_path / "cache") for _ in range(16)]
    barrier = threading.Barrier(len(caches))
    results: list[Any] = [None] * len(caches)

    def run(number: int) -> None:
        barrier.wait(60)
        results[number] = (caches[number].insert("key", number), caches[number].get("key"))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(caches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [value for won, value in results if won]
    assert {value for _, value in results} == {winner}


def test_a_damaged_entry_is_replaced_from_the_next_tier(tiers: list[InMemoryCache[Any, Any]]) -> None:
    damaged = Damaged()
    tiers[0].insert("key", "value")
    assert TieredCache(damaged, tiers[0]).get("key") == "value"
    assert damaged.get("key") == "value"


def test_a_damaged_entry_that_no_other_tier_has_is_an_error(tiers: list[InMemoryCache[Any, Any]]) -> None:
    with pytest.raises(CacheError, match="the entry of key 'key' is damaged"):
        TieredCache(Damaged(), tiers[0]).get("key")


def test_a_damaged_entry_on_disk_is_replaced_from_a_server_or_inserted_again(tmp_path: Path) -> None:
    disk: OnDiskCache[Any, Any] = OnDiskCache(base_dir=tmp_path)
    shared: InMemoryCache[Any, Any] = InMemoryCache()
    cache: TieredCache[Any, Any] = TieredCache(InMemoryCache(), disk, shared)
    cache.insert("key", "value")
    (path,) = (path for path in tmp_path.iterdir() if path.is_file())
    path.write_bytes(path.read_bytes()[:-1])
    assert TieredCache(InMemoryCache(), disk, shared).get("key") == "value"
    assert disk.get("key") == "value"


@pytest.mark.parametrize("position", [0, 1])
def test_an_unavailable_tier_is_an_error_only_where_no_other_tier_has_the_key(
    tiers: list[InMemoryCache[Any, Any]], position: int
) -> None:
    order: list[Cache[Any, Any]] = [tiers[0]]
    order.insert(position, Unreachable())
    cache: TieredCache[Any, Any] = TieredCache(*order)
    with pytest.raises(Unavailable):
        cache.get("key")
    tiers[0].insert("key", "value")
    assert cache.get("key") == "value"


def test_an_insert_fails_if_the_deciding_tier_is_unavailable(tiers: list[InMemoryCache[Any, Any]]) -> None:
    with pytest.raises(Unavailable):
        TieredCache(tiers[0], Unreachable()).insert("key", "value")
    assert tiers[0].get("key") is None
    assert TieredCache(Unreachable(), tiers[0]).insert("key", "value") is True


def test_unavailable_tiers_are_skipped_on_request(tiers: list[InMemoryCache[Any, Any]]) -> None:
    cache: TieredCache[Any, Any] = TieredCache(
        tiers[0], Unreachable(), tiers[1], Unreachable(), skip_unavailable=True
    )
    assert cache.get("key") is None
    assert cache.insert("key", "first") is True
    assert cache.insert("key", "second") is False
    assert values(tiers) == ["first", "first", None]
    with pytest.raises(Unavailable):
        TieredCache(Unreachable(), skip_unavailable=True).insert("key", "value")


class Failing(InMemoryCache[Any, Any]):
    """A tier that stores nothing."""

    def __init__(self, error: KcacheError) -> None:
        super().__init__()
        self.error = error

    def insert(self, key: Any, value: Any) -> bool:
        raise self.error


@pytest.mark.parametrize(
    "error", [CacheError("full"), Unavailable("away"), ResourceExhausted("quota"), PermissionDenied("no")]
)
def test_a_front_tier_that_cannot_store_does_not_fail_what_the_last_one_decided(
    tiers: list[InMemoryCache[Any, Any]], error: KcacheError
) -> None:
    cache: TieredCache[Any, Any] = TieredCache(tiers[0], Failing(error), tiers[1])
    assert cache.insert("key", "value") is True
    assert values(tiers) == ["value", "value", None]
    tiers[1].insert("other", "value")
    assert cache.get("other") == "value"


def test_the_first_tier_is_filled_last(tiers: list[InMemoryCache[Any, Any]]) -> None:
    """So that a reader who finds the entry there finds it in every tier."""

    class Witness(InMemoryCache[Any, Any]):
        def insert(self, key: Any, value: Any) -> bool:
            seen.append(values(tiers, key))
            return super().insert(key, value)

    seen: list[list[Any]] = []
    cache: TieredCache[Any, Any] = TieredCache(Witness(), *tiers)
    assert cache.insert("key", "value") is True
    tiers[2].insert("other", "value")
    assert cache.get("other") == "value"
    assert seen == [["value"] * 3] * 2


def test_all_tiers_get_one_value_whatever_the_caller_does_to_it(
    tiers: list[InMemoryCache[Any, Any]],
) -> None:
    class Changing(InMemoryCache[Any, Any]):
        def insert(self, key: Any, value: Any) -> bool:
            inserted = super().insert(key, value)
            passed.append("changed")
            return inserted

    passed: list[Any] = ["value"]
    assert TieredCache(tiers[0], Changing()).insert("key", passed) is True
    assert passed == ["value", "changed"]
    assert tiers[0].get("key") == ["value"]


def test_there_is_at_least_one_tier() -> None:
    with pytest.raises(ArgumentError, match="at least one tier"):
        TieredCache()


def test_wrong_keys_and_values_are_rejected_before_any_tier_is_asked() -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda cache: cache.get({1}),
        lambda cache: cache.insert({1}, 1),
        lambda cache: cache.insert(1, {1}),
    ]
    for call in calls:
        with pytest.raises(CacheError, match="type set"):
            call(TieredCache(Unreachable(), Unreachable()))
