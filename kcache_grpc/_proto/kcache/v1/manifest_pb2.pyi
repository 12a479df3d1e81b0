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

class ArtifactKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ARTIFACT_KIND_UNSPECIFIED: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_SHARED_OBJECT: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_MLIR: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_LLVM_IR: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_ASSEMBLY: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_PTX: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_CUBIN: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_CONSTANT: _ClassVar[ArtifactKind]
ARTIFACT_KIND_UNSPECIFIED: ArtifactKind
ARTIFACT_KIND_SHARED_OBJECT: ArtifactKind
ARTIFACT_KIND_MLIR: ArtifactKind
ARTIFACT_KIND_LLVM_IR: ArtifactKind
ARTIFACT_KIND_ASSEMBLY: ArtifactKind
ARTIFACT_KIND_PTX: ArtifactKind
ARTIFACT_KIND_CUBIN: ArtifactKind
ARTIFACT_KIND_CONSTANT: ArtifactKind

class ArtifactRef(_message.Message):
    __slots__ = ("kind", "sha256", "size_bytes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    kind: ArtifactKind
    sha256: bytes
    size_bytes: int
    def __init__(self, kind: _Optional[_Union[ArtifactKind, str]] = ..., sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class LaunchSpec(_message.Message):
    __slots__ = ("name", "ops", "extent", "grain", "flops", "bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    EXTENT_FIELD_NUMBER: _ClassVar[int]
    GRAIN_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    ops: _containers.RepeatedScalarFieldContainer[str]
    extent: str
    grain: str
    flops: str
    bytes: str
    def __init__(self, name: _Optional[str] = ..., ops: _Optional[_Iterable[str]] = ..., extent: _Optional[str] = ..., grain: _Optional[str] = ..., flops: _Optional[str] = ..., bytes: _Optional[str] = ...) -> None: ...

class GpuResources(_message.Message):
    __slots__ = ("registers", "spill_bytes", "static_shared_bytes")
    REGISTERS_FIELD_NUMBER: _ClassVar[int]
    SPILL_BYTES_FIELD_NUMBER: _ClassVar[int]
    STATIC_SHARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    registers: int
    spill_bytes: int
    static_shared_bytes: int
    def __init__(self, registers: _Optional[int] = ..., spill_bytes: _Optional[int] = ..., static_shared_bytes: _Optional[int] = ...) -> None: ...

class GpuLaunchSpec(_message.Message):
    __slots__ = ("name", "ops", "entry", "when", "grid", "block", "shared_bytes", "params", "resources")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    WHEN_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    SHARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    ops: _containers.RepeatedScalarFieldContainer[str]
    entry: str
    when: str
    grid: _containers.RepeatedScalarFieldContainer[str]
    block: _containers.RepeatedScalarFieldContainer[int]
    shared_bytes: str
    params: _containers.RepeatedScalarFieldContainer[str]
    resources: GpuResources
    def __init__(self, name: _Optional[str] = ..., ops: _Optional[_Iterable[str]] = ..., entry: _Optional[str] = ..., when: _Optional[str] = ..., grid: _Optional[_Iterable[str]] = ..., block: _Optional[_Iterable[int]] = ..., shared_bytes: _Optional[str] = ..., params: _Optional[_Iterable[str]] = ..., resources: _Optional[_Union[GpuResources, _Mapping]] = ...) -> None: ...

class ErrorCode(_message.Message):
    __slots__ = ("code", "meaning")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    code: int
    meaning: str
    def __init__(self, code: _Optional[int] = ..., meaning: _Optional[str] = ...) -> None: ...

class Ingredient(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Provenance(_message.Message):
    __slots__ = ("server_version", "compile_time", "compile_duration", "toolchain", "bundle_digest")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    COMPILE_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPILE_DURATION_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    server_version: str
    compile_time: _timestamp_pb2.Timestamp
    compile_duration: _duration_pb2.Duration
    toolchain: _containers.RepeatedCompositeFieldContainer[Ingredient]
    bundle_digest: bytes
    def __init__(self, server_version: _Optional[str] = ..., compile_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., compile_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., toolchain: _Optional[_Iterable[_Union[Ingredient, _Mapping]]] = ..., bundle_digest: _Optional[bytes] = ...) -> None: ...

class Preparation(_message.Message):
    __slots__ = ("arguments", "prepared_bytes", "alignment", "workspace_bytes")
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    PREPARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_BYTES_FIELD_NUMBER: _ClassVar[int]
    arguments: _containers.RepeatedScalarFieldContainer[int]
    prepared_bytes: int
    alignment: int
    workspace_bytes: str
    def __init__(self, arguments: _Optional[_Iterable[int]] = ..., prepared_bytes: _Optional[int] = ..., alignment: _Optional[int] = ..., workspace_bytes: _Optional[str] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("kernel_digest", "spec_digest", "key", "namespace", "epoch", "target", "options", "toolchain_digest", "guard", "arg_spec", "abi", "inputs", "constants", "outputs", "symbols", "workspace_bytes", "launches", "required_isa", "error_codes", "artifacts", "provenance", "gpu_launches", "checks", "preparation")
    KERNEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TOOLCHAIN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    ARG_SPEC_FIELD_NUMBER: _ClassVar[int]
    ABI_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_ISA_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODES_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    GPU_LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    PREPARATION_FIELD_NUMBER: _ClassVar[int]
    kernel_digest: bytes
    spec_digest: bytes
    key: int
    namespace: str
    epoch: int
    target: _common_pb2.Target
    options: _common_pb2.Options
    toolchain_digest: bytes
    guard: str
    arg_spec: str
    abi: int
    inputs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    constants: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    outputs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    symbols: _containers.RepeatedCompositeFieldContainer[_common_pb2.SymbolSpec]
    workspace_bytes: str
    launches: _containers.RepeatedCompositeFieldContainer[LaunchSpec]
    required_isa: _containers.RepeatedScalarFieldContainer[str]
    error_codes: _containers.RepeatedCompositeFieldContainer[ErrorCode]
    artifacts: _containers.RepeatedCompositeFieldContainer[ArtifactRef]
    provenance: Provenance
    gpu_launches: _containers.RepeatedCompositeFieldContainer[GpuLaunchSpec]
    checks: _containers.RepeatedScalarFieldContainer[str]
    preparation: Preparation
    def __init__(self, kernel_digest: _Optional[bytes] = ..., spec_digest: _Optional[bytes] = ..., key: _Optional[int] = ..., namespace: _Optional[str] = ..., epoch: _Optional[int] = ..., target: _Optional[_Union[_common_pb2.Target, _Mapping]] = ..., options: _Optional[_Union[_common_pb2.Options, _Mapping]] = ..., toolchain_digest: _Optional[bytes] = ..., guard: _Optional[str] = ..., arg_spec: _Optional[str] = ..., abi: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ..., constants: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ..., symbols: _Optional[_Iterable[_Union[_common_pb2.SymbolSpec, _Mapping]]] = ..., workspace_bytes: _Optional[str] = ..., launches: _Optional[_Iterable[_Union[LaunchSpec, _Mapping]]] = ..., required_isa: _Optional[_Iterable[str]] = ..., error_codes: _Optional[_Iterable[_Union[ErrorCode, _Mapping]]] = ..., artifacts: _Optional[_Iterable[_Union[ArtifactRef, _Mapping]]] = ..., provenance: _Optional[_Union[Provenance, _Mapping]] = ..., gpu_launches: _Optional[_Iterable[_Union[GpuLaunchSpec, _Mapping]]] = ..., checks: _Optional[_Iterable[str]] = ..., preparation: _Optional[_Union[Preparation, _Mapping]] = ...) -> None: ...

class ConstantBinding(_message.Message):
    __slots__ = ("type", "sha256", "size_bytes")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    type: _common_pb2.TensorSpec
    sha256: bytes
    size_bytes: int
    def __init__(self, type: _Optional[_Union[_common_pb2.TensorSpec, _Mapping]] = ..., sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class QuantizedBuffer(_message.Message):
    __slots__ = ("index", "output", "expressed", "storage_min", "storage_max", "scales", "zero_points", "axis")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    EXPRESSED_FIELD_NUMBER: _ClassVar[int]
    STORAGE_MIN_FIELD_NUMBER: _ClassVar[int]
    STORAGE_MAX_FIELD_NUMBER: _ClassVar[int]
    SCALES_FIELD_NUMBER: _ClassVar[int]
    ZERO_POINTS_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    index: int
    output: bool
    expressed: _common_pb2.DataType
    storage_min: int
    storage_max: int
    scales: _containers.RepeatedScalarFieldContainer[float]
    zero_points: _containers.RepeatedScalarFieldContainer[int]
    axis: int
    def __init__(self, index: _Optional[int] = ..., output: bool = ..., expressed: _Optional[_Union[_common_pb2.DataType, str]] = ..., storage_min: _Optional[int] = ..., storage_max: _Optional[int] = ..., scales: _Optional[_Iterable[float]] = ..., zero_points: _Optional[_Iterable[int]] = ..., axis: _Optional[int] = ...) -> None: ...

class CountedOutput(_message.Message):
    __slots__ = ("output", "axis", "count")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    output: int
    axis: int
    count: int
    def __init__(self, output: _Optional[int] = ..., axis: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Binding(_message.Message):
    __slots__ = ("program_digest", "numerics", "namespace", "epoch", "key", "spec_digest", "inputs", "arg_names", "outputs", "symbols", "symbol_values", "constants", "symbolic_inputs", "canonicalizer", "quantized", "size_arguments", "counted")
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    ARG_NAMES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_VALUES_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    SYMBOLIC_INPUTS_FIELD_NUMBER: _ClassVar[int]
    CANONICALIZER_FIELD_NUMBER: _ClassVar[int]
    QUANTIZED_FIELD_NUMBER: _ClassVar[int]
    SIZE_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    program_digest: bytes
    numerics: _common_pb2.Numerics
    namespace: str
    epoch: int
    key: int
    spec_digest: bytes
    inputs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    arg_names: _containers.RepeatedScalarFieldContainer[str]
    outputs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    symbols: _containers.RepeatedCompositeFieldContainer[_common_pb2.SymbolSpec]
    symbol_values: _containers.RepeatedScalarFieldContainer[int]
    constants: _containers.RepeatedCompositeFieldContainer[ConstantBinding]
    symbolic_inputs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TensorSpec]
    canonicalizer: int
    quantized: _containers.RepeatedCompositeFieldContainer[QuantizedBuffer]
    size_arguments: _containers.RepeatedScalarFieldContainer[int]
    counted: _containers.RepeatedCompositeFieldContainer[CountedOutput]
    def __init__(self, program_digest: _Optional[bytes] = ..., numerics: _Optional[_Union[_common_pb2.Numerics, str]] = ..., namespace: _Optional[str] = ..., epoch: _Optional[int] = ..., key: _Optional[int] = ..., spec_digest: _Optional[bytes] = ..., inputs: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ..., arg_names: _Optional[_Iterable[str]] = ..., outputs: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ..., symbols: _Optional[_Iterable[_Union[_common_pb2.SymbolSpec, _Mapping]]] = ..., symbol_values: _Optional[_Iterable[int]] = ..., constants: _Optional[_Iterable[_Union[ConstantBinding, _Mapping]]] = ..., symbolic_inputs: _Optional[_Iterable[_Union[_common_pb2.TensorSpec, _Mapping]]] = ..., canonicalizer: _Optional[int] = ..., quantized: _Optional[_Iterable[_Union[QuantizedBuffer, _Mapping]]] = ..., size_arguments: _Optional[_Iterable[int]] = ..., counted: _Optional[_Iterable[_Union[CountedOutput, _Mapping]]] = ...) -> None: ...
