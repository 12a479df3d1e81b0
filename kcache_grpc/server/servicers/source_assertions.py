"""``kcache.v1.SourceAssertions``: requests to values, values to responses, and nothing else."""

from __future__ import annotations

from kcache_grpc._proto.kcache.v1 import source_assertions_pb2 as pb
from kcache_grpc._proto.kcache.v1 import source_assertions_pb2_grpc
from kcache_grpc.server.rpc_handlers import Call
from kcache_grpc.server.servicers.translate import timestamp
from kcache_grpc.service import KernelService
from kcache_grpc.storage.contract.assertions import AssertionRecord


class SourceAssertionsServicer(source_assertions_pb2_grpc.SourceAssertionsServicer):
    """Translates."""

    def __init__(self, service: KernelService) -> None:
        self._assertions = service.assertions

    # gRPC takes both; its type stubs know generators only.
    async def GetAssertions(  # noqa: N802  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: pb.GetAssertionsRequest, context: Call
    ) -> pb.GetAssertionsResponse:
        """Writes all messages but the last, which it returns."""
        caller = context.caller(request.header)
        last = pb.GetAssertionsResponse()
        async for part in self._assertions.get(caller, request.source_digests):
            if last.assertions:
                await context.acquire(last.ByteSize())
                await context.write(last)
                context.release()
            last = pb.GetAssertionsResponse(
                assertions=[_assertion(row.assertion, row.record, row.index) for row in part]
            )
        size = last.ByteSize()
        await context.acquire(size)
        context.release_at_end(size)
        return last

    async def PutAssertion(  # noqa: N802
        self, request: pb.PutAssertionRequest, context: Call
    ) -> pb.PutAssertionResponse:
        """Stores one."""
        outcome, record = await self._assertions.put(
            context.caller(request.header),
            request.source_digest,
            request.record,
            request.programs,
            request.toolchain,
        )
        return pb.PutAssertionResponse(
            inserted=outcome.inserted,
            assertion=_assertion(outcome.assertion, record),
            quarantined=outcome.assertion.quarantined,
        )

    async def DisputeAssertion(  # noqa: N802
        self, request: pb.DisputeAssertionRequest, context: Call
    ) -> pb.DisputeAssertionResponse:
        """Quarantines what is wrong."""
        quarantined = await self._assertions.dispute(
            context.caller(request.header),
            request.source_digest,
            request.record_digest,
            request.observed_digest,
            request.reason,
        )
        return pb.DisputeAssertionResponse(quarantined=quarantined)


def _assertion(row: AssertionRecord, record: bytes, index: int = 0) -> pb.SourceAssertion:
    return pb.SourceAssertion(
        index=index,
        source_digest=row.source_digest,
        actor=row.actor,
        role=row.role,
        record_digest=row.record_digest,
        record=record,
        programs=row.programs,
        toolchain=row.toolchain,
        create_time=timestamp(row.created_at),
    )
