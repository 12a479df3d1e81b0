"""Generated from kcache/v1/bundles.proto by `make proto`; not edited by hand."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, overload

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import bundles_pb2

class BundlesStub:
    @overload
    def __new__(cls, channel: grpc.Channel) -> BundlesStub: ...
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> BundlesAsyncStub: ...
    ExportBundle: grpc.UnaryStreamMultiCallable[bundles_pb2.ExportBundleRequest, bundles_pb2.ExportBundleResponse]
    ImportBundle: grpc.StreamStreamMultiCallable[bundles_pb2.ImportBundleRequest, bundles_pb2.ImportBundleResponse]

class BundlesAsyncStub:
    ExportBundle: grpc.aio.UnaryStreamMultiCallable[bundles_pb2.ExportBundleRequest, bundles_pb2.ExportBundleResponse]
    ImportBundle: grpc.aio.StreamStreamMultiCallable[bundles_pb2.ImportBundleRequest, bundles_pb2.ImportBundleResponse]

class BundlesServicer:
    def ExportBundle(self, request: bundles_pb2.ExportBundleRequest, context: Any) -> Iterator[bundles_pb2.ExportBundleResponse] | AsyncIterator[bundles_pb2.ExportBundleResponse]: ...
    def ImportBundle(self, request_iterator: Any, context: Any) -> Iterator[bundles_pb2.ImportBundleResponse] | AsyncIterator[bundles_pb2.ImportBundleResponse]: ...

def add_BundlesServicer_to_server(servicer: BundlesServicer, server: grpc.Server | grpc.aio.Server) -> None: ...
