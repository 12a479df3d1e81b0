"""Generated from kcache/v1/audit.proto by `make proto`; not edited by hand."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, overload

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import audit_pb2

class AuditStub:
    @overload
    def __new__(cls, channel: grpc.Channel) -> AuditStub: ...
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> AuditAsyncStub: ...
    ListEvents: grpc.UnaryUnaryMultiCallable[audit_pb2.ListEventsRequest, audit_pb2.ListEventsResponse]
    ExportEvents: grpc.UnaryStreamMultiCallable[audit_pb2.ExportEventsRequest, audit_pb2.ExportEventsResponse]
    GetEvent: grpc.UnaryUnaryMultiCallable[audit_pb2.GetEventRequest, audit_pb2.GetEventResponse]
    ListSeals: grpc.UnaryUnaryMultiCallable[audit_pb2.ListSealsRequest, audit_pb2.ListSealsResponse]
    GetHeads: grpc.UnaryUnaryMultiCallable[audit_pb2.GetHeadsRequest, audit_pb2.GetHeadsResponse]

class AuditAsyncStub:
    ListEvents: grpc.aio.UnaryUnaryMultiCallable[audit_pb2.ListEventsRequest, audit_pb2.ListEventsResponse]
    ExportEvents: grpc.aio.UnaryStreamMultiCallable[audit_pb2.ExportEventsRequest, audit_pb2.ExportEventsResponse]
    GetEvent: grpc.aio.UnaryUnaryMultiCallable[audit_pb2.GetEventRequest, audit_pb2.GetEventResponse]
    ListSeals: grpc.aio.UnaryUnaryMultiCallable[audit_pb2.ListSealsRequest, audit_pb2.ListSealsResponse]
    GetHeads: grpc.aio.UnaryUnaryMultiCallable[audit_pb2.GetHeadsRequest, audit_pb2.GetHeadsResponse]

class AuditServicer:
    def ListEvents(self, request: audit_pb2.ListEventsRequest, context: Any) -> audit_pb2.ListEventsResponse | Awaitable[audit_pb2.ListEventsResponse]: ...
    def ExportEvents(self, request: audit_pb2.ExportEventsRequest, context: Any) -> Iterator[audit_pb2.ExportEventsResponse] | AsyncIterator[audit_pb2.ExportEventsResponse]: ...
    def GetEvent(self, request: audit_pb2.GetEventRequest, context: Any) -> audit_pb2.GetEventResponse | Awaitable[audit_pb2.GetEventResponse]: ...
    def ListSeals(self, request: audit_pb2.ListSealsRequest, context: Any) -> audit_pb2.ListSealsResponse | Awaitable[audit_pb2.ListSealsResponse]: ...
    def GetHeads(self, request: audit_pb2.GetHeadsRequest, context: Any) -> audit_pb2.GetHeadsResponse | Awaitable[audit_pb2.GetHeadsResponse]: ...

def add_AuditServicer_to_server(servicer: AuditServicer, server: grpc.Server | grpc.aio.Server) -> None: ...
