from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProgramFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROGRAM_FORMAT_UNSPECIFIED: _ClassVar[ProgramFormat]
    PROGRAM_FORMAT_STABLEHLO: _ClassVar[ProgramFormat]
    PROGRAM_FORMAT_LINALG: _ClassVar[ProgramFormat]
    PROGRAM_FORMAT_TORCH: _ClassVar[ProgramFormat]
    PROGRAM_FORMAT_ONNX: _ClassVar[ProgramFormat]
    PROGRAM_FORMAT_GRAPH: _ClassVar[ProgramFormat]

class Numerics(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NUMERICS_UNSPECIFIED: _ClassVar[Numerics]
    NUMERICS_STRICT: _ClassVar[Numerics]
    NUMERICS_DEFAULT: _ClassVar[Numerics]
    NUMERICS_FAST: _ClassVar[Numerics]

class TargetMatch(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TARGET_MATCH_UNSPECIFIED: _ClassVar[TargetMatch]
    TARGET_MATCH_EXACT: _ClassVar[TargetMatch]
    TARGET_MATCH_COMPATIBLE: _ClassVar[TargetMatch]
    TARGET_MATCH_NAMESPACE: _ClassVar[TargetMatch]

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA_TYPE_UNSPECIFIED: _ClassVar[DataType]
    DATA_TYPE_I1: _ClassVar[DataType]
    DATA_TYPE_I8: _ClassVar[DataType]
    DATA_TYPE_I16: _ClassVar[DataType]
    DATA_TYPE_I32: _ClassVar[DataType]
    DATA_TYPE_I64: _ClassVar[DataType]
    DATA_TYPE_UI8: _ClassVar[DataType]
    DATA_TYPE_UI16: _ClassVar[DataType]
    DATA_TYPE_UI32: _ClassVar[DataType]
    DATA_TYPE_UI64: _ClassVar[DataType]
    DATA_TYPE_F16: _ClassVar[DataType]
    DATA_TYPE_BF16: _ClassVar[DataType]
    DATA_TYPE_F32: _ClassVar[DataType]
    DATA_TYPE_F64: _ClassVar[DataType]
    DATA_TYPE_C64: _ClassVar[DataType]
    DATA_TYPE_C128: _ClassVar[DataType]
    DATA_TYPE_I2: _ClassVar[DataType]
    DATA_TYPE_I4: _ClassVar[DataType]
    DATA_TYPE_UI2: _ClassVar[DataType]
    DATA_TYPE_UI4: _ClassVar[DataType]
    DATA_TYPE_F8E3M4: _ClassVar[DataType]
    DATA_TYPE_F8E4M3: _ClassVar[DataType]
    DATA_TYPE_F8E4M3FN: _ClassVar[DataType]
    DATA_TYPE_F8E4M3FNUZ: _ClassVar[DataType]
    DATA_TYPE_F8E4M3B11FNUZ: _ClassVar[DataType]
    DATA_TYPE_F8E5M2: _ClassVar[DataType]
    DATA_TYPE_F8E5M2FNUZ: _ClassVar[DataType]
    DATA_TYPE_F8E8M0FNU: _ClassVar[DataType]
    DATA_TYPE_F6E2M3FN: _ClassVar[DataType]
    DATA_TYPE_F6E3M2FN: _ClassVar[DataType]
    DATA_TYPE_F4E2M1FN: _ClassVar[DataType]

class DynamicMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DYNAMIC_MODE_UNSPECIFIED: _ClassVar[DynamicMode]
    DYNAMIC_MODE_STATIC: _ClassVar[DynamicMode]
    DYNAMIC_MODE_DYNAMIC: _ClassVar[DynamicMode]
    DYNAMIC_MODE_AUTO: _ClassVar[DynamicMode]
PROGRAM_FORMAT_UNSPECIFIED: ProgramFormat
PROGRAM_FORMAT_STABLEHLO: ProgramFormat
PROGRAM_FORMAT_LINALG: ProgramFormat
PROGRAM_FORMAT_TORCH: ProgramFormat
PROGRAM_FORMAT_ONNX: ProgramFormat
PROGRAM_FORMAT_GRAPH: ProgramFormat
NUMERICS_UNSPECIFIED: Numerics
NUMERICS_STRICT: Numerics
NUMERICS_DEFAULT: Numerics
NUMERICS_FAST: Numerics
TARGET_MATCH_UNSPECIFIED: TargetMatch
TARGET_MATCH_EXACT: TargetMatch
TARGET_MATCH_COMPATIBLE: TargetMatch
TARGET_MATCH_NAMESPACE: TargetMatch
DATA_TYPE_UNSPECIFIED: DataType
DATA_TYPE_I1: DataType
DATA_TYPE_I8: DataType
DATA_TYPE_I16: DataType
DATA_TYPE_I32: DataType
DATA_TYPE_I64: DataType
DATA_TYPE_UI8: DataType
DATA_TYPE_UI16: DataType
DATA_TYPE_UI32: DataType
DATA_TYPE_UI64: DataType
DATA_TYPE_F16: DataType
DATA_TYPE_BF16: DataType
DATA_TYPE_F32: DataType
DATA_TYPE_F64: DataType
DATA_TYPE_C64: DataType
DATA_TYPE_C128: DataType
DATA_TYPE_I2: DataType
DATA_TYPE_I4: DataType
DATA_TYPE_UI2: DataType
DATA_TYPE_UI4: DataType
DATA_TYPE_F8E3M4: DataType
DATA_TYPE_F8E4M3: DataType
DATA_TYPE_F8E4M3FN: DataType
DATA_TYPE_F8E4M3FNUZ: DataType
DATA_TYPE_F8E4M3B11FNUZ: DataType
DATA_TYPE_F8E5M2: DataType
DATA_TYPE_F8E5M2FNUZ: DataType
DATA_TYPE_F8E8M0FNU: DataType
DATA_TYPE_F6E2M3FN: DataType
DATA_TYPE_F6E3M2FN: DataType
DATA_TYPE_F4E2M1FN: DataType
DYNAMIC_MODE_UNSPECIFIED: DynamicMode
DYNAMIC_MODE_STATIC: DynamicMode
DYNAMIC_MODE_DYNAMIC: DynamicMode
DYNAMIC_MODE_AUTO: DynamicMode

class RequestHeader(_message.Message):
    __slots__ = ("namespace", "client_version", "request_id", "actor", "job")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    client_version: str
    request_id: str
    actor: str
    job: str
    def __init__(self, namespace: _Optional[str] = ..., client_version: _Optional[str] = ..., request_id: _Optional[str] = ..., actor: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class Program(_message.Message):
    __slots__ = ("format", "body")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    format: ProgramFormat
    body: bytes
    def __init__(self, format: _Optional[_Union[ProgramFormat, str]] = ..., body: _Optional[bytes] = ...) -> None: ...

class GraphSource(_message.Message):
    __slots__ = ("program", "program_digest")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    program: Program
    program_digest: bytes
    def __init__(self, program: _Optional[_Union[Program, _Mapping]] = ..., program_digest: _Optional[bytes] = ...) -> None: ...

class Options(_message.Message):
    __slots__ = ("numerics", "opt_level", "tuning_model", "schedule", "bound")
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    OPT_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TUNING_MODEL_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    numerics: Numerics
    opt_level: int
    tuning_model: str
    schedule: str
    bound: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, numerics: _Optional[_Union[Numerics, str]] = ..., opt_level: _Optional[int] = ..., tuning_model: _Optional[str] = ..., schedule: _Optional[str] = ..., bound: _Optional[_Iterable[int]] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("cpu", "gpu")
    CPU_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    cpu: CpuTarget
    gpu: GpuTarget
    def __init__(self, cpu: _Optional[_Union[CpuTarget, _Mapping]] = ..., gpu: _Optional[_Union[GpuTarget, _Mapping]] = ...) -> None: ...

class CpuTarget(_message.Message):
    __slots__ = ("triple", "isa")
    TRIPLE_FIELD_NUMBER: _ClassVar[int]
    ISA_FIELD_NUMBER: _ClassVar[int]
    triple: str
    isa: str
    def __init__(self, triple: _Optional[str] = ..., isa: _Optional[str] = ...) -> None: ...

class GpuTarget(_message.Message):
    __slots__ = ("arch", "ptx_version")
    ARCH_FIELD_NUMBER: _ClassVar[int]
    PTX_VERSION_FIELD_NUMBER: _ClassVar[int]
    arch: str
    ptx_version: str
    def __init__(self, arch: _Optional[str] = ..., ptx_version: _Optional[str] = ...) -> None: ...

class TensorSpec(_message.Message):
    __slots__ = ("dtype", "dims")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    dtype: DataType
    dims: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dtype: _Optional[_Union[DataType, str]] = ..., dims: _Optional[_Iterable[str]] = ...) -> None: ...

class SymbolSpec(_message.Message):
    __slots__ = ("name", "arg", "axis")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARG_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    name: str
    arg: int
    axis: int
    def __init__(self, name: _Optional[str] = ..., arg: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class SymbolAxis(_message.Message):
    __slots__ = ("arg", "axis", "min", "max", "multiple_of")
    ARG_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_OF_FIELD_NUMBER: _ClassVar[int]
    arg: int
    axis: int
    min: int
    max: int
    multiple_of: int
    def __init__(self, arg: _Optional[int] = ..., axis: _Optional[int] = ..., min: _Optional[int] = ..., max: _Optional[int] = ..., multiple_of: _Optional[int] = ...) -> None: ...

class DynamicShapes(_message.Message):
    __slots__ = ("mode", "axes", "evidence", "assume")
    MODE_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    ASSUME_FIELD_NUMBER: _ClassVar[int]
    mode: DynamicMode
    axes: _containers.RepeatedCompositeFieldContainer[SymbolAxis]
    evidence: _containers.RepeatedScalarFieldContainer[bytes]
    assume: bool
    def __init__(self, mode: _Optional[_Union[DynamicMode, str]] = ..., axes: _Optional[_Iterable[_Union[SymbolAxis, _Mapping]]] = ..., evidence: _Optional[_Iterable[bytes]] = ..., assume: bool = ...) -> None: ...

class SignedBytes(_message.Message):
    __slots__ = ("payload", "signature", "key_id")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    signature: bytes
    key_id: bytes
    def __init__(self, payload: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., key_id: _Optional[bytes] = ...) -> None: ...
