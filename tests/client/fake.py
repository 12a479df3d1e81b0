"""A service that lies on demand: real signatures and real gRPC, no compiler, every reply can be bent."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from kcache_grpc._proto.kcache.v1 import common_pb2, kernel_cache_pb2_grpc, manifest_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.identity import KernelIdentity, toolchain_digest
from kcache_grpc.model.manifest import ArtifactRef, Binding, ConstantBinding, Manifest, TensorSpec
from kcache_grpc.model.program import Program, program_digest
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signed, Signer, server_id
from kcache_grpc.model.wire import (
    artifact_kind_to_proto,
    format_from_proto,
    numerics_from_proto,
    options_from_proto,
    target_from_proto,
)
from tests.ports import free_port

CONSTANT = b"weights!" * 300_000  # above one chunk
TENSOR = TensorSpec("f32", ("4",))

Bend = Callable[[Any], Any]


class Rejection(Exception):
    """Ends a call with a status; with ``reason`` it carries an ErrorInfo."""

    def __init__(self, code: grpc.StatusCode, message: str = "", reason: str = "", **metadata: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message or code.name
        self.reason = reason
        self.metadata = metadata


class FakeService(kernel_cache_pb2_grpc.KernelCacheServicer):
    """Set the attributes; ``bend[name]`` changes a reply of that method, or raises ``Rejection``."""

    def __init__(self) -> None:
        self.signer = Signer.generate()
        self.epoch = 1
        self.abi = 1
        self.toolchain: tuple[tuple[str, str], ...] = (("llvm", "22"),)
        self.namespace = "default"
        self.limits = pb.ServerLimits(max_inline_program_bytes=1 << 20, max_program_bytes=16 << 20)
        self.programs: dict[bytes, Program] = {}
        self.partial: dict[bytes, bytes] = {}
        self.compiled: dict[bytes, pb.KernelResult] = {}
        self.artifacts: dict[bytes, bytes] = {}
        self.constants: tuple[bytes, ...] = ()
        self.inline = True
        self.change_binding: Callable[[Binding], Binding] = lambda value: value
        self.change_manifest: Callable[[Manifest], Manifest] = lambda value: value
        self.change_signed: Callable[[Signed], Signed] = lambda value: value
        self.bend: dict[str, Bend] = {}
        self.calls: Counter[str] = Counter()
        #: Kernels that were asked for by CompileKernels.
        self.together = 0
        self.read_offsets: list[int] = []
        self.metadata: dict[str, str] = {}
        self.headers: list[common_pb2.RequestHeader] = []
        self.hold = threading.Event()
        self.hold.set()
        #: How often a server of it went away: what is held then goes no further.
        self.stops = 0
        self.lock = threading.Lock()

    # What the service knows.

    def kernel(
        self, program: Program, options: common_pb2.Options, target: common_pb2.Target
    ) -> pb.KernelResult:
        """A signed kernel for a program, whose shared object is not one."""
        code = b"\x7fELF not really " + program.digest
        wanted = options_from_proto(options)
        constants = tuple(
            ConstantBinding(TensorSpec("i8", (str(len(data)),)), hashlib.sha256(data).digest(), len(data))
            for data in self.constants
        )
        for data in (code, *self.constants):
            self.artifacts[hashlib.sha256(data).digest()] = data
        spec_digest = hashlib.sha256(b"spec" + program.digest).digest()
        binding = Binding(
            program_digest=program.digest,
            numerics=wanted.numerics,
            namespace=self.namespace,
            epoch=self.epoch,
            key=len(self.compiled) + 1,
            spec_digest=spec_digest,
            inputs=(TENSOR,),
            arg_names=("x",),
            outputs=(TENSOR,),
            symbols=(),
            symbol_values=(),
            constants=constants,
        )
        binding = self.change_binding(binding)
        toolchain = toolchain_digest(self.toolchain)
        machine = target_from_proto(target)
        identity = KernelIdentity(spec_digest, binding.arg_spec, "", str(machine), str(wanted), toolchain)
        manifest = Manifest(
            kernel_digest=identity.digest,
            spec_digest=spec_digest,
            key=binding.key,
            namespace=self.namespace,
            epoch=self.epoch,
            target=machine,
            options=wanted,
            toolchain_digest=toolchain,
            guard="",
            arg_spec=binding.arg_spec,
            abi=self.abi,
            inputs=(TENSOR,),
            constants=tuple(constant.type for constant in constants),
            outputs=(TENSOR,),
            symbols=(),
            workspace_bytes="0",
            launches=(),
            required_isa=(),
            error_codes=(),
            artifacts=(ArtifactRef("so", hashlib.sha256(code).digest(), len(code)),),
            server_version="fake",
            compile_time=datetime(2026, 1, 1, tzinfo=timezone.utc),
            compile_seconds=0.5,
            toolchain=self.toolchain,
        )
        manifest = self.change_manifest(manifest)
        return pb.KernelResult(
            status=pb.KERNEL_STATUS_FOUND,
            key=binding.key,
            binding=self._signed(BINDING_DOMAIN, binding.to_bytes()),
            manifest=self._signed(MANIFEST_DOMAIN, manifest.to_bytes()),
        )

    def _signed(self, domain: bytes, payload: bytes) -> common_pb2.SignedBytes:
        signed = self.change_signed(self.signer.sign(domain, payload))
        return common_pb2.SignedBytes(
            payload=signed.payload, signature=signed.signature, key_id=signed.key_id
        )

    def _program(self, source: common_pb2.GraphSource) -> Program:
        if source.WhichOneof("source") == "program":
            program = Program(format_from_proto(source.program.format), source.program.body)
            self.programs[program.digest] = program
            return program
        if source.program_digest not in self.programs:
            raise Rejection(grpc.StatusCode.NOT_FOUND, "not known", "PROGRAM_REQUIRED")
        return self.programs[source.program_digest]

    # The methods.

    def GetCapabilities(self, request: pb.GetCapabilitiesRequest, context: Any) -> Any:
        return pb.GetCapabilitiesResponse(
            server_version="fake",
            server_id=server_id(self.signer.public_key),
            public_key=self.signer.public_key,
            epoch=self.epoch,
            toolchain=[manifest_pb2.Ingredient(name=name, value=value) for name, value in self.toolchain],
            toolchain_digest=toolchain_digest(self.toolchain),
            limits=self.limits,
            abis=[1],
        )

    def GetKernels(self, request: pb.GetKernelsRequest, context: Any) -> Iterator[Any]:
        for index, query in enumerate(request.queries):
            result = pb.KernelResult(index=index, status=pb.KERNEL_STATUS_NEED_PROGRAM)
            name = wanted(query.program_digest, request)
            if name in self.compiled:
                result.CopyFrom(self.compiled[name])
                result.index = index
                if self.inline and manifest_pb2.ARTIFACT_KIND_SHARED_OBJECT in request.artifact_kinds:
                    code = self._code(query.program_digest)
                    ref = manifest_pb2.ArtifactRef(
                        kind=artifact_kind_to_proto("so"),
                        sha256=hashlib.sha256(code).digest(),
                        size_bytes=len(code),
                    )
                    result.artifacts.append(pb.InlineArtifact(ref=ref, data=code))
            elif query.program_digest in self.programs:
                result.status = pb.KERNEL_STATUS_NEED_COMPILE
            yield pb.GetKernelsResponse(results=[result])

    def _code(self, digest: bytes) -> bytes:
        return b"\x7fELF not really " + digest

    def CompileKernel(self, request: pb.CompileKernelRequest, context: Any) -> Iterator[Any]:
        program = self._program(request.graph)
        stage = pb.CompileStage(stage="lower")
        yield pb.CompileKernelResponse(stage=stage)
        stops = self.stops
        self.hold.wait(120)
        if self.stops != stops:
            raise Rejection(grpc.StatusCode.UNAVAILABLE, "stopped")
        yield pb.CompileKernelResponse(heartbeat=pb.Heartbeat())
        with self.lock:
            name = wanted(program.digest, request)
            known = name in self.compiled
            if not known:
                self.compiled[name] = self.kernel(program, request.options, request.target)
        kernel = self.compiled[name]
        origin = pb.ORIGIN_STORED if known else pb.ORIGIN_COMPILED
        result = pb.CompileResult(
            key=kernel.key, origin=origin, binding=kernel.binding, manifest=kernel.manifest
        )
        yield pb.CompileKernelResponse(result=result)
        code = self._code(program.digest)
        ref = manifest_pb2.ArtifactRef(sha256=hashlib.sha256(code).digest(), size_bytes=len(code))
        half = len(code) // 2
        for start, data in ((0, code[:half]), (half, code[half:])):
            yield pb.CompileKernelResponse(chunk=pb.ArtifactChunk(ref=ref, offset=start, data=data))

    def CompileKernels(self, request: pb.CompileKernelsRequest, context: Any) -> Iterator[Any]:
        bend = self.bend.get("CompileKernel", lambda reply: reply)
        for index, each in enumerate(request.requests):
            self.together += 1
            try:
                for reply in self.CompileKernel(each, context):
                    event = pb.CompileKernelsEvent(index=index, reply=bend(reply))
                    yield pb.CompileKernelsResponse(events=[event])
            except Rejection as rejection:
                event = pb.CompileKernelsEvent(index=index, failure=status_of(rejection))
                yield pb.CompileKernelsResponse(events=[event])

    def ReadArtifact(self, request: pb.ReadArtifactRequest, context: Any) -> Iterator[Any]:
        self.read_offsets.append(request.read_offset)
        if request.sha256 not in self.artifacts:
            raise Rejection(grpc.StatusCode.NOT_FOUND, "evicted", "NOT_FOUND")
        data = self.artifacts[request.sha256]
        for start in range(request.read_offset, len(data), 1 << 20):
            yield pb.ReadArtifactResponse(data=data[start : start + (1 << 20)], size_bytes=len(data))

    def GetUpload(self, request: pb.GetUploadRequest, context: Any) -> Any:
        held = self.partial.get(request.program_digest, b"")
        return pb.GetUploadResponse(
            committed_size_bytes=len(held), complete=request.program_digest in self.programs
        )

    def UploadProgram(self, request_iterator: Iterator[pb.UploadProgramRequest], context: Any) -> Any:
        first = next(request_iterator)
        held = self.partial.get(first.program_digest, b"")
        assert first.write_offset == len(held)
        held += first.data
        self.partial[first.program_digest] = held
        for request in request_iterator:
            held += request.data
            self.partial[first.program_digest] = held
            if "UploadPart" in self.bend:
                self.bend["UploadPart"](held)
        format = format_from_proto(first.format)
        assert program_digest(format, held) == first.program_digest
        self.programs[first.program_digest] = Program(format, held)
        return pb.UploadProgramResponse(
            committed_size_bytes=len(held), complete=True, program_digest=first.program_digest
        )

    def StoreGraph(self, request: pb.StoreGraphRequest, context: Any) -> Any:
        program = self._program(request.graph)
        options = common_pb2.Options(numerics=request.numerics)
        target = common_pb2.Target(cpu=common_pb2.CpuTarget(isa="aarch64"))
        kernel = self.kernel(program, options, target)
        binding = Binding.from_bytes(kernel.binding.payload)
        return pb.StoreGraphResponse(
            key=binding.key, spec_digest=binding.spec_digest, created=True, binding=kernel.binding
        )

    def LookupGraph(self, request: pb.LookupGraphRequest, context: Any) -> Any:
        program = self._program(request.graph)
        if not any(name.startswith(program.digest) for name in self.compiled):
            return pb.LookupGraphResponse()
        return pb.LookupGraphResponse(spec=self._summary(1))

    def GetSpec(self, request: pb.GetSpecRequest, context: Any) -> Iterator[Any]:
        if request.key != 1:
            raise Rejection(grpc.StatusCode.NOT_FOUND, "no such key", "NOT_FOUND")
        yield pb.GetSpecResponse(spec=self._summary(request.key), text_chunk=b"canonical \xc3")
        yield pb.GetSpecResponse(text_chunk=b"\xa9 text")

    def _summary(self, key: int) -> pb.SpecSummary:
        text = "canonical é text".encode()
        return pb.SpecSummary(
            key=key,
            spec_digest=hashlib.sha256(text).digest(),
            numerics=common_pb2.NUMERICS_DEFAULT,
            canonicalizer=1,
            text_size_bytes=len(text),
        )

    def NormalizeGraph(self, request: pb.NormalizeGraphRequest, context: Any) -> Iterator[Any]:
        self._program(request.graph)
        text = f"kcache {numerics_from_proto(request.numerics)}".encode()
        yield pb.NormalizeGraphResponse(
            spec_digest=hashlib.sha256(text).digest(), text_size_bytes=len(text), text_chunk=text
        )

    def CountSpecs(self, request: pb.CountSpecsRequest, context: Any) -> Any:
        return pb.CountSpecsResponse(count=len(self.compiled))

    def GetStats(self, request: pb.GetStatsRequest, context: Any) -> Any:
        return pb.GetStatsResponse(specs=len(self.compiled), hits=7)


def wanted(digest: bytes, request: pb.GetKernelsRequest | pb.CompileKernelRequest) -> bytes:
    """A name for one kernel of one program."""
    return digest + request.target.SerializeToString() + request.options.SerializeToString()


class _Watch(grpc.ServerInterceptor):
    """Counts calls, bends replies, and turns ``Rejection`` into a status."""

    def __init__(self, service: FakeService) -> None:
        self._service = service

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        name = handler_call_details.method.rpartition("/")[2]
        bend = self._service.bend.get(name, lambda reply: reply)
        self._service.calls[name] += 1

        def unary(request: Any, context: Any) -> Any:
            try:
                self._service.metadata = dict(context.invocation_metadata())
                if hasattr(request, "header"):
                    self._service.headers.append(request.header)
                behavior = handler.unary_unary or handler.stream_unary
                return bend(behavior(request, context))
            except Rejection as rejection:
                reject(context, rejection)

        def stream(request: Any, context: Any) -> Iterator[Any]:
            try:
                for reply in handler.unary_stream(request, context):
                    yield bend(reply)
            except Rejection as rejection:
                reject(context, rejection)

        pair = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, **pair)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(unary, **pair)
        return grpc.unary_unary_rpc_method_handler(unary, **pair)


def status_of(rejection: Rejection) -> bytes:
    info = error_details_pb2.ErrorInfo(reason=rejection.reason, domain="kcache", metadata=rejection.metadata)
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=rejection.code.value[0], message=rejection.message, details=[detail])
    return status.SerializeToString()


def reject(context: Any, rejection: Rejection) -> None:
    if rejection.reason:
        context.set_trailing_metadata((("grpc-status-details-bin", status_of(rejection)),))
    context.abort(rejection.code, rejection.message)


class FakeServer:
    """``FakeService`` on a port of this machine; can go away and come back on the same port."""

    def __init__(self, service: FakeService, credentials: grpc.ServerCredentials | None = None) -> None:
        self.service = service
        self._credentials = credentials
        self.port = free_port()
        self._server: grpc.Server | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        server = grpc.server(
            ThreadPoolExecutor(40), interceptors=[_Watch(self.service)], options=[("grpc.so_reuseport", 0)]
        )
        kernel_cache_pb2_grpc.add_KernelCacheServicer_to_server(self.service, server)
        if self._credentials is None:
            self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        else:
            self.port = server.add_secure_port(f"127.0.0.1:{self.port}", self._credentials)
        server.start()
        self._server = server

    def stop(self) -> None:
        if self._server is not None:
            self.service.stops += 1
            stopped = self._server.stop(None)
            self.service.hold.set()
            stopped.wait()
            self._server = None


@contextmanager
def serving(service: FakeService, credentials: grpc.ServerCredentials | None = None) -> Iterator[FakeServer]:
    server = FakeServer(service, credentials)
    try:
        yield server
    finally:
        server.stop()


def once(rejection: Rejection, after: int = 0) -> Bend:
    """Rejects one reply, after some that pass."""
    state = {"passed": 0, "refused": False}

    def bend(reply: Any) -> Any:
        if state["passed"] >= after and not state["refused"]:
            state["refused"] = True
            raise rejection
        state["passed"] += 1
        return reply

    return bend


__all__ = ["CONSTANT", "FakeServer", "FakeService", "Rejection", "once", "replace", "serving"]
