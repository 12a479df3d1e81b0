"""``kcache.v1.KernelCache``: requests to values, values to responses, and nothing else.

Domain errors are raised as they are; ``guard.Guard`` turns them into statuses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from kcache_grpc._proto.kcache.v1 import explain_pb2, kernel_cache_pb2_grpc
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.errors import ArgumentError, ResourceExhausted
from kcache_grpc.model.explanation import explanation_to_proto
from kcache_grpc.model.wire import format_from_proto, numerics_from_proto
from kcache_grpc.server import translate
from kcache_grpc.server.guard import Call
from kcache_grpc.server.outbox import Outbox
from kcache_grpc.server.status import status_bytes
from kcache_grpc.service import Caller, KernelService
from kcache_grpc.service.uploads import UploadPlan
from kcache_grpc.service.values import Compiled, Stage

#: Compiles of one CompileKernels.
MOST_COMPILES = 64

_Reply = bytes | pb.CompileKernelResponse
_Write = Callable[[_Reply], Awaitable[None]]


class KernelCacheServicer(kernel_cache_pb2_grpc.KernelCacheServicer):
    """Translates. ``heartbeat``: most seconds without a message while a compile runs."""

    def __init__(self, service: KernelService, heartbeat: float) -> None:
        self._service = service
        self._heartbeat = heartbeat

    async def GetCapabilities(  # noqa: N802 - gRPC's names
        self, request: pb.GetCapabilitiesRequest, context: Call
    ) -> pb.GetCapabilitiesResponse:
        """What this server is."""
        return translate.capabilities(await self._service.capabilities(context.caller(request.header)))

    async def NormalizeGraph(  # noqa: N802
        self, request: pb.NormalizeGraphRequest, context: Call
    ) -> AsyncIterator[pb.NormalizeGraphResponse]:
        """Canonical form, nothing stored."""
        source = translate.graph_source(request.graph, self._service.limits)
        numerics = numerics_from_proto(request.numerics)
        value = await self._service.normalize(context.caller(request.header), source, numerics)
        for message in translate.normalized(value):
            yield message

    async def StoreGraph(  # noqa: N802
        self, request: pb.StoreGraphRequest, context: Call
    ) -> pb.StoreGraphResponse:
        """The key of a graph."""
        source = translate.graph_source(request.graph, self._service.limits)
        numerics = numerics_from_proto(request.numerics)
        stored = await self._service.store(context.caller(request.header), source, numerics)
        return pb.StoreGraphResponse(
            key=stored.graph.key,
            spec_digest=stored.graph.spec_digest,
            created=stored.created,
            binding=translate.signed(stored.graph.binding),
        )

    async def LookupGraph(  # noqa: N802
        self, request: pb.LookupGraphRequest, context: Call
    ) -> pb.LookupGraphResponse:
        """The spec of a graph, if it is stored."""
        source = translate.graph_source(request.graph, self._service.limits)
        numerics = numerics_from_proto(request.numerics)
        spec = await self._service.lookup(context.caller(request.header), source, numerics)
        return pb.LookupGraphResponse(spec=None if spec is None else translate.spec_summary(spec))

    async def GetSpec(  # noqa: N802
        self, request: pb.GetSpecRequest, context: Call
    ) -> AsyncIterator[pb.GetSpecResponse]:
        """A spec by key."""
        spec = await self._service.get_spec(context.caller(request.header), request.key)
        for message in translate.spec(spec):
            yield message

    async def CountSpecs(  # noqa: N802
        self, request: pb.CountSpecsRequest, context: Call
    ) -> pb.CountSpecsResponse:
        """How many specs there are."""
        return pb.CountSpecsResponse(count=await self._service.count(context.caller(request.header)))

    async def GetStats(  # noqa: N802
        self, request: pb.GetStatsRequest, context: Call
    ) -> pb.GetStatsResponse:
        """Counters."""
        return translate.stats(
            *await self._service.stats(context.caller(request.header)), self._service.audit_dropped
        )

    # gRPC takes both; its type stubs know generators only.
    async def GetKernels(  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: pb.GetKernelsRequest, context: Call
    ) -> bytes:
        """Many kernels by program digest. Writes its messages and returns the last one."""
        results = await self._service.get_kernels(
            context.caller(request.header),
            [query.program_digest for query in request.queries],
            translate.kernel_wish(request.target, request.options, request.shapes),
            translate.kinds(request.artifact_kinds),
            request.inline_budget_bytes,
        )
        last = b""
        for message in translate.kernel_results(results):
            if last:
                await context.write(last)
            last = message
        return last

    async def CompileKernel(  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: pb.CompileKernelRequest, context: Call
    ) -> _Reply:
        """Finds or compiles one kernel. Writes its messages and returns the last one."""
        return await self._compile(context.caller(request.header), request, context, context.write)

    async def CompileKernels(  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: pb.CompileKernelsRequest, context: Call
    ) -> bytes:
        """Finds or compiles several, each a task of this call. Writes messages and returns the last one."""
        caller = context.caller(request.header)
        if not 1 <= len(request.requests) <= MOST_COMPILES:
            raise ArgumentError(
                f"{len(request.requests)} compiles in one call; ask for 1 to {MOST_COMPILES}",
                field="requests",
            )
        outbox = Outbox(translate.MESSAGE_BYTES, lambda: self._service.pace)

        async def one(index: int, wanted: pb.CompileKernelRequest) -> None:
            async def write(reply: _Reply) -> None:
                await outbox.put(translate.event_of_reply(index, reply))

            try:
                await write(await self._compile(caller, wanted, context, write))
            except Exception as error:  # noqa: BLE001 - becomes a status
                await outbox.put(translate.event_of_failure(index, status_bytes(context.told(error))))

        return await outbox.empty([one(*each) for each in enumerate(request.requests)], context.write)

    async def _compile(
        self, caller: Caller, request: pb.CompileKernelRequest, context: Call, write: _Write
    ) -> _Reply:
        """Finds or compiles one kernel, whoever writes."""
        source = translate.graph_source(request.graph, self._service.limits)
        wish = translate.kernel_wish(request.target, request.options, request.shapes)
        kinds = translate.kinds(request.artifact_kinds)
        budget = min(request.inline_budget_bytes, translate.MAX_INLINE_BYTES)

        async def tell(stage: Stage | None) -> None:
            elapsed = context.elapsed
            await write(translate.heartbeat(elapsed) if stage is None else translate.stage(stage, elapsed))

        compiled = await self._service.compile(
            caller, source, wish, request.retry_failed, kinds, tell, self._heartbeat
        )
        return await self._write_result(write, caller, compiled, kinds, budget)

    async def _write_result(
        self, write: _Write, caller: Caller, event: Compiled, kinds: frozenset[str], budget: int
    ) -> _Reply:
        """The result, then the artifacts that are too large for it. Equal results are serialized once."""
        answer = event.answer
        inline, others = translate.within(answer.kernel.wanted(kinds), budget)
        name = (event.origin, *(ref.sha256 for ref in inline))
        body = answer.encoded.get(name)
        if body is None:
            contents = [await self._service.artifacts.read_served(caller, ref.sha256) for ref in inline]
            body = answer.encoded.get(name)  # another request may have been faster
            body = body or translate.compiled(answer, event.origin, zip(inline, contents, strict=True))
            if len(answer.encoded) < answer.MOST_ENCODED:
                answer.encoded[name] = body
        last: _Reply = translate.with_stages(body, event.stages)
        for ref in others:
            reading = await self._service.artifacts.open_served(caller, ref.sha256)
            async for offset, data in reading.parts:
                await write(last)
                last = translate.chunk(ref, offset, data)
        return last

    async def ListKernels(  # noqa: N802
        self, request: pb.ListKernelsRequest, context: Call
    ) -> pb.ListKernelsResponse:
        """The kernels of a key."""
        page = await self._service.list_kernels(
            context.caller(request.header), request.key, request.page_size, request.page_token
        )
        return translate.kernel_page(page)

    async def Explain(  # noqa: N802
        self, request: explain_pb2.ExplainRequest, context: Call
    ) -> explain_pb2.ExplainResponse:
        """Why a request hits or misses."""
        source = translate.graph_source(request.graph, self._service.limits)
        wish = translate.kernel_wish(request.target, request.options, request.shapes)
        caller = context.caller(request.header)
        return explanation_to_proto(await self._service.explain(caller, source, wish, request.max_neighbours))

    async def ReadArtifact(  # noqa: N802
        self, request: pb.ReadArtifactRequest, context: Call
    ) -> AsyncIterator[pb.ReadArtifactResponse]:
        """Bytes of an artifact or constant."""
        reading = await self._service.artifacts.read(
            context.caller(request.header), request.sha256, request.read_offset, request.read_limit
        )
        size: int | None = reading.size
        async for _, data in reading.parts:
            yield pb.ReadArtifactResponse(data=data, size_bytes=size)
            size = None
        if size is not None:
            yield pb.ReadArtifactResponse(size_bytes=size)

    async def GetUpload(  # noqa: N802
        self, request: pb.GetUploadRequest, context: Call
    ) -> pb.GetUploadResponse:
        """How much of an upload is here."""
        caller = context.caller(request.header)
        progress = await self._service.programs.progress(caller, request.program_digest)
        return pb.GetUploadResponse(committed_size_bytes=progress.committed, complete=progress.complete)

    async def UploadProgram(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.UploadProgramRequest], context: Call
    ) -> pb.UploadProgramResponse:
        """A program in parts."""
        first = await anext(aiter(request_iterator), None)
        if first is None:
            raise ArgumentError("the upload has no message")
        plan = UploadPlan(
            format=format_from_proto(first.format),
            size=first.size_bytes,
            digest=first.program_digest,
            offset=first.write_offset,
        )
        progress = await self._service.programs.upload(
            context.caller(first.header), plan, _parts(first, request_iterator)
        )
        return pb.UploadProgramResponse(
            committed_size_bytes=progress.committed,
            complete=progress.complete,
            program_digest=first.program_digest,
        )


async def _parts(
    first: pb.UploadProgramRequest, rest: AsyncIterator[pb.UploadProgramRequest]
) -> AsyncIterator[bytes]:
    yield _part(first)
    async for message in rest:
        yield _part(message)


def _part(message: pb.UploadProgramRequest) -> bytes:
    if len(message.data) > translate.CHUNK_BYTES:
        raise ResourceExhausted(
            f"{len(message.data)} bytes of data in one message, above the limit of {translate.CHUNK_BYTES}",
            limit="upload_chunk_bytes",
        )
    return message.data
