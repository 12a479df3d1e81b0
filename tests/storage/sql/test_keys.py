"""Keys on SQLite and Postgres: unique, without gaps, whoever races, dies or rolls back."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc.storage import Store, migrate, open_store
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.sql.store import SqlStore
from tests import postgres
from tests.fresh import fresh_store
from tests.postgres import PostgresServer
from tests.storage.drafts import graph, spec
from tests.storage.racer import SPECS
from tests.storage.test_races import race, start

RACERS = 3


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, postgres_server: PostgresServer) -> Iterator[str]:
    """An empty store that several processes open."""
    if request.param == "sqlite":
        fresh_store(tmp_path / "store.sqlite")
        yield f"sqlite:///{tmp_path}/store.sqlite"
        return
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


@pytest.fixture
def opened(url: str) -> Iterator[Store]:
    with open_store(url) as store:
        store.get_or_create_namespace("default")
        yield store


@pytest.fixture
def ns(opened: Store) -> Namespace:
    return opened.get_or_create_namespace("default")


def assert_no_gap(store: Store) -> None:
    """Keys are 1, 2, 3, ... and the counter is at the last one."""
    ns = store.get_or_create_namespace("default")
    last = store.count_specs(ns)
    assert all(store.get_spec(ns, key) is not None for key in range(1, last + 1))
    assert store.get_spec(ns, last + 1) is None
    assert store.stats(ns).specs == last


@pytest.mark.long
@pytest.mark.parametrize("mode", ["specs", "together"])
def test_processes_that_put_the_same_specs_get_one_key_each(url, opened, mode):
    first, *others = (sorted(told) for told in race(mode, url))
    assert all(other == first for other in others)
    assert sorted(key for _, key in first) == list(range(1, SPECS + 1))
    assert_no_gap(opened)


def test_what_is_rolled_back_took_no_key(opened, ns):
    def fail(key: int) -> Any:
        raise RuntimeError(f"key {key} was taken")

    assert opened.put_spec(ns, spec(0)).key == 1
    for _ in range(3):
        with pytest.raises(RuntimeError, match="key 2 was taken"):
            opened.put_graph(ns, replace(graph(1), bind=fail))
    assert opened.put_graph(ns, graph(2)).spec.key == 2
    assert opened.put_spec(ns, spec(1)).key == 3
    assert_no_gap(opened)


def test_a_spec_that_is_known_takes_no_key(opened, ns):
    for number in (0, 1, 0, 1, 1):
        opened.put_spec(ns, spec(number))
        opened.put_graph(ns, graph(number))
    assert opened.put_spec(ns, spec(2)).key == 3


def test_namespaces_count_for_themselves(opened, ns):
    other = opened.get_or_create_namespace("other")
    assert [opened.put_spec(each, spec(7)).key for each in (ns, other, ns)] == [1, 1, 1]
    assert opened.put_spec(other, spec(8)).key == 2
    assert opened.put_spec(ns, spec(9)).key == 2


def test_keys_have_64_bits(opened, ns):
    assert isinstance(opened, SqlStore)
    last = 2**62
    advance = f"UPDATE key_counters SET last_key = {last}"
    opened._db.transact(lambda connection: connection.exec_driver_sql(advance).rowcount)
    stored = opened.put_graph(ns, graph(5))
    assert stored.spec.key == last + 1
    record = opened.get_spec(ns, last + 1)
    assert record is not None
    assert record.text == spec(5).text
    assert opened.put_spec(ns, spec(6)).key == last + 2


def race_in_steps(url: str, repetitions: int) -> None:
    """Three processes put one graph and publish one kernel at the same moment, again and again."""
    with ExitStack() as stack:
        racers = [stack.enter_context(start("steps", url, seed)) for seed in range(RACERS)]
        for racer in racers:
            _send(racer, "go")
        for number in range(1, repetitions + 1):
            for racer in racers:
                _send(racer, str(number))
            told = [_answer(racer) for racer in racers]
            keys_and_bytes = {json.dumps(seen) for seen, _ in told}
            assert len(keys_and_bytes) == 1, keys_and_bytes
            assert told[0][0][0] == number
            for won in zip(*(winners for _, winners in told), strict=True):
                assert sum(won) == 1, told
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.close()


def _send(racer: subprocess.Popen[str], line: str) -> None:
    assert racer.stdin is not None
    racer.stdin.write(f"{line}\n")
    racer.stdin.flush()


def _answer(racer: subprocess.Popen[str]) -> Any:
    assert racer.stdout is not None
    return json.loads(racer.stdout.readline())


def test_a_race_of_three_has_one_winner(url, opened):
    race_in_steps(url, 10)
    assert_no_gap(opened)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_races_of_three_have_one_winner_each(url, opened):
    race_in_steps(url, 1000)
    assert_no_gap(opened)


def acknowledged(racer: subprocess.Popen[str], least: int) -> dict[int, int]:
    """The keys that a writer was given, all of them once it is dead; at least so many."""
    assert racer.stdout is not None
    lines = [racer.stdout.readline() for _ in range(least)]
    return dict(map(json.loads, lines))


def rest(racer: subprocess.Popen[str]) -> dict[int, int]:
    """What a writer wrote until it died, but for half a line."""
    assert racer.stdout is not None
    lines = racer.stdout.read().splitlines(keepends=True)
    return dict(json.loads(line) for line in lines if line.endswith("\n"))


def assert_kept(store: Store, told: dict[int, int]) -> None:
    ns = store.get_or_create_namespace("default")
    for number, key in told.items():
        record = store.get_spec(ns, key)
        assert record is not None, f"key {key} was acknowledged and is lost"
        assert record.spec_digest == spec(number).spec_digest
    assert_no_gap(store)


@pytest.mark.parametrize("attempts", [1, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", [pytest.param("endless specs", marks=pytest.mark.long), "endless together"])
def test_killed_writers_leave_no_gap(url, opened, mode, attempts):
    chance = random.Random(3)
    for attempt in range(attempts):
        racers = [start(mode, url, 10 * attempt + seed) for seed in range(RACERS)]
        told: dict[int, int] = {}
        for racer in racers:
            _send(racer, "go")
        for racer in racers:
            told |= acknowledged(racer, chance.randrange(1, 20))
            racer.send_signal(signal.SIGKILL)
        for racer in racers:
            with racer:
                told |= rest(racer)
        assert_kept(opened, told)


@pytest.mark.long
@pytest.mark.parametrize("mode", [pytest.param("endless specs", marks=pytest.mark.long), "endless together"])
def test_a_killed_postgres_leaves_no_gap(mode):
    with postgres.running() as server:
        url = server.create()
        migrate(url)
        racers = [start(mode, url, seed) for seed in range(RACERS)]
        for racer in racers:
            _send(racer, "go")
        told: dict[int, int] = {}
        for racer in racers:
            told |= acknowledged(racer, 20)
        server.stop("immediate")
        for racer in racers:
            racer.send_signal(signal.SIGKILL)
            with racer:
                told |= rest(racer)
        server.start()
        with open_store(url) as store:
            assert_kept(store, told)
            ns = store.get_or_create_namespace("default")
            assert store.put_spec(ns, spec(10**6)).key == store.count_specs(ns)
