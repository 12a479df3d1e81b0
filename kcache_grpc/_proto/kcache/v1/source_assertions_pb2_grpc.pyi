"""Generated from kcache/v1/source_assertions.proto by `make proto`; not edited by hand."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, overload

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import source_assertions_pb2

class SourceAssertionsStub:
    @overload
    def __new__(cls, channel: grpc.Channel) -> SourceAssertionsStub: ...
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> SourceAssertionsAsyncStub: ...
    GetAssertions: grpc.UnaryStreamMultiCallable[source_assertions_pb2.GetAssertionsRequest, source_assertions_pb2.GetAssertionsResponse]
    PutAssertion: grpc.UnaryUnaryMultiCallable[source_assertions_pb2.PutAssertionRequest, source_assertions_pb2.PutAssertionResponse]
    DisputeAssertion: grpc.UnaryUnaryMultiCallable[source_assertions_pb2.DisputeAssertionRequest, source_assertions_pb2.DisputeAssertionResponse]

class SourceAssertionsAsyncStub:
    GetAssertions: grpc.aio.UnaryStreamMultiCallable[source_assertions_pb2.GetAssertionsRequest, source_assertions_pb2.GetAssertionsResponse]
    PutAssertion: grpc.aio.UnaryUnaryMultiCallable[source_assertions_pb2.PutAssertionRequest, source_assertions_pb2.PutAssertionResponse]
    DisputeAssertion: grpc.aio.UnaryUnaryMultiCallable[source_assertions_pb2.DisputeAssertionRequest, source_assertions_pb2.DisputeAssertionResponse]

class SourceAssertionsServicer:
    def GetAssertions(self, request: source_assertions_pb2.GetAssertionsRequest, context: Any) -> Iterator[source_assertions_pb2.GetAssertionsResponse] | AsyncIterator[source_assertions_pb2.GetAssertionsResponse]: ...
    def PutAssertion(self, request: source_assertions_pb2.PutAssertionRequest, context: Any) -> source_assertions_pb2.PutAssertionResponse | Awaitable[source_assertions_pb2.PutAssertionResponse]: ...
    def DisputeAssertion(self, request: source_assertions_pb2.DisputeAssertionRequest, context: Any) -> source_assertions_pb2.DisputeAssertionResponse | Awaitable[source_assertions_pb2.DisputeAssertionResponse]: ...

def add_SourceAssertionsServicer_to_server(servicer: SourceAssertionsServicer, server: grpc.Server | grpc.aio.Server) -> None: ...
