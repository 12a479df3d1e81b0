"""Programs and their digests."""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

_DIGEST_DOMAIN = b"kcache.program.v1\0"


class ProgramFormat(str, enum.Enum):
    """How the bytes of a program are to be read. The value is the SDK's name of the format."""

    STABLEHLO = "stablehlo"
    LINALG = "linalg"
    TORCH = "torch"
    ONNX = "onnx"
    GRAPH = "graph"


@dataclass(frozen=True)
class Program:
    """A format and its bytes."""

    format: ProgramFormat
    body: bytes = field(repr=False)

    @cached_property
    def digest(self) -> bytes:
        """The program digest, 32 bytes."""
        return program_digest(self.format, self.body)


def program_digest(format: ProgramFormat, body: bytes) -> bytes:
    """SHA-256 over domain, format name and body, each with its length (protos/kcache/v1/common.proto)."""
    return program_digest_of_parts(format, len(body), (body,))


def program_digest_of_parts(format: ProgramFormat, size: int, parts: Iterable[bytes]) -> bytes:
    """The program digest of a body of ``size`` bytes that comes in parts."""
    digest = hashlib.sha256(_digest_prefix(format, size))
    for part in parts:
        digest.update(part)
    return digest.digest()


def _digest_prefix(format: ProgramFormat, size: int) -> bytes:
    name = format.name.encode("ascii")
    return _DIGEST_DOMAIN + struct.pack(">I", len(name)) + name + struct.pack(">Q", size)
