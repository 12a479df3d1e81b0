import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EstimateBasis(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ESTIMATE_BASIS_UNSPECIFIED: _ClassVar[EstimateBasis]
    ESTIMATE_BASIS_HIT: _ClassVar[EstimateBasis]
    ESTIMATE_BASIS_SAME_SPEC: _ClassVar[EstimateBasis]
    ESTIMATE_BASIS_NEAREST_SPECS: _ClassVar[EstimateBasis]
    ESTIMATE_BASIS_NO_HISTORY: _ClassVar[EstimateBasis]
ESTIMATE_BASIS_UNSPECIFIED: EstimateBasis
ESTIMATE_BASIS_HIT: EstimateBasis
ESTIMATE_BASIS_SAME_SPEC: EstimateBasis
ESTIMATE_BASIS_NEAREST_SPECS: EstimateBasis
ESTIMATE_BASIS_NO_HISTORY: EstimateBasis

class EstimateCompileRequest(_message.Message):
    __slots__ = ("header", "graph", "target", "options", "shapes", "target_match")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    TARGET_MATCH_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    graph: _common_pb2.GraphSource
    target: _common_pb2.Target
    options: _common_pb2.Options
    shapes: _common_pb2.DynamicShapes
    target_match: _common_pb2.TargetMatch
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., graph: _Optional[_Union[_common_pb2.GraphSource, _Mapping]] = ..., target: _Optional[_Union[_common_pb2.Target, _Mapping]] = ..., options: _Optional[_Union[_common_pb2.Options, _Mapping]] = ..., shapes: _Optional[_Union[_common_pb2.DynamicShapes, _Mapping]] = ..., target_match: _Optional[_Union[_common_pb2.TargetMatch, str]] = ...) -> None: ...

class EstimateCompileResponse(_message.Message):
    __slots__ = ("expected_duration", "basis", "sample_count")
    EXPECTED_DURATION_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    expected_duration: _duration_pb2.Duration
    basis: EstimateBasis
    sample_count: int
    def __init__(self, expected_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., basis: _Optional[_Union[EstimateBasis, str]] = ..., sample_count: _Optional[int] = ...) -> None: ...
