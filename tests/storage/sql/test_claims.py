"""Claims: one process has each, until it gives it back or its session ends; on Postgres."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from kcache_grpc.storage import open_store
from kcache_grpc.storage.errors import InvalidValue, StoreUnavailable
from tests import postgres
from tests.storage.drafts import sha256

WORK, OTHER = sha256("work"), sha256("other")


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"


def cut_sessions_of_claims(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as administrator:
        query = (
            b"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
            b"WHERE application_name = 'kcache-claims' AND datname = current_database()"
        )
        return len(administrator.execute(query).fetchall())


def test_one_has_it_until_it_is_given_back(first_store, second_store):
    claim = first_store.claim(WORK)
    assert claim is not None
    assert (first_store.claim(WORK), second_store.claim(WORK)) == (None, None)
    assert second_store.claim(OTHER) is not None
    claim.release()
    claim.release()
    again = second_store.claim(WORK)
    assert again is not None
    claim.release()
    assert first_store.claim(WORK) is None, "a claim that was given back gives nothing back"


def test_it_ends_with_its_store(postgres_url, first_store):
    with open_store(postgres_url) as other:
        assert other.claim(WORK) is not None
        assert first_store.claim(WORK) is None
    until(lambda: first_store.claim(WORK))  # the database hears of it a moment later
    with pytest.raises(StoreUnavailable):
        other.claim(WORK)


def test_it_ends_with_its_session_and_the_next_one_goes_on(postgres_url, first_store, second_store):
    lost = first_store.claim(WORK)
    assert lost is not None
    assert cut_sessions_of_claims(postgres_url) == 1
    taken = second_store.claim(WORK)
    assert taken is not None
    with pytest.raises(StoreUnavailable):
        first_store.claim(OTHER)  # the first to notice
    assert first_store.claim(OTHER) is not None
    assert first_store.claim(WORK) is None
    lost.release()
    assert first_store.claim(WORK) is None, "what was lost is not given back in another's place"


def test_to_give_back_what_was_lost_says_so_once(postgres_url, first_store, second_store):
    lost = first_store.claim(WORK)
    assert lost is not None
    assert cut_sessions_of_claims(postgres_url) == 1
    with pytest.raises(StoreUnavailable):
        lost.release()
    lost.release()
    assert second_store.claim(WORK) is not None


def test_none_is_given_while_the_database_is_away():
    with postgres.running() as server, open_store(server.create(), migrate=True) as store:
        assert store.claim(WORK) is not None
        server.stop("immediate")
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.claim(OTHER)
        server.start()
        assert store.claim(WORK) is not None


def test_a_name_is_a_digest(first_store):
    with pytest.raises(InvalidValue):
        first_store.claim(b"short")


@pytest.mark.parametrize("opened", ["memory:", "sqlite://"])
def test_other_stores_give_it_to_everybody(opened):
    with open_store(opened) as store:
        first, second = store.claim(WORK), store.claim(WORK)
        assert first is not None
        assert second is not None
        first.release()
