"""The graph operations: normalize, store, look up, retrieve, count."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone

from google.protobuf.timestamp_pb2 import Timestamp

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.cache.totals import Recorded
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import (
    COUNT_SPECS,
    GET_SPEC,
    GET_STATS,
    LIST_KERNELS,
    LOOKUP_GRAPH,
    NORMALIZE_GRAPH,
    Deadline,
)
from kcache_grpc.client.transport.transfer import bind, with_program
from kcache_grpc.client.values import CanonicalGraph, KernelSummary, Saving, Spec, Stats
from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound
from kcache_grpc.model.manifest import constant_from_proto, symbol_from_proto, tensor_from_proto
from kcache_grpc.model.program import Program
from kcache_grpc.model.wire import (
    numerics_from_proto,
    numerics_to_proto,
    options_from_proto,
    target_from_proto,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_KEY = 2**63 - 1
_PAGE = 1000


async def normalize(
    connection: Connection, program: Program, numerics: str, deadline: Deadline
) -> CanonicalGraph:
    """The canonical form of a program; nothing is stored."""
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> list[pb.NormalizeGraphResponse]:
        request = pb.NormalizeGraphRequest(header=header, graph=source, numerics=numerics_to_proto(numerics))
        return await connection.channel.collect(NORMALIZE_GRAPH, request, deadline, float("inf"))

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
        symbol_values=tuple(first.symbol_values),
        symbolic_inputs=tuple(map(tensor_from_proto, first.symbolic_inputs)),
    )


async def store(connection: Connection, program: Program, numerics: str, deadline: Deadline) -> int:
    """The key of a program's spec, stored unless it is known. The signed binding is verified."""
    return (await bind(connection, program, numerics, deadline)).key


async def lookup(connection: Connection, program: Program, numerics: str, deadline: Deadline) -> Spec | None:
    """The stored spec of a program; nothing is stored."""
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> pb.LookupGraphResponse:
        request = pb.LookupGraphRequest(header=header, graph=source, numerics=numerics_to_proto(numerics))
        return await connection.channel.unary(LOOKUP_GRAPH, request, deadline, float("inf"))

    reply = await with_program(connection, program, deadline, call)
    if not reply.HasField("spec"):
        return None
    spec = await retrieve(connection, reply.spec.key, deadline)
    if spec is None or spec.digest != reply.spec.spec_digest:
        raise IntegrityError(f"key {reply.spec.key} does not name the spec that was found")
    return spec


async def retrieve(connection: Connection, key: int, deadline: Deadline) -> Spec | None:
    """The spec of a key; ``None`` for a key that was never given."""
    if not _may_be_key(key):
        return None
    request = pb.GetSpecRequest(header=connection.header(), key=key)
    try:
        replies = await connection.channel.collect(GET_SPEC, request, deadline)
    except NotFound:
        return None
    if not replies or replies[0].spec.key != key:
        raise IntegrityError(f"the server answered the question for key {key} with something else")
    summary = replies[0].spec
    content = b"".join(reply.text_chunk for reply in replies)
    return Spec(
        key=key,
        digest=summary.spec_digest,
        text=_text(content, summary.text_size_bytes, summary.spec_digest),
        numerics=numerics_from_proto(summary.numerics),
        canonicalizer=summary.canonicalizer,
        created=_time(summary.create_time),
        current_key=summary.current_key or key,
    )


async def kernels(connection: Connection, key: int, deadline: Deadline) -> tuple[KernelSummary, ...]:
    """The stored kernels of a key, youngest first; none for a key that was never given."""
    summaries: list[KernelSummary] = []
    request = pb.ListKernelsRequest(header=connection.header(), key=key, page_size=_PAGE)
    while _may_be_key(key):
        try:
            page = await connection.channel.unary(LIST_KERNELS, request, deadline)
        except NotFound:
            break
        summaries += map(_summary, page.kernels)
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    return tuple(summaries)


def _summary(kernel: pb.KernelSummary) -> KernelSummary:
    duration = kernel.compile_duration
    return KernelSummary(
        digest=kernel.kernel_digest,
        arg_spec=kernel.arg_spec,
        guard=kernel.guard,
        target=target_from_proto(kernel.target),
        options=options_from_proto(kernel.options),
        toolchain_digest=kernel.toolchain_digest,
        created=_time(kernel.create_time),
        compile_seconds=duration.seconds + duration.nanos / 1e9,
    )


def _time(stamp: Timestamp) -> datetime:
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def _may_be_key(key: int) -> bool:
    """Raises ``ArgumentError`` for what is no int."""
    if isinstance(key, bool) or not isinstance(key, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"a key is an int, not {key!r}")
    return 0 < key <= _MAX_KEY


async def count(connection: Connection, deadline: Deadline) -> int:
    """How many specs the namespace has."""
    request = pb.CountSpecsRequest(header=connection.header())
    return (await connection.channel.unary(COUNT_SPECS, request, deadline)).count


async def stats(connection: Connection, deadline: Deadline, client: dict[str, int], local: Recorded) -> Stats:
    """Counters of the namespace at the service, and those of the client."""
    reply = await connection.channel.unary(
        GET_STATS, pb.GetStatsRequest(header=connection.header()), deadline
    )
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
        audit_events=reply.audit_events,
        audit_dropped=reply.audit_dropped,
        blobs=reply.blobs,
        blob_bytes=reply.blob_bytes,
        blob_hits=reply.blob_hits,
        blob_seconds_saved=reply.blob_time_saved.ToMicroseconds() / 1e6,
        assertions=reply.assertions,
        assertion_bytes=reply.assertion_bytes,
        assertion_conflicts=reply.assertion_conflicts,
        assertions_quarantined=reply.assertions_quarantined,
        client=client,
        local=local.kernels,
        savings=tuple(map(_saving, reply.caller_savings)),
        bypasses={each.reason: each.count for each in reply.bypasses},
        local_seconds_saved=local.seconds_saved,
        local_savings=_local_savings(local),
        local_bypasses=local.bypasses,
    )


def _saving(message: pb.CallerSavings) -> Saving:
    saved = message.time_saved
    return Saving(
        message.actor, message.job, message.hits, saved.seconds + saved.nanos / 1e9, _time(message.last_time)
    )


def _local_savings(local: Recorded) -> tuple[Saving, ...]:
    """Most time first."""
    savings = [Saving(*caller, hits, saved / 1e6) for caller, (hits, saved) in local.callers.items()]
    return tuple(sorted(savings, key=lambda each: (-each.seconds_saved, -each.hits, each.actor, each.job)))


def _text(content: bytes, size: int, digest: bytes) -> str:
    """A spec's text, once its size and digest hold."""
    if len(content) != size or hashlib.sha256(content).digest() != digest:
        raise IntegrityError("the text of a spec does not match its digest")
    return content.decode()
