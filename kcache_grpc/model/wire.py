"""Enums and small values between the model and protobuf: one table each, total both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kcache_grpc._proto.kcache.v1 import common_pb2, manifest_pb2
from kcache_grpc.errors import ArgumentError, IntegrityError, InvalidProgram
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.options import Options
from kcache_grpc.model.program import ProgramFormat
from kcache_grpc.model.schedule import RECORDED
from kcache_grpc.model.sizes.modes import AUTO, DYNAMIC, EXACT, STATIC, Axis, Dim, ShapeRequirements
from kcache_grpc.model.target import CpuTarget, Target


def dtype_name(enumerator: str) -> str:
    """``f8E4M3FN`` of ``DATA_TYPE_F8E4M3FN``: MLIR's name."""
    name = enumerator.removeprefix("DATA_TYPE_").lower()
    return name[:2] + name[2:].upper() if name[2:3] == "e" else name


#: dtype name -> enum value; the enum's names are DATA_TYPE_<NAME>.
_DTYPES: Mapping[str, common_pb2.DataType] = {
    dtype_name(name): cast("common_pb2.DataType", number)
    for name, number in common_pb2.DataType.items()
    if name != "DATA_TYPE_UNSPECIFIED"
}
_DTYPE_NAMES: Mapping[int, str] = {value: name for name, value in _DTYPES.items()}

_KINDS: Mapping[str, manifest_pb2.ArtifactKind] = {
    "so": manifest_pb2.ARTIFACT_KIND_SHARED_OBJECT,
    "mlir": manifest_pb2.ARTIFACT_KIND_MLIR,
    "llvm": manifest_pb2.ARTIFACT_KIND_LLVM_IR,
    "asm": manifest_pb2.ARTIFACT_KIND_ASSEMBLY,
    "ptx": manifest_pb2.ARTIFACT_KIND_PTX,
    "cubin": manifest_pb2.ARTIFACT_KIND_CUBIN,
    "constant": manifest_pb2.ARTIFACT_KIND_CONSTANT,
}
_KIND_NAMES: Mapping[int, str] = {value: name for name, value in _KINDS.items()}
ARTIFACT_KINDS = tuple(_KINDS)

_NUMERICS: Mapping[str, common_pb2.Numerics] = {
    "strict": common_pb2.NUMERICS_STRICT,
    "default": common_pb2.NUMERICS_DEFAULT,
    "fast": common_pb2.NUMERICS_FAST,
}
_NUMERICS_NAMES: Mapping[int, str] = {int(number): name for name, number in _NUMERICS.items()} | {
    0: "default"
}

_SHAPE_MODES: Mapping[str, common_pb2.DynamicMode] = {
    STATIC: common_pb2.DYNAMIC_MODE_STATIC,
    DYNAMIC: common_pb2.DYNAMIC_MODE_DYNAMIC,
    AUTO: common_pb2.DYNAMIC_MODE_AUTO,
}
_SHAPE_MODE_NAMES: Mapping[int, str] = {int(number): name for name, number in _SHAPE_MODES.items()} | {
    0: STATIC
}


def dtype_to_proto(dtype: str) -> common_pb2.DataType:
    """Raises ``ArgumentError`` for a dtype that the wire does not have."""
    if dtype not in _DTYPES:
        raise ArgumentError(f"unknown dtype {dtype!r}")
    return _DTYPES[dtype]


def dtype_from_proto(value: int) -> str:
    """Raises ``IntegrityError`` for a dtype of a later version."""
    if value not in _DTYPE_NAMES:
        raise IntegrityError(f"unknown dtype number {value}")
    return _DTYPE_NAMES[value]


def artifact_kind_to_proto(kind: str) -> manifest_pb2.ArtifactKind:
    """Raises ``ArgumentError`` for an unknown kind."""
    if kind not in _KINDS:
        raise ArgumentError(f"unknown artifact kind {kind!r}; use one of {', '.join(_KINDS)}")
    return _KINDS[kind]


def artifact_kind_from_proto(value: int) -> str:
    """Raises ``ArgumentError`` for an unknown kind."""
    if value not in _KIND_NAMES:
        raise ArgumentError(f"unknown artifact kind number {value}")
    return _KIND_NAMES[value]


def numerics_to_proto(numerics: str) -> common_pb2.Numerics:
    """Raises ``ArgumentError`` for an unknown class."""
    if numerics not in _NUMERICS:
        raise ArgumentError(f"numerics is {numerics!r}; use one of {', '.join(_NUMERICS)}")
    return _NUMERICS[numerics]


def numerics_from_proto(value: int) -> str:
    """Unset means ``default``. Raises ``ArgumentError`` for an unknown number."""
    if value not in _NUMERICS_NAMES:
        raise ArgumentError(f"unknown numerics number {value}")
    return _NUMERICS_NAMES[value]


def options_to_proto(options: Options) -> common_pb2.Options:
    """To the wire."""
    return common_pb2.Options(
        numerics=numerics_to_proto(options.numerics),
        opt_level=options.opt_level,
        tuning_model=options.tuning,
        schedule=options.schedule,
        bound=options.bound,
    )


def options_from_proto(message: common_pb2.Options) -> Options:
    """Unset fields get their documented defaults. Raises ``ArgumentError``."""
    if message.schedule == RECORDED:
        raise ArgumentError(f"schedule is {RECORDED!r}: ask ListTimings, and name the choices")
    return Options(
        numerics=numerics_from_proto(message.numerics),
        opt_level=message.opt_level if message.HasField("opt_level") else 3,
        tuning=message.tuning_model or "generic",
        schedule=message.schedule,
        bound=tuple(message.bound),
    )


#: Whether kernels for lower targets will do; ``None``: as the namespace says.
_MATCHES: Mapping[bool | None, common_pb2.TargetMatch] = {
    False: common_pb2.TARGET_MATCH_EXACT,
    True: common_pb2.TARGET_MATCH_COMPATIBLE,
    None: common_pb2.TARGET_MATCH_NAMESPACE,
}
_MATCH_VALUES: Mapping[int, bool | None] = {int(number): value for value, number in _MATCHES.items()} | {
    0: False
}


def target_match_to_proto(compatible: bool | None) -> common_pb2.TargetMatch:
    """To the wire."""
    return _MATCHES[compatible]


def target_match_from_proto(value: int) -> bool | None:
    """Unset means that only the target itself will do. Raises ``ArgumentError`` for an unknown number."""
    if value not in _MATCH_VALUES:
        raise ArgumentError(f"unknown target match number {value}", field="target_match")
    return _MATCH_VALUES[value]


def target_to_proto(target: Target) -> common_pb2.Target:
    """To the wire."""
    if isinstance(target, GpuTarget):
        return common_pb2.Target(gpu=common_pb2.GpuTarget(arch=target.arch, ptx_version=target.ptx_version))
    return common_pb2.Target(cpu=common_pb2.CpuTarget(triple=target.triple, isa=target.isa))


def target_from_proto(message: common_pb2.Target) -> Target:
    """Raises ``ArgumentError`` for a target that this version does not know."""
    kind = message.WhichOneof("kind")
    if kind == "gpu":
        return _gpu_from_proto(message.gpu)
    if kind is None:
        raise ArgumentError("the request names no target; set target.cpu.isa or target.gpu.arch")
    target = CpuTarget(message.cpu.isa)
    if message.cpu.triple not in ("", target.triple):
        raise ArgumentError(
            f"target {target.isa!r} has the triple {target.triple!r}, not {message.cpu.triple!r}"
        )
    return target


def _gpu_from_proto(message: common_pb2.GpuTarget) -> GpuTarget:
    target = GpuTarget(message.arch)
    if message.ptx_version not in ("", target.ptx_version):
        raise ArgumentError(
            f"kernels for {target} are emitted in PTX {target.ptx_version}, not {message.ptx_version!r}; "
            "leave ptx_version empty"
        )
    return target


def shapes_to_proto(shapes: ShapeRequirements) -> common_pb2.DynamicShapes:
    """To the wire."""
    return common_pb2.DynamicShapes(
        mode=_SHAPE_MODES[shapes.mode],
        axes=[
            common_pb2.SymbolAxis(
                arg=at.arg, axis=at.axis, min=dim.min, max=dim.max, multiple_of=dim.multiple_of
            )
            for at, dim in shapes.axes
        ],
        evidence=shapes.evidence,
        assume=shapes.assume,
    )


def shapes_from_proto(message: common_pb2.DynamicShapes) -> ShapeRequirements:
    """Unset means static. Raises ``ArgumentError`` for an unknown mode, and for what no size meets."""
    if message.mode not in _SHAPE_MODE_NAMES:
        raise ArgumentError(f"unknown dynamic mode number {message.mode}")
    bare = not (message.axes or message.evidence or message.assume)
    if bare and _SHAPE_MODE_NAMES[message.mode] == STATIC:
        return EXACT
    axes = (
        (
            Axis(axis.arg, axis.axis),
            Dim(axis.min, axis.max if axis.HasField("max") else None, axis.multiple_of or 1),
        )
        for axis in message.axes
    )
    return ShapeRequirements(
        _SHAPE_MODE_NAMES[message.mode], tuple(axes), tuple(message.evidence), message.assume
    )


def format_to_proto(format: ProgramFormat) -> common_pb2.ProgramFormat:
    """To the wire."""
    return cast("common_pb2.ProgramFormat", common_pb2.ProgramFormat.Value(f"PROGRAM_FORMAT_{format.name}"))


def format_from_proto(value: int) -> ProgramFormat:
    """Raises ``InvalidProgram`` for an unset or unknown format."""
    for format in ProgramFormat:
        if format_to_proto(format) == value:
            return format
    raise InvalidProgram(f"the program's format is unset or unknown (number {value})")
