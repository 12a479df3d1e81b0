import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetBlobRequest(_message.Message):
    __slots__ = ("header", "key")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    key: bytes
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., key: _Optional[bytes] = ...) -> None: ...

class GetBlobResponse(_message.Message):
    __slots__ = ("blob",)
    BLOB_FIELD_NUMBER: _ClassVar[int]
    blob: BlobPart
    def __init__(self, blob: _Optional[_Union[BlobPart, _Mapping]] = ...) -> None: ...

class GetBlobsRequest(_message.Message):
    __slots__ = ("header", "keys")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class BlobPart(_message.Message):
    __slots__ = ("index", "sha256", "size_bytes", "production_time", "content")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRODUCTION_TIME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    index: int
    sha256: bytes
    size_bytes: int
    production_time: _duration_pb2.Duration
    content: bytes
    def __init__(self, index: _Optional[int] = ..., sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., production_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., content: _Optional[bytes] = ...) -> None: ...

class GetBlobsResponse(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[BlobPart]
    def __init__(self, parts: _Optional[_Iterable[_Union[BlobPart, _Mapping]]] = ...) -> None: ...

class PutBlobPart(_message.Message):
    __slots__ = ("key", "sha256", "size_bytes", "label", "production_time", "content")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PRODUCTION_TIME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    sha256: bytes
    size_bytes: int
    label: str
    production_time: _duration_pb2.Duration
    content: bytes
    def __init__(self, key: _Optional[bytes] = ..., sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., label: _Optional[str] = ..., production_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., content: _Optional[bytes] = ...) -> None: ...

class PutBlobsRequest(_message.Message):
    __slots__ = ("header", "parts")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    parts: _containers.RepeatedCompositeFieldContainer[PutBlobPart]
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[PutBlobPart, _Mapping]]] = ...) -> None: ...

class PutBlobOutcome(_message.Message):
    __slots__ = ("inserted", "sha256", "size_bytes")
    INSERTED_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    inserted: bool
    sha256: bytes
    size_bytes: int
    def __init__(self, inserted: bool = ..., sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class PutBlobsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[PutBlobOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[PutBlobOutcome, _Mapping]]] = ...) -> None: ...
