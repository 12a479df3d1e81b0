"""``kcache.v1.Autotune``: requests to values, values to responses, and nothing else."""

from __future__ import annotations

from google.protobuf import duration_pb2

from kcache_grpc._proto.kcache.v1 import autotune_pb2 as pb
from kcache_grpc._proto.kcache.v1 import autotune_pb2_grpc
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.wire import options_from_proto, target_from_proto
from kcache_grpc.server.rpc_handlers import Call
from kcache_grpc.server.servicers.translate import timestamp
from kcache_grpc.service import KernelService
from kcache_grpc.service.autotune import Measured, Subject
from kcache_grpc.storage.contract.autotune import TimingRecord


class AutotuneServicer(autotune_pb2_grpc.AutotuneServicer):
    """Translates."""

    def __init__(self, service: KernelService) -> None:
        self._autotune = service.autotune

    async def RecordTimings(  # noqa: N802 - gRPC's names
        self, request: pb.RecordTimingsRequest, context: Call
    ) -> pb.RecordTimingsResponse:
        """Stores timings."""
        created = await self._autotune.record(
            context.caller(request.header), _subject(request.subject), [_measured(t) for t in request.timings]
        )
        return pb.RecordTimingsResponse(created_count=created)

    async def ListTimings(  # noqa: N802
        self, request: pb.ListTimingsRequest, context: Call
    ) -> pb.ListTimingsResponse:
        """A page of timings."""
        subject = _subject(request.subject)
        records, token = await self._autotune.timings(
            context.caller(request.header), subject, request.page_size, request.page_token
        )
        timings = [_timing(record, bool(subject.symbols)) for record in records]
        return pb.ListTimingsResponse(timings=timings, next_page_token=token)


def _subject(message: pb.TuningSubject) -> Subject:
    return Subject(
        message.spec_digest,
        message.arg_spec,
        target_from_proto(message.target),
        options_from_proto(message.options),
        message.device,
        message.sizes,
    )


def _measured(message: pb.ScheduleTiming) -> Measured:
    if message.duration.seconds < 0 or message.duration.nanos < 0:
        raise ArgumentError("a duration is negative", field="duration")
    nanoseconds = message.duration.seconds * 1_000_000_000 + message.duration.nanos
    return Measured(message.schedule, nanoseconds, message.sample_count)


def _timing(record: TimingRecord, opened: bool) -> pb.ScheduleTiming:
    seconds, nanos = divmod(record.timing.nanoseconds, 1_000_000_000)
    return pb.ScheduleTiming(
        schedule=record.timing.config,
        duration=duration_pb2.Duration(seconds=seconds, nanos=nanos),
        sample_count=record.timing.samples,
        create_time=timestamp(record.created_at),
        sizes=record.timing.shape if opened else "",
    )
