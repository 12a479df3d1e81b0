"""Asks the service for its audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from google.protobuf.duration_pb2 import Duration

from kcache_grpc._proto.kcache.v1 import audit_pb2
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import Deadline, Method
from kcache_grpc.errors import ArgumentError, IntegrityError

LIST_EVENTS = Method("ListEvents", audit_pb2.ListEventsRequest, audit_pb2.ListEventsResponse, "Audit")
GET_HEADS = Method("GetHeads", audit_pb2.GetHeadsRequest, audit_pb2.GetHeadsResponse, "Audit")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PAGE = 1000


@dataclass(frozen=True)
class AuditEvent:
    """One thing that happened at the service; docs/operate/audit.md lists kinds and outcomes.

    Empty text, ``None`` and 0 mean "does not apply". Digests are lower-case hex.
    """

    #: Rises in a store, with gaps.
    id: int
    #: UTC, by the server's clock.
    time: datetime
    epoch: int
    #: The process that wrote it down: whose chain seals it.
    writer: str
    #: ``store``, ``publish``, ``serve``, ``miss``, ``failure``, ``error`` and others.
    kind: str
    outcome: str
    #: ``stored``, ``compiled`` or ``joined``.
    origin: str
    #: Who asked, and for what, as the caller says.
    actor: str
    job: str
    #: Address of the caller as the server saw it.
    peer: str
    request_id: str
    #: Above 1: stands for this many requests, equal but for their ids.
    request_count: int
    program_digest: str
    spec_digest: str
    key: int | None
    kernel_digest: str
    target: str
    toolchain_digest: str
    #: Seconds that the request took, or the compile.
    duration: float
    #: Bytes served or stored.
    size_bytes: int
    #: Seconds of compiling that were saved.
    time_saved: float
    #: More, as JSON; empty when there is no more.
    detail: str


@dataclass(frozen=True)
class AuditHead:
    """The last root of a writer's chain."""

    writer: str
    sequence: int
    #: Lower-case hex.
    root: str
    #: When it was sealed, UTC.
    time: datetime


@dataclass(frozen=True)
class AuditHeads:
    """All heads of a store. Kept elsewhere they show a log whose end was cut off."""

    #: Names the store for good.
    store_id: str
    #: The key that signs there now, hex.
    public_key: str
    time: datetime
    heads: tuple[AuditHead, ...]


@dataclass(frozen=True)
class Question:
    """What a caller of ``audit`` wants."""

    filter: str
    newest_first: bool
    limit: int | None

    def __post_init__(self) -> None:
        if not isinstance(self.filter, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"filter is {self.filter!r}; use a str")
        if self.limit is not None and (type(self.limit) is not int or self.limit < 0):
            raise ArgumentError(f"limit is {self.limit!r}; use None or an int from 0")

    def page_size(self, received: int) -> int:
        """How many events to ask for when this many were given; 0: no more."""
        return _PAGE if self.limit is None else min(_PAGE, self.limit - received)


async def page(
    connection: Connection, question: Question, size: int, token: str, deadline: Deadline
) -> tuple[Sequence[AuditEvent], str]:
    """Some events, and the token of the next page, empty at the end."""
    request = audit_pb2.ListEventsRequest(
        header=connection.header(),
        filter=question.filter,
        page_size=size,
        page_token=token,
        order_by="id desc" if question.newest_first else "id",
    )
    reply = await connection.channel.unary(LIST_EVENTS, request, deadline)
    if reply.next_page_token == token and token:
        raise IntegrityError("the server answered one page of the audit log with itself")
    return [_event(event) for event in reply.events], reply.next_page_token


async def heads(connection: Connection, deadline: Deadline) -> AuditHeads:
    """The heads of all chains."""
    request = audit_pb2.GetHeadsRequest(header=connection.header())
    reply = await connection.channel.unary(GET_HEADS, request, deadline)
    return AuditHeads(
        store_id=reply.store_id,
        public_key=reply.public_key.hex(),
        time=_time(reply.time.seconds, reply.time.nanos),
        heads=tuple(
            AuditHead(
                head.writer,
                head.sequence,
                head.root.hex(),
                _time(head.create_time.seconds, head.create_time.nanos),
            )
            for head in reply.heads
        ),
    )


def _event(event: audit_pb2.AuditEvent) -> AuditEvent:
    """Convert an audit event of the wire API to the client's value."""
    return AuditEvent(
        id=event.id,
        time=_time(event.time.seconds, event.time.nanos),
        epoch=event.epoch,
        writer=event.writer,
        kind=event.kind,
        outcome=event.outcome,
        origin=event.origin,
        actor=event.actor,
        job=event.job,
        peer=event.peer,
        request_id=event.request_id,
        request_count=event.request_count,
        program_digest=event.program_digest.hex(),
        spec_digest=event.spec_digest.hex(),
        key=event.key or None,
        kernel_digest=event.kernel_digest.hex(),
        target=event.target,
        toolchain_digest=event.toolchain_digest.hex(),
        duration=_seconds(event.duration),
        size_bytes=event.size_bytes,
        time_saved=_seconds(event.time_saved),
        detail=event.detail,
    )


def _time(seconds: int, nanos: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
