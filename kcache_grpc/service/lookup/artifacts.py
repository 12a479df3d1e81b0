"""Reads what is stored: specs and kernels by key; artifacts and constants, noted in the audit log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kcache_grpc.errors import ArgumentError, NotFound, Unavailable
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.values import Caller, KernelPage, StoredSpec, check_digest
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace

#: Kernels on a page: where the caller says nothing, and at most.
_PAGE, _MOST_PAGE = 100, 1000


@dataclass(frozen=True)
class Reading:
    """A blob that is being read: its whole size in bytes, and the parts with their offsets."""

    size: int
    parts: AsyncIterator[tuple[int, bytes]]


class Artifacts:
    """Reads what kernels consist of, for whoever may see their namespace."""

    def __init__(self, namespaces: Namespaces, kernels: Kernels, audit_recorder: AuditRecorder) -> None:
        self._namespaces = namespaces
        self._kernels = kernels
        self._audit_recorder = audit_recorder

    async def read(self, caller: Caller, digest: bytes, offset: int, limit: int) -> Reading:
        """A request of its own for a blob. Raises ``NotFound``, and ``ArgumentError`` beyond its end."""
        reading = await self._open(caller, digest, offset, limit)
        namespace = await self._namespaces.get(caller.namespace)
        count = min(reading.size - offset, limit or reading.size)
        detail = json.dumps({"sha256": digest.hex(), "client": caller.client})
        self._audit_recorder.note(
            namespace, caller, AuditEvent("read", "ok", byte_count=count, detail=detail)
        )
        return reading

    async def open_served(self, caller: Caller, digest: bytes) -> Reading:
        """Opens an artifact of a kernel that was just handed out. Raises ``Unavailable`` when it is gone."""
        try:
            return await self._open(caller, digest, 0, 0)
        except NotFound as error:
            raise Unavailable(
                f"{error.message}, it was removed meanwhile; ask for the kernel again"
            ) from error

    async def read_served(self, caller: Caller, digest: bytes) -> bytes:
        """All bytes of an artifact of a kernel that was just handed out. Raises ``Unavailable``."""
        reading = await self.open_served(caller, digest)
        parts = [part async for _, part in reading.parts]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _open(self, caller: Caller, digest: bytes, offset: int, limit: int) -> Reading:
        check_digest(digest, "sha256")
        namespace = await self._namespaces.get(caller.namespace)
        try:
            size, end = await self._kernels.open(namespace, digest, offset, limit)
        except NotFound:
            # Whoever asks next must not be told of a kernel that has just lost these bytes.
            self._namespaces.forget(namespace.id)
            raise
        return Reading(size, self._kernels.read(namespace, digest, offset, end))


class Catalog:
    """Reads. Blocks; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def spec(self, namespace: Namespace, key: int) -> StoredSpec:
        """Raises ``NotFound``."""
        spec = self._store.get_spec(namespace, key)
        if spec is None:
            raise NotFound(f"namespace {namespace.name} has no key {key}", key=str(key))
        return StoredSpec(spec, self._store.resolve_key(namespace, key))

    def find_spec(self, namespace: Namespace, spec_digest: bytes) -> StoredSpec | None:
        """The spec with this digest, if it is stored."""
        spec = self._store.find_spec(namespace, spec_digest)
        return None if spec is None else StoredSpec(spec, self._store.resolve_key(namespace, spec.key))

    def kernels(self, namespace: Namespace, key: int, page_size: int, page_token: str) -> KernelPage:
        """The kernels of a key, youngest first. Raises ``NotFound``, ``ArgumentError``."""
        if key < 1:
            raise ArgumentError(f"keys are from 1, not {key}", field="key")
        before, most = _page_start(page_token), min(page_size or _PAGE, _MOST_PAGE)
        self.spec(namespace, key)
        kernels = self._store.list_kernels(namespace, key, most + 1, before)
        more = len(kernels) > most
        return KernelPage(kernels[:most], str(kernels[most - 1].id) if more else "")


def _page_start(token: str) -> int | None:
    """The id that a page begins below. Raises ``ArgumentError``."""
    if not token:
        return None
    if not (token.isascii() and token.isdigit() and len(token) < 19):
        raise ArgumentError("page_token is not one that this method gave", field="page_token")
    return int(token)
