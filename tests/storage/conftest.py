"""Every store that must keep the contract."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from kcache_grpc.storage import Store, migrate, open_store
from kcache_grpc.storage.records import Namespace
from tests.postgres import PostgresServer
from tests.s3 import S3Server
from tests.storage.drafts import Time
from tests.storage.inside import call_on_close, date_leases_by

Opener = Callable[[Path, Time], Store]

#: A store that joins later adds one entry here and one to ``openers``.
STORES = ("memory", "sqlite", "postgres")
#: A database with an object store beside it, which takes every byte.
OBJECT_STORES = ("sqlite+file", "sqlite+s3", "postgres+s3")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite store: copying it takes less than migrating."""
    path = tmp_path_factory.mktemp("template") / "store.sqlite"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def openers(
    template: Path, postgres_server: PostgresServer, request: pytest.FixtureRequest
) -> dict[str, Opener]:
    """How to make a new store in a folder."""
    prefixes = count()
    #: Databases of closed stores, empty again: making one takes a second.
    free: list[str] = []

    def memory(_: Path, time: Time) -> Store:
        return open_store("memory:", clock=time.clock)

    def sqlite(folder: Path, time: Time, objects: str | None = None) -> Store:
        shutil.copy(template, folder / "store.sqlite")
        url = f"sqlite:///{folder}/store.sqlite"
        return open_store(url, clock=time.clock, objects=objects, inline_bytes=0)

    def postgres(_: Path, time: Time, objects: str | None = None) -> Store:
        url = free.pop() if free else postgres_server.create_migrated()

        def give_back() -> None:
            postgres_server.empty(url)
            free.append(url)

        opened = open_store(url, clock=time.clock, objects=objects, inline_bytes=0)
        date_leases_by(opened, time)
        call_on_close(opened, give_back)
        return opened

    def prefix() -> str:
        """In the one bucket of all tests. The server starts with the first test that wants it."""
        server: S3Server = request.getfixturevalue("s3_server")
        return f"s3://{server.shared_bucket}/{next(prefixes)}"

    return {
        "memory": memory,
        "sqlite": sqlite,
        "postgres": postgres,
        "sqlite+file": lambda folder, time: sqlite(folder, time, f"file://{folder}/objects"),
        "sqlite+s3": lambda folder, time: sqlite(folder, time, prefix()),
        "postgres+s3": lambda folder, time: postgres(folder, time, prefix()),
    }


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest, openers: dict[str, Opener], tmp_path: Path, time: Time
) -> Iterator[Store]:
    with openers[request.param](tmp_path, time) as opened:
        yield opened


@pytest.fixture
def sqlite(openers: dict[str, Opener], tmp_path: Path, time: Time) -> Iterator[Store]:
    with openers["sqlite"](tmp_path, time) as opened:
        yield opened


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A store without rows."""
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


@pytest.fixture
def first_store(postgres_url: str) -> Iterator[Store]:
    """What a replica has open."""
    with open_store(postgres_url) as store:
        yield store


@pytest.fixture
def second_store(postgres_url: str) -> Iterator[Store]:
    """The same of another replica on the same database."""
    with open_store(postgres_url) as store:
        yield store


@pytest.fixture
def ns(store: Store) -> Namespace:
    return store.get_or_create_namespace("default")
