"""Digests of kernels and toolchains: ordered lists of named ingredients.

Every ingredient can be logged, stored and compared alone; a digest is nothing but their hash.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.target import Target

Ingredients = tuple[tuple[str, str], ...]


def ingredients_digest(domain: str, ingredients: Ingredients) -> bytes:
    """SHA-256 over the domain and a zero byte, then each ingredient's name and value.

    Both are preceded by their length in bytes as u64, big endian.
    """
    digest = hashlib.sha256(domain.encode() + b"\0")
    for pair in ingredients:
        for text in pair:
            data = text.encode()
            digest.update(struct.pack(">Q", len(data)))
            digest.update(data)
    return digest.digest()


def toolchain_digest(toolchain: Ingredients) -> bytes:
    """The compiler fingerprint, 32 bytes."""
    return ingredients_digest("kcache.toolchain.v1", toolchain)


@dataclass(frozen=True)
class Toolchain:
    """A compiler fingerprint, ingredient by ingredient."""

    ingredients: Ingredients = ()

    @cached_property
    def digest(self) -> bytes:
        """32 bytes."""
        return toolchain_digest(self.ingredients)


@dataclass(frozen=True)
class Toolchains:
    """What compiles for CPUs, and what for GPUs: an assembler for GPUs changes no name of a CPU's kernel."""

    cpu: Toolchain
    gpu: Toolchain

    def of(self, target: Target | None) -> Toolchain:
        """What compiles for a target; no target: the CPU's, which has the parsers of programs too."""
        return self.gpu if isinstance(target, GpuTarget) else self.cpu

    @property
    def digests(self) -> frozenset[bytes]:
        """Of both."""
        return frozenset((self.cpu.digest, self.gpu.digest))


@dataclass(frozen=True)
class KernelIdentity:
    """The six things that make a kernel what it is."""

    spec_digest: bytes
    arg_spec: str
    guard: str
    target: str
    options: str
    toolchain_digest: bytes

    @property
    def ingredients(self) -> Ingredients:
        """Named, in digest order."""
        return (
            ("spec", self.spec_digest.hex()),
            ("arg_spec", self.arg_spec),
            ("guard", self.guard),
            ("target", self.target),
            ("options", self.options),
            ("toolchain", self.toolchain_digest.hex()),
        )

    @property
    def digest(self) -> bytes:
        """The kernel digest, 32 bytes."""
        return ingredients_digest("kcache.kernel.v1", self.ingredients)
