"""TLS and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import kcache_grpc as kcache
from tests.certificates import certificate
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService, serving


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    return certificate()


@pytest.fixture
def secure(service: FakeService, pair: tuple[bytes, bytes]) -> Iterator[FakeServer]:
    with serving(service, grpc.ssl_server_credentials([pair])) as server:
        yield server


def test_a_certificate_that_is_trusted(
    secure: FakeServer, service: FakeService, pair: tuple[bytes, bytes], new_client: NewClient, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_bytes(pair[1])
    for tls in (pair[1], tmp_path / "ca.pem"):
        client = new_client(secure.address, tls=tls, token="secret")
        assert client.compile(PROGRAM).origin in ("compiled", "disk")
        assert client.count() == 1
        assert service.metadata["authorization"] == "Bearer secret"


def test_a_certificate_that_is_not(secure: FakeServer, new_client: NewClient) -> None:
    for tls in (certificate()[1], True, None):
        with pytest.raises(kcache.Unavailable):
            new_client(secure.address, tls=tls, timeout=0.4).count()
