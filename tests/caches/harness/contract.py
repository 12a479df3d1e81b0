"""What every cache promises, as tests.

A test class of an implementation derives from one of the two contracts and has a fixture ``subject``.

Each behavior that PyTorch asserts of its caches (``test/inductor/test_cache.py``) is one of these tests, or
one of ``test_memory.py`` and ``test_disk.py`` for what only those caches have;
docs/internals/prior-designs.md has the list.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import pytest

from kcache_grpc.caches import AsyncCache, Cache, CacheError
from tests.caches.harness import racing

#: Rounds of a race in the usual suite, and in the long one.
ROUNDS, LONG_ROUNDS = 15, 1000


@dataclass(frozen=True)
class Subject:
    """A cache under test.

    ``reopen`` opens the same entries in another process: it can be pickled. A cache in memory has none.
    """

    cache: Any
    reopen: Callable[[], Any] | None = None


def keys_of_each_type(number: int = 0) -> list[Any]:
    return [
        f"s{number}",
        number + 10**6,
        b"b%d" % number,
        ("t", number),
        ("n", (number, b"x", None, True, 1.5)),
    ]


def values_of_each_type(number: int = 0) -> list[Any]:
    mapping = {"zero": f"s{number}", 1: number, 2: ("t", number), b"three": b"b", ("t",): None, "f": 0.5}
    return [f"s{number}", number + 10**6, ("t", number), b"b%d" % number, mapping, [number, "s", mapping]]


def entries(count: int) -> list[tuple[Any, Any]]:
    """Pairs of different keys and different values, of all types."""
    keys = [key for number in range(count) for key in keys_of_each_type(number)]
    values = [value for number in range(count) for value in values_of_each_type(number)]
    return list(zip(keys[:count], values[:count], strict=True))


class CacheContract:
    """The obligations of ``Cache``."""

    @pytest.mark.parametrize("value", values_of_each_type(), ids=lambda value: type(value).__name__)
    @pytest.mark.parametrize("key", keys_of_each_type(), ids=lambda key: type(key).__name__)
    def test_a_missing_key_is_none_and_an_inserted_one_has_its_value(
        self, subject: Subject, key: Any, value: Any
    ) -> None:
        cache: Cache[Any, Any] = subject.cache
        assert cache.get(key) is None
        assert cache.insert(key, value) is True
        assert cache.get(key) == value
        assert cache.get(keys_of_each_type(1)[0]) is None

    def test_an_existing_key_is_not_overwritten(self, subject: Subject) -> None:
        cache: Cache[Any, Any] = subject.cache
        for key, (first, second) in zip(
            keys_of_each_type(),
            zip(values_of_each_type(0), values_of_each_type(1), strict=True),
            strict=False,
        ):
            assert cache.insert(key, first) is True
            assert cache.insert(key, second) is False
            assert cache.insert(key, first) is False
            assert cache.get(key) == first

    def test_concurrent_gets_return_the_values_of_their_keys(
        self, subject: Subject, executor: Executor
    ) -> None:
        cache: Cache[Any, Any] = subject.cache
        pairs = entries(60)
        assert [cache.insert(key, value) for key, value in pairs] == [True] * len(pairs)
        keys, values = zip(*pairs, strict=True)
        assert list(executor.map(cache.get, keys)) == list(values)

    def test_of_concurrent_inserts_of_a_key_one_succeeds(self, subject: Subject, executor: Executor) -> None:
        cache: Cache[Any, Any] = subject.cache
        keys = [key for key, _ in entries(40)] * 2
        values = [value for _, value in entries(80)]
        inserted = list(executor.map(cache.insert, keys, values))
        winners = {repr(key): value for key, value, won in zip(keys, values, inserted, strict=True) if won}
        assert (len(winners), sum(inserted)) == (40, 40)
        assert {repr(key): cache.get(key) for key in keys} == winners

    @pytest.mark.parametrize("get_first", [False, True])
    def test_concurrent_gets_and_inserts_agree(
        self, subject: Subject, executor: Executor, get_first: bool
    ) -> None:
        """A ``get`` that runs with the inserts returns None or the value of the insert that succeeds."""
        cache: Cache[Any, Any] = subject.cache
        keys = [key for key, _ in entries(40)] * 2
        values = [value for _, value in entries(80)]
        gets, inserts = [], []
        for key, value in zip(keys, values, strict=True):
            if get_first:
                gets.append(executor.submit(cache.get, key))
            inserts.append(executor.submit(cache.insert, key, value))
            if not get_first:
                gets.append(executor.submit(cache.get, key))
        check_winners(
            cache, keys, values, [each.result() for each in gets], [each.result() for each in inserts]
        )

    def test_keys_of_different_types_are_different_keys(self, subject: Subject) -> None:
        cache: Cache[Any, Any] = subject.cache
        keys = [1, True, 1.0, "1", b"1", (1,), (True,), (1.0,), 0, False, 0.0, "", b"", ()]
        for number, key in enumerate(keys):
            assert cache.insert(key, number + 100) is True, key
        assert [cache.get(key) for key in keys] == [number + 100 for number in range(len(keys))]

    @pytest.mark.parametrize(
        "value", ["", 0, False, 0.0, b"", (), [], {}, True, 1, -1, 1.0, 1 << 200, "\udc80"]
    )
    def test_a_value_keeps_its_type_and_is_not_taken_for_a_miss(self, subject: Subject, value: Any) -> None:
        cache: Cache[Any, Any] = subject.cache
        assert cache.insert("key", value) is True
        assert cache.get("key") == value
        assert type(cache.get("key")) is type(value)
        assert cache.insert("key", "other") is False

    def test_changing_a_value_does_not_change_the_cache(self, subject: Subject) -> None:
        cache: Cache[Any, Any] = subject.cache
        value = {"list": [1, 2]}
        cache.insert("key", value)
        value["list"].append(3)
        assert cache.get("key") == {"list": [1, 2]}
        read = cache.get("key")
        assert read is not None
        read["list"].clear()
        assert cache.get("key") == {"list": [1, 2]}

    @pytest.mark.parametrize(
        "wrong",
        [None, {1}, object(), lambda: None, ["a", {1: {2}}]],
        ids=["none", "set", "object", "function", "nested"],
    )
    def test_unsupported_types_are_rejected_and_nothing_is_added(self, subject: Subject, wrong: Any) -> None:
        cache: Cache[Any, Any] = subject.cache
        with pytest.raises(CacheError):
            cache.get(wrong)
        with pytest.raises(CacheError):
            cache.insert(wrong, "value")
        with pytest.raises(CacheError):
            cache.insert("key", wrong)
        assert cache.get("key") is None
        assert cache.insert("key", "value") is True

    def test_a_large_value(self, subject: Subject) -> None:
        cache: Cache[Any, Any] = subject.cache
        value = bytes(range(256)) * 8000
        assert cache.insert("key", value) is True
        assert cache.get("key") == value

    def test_32_threads_insert_one_key(self, subject: Subject) -> None:
        racing.check(racing.threads(subject.cache, 32, ROUNDS), ROUNDS)

    @pytest.mark.long
    def test_32_threads_insert_one_key_1000_times(self, subject: Subject) -> None:
        racing.check(racing.threads(subject.cache, 32, LONG_ROUNDS), LONG_ROUNDS)


class AsyncCacheContract(CacheContract):
    """The obligations of ``AsyncCache``, and of entries that processes share."""

    def test_get_async_and_insert_async_return_futures(self, subject: Subject, executor: Executor) -> None:
        cache: AsyncCache[Any, Any] = subject.cache
        for key, value in entries(12):
            assert cache.get_async(key, executor).result() is None
            assert cache.insert_async(key, value, executor).result() is True
            assert cache.get_async(key, executor).result() == value

    def test_of_two_inserts_async_one_succeeds(self, subject: Subject, executor: Executor) -> None:
        cache: AsyncCache[Any, Any] = subject.cache
        for key, value in entries(12):
            first = cache.insert_async(key, value, executor)
            second = cache.insert_async(key, "second", executor)
            assert first.result() is not second.result()
            assert cache.get_async(key, executor).result() == (value if first.result() else "second")

    def test_concurrent_gets_async_return_the_values_of_their_keys(
        self, subject: Subject, executor: Executor
    ) -> None:
        cache: AsyncCache[Any, Any] = subject.cache
        pairs = entries(60)
        assert [cache.insert(key, value) for key, value in pairs] == [True] * len(pairs)
        futures = [cache.get_async(key, executor) for key, _ in pairs]
        assert [future.result() for future in futures] == [value for _, value in pairs]

    def test_of_concurrent_inserts_async_of_a_key_one_succeeds(
        self, subject: Subject, executor: Executor
    ) -> None:
        cache: AsyncCache[Any, Any] = subject.cache
        keys = [key for key, _ in entries(40)] * 2
        values = [value for _, value in entries(80)]
        futures = [cache.insert_async(key, value, executor) for key, value in zip(keys, values, strict=True)]
        check_winners(cache, keys, values, [None] * len(keys), [future.result() for future in futures])

    @pytest.mark.parametrize("get_first", [False, True])
    def test_concurrent_gets_async_and_inserts_async_agree(
        self, subject: Subject, executor: Executor, get_first: bool
    ) -> None:
        cache: AsyncCache[Any, Any] = subject.cache
        keys = [key for key, _ in entries(40)] * 2
        values = [value for _, value in entries(80)]
        gets, inserts = [], []
        for key, value in zip(keys, values, strict=True):
            if get_first:
                gets.append(cache.get_async(key, executor))
            inserts.append(cache.insert_async(key, value, executor))
            if not get_first:
                gets.append(cache.get_async(key, executor))
        check_winners(
            cache, keys, values, [each.result() for each in gets], [each.result() for each in inserts]
        )

    def test_a_future_raises_what_the_call_raises(self, subject: Subject, executor: Executor) -> None:
        cache: AsyncCache[Any, Any] = subject.cache
        with pytest.raises(CacheError):
            cache.get_async(object(), executor).result()
        with pytest.raises(CacheError):
            cache.insert_async("key", object(), executor).result()

    def test_processes_insert_one_key(self, subject: Subject) -> None:
        assert subject.reopen is not None
        racing.check(racing.processes(subject.reopen, 2, 4, ROUNDS), ROUNDS)

    @pytest.mark.long
    def test_8_processes_with_32_threads_insert_one_key_1000_times(self, subject: Subject) -> None:
        assert subject.reopen is not None
        racing.check(racing.processes(subject.reopen, 8, 4, LONG_ROUNDS), LONG_ROUNDS)


def check_winners(
    cache: Cache[Any, Any], keys: list[Any], values: list[Any], gets: list[Any], inserts: list[bool]
) -> None:
    """Each key was inserted once, and nobody read another value than that which was inserted."""
    winners = {repr(key): value for key, value, won in zip(keys, values, inserts, strict=True) if won}
    assert sum(inserts) == len(winners) == len({repr(key) for key in keys})
    for key, read in zip(keys, gets, strict=True):
        assert read is None or read == winners[repr(key)]
        assert cache.get(key) == winners[repr(key)]
