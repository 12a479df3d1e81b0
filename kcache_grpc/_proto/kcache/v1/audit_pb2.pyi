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

class AuditEvent(_message.Message):
    __slots__ = ("id", "time", "epoch", "writer", "kind", "outcome", "origin", "actor", "job", "peer", "request_id", "request_count", "program_digest", "spec_digest", "key", "kernel_digest", "target", "toolchain_digest", "duration", "size_bytes", "time_saved", "detail")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KERNEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_SAVED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    id: int
    time: _timestamp_pb2.Timestamp
    epoch: int
    writer: str
    kind: str
    outcome: str
    origin: str
    actor: str
    job: str
    peer: str
    request_id: str
    request_count: int
    program_digest: bytes
    spec_digest: bytes
    key: int
    kernel_digest: bytes
    target: str
    toolchain_digest: bytes
    duration: _duration_pb2.Duration
    size_bytes: int
    time_saved: _duration_pb2.Duration
    detail: str
    def __init__(self, id: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., epoch: _Optional[int] = ..., writer: _Optional[str] = ..., kind: _Optional[str] = ..., outcome: _Optional[str] = ..., origin: _Optional[str] = ..., actor: _Optional[str] = ..., job: _Optional[str] = ..., peer: _Optional[str] = ..., request_id: _Optional[str] = ..., request_count: _Optional[int] = ..., program_digest: _Optional[bytes] = ..., spec_digest: _Optional[bytes] = ..., key: _Optional[int] = ..., kernel_digest: _Optional[bytes] = ..., target: _Optional[str] = ..., toolchain_digest: _Optional[bytes] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., size_bytes: _Optional[int] = ..., time_saved: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., detail: _Optional[str] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("header", "filter", "page_size", "page_token", "order_by")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    filter: str
    page_size: int
    page_token: str
    order_by: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., filter: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., order_by: _Optional[str] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[AuditEvent]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[AuditEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ExportEventsRequest(_message.Message):
    __slots__ = ("header", "filter", "after_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    filter: str
    after_id: int
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., filter: _Optional[str] = ..., after_id: _Optional[int] = ...) -> None: ...

class ExportEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[AuditEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[AuditEvent, _Mapping]]] = ...) -> None: ...

class GetEventRequest(_message.Message):
    __slots__ = ("header", "id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    id: int
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., id: _Optional[int] = ...) -> None: ...

class GetEventResponse(_message.Message):
    __slots__ = ("event", "namespace_id", "leaf", "seal", "index", "path")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    LEAF_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    event: AuditEvent
    namespace_id: int
    leaf: bytes
    seal: AuditSeal
    index: int
    path: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, event: _Optional[_Union[AuditEvent, _Mapping]] = ..., namespace_id: _Optional[int] = ..., leaf: _Optional[bytes] = ..., seal: _Optional[_Union[AuditSeal, _Mapping]] = ..., index: _Optional[int] = ..., path: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AuditSeal(_message.Message):
    __slots__ = ("writer", "sequence", "previous_root", "root", "event_ids", "signature", "create_time")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_ROOT_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    EVENT_IDS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    writer: str
    sequence: int
    previous_root: bytes
    root: bytes
    event_ids: _containers.RepeatedScalarFieldContainer[int]
    signature: bytes
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, writer: _Optional[str] = ..., sequence: _Optional[int] = ..., previous_root: _Optional[bytes] = ..., root: _Optional[bytes] = ..., event_ids: _Optional[_Iterable[int]] = ..., signature: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListSealsRequest(_message.Message):
    __slots__ = ("header", "writer", "page_size", "page_token")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    writer: str
    page_size: int
    page_token: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., writer: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSealsResponse(_message.Message):
    __slots__ = ("seals", "next_page_token")
    SEALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    seals: _containers.RepeatedCompositeFieldContainer[AuditSeal]
    next_page_token: str
    def __init__(self, seals: _Optional[_Iterable[_Union[AuditSeal, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetHeadsRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ...) -> None: ...

class AuditHead(_message.Message):
    __slots__ = ("writer", "sequence", "root", "create_time")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    writer: str
    sequence: int
    root: bytes
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, writer: _Optional[str] = ..., sequence: _Optional[int] = ..., root: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetHeadsResponse(_message.Message):
    __slots__ = ("heads", "store_id", "public_key", "time")
    HEADS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    heads: _containers.RepeatedCompositeFieldContainer[AuditHead]
    store_id: str
    public_key: bytes
    time: _timestamp_pb2.Timestamp
    def __init__(self, heads: _Optional[_Iterable[_Union[AuditHead, _Mapping]]] = ..., store_id: _Optional[str] = ..., public_key: _Optional[bytes] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
