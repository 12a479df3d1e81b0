"""Kernels and their hits in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import HitStore, KernelStore
from kcache_grpc.storage.errors import Conflict
from kcache_grpc.storage.memory.blobs import MemoryBlobs, hold_blob, whole_blob
from kcache_grpc.storage.memory.graphs import MemoryGraphs, require_key
from kcache_grpc.storage.memory.leases import own, release
from kcache_grpc.storage.memory.quotas import require_owned, require_room, touch
from kcache_grpc.storage.memory.state import HeldKernel, MemoryPart, Name, State
from kcache_grpc.storage.memory.usage_audit import hold_conflict, hold_events
from kcache_grpc.storage.records import (
    ArtifactRef,
    AuditEvent,
    Ingredients,
    KernelDraft,
    KernelRecord,
    Lease,
    LoadedGraph,
    LoadedKernel,
    Namespace,
    Published,
    StoredKernel,
    Wanted,
)


class MemoryKernels(MemoryPart, KernelStore):
    """``KernelStore`` in memory."""

    def publish_kernel(
        self,
        namespace: Namespace,
        draft: KernelDraft,
        lease: Lease | None = None,
        event: AuditEvent | None = None,
    ) -> Published:
        """Store a kernel, or repair the stored one from the bytes of ``draft``. See ``KernelStore``."""
        checks.kernel(draft)
        checks.lease(lease, namespace, draft.kernel.kernel_digest)
        checks.events([] if event is None else [event])
        with self._state as state:
            if lease is not None:
                own(state, lease)
            require_owned(state, namespace, draft.kernel.toolchain)
            name = _name(namespace, draft.kernel.kernel_digest)
            inserted = name not in state.kernels
            repaired = _hold(state, namespace, name, draft)
            row = state.kernels[name]
            offered = tuple((artifact.kind, artifact.digest) for artifact in draft.artifacts)
            differs = not set(offered) <= set(row.artifacts)
            if differs:
                digests = (
                    b"".join(digest for _, digest in sorted(pairs)) for pairs in (row.artifacts, offered)
                )
                hold_conflict(state, namespace, "kernel", draft.kernel.kernel_digest, *digests)
            touch(state, namespace, "kernel", draft.kernel.kernel_digest)
            state.failures.pop(name, None)
            if lease is not None:
                release(state, lease)
            if event is not None and (inserted or repaired):
                hold_events(state, namespace, [replace(event, key=draft.kernel.key)])
            stored = _stored(state, namespace, row)
            if stored is None:
                raise Conflict(
                    f"kernel {draft.kernel.kernel_digest.hex()} is stored with other artifacts, now lost"
                )
            return Published(stored, inserted, 0 if inserted else repaired, differs)

    def find_kernel(self, namespace: Namespace, kernel_digest: bytes) -> StoredKernel | None:
        return self.find_kernels(namespace, [kernel_digest]).get(kernel_digest)

    def find_kernels(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, StoredKernel]:
        checks.digests("kernel digest", kernel_digests)
        digests = set(kernel_digests)
        kernels = self._select(namespace, lambda kernel: kernel.kernel_digest in digests)
        return {stored.kernel.kernel_digest: stored for stored in kernels}

    def find_variants(
        self, namespace: Namespace, key: int, target: str, options: str, toolchain: bytes
    ) -> tuple[StoredKernel, ...]:
        checks.digest("toolchain", toolchain)
        checks.text("target or options", target, options)
        checks.number("key", key)
        variant = (key, target, options, toolchain)
        return self._select(
            namespace,
            lambda kernel: (kernel.key, kernel.target, kernel.options, kernel.toolchain) == variant,
        )

    def list_kernels(
        self, namespace: Namespace, key: int, limit: int = 100, before: int | None = None
    ) -> tuple[StoredKernel, ...]:
        before = checks.MAX_INT if before is None else before
        checks.number("key, limit or before", key, limit, before)
        with self._state as state:
            rows = [row for name, row in state.kernels.items() if name[:2] == (namespace.id, namespace.epoch)]
            older = (each for each in reversed(rows) if each.kernel.key == key and each.id < before)
            youngest = list(islice(older, limit))
            stored = [_stored(state, namespace, each) for each in youngest]
        return tuple(kernel for kernel in stored if kernel is not None)

    def list_ingredients(self, namespace: Namespace, kernel_digest: bytes) -> Ingredients:
        checks.digest("kernel digest", kernel_digest)
        with self._state as state:
            row = state.kernels.get(_name(namespace, kernel_digest))
            return row.ingredients if row else ()

    def _select(
        self, namespace: Namespace, accepts: Callable[[KernelRecord], bool]
    ) -> tuple[StoredKernel, ...]:
        with self._state as state:
            kernels = [
                _stored(state, namespace, row)
                for name, row in state.kernels.items()
                if name[:2] == (namespace.id, namespace.epoch) and accepts(row.kernel)
            ]
        return tuple(stored for stored in kernels if stored is not None)


def _name(namespace: Namespace, kernel_digest: bytes) -> Name:
    return (namespace.id, namespace.epoch, kernel_digest)


def _hold(state: State, namespace: Namespace, name: Name, draft: KernelDraft) -> int:
    """Insert the kernel if it is new; returns how many of its artifacts were missing and are stored now."""
    row = state.kernels.get(name)
    if row is None:
        require_key(state, namespace, draft.kernel.key)
        sizes = {artifact.digest: len(artifact.content) for artifact in draft.artifacts}
        require_room(state, namespace, {"kernels": 1}, sizes)
        state.last_kernel_id += 1
        row = HeldKernel(
            id=state.last_kernel_id,
            kernel=draft.kernel,
            manifest=draft.manifest,
            artifacts=tuple((artifact.kind, artifact.digest) for artifact in draft.artifacts),
            ingredients=draft.ingredients,
            epoch=namespace.epoch,
            compile_us=draft.compile_us,
            created_at=state.clock.wall(),
        )
        state.kernels[name] = row
    ours = [artifact for artifact in draft.artifacts if (artifact.kind, artifact.digest) in row.artifacts]
    return sum(hold_blob(state, namespace, artifact.digest, artifact.content) for artifact in ours)


def _stored(state: State, namespace: Namespace, row: HeldKernel) -> StoredKernel | None:
    """The kernel as others see it: not at all when bytes are lost."""
    complete = all(whole_blob(state, namespace, digest) is not None for _, digest in row.artifacts)
    return stored_kernel(state, namespace, row) if complete else None


def stored_kernel(state: State, namespace: Namespace, row: HeldKernel) -> StoredKernel:
    """The kernel, whether its bytes are there or not."""
    refs = tuple(
        ArtifactRef(kind, digest, state.blobs[namespace.id, digest].size) for kind, digest in row.artifacts
    )
    return StoredKernel(row.id, row.kernel, row.manifest, refs, row.epoch, row.compile_us, row.created_at)


class MemoryHits(MemoryGraphs, MemoryBlobs, MemoryKernels, HitStore):
    """``HitStore`` in memory."""

    def load_graph(
        self, namespace: Namespace, program_digest: bytes, numerics: str, wanted: Wanted
    ) -> LoadedGraph | None:
        """Return the mapping of a program, and the kernel that is wanted if there is exactly one."""
        checks.number("most", wanted.most)
        sort = (wanted.target, wanted.options, wanted.toolchain)
        with self._state as state:
            mapping = self.find_mapping(namespace, program_digest, numerics)
            if mapping is None:
                return None
            here = (namespace.id, namespace.epoch)
            kernels = [each.kernel for name, each in state.kernels.items() if name[:2] == here]
            of_key = [each for each in kernels if each.key == mapping.key]
            fit = [each for each in of_key if (each.target, each.options, each.toolchain) == sort]
            only = self.load_kernel(namespace, fit[0].kernel_digest, wanted) if len(fit) == 1 else None
            return LoadedGraph(mapping, only)

    def load_kernel(self, namespace: Namespace, kernel_digest: bytes, wanted: Wanted) -> LoadedKernel | None:
        checks.number("most", wanted.most)
        with self._state:
            stored = self.find_kernel(namespace, kernel_digest)
            if stored is None:
                return None
            refs = [ref for ref in stored.artifacts if ref.kind in wanted.kinds and ref.size <= wanted.most]
            read = {ref.digest: self.read_artifact(namespace, ref.digest) for ref in refs}
        contents = {digest: content for digest, content in read.items() if content is not None}
        return LoadedKernel(stored, contents)
