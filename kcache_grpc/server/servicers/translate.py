"""Between messages and values: pure functions, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from google.protobuf import duration_pb2, timestamp_pb2

from kcache_grpc._proto.kcache.v1 import common_pb2, estimate_pb2, kernel_cache_pb2, manifest_pb2
from kcache_grpc.errors import ArgumentError, ResourceExhausted
from kcache_grpc.model.identity import Toolchain
from kcache_grpc.model.manifest import (
    ArtifactRef,
    Manifest,
    artifact_ref_to_proto,
    constant_to_proto,
    symbol_to_proto,
    tensor_to_proto,
)
from kcache_grpc.model.program import Program, ProgramFormat
from kcache_grpc.model.signing import Signed, server_id
from kcache_grpc.model.wire import (
    artifact_kind_from_proto,
    format_from_proto,
    format_to_proto,
    numerics_to_proto,
    options_from_proto,
    options_to_proto,
    shapes_from_proto,
    target_from_proto,
    target_match_from_proto,
    target_match_to_proto,
    target_to_proto,
)
from kcache_grpc.service.compile.estimates import Basis, Estimate
from kcache_grpc.service.values import (
    Answer,
    Capabilities,
    Found,
    GraphSource,
    KernelPage,
    KernelRequirements,
    Limits,
    Missing,
    Normalized,
    Origin,
    Stage,
    StoredSpec,
)
from kcache_grpc.storage.contract.assertions import AssertionTotals
from kcache_grpc.storage.contract.blob_cache import ValueTotals
from kcache_grpc.storage.contract.saved_time import SavingRecord
from kcache_grpc.storage.records import FailureRecord, Stats, StoredKernel

#: Parts of texts and artifacts in streams.
CHUNK_BYTES = 1 << 20
#: Events of CompileKernels are packed into messages of about this size; 4 MiB is the transport's limit.
MESSAGE_BYTES = 3 << 20
#: Bytes that are taken for a message of GetKernels.
RESULTS_BYTES = 256 << 10
# Protobuf's tags of two fields: number times 8, plus the wire type.
_INDEX_TAG = bytes([kernel_cache_pb2.KernelResult.INDEX_FIELD_NUMBER << 3])
_RESULTS_TAG = bytes([kernel_cache_pb2.GetKernelsResponse.RESULTS_FIELD_NUMBER << 3 | 2])
_DUPLICATE = bytes(
    [
        kernel_cache_pb2.KernelResult.STATUS_FIELD_NUMBER << 3,
        kernel_cache_pb2.KERNEL_STATUS_DUPLICATE,
        kernel_cache_pb2.KernelResult.FIRST_INDEX_FIELD_NUMBER << 3,
    ]
)
_RESULT_TAG = bytes([kernel_cache_pb2.CompileKernelResponse.RESULT_FIELD_NUMBER << 3 | 2])
_EVENTS_TAG = bytes([kernel_cache_pb2.CompileKernelsResponse.EVENTS_FIELD_NUMBER << 3 | 2])
_EVENT_INDEX_TAG = bytes([kernel_cache_pb2.CompileKernelsEvent.INDEX_FIELD_NUMBER << 3])
_REPLY_TAG = bytes([kernel_cache_pb2.CompileKernelsEvent.REPLY_FIELD_NUMBER << 3 | 2])
_FAILURE_TAG = bytes([kernel_cache_pb2.CompileKernelsEvent.FAILURE_FIELD_NUMBER << 3 | 2])
#: Bytes of artifacts inside the result of a compile: with manifest and binding below the transport's limit.
MAX_INLINE_BYTES = 3 << 20
#: Diagnostics in results of GetKernels.
_MAX_DIAGNOSTIC = 4000

_ORIGINS = {
    Origin.STORED: kernel_cache_pb2.ORIGIN_STORED,
    Origin.COMPILED: kernel_cache_pb2.ORIGIN_COMPILED,
    Origin.JOINED: kernel_cache_pb2.ORIGIN_JOINED,
    Origin.PRELOADED: kernel_cache_pb2.ORIGIN_PRELOADED,
}
_BASES = {
    Basis.HIT: estimate_pb2.ESTIMATE_BASIS_HIT,
    Basis.SAME_SPEC: estimate_pb2.ESTIMATE_BASIS_SAME_SPEC,
    Basis.NEAREST_SPECS: estimate_pb2.ESTIMATE_BASIS_NEAREST_SPECS,
    Basis.NO_HISTORY: estimate_pb2.ESTIMATE_BASIS_NO_HISTORY,
}


def graph_source(message: common_pb2.GraphSource, limits: Limits) -> GraphSource:
    """A program, or a digest. Raises ``ArgumentError``, ``InvalidProgram``, ``ResourceExhausted``."""
    kind = message.WhichOneof("source")
    if kind is None:
        raise ArgumentError(
            "the request names no graph; set graph.program or graph.program_digest", field="graph"
        )
    if kind == "program_digest":
        return message.program_digest
    size = len(message.program.body)
    if size > limits.inline_program_bytes:
        raise ResourceExhausted(
            f"a program of {size} bytes inside a request is above the limit of "
            f"{limits.inline_program_bytes}; use UploadProgram",
            limit="max_inline_program_bytes",
        )
    return Program(format_from_proto(message.program.format), message.program.body)


def kernel_requirements(
    target: common_pb2.Target,
    options: common_pb2.Options,
    shapes: common_pb2.DynamicShapes,
    match: common_pb2.TargetMatch,
) -> KernelRequirements:
    """Target, options, sizes and target match of a request. Raises ``ArgumentError``."""
    return _kernel_requirements(
        target.SerializeToString(), options.SerializeToString(), shapes.SerializeToString(), match
    )


@lru_cache(maxsize=256)
def _kernel_requirements(target: bytes, options: bytes, shapes: bytes, match: int) -> KernelRequirements:
    """Callers ask for few different ones, each many times."""
    return KernelRequirements(
        target_from_proto(common_pb2.Target.FromString(target)),
        options_from_proto(common_pb2.Options.FromString(options)),
        shapes_from_proto(common_pb2.DynamicShapes.FromString(shapes)),
        compatible=target_match_from_proto(match),
    )


def kinds(values: Iterable[int]) -> frozenset[str]:
    """Artifact kinds of a request. Raises ``ArgumentError``."""
    return frozenset(map(artifact_kind_from_proto, values))


def signed(value: Signed) -> common_pb2.SignedBytes:
    """Signed bytes."""
    return common_pb2.SignedBytes(payload=value.payload, signature=value.signature, key_id=value.key_id)


def duration(seconds: float) -> duration_pb2.Duration:
    """Seconds."""
    whole, nanos = divmod(round(seconds * 1e9), 1_000_000_000)
    return duration_pb2.Duration(seconds=whole, nanos=nanos)


def timestamp(microseconds: int) -> timestamp_pb2.Timestamp:
    """UTC microseconds since 1970."""
    whole, rest = divmod(microseconds, 1_000_000)
    return timestamp_pb2.Timestamp(seconds=whole, nanos=rest * 1000)


def capabilities(value: Capabilities) -> kernel_cache_pb2.GetCapabilitiesResponse:
    """What the server is."""
    limits = value.limits
    return kernel_cache_pb2.GetCapabilitiesResponse(
        server_version=value.server_version,
        server_id=server_id(value.public_key),
        public_key=value.public_key,
        epoch=value.epoch,
        toolchain=_ingredients(value.toolchains.cpu),
        toolchain_digest=value.toolchains.cpu.digest,
        formats=[format_to_proto(ProgramFormat(name)) for name in value.formats],
        targets=[target_to_proto(target) for target in value.targets],
        limits=kernel_cache_pb2.ServerLimits(
            max_program_bytes=limits.program_bytes,
            max_inline_program_bytes=limits.inline_program_bytes,
            max_operations=limits.operations,
            max_nesting=limits.nesting,
            max_queries=limits.queries,
            max_inline_artifact_bytes=limits.inline_artifact_bytes,
            normalize_timeout=duration(limits.normalize_seconds),
            compile_timeout=duration(limits.compile_seconds),
            default_deadline=duration(limits.default_deadline_seconds),
            max_assertion_bytes=limits.assertion_bytes,
        ),
        abis=[1, 2],
        canonicalizer=value.canonicalizer,
        toolchain_disowned=value.toolchains.cpu.digest in value.disowned,
        gpu_toolchain=_ingredients(value.toolchains.gpu),
        gpu_toolchain_digest=value.toolchains.gpu.digest,
        gpu_toolchain_disowned=value.toolchains.gpu.digest in value.disowned,
        target_match=target_match_to_proto(value.compatible_targets),
    )


def _ingredients(toolchain: Toolchain) -> list[manifest_pb2.Ingredient]:
    return [manifest_pb2.Ingredient(name=name, value=text) for name, text in toolchain.ingredients]


def normalized(value: Normalized) -> Iterator[kernel_cache_pb2.NormalizeGraphResponse]:
    """The canonical graph, in parts."""
    binding, text = value.binding, value.text.encode()
    yield kernel_cache_pb2.NormalizeGraphResponse(
        spec_digest=binding.spec_digest,
        text_size_bytes=len(text),
        text_chunk=text[:CHUNK_BYTES],
        inputs=map(tensor_to_proto, binding.inputs),
        outputs=map(tensor_to_proto, binding.outputs),
        symbols=map(symbol_to_proto, binding.symbols),
        arg_names=binding.arg_names,
        constants=map(constant_to_proto, binding.constants),
        symbol_values=binding.symbol_values or [-1] * len(binding.symbols),
        symbolic_inputs=map(tensor_to_proto, binding.symbolic_inputs or binding.inputs),
    )
    for start in range(CHUNK_BYTES, len(text), CHUNK_BYTES):
        yield kernel_cache_pb2.NormalizeGraphResponse(text_chunk=text[start : start + CHUNK_BYTES])


def spec_summary(value: StoredSpec) -> kernel_cache_pb2.SpecSummary:
    """A spec without its text."""
    spec = value.record
    return kernel_cache_pb2.SpecSummary(
        key=spec.key,
        spec_digest=spec.spec_digest,
        numerics=numerics_to_proto(spec.numerics),
        canonicalizer=spec.canonicalizer,
        create_time=timestamp(spec.created_at),
        text_size_bytes=len(spec.text.encode()),
        current_key=value.current_key,
    )


def spec(value: StoredSpec) -> Iterator[kernel_cache_pb2.GetSpecResponse]:
    """A spec, in parts."""
    text = value.record.text.encode()
    yield kernel_cache_pb2.GetSpecResponse(spec=spec_summary(value), text_chunk=text[:CHUNK_BYTES])
    for start in range(CHUNK_BYTES, len(text), CHUNK_BYTES):
        yield kernel_cache_pb2.GetSpecResponse(text_chunk=text[start : start + CHUNK_BYTES])


def kernel_page(page: KernelPage) -> kernel_cache_pb2.ListKernelsResponse:
    """Some kernels of a key."""
    return kernel_cache_pb2.ListKernelsResponse(
        kernels=map(_kernel_summary, page.kernels), next_page_token=page.next_token
    )


def _kernel_summary(kernel: StoredKernel) -> kernel_cache_pb2.KernelSummary:
    manifest = Manifest.from_bytes(kernel.manifest.payload)
    return kernel_cache_pb2.KernelSummary(
        kernel_digest=kernel.kernel.kernel_digest,
        arg_spec=kernel.kernel.arg_spec,
        guard=kernel.kernel.guard,
        target=target_to_proto(manifest.target),
        options=options_to_proto(manifest.options),
        toolchain_digest=kernel.kernel.toolchain,
        create_time=timestamp(kernel.created_at),
        compile_duration=duration(kernel.compile_us / 1e6),
    )


def kernel_results(results: Iterable[tuple[int, Found | Missing]]) -> bytes:
    """A serialized ``GetKernelsResponse`` of results and the indices of their queries.

    A result is serialized once, without its index, and kept with the answer; fields may come in any order.
    """
    packed: list[bytes] = []
    for index, result in results:
        body = _encoded(result)
        prefix = _INDEX_TAG + varint(index)
        packed += (_RESULTS_TAG, varint(len(prefix) + len(body)), prefix, body)
    return b"".join(packed)


def duplicate_results(duplicates: Iterable[tuple[int, int]]) -> bytes:
    """The same of queries that repeat an earlier one: their indices, each with that of the earlier one."""
    packed: list[bytes] = []
    for index, first in duplicates:
        body = b"".join((_INDEX_TAG, varint(index), _DUPLICATE, varint(first)))
        packed += (_RESULTS_TAG, varint(len(body)), body)
    return b"".join(packed)


def _encoded(result: Found | Missing) -> bytes:
    if isinstance(result, Missing):
        return _missing(result).SerializeToString()
    if not result.encoded:
        result.encoded = kernel_cache_pb2.KernelResult(
            status=kernel_cache_pb2.KERNEL_STATUS_FOUND,
            key=result.graph.key,
            binding=signed(result.graph.binding),
            manifest=signed(result.kernel.manifest),
            artifacts=[_inline(ref, data) for ref, data in result.inline],
        ).SerializeToString()
    return result.encoded


def _inline(ref: ArtifactRef, data: bytes) -> kernel_cache_pb2.InlineArtifact:
    return kernel_cache_pb2.InlineArtifact(ref=artifact_ref_to_proto(ref), data=data)


@lru_cache(maxsize=8192)
def varint(value: int) -> bytes:
    """Protobuf's variable-length form of a number that is not negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _missing(result: Missing) -> kernel_cache_pb2.KernelResult:
    message = kernel_cache_pb2.KernelResult()
    if result.graph is not None:
        message.key = result.graph.key
        message.binding.CopyFrom(signed(result.graph.binding))
    if result.failure is not None:
        message.status = kernel_cache_pb2.KERNEL_STATUS_FAILED
        message.failure.CopyFrom(_failure(result.failure))
    elif result.graph is not None:
        message.status = kernel_cache_pb2.KERNEL_STATUS_NEED_COMPILE
    else:
        message.status = kernel_cache_pb2.KERNEL_STATUS_NEED_PROGRAM
    return message


def _failure(record: FailureRecord) -> kernel_cache_pb2.RememberedFailure:
    return kernel_cache_pb2.RememberedFailure(
        reason=record.failure.reason,
        stage=record.failure.stage,
        diagnostic=(record.failure.diagnostic or dict(record.failure.detail).get("message", ""))[
            -_MAX_DIAGNOSTIC:
        ],
        retry_time=timestamp(record.expires_at),
    )


def stage(value: Stage, elapsed: float) -> kernel_cache_pb2.CompileKernelResponse:
    """A stage began."""
    return kernel_cache_pb2.CompileKernelResponse(
        stage=kernel_cache_pb2.CompileStage(
            stage=value.name,
            elapsed=duration(elapsed),
            earlier_stages=value.earlier,
            expected_duration=None if value.expected is None else duration(value.expected),
        )
    )


def estimate(value: Estimate) -> estimate_pb2.EstimateCompileResponse:
    """The expected time of a compile."""
    return estimate_pb2.EstimateCompileResponse(
        expected_duration=None if value.seconds is None else duration(value.seconds),
        basis=_BASES[value.basis],
        sample_count=value.samples,
    )


def heartbeat(elapsed: float) -> kernel_cache_pb2.CompileKernelResponse:
    """Still at work."""
    return kernel_cache_pb2.CompileKernelResponse(
        heartbeat=kernel_cache_pb2.Heartbeat(elapsed=duration(elapsed))
    )


def within(refs: Iterable[ArtifactRef], budget: int) -> tuple[list[ArtifactRef], list[ArtifactRef]]:
    """Those whose bytes fit the budget, first come first served, and the others."""
    inline: list[ArtifactRef] = []
    others: list[ArtifactRef] = []
    for ref in refs:
        fits = ref.size <= budget
        (inline if fits else others).append(ref)
        budget -= ref.size if fits else 0
    return inline, others


def compiled(answer: Answer, origin: Origin, inline: Iterable[tuple[ArtifactRef, bytes]] = ()) -> bytes:
    """The result of a compile, with the bytes of some artifacts: a serialized ``CompileResult``."""
    return kernel_cache_pb2.CompileResult(
        key=answer.graph.key,
        origin=_ORIGINS[origin],
        binding=signed(answer.graph.binding),
        manifest=signed(answer.kernel.manifest),
        artifacts=[_inline(ref, data) for ref, data in inline],
    ).SerializeToString()


def with_stages(result: bytes, stages: tuple[str, ...]) -> bytes:
    """A serialized ``CompileKernelResponse`` of a serialized result and the stages that belong to it."""
    encoded = _encoded_stages(stages)
    return b"".join((_RESULT_TAG, varint(len(result) + len(encoded)), result, encoded))


@lru_cache(maxsize=256)
def _encoded_stages(stages: tuple[str, ...]) -> bytes:
    """Most waiters of a kernel receive the same events."""
    return kernel_cache_pb2.CompileResult(earlier_stages=stages).SerializeToString()


def chunk(ref: ArtifactRef, offset: int, data: bytes) -> kernel_cache_pb2.CompileKernelResponse:
    """A part of an artifact."""
    return kernel_cache_pb2.CompileKernelResponse(
        chunk=kernel_cache_pb2.ArtifactChunk(ref=artifact_ref_to_proto(ref), offset=offset, data=data)
    )


def event_of_reply(index: int, reply: bytes | kernel_cache_pb2.CompileKernelResponse) -> bytes:
    """A serialized ``CompileKernelsResponse`` with one event; such bytes, put together, are one with all."""
    body = reply if isinstance(reply, bytes) else reply.SerializeToString()
    return _event(index, _REPLY_TAG, body)


def event_of_failure(index: int, status: bytes) -> bytes:
    """As ``event_of_reply``, of a serialized ``google.rpc.Status``."""
    return _event(index, _FAILURE_TAG, status)


def _event(index: int, tag: bytes, body: bytes) -> bytes:
    start = b"".join((_EVENT_INDEX_TAG, varint(index), tag, varint(len(body))))
    return b"".join((_EVENTS_TAG, varint(len(start) + len(body)), start, body))


def stats(
    value: Stats,
    programs_parsed: int,
    memory_hits: int,
    audit_dropped: int,
    savings: Iterable[SavingRecord],
    bypasses: Mapping[str, int],
    blobs: ValueTotals,
    assertions: AssertionTotals,
) -> kernel_cache_pb2.GetStatsResponse:
    """Counters."""
    return kernel_cache_pb2.GetStatsResponse(
        specs=value.specs,
        mappings=value.mappings,
        kernels=value.kernels,
        artifacts=value.artifacts,
        artifact_bytes=value.artifact_bytes,
        hits=value.hits,
        compiles=value.compiles,
        remembered_failures=value.failures,
        time_saved=duration(value.saved_us / 1e6),
        programs_parsed=programs_parsed,
        memory_hits=memory_hits,
        audit_events=value.audit_events,
        audit_dropped=audit_dropped,
        caller_savings=map(_caller_savings, savings),
        bypasses=[
            kernel_cache_pb2.BypassCount(reason=reason, count=count)
            for reason, count in bypasses.items()
            if count
        ],
        blobs=blobs.values,
        blob_bytes=blobs.bytes,
        blob_hits=blobs.hits,
        blob_time_saved=duration(blobs.saved_us / 1e6),
        assertions=assertions.assertions,
        assertion_bytes=assertions.bytes,
        assertion_conflicts=assertions.conflicts,
        assertions_quarantined=assertions.quarantined,
    )


def _caller_savings(record: SavingRecord) -> kernel_cache_pb2.CallerSavings:
    return kernel_cache_pb2.CallerSavings(
        actor=record.actor,
        job=record.job,
        hits=record.hits,
        time_saved=duration(record.saved_us / 1e6),
        last_time=timestamp(record.last_used_at),
    )
