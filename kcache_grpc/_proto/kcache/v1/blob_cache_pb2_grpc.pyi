"""Generated from kcache/v1/blob_cache.proto by `make proto`; not edited by hand."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, overload

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import blob_cache_pb2

class BlobCacheStub:
    @overload
    def __new__(cls, channel: grpc.Channel) -> BlobCacheStub: ...
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> BlobCacheAsyncStub: ...
    GetBlob: grpc.UnaryUnaryMultiCallable[blob_cache_pb2.GetBlobRequest, blob_cache_pb2.GetBlobResponse]
    GetBlobs: grpc.UnaryStreamMultiCallable[blob_cache_pb2.GetBlobsRequest, blob_cache_pb2.GetBlobsResponse]
    PutBlobs: grpc.StreamUnaryMultiCallable[blob_cache_pb2.PutBlobsRequest, blob_cache_pb2.PutBlobsResponse]

class BlobCacheAsyncStub:
    GetBlob: grpc.aio.UnaryUnaryMultiCallable[blob_cache_pb2.GetBlobRequest, blob_cache_pb2.GetBlobResponse]
    GetBlobs: grpc.aio.UnaryStreamMultiCallable[blob_cache_pb2.GetBlobsRequest, blob_cache_pb2.GetBlobsResponse]
    PutBlobs: grpc.aio.StreamUnaryMultiCallable[blob_cache_pb2.PutBlobsRequest, blob_cache_pb2.PutBlobsResponse]

class BlobCacheServicer:
    def GetBlob(self, request: blob_cache_pb2.GetBlobRequest, context: Any) -> blob_cache_pb2.GetBlobResponse | Awaitable[blob_cache_pb2.GetBlobResponse]: ...
    def GetBlobs(self, request: blob_cache_pb2.GetBlobsRequest, context: Any) -> Iterator[blob_cache_pb2.GetBlobsResponse] | AsyncIterator[blob_cache_pb2.GetBlobsResponse]: ...
    def PutBlobs(self, request_iterator: Any, context: Any) -> blob_cache_pb2.PutBlobsResponse | Awaitable[blob_cache_pb2.PutBlobsResponse]: ...

def add_BlobCacheServicer_to_server(servicer: BlobCacheServicer, server: grpc.Server | grpc.aio.Server) -> None: ...
