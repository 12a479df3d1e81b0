"""Generated from kcache/v1/autotune.proto by `make proto`; not edited by hand."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, overload

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import autotune_pb2

class AutotuneStub:
    @overload
    def __new__(cls, channel: grpc.Channel) -> AutotuneStub: ...
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> AutotuneAsyncStub: ...
    RecordTimings: grpc.UnaryUnaryMultiCallable[autotune_pb2.RecordTimingsRequest, autotune_pb2.RecordTimingsResponse]
    ListTimings: grpc.UnaryUnaryMultiCallable[autotune_pb2.ListTimingsRequest, autotune_pb2.ListTimingsResponse]

class AutotuneAsyncStub:
    RecordTimings: grpc.aio.UnaryUnaryMultiCallable[autotune_pb2.RecordTimingsRequest, autotune_pb2.RecordTimingsResponse]
    ListTimings: grpc.aio.UnaryUnaryMultiCallable[autotune_pb2.ListTimingsRequest, autotune_pb2.ListTimingsResponse]

class AutotuneServicer:
    def RecordTimings(self, request: autotune_pb2.RecordTimingsRequest, context: Any) -> autotune_pb2.RecordTimingsResponse | Awaitable[autotune_pb2.RecordTimingsResponse]: ...
    def ListTimings(self, request: autotune_pb2.ListTimingsRequest, context: Any) -> autotune_pb2.ListTimingsResponse | Awaitable[autotune_pb2.ListTimingsResponse]: ...

def add_AutotuneServicer_to_server(servicer: AutotuneServicer, server: grpc.Server | grpc.aio.Server) -> None: ...
