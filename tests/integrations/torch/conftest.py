"""Clients of the server."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import kcache_grpc as kcache
from tests.serving import ServerProcess


@pytest.fixture(scope="session")
def address(server: ServerProcess) -> str:
    return server.address


@pytest.fixture(autouse=True)
def no_sampled_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm starts derive a record again only where a test sets ``rederive`` to 1, not by chance."""
    if find_spec("torch") is not None:
        backend = import_module("kcache_grpc.integrations.torch.dynamo.backend")
        monkeypatch.setattr(backend, "_is_sampled", lambda share: share == 1)


@pytest.fixture
def client(address: str, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(address, cache_dir=tmp_path / "cache", strict=True, timeout=240) as client:
        yield client
