"""Servers for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kcache_grpc.server import ServerConfig
from tests.postgres import PostgresServer
from tests.server.harness.running import Running, config_in, running


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    return config_in(tmp_path)


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """A store without rows, for several servers."""
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for the tests of a module that do not disturb each other: each takes its own namespace."""
    with running(config_in(tmp_path_factory.mktemp("server"))) as server:
        yield server
