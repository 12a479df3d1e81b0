"""Calls of ``SourceAssertions``: what actors say that a source graph lowers to, verified by digests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from kcache_grpc._proto.kcache.v1 import source_assertions_pb2 as pb
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import Deadline, Method, Wire
from kcache_grpc.errors import ArgumentError, IntegrityError

GET_ASSERTIONS = Method(
    "GetAssertions",
    pb.GetAssertionsRequest,
    pb.GetAssertionsResponse,
    "SourceAssertions",
)
PUT_ASSERTION = Method(
    "PutAssertion",
    pb.PutAssertionRequest,
    pb.PutAssertionResponse,
    "SourceAssertions",
)
DISPUTE_ASSERTION = Method(
    "DisputeAssertion",
    pb.DisputeAssertionRequest,
    pb.DisputeAssertionResponse,
    "SourceAssertions",
)


@dataclass(frozen=True)
class SourceAssertion:
    """What an actor said that a source graph lowers to.

    ``programs``: digests of the programs that the record names, in its order. ``actor``: the principal that
    the service authenticated, and ``role`` its role, empty for none. ``toolchain``: the actor's, as text.
    """

    source_digest: bytes
    record: bytes = field(repr=False)
    record_digest: bytes
    programs: tuple[bytes, ...]
    actor: str
    created: datetime
    role: str = ""
    toolchain: str = ""


@dataclass(frozen=True)
class PutAssertionResult:
    """What is stored now.

    ``stored``: whether this call stored it. Else this actor had an assertion under the digest, which stays:
    ``winner``. ``conflict``: its record is another one than was offered. ``quarantined``: the winner was
    disputed, and the service returns it to nobody.
    """

    stored: bool
    winner: SourceAssertion
    conflict: bool = False
    quarantined: bool = False


async def get(
    connection: Connection, source_digests: Sequence[bytes], deadline: Deadline
) -> dict[bytes, SourceAssertion]:
    """The assertions that the caller may trust, by source digest.

    Raises ``IntegrityError`` for a record that does not match its digest.
    """
    for digest in source_digests:
        _check_digest(digest, "source_digest")
    digests = list(dict.fromkeys(source_digests))
    request = pb.GetAssertionsRequest(header=connection.header(), source_digests=digests)

    async def attempt(wire: Wire) -> dict[bytes, SourceAssertion]:
        received: dict[bytes, SourceAssertion] = {}

        def take(reply: pb.GetAssertionsResponse) -> None:
            for message in reply.assertions:
                if message.index >= len(digests) or digests[message.index] != message.source_digest:
                    raise IntegrityError("the server sent an assertion of a digest that was not requested")
                received[message.source_digest] = _verified(message, message.record)

        await connection.channel.follow(wire.stream(GET_ASSERTIONS, request, deadline.left()), take)
        return received

    return await connection.channel.attempt(attempt, deadline)


async def put(
    connection: Connection,
    source_digest: bytes,
    record: bytes,
    programs: Sequence[bytes],
    toolchain: str,
    deadline: Deadline,
) -> PutAssertionResult:
    """Stores an assertion unless this actor has one; what is stored."""
    _check_digest(source_digest, "source_digest")
    for digest in programs:
        _check_digest(digest, "programs")
    request = pb.PutAssertionRequest(
        header=connection.header(),
        source_digest=source_digest,
        record=record,
        programs=programs,
        toolchain=toolchain,
    )
    reply = await connection.channel.unary(PUT_ASSERTION, request, deadline, float("inf"))
    if reply.assertion.source_digest != source_digest:
        raise IntegrityError("the server answered with an assertion of another source digest")
    conflict = reply.assertion.record_digest != hashlib.sha256(record).digest()
    winner = _verified(reply.assertion, reply.assertion.record if conflict else bytes(record))
    return PutAssertionResult(reply.inserted, winner, conflict, reply.quarantined)


async def dispute(
    connection: Connection,
    source_digest: bytes,
    record_digest: bytes,
    observed: bytes,
    reason: str,
    deadline: Deadline,
) -> bool:
    """Quarantines what is wrong; false where it was in quarantine before."""
    _check_digest(source_digest, "source_digest")
    _check_digest(record_digest, "record_digest")
    _check_digest(observed, "observed")
    request = pb.DisputeAssertionRequest(
        header=connection.header(),
        source_digest=source_digest,
        record_digest=record_digest,
        observed_digest=observed,
        reason=reason,
    )
    reply = await connection.channel.unary(DISPUTE_ASSERTION, request, deadline)
    return reply.quarantined > 0


def _verified(message: pb.SourceAssertion, record: bytes) -> SourceAssertion:
    if hashlib.sha256(record).digest() != message.record_digest:
        raise IntegrityError("the server sent an assertion whose record does not match its digest")
    return SourceAssertion(
        message.source_digest,
        record,
        message.record_digest,
        tuple(message.programs),
        message.actor,
        message.create_time.ToDatetime(tzinfo=timezone.utc),
        message.role,
        message.toolchain,
    )


def _check_digest(digest: bytes, name: str) -> None:
    if not isinstance(digest, bytes) or len(digest) != 32:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"{name} is not 32 bytes, as a SHA-256 is", field=name)
