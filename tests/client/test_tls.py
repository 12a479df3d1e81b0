"""TLS and tokens."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import kcache_grpc as kcache
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService, serving


def certificate() -> tuple[bytes, bytes]:
    """A key and a certificate for this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kcache test")])
    now = datetime.now(timezone.utc)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, built.public_bytes(serialization.Encoding.PEM)


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
