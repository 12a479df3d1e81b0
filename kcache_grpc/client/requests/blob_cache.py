"""Calls of ``BlobCache``: opaque values by key, verified by their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from kcache_grpc._proto.kcache.v1 import blob_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc.client.requests.blob_reply import BlobReply
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import Deadline, Method, Wire
from kcache_grpc.errors import IntegrityError

GET_BLOB = Method("GetBlob", pb.GetBlobRequest, BlobReply, "BlobCache")
GET_BLOBS = Method("GetBlobs", pb.GetBlobsRequest, pb.GetBlobsResponse, "BlobCache")
PUT_BLOBS = Method("PutBlobs", pb.PutBlobsRequest, pb.PutBlobsResponse, "BlobCache")

#: Bytes of content in one part, and in one message.
_PART_BYTES, _MESSAGE_BYTES = 1 << 20, 3 << 20
#: Keys of one call.
MOST_KEYS = 4096
_DAMAGED = "the server sent a value whose bytes do not match their digest"


@dataclass(frozen=True)
class BlobDraft:
    """A value to store. ``chunks`` returns its bytes in order, and may be called again for a retry.

    ``seconds``: time that producing the value took, which each later hit saves.
    """

    key: bytes
    digest: bytes
    size: int
    chunks: Callable[[], Iterable[bytes]] = field(repr=False)
    label: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class BlobOutcome:
    """Whether this call stored the value, and the digest of the stored one."""

    inserted: bool
    digest: bytes


@dataclass
class BlobSink:
    """Where the bytes of one value go. ``seconds``: what the hit saves."""

    write: Callable[[bytes], object]
    size: int = -1
    seconds: float = 0.0
    received: int = 0


async def get_one(connection: Connection, key: bytes, deadline: Deadline) -> bytes | memoryview | None:
    """The value of one key. Raises ``IntegrityError`` for bytes that do not match their digest."""
    request = pb.GetBlobRequest(header=connection.header(), key=key)
    reply = await connection.channel.unary(GET_BLOB, request, deadline, float("inf"))
    if not reply.stored:
        return None
    content = reply.content
    if len(content) != reply.size and not content:
        return await _get_large(connection, key, deadline)
    if len(content) != reply.size or hashlib.sha256(content).digest() != reply.sha256:
        raise IntegrityError(_DAMAGED)
    return content


async def _get_large(connection: Connection, key: bytes, deadline: Deadline) -> bytes | None:
    parts: list[bytes] = []

    def open_sink(_: int) -> BlobSink:
        parts.clear()
        return BlobSink(parts.append)

    exists = await get(connection, (key,), deadline, open_sink)
    return b"".join(parts) if exists else None


async def get(
    connection: Connection,
    keys: Sequence[bytes],
    deadline: Deadline,
    open_sink: Callable[[int], BlobSink],
) -> set[int]:
    """Reads stored values into sinks; the positions of the keys that are stored.

    ``open_sink(index)`` is called at the first part of a value, again when the call is repeated. Raises
    ``IntegrityError`` for bytes that do not match their digest.
    """
    request = pb.GetBlobsRequest(header=connection.header(), keys=keys)

    async def once(wire: Wire) -> set[int]:
        reader = _Reader(open_sink)
        await connection.channel.follow(wire.stream(GET_BLOBS, request, deadline.left()), reader.take)
        return reader.finish()

    return await connection.channel.attempt(once, deadline)


async def put(
    connection: Connection, drafts: Sequence[BlobDraft], deadline: Deadline
) -> tuple[BlobOutcome, ...]:
    """Stores values whose keys are not stored; the outcome of each, in order."""
    header, attempts = connection.header(), 0

    async def once(wire: Wire) -> pb.PutBlobsResponse:
        nonlocal attempts
        attempts += 1
        return await wire.upload(PUT_BLOBS, _messages(header, drafts), deadline.left())

    reply = await connection.channel.attempt(once, deadline)
    if len(reply.outcomes) != len(drafts):
        raise IntegrityError(f"the server answered {len(reply.outcomes)} of {len(drafts)} values")
    # The reply of an earlier attempt may have been lost after it stored the value.
    return tuple(
        BlobOutcome(outcome.inserted or (attempts > 1 and outcome.sha256 == draft.digest), outcome.sha256)
        for draft, outcome in zip(drafts, reply.outcomes, strict=True)
    )


class _Reader:
    """Puts parts together, and checks them.

    A value that comes in one part is hashed when the next one begins or the stream has ended, not during the
    thread of gRPC that waits for the next message, and its sink gets it verified.
    """

    def __init__(self, open_sink: Callable[[int], BlobSink]) -> None:
        self._open_sink = open_sink
        self._done: set[int] = set()
        self._index = -1
        self._sink: BlobSink | None = None
        self._digest = b""
        #: The only part of a value.
        self._whole: bytes | None = None
        self._hash = hashlib.sha256()

    def take(self, reply: pb.GetBlobsResponse) -> None:
        for part in reply.parts:
            content = part.content
            if part.sha256:
                self._close()
                self._begin(part)
                if len(content) == part.size_bytes:
                    self._whole = content
                    continue
            elif self._sink is None or part.index != self._index or self._whole is not None:
                raise IntegrityError("the server sent a part of a value without its beginning")
            assert self._sink is not None
            self._sink.received += len(content)
            self._hash.update(content)
            self._sink.write(content)

    def finish(self) -> set[int]:
        self._close()
        return self._done

    def _begin(self, part: pb.BlobPart) -> None:
        self._index, self._digest, self._hash = part.index, part.sha256, hashlib.sha256()
        self._sink = self._open_sink(part.index)
        self._sink.size = part.size_bytes
        self._sink.seconds = part.production_time.ToMicroseconds() / 1e6

    def _close(self) -> None:
        sink, self._sink = self._sink, None
        content, self._whole = self._whole, None
        if sink is None:
            return
        if content is None:
            matches = sink.received == sink.size and self._hash.digest() == self._digest
        elif matches := hashlib.sha256(content).digest() == self._digest:
            sink.received = len(content)
            sink.write(content)
        if not matches:
            raise IntegrityError(_DAMAGED)
        self._done.add(self._index)


def _messages(header: common_pb2.RequestHeader, drafts: Sequence[BlobDraft]) -> Iterator[pb.PutBlobsRequest]:
    message, size = pb.PutBlobsRequest(header=header), 0
    for part in (part for draft in drafts for part in _parts(draft)):
        if message.parts and size + len(part.content) > _MESSAGE_BYTES:
            yield message
            message, size = pb.PutBlobsRequest(), 0
        message.parts.append(part)
        size += len(part.content)
    yield message


def _parts(draft: BlobDraft) -> Iterator[pb.PutBlobPart]:
    duration = Duration()
    duration.FromMicroseconds(round(draft.seconds * 1e6))
    part = pb.PutBlobPart(
        key=draft.key,
        sha256=draft.digest,
        size_bytes=draft.size,
        label=draft.label,
        production_time=duration,
    )
    for chunk in draft.chunks():
        for start in range(0, len(chunk), _PART_BYTES):
            part.content = chunk[start : start + _PART_BYTES]
            yield part
            part = pb.PutBlobPart()
    if part.key:
        yield part
