import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TuningSubject(_message.Message):
    __slots__ = ("spec_digest", "arg_spec", "target", "options", "device", "sizes")
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARG_SPEC_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    spec_digest: bytes
    arg_spec: str
    target: _common_pb2.Target
    options: _common_pb2.Options
    device: str
    sizes: str
    def __init__(self, spec_digest: _Optional[bytes] = ..., arg_spec: _Optional[str] = ..., target: _Optional[_Union[_common_pb2.Target, _Mapping]] = ..., options: _Optional[_Union[_common_pb2.Options, _Mapping]] = ..., device: _Optional[str] = ..., sizes: _Optional[str] = ...) -> None: ...

class ScheduleTiming(_message.Message):
    __slots__ = ("schedule", "duration", "sample_count", "create_time", "sizes")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    schedule: str
    duration: _duration_pb2.Duration
    sample_count: int
    create_time: _timestamp_pb2.Timestamp
    sizes: str
    def __init__(self, schedule: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., sample_count: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sizes: _Optional[str] = ...) -> None: ...

class RecordTimingsRequest(_message.Message):
    __slots__ = ("header", "subject", "timings")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    subject: TuningSubject
    timings: _containers.RepeatedCompositeFieldContainer[ScheduleTiming]
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., subject: _Optional[_Union[TuningSubject, _Mapping]] = ..., timings: _Optional[_Iterable[_Union[ScheduleTiming, _Mapping]]] = ...) -> None: ...

class RecordTimingsResponse(_message.Message):
    __slots__ = ("created_count",)
    CREATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    created_count: int
    def __init__(self, created_count: _Optional[int] = ...) -> None: ...

class ListTimingsRequest(_message.Message):
    __slots__ = ("header", "subject", "page_size", "page_token")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    subject: TuningSubject
    page_size: int
    page_token: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., subject: _Optional[_Union[TuningSubject, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTimingsResponse(_message.Message):
    __slots__ = ("timings", "next_page_token")
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    timings: _containers.RepeatedCompositeFieldContainer[ScheduleTiming]
    next_page_token: str
    def __init__(self, timings: _Optional[_Iterable[_Union[ScheduleTiming, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
