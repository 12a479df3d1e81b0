"""``BlobCache`` over gRPC, on SQLite and Postgres: limits, conflicts, quotas, collection, audit, counters."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from kcache_grpc._proto.kcache.v1 import blob_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import blob_cache_pb2_grpc, common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as cache_pb
from kcache_grpc.service.blobs.blob_cache import MOST_KEYS, MOST_VALUE_BYTES
from kcache_grpc.service.lifecycle.garbage_collection import CollectionOptions, Collector, utc_now
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.blob_cache import CHUNK_BYTES
from kcache_grpc.storage.contract.lifecycle import EVICT, REFUSE
from tests.postgres import PostgresServer
from tests.server.harness.running import Running, config_in, running

pytestmark = pytest.mark.issue(number=20, point=2)

#: Largest message that gRPC takes by default.
_MESSAGE_BYTES = 4 << 20
_NAMES = itertools.count()


def sha(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("blobs")
    changes = {} if request.param == "sqlite" else {"db": postgres_server.create_migrated()}
    with running(config_in(folder, evict_min_age=0.0, **changes)) as server:
        yield server


@pytest.fixture
def blobs(server: Running) -> Blobs:
    return Blobs(server.channel, f"blobs-{next(_NAMES)}")


@pytest.fixture
def store(server: Running) -> Iterator[Store]:
    with open_store(server.config.db) as store:
        yield store


class Blobs:
    """Calls in one namespace, from stubs alone."""

    def __init__(self, channel: grpc.Channel, namespace: str) -> None:
        self.stub: Any = blob_cache_pb2_grpc.BlobCacheStub(channel)
        self.namespace = namespace
        self.header = common_pb2.RequestHeader(namespace=namespace, actor="alice", job="job-1")

    def get(self, *keys: bytes) -> dict[bytes, bytes]:
        values: dict[bytes, bytes] = {}
        for reply in self.stub.GetBlobs(pb.GetBlobsRequest(header=self.header, keys=keys)):
            assert reply.ByteSize() < _MESSAGE_BYTES
            for part in reply.parts:
                values[keys[part.index]] = values.get(keys[part.index], b"") + part.content
        return values

    def one(self, key: bytes) -> pb.GetBlobResponse:
        reply: pb.GetBlobResponse = self.stub.GetBlob(pb.GetBlobRequest(header=self.header, key=key))
        return reply

    def put(self, *parts: pb.PutBlobPart) -> Any:
        """Each part in a message of its own."""
        return self.stub.PutBlobs(self._messages(parts)).outcomes

    def _messages(self, parts: Iterable[pb.PutBlobPart]) -> Iterator[pb.PutBlobsRequest]:
        yield pb.PutBlobsRequest(header=self.header)
        for part in parts:
            yield pb.PutBlobsRequest(parts=[part])


def part(name: str, content: bytes, **changes: Any) -> pb.PutBlobPart:
    """A value in one part."""
    fields = {"key": sha(name.encode()), "sha256": sha(content), "size_bytes": len(content), "label": name}
    return pb.PutBlobPart(**{**fields, "content": content, **changes})


def error_of(call: Any) -> tuple[str, str]:
    """Code and text of the error that ``call`` ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code().name, error.details()


def test_values_share_messages_and_large_ones_come_in_several(blobs: Blobs) -> None:
    small = [part(f"small {number}", b"%d" % number * 1000) for number in range(50)]
    large = b"".join(sha(b"%d" % number) for number in range(250_000))
    pieces = [large[start : start + (1 << 20)] for start in range(0, len(large), 1 << 20)]
    first = part("large", pieces[0], sha256=sha(large), size_bytes=len(large))
    outcomes = blobs.put(*small, first, *(pb.PutBlobPart(content=piece) for piece in pieces[1:]))
    assert [outcome.inserted for outcome in outcomes] == [True] * 51
    assert (outcomes[-1].size_bytes, outcomes[-1].sha256) == (len(large), sha(large))
    keys = [each.key for each in (*small, first)]
    assert blobs.get(*keys, sha(b"missing")) == dict(
        zip(keys, [*(each.content for each in small), large], strict=True)
    )
    request = pb.GetBlobsRequest(header=blobs.header, keys=[each.key for each in small])
    assert len(list(blobs.stub.GetBlobs(request))) == 1


@pytest.mark.parametrize("content", [b"", b"x", b"\x00\xff" * 65, b"\x01" * CHUNK_BYTES])
def test_a_value_in_memory_has_the_bytes_and_fields_of_the_first_reply(blobs: Blobs, content: bytes) -> None:
    blobs.put(part("a", content, production_time=Duration(seconds=2)))
    first, second, third = (blobs.one(sha(b"a")) for _ in range(3))
    assert first == second == third
    assert (first.blob.content, first.blob.sha256) == (content, sha(content))
    assert (first.blob.size_bytes, first.blob.production_time.seconds) == (len(content), 2)
    assert blobs.get(sha(b"a")) == {sha(b"a"): content}


def test_one_key_that_is_not_stored_has_no_blob_and_no_other_namespace_shows_it(blobs: Blobs) -> None:
    assert not blobs.one(sha(b"a")).HasField("blob")
    blobs.put(part("a", b"x"))
    assert blobs.one(sha(b"a")).blob.content == b"x"
    request = pb.GetBlobRequest(header=common_pb2.RequestHeader(namespace="another"), key=sha(b"a"))
    assert not blobs.stub.GetBlob(request).HasField("blob")
    assert error_of(lambda: blobs.one(b"short"))[0] == "INVALID_ARGUMENT"


def test_one_key_of_a_large_value_has_everything_but_its_bytes(blobs: Blobs) -> None:
    content = bytes(CHUNK_BYTES + 1)
    pieces = pb.PutBlobPart(content=content[CHUNK_BYTES:])
    blobs.put(part("a", content[:CHUNK_BYTES], sha256=sha(content), size_bytes=len(content)), pieces)
    blob = blobs.one(sha(b"a")).blob
    assert (blob.content, blob.sha256, blob.size_bytes) == (b"", sha(content), len(content))
    assert blobs.get(sha(b"a")) == {sha(b"a"): content}


def test_another_value_is_a_conflict_and_the_first_one_stays(blobs: Blobs, store: Store) -> None:
    assert blobs.put(part("a", b"first"))[0].inserted
    (again,) = blobs.put(part("a", b"first"))
    (other,) = blobs.put(part("a", b"second"))
    assert (again.inserted, other.inserted) == (False, False)
    assert (other.sha256, other.size_bytes) == (sha(b"first"), 5)
    assert blobs.get(sha(b"a")) == {sha(b"a"): b"first"}
    namespace = store.find_namespace(blobs.namespace)
    assert namespace is not None
    (conflict,) = store.list_value_conflicts(namespace)
    assert (conflict.kept, conflict.offered, conflict.actor) == (sha(b"first"), sha(b"second"), "alice")


@pytest.mark.parametrize(
    ("parts", "code", "text"),
    [
        ([part("a", b"x", key=b"short")], "INVALID_ARGUMENT", "32 bytes"),
        ([part("a", b"x", sha256=b"")], "INVALID_ARGUMENT", "32 bytes"),
        ([part("a", b"x", sha256=sha(b"y"))], "DATA_LOSS", "do not match"),
        ([part("a", b"x", size_bytes=2)], "INVALID_ARGUMENT", "has 1 bytes"),
        ([part("a", b"xyz", size_bytes=2)], "INVALID_ARGUMENT", "more bytes"),
        ([part("a", b"x"), part("a", b"x")], "INVALID_ARGUMENT", "different keys"),
        ([pb.PutBlobPart(content=b"x")], "INVALID_ARGUMENT", "more bytes"),
        ([part("a", b"x", label="x" * 201)], "INVALID_ARGUMENT", "label"),
        ([part("a", b"", size_bytes=MOST_VALUE_BYTES + 1)], "RESOURCE_EXHAUSTED", "at most"),
    ],
)
def test_what_is_no_value_is_rejected_and_stores_nothing(
    blobs: Blobs, parts: list[pb.PutBlobPart], code: str, text: str
) -> None:
    status, details = error_of(lambda: blobs.put(part("good", b"g"), *parts))
    assert status == code
    assert text in details
    assert blobs.get(sha(b"good"), sha(b"a")) == {}


def test_a_first_part_without_a_key_is_rejected(blobs: Blobs) -> None:
    code, details = error_of(lambda: blobs.put(pb.PutBlobPart(content=b"x")))
    assert code == "INVALID_ARGUMENT"
    assert "names its key" in details


def test_questions_that_are_too_long_or_unclear_are_rejected(blobs: Blobs) -> None:
    many = [sha(b"%d" % number) for number in range(MOST_KEYS + 1)]
    assert error_of(lambda: blobs.get(*many))[0] == "INVALID_ARGUMENT"
    assert error_of(lambda: blobs.get(b"short"))[0] == "INVALID_ARGUMENT"
    assert error_of(lambda: blobs.get(sha(b"a"), sha(b"a")))[0] == "INVALID_ARGUMENT"
    assert blobs.get(*many[1:]) == {}
    assert blobs.get() == {}


def test_values_and_kernels_share_no_row(blobs: Blobs, server: Running) -> None:
    blobs.put(part("a", b"value"))
    header = common_pb2.RequestHeader(namespace=blobs.namespace)
    stats = server.stub.GetStats(cache_pb.GetStatsRequest(header=header))
    assert (stats.blobs, stats.blob_bytes) == (1, 5)
    assert (stats.specs, stats.kernels, stats.artifacts, stats.artifact_bytes) == (0, 0, 0, 0)
    request = cache_pb.ReadArtifactRequest(header=header, sha256=sha(b"value"))
    assert error_of(lambda: list(server.stub.ReadArtifact(request)))[0] == "NOT_FOUND"


def test_each_hit_saves_the_time_that_producing_the_value_took(blobs: Blobs, server: Running) -> None:
    blobs.put(part("a", b"value", production_time=Duration(seconds=3)), part("b", b"quick"))
    for _ in range(2):
        blobs.get(sha(b"a"), sha(b"b"), sha(b"missing"))
    blobs.get(sha(b"a"))
    header = common_pb2.RequestHeader(namespace=blobs.namespace)
    stats = server.stub.GetStats(cache_pb.GetStatsRequest(header=header))
    assert (stats.blob_hits, stats.blob_time_saved.seconds) == (5, 9)


def test_a_quota_rejects_or_evicts(blobs: Blobs, store: Store) -> None:
    blobs.put(part("old", b"o" * 600))
    namespace = store.find_namespace(blobs.namespace)
    assert namespace is not None
    store.set_quota(namespace, "cache_bytes", 1000, REFUSE)
    code, text = error_of(lambda: blobs.put(part("new", b"n" * 600)))
    assert code == "RESOURCE_EXHAUSTED"
    assert "cache" in text
    assert set(blobs.get(sha(b"old"), sha(b"new"))) == {sha(b"old")}
    store.set_quota(namespace, "cache_bytes", 1000, EVICT)
    assert blobs.put(part("new", b"n" * 600))[0].inserted
    assert [record.label for record in store.list_values(namespace)] == ["new"]


def test_collection_removes_idle_values_and_a_dry_run_none(blobs: Blobs, store: Store) -> None:
    blobs.put(part("idle", b"i" * 100))
    namespace = store.find_namespace(blobs.namespace)
    assert namespace is not None
    later = Collector(store, lambda: utc_now() + 3_600_000_000)
    dry = later.run(namespace, CollectionOptions(older_than=60.0, min_age=0.0, dry_run=True))
    assert dry.rows["cache_values"] == 1
    assert blobs.get(sha(b"idle")) != {}
    assert later.run(namespace, CollectionOptions(older_than=60.0, min_age=0.0)).rows["cache_values"] == 1
    assert store.find_values(namespace, [sha(b"idle")]) == {}
    assert "collect" in {record.event.kind for record in store.list_audit(namespace, 0, 1000)}


def test_the_audit_log_has_what_was_stored_read_and_rejected(
    blobs: Blobs, server: Running, store: Store
) -> None:
    blobs.put(part("a", b"first", production_time=Duration(seconds=1)))
    blobs.put(part("a", b"second"))
    blobs.get(sha(b"a"))
    blobs.get(sha(b"a"), sha(b"missing"))
    server.seal()
    namespace = store.find_namespace(blobs.namespace)
    assert namespace is not None
    events = [record.event for record in store.list_audit(namespace, 0, 1000)]
    mine = [event for event in events if event.kind.startswith("blob_")]
    assert [(event.kind, event.outcome) for event in mine] == [
        ("blob_put", "inserted"),
        ("blob_put", "conflict"),
        ("blob_get", "hit"),
        ("blob_get", "miss"),
    ]
    assert {(event.actor, event.job) for event in mine} == {("alice", "job-1")}
    assert [event.saved_us for event in mine[2:]] == [1_000_000, 1_000_000]
    assert sha(b"a").hex() in mine[1].detail


def test_a_call_without_the_token_neither_reads_nor_writes(tmp_path: Path) -> None:
    with running(config_in(tmp_path, token="secret")) as server:
        blobs = Blobs(server.channel, "default")
        assert error_of(lambda: blobs.put(part("a", b"x")))[0] == "PERMISSION_DENIED"
        assert error_of(lambda: blobs.get(sha(b"a")))[0] == "PERMISSION_DENIED"


def test_an_upload_that_is_cancelled_leaves_nothing(blobs: Blobs, server: Running, store: Store) -> None:
    # Within one transaction together with the small value.
    large = bytes(4 << 20)

    def parts() -> Iterator[pb.PutBlobsRequest]:
        yield pb.PutBlobsRequest(header=blobs.header, parts=[part("small", b"s")])
        first = part("large", large[: 1 << 20], sha256=sha(large), size_bytes=len(large))
        yield pb.PutBlobsRequest(parts=[first])
        yield pb.PutBlobsRequest(parts=[pb.PutBlobPart(content=large[: 1 << 20])])
        raise OSError("the producer failed")

    with pytest.raises(grpc.RpcError):
        blobs.stub.PutBlobs(parts())
    assert blobs.get(sha(b"large"), sha(b"small")) == {}
    spool = server.config.state_dir / "spool" / "blobs"
    assert list(spool.iterdir()) == []

    assert blobs.put(part("large", b"other"))[0].inserted
