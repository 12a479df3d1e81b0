"""A real store in a file, and threads to call it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.storage import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.sqlite", migrate=True) as store:
        yield store


@pytest.fixture
def threads() -> Iterator[StoreThreads]:
    threads = StoreThreads(2)
    yield threads
    threads.close()
