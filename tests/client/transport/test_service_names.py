"""Which service a kernel came from: its key counts in that service's store only."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import kcache_grpc as kcache
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.core import Core
from kcache_grpc.client.transport.blocking import BlockingIo, run
from kcache_grpc.model import signing
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService

pytestmark = pytest.mark.issue(number=19, point=8)


def server_id(service: FakeService) -> str:
    return signing.server_id(service.signer.public_key)


def named(kernel: kcache.Kernel) -> tuple[str, str, str]:
    return kernel.origin, kernel.service, kernel.server_id


def test_every_origin_names_its_service(
    fake: FakeServer, service: FakeService, new_client: NewClient, tmp_path: Path
) -> None:
    client = new_client(fake.address)
    kernels = [client.compile(PROGRAM), client.compile(PROGRAM)]
    kernels += [new_client(fake.address, cache_dir=tmp_path / "other").compile(PROGRAM)]
    kernels += [new_client(fake.address).compile(PROGRAM)]
    expected = (fake.address, server_id(service))
    assert [named(kernel) for kernel in kernels] == [
        ("compiled", *expected),
        ("memory", *expected),
        ("remote", *expected),
        ("disk", *expected),
    ]
    assert client.service == fake.address
    assert fake.address in repr(kernels[0])


def test_a_fallback_names_the_embedded_service(embedded_service: FakeService, cache_dir: Path) -> None:
    config = ClientConfig("127.0.0.1:1", cache_dir, timeout=120.0, grace_period_new=0.0)
    core = Core(config, BlockingIo())
    with pytest.warns(kcache.KcacheWarning, match="embedded service compiles instead"):
        first = run(core.compile(PROGRAM, None, "host", None, None))
    again = core.recall(PROGRAM, None, "host", None)
    assert again is not None
    expected = ("embedded", server_id(embedded_service))
    assert [named(kernel) for kernel in (first, again)] == [("compiled", *expected), ("memory", *expected)]
    assert core.service == "127.0.0.1:1"


def test_the_asynchronous_client_names_it_too(
    fake: FakeServer, service: FakeService, embedded_service: FakeService, tmp_path: Path
) -> None:
    async def main() -> list[tuple[str, str, str]]:
        async with kcache.aio.Client(fake.address, cache_dir=tmp_path / "a", strict=True) as client:
            kernels = [await client.compile(PROGRAM), await client.compile(PROGRAM)]
            kernels += await client.compile_many([PROGRAM + "\n"])
            assert client.service == fake.address
        async with kcache.aio.Client("127.0.0.1:1", cache_dir=tmp_path / "b") as client:
            with pytest.warns(kcache.KcacheWarning):
                kernels.append(await client.compile(PROGRAM))
        return [named(kernel) for kernel in kernels]

    expected = (fake.address, server_id(service))
    assert asyncio.run(main()) == [
        ("compiled", *expected),
        ("memory", *expected),
        ("compiled", *expected),
        ("compiled", "embedded", server_id(embedded_service)),
    ]


def test_without_an_address_the_service_is_the_embedded_one(
    embedded_service: FakeService, new_client: NewClient
) -> None:
    client = new_client(None)
    assert client.service == "embedded"
    assert named(client.compile(PROGRAM)) == ("compiled", "embedded", server_id(embedded_service))
