"""Drafts that tests store: each small, each determined by a number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from kcache_grpc.storage import Clock
from kcache_grpc.storage.records import (
    ArtifactDraft,
    Blob,
    GraphDraft,
    KernelDraft,
    KernelRecord,
    MappingDraft,
    SignedBytes,
    SpecDraft,
)

SECOND = 1_000_000


@dataclass
class Time:
    """Clocks that tests turn by hand, in microseconds."""

    wall: int = 1_750_000_000 * SECOND
    steady: int = 77 * SECOND
    boot: str = "boot-1"
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(lambda: self.wall, lambda: self.steady, self.boot)

    def advance(self, seconds: float) -> None:
        self.wall += int(seconds * SECOND)
        self.steady += int(seconds * SECOND)


def sha256(data: bytes | str) -> bytes:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).digest()


def spec(number: int, numerics: str = "default") -> SpecDraft:
    text = f"kcache.spec v1 {numerics}\n%0 = add arg{number}\n"
    return SpecDraft(sha256(text), text, numerics, canonicalizer=1)


def blob(content: bytes) -> Blob:
    return Blob(sha256(content), content)


def program(number: int) -> bytes:
    return sha256(f"program {number}")


def bind(key: int) -> SignedBytes:
    return SignedBytes(f"binding of {key}".encode(), b"signature of it")


def mapping(number: int, key: int, constants: Sequence[bytes] = ()) -> MappingDraft:
    return MappingDraft(program(number), "default", key, bind(key), tuple(constants))


def graph(number: int, constants: Sequence[bytes] = ()) -> GraphDraft:
    return GraphDraft(spec(number), program(number), bind, tuple(blob(content) for content in constants))


def kernel(
    number: int,
    key: int = 1,
    *,
    so: bytes | None = None,
    guard: str = "",
    extra: Sequence[tuple[str, bytes]] = (),
) -> KernelDraft:
    contents = [("so", f"object {number}".encode() if so is None else so), ("llvm", b"shared IR"), *extra]
    return KernelDraft(
        KernelRecord(
            sha256(f"kernel {number}"),
            key,
            "f32[8]",
            guard,
            "x86-64-v3",
            "numerics=default",
            sha256("toolchain"),
        ),
        SignedBytes(f"manifest {number}".encode(), b"signature of it"),
        tuple(ArtifactDraft(kind, sha256(content), content) for kind, content in contents),
        (("spec", spec(number).spec_digest.hex()), ("target", "x86-64-v3")),
        compile_us=1500 + number,
    )
