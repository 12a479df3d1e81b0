"""Digests: the published vectors, and that every ingredient counts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kcache_grpc.errors import ArgumentError, IntegrityError, PermissionDenied
from kcache_grpc.model.identity import KernelIdentity, toolchain_digest
from kcache_grpc.model.options import TUNING_MODELS, Options
from kcache_grpc.model.program import Program, ProgramFormat
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signer, Verifier
from kcache_grpc.model.target import (
    CPU_NAMES,
    CPU_TARGETS,
    CpuTarget,
    host_target,
    missing_features,
    parse_target,
)

VECTORS = Path(__file__).parents[2] / "protos" / "kcache" / "v1" / "program_digest_vectors.json"
IDENTITY = KernelIdentity(b"s" * 32, "f32[4]", "", "x86-64-v3", "numerics=default", b"t" * 32)


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text()), ids=lambda v: v["digest_hex"][:8])
def test_program_digests_are_the_published_ones(vector: dict[str, str]) -> None:
    program = Program(ProgramFormat[vector["format"]], bytes.fromhex(vector["body_hex"]))
    assert program.digest.hex() == vector["digest_hex"]


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(KernelIdentity)])
def test_every_ingredient_changes_the_kernel_digest(field: str) -> None:
    value = getattr(IDENTITY, field)
    other = dataclasses.replace(IDENTITY, **{field: value + (b"x" if isinstance(value, bytes) else "x")})
    assert other.digest != IDENTITY.digest
    assert [a for a, b in zip(IDENTITY.ingredients, other.ingredients, strict=True) if a != b] == [
        (field.removesuffix("_digest"), dict(IDENTITY.ingredients)[field.removesuffix("_digest")])
    ]


def test_ingredients_cannot_run_into_each_other() -> None:
    assert toolchain_digest((("a", "bc"),)) != toolchain_digest((("ab", "c"),))
    assert toolchain_digest((("a", "b"), ("c", "d"))) != toolchain_digest((("a", "bcd"),))


@pytest.mark.parametrize(
    "change",
    [
        {"numerics": "sloppy"},
        {"opt_level": 4},
        {"opt_level": -1},
        {"tuning": "mine"},
        {"schedule": "x"},
        {"bound": (-1,)},
        {"bound": ("w",)},
    ],
)
def test_unknown_options_are_rejected(change: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        Options(**change)  # type: ignore[arg-type]


def test_every_option_is_in_the_key_or_cannot_change_bytes() -> None:
    full = Options(schedule="grain:4", bound=(3, 1, 2, 7, 1))
    texts = {str(Options()), str(Options(numerics="strict")), str(Options(opt_level=1)), str(full)}
    assert len(texts) == 4
    assert full.bound == (1, 2, 3, 7)
    assert str(full).endswith("schedule=grain:4 bound=1-3,7")
    ingredients = {part.split("=")[0] for part in str(full).split()}
    assert {f.name for f in dataclasses.fields(Options)} == ingredients | {"compatible_targets"}
    assert str(Options(compatible_targets=True)) == str(Options())


def test_targets_by_name() -> None:
    assert [str(parse_target(name)) for name in CPU_TARGETS] == list(CPU_TARGETS)
    assert host_target().isa in CPU_TARGETS
    assert missing_features(host_target().triple, ()) == ()
    assert missing_features("riscv64-unknown-linux-gnu", ()) == ("riscv64-unknown-linux-gnu",)
    assert missing_features(host_target().triple, ("+nosuchfeature",)) == ("nosuchfeature",)
    with pytest.raises(ArgumentError, match="x86-64-v9"):
        parse_target("x86-64-v9")


def test_client_and_compiler_name_the_same_targets() -> None:
    from kcache_compiler.llvm.cpus import CPUS
    from kcache_compiler.llvm.target import TARGETS, target_named

    assert tuple(TARGETS) == CPU_TARGETS
    assert set(CPUS) == set(CPU_NAMES)
    assert ("generic", *CPU_NAMES) == TUNING_MODELS
    for name in (*CPU_TARGETS, *CPU_NAMES):
        assert CpuTarget(name).triple == target_named(name).triple


def test_a_host_runs_what_its_level_needs_and_knows_every_feature() -> None:
    from kcache_compiler.llvm.target import target_named

    host = host_target()
    assert missing_features(host.triple, target_named(host.isa).features) == ()
    other = next(name for name in CPU_TARGETS if CpuTarget(name).triple != host.triple)
    assert missing_features(CpuTarget(other).triple, ()) == (CpuTarget(other).triple,)


def test_a_signature_holds_for_its_bytes_its_domain_and_its_key_only(tmp_path: Path) -> None:
    signer = Signer.from_file(tmp_path / "keys" / "signing.key")
    signed = signer.sign(MANIFEST_DOMAIN, b"payload")
    verifier = Verifier(Signer.from_file(tmp_path / "keys" / "signing.key").public_key)
    assert verifier.verify(MANIFEST_DOMAIN, signed) == b"payload"
    for domain, forged in [
        (BINDING_DOMAIN, signed),
        (MANIFEST_DOMAIN, dataclasses.replace(signed, payload=b"payloaD")),
        (MANIFEST_DOMAIN, dataclasses.replace(signed, signature=b"")),
        (MANIFEST_DOMAIN, Signer.generate().sign(MANIFEST_DOMAIN, b"payload")),
    ]:
        with pytest.raises(IntegrityError):
            verifier.verify(domain, forged)


def test_a_key_file_is_private_or_rejected(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    Signer.from_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    path.chmod(0o644)
    with pytest.raises(PermissionDenied, match="chmod 600"):
        Signer.from_file(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(IntegrityError, match="5 bytes"):
        Signer.from_file(path)
