import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QuotaResource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUOTA_RESOURCE_UNSPECIFIED: _ClassVar[QuotaResource]
    QUOTA_RESOURCE_KERNELS: _ClassVar[QuotaResource]
    QUOTA_RESOURCE_MAPPINGS: _ClassVar[QuotaResource]
    QUOTA_RESOURCE_ARTIFACT_BYTES: _ClassVar[QuotaResource]
    QUOTA_RESOURCE_SPECS: _ClassVar[QuotaResource]
    QUOTA_RESOURCE_CACHE_BYTES: _ClassVar[QuotaResource]
    QUOTA_RESOURCE_ASSERTION_BYTES: _ClassVar[QuotaResource]

class QuotaPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUOTA_POLICY_UNSPECIFIED: _ClassVar[QuotaPolicy]
    QUOTA_POLICY_EVICT: _ClassVar[QuotaPolicy]
    QUOTA_POLICY_REFUSE: _ClassVar[QuotaPolicy]

class PinSubject(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PIN_SUBJECT_UNSPECIFIED: _ClassVar[PinSubject]
    PIN_SUBJECT_KERNEL: _ClassVar[PinSubject]
    PIN_SUBJECT_MAPPING: _ClassVar[PinSubject]
    PIN_SUBJECT_SPEC: _ClassVar[PinSubject]
QUOTA_RESOURCE_UNSPECIFIED: QuotaResource
QUOTA_RESOURCE_KERNELS: QuotaResource
QUOTA_RESOURCE_MAPPINGS: QuotaResource
QUOTA_RESOURCE_ARTIFACT_BYTES: QuotaResource
QUOTA_RESOURCE_SPECS: QuotaResource
QUOTA_RESOURCE_CACHE_BYTES: QuotaResource
QUOTA_RESOURCE_ASSERTION_BYTES: QuotaResource
QUOTA_POLICY_UNSPECIFIED: QuotaPolicy
QUOTA_POLICY_EVICT: QuotaPolicy
QUOTA_POLICY_REFUSE: QuotaPolicy
PIN_SUBJECT_UNSPECIFIED: PinSubject
PIN_SUBJECT_KERNEL: PinSubject
PIN_SUBJECT_MAPPING: PinSubject
PIN_SUBJECT_SPEC: PinSubject

class CollectRequest(_message.Message):
    __slots__ = ("header", "dry_run", "older_than", "max_bytes", "min_age")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MIN_AGE_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    dry_run: bool
    older_than: _duration_pb2.Duration
    max_bytes: int
    min_age: _duration_pb2.Duration
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., dry_run: bool = ..., older_than: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_bytes: _Optional[int] = ..., min_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CollectResponse(_message.Message):
    __slots__ = ("rows", "blobs", "blob_bytes", "unmet", "done")
    class RowsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    BLOB_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNMET_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.ScalarMap[str, int]
    blobs: int
    blob_bytes: int
    unmet: _containers.RepeatedScalarFieldContainer[str]
    done: bool
    def __init__(self, rows: _Optional[_Mapping[str, int]] = ..., blobs: _Optional[int] = ..., blob_bytes: _Optional[int] = ..., unmet: _Optional[_Iterable[str]] = ..., done: bool = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("resource", "most", "policy", "used")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    resource: QuotaResource
    most: int
    policy: QuotaPolicy
    used: int
    def __init__(self, resource: _Optional[_Union[QuotaResource, str]] = ..., most: _Optional[int] = ..., policy: _Optional[_Union[QuotaPolicy, str]] = ..., used: _Optional[int] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("header", "resource", "most", "policy")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    resource: QuotaResource
    most: int
    policy: QuotaPolicy
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., resource: _Optional[_Union[QuotaResource, str]] = ..., most: _Optional[int] = ..., policy: _Optional[_Union[QuotaPolicy, str]] = ...) -> None: ...

class SetQuotaResponse(_message.Message):
    __slots__ = ("quota",)
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    quota: Quota
    def __init__(self, quota: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ...) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...

class PinRequest(_message.Message):
    __slots__ = ("header", "subject", "digest", "reason")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    subject: PinSubject
    digest: bytes
    reason: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., subject: _Optional[_Union[PinSubject, str]] = ..., digest: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class PinResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class UnpinRequest(_message.Message):
    __slots__ = ("header", "subject", "digest")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    subject: PinSubject
    digest: bytes
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., subject: _Optional[_Union[PinSubject, str]] = ..., digest: _Optional[bytes] = ...) -> None: ...

class UnpinResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: bool = ...) -> None: ...

class ListPinsRequest(_message.Message):
    __slots__ = ("header", "page_size", "page_token")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    page_size: int
    page_token: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPinsResponse(_message.Message):
    __slots__ = ("pins", "next_page_token")
    class Entry(_message.Message):
        __slots__ = ("subject", "digest", "reason", "create_time")
        SUBJECT_FIELD_NUMBER: _ClassVar[int]
        DIGEST_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
        subject: PinSubject
        digest: bytes
        reason: str
        create_time: _timestamp_pb2.Timestamp
        def __init__(self, subject: _Optional[_Union[PinSubject, str]] = ..., digest: _Optional[bytes] = ..., reason: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
    PINS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    pins: _containers.RepeatedCompositeFieldContainer[ListPinsResponse.Entry]
    next_page_token: str
    def __init__(self, pins: _Optional[_Iterable[_Union[ListPinsResponse.Entry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RaiseEpochRequest(_message.Message):
    __slots__ = ("header", "reason")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    reason: str
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class RaiseEpochResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class DisownToolchainRequest(_message.Message):
    __slots__ = ("header", "toolchain_digest", "reason", "undo")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    toolchain_digest: bytes
    reason: str
    undo: bool
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., toolchain_digest: _Optional[bytes] = ..., reason: _Optional[str] = ..., undo: bool = ...) -> None: ...

class DisownToolchainResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: bool = ...) -> None: ...

class SetTargetMatchRequest(_message.Message):
    __slots__ = ("header", "target_match")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TARGET_MATCH_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    target_match: _common_pb2.TargetMatch
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., target_match: _Optional[_Union[_common_pb2.TargetMatch, str]] = ...) -> None: ...

class SetTargetMatchResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: bool = ...) -> None: ...

class SetTrustedRolesRequest(_message.Message):
    __slots__ = ("header", "roles")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    roles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., roles: _Optional[_Iterable[str]] = ...) -> None: ...

class SetTrustedRolesResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: bool = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("header", "sample", "all", "skip_compile", "repair", "confirm_implausible")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    SKIP_COMPILE_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_IMPLAUSIBLE_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.RequestHeader
    sample: int
    all: bool
    skip_compile: bool
    repair: bool
    confirm_implausible: bool
    def __init__(self, header: _Optional[_Union[_common_pb2.RequestHeader, _Mapping]] = ..., sample: _Optional[int] = ..., all: bool = ..., skip_compile: bool = ..., repair: bool = ..., confirm_implausible: bool = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("fault", "counts")
    class Fault(_message.Message):
        __slots__ = ("subject", "digest", "problem", "action")
        SUBJECT_FIELD_NUMBER: _ClassVar[int]
        DIGEST_FIELD_NUMBER: _ClassVar[int]
        PROBLEM_FIELD_NUMBER: _ClassVar[int]
        ACTION_FIELD_NUMBER: _ClassVar[int]
        subject: str
        digest: bytes
        problem: str
        action: str
        def __init__(self, subject: _Optional[str] = ..., digest: _Optional[bytes] = ..., problem: _Optional[str] = ..., action: _Optional[str] = ...) -> None: ...
    class Counts(_message.Message):
        __slots__ = ("kernels", "compiled", "mappings", "blobs", "faults", "repaired", "withheld")
        KERNELS_FIELD_NUMBER: _ClassVar[int]
        COMPILED_FIELD_NUMBER: _ClassVar[int]
        MAPPINGS_FIELD_NUMBER: _ClassVar[int]
        BLOBS_FIELD_NUMBER: _ClassVar[int]
        FAULTS_FIELD_NUMBER: _ClassVar[int]
        REPAIRED_FIELD_NUMBER: _ClassVar[int]
        WITHHELD_FIELD_NUMBER: _ClassVar[int]
        kernels: int
        compiled: int
        mappings: int
        blobs: int
        faults: int
        repaired: int
        withheld: bool
        def __init__(self, kernels: _Optional[int] = ..., compiled: _Optional[int] = ..., mappings: _Optional[int] = ..., blobs: _Optional[int] = ..., faults: _Optional[int] = ..., repaired: _Optional[int] = ..., withheld: bool = ...) -> None: ...
    FAULT_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    fault: VerifyResponse.Fault
    counts: VerifyResponse.Counts
    def __init__(self, fault: _Optional[_Union[VerifyResponse.Fault, _Mapping]] = ..., counts: _Optional[_Union[VerifyResponse.Counts, _Mapping]] = ...) -> None: ...
