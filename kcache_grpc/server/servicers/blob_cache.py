"""``kcache.v1.BlobCache``: requests to values, values to responses, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kcache_grpc._proto.kcache.v1 import blob_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import blob_cache_pb2_grpc, common_pb2
from kcache_grpc.server.rpc_handlers import Call
from kcache_grpc.server.servicers.translate import duration, varint
from kcache_grpc.service import KernelService
from kcache_grpc.service.blobs.blob_cache import ValueHead, ValuePart
from kcache_grpc.storage.contract.blob_cache import PutOutcome, ValueRecord

#: Bytes of content in one message.
_MESSAGE_BYTES = 3 << 20
#: Tags of fields of bytes and messages: ``GetBlobResponse.blob`` and ``BlobPart.content``.
_BLOB_TAG = bytes([pb.GetBlobResponse.BLOB_FIELD_NUMBER << 3 | 2])
_CONTENT_TAG = bytes([pb.BlobPart.CONTENT_FIELD_NUMBER << 3 | 2])


class BlobCacheServicer(blob_cache_pb2_grpc.BlobCacheServicer):
    """Translates."""

    def __init__(self, service: KernelService) -> None:
        self._blobs = service.blobs

    # gRPC takes both messages and their bytes; its type stubs know messages only.
    async def GetBlob(  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: pb.GetBlobRequest, context: Call
    ) -> pb.GetBlobResponse | bytes:
        """A small value as the bytes of its first reply."""
        found = await self._blobs.get_small(context.caller(request.header), request.key)
        if found is None:
            return pb.GetBlobResponse()
        if isinstance(found, ValueRecord):
            return pb.GetBlobResponse(blob=_part(ValuePart(0, b"", found)))
        message = found.message(_message)
        size = len(message)
        if not context.try_acquire(size):
            await context.acquire(size)
        context.release_at_end(size)
        return message

    # As above; its type stubs know generators only.
    async def GetBlobs(  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: pb.GetBlobsRequest, context: Call
    ) -> pb.GetBlobsResponse:
        """Writes all messages but the last, which it returns."""
        caller = context.caller(request.header)
        parts: list[pb.BlobPart] = []
        size = 0
        async for part in self._blobs.get(caller, request.keys):
            if parts and size + len(part.content) > _MESSAGE_BYTES:
                await context.acquire(size)
                await context.write(pb.GetBlobsResponse(parts=parts))
                context.release()
                parts, size = [], 0
            parts.append(_part(part))
            size += len(part.content)
        await context.acquire(size)
        context.release_at_end(size)
        return pb.GetBlobsResponse(parts=parts)

    async def PutBlobs(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.PutBlobsRequest], context: Call
    ) -> pb.PutBlobsResponse:
        """Stores values as they arrive."""
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        caller = context.caller(first.header if first is not None else common_pb2.RequestHeader())
        outcomes = await self._blobs.put(caller, _parts(first, requests))
        return pb.PutBlobsResponse(outcomes=map(_outcome, outcomes))


async def _parts(
    first: pb.PutBlobsRequest | None, requests: AsyncIterator[pb.PutBlobsRequest]
) -> AsyncIterator[tuple[ValueHead | None, bytes]]:
    message = first
    while message is not None:
        for part in message.parts:
            yield _head(part), part.content
        message = await anext(requests, None)


def _head(part: pb.PutBlobPart) -> ValueHead | None:
    if not part.key:
        return None
    saved = max(0, part.production_time.ToMicroseconds())
    return ValueHead(part.key, part.sha256, part.size_bytes, part.label, saved)


def _part(part: ValuePart) -> pb.BlobPart:
    record = part.record
    if record is None:
        return pb.BlobPart(index=part.index, content=part.content)
    return pb.BlobPart(
        index=part.index,
        sha256=record.digest,
        size_bytes=record.size,
        production_time=duration(record.saved_us / 1e6) if record.saved_us else None,
        content=part.content,
    )


def _message(record: ValueRecord, content: bytes) -> bytes:
    """A serialized response of ``GetBlob`` that ends with ``content``.

    Protobuf would copy the content once for each level of messages.
    """
    head = _part(ValuePart(0, b"", record)).SerializeToString()
    field = _CONTENT_TAG + varint(len(content)) if content else b""
    size = len(head) + len(field) + len(content)
    return b"".join((_BLOB_TAG, varint(size), head, field, content))


def _outcome(outcome: PutOutcome) -> pb.PutBlobOutcome:
    return pb.PutBlobOutcome(
        inserted=outcome.inserted, sha256=outcome.record.digest, size_bytes=outcome.record.size
    )
