"""Bytes by digest in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import BlobStore
from kcache_grpc.storage.memory.quotas import invalidate_caches, require_room
from kcache_grpc.storage.memory.state import HeldBlob, MemoryPart, State
from kcache_grpc.storage.records import Blob, Namespace, Swept


class MemoryBlobs(MemoryPart, BlobStore):
    """``BlobStore`` in memory."""

    def put_constants(self, namespace: Namespace, constants: Sequence[Blob]) -> None:
        for constant in constants:
            checks.named_bytes("constant", constant.digest, constant.content)
        with self._state as state:
            sizes = {constant.digest: len(constant.content) for constant in constants}
            require_room(state, namespace, {}, sizes)
            for constant in constants:
                hold_constant(state, namespace, constant)

    def put_program(self, namespace: Namespace, program_digest: bytes, format: str, body: bytes) -> None:
        checks.digest("program digest", program_digest)
        checks.indexed("format", format)
        digest = hashlib.sha256(body).digest()
        with self._state as state:
            name = (namespace.id, program_digest)
            program = state.programs.get(name, (format, digest))
            if program[1] == digest:
                require_room(state, namespace, {}, {digest: len(body)})
                state.programs[name] = program
                state.program_times.setdefault(name, state.clock.wall())
                hold_blob(state, namespace, digest, body)

    def get_program(self, namespace: Namespace, program_digest: bytes) -> tuple[str, bytes] | None:
        checks.digest("program digest", program_digest)
        with self._state as state:
            program = state.programs.get((namespace.id, program_digest))
            body = whole_blob(state, namespace, program[1]) if program else None
            return None if program is None or body is None else (program[0], body)

    def artifact_size(self, namespace: Namespace, digest: bytes) -> int | None:
        checks.digest("digest", digest)
        with self._state as state:
            content = whole_blob(state, namespace, digest)
            return None if content is None else len(content)

    def read_artifact(
        self, namespace: Namespace, digest: bytes, offset: int = 0, length: int | None = None
    ) -> bytes | None:
        checks.number("offset", offset, 0 if length is None else length)
        checks.digest("digest", digest)
        with self._state as state:
            content = whole_blob(state, namespace, digest)
        if content is None:
            return None
        return content[offset : len(content) if length is None else offset + length]

    def verify_artifact(self, namespace: Namespace, digest: bytes, *, quarantine: bool = True) -> bool:
        return self.artifact_size(namespace, digest) is not None

    def sweep_objects(self, grace: float, *, dry_run: bool = False, now: int | None = None) -> Swept:
        return Swept()

    def quarantine_artifact(self, namespace: Namespace, digest: bytes, reason: str) -> bool:
        checks.digest("digest", digest)
        checks.text("reason", reason)
        with self._state as state:
            if whole_blob(state, namespace, digest) is None:
                return False
            blob = state.blobs[namespace.id, digest]
            newest = max(index for index, content in enumerate(blob.generations) if content is not None)
            blob.generations[newest] = None
            blob.bad_since = state.clock.wall() if blob.bad_since is None else blob.bad_since
            invalidate_caches(state, namespace.id)
            return True


def whole_blob(state: State, namespace: Namespace, digest: bytes) -> bytes | None:
    """The bytes, where they are whole."""
    blob = state.blobs.get((namespace.id, digest))
    return None if blob is None else blob.whole


def hold_blob(state: State, namespace: Namespace, digest: bytes, content: bytes) -> bool:
    """Hold the bytes unless they are held whole; whether that was needed."""
    new = HeldBlob(len(content), state.clock.wall())
    blob = state.blobs.setdefault((namespace.id, digest), new)
    if blob.whole is not None:
        return False
    blob.generations.append(content)
    return True


def hold_constant(state: State, namespace: Namespace, constant: Blob) -> None:
    """Hold a constant and its bytes."""
    hold_blob(state, namespace, constant.digest, constant.content)
    state.constants.setdefault((namespace.id, constant.digest), state.clock.wall())
