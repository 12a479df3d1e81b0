from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckProgramRequest(_message.Message):
    __slots__ = ("header", "graph", "target", "numerics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    graph: _common_pb2.GraphSource
    target: _common_pb2.Target
    numerics: _common_pb2.Numerics
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., graph: _Optional[_Union[_common_pb2.GraphSource, _Mapping]] = ..., target: _Optional[_Union[_common_pb2.Target, _Mapping]] = ..., numerics: _Optional[_Union[_common_pb2.Numerics, str]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("op", "reason", "count", "locations")
    OP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    op: str
    reason: str
    count: int
    locations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, op: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ..., locations: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckProgramResponse(_message.Message):
    __slots__ = ("operations", "supported", "refusals", "note")
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    operations: int
    supported: int
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    note: str
    def __init__(self, operations: _Optional[int] = ..., supported: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., note: _Optional[str] = ...) -> None: ...
