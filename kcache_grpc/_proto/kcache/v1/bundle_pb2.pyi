import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from kcache_grpc._proto.kcache.v1 import manifest_pb2 as _manifest_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BundleEntryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUNDLE_ENTRY_KIND_UNSPECIFIED: _ClassVar[BundleEntryKind]
    BUNDLE_ENTRY_KIND_SPEC: _ClassVar[BundleEntryKind]
    BUNDLE_ENTRY_KIND_MAPPING: _ClassVar[BundleEntryKind]
    BUNDLE_ENTRY_KIND_KERNEL: _ClassVar[BundleEntryKind]
    BUNDLE_ENTRY_KIND_ARTIFACT: _ClassVar[BundleEntryKind]
    BUNDLE_ENTRY_KIND_SCHEDULE: _ClassVar[BundleEntryKind]
    BUNDLE_ENTRY_KIND_BLOB: _ClassVar[BundleEntryKind]
BUNDLE_ENTRY_KIND_UNSPECIFIED: BundleEntryKind
BUNDLE_ENTRY_KIND_SPEC: BundleEntryKind
BUNDLE_ENTRY_KIND_MAPPING: BundleEntryKind
BUNDLE_ENTRY_KIND_KERNEL: BundleEntryKind
BUNDLE_ENTRY_KIND_ARTIFACT: BundleEntryKind
BUNDLE_ENTRY_KIND_SCHEDULE: BundleEntryKind
BUNDLE_ENTRY_KIND_BLOB: BundleEntryKind

class BundleAttribute(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class BundleEntryHeader(_message.Message):
    __slots__ = ("kind", "name", "attributes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    kind: BundleEntryKind
    name: str
    attributes: _containers.RepeatedCompositeFieldContainer[BundleAttribute]
    def __init__(self, kind: _Optional[_Union[BundleEntryKind, str]] = ..., name: _Optional[str] = ..., attributes: _Optional[_Iterable[_Union[BundleAttribute, _Mapping]]] = ...) -> None: ...

class BundleIndexEntry(_message.Message):
    __slots__ = ("header", "offset", "stored_bytes", "stored_sha256", "size_bytes", "sha256")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    header: BundleEntryHeader
    offset: int
    stored_bytes: int
    stored_sha256: bytes
    size_bytes: int
    sha256: bytes
    def __init__(self, header: _Optional[_Union[BundleEntryHeader, _Mapping]] = ..., offset: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., stored_sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class BundledToolchain(_message.Message):
    __slots__ = ("digest", "ingredients")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INGREDIENTS_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    ingredients: _containers.RepeatedCompositeFieldContainer[_manifest_pb2.Ingredient]
    def __init__(self, digest: _Optional[bytes] = ..., ingredients: _Optional[_Iterable[_Union[_manifest_pb2.Ingredient, _Mapping]]] = ...) -> None: ...

class BundleMetadata(_message.Message):
    __slots__ = ("creator", "signer_public_keys", "namespace", "epoch", "create_time", "toolchains", "targets", "selection", "creator_version")
    CREATOR_FIELD_NUMBER: _ClassVar[int]
    SIGNER_PUBLIC_KEYS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAINS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    CREATOR_VERSION_FIELD_NUMBER: _ClassVar[int]
    creator: str
    signer_public_keys: _containers.RepeatedScalarFieldContainer[bytes]
    namespace: str
    epoch: int
    create_time: _timestamp_pb2.Timestamp
    toolchains: _containers.RepeatedCompositeFieldContainer[BundledToolchain]
    targets: _containers.RepeatedScalarFieldContainer[str]
    selection: str
    creator_version: str
    def __init__(self, creator: _Optional[str] = ..., signer_public_keys: _Optional[_Iterable[bytes]] = ..., namespace: _Optional[str] = ..., epoch: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., toolchains: _Optional[_Iterable[_Union[BundledToolchain, _Mapping]]] = ..., targets: _Optional[_Iterable[str]] = ..., selection: _Optional[str] = ..., creator_version: _Optional[str] = ...) -> None: ...

class BundleIndex(_message.Message):
    __slots__ = ("format_version", "entries", "metadata")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    entries: _containers.RepeatedCompositeFieldContainer[BundleIndexEntry]
    metadata: BundleMetadata
    def __init__(self, format_version: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[BundleIndexEntry, _Mapping]]] = ..., metadata: _Optional[_Union[BundleMetadata, _Mapping]] = ...) -> None: ...

class BundledSpec(_message.Message):
    __slots__ = ("spec_digest", "text", "numerics", "canonicalizer", "family")
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    CANONICALIZER_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    spec_digest: bytes
    text: str
    numerics: _common_pb2.Numerics
    canonicalizer: int
    family: str
    def __init__(self, spec_digest: _Optional[bytes] = ..., text: _Optional[str] = ..., numerics: _Optional[_Union[_common_pb2.Numerics, str]] = ..., canonicalizer: _Optional[int] = ..., family: _Optional[str] = ...) -> None: ...

class BundledMapping(_message.Message):
    __slots__ = ("program_digest", "numerics", "binding", "spec_digest", "constants")
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    program_digest: bytes
    numerics: _common_pb2.Numerics
    binding: _common_pb2.SignedBytes
    spec_digest: bytes
    constants: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, program_digest: _Optional[bytes] = ..., numerics: _Optional[_Union[_common_pb2.Numerics, str]] = ..., binding: _Optional[_Union[_common_pb2.SignedBytes, _Mapping]] = ..., spec_digest: _Optional[bytes] = ..., constants: _Optional[_Iterable[bytes]] = ...) -> None: ...

class BundledKernel(_message.Message):
    __slots__ = ("kernel_digest", "manifest", "spec_digest", "ingredients", "artifacts", "compile_duration")
    KERNEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INGREDIENTS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    COMPILE_DURATION_FIELD_NUMBER: _ClassVar[int]
    kernel_digest: bytes
    manifest: _common_pb2.SignedBytes
    spec_digest: bytes
    ingredients: _containers.RepeatedCompositeFieldContainer[_manifest_pb2.Ingredient]
    artifacts: _containers.RepeatedCompositeFieldContainer[_manifest_pb2.ArtifactRef]
    compile_duration: _duration_pb2.Duration
    def __init__(self, kernel_digest: _Optional[bytes] = ..., manifest: _Optional[_Union[_common_pb2.SignedBytes, _Mapping]] = ..., spec_digest: _Optional[bytes] = ..., ingredients: _Optional[_Iterable[_Union[_manifest_pb2.Ingredient, _Mapping]]] = ..., artifacts: _Optional[_Iterable[_Union[_manifest_pb2.ArtifactRef, _Mapping]]] = ..., compile_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class BundledTiming(_message.Message):
    __slots__ = ("schedule", "duration", "sample_count", "create_time")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    schedule: str
    duration: _duration_pb2.Duration
    sample_count: int
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, schedule: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., sample_count: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class BundledSchedule(_message.Message):
    __slots__ = ("subject_digest", "shape", "device", "timings")
    SUBJECT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    subject_digest: bytes
    shape: str
    device: str
    timings: _containers.RepeatedCompositeFieldContainer[BundledTiming]
    def __init__(self, subject_digest: _Optional[bytes] = ..., shape: _Optional[str] = ..., device: _Optional[str] = ..., timings: _Optional[_Iterable[_Union[BundledTiming, _Mapping]]] = ...) -> None: ...
