import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from kcache_grpc._proto.kcache.v1 import estimate_pb2 as _estimate_pb2
from kcache_grpc._proto.kcache.v1 import explain_pb2 as _explain_pb2
from kcache_grpc._proto.kcache.v1 import manifest_pb2 as _manifest_pb2
from kcache_grpc._proto.kcache.v1 import support_pb2 as _support_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KernelStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KERNEL_STATUS_UNSPECIFIED: _ClassVar[KernelStatus]
    KERNEL_STATUS_FOUND: _ClassVar[KernelStatus]
    KERNEL_STATUS_NEED_PROGRAM: _ClassVar[KernelStatus]
    KERNEL_STATUS_NEED_COMPILE: _ClassVar[KernelStatus]
    KERNEL_STATUS_FAILED: _ClassVar[KernelStatus]
    KERNEL_STATUS_DUPLICATE: _ClassVar[KernelStatus]

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIGIN_UNSPECIFIED: _ClassVar[Origin]
    ORIGIN_STORED: _ClassVar[Origin]
    ORIGIN_COMPILED: _ClassVar[Origin]
    ORIGIN_JOINED: _ClassVar[Origin]
    ORIGIN_PRELOADED: _ClassVar[Origin]
KERNEL_STATUS_UNSPECIFIED: KernelStatus
KERNEL_STATUS_FOUND: KernelStatus
KERNEL_STATUS_NEED_PROGRAM: KernelStatus
KERNEL_STATUS_NEED_COMPILE: KernelStatus
KERNEL_STATUS_FAILED: KernelStatus
KERNEL_STATUS_DUPLICATE: KernelStatus
ORIGIN_UNSPECIFIED: Origin
ORIGIN_STORED: Origin
ORIGIN_COMPILED: Origin
ORIGIN_JOINED: Origin
ORIGIN_PRELOADED: Origin

class GetCapabilitiesRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ...) -> None: ...

class ServerLimits(_message.Message):
    __slots__ = ("max_program_bytes", "max_inline_program_bytes", "max_operations", "max_nesting", "max_queries", "max_inline_artifact_bytes", "normalize_timeout", "compile_timeout", "default_deadline", "max_assertion_bytes")
    MAX_PROGRAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_INLINE_PROGRAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_NESTING_FIELD_NUMBER: _ClassVar[int]
    MAX_QUERIES_FIELD_NUMBER: _ClassVar[int]
    MAX_INLINE_ARTIFACT_BYTES_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    COMPILE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    MAX_ASSERTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_program_bytes: int
    max_inline_program_bytes: int
    max_operations: int
    max_nesting: int
    max_queries: int
    max_inline_artifact_bytes: int
    normalize_timeout: _duration_pb2.Duration
    compile_timeout: _duration_pb2.Duration
    default_deadline: _duration_pb2.Duration
    max_assertion_bytes: int
    def __init__(self, max_program_bytes: _Optional[int] = ..., max_inline_program_bytes: _Optional[int] = ..., max_operations: _Optional[int] = ..., max_nesting: _Optional[int] = ..., max_queries: _Optional[int] = ..., max_inline_artifact_bytes: _Optional[int] = ..., normalize_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., compile_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., default_deadline: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_assertion_bytes: _Optional[int] = ...) -> None: ...

class GetCapabilitiesResponse(_message.Message):
    __slots__ = ("server_version", "server_id", "public_key", "epoch", "toolchain", "toolchain_digest", "formats", "targets", "limits", "abis", "canonicalizer", "toolchain_disowned", "gpu_toolchain", "gpu_toolchain_digest", "gpu_toolchain_disowned", "target_match")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    ABIS_FIELD_NUMBER: _ClassVar[int]
    CANONICALIZER_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_DISOWNED_FIELD_NUMBER: _ClassVar[int]
    GPU_TOOLCHAIN_FIELD_NUMBER: _ClassVar[int]
    GPU_TOOLCHAIN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GPU_TOOLCHAIN_DISOWNED_FIELD_NUMBER: _ClassVar[int]
    TARGET_MATCH_FIELD_NUMBER: _ClassVar[int]
    server_version: str
    server_id: str
    public_key: bytes
    epoch: int
    toolchain: _containers.RepeatedCompositeFieldContainer[_manifest_pb2.Ingredient]
    toolchain_digest: bytes
    formats: _containers.RepeatedScalarFieldContainer[_common_pb2.ProgramFormat]
    targets: _containers.RepeatedCompositeFieldContainer[_common_pb2.Target]
    limits: ServerLimits
    abis: _containers.RepeatedScalarFieldContainer[int]
    canonicalizer: int
    toolchain_disowned: bool
    gpu_toolchain: _containers.RepeatedCompositeFieldContainer[_manifest_pb2.Ingredient]
    gpu_toolchain_digest: bytes
    gpu_toolchain_disowned: bool
    target_match: _common_pb2.TargetMatch
    def __init__(self, server_version: _Optional[str] = ..., server_id: _Optional[str] = ..., public_key: _Optional[bytes] = ..., epoch: _Optional[int] = ..., toolchain: _Optional[_Iterable[_Union[_manifest_pb2.Ingredient, _Mapping]]] = ..., toolchain_digest: _Optional[bytes] = ..., formats: _Optional[_Iterable[_Union[_common_pb2.ProgramFormat, str]]] = ..., targets: _Optional[_Iterable[_Union[_common_pb2.Target, _Mapping]]] = ..., limits: _Optional[_Union[ServerLimits, _Mapping]] = ..., abis: _Optional[_Iterable[int]] = ..., canonicalizer: _Optional[int] = ..., toolchain_disowned: bool = ..., gpu_toolchain: _Optional[_Iterable[_Union[_manifest_pb2.Ingredient, _Mapping]]] = ..., gpu_toolchain_digest: _Optional[bytes] = ..., gpu_toolchain_disowned: bool = ..., target_match: _Optional[_Union[_common_pb2.TargetMatch, str]] = ...) -> None: ...

class NormalizeGraphRequest(_message.Message):
    __slots__ = ("header", "graph", "numerics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    graph: _common_pb2.GraphSource
    numerics: _common_pb2.Numerics
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., graph: _Optional[_Union[_common_pb2.GraphSource, _Mapping]] = ..., numerics: _Optional[_Union[_common_pb2.Numerics, str]] = ...) -> None: ...

class NormalizeGraphResponse(_message.Message):
    __slots__ = ("spec_digest", "text_size_bytes", "text_chunk", "inputs", "outputs", "symbols", "arg_names", "constants", "symbol_values", "symbolic_inputs")
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TEXT_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEXT_CHUNK_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    ARG_NAMES_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_VALUES_FIELD_NUMBER: _ClassVar[int]
    SYMBOLIC_INPUTS_FIELD_NUMBER: _ClassVar[int]
    spec_digest: bytes
    text_size_bytes: int
    text_chunk: bytes
    inputs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    outputs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    symbols: _containers.RepeatedCompositeFieldContainer[_common_pb2.SymbolSpec]
    arg_names: _containers.RepeatedScalarFieldContainer[str]
    constants: _containers.RepeatedCompositeFieldContainer[_manifest_pb2.ConstantBinding]
    symbol_values: _containers.RepeatedScalarFieldContainer[int]
    symbolic_inputs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    def __init__(self, spec_digest: _Optional[bytes] = ..., text_size_bytes: _Optional[int] = ..., text_chunk: _Optional[bytes] = ..., inputs: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ..., symbols: _Optional[_Iterable[_Union[_common_pb2.SymbolSpec, _Mapping]]] = ..., arg_names: _Optional[_Iterable[str]] = ..., constants: _Optional[_Iterable[_Union[_manifest_pb2.ConstantBinding, _Mapping]]] = ..., symbol_values: _Optional[_Iterable[int]] = ..., symbolic_inputs: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...

class StoreGraphRequest(_message.Message):
    __slots__ = ("header", "graph", "numerics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    graph: _common_pb2.GraphSource
    numerics: _common_pb2.Numerics
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., graph: _Optional[_Union[_common_pb2.GraphSource, _Mapping]] = ..., numerics: _Optional[_Union[_common_pb2.Numerics, str]] = ...) -> None: ...

class StoreGraphResponse(_message.Message):
    __slots__ = ("key", "spec_digest", "created", "binding")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    key: int
    spec_digest: bytes
    created: bool
    binding: _common_pb2.SignedBytes
    def __init__(self, key: _Optional[int] = ..., spec_digest: _Optional[bytes] = ..., created: bool = ..., binding: _Optional[_Union[_common_pb2.SignedBytes, _Mapping]] = ...) -> None: ...

class LookupGraphRequest(_message.Message):
    __slots__ = ("header", "graph", "numerics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    graph: _common_pb2.GraphSource
    numerics: _common_pb2.Numerics
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., graph: _Optional[_Union[_common_pb2.GraphSource, _Mapping]] = ..., numerics: _Optional[_Union[_common_pb2.Numerics, str]] = ...) -> None: ...

class LookupGraphResponse(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: SpecSummary
    def __init__(self, spec: _Optional[_Union[SpecSummary, _Mapping]] = ...) -> None: ...

class SpecSummary(_message.Message):
    __slots__ = ("key", "spec_digest", "numerics", "canonicalizer", "create_time", "text_size_bytes", "current_key")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    CANONICALIZER_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    TEXT_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_KEY_FIELD_NUMBER: _ClassVar[int]
    key: int
    spec_digest: bytes
    numerics: _common_pb2.Numerics
    canonicalizer: int
    create_time: _timestamp_pb2.Timestamp
    text_size_bytes: int
    current_key: int
    def __init__(self, key: _Optional[int] = ..., spec_digest: _Optional[bytes] = ..., numerics: _Optional[_Union[_common_pb2.Numerics, str]] = ..., canonicalizer: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text_size_bytes: _Optional[int] = ..., current_key: _Optional[int] = ...) -> None: ...

class GetSpecRequest(_message.Message):
    __slots__ = ("header", "key")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    key: int
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., key: _Optional[int] = ...) -> None: ...

class GetSpecResponse(_message.Message):
    __slots__ = ("spec", "text_chunk")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TEXT_CHUNK_FIELD_NUMBER: _ClassVar[int]
    spec: SpecSummary
    text_chunk: bytes
    def __init__(self, spec: _Optional[_Union[SpecSummary, _Mapping]] = ..., text_chunk: _Optional[bytes] = ...) -> None: ...

class CountSpecsRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ...) -> None: ...

class CountSpecsResponse(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class KernelQuery(_message.Message):
    __slots__ = ("program_digest",)
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    program_digest: bytes
    def __init__(self, program_digest: _Optional[bytes] = ...) -> None: ...

class GetKernelsRequest(_message.Message):
    __slots__ = ("header", "queries", "target", "options", "artifact_kinds", "inline_budget_bytes", "shapes", "target_match")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_KINDS_FIELD_NUMBER: _ClassVar[int]
    INLINE_BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    TARGET_MATCH_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    queries: _containers.RepeatedCompositeFieldContainer[KernelQuery]
    target: _common_pb2.Target
    options: _common_pb2.Options
    artifact_kinds: _containers.RepeatedScalarFieldContainer[_manifest_pb2.ArtifactKind]
    inline_budget_bytes: int
    shapes: _common_pb2.DynamicShapes
    target_match: _common_pb2.TargetMatch
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., queries: _Optional[_Iterable[_Union[KernelQuery, _Mapping]]] = ..., target: _Optional[_Union[_common_pb2.Target, _Mapping]] = ..., options: _Optional[_Union[_common_pb2.Options, _Mapping]] = ..., artifact_kinds: _Optional[_Iterable[_Union[_manifest_pb2.ArtifactKind, str]]] = ..., inline_budget_bytes: _Optional[int] = ..., shapes: _Optional[_Union[_common_pb2.DynamicShapes, _Mapping]] = ..., target_match: _Optional[_Union[_common_pb2.TargetMatch, str]] = ...) -> None: ...

class InlineArtifact(_message.Message):
    __slots__ = ("ref", "data")
    REF_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ref: _manifest_pb2.ArtifactRef
    data: bytes
    def __init__(self, ref: _Optional[_Union[_manifest_pb2.ArtifactRef, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class KernelResult(_message.Message):
    __slots__ = ("index", "status", "key", "binding", "manifest", "artifacts", "failure", "first_index")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    index: int
    status: KernelStatus
    key: int
    binding: _common_pb2.SignedBytes
    manifest: _common_pb2.SignedBytes
    artifacts: _containers.RepeatedCompositeFieldContainer[InlineArtifact]
    failure: RememberedFailure
    first_index: int
    def __init__(self, index: _Optional[int] = ..., status: _Optional[_Union[KernelStatus, str]] = ..., key: _Optional[int] = ..., binding: _Optional[_Union[_common_pb2.SignedBytes, _Mapping]] = ..., manifest: _Optional[_Union[_common_pb2.SignedBytes, _Mapping]] = ..., artifacts: _Optional[_Iterable[_Union[InlineArtifact, _Mapping]]] = ..., failure: _Optional[_Union[RememberedFailure, _Mapping]] = ..., first_index: _Optional[int] = ...) -> None: ...

class RememberedFailure(_message.Message):
    __slots__ = ("reason", "stage", "diagnostic", "retry_time")
    REASON_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    RETRY_TIME_FIELD_NUMBER: _ClassVar[int]
    reason: str
    stage: str
    diagnostic: str
    retry_time: _timestamp_pb2.Timestamp
    def __init__(self, reason: _Optional[str] = ..., stage: _Optional[str] = ..., diagnostic: _Optional[str] = ..., retry_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetKernelsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[KernelResult]
    def __init__(self, results: _Optional[_Iterable[_Union[KernelResult, _Mapping]]] = ...) -> None: ...

class UploadProgramRequest(_message.Message):
    __slots__ = ("header", "format", "size_bytes", "write_offset", "program_digest", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    format: _common_pb2.ProgramFormat
    size_bytes: int
    write_offset: int
    program_digest: bytes
    data: bytes
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., format: _Optional[_Union[_common_pb2.ProgramFormat, str]] = ..., size_bytes: _Optional[int] = ..., write_offset: _Optional[int] = ..., program_digest: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadProgramResponse(_message.Message):
    __slots__ = ("committed_size_bytes", "complete", "program_digest")
    COMMITTED_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    committed_size_bytes: int
    complete: bool
    program_digest: bytes
    def __init__(self, committed_size_bytes: _Optional[int] = ..., complete: bool = ..., program_digest: _Optional[bytes] = ...) -> None: ...

class GetUploadRequest(_message.Message):
    __slots__ = ("header", "program_digest")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    program_digest: bytes
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., program_digest: _Optional[bytes] = ...) -> None: ...

class GetUploadResponse(_message.Message):
    __slots__ = ("committed_size_bytes", "complete")
    COMMITTED_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    committed_size_bytes: int
    complete: bool
    def __init__(self, committed_size_bytes: _Optional[int] = ..., complete: bool = ...) -> None: ...

class CompileKernelRequest(_message.Message):
    __slots__ = ("header", "graph", "target", "options", "artifact_kinds", "retry_failed", "shapes", "inline_budget_bytes", "target_match")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_KINDS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FAILED_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    INLINE_BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    TARGET_MATCH_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    graph: _common_pb2.GraphSource
    target: _common_pb2.Target
    options: _common_pb2.Options
    artifact_kinds: _containers.RepeatedScalarFieldContainer[_manifest_pb2.ArtifactKind]
    retry_failed: bool
    shapes: _common_pb2.DynamicShapes
    inline_budget_bytes: int
    target_match: _common_pb2.TargetMatch
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., graph: _Optional[_Union[_common_pb2.GraphSource, _Mapping]] = ..., target: _Optional[_Union[_common_pb2.Target, _Mapping]] = ..., options: _Optional[_Union[_common_pb2.Options, _Mapping]] = ..., artifact_kinds: _Optional[_Iterable[_Union[_manifest_pb2.ArtifactKind, str]]] = ..., retry_failed: bool = ..., shapes: _Optional[_Union[_common_pb2.DynamicShapes, _Mapping]] = ..., inline_budget_bytes: _Optional[int] = ..., target_match: _Optional[_Union[_common_pb2.TargetMatch, str]] = ...) -> None: ...

class CompileStage(_message.Message):
    __slots__ = ("stage", "elapsed", "earlier_stages", "expected_duration")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    EARLIER_STAGES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_DURATION_FIELD_NUMBER: _ClassVar[int]
    stage: str
    elapsed: _duration_pb2.Duration
    earlier_stages: _containers.RepeatedScalarFieldContainer[str]
    expected_duration: _duration_pb2.Duration
    def __init__(self, stage: _Optional[str] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., earlier_stages: _Optional[_Iterable[str]] = ..., expected_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("elapsed",)
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    elapsed: _duration_pb2.Duration
    def __init__(self, elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CompileResult(_message.Message):
    __slots__ = ("key", "origin", "binding", "manifest", "earlier_stages", "artifacts")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    EARLIER_STAGES_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    key: int
    origin: Origin
    binding: _common_pb2.SignedBytes
    manifest: _common_pb2.SignedBytes
    earlier_stages: _containers.RepeatedScalarFieldContainer[str]
    artifacts: _containers.RepeatedCompositeFieldContainer[InlineArtifact]
    def __init__(self, key: _Optional[int] = ..., origin: _Optional[_Union[Origin, str]] = ..., binding: _Optional[_Union[_common_pb2.SignedBytes, _Mapping]] = ..., manifest: _Optional[_Union[_common_pb2.SignedBytes, _Mapping]] = ..., earlier_stages: _Optional[_Iterable[str]] = ..., artifacts: _Optional[_Iterable[_Union[InlineArtifact, _Mapping]]] = ...) -> None: ...

class ArtifactChunk(_message.Message):
    __slots__ = ("ref", "offset", "data")
    REF_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ref: _manifest_pb2.ArtifactRef
    offset: int
    data: bytes
    def __init__(self, ref: _Optional[_Union[_manifest_pb2.ArtifactRef, _Mapping]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class CompileKernelResponse(_message.Message):
    __slots__ = ("stage", "heartbeat", "result", "chunk")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    stage: CompileStage
    heartbeat: Heartbeat
    result: CompileResult
    chunk: ArtifactChunk
    def __init__(self, stage: _Optional[_Union[CompileStage, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., result: _Optional[_Union[CompileResult, _Mapping]] = ..., chunk: _Optional[_Union[ArtifactChunk, _Mapping]] = ...) -> None: ...

class CompileKernelsRequest(_message.Message):
    __slots__ = ("header", "requests")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    requests: _containers.RepeatedCompositeFieldContainer[CompileKernelRequest]
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., requests: _Optional[_Iterable[_Union[CompileKernelRequest, _Mapping]]] = ...) -> None: ...

class CompileKernelsEvent(_message.Message):
    __slots__ = ("index", "reply", "failure")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    index: int
    reply: CompileKernelResponse
    failure: bytes
    def __init__(self, index: _Optional[int] = ..., reply: _Optional[_Union[CompileKernelResponse, _Mapping]] = ..., failure: _Optional[bytes] = ...) -> None: ...

class CompileKernelsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[CompileKernelsEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[CompileKernelsEvent, _Mapping]]] = ...) -> None: ...

class ListKernelsRequest(_message.Message):
    __slots__ = ("header", "key", "page_size", "page_token")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    key: int
    page_size: int
    page_token: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., key: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class KernelSummary(_message.Message):
    __slots__ = ("kernel_digest", "arg_spec", "guard", "target", "options", "toolchain_digest", "create_time", "compile_duration")
    KERNEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARG_SPEC_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPILE_DURATION_FIELD_NUMBER: _ClassVar[int]
    kernel_digest: bytes
    arg_spec: str
    guard: str
    target: _common_pb2.Target
    options: _common_pb2.Options
    toolchain_digest: bytes
    create_time: _timestamp_pb2.Timestamp
    compile_duration: _duration_pb2.Duration
    def __init__(self, kernel_digest: _Optional[bytes] = ..., arg_spec: _Optional[str] = ..., guard: _Optional[str] = ..., target: _Optional[_Union[_common_pb2.Target, _Mapping]] = ..., options: _Optional[_Union[_common_pb2.Options, _Mapping]] = ..., toolchain_digest: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., compile_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ListKernelsResponse(_message.Message):
    __slots__ = ("kernels", "next_page_token")
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    kernels: _containers.RepeatedCompositeFieldContainer[KernelSummary]
    next_page_token: str
    def __init__(self, kernels: _Optional[_Iterable[_Union[KernelSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ReadArtifactRequest(_message.Message):
    __slots__ = ("header", "sha256", "read_offset", "read_limit")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    READ_OFFSET_FIELD_NUMBER: _ClassVar[int]
    READ_LIMIT_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    sha256: bytes
    read_offset: int
    read_limit: int
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., sha256: _Optional[bytes] = ..., read_offset: _Optional[int] = ..., read_limit: _Optional[int] = ...) -> None: ...

class ReadArtifactResponse(_message.Message):
    __slots__ = ("data", "size_bytes")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    size_bytes: int
    def __init__(self, data: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ...) -> None: ...

class CallerSavings(_message.Message):
    __slots__ = ("actor", "job", "hits", "time_saved", "last_time")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    TIME_SAVED_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    actor: str
    job: str
    hits: int
    time_saved: _duration_pb2.Duration
    last_time: _timestamp_pb2.Timestamp
    def __init__(self, actor: _Optional[str] = ..., job: _Optional[str] = ..., hits: _Optional[int] = ..., time_saved: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class BypassCount(_message.Message):
    __slots__ = ("reason", "count")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    count: int
    def __init__(self, reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("specs", "mappings", "kernels", "artifacts", "artifact_bytes", "hits", "compiles", "remembered_failures", "time_saved", "programs_parsed", "memory_hits", "audit_events", "audit_dropped", "caller_savings", "bypasses", "blobs", "blob_bytes", "blob_hits", "blob_time_saved", "assertions", "assertion_bytes", "assertion_conflicts", "assertions_quarantined")
    SPECS_FIELD_NUMBER: _ClassVar[int]
    MAPPINGS_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_BYTES_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    COMPILES_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_FAILURES_FIELD_NUMBER: _ClassVar[int]
    TIME_SAVED_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_PARSED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_HITS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_EVENTS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_DROPPED_FIELD_NUMBER: _ClassVar[int]
    CALLER_SAVINGS_FIELD_NUMBER: _ClassVar[int]
    BYPASSES_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    BLOB_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOB_HITS_FIELD_NUMBER: _ClassVar[int]
    BLOB_TIME_SAVED_FIELD_NUMBER: _ClassVar[int]
    ASSERTIONS_FIELD_NUMBER: _ClassVar[int]
    ASSERTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    ASSERTION_CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    ASSERTIONS_QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    specs: int
    mappings: int
    kernels: int
    artifacts: int
    artifact_bytes: int
    hits: int
    compiles: int
    remembered_failures: int
    time_saved: _duration_pb2.Duration
    programs_parsed: int
    memory_hits: int
    audit_events: int
    audit_dropped: int
    caller_savings: _containers.RepeatedCompositeFieldContainer[CallerSavings]
    bypasses: _containers.RepeatedCompositeFieldContainer[BypassCount]
    blobs: int
    blob_bytes: int
    blob_hits: int
    blob_time_saved: _duration_pb2.Duration
    assertions: int
    assertion_bytes: int
    assertion_conflicts: int
    assertions_quarantined: int
    def __init__(self, specs: _Optional[int] = ..., mappings: _Optional[int] = ..., kernels: _Optional[int] = ..., artifacts: _Optional[int] = ..., artifact_bytes: _Optional[int] = ..., hits: _Optional[int] = ..., compiles: _Optional[int] = ..., remembered_failures: _Optional[int] = ..., time_saved: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., programs_parsed: _Optional[int] = ..., memory_hits: _Optional[int] = ..., audit_events: _Optional[int] = ..., audit_dropped: _Optional[int] = ..., caller_savings: _Optional[_Iterable[_Union[CallerSavings, _Mapping]]] = ..., bypasses: _Optional[_Iterable[_Union[BypassCount, _Mapping]]] = ..., blobs: _Optional[int] = ..., blob_bytes: _Optional[int] = ..., blob_hits: _Optional[int] = ..., blob_time_saved: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., assertions: _Optional[int] = ..., assertion_bytes: _Optional[int] = ..., assertion_conflicts: _Optional[int] = ..., assertions_quarantined: _Optional[int] = ...) -> None: ...
