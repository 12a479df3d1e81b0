"""Source assertions as clients see them: a server that lies, the embedded service, the async client."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import source_assertions_pb2 as pb
from kcache_grpc._proto.kcache.v1 import source_assertions_pb2_grpc
from tests.server.harness.running import config_in, running


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class Liar(source_assertions_pb2_grpc.SourceAssertionsServicer):
    """Answers with ``assertion``, whatever it is asked."""

    def __init__(self) -> None:
        self.assertion = pb.SourceAssertion()

    def GetAssertions(
        self, request: pb.GetAssertionsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.GetAssertionsResponse]:
        del request, context
        yield pb.GetAssertionsResponse(assertions=[self.assertion])

    def PutAssertion(
        self, request: pb.PutAssertionRequest, context: grpc.ServicerContext
    ) -> pb.PutAssertionResponse:
        del request, context
        return pb.PutAssertionResponse(assertion=self.assertion)


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[tuple[Liar, kcache.Client]]:
    servicer, server = Liar(), grpc.server(ThreadPoolExecutor(2))
    source_assertions_pb2_grpc.add_SourceAssertionsServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with kcache.Client(f"127.0.0.1:{port}", cache_dir=tmp_path / "cache") as client:
        yield servicer, client
    server.stop(0).wait()


def test_a_record_that_does_not_match_its_digest_is_not_trusted(liar: tuple[Liar, kcache.Client]) -> None:
    servicer, client = liar
    servicer.assertion = pb.SourceAssertion(
        source_digest=sha("a"), record=b"{}", record_digest=sha("{}"), actor="ci"
    )
    assertion = client.get_assertion(sha("a"))
    assert assertion is not None
    assert (assertion.record, assertion.actor) == (b"{}", "ci")
    servicer.assertion.record = b"[]"
    with pytest.raises(kcache.IntegrityError, match="does not match"):
        client.get_assertion(sha("a"))
    with pytest.raises(kcache.IntegrityError, match="does not match"):
        client.put_assertion(sha("a"), b"other", [])


def test_an_assertion_of_another_digest_is_not_trusted(liar: tuple[Liar, kcache.Client]) -> None:
    servicer, client = liar
    servicer.assertion = pb.SourceAssertion(source_digest=sha("b"), record=b"{}", record_digest=sha("{}"))
    with pytest.raises(kcache.IntegrityError, match="not requested"):
        client.get_assertion(sha("a"))
    with pytest.raises(kcache.IntegrityError, match="another source digest"):
        client.put_assertion(sha("a"), b"{}", [])
    servicer.assertion.source_digest = sha("a")
    servicer.assertion.index = 7
    with pytest.raises(kcache.IntegrityError, match="not requested"):
        client.get_assertion(sha("a"))


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get_assertion(b"short"),
        lambda client: client.get_assertion("a" * 32),
        lambda client: client.put_assertion(b"short", b"{}", []),
        lambda client: client.put_assertion(sha("a"), b"{}", [b"short"]),
        lambda client: client.dispute_assertion(sha("a"), b"short", sha("b")),
        lambda client: client.dispute_assertion(sha("a"), sha("b"), b"short"),
    ],
)
def test_what_is_no_digest_is_rejected_before_a_call(
    liar: tuple[Liar, kcache.Client], call: Callable[[kcache.Client], Any]
) -> None:
    with pytest.raises(kcache.ArgumentError, match="32 bytes"):
        call(liar[1])


def test_a_server_without_assertions_is_unavailable(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    address = f"127.0.0.1:{port}"
    with (
        kcache.Client(address, cache_dir=tmp_path / "cache", timeout=2) as client,
        pytest.raises(kcache.Unavailable),
    ):
        client.get_assertion(sha("a"))
    server.stop(0).wait()


def test_values_are_frozen(liar: tuple[Liar, kcache.Client]) -> None:
    servicer, client = liar
    servicer.assertion = pb.SourceAssertion(source_digest=sha("a"), record=b"{}", record_digest=sha("{}"))
    assertion: Any = client.get_assertion(sha("a"))
    with pytest.raises(FrozenInstanceError):
        assertion.record = b""


def test_the_embedded_service_has_one_actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KCACHE_ADDR", raising=False)
    with kcache.Client(cache_dir=tmp_path / "cache", actor="alice") as alice:
        stored = alice.put_assertion(sha("a"), b"{}", [sha("p")])
        assert (stored.stored, stored.winner.actor) == (True, "local")
    with kcache.Client(cache_dir=tmp_path / "cache", actor="bob") as bob:
        assert bob.get_assertion(sha("a")) == stored.winner
        assert bob.dispute_assertion(sha("a"), sha("{}"), sha("[]"), "differs")
        assert bob.get_assertion(sha("a")) is None


def test_the_async_client_does_the_same(tmp_path: Path) -> None:
    async def work(address: str) -> None:
        async with kcache.aio.Client(address, cache_dir=tmp_path / "cache") as client:
            assert await client.get_assertion(sha("a")) is None
            stored = await client.put_assertion(sha("a"), b"{}", [sha("p")], toolchain="torch 2.13")
            assert stored.stored
            assert await client.get_assertion(sha("a")) == stored.winner
            assert await client.get_assertions([sha("a"), sha("b")]) == {sha("a"): stored.winner}
            assert await client.dispute_assertion(sha("a"), sha("{}"), sha("[]"))
            assert await client.get_assertion(sha("a")) is None

    with running(config_in(tmp_path)) as server:
        asyncio.run(work(server.address))
