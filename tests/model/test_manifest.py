"""Manifests and bindings: the same value and the same bytes both ways."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc._proto.kcache.v1 import manifest_pb2
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.manifest import (
    ArtifactRef,
    Binding,
    ConstantBinding,
    LaunchSpec,
    Manifest,
    SymbolSpec,
    TensorSpec,
)
from kcache_grpc.model.options import NUMERICS, Options
from kcache_grpc.model.quantized import QuantizedBuffer
from kcache_grpc.model.target import CPU_TARGETS, CpuTarget

TEXT = st.text(max_size=12)
DIGEST = st.binary(min_size=32, max_size=32)
KEY = st.integers(1, 2**63 - 1)
SMALL = st.integers(0, 2**31)
DTYPES = [
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "ui8",
    "ui16",
    "ui32",
    "ui64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "c64",
    "c128",
]
TENSOR = st.builds(
    TensorSpec, st.sampled_from(DTYPES), st.lists(st.sampled_from(["0", "4", "s0*2"]), max_size=3).map(tuple)
)
SYMBOL = st.builds(SymbolSpec, TEXT, SMALL, SMALL)
MICROS = st.integers(0, 4_000_000_000_000_000)


def tuples(of: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(of, max_size=3).map(tuple)


MANIFEST = st.builds(
    Manifest,
    kernel_digest=DIGEST,
    spec_digest=DIGEST,
    key=KEY,
    namespace=TEXT,
    epoch=SMALL,
    target=st.builds(CpuTarget, st.sampled_from(CPU_TARGETS)),
    options=st.builds(Options, st.sampled_from(NUMERICS), st.integers(0, 3)),
    toolchain_digest=DIGEST,
    guard=TEXT,
    arg_spec=TEXT,
    abi=SMALL,
    inputs=tuples(TENSOR),
    constants=tuples(TENSOR),
    outputs=tuples(TENSOR),
    symbols=tuples(SYMBOL),
    workspace_bytes=TEXT,
    launches=tuples(st.builds(LaunchSpec, TEXT, tuples(TEXT), TEXT, TEXT)),
    required_isa=tuples(TEXT),
    error_codes=tuples(st.tuples(st.integers(-(2**31), 2**31 - 1), TEXT)),
    artifacts=tuples(st.builds(ArtifactRef, st.sampled_from(["so", "mlir", "llvm", "asm"]), DIGEST, SMALL)),
    server_version=TEXT,
    compile_time=MICROS.map(
        lambda us: datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=us)
    ),
    compile_seconds=st.integers(0, 10**9).map(lambda n: n / 1000),
    toolchain=tuples(st.tuples(TEXT, TEXT)),
)
BINDING = st.builds(
    Binding,
    program_digest=DIGEST,
    numerics=st.sampled_from(NUMERICS),
    namespace=TEXT,
    epoch=SMALL,
    key=KEY,
    spec_digest=DIGEST,
    inputs=tuples(TENSOR),
    arg_names=tuples(TEXT),
    outputs=tuples(TENSOR),
    symbols=tuples(SYMBOL),
    symbol_values=tuples(st.integers(-(2**63), 2**63 - 1)),
    constants=tuples(st.builds(ConstantBinding, TENSOR, DIGEST, SMALL)),
    size_arguments=tuples(SMALL),
    quantized=tuples(
        st.builds(
            QuantizedBuffer,
            SMALL,
            st.booleans(),
            st.sampled_from(["f16", "bf16", "f32", "f64"]),
            st.integers(-(2**31), 2**32),
            st.integers(-(2**31), 2**32),
            tuples(st.floats(allow_nan=False)),
            tuples(st.integers(-(2**31), 2**32)),
            st.none() | SMALL,
        )
    ),
)


@given(MANIFEST)
def test_a_manifest_is_its_bytes(manifest: Manifest) -> None:
    data = manifest.to_bytes()
    assert Manifest.from_bytes(data) == manifest
    assert Manifest.from_bytes(data).to_bytes() == data


@given(BINDING)
def test_a_binding_is_its_bytes(binding: Binding) -> None:
    data = binding.to_bytes()
    assert Binding.from_bytes(data) == binding
    assert Binding.from_bytes(data).to_bytes() == data


@given(MANIFEST, st.data())
def test_damaged_bytes_never_raise_anything_else(manifest: Manifest, data: st.DataObject) -> None:
    damaged = bytearray(manifest.to_bytes())
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(IntegrityError):
        Manifest.from_bytes(bytes(damaged))


@given(BINDING, st.data())
def test_damaged_bindings_neither(binding: Binding, data: st.DataObject) -> None:
    damaged = bytearray(binding.to_bytes())
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(IntegrityError):
        Binding.from_bytes(bytes(damaged))


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {"opt_level": 9}},
        {"options": {"numerics": 77}},
        {"options": {"tuning_model": "abacus"}},
        {"target": {"cpu": {"isa": "z80"}}},
        {"target": {"gpu": {"arch": "sm_13"}}},
        {"target": {"gpu": {"arch": "sm_90", "ptx_version": "9.9"}}},
        {"gpu_launches": [{"grid": ["1", "1", "1"], "block": [1, 1, 1]}]},
        {"checks": ["1 == 1"]},
        {"target": None},
        {"artifacts": [{"kind": 77}]},
        {"inputs": [{"dtype": 77}]},
        {"provenance": {"compile_time": {"seconds": 2**62}}},
    ],
    ids=str,
)
def test_values_of_another_version_are_an_integrity_error(changes: dict[str, Any]) -> None:
    known: dict[str, Any] = {"target": {"cpu": {"isa": "x86-64-v3"}}}
    fields = {name: value for name, value in (known | changes).items() if value is not None}
    Manifest.from_bytes(manifest_pb2.Manifest(**known).SerializeToString())
    data = manifest_pb2.Manifest(**fields).SerializeToString()
    with pytest.raises(IntegrityError, match=r"not a manifest|unknown dtype|a manifest for"):
        Manifest.from_bytes(data)


def test_numerics_of_another_version_in_a_binding() -> None:
    with pytest.raises(IntegrityError, match="numerics number 77"):
        Binding.from_bytes(manifest_pb2.Binding(numerics=77).SerializeToString())  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [True, False, 1.0, 4, -1, "3", None])
def test_an_opt_level_is_a_number_from_0_to_3(level: object) -> None:
    with pytest.raises(ArgumentError, match="opt_level"):
        Options(opt_level=level)  # type: ignore[arg-type]


def test_shapes_follow_from_symbols() -> None:
    tensor = TensorSpec("f32", ("s0*2", "3"))
    assert tensor.shape({"s0": 5}) == (10, 3)
    assert str(tensor) == "f32[s0*2,3]"
    with pytest.raises(IntegrityError, match="unknown symbol"):
        tensor.shape({})
