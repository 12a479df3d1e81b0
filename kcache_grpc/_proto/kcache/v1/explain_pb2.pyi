import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExplainStep(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPLAIN_STEP_UNSPECIFIED: _ClassVar[ExplainStep]
    EXPLAIN_STEP_FOUND_BY_PROGRAM: _ClassVar[ExplainStep]
    EXPLAIN_STEP_FOUND_BY_SPEC: _ClassVar[ExplainStep]
    EXPLAIN_STEP_NAMESPACE_EMPTY: _ClassVar[ExplainStep]
    EXPLAIN_STEP_SPEC_UNKNOWN: _ClassVar[ExplainStep]
    EXPLAIN_STEP_NO_KERNEL: _ClassVar[ExplainStep]
    EXPLAIN_STEP_EPOCH: _ClassVar[ExplainStep]
    EXPLAIN_STEP_TOOLCHAIN: _ClassVar[ExplainStep]
    EXPLAIN_STEP_TARGET: _ClassVar[ExplainStep]
    EXPLAIN_STEP_OPTIONS: _ClassVar[ExplainStep]
    EXPLAIN_STEP_SIZES: _ClassVar[ExplainStep]
    EXPLAIN_STEP_GUARD: _ClassVar[ExplainStep]
    EXPLAIN_STEP_FAILED: _ClassVar[ExplainStep]
    EXPLAIN_STEP_COMPILING: _ClassVar[ExplainStep]
    EXPLAIN_STEP_BYTES_LOST: _ClassVar[ExplainStep]
EXPLAIN_STEP_UNSPECIFIED: ExplainStep
EXPLAIN_STEP_FOUND_BY_PROGRAM: ExplainStep
EXPLAIN_STEP_FOUND_BY_SPEC: ExplainStep
EXPLAIN_STEP_NAMESPACE_EMPTY: ExplainStep
EXPLAIN_STEP_SPEC_UNKNOWN: ExplainStep
EXPLAIN_STEP_NO_KERNEL: ExplainStep
EXPLAIN_STEP_EPOCH: ExplainStep
EXPLAIN_STEP_TOOLCHAIN: ExplainStep
EXPLAIN_STEP_TARGET: ExplainStep
EXPLAIN_STEP_OPTIONS: ExplainStep
EXPLAIN_STEP_SIZES: ExplainStep
EXPLAIN_STEP_GUARD: ExplainStep
EXPLAIN_STEP_FAILED: ExplainStep
EXPLAIN_STEP_COMPILING: ExplainStep
EXPLAIN_STEP_BYTES_LOST: ExplainStep

class ExplainRequest(_message.Message):
    __slots__ = ("header", "graph", "target", "options", "shapes", "max_neighbors", "target_match")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    MAX_NEIGHBORS_FIELD_NUMBER: _ClassVar[int]
    TARGET_MATCH_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    graph: _common_pb2.GraphSource
    target: _common_pb2.Target
    options: _common_pb2.Options
    shapes: _common_pb2.DynamicShapes
    max_neighbors: int
    target_match: _common_pb2.TargetMatch
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., graph: _Optional[_Union[_common_pb2.GraphSource, _Mapping]] = ..., target: _Optional[_Union[_common_pb2.Target, _Mapping]] = ..., options: _Optional[_Union[_common_pb2.Options, _Mapping]] = ..., shapes: _Optional[_Union[_common_pb2.DynamicShapes, _Mapping]] = ..., max_neighbors: _Optional[int] = ..., target_match: _Optional[_Union[_common_pb2.TargetMatch, str]] = ...) -> None: ...

class ExplainMapping(_message.Message):
    __slots__ = ("program_digest", "create_time", "own")
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    program_digest: bytes
    create_time: _timestamp_pb2.Timestamp
    own: bool
    def __init__(self, program_digest: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., own: bool = ...) -> None: ...

class ExplainFailure(_message.Message):
    __slots__ = ("reason", "stage", "message", "count", "last_time", "retry_time")
    REASON_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    RETRY_TIME_FIELD_NUMBER: _ClassVar[int]
    reason: str
    stage: str
    message: str
    count: int
    last_time: _timestamp_pb2.Timestamp
    retry_time: _timestamp_pb2.Timestamp
    def __init__(self, reason: _Optional[str] = ..., stage: _Optional[str] = ..., message: _Optional[str] = ..., count: _Optional[int] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., retry_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ExplainDifference(_message.Message):
    __slots__ = ("name", "yours", "theirs", "sentence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    YOURS_FIELD_NUMBER: _ClassVar[int]
    THEIRS_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    yours: str
    theirs: str
    sentence: str
    def __init__(self, name: _Optional[str] = ..., yours: _Optional[str] = ..., theirs: _Optional[str] = ..., sentence: _Optional[str] = ...) -> None: ...

class ExplainNeighbor(_message.Message):
    __slots__ = ("key", "spec_digest", "kernel_digest", "create_time", "distance", "differences")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    KERNEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    key: int
    spec_digest: bytes
    kernel_digest: bytes
    create_time: _timestamp_pb2.Timestamp
    distance: int
    differences: _containers.RepeatedCompositeFieldContainer[ExplainDifference]
    def __init__(self, key: _Optional[int] = ..., spec_digest: _Optional[bytes] = ..., kernel_digest: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., distance: _Optional[int] = ..., differences: _Optional[_Iterable[_Union[ExplainDifference, _Mapping]]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("step", "summary", "program_digest", "program_known", "key", "spec_digest", "kernel_digest", "arg_spec", "guard", "mappings", "failure", "nearest", "compatible_target")
    STEP_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_KNOWN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    KERNEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARG_SPEC_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    MAPPINGS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    NEAREST_FIELD_NUMBER: _ClassVar[int]
    COMPATIBLE_TARGET_FIELD_NUMBER: _ClassVar[int]
    step: ExplainStep
    summary: str
    program_digest: bytes
    program_known: bool
    key: int
    spec_digest: bytes
    kernel_digest: bytes
    arg_spec: str
    guard: str
    mappings: _containers.RepeatedCompositeFieldContainer[ExplainMapping]
    failure: ExplainFailure
    nearest: _containers.RepeatedCompositeFieldContainer[ExplainNeighbor]
    compatible_target: str
    def __init__(self, step: _Optional[_Union[ExplainStep, str]] = ..., summary: _Optional[str] = ..., program_digest: _Optional[bytes] = ..., program_known: bool = ..., key: _Optional[int] = ..., spec_digest: _Optional[bytes] = ..., kernel_digest: _Optional[bytes] = ..., arg_spec: _Optional[str] = ..., guard: _Optional[str] = ..., mappings: _Optional[_Iterable[_Union[ExplainMapping, _Mapping]]] = ..., failure: _Optional[_Union[ExplainFailure, _Mapping]] = ..., nearest: _Optional[_Iterable[_Union[ExplainNeighbor, _Mapping]]] = ..., compatible_target: _Optional[str] = ...) -> None: ...
