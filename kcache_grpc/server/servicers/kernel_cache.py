"""``kcache.v1.KernelCache``: requests to values, values to responses, and nothing else.

Domain errors are raised as they are; ``rpc_handlers.RpcHandlers`` turns them into statuses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing

from kcache_grpc._proto.kcache.v1 import estimate_pb2, explain_pb2, kernel_cache_pb2_grpc, support_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.errors import ArgumentError, ResourceExhausted
from kcache_grpc.model.explanation import explanation_to_proto
from kcache_grpc.model.wire import format_from_proto, numerics_from_proto, target_from_proto
from kcache_grpc.server.call_scheduler import CallScheduler
from kcache_grpc.server.reply_flow_control import SMALL, StreamWriter
from kcache_grpc.server.rpc_handlers import Call
from kcache_grpc.server.servicers import translate
from kcache_grpc.server.status import status_bytes
from kcache_grpc.service import Caller, KernelService
from kcache_grpc.service.graphs.uploads import UploadPlan
from kcache_grpc.service.values import Compiled, Stage

#: Queries of a call that waits for no other.
_MOST_SMALL = 64
#: Queries of a slice of a larger one.
_SLICE = 1024
#: Compiles of one CompileKernels.
MOST_COMPILES = 64

_Reply = bytes | pb.CompileKernelResponse
_Write = Callable[[_Reply], Awaitable[None]]


class KernelCacheServicer(kernel_cache_pb2_grpc.KernelCacheServicer):
    """Translates. ``heartbeat``: most seconds without a message while a compile runs."""

    def __init__(self, service: KernelService, heartbeat: float) -> None:
        self._service = service
        self._heartbeat = heartbeat
        self._call_scheduler = CallScheduler()

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
        try:
            if len(value.text) > SMALL:
                await context.acquire(len(value.text))
            for message in translate.normalized(value):
                yield message
        finally:
            context.release()

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
        try:
            if len(spec.record.text) > SMALL:
                await context.acquire(len(spec.record.text))
            for message in translate.spec(spec):
                yield message
        finally:
            context.release()

    async def CountSpecs(  # noqa: N802
        self, request: pb.CountSpecsRequest, context: Call
    ) -> pb.CountSpecsResponse:
        """How many specs there are."""
        return pb.CountSpecsResponse(count=await self._service.count(context.caller(request.header)))

    async def GetStats(  # noqa: N802
        self, request: pb.GetStatsRequest, context: Call
    ) -> pb.GetStatsResponse:
        """Counters."""
        caller = context.caller(request.header)
        return translate.stats(
            *await self._service.stats(caller),
            self._service.audit_dropped,
            await self._service.savings(caller),
            self._service.bypasses(),
            await self._service.blobs.totals(caller),
            await self._service.assertions.totals(caller),
        )

    # gRPC takes both; its type stubs know generators only.
    async def GetKernels(  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: pb.GetKernelsRequest, context: Call
    ) -> bytes:
        """Many kernels by program digest. Writes its messages and returns the last one.

        Each is made when the one before has been read; a program that is named again is answered once. Calls
        of many queries take turns.
        """
        self._service.check_queries(len(request.queries))
        caller = context.caller(request.header)
        large = len(request.queries) > _MOST_SMALL
        last, answered = b"", 0
        try:
            # Nothing is done for a reply that there is no room for.
            await context.acquire(translate.RESULTS_BYTES)
            first, duplicates = await self._distinct(caller, request.queries)
            indices = list(first.values())
            answers = self._service.get_kernels(
                caller,
                list(first),
                translate.kernel_requirements(
                    request.target, request.options, request.shapes, request.target_match
                ),
                translate.kinds(request.artifact_kinds),
                request.inline_budget_bytes,
            )
            async with aclosing(answers):
                if not indices:
                    async for _ in answers:  # what is wrong with the rest of the request
                        pass
                while answered < len(indices):
                    if answered:
                        await context.acquire(translate.RESULTS_BYTES)
                    if large:
                        await self._call_scheduler.wait(caller.turn)
                    results = await anext(answers)
                    some = indices[answered : answered + len(results)]
                    last = translate.kernel_results(zip(some, results, strict=True))
                    answered += len(results)
                    if answered < len(indices):
                        await context.write(last)
                        context.release()
            for start in range(0, len(duplicates), _SLICE):
                if large:
                    await self._call_scheduler.wait(caller.turn)
                more = translate.duplicate_results(duplicates[start : start + _SLICE])
                if len(last) + len(more) > translate.RESULTS_BYTES:
                    await context.write(last)
                    last = b""
                last += more  # messages of repeated fields, one after the other, are one
            context.release_at_end(len(last))
            return last
        finally:
            context.release()

    # gRPC takes both; its type stubs know generators only.
    async def CompileKernel(  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: pb.CompileKernelRequest, context: Call
    ) -> _Reply:
        """Finds or compiles one kernel. Writes its messages and returns the last one."""
        try:
            caller = context.caller(request.header)
            return await self._compile(caller, request, context, context.write, alone=True)
        finally:
            context.release()

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
        writer = StreamWriter(translate.MESSAGE_BYTES, lambda: self._service.pace)

        async def compile_request(index: int, wanted: pb.CompileKernelRequest) -> None:
            async def write(reply: _Reply) -> None:
                await writer.put(translate.event_of_reply(index, reply))

            try:
                await write(await self._compile(caller, wanted, context, write))
            except Exception as error:  # noqa: BLE001 - becomes a status
                await writer.put(translate.event_of_failure(index, status_bytes(context.public_error(error))))

        return await writer.write_all(
            [compile_request(*each) for each in enumerate(request.requests)], context.write
        )

    async def _distinct(
        self, caller: Caller, queries: Sequence[pb.KernelQuery]
    ) -> tuple[dict[bytes, int], list[tuple[int, int]]]:
        """The index of the first query for each program; and of the others, each with that of the first."""
        first: dict[bytes, int] = {}
        duplicates: list[tuple[int, int]] = []
        for start in range(0, len(queries), _SLICE):
            if len(queries) > _MOST_SMALL:
                await self._call_scheduler.wait(caller.turn)
            for index, query in enumerate(queries[start : start + _SLICE], start):
                earlier = first.setdefault(query.program_digest, index)
                if earlier != index:
                    duplicates.append((index, earlier))
        return first, duplicates

    async def _compile(
        self,
        caller: Caller,
        request: pb.CompileKernelRequest,
        context: Call,
        write: _Write,
        *,
        alone: bool = False,
    ) -> _Reply:
        """Finds or compiles one kernel, whoever writes; ``alone``: it is what the call is about."""
        source = translate.graph_source(request.graph, self._service.limits)
        requirements = translate.kernel_requirements(
            request.target, request.options, request.shapes, request.target_match
        )
        kinds = translate.kinds(request.artifact_kinds)
        budget = min(request.inline_budget_bytes, translate.MAX_INLINE_BYTES)

        async def send_stage(stage: Stage | None) -> None:
            elapsed = context.elapsed
            await write(translate.heartbeat(elapsed) if stage is None else translate.stage(stage, elapsed))

        compiled = await self._service.compile(
            caller, source, requirements, request.retry_failed, kinds, send_stage, self._heartbeat
        )
        return await self._write_result(write, caller, compiled, kinds, budget, context if alone else None)

    async def _write_result(
        self,
        write: _Write,
        caller: Caller,
        event: Compiled,
        kinds: frozenset[str],
        budget: int,
        context: Call | None,
    ) -> _Reply:
        """The result, then the artifacts that are too large for it. Equal results are serialized once.

        ``context``: of a call that is about this alone, and takes room for its reply.
        """
        answer = event.answer
        inline, others = translate.within(answer.kernel.wanted(kinds), budget)
        large = sum(ref.size for ref in inline) + (translate.CHUNK_BYTES if others else 0)
        if context is not None and large > SMALL:
            await context.acquire(large)
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
        if context is not None and large > SMALL:
            context.release_at_end()
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
        requirements = translate.kernel_requirements(
            request.target, request.options, request.shapes, request.target_match
        )
        caller = context.caller(request.header)
        return explanation_to_proto(
            await self._service.explain(caller, source, requirements, request.max_neighbors)
        )

    async def EstimateCompile(  # noqa: N802
        self, request: estimate_pb2.EstimateCompileRequest, context: Call
    ) -> estimate_pb2.EstimateCompileResponse:
        """How long a compile is expected to take."""
        source = translate.graph_source(request.graph, self._service.limits)
        requirements = translate.kernel_requirements(
            request.target, request.options, request.shapes, request.target_match
        )
        return translate.estimate(
            await self._service.estimate(context.caller(request.header), source, requirements)
        )

    async def CheckProgram(  # noqa: N802
        self, request: support_pb2.CheckProgramRequest, context: Call
    ) -> support_pb2.CheckProgramResponse:
        """What of a program does not compile."""
        source = translate.graph_source(request.graph, self._service.limits)
        target = str(target_from_proto(request.target))
        numerics = numerics_from_proto(request.numerics)
        report = await self._service.check(context.caller(request.header), source, target, numerics)
        return support_pb2.CheckProgramResponse(
            operations=report.operations,
            supported=report.supported,
            refusals=[
                support_pb2.Refusal(op=each.op, reason=each.reason, count=each.count, locations=each.where)
                for each in report.refusals
            ],
            note=report.note,
        )

    async def ReadArtifact(  # noqa: N802
        self, request: pb.ReadArtifactRequest, context: Call
    ) -> AsyncIterator[pb.ReadArtifactResponse]:
        """Bytes of an artifact or constant."""
        reading = await self._service.artifacts.read(
            context.caller(request.header), request.sha256, request.read_offset, request.read_limit
        )
        size: int | None = reading.size
        part = min(translate.CHUNK_BYTES, reading.size)
        parts = aiter(reading.parts)
        try:
            while True:  # a part is read when the one before is sent
                if part > SMALL:
                    await context.acquire(part)
                try:
                    _, data = await anext(parts)
                except StopAsyncIteration:
                    break
                yield pb.ReadArtifactResponse(data=data, size_bytes=size)
                context.release()
                size = None
        finally:
            context.release()
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
