import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from kcache_grpc._proto.kcache.v1 import bundle_pb2 as _bundle_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ImportOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMPORT_OUTCOME_UNSPECIFIED: _ClassVar[ImportOutcome]
    IMPORT_OUTCOME_NEW: _ClassVar[ImportOutcome]
    IMPORT_OUTCOME_PRESENT: _ClassVar[ImportOutcome]
    IMPORT_OUTCOME_REJECTED: _ClassVar[ImportOutcome]
IMPORT_OUTCOME_UNSPECIFIED: ImportOutcome
IMPORT_OUTCOME_NEW: ImportOutcome
IMPORT_OUTCOME_PRESENT: ImportOutcome
IMPORT_OUTCOME_REJECTED: ImportOutcome

class BundleSelection(_message.Message):
    __slots__ = ("all", "keys", "kernel_digests", "program_digests", "job", "filter", "start_time", "end_time", "targets", "blobs")
    ALL_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    all: bool
    keys: _containers.RepeatedScalarFieldContainer[int]
    kernel_digests: _containers.RepeatedScalarFieldContainer[bytes]
    program_digests: _containers.RepeatedScalarFieldContainer[bytes]
    job: str
    filter: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    targets: _containers.RepeatedCompositeFieldContainer[_common_pb2.Target]
    blobs: bool
    def __init__(self, all: bool = ..., keys: _Optional[_Iterable[int]] = ..., kernel_digests: _Optional[_Iterable[bytes]] = ..., program_digests: _Optional[_Iterable[bytes]] = ..., job: _Optional[str] = ..., filter: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., targets: _Optional[_Iterable[_Union[_common_pb2.Target, _Mapping]]] = ..., blobs: bool = ...) -> None: ...

class ExportBundleRequest(_message.Message):
    __slots__ = ("header", "selection")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    selection: BundleSelection
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., selection: _Optional[_Union[BundleSelection, _Mapping]] = ...) -> None: ...

class ExportBundleResponse(_message.Message):
    __slots__ = ("data", "summary")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    summary: BundleSummary
    def __init__(self, data: _Optional[bytes] = ..., summary: _Optional[_Union[BundleSummary, _Mapping]] = ...) -> None: ...

class BundleSummary(_message.Message):
    __slots__ = ("digest", "signer", "size_bytes", "counts", "skipped_count", "new_count", "present_count", "rejected_count")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEW_COUNT_FIELD_NUMBER: _ClassVar[int]
    PRESENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    signer: str
    size_bytes: int
    counts: _containers.RepeatedCompositeFieldContainer[BundleEntryCount]
    skipped_count: int
    new_count: int
    present_count: int
    rejected_count: int
    def __init__(self, digest: _Optional[bytes] = ..., signer: _Optional[str] = ..., size_bytes: _Optional[int] = ..., counts: _Optional[_Iterable[_Union[BundleEntryCount, _Mapping]]] = ..., skipped_count: _Optional[int] = ..., new_count: _Optional[int] = ..., present_count: _Optional[int] = ..., rejected_count: _Optional[int] = ...) -> None: ...

class BundleEntryCount(_message.Message):
    __slots__ = ("kind", "count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: _bundle_pb2.BundleEntryKind
    count: int
    def __init__(self, kind: _Optional[_Union[_bundle_pb2.BundleEntryKind, str]] = ..., count: _Optional[int] = ...) -> None: ...

class ImportBundleRequest(_message.Message):
    __slots__ = ("header", "targets", "trusted_signers", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_SIGNERS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    targets: _containers.RepeatedCompositeFieldContainer[_common_pb2.Target]
    trusted_signers: _containers.RepeatedScalarFieldContainer[str]
    data: bytes
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., targets: _Optional[_Iterable[_Union[_common_pb2.Target, _Mapping]]] = ..., trusted_signers: _Optional[_Iterable[str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ImportedEntry(_message.Message):
    __slots__ = ("kind", "name", "outcome", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: _bundle_pb2.BundleEntryKind
    name: str
    outcome: ImportOutcome
    reason: str
    def __init__(self, kind: _Optional[_Union[_bundle_pb2.BundleEntryKind, str]] = ..., name: _Optional[str] = ..., outcome: _Optional[_Union[ImportOutcome, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ImportBundleResponse(_message.Message):
    __slots__ = ("entries", "summary")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[ImportedEntry]
    summary: BundleSummary
    def __init__(self, entries: _Optional[_Iterable[_Union[ImportedEntry, _Mapping]]] = ..., summary: _Optional[_Union[BundleSummary, _Mapping]] = ...) -> None: ...
