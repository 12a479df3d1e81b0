"""Generated from kcache/v1/kernel_cache.proto by `make proto`; not edited by hand."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, overload

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import estimate_pb2
from kcache_grpc._proto.kcache.v1 import explain_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2
from kcache_grpc._proto.kcache.v1 import support_pb2

class KernelCacheStub:
    @overload
    def __new__(cls, channel: grpc.Channel) -> KernelCacheStub: ...
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> KernelCacheAsyncStub: ...
    GetCapabilities: grpc.UnaryUnaryMultiCallable[kernel_cache_pb2.GetCapabilitiesRequest, kernel_cache_pb2.GetCapabilitiesResponse]
    NormalizeGraph: grpc.UnaryStreamMultiCallable[kernel_cache_pb2.NormalizeGraphRequest, kernel_cache_pb2.NormalizeGraphResponse]
    StoreGraph: grpc.UnaryUnaryMultiCallable[kernel_cache_pb2.StoreGraphRequest, kernel_cache_pb2.StoreGraphResponse]
    LookupGraph: grpc.UnaryUnaryMultiCallable[kernel_cache_pb2.LookupGraphRequest, kernel_cache_pb2.LookupGraphResponse]
    GetSpec: grpc.UnaryStreamMultiCallable[kernel_cache_pb2.GetSpecRequest, kernel_cache_pb2.GetSpecResponse]
    CountSpecs: grpc.UnaryUnaryMultiCallable[kernel_cache_pb2.CountSpecsRequest, kernel_cache_pb2.CountSpecsResponse]
    GetKernels: grpc.UnaryStreamMultiCallable[kernel_cache_pb2.GetKernelsRequest, kernel_cache_pb2.GetKernelsResponse]
    UploadProgram: grpc.StreamUnaryMultiCallable[kernel_cache_pb2.UploadProgramRequest, kernel_cache_pb2.UploadProgramResponse]
    GetUpload: grpc.UnaryUnaryMultiCallable[kernel_cache_pb2.GetUploadRequest, kernel_cache_pb2.GetUploadResponse]
    CompileKernel: grpc.UnaryStreamMultiCallable[kernel_cache_pb2.CompileKernelRequest, kernel_cache_pb2.CompileKernelResponse]
    CompileKernels: grpc.UnaryStreamMultiCallable[kernel_cache_pb2.CompileKernelsRequest, kernel_cache_pb2.CompileKernelsResponse]
    ListKernels: grpc.UnaryUnaryMultiCallable[kernel_cache_pb2.ListKernelsRequest, kernel_cache_pb2.ListKernelsResponse]
    ReadArtifact: grpc.UnaryStreamMultiCallable[kernel_cache_pb2.ReadArtifactRequest, kernel_cache_pb2.ReadArtifactResponse]
    Explain: grpc.UnaryUnaryMultiCallable[explain_pb2.ExplainRequest, explain_pb2.ExplainResponse]
    EstimateCompile: grpc.UnaryUnaryMultiCallable[estimate_pb2.EstimateCompileRequest, estimate_pb2.EstimateCompileResponse]
    CheckProgram: grpc.UnaryUnaryMultiCallable[support_pb2.CheckProgramRequest, support_pb2.CheckProgramResponse]
    GetStats: grpc.UnaryUnaryMultiCallable[kernel_cache_pb2.GetStatsRequest, kernel_cache_pb2.GetStatsResponse]

class KernelCacheAsyncStub:
    GetCapabilities: grpc.aio.UnaryUnaryMultiCallable[kernel_cache_pb2.GetCapabilitiesRequest, kernel_cache_pb2.GetCapabilitiesResponse]
    NormalizeGraph: grpc.aio.UnaryStreamMultiCallable[kernel_cache_pb2.NormalizeGraphRequest, kernel_cache_pb2.NormalizeGraphResponse]
    StoreGraph: grpc.aio.UnaryUnaryMultiCallable[kernel_cache_pb2.StoreGraphRequest, kernel_cache_pb2.StoreGraphResponse]
    LookupGraph: grpc.aio.UnaryUnaryMultiCallable[kernel_cache_pb2.LookupGraphRequest, kernel_cache_pb2.LookupGraphResponse]
    GetSpec: grpc.aio.UnaryStreamMultiCallable[kernel_cache_pb2.GetSpecRequest, kernel_cache_pb2.GetSpecResponse]
    CountSpecs: grpc.aio.UnaryUnaryMultiCallable[kernel_cache_pb2.CountSpecsRequest, kernel_cache_pb2.CountSpecsResponse]
    GetKernels: grpc.aio.UnaryStreamMultiCallable[kernel_cache_pb2.GetKernelsRequest, kernel_cache_pb2.GetKernelsResponse]
    UploadProgram: grpc.aio.StreamUnaryMultiCallable[kernel_cache_pb2.UploadProgramRequest, kernel_cache_pb2.UploadProgramResponse]
    GetUpload: grpc.aio.UnaryUnaryMultiCallable[kernel_cache_pb2.GetUploadRequest, kernel_cache_pb2.GetUploadResponse]
    CompileKernel: grpc.aio.UnaryStreamMultiCallable[kernel_cache_pb2.CompileKernelRequest, kernel_cache_pb2.CompileKernelResponse]
    CompileKernels: grpc.aio.UnaryStreamMultiCallable[kernel_cache_pb2.CompileKernelsRequest, kernel_cache_pb2.CompileKernelsResponse]
    ListKernels: grpc.aio.UnaryUnaryMultiCallable[kernel_cache_pb2.ListKernelsRequest, kernel_cache_pb2.ListKernelsResponse]
    ReadArtifact: grpc.aio.UnaryStreamMultiCallable[kernel_cache_pb2.ReadArtifactRequest, kernel_cache_pb2.ReadArtifactResponse]
    Explain: grpc.aio.UnaryUnaryMultiCallable[explain_pb2.ExplainRequest, explain_pb2.ExplainResponse]
    EstimateCompile: grpc.aio.UnaryUnaryMultiCallable[estimate_pb2.EstimateCompileRequest, estimate_pb2.EstimateCompileResponse]
    CheckProgram: grpc.aio.UnaryUnaryMultiCallable[support_pb2.CheckProgramRequest, support_pb2.CheckProgramResponse]
    GetStats: grpc.aio.UnaryUnaryMultiCallable[kernel_cache_pb2.GetStatsRequest, kernel_cache_pb2.GetStatsResponse]

class KernelCacheServicer:
    def GetCapabilities(self, request: kernel_cache_pb2.GetCapabilitiesRequest, context: Any) -> kernel_cache_pb2.GetCapabilitiesResponse | Awaitable[kernel_cache_pb2.GetCapabilitiesResponse]: ...
    def NormalizeGraph(self, request: kernel_cache_pb2.NormalizeGraphRequest, context: Any) -> Iterator[kernel_cache_pb2.NormalizeGraphResponse] | AsyncIterator[kernel_cache_pb2.NormalizeGraphResponse]: ...
    def StoreGraph(self, request: kernel_cache_pb2.StoreGraphRequest, context: Any) -> kernel_cache_pb2.StoreGraphResponse | Awaitable[kernel_cache_pb2.StoreGraphResponse]: ...
    def LookupGraph(self, request: kernel_cache_pb2.LookupGraphRequest, context: Any) -> kernel_cache_pb2.LookupGraphResponse | Awaitable[kernel_cache_pb2.LookupGraphResponse]: ...
    def GetSpec(self, request: kernel_cache_pb2.GetSpecRequest, context: Any) -> Iterator[kernel_cache_pb2.GetSpecResponse] | AsyncIterator[kernel_cache_pb2.GetSpecResponse]: ...
    def CountSpecs(self, request: kernel_cache_pb2.CountSpecsRequest, context: Any) -> kernel_cache_pb2.CountSpecsResponse | Awaitable[kernel_cache_pb2.CountSpecsResponse]: ...
    def GetKernels(self, request: kernel_cache_pb2.GetKernelsRequest, context: Any) -> Iterator[kernel_cache_pb2.GetKernelsResponse] | AsyncIterator[kernel_cache_pb2.GetKernelsResponse]: ...
    def UploadProgram(self, request_iterator: Any, context: Any) -> kernel_cache_pb2.UploadProgramResponse | Awaitable[kernel_cache_pb2.UploadProgramResponse]: ...
    def GetUpload(self, request: kernel_cache_pb2.GetUploadRequest, context: Any) -> kernel_cache_pb2.GetUploadResponse | Awaitable[kernel_cache_pb2.GetUploadResponse]: ...
    def CompileKernel(self, request: kernel_cache_pb2.CompileKernelRequest, context: Any) -> Iterator[kernel_cache_pb2.CompileKernelResponse] | AsyncIterator[kernel_cache_pb2.CompileKernelResponse]: ...
    def CompileKernels(self, request: kernel_cache_pb2.CompileKernelsRequest, context: Any) -> Iterator[kernel_cache_pb2.CompileKernelsResponse] | AsyncIterator[kernel_cache_pb2.CompileKernelsResponse]: ...
    def ListKernels(self, request: kernel_cache_pb2.ListKernelsRequest, context: Any) -> kernel_cache_pb2.ListKernelsResponse | Awaitable[kernel_cache_pb2.ListKernelsResponse]: ...
    def ReadArtifact(self, request: kernel_cache_pb2.ReadArtifactRequest, context: Any) -> Iterator[kernel_cache_pb2.ReadArtifactResponse] | AsyncIterator[kernel_cache_pb2.ReadArtifactResponse]: ...
    def Explain(self, request: explain_pb2.ExplainRequest, context: Any) -> explain_pb2.ExplainResponse | Awaitable[explain_pb2.ExplainResponse]: ...
    def EstimateCompile(self, request: estimate_pb2.EstimateCompileRequest, context: Any) -> estimate_pb2.EstimateCompileResponse | Awaitable[estimate_pb2.EstimateCompileResponse]: ...
    def CheckProgram(self, request: support_pb2.CheckProgramRequest, context: Any) -> support_pb2.CheckProgramResponse | Awaitable[support_pb2.CheckProgramResponse]: ...
    def GetStats(self, request: kernel_cache_pb2.GetStatsRequest, context: Any) -> kernel_cache_pb2.GetStatsResponse | Awaitable[kernel_cache_pb2.GetStatsResponse]: ...

def add_KernelCacheServicer_to_server(servicer: KernelCacheServicer, server: grpc.Server | grpc.aio.Server) -> None: ...
