"""``kcache.v1.Audit``: requests to values, values to responses, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kcache_grpc._proto.kcache.v1 import audit_pb2 as pb
from kcache_grpc._proto.kcache.v1 import audit_pb2_grpc
from kcache_grpc.server.rpc_handlers import Call
from kcache_grpc.server.servicers.translate import duration, timestamp
from kcache_grpc.service import KernelService
from kcache_grpc.storage.audit.sealing import Seal
from kcache_grpc.storage.records import AuditRecord


class AuditServicer(audit_pb2_grpc.AuditServicer):
    """Translates."""

    def __init__(self, service: KernelService) -> None:
        self._audit = service.audit
        self._public_key = service.public_key

    async def ListEvents(  # noqa: N802 - gRPC's names
        self, request: pb.ListEventsRequest, context: Call
    ) -> pb.ListEventsResponse:
        """A page of events."""
        page = await self._audit.events(
            context.caller(request.header),
            request.filter,
            request.page_size,
            request.page_token,
            request.order_by,
        )
        return pb.ListEventsResponse(events=map(_event, page.records), next_page_token=page.next_token)

    async def ExportEvents(  # noqa: N802
        self, request: pb.ExportEventsRequest, context: Call
    ) -> AsyncIterator[pb.ExportEventsResponse]:
        """All events."""
        caller = context.caller(request.header)
        async for records in self._audit.export(caller, request.filter, request.after_id):
            yield pb.ExportEventsResponse(events=map(_event, records))

    async def GetEvent(  # noqa: N802
        self, request: pb.GetEventRequest, context: Call
    ) -> pb.GetEventResponse:
        """One event and its proof."""
        proof = await self._audit.proof(context.caller(request.header), request.id)
        return pb.GetEventResponse(
            event=_event(proof.record),
            namespace_id=proof.record.namespace_id,
            leaf=proof.leaf,
            seal=None if proof.seal is None else _seal(proof.seal),
            index=proof.index,
            path=proof.path,
        )

    async def ListSeals(  # noqa: N802
        self, request: pb.ListSealsRequest, context: Call
    ) -> pb.ListSealsResponse:
        """Seals of a writer."""
        context.caller(request.header)
        seals, token = await self._audit.seals(request.writer, request.page_size, request.page_token)
        return pb.ListSealsResponse(seals=map(_seal, seals), next_page_token=token)

    async def GetHeads(  # noqa: N802
        self, request: pb.GetHeadsRequest, context: Call
    ) -> pb.GetHeadsResponse:
        """The last seal of each writer."""
        context.caller(request.header)
        heads_reply = await self._audit.heads()
        return pb.GetHeadsResponse(
            heads=[
                pb.AuditHead(
                    writer=writer,
                    sequence=head.sequence,
                    root=head.root,
                    create_time=timestamp(head.created_at),
                )
                for writer, head in heads_reply.heads
            ],
            store_id=heads_reply.store_id,
            public_key=self._public_key,
            time=timestamp(heads_reply.at),
        )


def _event(record: AuditRecord) -> pb.AuditEvent:
    """Convert a stored audit event to its message of the wire API."""
    event = record.event
    return pb.AuditEvent(
        id=record.id,
        time=timestamp(event.at),
        epoch=record.epoch,
        writer=record.writer,
        kind=event.kind,
        outcome=event.outcome,
        origin=event.origin,
        actor=event.actor,
        job=event.job,
        peer=event.peer,
        request_id=event.request_id,
        request_count=event.request_count,
        program_digest=event.program_digest or b"",
        spec_digest=event.spec_digest or b"",
        key=event.key or 0,
        kernel_digest=event.kernel_digest or b"",
        target=event.target,
        toolchain_digest=event.toolchain or b"",
        duration=duration(event.duration_us / 1e6),
        size_bytes=event.byte_count,
        time_saved=duration(event.saved_us / 1e6),
        detail=event.detail,
    )


def _seal(seal: Seal) -> pb.AuditSeal:
    return pb.AuditSeal(
        writer=seal.writer,
        sequence=seal.sequence,
        previous_root=seal.previous_root,
        root=seal.root,
        event_ids=seal.event_ids,
        signature=seal.signature,
        create_time=timestamp(seal.created_at),
    )
