import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SourceAssertion(_message.Message):
    __slots__ = ("index", "source_digest", "actor", "role", "record_digest", "record", "programs", "toolchain", "create_time")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SOURCE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    RECORD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    index: int
    source_digest: bytes
    actor: str
    role: str
    record_digest: bytes
    record: bytes
    programs: _containers.RepeatedScalarFieldContainer[bytes]
    toolchain: str
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, index: _Optional[int] = ..., source_digest: _Optional[bytes] = ..., actor: _Optional[str] = ..., role: _Optional[str] = ..., record_digest: _Optional[bytes] = ..., record: _Optional[bytes] = ..., programs: _Optional[_Iterable[bytes]] = ..., toolchain: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetAssertionsRequest(_message.Message):
    __slots__ = ("header", "source_digests")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    source_digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., source_digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetAssertionsResponse(_message.Message):
    __slots__ = ("assertions",)
    ASSERTIONS_FIELD_NUMBER: _ClassVar[int]
    assertions: _containers.RepeatedCompositeFieldContainer[SourceAssertion]
    def __init__(self, assertions: _Optional[_Iterable[_Union[SourceAssertion, _Mapping]]] = ...) -> None: ...

class PutAssertionRequest(_message.Message):
    __slots__ = ("header", "source_digest", "record", "programs", "toolchain")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    source_digest: bytes
    record: bytes
    programs: _containers.RepeatedScalarFieldContainer[bytes]
    toolchain: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., source_digest: _Optional[bytes] = ..., record: _Optional[bytes] = ..., programs: _Optional[_Iterable[bytes]] = ..., toolchain: _Optional[str] = ...) -> None: ...

class PutAssertionResponse(_message.Message):
    __slots__ = ("inserted", "assertion", "quarantined")
    INSERTED_FIELD_NUMBER: _ClassVar[int]
    ASSERTION_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    inserted: bool
    assertion: SourceAssertion
    quarantined: bool
    def __init__(self, inserted: bool = ..., assertion: _Optional[_Union[SourceAssertion, _Mapping]] = ..., quarantined: bool = ...) -> None: ...

class DisputeAssertionRequest(_message.Message):
    __slots__ = ("header", "source_digest", "record_digest", "observed_digest", "reason")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RECORD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    source_digest: bytes
    record_digest: bytes
    observed_digest: bytes
    reason: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., source_digest: _Optional[bytes] = ..., record_digest: _Optional[bytes] = ..., observed_digest: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class DisputeAssertionResponse(_message.Message):
    __slots__ = ("quarantined",)
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    quarantined: int
    def __init__(self, quarantined: _Optional[int] = ...) -> None: ...
