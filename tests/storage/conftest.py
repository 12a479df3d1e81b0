"""Every store that must keep the contract. A store that joins later adds one entry to ``OPENERS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import Namespace
from tests.storage.drafts import Time

Opener = Callable[[Path, Time], Store]

OPENERS: dict[str, Opener] = {
    "memory": lambda _, time: open_store("memory:", clock=time.clock),
    "sqlite": lambda folder, time: open_store(
        f"sqlite:///{folder}/store.sqlite", migrate=True, clock=time.clock
    ),
}


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=sorted(OPENERS))
def store(request: pytest.FixtureRequest, tmp_path: Path, time: Time) -> Iterator[Store]:
    with OPENERS[request.param](tmp_path, time) as opened:
        yield opened


@pytest.fixture
def sqlite(tmp_path: Path, time: Time) -> Iterator[Store]:
    with OPENERS["sqlite"](tmp_path, time) as opened:
        yield opened


@pytest.fixture
def ns(store: Store) -> Namespace:
    return store.get_or_create_namespace("default")
