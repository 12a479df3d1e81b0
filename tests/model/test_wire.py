"""Tables between the model and protobuf are total."""

from __future__ import annotations

import pytest

from kcache_grpc._proto.kcache.v1 import common_pb2, manifest_pb2
from kcache_grpc.errors import ArgumentError, IntegrityError, InvalidProgram
from kcache_grpc.model import wire
from kcache_grpc.model.options import Options
from kcache_grpc.model.program import ProgramFormat
from kcache_grpc.model.target import CpuTarget, parse_target


def test_every_number_of_the_enums_has_a_name() -> None:
    for number in common_pb2.DataType.values()[1:]:
        assert wire.dtype_to_proto(wire.dtype_from_proto(number)) == number
    for number in manifest_pb2.ArtifactKind.values()[1:]:
        assert wire.artifact_kind_to_proto(wire.artifact_kind_from_proto(number)) == number
    for number in common_pb2.Numerics.values()[1:]:
        assert wire.numerics_to_proto(wire.numerics_from_proto(number)) == number
    for format in ProgramFormat:
        assert wire.format_from_proto(wire.format_to_proto(format)) is format


def test_unset_options_are_the_documented_defaults() -> None:
    assert wire.options_from_proto(common_pb2.Options()) == Options()
    assert wire.options_from_proto(common_pb2.Options(opt_level=0)).opt_level == 0


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda: wire.dtype_from_proto(99), IntegrityError),
        (lambda: wire.dtype_to_proto("f31"), ArgumentError),
        (lambda: wire.artifact_kind_from_proto(99), ArgumentError),
        (lambda: wire.artifact_kind_to_proto("exe"), ArgumentError),
        (lambda: wire.numerics_from_proto(99), ArgumentError),
        (lambda: wire.format_from_proto(99), InvalidProgram),
        (lambda: wire.format_from_proto(0), InvalidProgram),
        (lambda: wire.target_from_proto(common_pb2.Target()), ArgumentError),
        (
            lambda: wire.target_from_proto(common_pb2.Target(gpu=common_pb2.GpuTarget(arch="sm_130"))),
            ArgumentError,
        ),
        (
            lambda: wire.target_from_proto(
                common_pb2.Target(gpu=common_pb2.GpuTarget(arch="sm_90", ptx_version="8.0"))
            ),
            ArgumentError,
        ),
        (
            lambda: wire.target_from_proto(common_pb2.Target(cpu=common_pb2.CpuTarget(isa="z80"))),
            ArgumentError,
        ),
        (
            lambda: wire.target_from_proto(
                common_pb2.Target(cpu=common_pb2.CpuTarget(isa="aarch64", triple="x86_64-unknown-linux-gnu"))
            ),
            ArgumentError,
        ),
    ],
)
def test_what_is_unknown_is_rejected(read: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        read()  # type: ignore[operator]


def test_targets_round_trip() -> None:
    target = CpuTarget("x86-64-v3")
    assert wire.target_from_proto(wire.target_to_proto(target)) == target
    assert wire.target_from_proto(common_pb2.Target(cpu=common_pb2.CpuTarget(isa="x86-64-v3"))) == target
    gpu = parse_target("sm_90a")
    assert wire.target_from_proto(wire.target_to_proto(gpu)) == gpu
    assert wire.target_to_proto(gpu).gpu.ptx_version == "8.0"
    assert wire.target_from_proto(common_pb2.Target(gpu=common_pb2.GpuTarget(arch="sm_90a"))) == gpu
