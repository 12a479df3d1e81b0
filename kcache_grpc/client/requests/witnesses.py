"""What the evidence of a request shows: programs that are the same computation at other sizes."""

from __future__ import annotations

from dataclasses import replace

from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.deadline import Deadline
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.model.evidence import witness


async def with_witnesses(connection: Connection, ask: KernelRequest, deadline: Deadline) -> KernelRequest:
    """The ask with what its evidence shows; programs that the service does not know are stored there."""
    if not ask.evidence:
        return ask
    # Imports what a request without evidence does not need.
    from kcache_grpc.client.requests.graphs import bind

    numerics = ask.options.numerics
    bindings = [await bind(connection, program, numerics, deadline) for program in ask.evidence]
    return replace(ask, witnesses=tuple(map(witness, bindings)))
