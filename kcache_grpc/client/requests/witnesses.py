"""Fetches the bindings of a request's evidence: programs that are the same computation at other sizes."""

from __future__ import annotations

from dataclasses import replace

from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.deadline import Deadline
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.model.evidence import witness


async def with_witnesses(connection: Connection, request: KernelRequest, deadline: Deadline) -> KernelRequest:
    """The request with what its evidence shows; programs that the service does not know are stored there."""
    if not request.evidence:
        return request
    # Imports what a request without evidence does not need.
    from kcache_grpc.client.requests.graphs import bind

    numerics = request.options.numerics
    bindings = [await bind(connection, program, numerics, deadline) for program in request.evidence]
    return replace(request, witnesses=tuple(map(witness, bindings)))
