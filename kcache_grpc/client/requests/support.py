"""Asks the service what of a program does not compile there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kcache_grpc._proto.kcache.v1 import common_pb2, support_pb2
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import CHECK_PROGRAM, Deadline
from kcache_grpc.client.transport.transfer import with_program
from kcache_grpc.model.program import Program
from kcache_grpc.model.target import Target
from kcache_grpc.model.wire import numerics_to_proto, target_to_proto


@dataclass(frozen=True)
class Refusal:
    """An operation that does not compile: why, how often it occurs, and where some of it is.

    ``op`` is empty where the whole program is meant.
    """

    op: str
    reason: str
    count: int
    locations: tuple[str, ...]


@dataclass(frozen=True)
class Support:
    """What compiles of a program. ``operations`` is 0 where they could not be counted.

    ``note`` says what the answer does not cover; empty where it covers all.
    """

    operations: int
    supported: int
    refusals: tuple[Refusal, ...]
    note: str

    def located(self, locations: Callable[[Sequence[str]], list[str]]) -> Support:
        """The same with locations as the caller knows them, which ``locations`` returns of those sent."""
        refusals = (replace(each, locations=tuple(locations(each.locations))) for each in self.refusals)
        return replace(self, refusals=tuple(refusals))


async def check_program(
    connection: Connection, program: Program, target: Target, numerics: str, deadline: Deadline
) -> Support:
    """What the service says of a program. Nothing is stored or kept there."""
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> support_pb2.CheckProgramResponse:
        request = support_pb2.CheckProgramRequest(
            header=header,
            graph=source,
            target=target_to_proto(target),
            numerics=numerics_to_proto(numerics),
        )
        return await connection.channel.unary(CHECK_PROGRAM, request, deadline, float("inf"))

    reply = await with_program(connection, program, deadline, call)
    refusals = tuple(
        Refusal(each.op, each.reason, each.count, tuple(each.locations)) for each in reply.refusals
    )
    return Support(reply.operations, reply.supported, refusals, reply.note)
