"""Generated from kcache/v1/admin.proto by `make proto`; not edited by hand."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, overload

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import admin_pb2

class AdminStub:
    @overload
    def __new__(cls, channel: grpc.Channel) -> AdminStub: ...
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> AdminAsyncStub: ...
    Collect: grpc.UnaryStreamMultiCallable[admin_pb2.CollectRequest, admin_pb2.CollectResponse]
    SetQuota: grpc.UnaryUnaryMultiCallable[admin_pb2.SetQuotaRequest, admin_pb2.SetQuotaResponse]
    ListQuotas: grpc.UnaryUnaryMultiCallable[admin_pb2.ListQuotasRequest, admin_pb2.ListQuotasResponse]
    Pin: grpc.UnaryUnaryMultiCallable[admin_pb2.PinRequest, admin_pb2.PinResponse]
    Unpin: grpc.UnaryUnaryMultiCallable[admin_pb2.UnpinRequest, admin_pb2.UnpinResponse]
    ListPins: grpc.UnaryUnaryMultiCallable[admin_pb2.ListPinsRequest, admin_pb2.ListPinsResponse]
    RaiseEpoch: grpc.UnaryUnaryMultiCallable[admin_pb2.RaiseEpochRequest, admin_pb2.RaiseEpochResponse]
    DisownToolchain: grpc.UnaryUnaryMultiCallable[admin_pb2.DisownToolchainRequest, admin_pb2.DisownToolchainResponse]
    SetTargetMatch: grpc.UnaryUnaryMultiCallable[admin_pb2.SetTargetMatchRequest, admin_pb2.SetTargetMatchResponse]
    SetTrustedRoles: grpc.UnaryUnaryMultiCallable[admin_pb2.SetTrustedRolesRequest, admin_pb2.SetTrustedRolesResponse]
    Verify: grpc.UnaryStreamMultiCallable[admin_pb2.VerifyRequest, admin_pb2.VerifyResponse]

class AdminAsyncStub:
    Collect: grpc.aio.UnaryStreamMultiCallable[admin_pb2.CollectRequest, admin_pb2.CollectResponse]
    SetQuota: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.SetQuotaRequest, admin_pb2.SetQuotaResponse]
    ListQuotas: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.ListQuotasRequest, admin_pb2.ListQuotasResponse]
    Pin: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.PinRequest, admin_pb2.PinResponse]
    Unpin: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.UnpinRequest, admin_pb2.UnpinResponse]
    ListPins: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.ListPinsRequest, admin_pb2.ListPinsResponse]
    RaiseEpoch: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.RaiseEpochRequest, admin_pb2.RaiseEpochResponse]
    DisownToolchain: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.DisownToolchainRequest, admin_pb2.DisownToolchainResponse]
    SetTargetMatch: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.SetTargetMatchRequest, admin_pb2.SetTargetMatchResponse]
    SetTrustedRoles: grpc.aio.UnaryUnaryMultiCallable[admin_pb2.SetTrustedRolesRequest, admin_pb2.SetTrustedRolesResponse]
    Verify: grpc.aio.UnaryStreamMultiCallable[admin_pb2.VerifyRequest, admin_pb2.VerifyResponse]

class AdminServicer:
    def Collect(self, request: admin_pb2.CollectRequest, context: Any) -> Iterator[admin_pb2.CollectResponse] | AsyncIterator[admin_pb2.CollectResponse]: ...
    def SetQuota(self, request: admin_pb2.SetQuotaRequest, context: Any) -> admin_pb2.SetQuotaResponse | Awaitable[admin_pb2.SetQuotaResponse]: ...
    def ListQuotas(self, request: admin_pb2.ListQuotasRequest, context: Any) -> admin_pb2.ListQuotasResponse | Awaitable[admin_pb2.ListQuotasResponse]: ...
    def Pin(self, request: admin_pb2.PinRequest, context: Any) -> admin_pb2.PinResponse | Awaitable[admin_pb2.PinResponse]: ...
    def Unpin(self, request: admin_pb2.UnpinRequest, context: Any) -> admin_pb2.UnpinResponse | Awaitable[admin_pb2.UnpinResponse]: ...
    def ListPins(self, request: admin_pb2.ListPinsRequest, context: Any) -> admin_pb2.ListPinsResponse | Awaitable[admin_pb2.ListPinsResponse]: ...
    def RaiseEpoch(self, request: admin_pb2.RaiseEpochRequest, context: Any) -> admin_pb2.RaiseEpochResponse | Awaitable[admin_pb2.RaiseEpochResponse]: ...
    def DisownToolchain(self, request: admin_pb2.DisownToolchainRequest, context: Any) -> admin_pb2.DisownToolchainResponse | Awaitable[admin_pb2.DisownToolchainResponse]: ...
    def SetTargetMatch(self, request: admin_pb2.SetTargetMatchRequest, context: Any) -> admin_pb2.SetTargetMatchResponse | Awaitable[admin_pb2.SetTargetMatchResponse]: ...
    def SetTrustedRoles(self, request: admin_pb2.SetTrustedRolesRequest, context: Any) -> admin_pb2.SetTrustedRolesResponse | Awaitable[admin_pb2.SetTrustedRolesResponse]: ...
    def Verify(self, request: admin_pb2.VerifyRequest, context: Any) -> Iterator[admin_pb2.VerifyResponse] | AsyncIterator[admin_pb2.VerifyResponse]: ...

def add_AdminServicer_to_server(servicer: AdminServicer, server: grpc.Server | grpc.aio.Server) -> None: ...
