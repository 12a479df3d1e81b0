"""Replies of ``GetBlob``, whose content is not copied out of the received message."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_grpc._proto.kcache.v1 import blob_cache_pb2 as pb

#: Tags (number and wire type) of the fields that a whole value has, as protobuf encodes them.
_BLOB = pb.GetBlobResponse.BLOB_FIELD_NUMBER << 3 | 2
_INDEX = pb.BlobPart.INDEX_FIELD_NUMBER << 3
_SHA256 = pb.BlobPart.SHA256_FIELD_NUMBER << 3 | 2
_SIZE = pb.BlobPart.SIZE_BYTES_FIELD_NUMBER << 3
_PRODUCTION_TIME = pb.BlobPart.PRODUCTION_TIME_FIELD_NUMBER << 3 | 2
_CONTENT = pb.BlobPart.CONTENT_FIELD_NUMBER << 3 | 2


@dataclass(slots=True)
class BlobReply:
    """A ``GetBlobResponse``. ``stored``: whether it has a value."""

    stored: bool = False
    sha256: bytes = b""
    size: int = 0
    content: bytes | memoryview = b""

    @classmethod
    def FromString(cls, s: bytes) -> BlobReply:  # noqa: N802  (as of protobuf's messages)
        """Reads a message. Raises ``DecodeError``.

        A message of another form than servers send is left to protobuf, which copies the content twice.
        """
        try:
            reply = _read(s)
        except IndexError:
            reply = None
        return reply or _parsed(s)


def _parsed(data: bytes) -> BlobReply:
    message = pb.GetBlobResponse.FromString(data)
    blob = message.blob
    return BlobReply(message.HasField("blob"), blob.sha256, blob.size_bytes, blob.content)


def _read(data: bytes) -> BlobReply | None:
    """A message with one value whose fields are known and come once, in order; ``None`` for any other.

    Raises ``IndexError`` where the message ends too early.
    """
    if data[0] != _BLOB:
        return None
    size, at = _varint(data, 1)
    if at + size != len(data):
        return None
    reply, last = BlobReply(True), 0
    while at < len(data):
        tag = data[at]
        if tag <= last:
            return None
        last = tag
        number, at = _varint(data, at + 1)
        if tag == _SIZE:
            reply.size = number
        elif tag in (_SHA256, _PRODUCTION_TIME, _CONTENT):
            begin, at = at, at + number
            if tag == _SHA256:
                reply.sha256 = data[begin:at]
            elif tag == _CONTENT:
                reply.content = memoryview(data)[begin:at]
        elif tag != _INDEX:
            return None
    return reply if at == len(data) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends. One of more than 5 bytes is left to protobuf: raises ``IndexError``."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for position in range(1, 5):
        byte = data[at + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, at + position + 1
    raise IndexError("a number of more than 5 bytes")
