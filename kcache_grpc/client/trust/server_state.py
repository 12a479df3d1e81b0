"""The state that a server reported: identity, epoch, toolchains; kept in memory and on disk."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from google.protobuf.message import DecodeError

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1.manifest_pb2 import Ingredient
from kcache_grpc.errors import IntegrityError
from kcache_grpc.local_files import read_regular, write_whole
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.identity import toolchain_digest
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.signing import server_id
from kcache_grpc.model.target import Target

#: Where a server gives no limit: gRPC's own is 4 MiB a message.
_INLINE_PROGRAM = 2 << 20
_MAX_QUERIES = 256

#: Server, epoch and toolchain.
Provenance = tuple[str, int, bytes]


@dataclass(frozen=True)
class ServerState:
    """Identity, epoch, toolchain and limits; ``fetched`` is in Unix seconds."""

    server_id: str
    public_key: bytes
    epoch: int
    toolchain_digest: bytes
    gpu_toolchain_digest: bytes
    max_program_bytes: int
    max_inline_program_bytes: int
    max_queries: int
    fetched: float
    #: Whether the namespace lets kernels for lower targets answer requests that leave it to it.
    compatible_targets: bool
    #: The reply that it was read from, for the snapshot on disk.
    reply: bytes

    def age(self, now: float) -> float:
        """Seconds since the server said so; a clock that was set back counts as old."""
        return now - self.fetched if now >= self.fetched else float("inf")

    def toolchain_of(self, target: Target) -> bytes:
        """Digest of what compiles for a target."""
        return self.gpu_toolchain_digest if isinstance(target, GpuTarget) else self.toolchain_digest

    def provenance_of(self, manifest: Manifest) -> Provenance:
        """What a kernel in memory is kept with: one that is not among ``provenances`` disowns it.

        As it says itself: the server may have a new epoch or toolchain since it was asked for the kernel.
        """
        return (self.server_id, manifest.epoch, manifest.toolchain_digest)

    @cached_property
    def provenances(self) -> frozenset[Provenance]:
        """Of all targets. A kernel of another one is stale (``kcache_grpc/model/staleness.py``)."""
        digests = (self.toolchain_digest, self.gpu_toolchain_digest)
        return frozenset((self.server_id, self.epoch, digest) for digest in digests)


def read_state(reply: pb.GetCapabilitiesResponse, fetched: float) -> ServerState:
    """Raises ``IntegrityError`` for an answer that contradicts itself."""
    if reply.server_id != server_id(reply.public_key):
        raise IntegrityError("the server's identity is not the digest of its public key")
    cpu = _read_toolchain(reply.toolchain, reply.toolchain_digest, disowned=reply.toolchain_disowned)
    gpu = cpu  # a server that has one for both
    if reply.gpu_toolchain_digest:
        gpu = _read_toolchain(
            reply.gpu_toolchain, reply.gpu_toolchain_digest, disowned=reply.gpu_toolchain_disowned
        )
    limits = reply.limits
    return ServerState(
        server_id=reply.server_id,
        public_key=reply.public_key,
        epoch=reply.epoch,
        toolchain_digest=cpu,
        gpu_toolchain_digest=gpu,
        max_program_bytes=limits.max_program_bytes,
        max_inline_program_bytes=min(limits.max_inline_program_bytes or _INLINE_PROGRAM, 3 << 20),
        max_queries=limits.max_queries or _MAX_QUERIES,
        fetched=fetched,
        compatible_targets=reply.target_match == common_pb2.TARGET_MATCH_COMPATIBLE,
        reply=reply.SerializeToString(),
    )


def _read_toolchain(items: Iterable[Ingredient], digest: bytes, *, disowned: bool) -> bytes:
    """The digest; empty where it is disowned: what is held of it is of no provenance that is served."""
    if toolchain_digest(tuple((item.name, item.value) for item in items)) != digest:
        raise IntegrityError("the server's toolchain digest does not match its toolchain")
    return b"" if disowned else digest


class Snapshots:
    """The last answer of each server and namespace, so that a hit on disk needs no server.

    ``tag`` is stored with it: a snapshot with another tag does not count.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def load(self, name: str, tag: str = "") -> ServerState | None:
        """The last answer; ``None`` where there is none that can be read."""
        if self._directory is None:
            return None
        try:
            record = cast("dict[str, Any]", json.loads(read_regular(self._path(name))))
            if record["tag"] != tag:
                return None
            reply = pb.GetCapabilitiesResponse.FromString(base64.b64decode(record["reply"], validate=True))
            return read_state(reply, float(record["fetched"]))
        except (OSError, ValueError, KeyError, TypeError, binascii.Error, DecodeError, IntegrityError):
            return None

    def save(self, name: str, state: ServerState, tag: str = "") -> None:
        """Replaces the last answer. Raises ``OSError``."""
        if self._directory is None:
            return
        record = {
            "fetched": state.fetched,
            "tag": tag,
            "reply": base64.b64encode(state.reply).decode(),
        }
        write_whole(self._path(name), json.dumps(record).encode())

    def _path(self, name: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{name}.json"


def now() -> float:
    """Wall-clock time: snapshots are compared across processes."""
    return time.time()
