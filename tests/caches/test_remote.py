"""``RemoteCache``: the contract, on a real server."""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import blob_cache_pb2 as pb
from kcache_grpc.caches import CacheError, InMemoryCache, RemoteCache, TieredCache
from kcache_grpc.caches.encoding import encode
from kcache_grpc.errors import Unavailable
from tests.caches.harness.contract import AsyncCacheContract, Subject
from tests.serving import ServerProcess

pytestmark = [pytest.mark.issue(number=20, point=1), pytest.mark.issue(number=20, point=2)]

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def remote(server: ServerProcess) -> Iterator[RemoteCache[Any, Any]]:
    with RemoteCache(server.address, namespace=f"values-{next(_NUMBERS)}") as cache:
        yield cache


class TestRemoteCache(AsyncCacheContract):
    @pytest.fixture
    def subject(self, server: ServerProcess) -> Iterator[Subject]:
        namespace = f"contract-{next(_NUMBERS)}"
        reopen = functools.partial(RemoteCache, server.address, namespace=namespace)
        with reopen() as cache:
            yield Subject(cache, reopen)


def test_a_thousand_entries_in_one_call(remote: RemoteCache[Any, Any]) -> None:
    items = [(f"key {number}", {"number": number, "bytes": b"x" * number}) for number in range(1000)]
    assert remote.insert_many(items) == [True] * 1000
    assert remote.insert_many(items) == [False] * 1000
    assert remote.get_many([key for key, _ in items]) == [value for _, value in items]
    assert remote.get_many(["key 1", "missing", "key 1"]) == [items[1][1], None, items[1][1]]


def test_of_a_key_that_comes_twice_the_first_value_counts(remote: RemoteCache[Any, Any]) -> None:
    assert remote.insert_many([("a", 1), ("b", 2), ("a", 3)]) == [True, True, False]
    assert remote.get("a") == 1


def test_a_file_comes_back_whole_and_a_missing_one_changes_nothing(
    remote: RemoteCache[Any, Any], tmp_path: Path
) -> None:
    content = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(300_000))
    (tmp_path / "in").write_bytes(content)
    assert remote.insert_file("large", tmp_path / "in") is True
    assert remote.insert_file("large", tmp_path / "in") is False
    assert remote.get_file("large", tmp_path / "out") is True
    assert (tmp_path / "out").read_bytes() == content
    assert remote.get_file("missing", tmp_path / "in") is False
    assert (tmp_path / "in").read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    with pytest.raises(CacheError, match="large"):
        remote.get("large")


@pytest.mark.parametrize("size", [0, 64 << 10, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_a_value_of_any_size_comes_back_from_the_store_and_from_memory(
    remote: RemoteCache[Any, Any], size: int
) -> None:
    value = hashlib.shake_128(b"value").digest(size)
    assert remote.get("a") is None
    assert remote.insert("a", value) is True
    assert [remote.get("a"), remote.get("a"), remote.get_many(["a"])[0]] == [value] * 3


@pytest.mark.parametrize(
    "changes", [{"content": b"other"}, {"content": b"val"}, {"size_bytes": 4}, {"sha256": b""}]
)
def test_a_reply_that_does_not_match_its_digest_is_no_value(changes: dict[str, Any], tmp_path: Path) -> None:
    with replying(b"value", changes) as cache:
        for read in (
            lambda: cache.get("a"),
            lambda: cache.get_many(["a"]),
            lambda: cache.get_file("a", tmp_path / "file"),
        ):
            with pytest.raises(CacheError, match=r"'a'.* damaged"):
                read()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"value", encode(None), encode([1])[:-1], encode(1) + b"N"])
def test_bytes_that_are_not_the_encoding_of_a_value_are_neither_a_value_nor_a_miss(content: bytes) -> None:
    with replying(content) as cache:
        for read in (lambda: cache.get("a"), lambda: cache.get_many(["a"])):
            with pytest.raises(CacheError, match=r"'a'.* damaged"):
                read()


@contextmanager
def replying(content: bytes, changes: dict[str, Any] | None = None) -> Iterator[RemoteCache[Any, Any]]:
    """A cache on a server that has one value under every key."""
    whole = {"content": content, "sha256": hashlib.sha256(content).digest(), "size_bytes": len(content)}
    part = pb.BlobPart(**{**whole, **(changes or {})})
    handlers = {
        "GetBlob": grpc.unary_unary_rpc_method_handler(
            lambda request, context: pb.GetBlobResponse(blob=part).SerializeToString()
        ),
        "GetBlobs": grpc.unary_stream_rpc_method_handler(
            lambda request, context: iter([pb.GetBlobsResponse(parts=[part]).SerializeToString()])
        ),
    }
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kcache.v1.BlobCache", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with RemoteCache(f"127.0.0.1:{port}") as cache:
            yield cache
    finally:
        server.stop(None).wait()


def test_a_tier_in_front_is_filled(remote: RemoteCache[Any, Any]) -> None:
    memory: InMemoryCache[str, int] = InMemoryCache()
    tiers = TieredCache(memory, remote)
    assert tiers.insert("a", 1) is True
    other: InMemoryCache[str, int] = InMemoryCache()
    assert TieredCache(other, remote).get("a") == 1
    assert other.get("a") == 1


def test_a_client_that_was_passed_stays_open(server: ServerProcess, tmp_path: Path) -> None:
    with kcache.Client(server.address, namespace="shared", cache_dir=tmp_path) as client:
        with RemoteCache(client) as cache:
            assert cache.insert("a", 1) is True
        assert RemoteCache(client).get("a") == 1
        assert client.count() == 0


def test_values_outlive_a_killed_server_and_half_of_one_is_never_seen(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, RemoteCache(server.address, timeout=240) as cache:
        assert cache.insert("before", b"x" * 100_000) is True
        large = tmp_path / "large"
        large.write_bytes(bytes(24 << 20))
        pieces, killed = itertools.count(), threading.Event()

        def killing(chunk: int = 1 << 20) -> Iterator[bytes]:
            with large.open("rb") as file:
                while piece := file.read(chunk):
                    if next(pieces) == 12:
                        server.kill()
                        killed.set()
                    yield piece

        from kcache_grpc.caches.encoding import key_digest
        from kcache_grpc.client.requests.blob_cache import BlobDraft

        digest = hashlib.sha256(large.read_bytes()).digest()
        draft = BlobDraft(key_digest("half"), digest, 24 << 20, killing)
        while not killed.is_set():  # a slow machine may not come so far within the timeout
            with pytest.raises(Unavailable):
                RemoteCache(server.address, timeout=3)._client.put_blobs([draft])
        server.start()
        assert cache.get("half") is None
        assert cache.get("before") == b"x" * 100_000
        assert cache.insert_file("half", large) is True


def test_a_server_that_is_away_is_unavailable_and_may_be_skipped(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        address = server.address
    with RemoteCache(address, timeout=1) as cache:
        with pytest.raises(Unavailable):
            cache.get("a")
        tiers = TieredCache(InMemoryCache(), cache, skip_unavailable=True)
        assert tiers.insert("a", 1) is True
        assert tiers.get("a") == 1
