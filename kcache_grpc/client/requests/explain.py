"""Asks the service about a request without compiling it: why it hits or misses, how long a compile takes.

The tiers in memory and on disk are not asked.
"""

from __future__ import annotations

from kcache_grpc._proto.kcache.v1 import common_pb2, estimate_pb2, explain_pb2
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import ESTIMATE_COMPILE, EXPLAIN, Deadline
from kcache_grpc.client.transport.transfer import with_program, with_witnesses
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.explanation import Explanation, explanation_from_proto
from kcache_grpc.model.wire import options_to_proto, shapes_to_proto, target_match_to_proto, target_to_proto


async def explain(
    connection: Connection, request: KernelRequest, neighbors: int, deadline: Deadline
) -> Explanation:
    """What the service says of a request. Nothing is stored or compiled."""
    if type(neighbors) is not int or neighbors < 1:
        raise ArgumentError(f"neighbors is {neighbors!r}; use an int from 1", argument="neighbors")
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> explain_pb2.ExplainResponse:
        message = explain_pb2.ExplainRequest(
            header=header,
            graph=source,
            target=target_to_proto(request.target),
            options=options_to_proto(request.options),
            shapes=shapes_to_proto(request.shapes),
            target_match=target_match_to_proto(request.options.compatible_targets),
            max_neighbors=min(neighbors, (1 << 32) - 1),
        )
        return await connection.channel.unary(EXPLAIN, message, deadline, float("inf"))

    return explanation_from_proto(await with_program(connection, request.program, deadline, call))


async def expected_seconds(
    connection: Connection, request: KernelRequest, deadline: Deadline
) -> float | None:
    """Expected seconds of a compile, 0.0 where the service has the kernel, ``None`` without history.

    Nothing is stored but programs that are evidence; nothing is compiled.
    """
    request = await with_witnesses(connection, request, deadline)
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> estimate_pb2.EstimateCompileResponse:
        message = estimate_pb2.EstimateCompileRequest(
            header=header,
            graph=source,
            target=target_to_proto(request.target),
            options=options_to_proto(request.options),
            shapes=shapes_to_proto(request.shapes),
            target_match=target_match_to_proto(request.options.compatible_targets),
        )
        return await connection.channel.unary(ESTIMATE_COMPILE, message, deadline, float("inf"))

    reply = await with_program(connection, request.program, deadline, call)
    if not reply.HasField("expected_duration"):
        return None
    return reply.expected_duration.seconds + reply.expected_duration.nanos / 1e9
