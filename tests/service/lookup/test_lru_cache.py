"""What is kept in memory, and what is forgotten."""

from __future__ import annotations

from kcache_grpc.service.lru_cache import ByteLru


def test_memory_forgets_the_longest_unused_when_full() -> None:
    lru: ByteLru[str, str] = ByteLru(capacity=3 * 612)
    for key in "abc":
        lru.put(key, key, 100)
    assert lru.get("a") == "a"
    lru.put("d", "d", 100)
    assert [lru.get(key) for key in "abcd"] == ["a", None, "c", "d"]
    assert lru.size == 3 * 612


def test_memory_counts_bytes_not_entries_and_keeps_nothing_too_large() -> None:
    lru: ByteLru[str, str] = ByteLru(capacity=2000)
    lru.put("small", "s", 100)
    lru.put("large", "l", 3000)
    assert lru.get("large") is None
    assert lru.get("small") == "s"
    lru.put("small", "again", 200)
    assert (lru.get("small"), len(lru), lru.size) == ("again", 1, 712)
    lru.put("fills", "f", 1400)
    assert lru.get("small") is None


def test_memory_forgets_what_is_too_old() -> None:
    now = [0.0]
    lru: ByteLru[str, str] = ByteLru(capacity=10_000, max_age=30, clock=lambda: now[0])
    lru.put("a", "a", 1)
    now[0] = 30.0
    assert lru.get("a") == "a"
    now[0] = 30.1
    assert lru.get("a") is None
    assert lru.size == 0
