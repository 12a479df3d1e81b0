"""What an event loop asks Postgres itself: the same answers, and the ordinary way when there are none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from kcache_grpc.storage import Store
from kcache_grpc.storage.errors import InvalidValue, StoreUnavailable
from kcache_grpc.storage.records import LoadedGraph, Namespace, Wanted
from kcache_grpc.storage.sql.postgres.async_reads import MOST, Asker
from tests.postgres import PostgresServer
from tests.storage.conftest import Opener
from tests.storage.drafts import Time, graph, kernel, program

_SECONDS = 240


@pytest.fixture
def store(openers: dict[str, Opener], tmp_path: Path) -> Iterator[Store]:
    with openers["postgres"](tmp_path, Time()) as opened:
        yield opened


def _wanted(number: int) -> Wanted:
    record = kernel(number).kernel
    return Wanted(record.target, record.options, record.toolchain, frozenset({"so"}), 1 << 20)


def _filled(store: Store, count: int) -> Namespace:
    ns = store.get_or_create_namespace("default")
    for number in range(1, count + 1):
        key = store.put_graph(ns, graph(number)).spec.key
        store.publish_kernel(ns, kernel(number, key))
    return ns


async def _asked(ask: Callable[[], Awaitable[LoadedGraph | None] | None]) -> LoadedGraph | None:
    """The answer, as soon as there are connections."""
    until = time.monotonic() + _SECONDS
    while (asking := ask()) is None:
        assert time.monotonic() < until
        await asyncio.sleep(0.001)
    return await asking


def test_the_loop_gets_what_a_thread_gets(store: Store):
    count = 5 * MOST
    ns = _filled(store, count)
    expected = [store.load_graph(ns, program(n), "default", _wanted(n)) for n in range(1, count + 3)]
    assert all(answer is not None and answer.only is not None for answer in expected[:count])
    assert expected[count:] == [None, None]

    async def run() -> None:
        assert await _asked(lambda: store.ask_graph(ns, program(1), "default", _wanted(1))) == expected[0]
        for _ in range(2):
            asking = [
                _asked(lambda n=n: store.ask_graph(ns, program(n), "default", _wanted(n)))
                for n in range(1, count + 3)
            ]
            assert await asyncio.gather(*asking) == expected
        with pytest.raises(InvalidValue):
            store.ask_graph(ns, b"short", "default", _wanted(1))

    asyncio.run(run())


def test_who_gives_up_leaves_the_connection_in_order(store: Store):
    ns = _filled(store, 2)
    expected = [store.load_graph(ns, program(n), "default", _wanted(n)) for n in (1, 2)]

    async def run() -> None:
        def ask(n: int) -> Awaitable[LoadedGraph | None] | None:
            return store.ask_graph(ns, program(n), "default", _wanted(n))

        await _asked(lambda: ask(1))
        for _ in range(3 * MOST):
            given_up = asyncio.ensure_future(_asked(lambda: ask(1)))
            await asyncio.sleep(0)
            given_up.cancel()
            assert await _asked(lambda: ask(2)) == expected[1]
            with pytest.raises(asyncio.CancelledError):
                await given_up

    asyncio.run(run())


def test_connections_that_are_lost_are_made_again(store: Store):
    ns = _filled(store, 1)
    expected = store.load_graph(ns, program(1), "default", _wanted(1))

    async def run() -> None:
        def ask() -> Awaitable[LoadedGraph | None] | None:
            return store.ask_graph(ns, program(1), "default", _wanted(1))

        assert await _asked(ask) == expected
        with psycopg.connect(store.url, autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                " WHERE application_name = 'kcache-asker' AND datname = current_database()"
            ).fetchall()
        assert ended
        try:
            assert await _asked(ask) == expected
        except StoreUnavailable:
            assert await _asked(ask) == expected

    asyncio.run(run())


def test_another_loop_takes_the_ordinary_way(store: Store):
    ns = _filled(store, 1)

    async def run() -> Awaitable[LoadedGraph | None] | None:
        return store.ask_graph(ns, program(1), "default", _wanted(1))

    asyncio.run(run())
    assert asyncio.run(run()) is None


def test_errors_of_the_statement_are_no_answer(postgres_server: PostgresServer):
    url = postgres_server.create()

    async def run() -> None:
        asker = Asker(lambda: psycopg.connect(url, autocommit=True), "SELECT 1 / $1::bigint AS it", ["n"], {})

        async def ask(n: int) -> list[list[object]]:
            until = time.monotonic() + _SECONDS
            while (asking := asker.ask({"n": n})) is None:
                assert time.monotonic() < until
                await asyncio.sleep(0.001)
            return await asking

        assert await ask(1) == [[1]]
        with pytest.raises(StoreUnavailable):
            await ask(0)
        assert await ask(1) == [[1]]
        asker.close()
        assert asker.ask({"n": 1}) is None

    asyncio.run(run())
