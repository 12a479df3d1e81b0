"""Breaker, table in memory, files: the small pieces alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kcache_grpc.client.cache.memory import Lru, SingleFlight
from kcache_grpc.client.transport.circuit_breaker import FIRST_COOLDOWN, LONGEST_COOLDOWN, CircuitBreaker
from kcache_grpc.errors import Unavailable
from kcache_grpc.local_files import file_name, own_directory, write_whole


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_breaker_opens_after_the_grace_period_and_probes_one_at_a_time() -> None:
    clock = Clock()
    breaker = CircuitBreaker(2.0, 8.0, clock)
    breaker.failed()
    clock.now += 1.9
    breaker.failed()
    assert not breaker.open
    clock.now += 0.2
    breaker.failed()
    assert breaker.open
    with pytest.raises(Unavailable, match="asked again"):
        breaker.admit()
    clock.now += FIRST_COOLDOWN * 1.3
    breaker.admit()
    with pytest.raises(Unavailable):
        breaker.admit()
    breaker.succeeded()
    breaker.admit()
    breaker.admit()


def test_breaker_waits_longer_for_a_server_that_answered_before() -> None:
    clock = Clock()
    breaker = CircuitBreaker(2.0, 8.0, clock)
    breaker.succeeded()
    breaker.failed()
    clock.now += 7
    breaker.failed()
    assert not breaker.open
    clock.now += 2
    breaker.failed()
    assert breaker.open


def test_breaker_probes_ever_more_seldom_but_always_again() -> None:
    clock = Clock()
    breaker = CircuitBreaker(0.0, 0.0, clock)
    breaker.failed()
    for _ in range(10):
        clock.now += LONGEST_COOLDOWN * 1.3
        breaker.admit()
        breaker.failed()
        with pytest.raises(Unavailable):
            breaker.admit()
    clock.now += LONGEST_COOLDOWN * 1.3
    breaker.admit()
    breaker.abandoned()
    breaker.admit()
    breaker.succeeded()
    assert not breaker.open


def test_lru_forgets_what_was_used_longest_ago() -> None:
    table: Lru[str, int] = Lru(2)
    table.put("a", 1)
    table.put("b", 2)
    assert table.get("a") == 1
    table.put("c", 3)
    assert (table.get("a"), table.get("b"), table.get("c")) == (1, None, 3)


def test_lru_is_bounded_in_weight() -> None:
    table: Lru[str, int] = Lru(100, 10)
    table.put("a", 1, 6)
    table.put("a", 1, 6)
    table.put("b", 2, 4)
    assert (table.get("a"), table.get("b")) == (1, 2)
    table.put("c", 3, 1)
    assert table.get("a") is None
    table.put("huge", 4, 11)
    assert (table.get("huge"), table.get("c")) == (None, 3)
    table.clear()
    assert len(table) == 0


def test_one_flight_a_key() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    flight, leads = flights.enter("a")
    again, follows = flights.enter("a")
    assert (leads, follows, again is flight) == (True, False, True)
    waiter = threading.Thread(target=lambda: results.append(again.future.result(240)))
    results: list[int] = []
    waiter.start()
    flights.finish("a", 7)
    waiter.join()
    assert results == [7]
    assert flights.enter("a")[1]


def test_file_is_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert write_whole(path, b"one")
    assert write_whole(path, b"two")
    assert not write_whole(path, b"three", replace=False)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_own_directory(tmp_path: Path) -> None:
    assert own_directory(tmp_path / "made" / "here") == ""
    assert (tmp_path / "made" / "here").stat().st_mode & 0o777 == 0o700
    (tmp_path / "made").chmod(0o755)
    assert "chmod 700" in own_directory(tmp_path / "made")
    (tmp_path / "file").write_text("")
    assert own_directory(tmp_path / "file")


def test_names_of_addresses_are_safe_names_of_files() -> None:
    assert "/" not in file_name("unix:/run/kcache.sock")
    assert file_name("host:1") == "host%3A1"
    assert len(file_name("unix:/" + "x" * 500)) == 64
