"""Kernels and their bytes, from memory or from the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kcache_grpc.errors import NotFound, Unavailable
from kcache_grpc.model.manifest import ArtifactRef
from kcache_grpc.service import manifests
from kcache_grpc.service.lru_cache import ByteLru
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.single_flight import LOOK_WINDOW, SingleFlight
from kcache_grpc.service.values import BeyondEnd, KnownKernel
from kcache_grpc.storage.contract.store import CHUNK_BYTES, Store
from kcache_grpc.storage.records import Namespace, Wanted

_MANIFEST_BYTES = 64 << 20
_BLOB_BYTES = 256 << 20
#: What goes with a kernel that is waited for.
_CODE = Wanted("", "", b"", frozenset({"so", "ptx"}), CHUNK_BYTES)
#: Seconds for which memory is trusted. Removals and quarantines are seen within a second: what is remembered
#: is remembered under the namespace's count of them.
MEMORY_WINDOW = 30.0


class Kernels:
    """Lookups of kernels and reads of blobs. One event loop; memory hits never leave it."""

    def __init__(self, store: Store, threads: StoreThreads, key_id: bytes) -> None:
        self._store = store
        self._threads = threads
        self._key_id = key_id
        self._known: ByteLru[tuple[int, int, int, bytes], KnownKernel] = ByteLru(
            _MANIFEST_BYTES, MEMORY_WINDOW
        )
        self._blobs: ByteLru[tuple[int, int, bytes], bytes] = ByteLru(_BLOB_BYTES, MEMORY_WINDOW)
        #: Many callers who wait for one compile read its bytes once.
        self._opening: SingleFlight[tuple[int, int, bytes], int | None] = SingleFlight(LOOK_WINDOW)
        self.memory_hits = 0

    def remembered(self, namespace: Namespace, digest: bytes) -> KnownKernel | None:
        """The kernel if it is in memory."""
        known = self._known.get((namespace.id, namespace.epoch, namespace.removals, digest))
        if known is not None:
            self.memory_hits += 1
        return known

    async def find(self, namespace: Namespace, digests: Sequence[bytes]) -> dict[bytes, KnownKernel]:
        """The kernels that exist, by digest."""
        kernels: dict[bytes, KnownKernel] = {}
        for digest in digests:
            known = self.remembered(namespace, digest)
            if known is not None:
                kernels[digest] = known
        missing = [digest for digest in dict.fromkeys(digests) if digest not in kernels]
        if missing:
            records = await self._threads(self._store.find_kernels, namespace, missing)
            for digest, record in records.items():
                kernels[digest] = self.remember(namespace, manifests.known_kernel(record, self._key_id))
        return kernels

    async def load(self, namespace: Namespace, digest: bytes) -> KnownKernel | None:
        """Like ``find``, for a kernel that many clients wait for: includes its code unless it is large."""
        known = self.remembered(namespace, digest)
        if known is not None:
            return known
        loaded = await self._threads(self._store.load_kernel, namespace, digest, _CODE)
        if loaded is None:
            return None
        for blob, content in loaded.contents.items():
            self.remember_blob(namespace, blob, content)
        return self.remember(namespace, manifests.known_kernel(loaded.stored, self._key_id))

    def remember(self, namespace: Namespace, kernel: KnownKernel) -> KnownKernel:
        """Keeps a kernel in memory."""
        key = (namespace.id, namespace.epoch, namespace.removals, kernel.digest)
        self._known.put(key, kernel, len(kernel.manifest.payload))
        return kernel

    def remember_blob(self, namespace: Namespace, digest: bytes, content: bytes) -> None:
        """Keeps the bytes of an artifact in memory, unless they are many."""
        if len(content) <= CHUNK_BYTES:
            self._blobs.put((namespace.id, namespace.removals, digest), content, len(content))

    async def blobs(self, namespace: Namespace, refs: Sequence[ArtifactRef]) -> dict[bytes, bytes]:
        """Whole bytes of these artifacts, those that are not stored left out."""
        contents: dict[bytes, bytes] = {}
        missing: list[bytes] = []
        for ref in refs:
            content = self._blobs.get((namespace.id, namespace.removals, ref.sha256))
            if content is None:
                missing.append(ref.sha256)
            else:
                contents[ref.sha256] = content
        if missing:
            contents.update(await self._threads(self._read_all, namespace, missing))
            for digest in missing:
                if digest in contents:
                    self.remember_blob(namespace, digest, contents[digest])
        return contents

    async def open(self, namespace: Namespace, digest: bytes, offset: int, limit: int) -> tuple[int, int]:
        """Size of a blob and the end of what is to be read. Raises ``NotFound``, ``ArgumentError``."""
        content = self._blobs.get((namespace.id, namespace.removals, digest))
        if content is not None:
            size: int | None = len(content)
        else:
            key = (namespace.id, namespace.removals, digest)
            size = await self._opening.join(key, lambda _: self._load(namespace, digest))[0].result()
        if size is None:
            raise _unknown(digest)
        if offset > size:
            raise BeyondEnd(
                f"read_offset {offset} is beyond the {size} bytes of {digest.hex()}", field="read_offset"
            )
        return size, min(size, offset + limit) if limit else size

    async def read(
        self, namespace: Namespace, digest: bytes, offset: int, end: int
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Bytes from ``offset`` to ``end`` in parts of at most 1 MiB, each with its offset.

        Raises ``Unavailable`` when they are removed or quarantined meanwhile.
        """
        content = self._blobs.get((namespace.id, namespace.removals, digest))
        while offset < end:
            length = min(CHUNK_BYTES, end - offset)
            if content is not None:
                part: bytes | None = content[offset : offset + length]
            else:
                part = await self._threads(self._store.read_artifact, namespace, digest, offset, length)
            if not part:
                raise Unavailable(
                    f"artifact {digest.hex()} was removed while it was read; ask for its kernel again",
                    sha256=digest.hex(),
                )
            yield offset, part
            offset += len(part)

    async def _load(self, namespace: Namespace, digest: bytes) -> int | None:
        """The size of what is stored whole; its bytes are in memory afterwards, unless they are many."""
        size = await self._threads(self._store.artifact_size, namespace, digest)
        if size is None or size > CHUNK_BYTES:
            return size
        content = await self._threads(self._store.read_artifact, namespace, digest)
        if content is None:
            return None
        self.remember_blob(namespace, digest, content)
        return size

    def _read_all(self, namespace: Namespace, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        contents = {digest: self._store.read_artifact(namespace, digest) for digest in digests}
        return {digest: content for digest, content in contents.items() if content is not None}


def _unknown(digest: bytes) -> NotFound:
    return NotFound(f"no artifact or constant {digest.hex()} is stored here", sha256=digest.hex())
