"""The graph operations: normalize, store, look up, retrieve, count."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.clock import Deadline
from kcache_grpc.client.connection import Connection
from kcache_grpc.client.transfer import with_program
from kcache_grpc.client.values import CanonicalGraph, Spec, Stats
from kcache_grpc.client.wire import (
    COUNT_SPECS,
    GET_SPEC,
    GET_STATS,
    LOOKUP_GRAPH,
    NORMALIZE_GRAPH,
    STORE_GRAPH,
)
from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound
from kcache_grpc.model.manifest import constant_from_proto, symbol_from_proto, tensor_from_proto
from kcache_grpc.model.program import Program
from kcache_grpc.model.wire import numerics_from_proto, numerics_to_proto

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_KEY = 2**63 - 1


async def normalize(
    connection: Connection, program: Program, numerics: str, deadline: Deadline
) -> CanonicalGraph:
    """The canonical form of a program; nothing is stored."""
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> list[pb.NormalizeGraphResponse]:
        request = pb.NormalizeGraphRequest(header=header, graph=source, numerics=numerics_to_proto(numerics))
        return await connection.line.collect(NORMALIZE_GRAPH, request, deadline, float("inf"))

    replies = await with_program(connection, program, deadline, call)
    if not replies:
        raise IntegrityError("the server normalized a graph without an answer")
    first = replies[0]
    inputs = tuple(map(tensor_from_proto, first.inputs))
    text = _text(b"".join(reply.text_chunk for reply in replies), first.text_size_bytes, first.spec_digest)
    return CanonicalGraph(
        text=text,
        digest=first.spec_digest,
        symbols=tuple(map(symbol_from_proto, first.symbols)),
        arg_spec=";".join(map(str, inputs)),
        inputs=inputs,
        outputs=tuple(map(tensor_from_proto, first.outputs)),
        arg_names=tuple(first.arg_names),
        constants=tuple(map(constant_from_proto, first.constants)),
    )


async def store(connection: Connection, program: Program, numerics: str, deadline: Deadline) -> int:
    """The key of a program's spec, stored unless it is known. The signed binding is verified."""
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> pb.StoreGraphResponse:
        request = pb.StoreGraphRequest(header=header, graph=source, numerics=numerics_to_proto(numerics))
        return await connection.line.unary(STORE_GRAPH, request, deadline, float("inf"))

    async def checked() -> int:
        reply = await with_program(connection, program, deadline, call)
        binding = (await connection.judge(deadline)).binding(reply.binding, program, numerics)
        if binding.key != reply.key or binding.spec_digest != reply.spec_digest:
            raise IntegrityError(f"the server answered key {reply.key}, and signed key {binding.key}")
        return binding.key

    return await connection.renewed(checked, deadline)


async def lookup(connection: Connection, program: Program, numerics: str, deadline: Deadline) -> Spec | None:
    """The stored spec of a program; nothing is stored."""
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> pb.LookupGraphResponse:
        request = pb.LookupGraphRequest(header=header, graph=source, numerics=numerics_to_proto(numerics))
        return await connection.line.unary(LOOKUP_GRAPH, request, deadline, float("inf"))

    reply = await with_program(connection, program, deadline, call)
    if not reply.HasField("spec"):
        return None
    spec = await retrieve(connection, reply.spec.key, deadline)
    if spec is None or spec.digest != reply.spec.spec_digest:
        raise IntegrityError(f"key {reply.spec.key} does not name the spec that was found")
    return spec


async def retrieve(connection: Connection, key: int, deadline: Deadline) -> Spec | None:
    """The spec of a key; ``None`` for a key that was never given."""
    if isinstance(key, bool) or not isinstance(key, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"a key is an int, not {key!r}")
    if not 0 < key <= _MAX_KEY:
        return None
    request = pb.GetSpecRequest(header=connection.header(), key=key)
    try:
        replies = await connection.line.collect(GET_SPEC, request, deadline)
    except NotFound:
        return None
    if not replies or replies[0].spec.key != key:
        raise IntegrityError(f"the server answered the question for key {key} with something else")
    summary = replies[0].spec
    content = b"".join(reply.text_chunk for reply in replies)
    created = summary.create_time
    return Spec(
        key=key,
        digest=summary.spec_digest,
        text=_text(content, summary.text_size_bytes, summary.spec_digest),
        numerics=numerics_from_proto(summary.numerics),
        canonicalizer=summary.canonicalizer,
        created=_EPOCH + timedelta(seconds=created.seconds, microseconds=created.nanos // 1000),
    )


async def count(connection: Connection, deadline: Deadline) -> int:
    """How many specs the namespace has."""
    request = pb.CountSpecsRequest(header=connection.header())
    return (await connection.line.unary(COUNT_SPECS, request, deadline)).count


async def stats(connection: Connection, deadline: Deadline, client: dict[str, int]) -> Stats:
    """The service's counters of the namespace, beside the client's own."""
    reply = await connection.line.unary(GET_STATS, pb.GetStatsRequest(header=connection.header()), deadline)
    return Stats(
        specs=reply.specs,
        mappings=reply.mappings,
        kernels=reply.kernels,
        artifacts=reply.artifacts,
        artifact_bytes=reply.artifact_bytes,
        hits=reply.hits,
        compiles=reply.compiles,
        remembered_failures=reply.remembered_failures,
        seconds_saved=reply.time_saved.seconds + reply.time_saved.nanos / 1e9,
        programs_parsed=reply.programs_parsed,
        memory_hits=reply.memory_hits,
        client=client,
    )


def _text(content: bytes, size: int, digest: bytes) -> str:
    """A spec's text, once its size and digest hold."""
    if len(content) != size or hashlib.sha256(content).digest() != digest:
        raise IntegrityError("the text of a spec does not match its digest")
    return content.decode()
