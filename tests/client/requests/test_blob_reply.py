"""Replies of ``GetBlob`` are read as protobuf reads them, in every form that protobuf allows."""

from __future__ import annotations

import hashlib

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc._proto.kcache.v1 import blob_cache_pb2 as pb
from kcache_grpc.client.requests.blob_reply import BlobReply

pytestmark = pytest.mark.issue(number=20, point=1)

contents = st.one_of(
    st.binary(max_size=300), st.sampled_from([bytes(n) for n in (1 << 14, 1 << 16, 1 << 20)])
)
parts = st.builds(
    pb.BlobPart,
    index=st.sampled_from([0, 1, 2**32 - 1]),
    sha256=st.one_of(st.binary(max_size=3), st.binary(min_size=32, max_size=32)),
    size_bytes=st.sampled_from([0, 1, 127, 128, 65536, 2**34, 2**35, 2**64 - 1]),
    content=contents,
)


def expected(data: bytes) -> tuple[bool, bytes, int, bytes]:
    message = pb.GetBlobResponse.FromString(data)
    blob = message.blob
    return message.HasField("blob"), blob.sha256, blob.size_bytes, blob.content


def read(data: bytes) -> tuple[bool, bytes, int, bytes]:
    reply = BlobReply.FromString(data)
    return reply.stored, reply.sha256, reply.size, bytes(reply.content)


def check(data: bytes) -> None:
    try:
        want = expected(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            read(data)
    else:
        assert read(data) == want


@given(parts, st.integers(0, 2**40))
def test_a_whole_value_is_read_as_protobuf_reads_it(part: pb.BlobPart, seconds: int) -> None:
    part.production_time.seconds = seconds
    data = pb.GetBlobResponse(blob=part).SerializeToString()
    assert read(data) == expected(data)


@given(parts, parts, st.binary(max_size=40))
def test_any_bytes_are_read_as_protobuf_reads_them(
    first: pb.BlobPart, second: pb.BlobPart, end: bytes
) -> None:
    merged = (
        pb.GetBlobResponse(blob=first).SerializeToString()
        + pb.GetBlobResponse(blob=second).SerializeToString()
    )
    inner = first.SerializeToString() + end  # repeated, unknown or damaged fields
    nested = b"\x0a" + len(inner).to_bytes(1, "big") + inner if len(inner) < 128 else merged
    for data in (b"", merged, merged[:-1], nested, end, merged + end):
        check(data)


def test_the_content_of_a_whole_value_is_not_copied() -> None:
    content = bytes(1 << 16)
    part = pb.BlobPart(sha256=hashlib.sha256(content).digest(), size_bytes=len(content), content=content)
    data = pb.GetBlobResponse(blob=part).SerializeToString()
    reply = BlobReply.FromString(data)
    assert isinstance(reply.content, memoryview)
    assert reply.content.obj is data
