"""Bundles of kernels, and clients without a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc import embedded
from kcache_grpc.bundle import Entry
from kcache_grpc.errors import Unavailable
from kcache_grpc.model.signing import Signer
from tests.bundle.making import metadata_of, spec, stored_entries, written
from tests.client.cache.bundles import Bundles
from tests.client.conftest import PROGRAM
from tests.client.fake import CONSTANT, FakeServer, FakeService


@pytest.fixture
def entries(fake: FakeServer, service: FakeService, tmp_path: Path) -> list[Entry]:
    """Of a kernel with a constant, compiled for this machine and for x86-64-v2; the service is away then."""
    service.constants = (CONSTANT,)
    service.change_binding = lambda binding: replace(binding, key=1)  # the same for both targets
    with kcache.Client(fake.address, cache_dir=tmp_path / "maker", strict=True) as client:
        client.compile(PROGRAM)
        client.compile(PROGRAM, target="x86-64-v2")
    fake.stop()
    unique = {(entry.kind, entry.name): entry for entry in stored_entries(tmp_path / "maker")}
    return [spec(), *unique.values()]


@pytest.fixture
def bundle(entries: list[Entry], service: FakeService, tmp_path: Path) -> Bundles:
    """Writes a bundle of the entries, signed by the service unless said otherwise."""

    def make(
        name: str = "a.kcb",
        chosen: list[Entry] | None = None,
        signer: Signer | None = None,
        folder: Path = tmp_path,
    ) -> Path:
        kept = entries if chosen is None else chosen
        path = folder / name
        path.write_bytes(written(kept, signer or service.signer, metadata_of(kept, service.signer)))
        return path

    return make


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., kcache.Client]]:
    """Clients of no service at all: none at an address, and none to embed."""
    monkeypatch.setattr(embedded, "missing", lambda: "this machine has no server")
    monkeypatch.setattr(embedded, "start", _cannot_start)
    clients: list[kcache.Client] = []

    def make(name: str = "light") -> kcache.Client:
        clients.append(kcache.Client(cache_dir=tmp_path / name, timeout=240))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def _cannot_start(*_: Any) -> None:
    raise Unavailable("this machine has no server")
