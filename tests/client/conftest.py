"""Clients of the fake service, and one real server for the module that wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc import embedded
from kcache_grpc.client.address import parse_endpoint
from tests.client.fake import FakeServer, FakeService, serving

PROGRAM = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  return %a : tensor<4xf32>\n}\n"

NewClient = Callable[..., kcache.Client]


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def fake(service: FakeService) -> Iterator[FakeServer]:
    with serving(service) as server:
        yield server


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def new_client(cache_dir: Path) -> Iterator[NewClient]:
    """Makes clients that share one cache directory, strict unless said otherwise; closes them at the end."""
    with contextlib.ExitStack() as stack:

        def make(address: str | None, **settings: Any) -> kcache.Client:
            settings = {"cache_dir": cache_dir, "strict": True, "timeout": 120, **settings}
            return stack.enter_context(kcache.Client(address, **settings))

        yield make


@pytest.fixture
def client(fake: FakeServer, new_client: NewClient) -> kcache.Client:
    return new_client(fake.address)


@pytest.fixture
def embedded_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    """A fake service that plays the embedded one."""
    service = FakeService()
    with serving(service) as server:
        monkeypatch.setattr(embedded, "missing", lambda: "")
        monkeypatch.setattr(embedded, "installation", lambda: "")
        monkeypatch.setattr(embedded, "server_id", lambda cache_dir: None)
        monkeypatch.setattr(
            "kcache_grpc.client.transport.endpoint.EmbeddedLocation.reach",
            lambda self: parse_endpoint(server.address),
        )
        yield service
