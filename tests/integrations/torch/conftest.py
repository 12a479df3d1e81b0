"""Clients of the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kcache_grpc as kcache
from tests.serving import ServerProcess


@pytest.fixture(scope="session")
def address(server: ServerProcess) -> str:
    return server.address


@pytest.fixture
def client(address: str, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(address, cache_dir=tmp_path / "cache", strict=True, timeout=240) as client:
        yield client
