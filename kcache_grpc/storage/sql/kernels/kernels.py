"""Kernels on SQL: lookups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, func, literal_column, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import KernelStore
from kcache_grpc.storage.errors import Conflict, StoreUnavailable
from kcache_grpc.storage.records import (
    ArtifactRef,
    AuditEvent,
    Blob,
    Ingredients,
    KernelDraft,
    KernelRecord,
    Lease,
    Namespace,
    Published,
    SignedBytes,
    StoredKernel,
)
from kcache_grpc.storage.schema import (
    artifact_chunks,
    artifacts,
    kernel_artifacts,
    kernel_ingredients,
    kernels,
    quarantine,
)
from kcache_grpc.storage.sql.blobs.generations import IN_QUARANTINE, SqlGenerations
from kcache_grpc.storage.sql.engine.bulk import batches
from kcache_grpc.storage.sql.engine.database import Row, Rows
from kcache_grpc.storage.sql.kernels.publish import publish

#: What ``stored_kernel`` takes.
KERNEL_COLUMNS = (
    kernels.c.id,
    kernels.c.kernel_digest,
    kernels.c.key,
    kernels.c.arg_spec,
    kernels.c.guard,
    kernels.c.target,
    kernels.c.options,
    kernels.c.toolchain,
    kernels.c.manifest,
    kernels.c.signature,
    kernels.c.epoch,
    kernels.c.compile_us,
    kernels.c.created_at,
)
#: A row for each kernel, artifact and generation: ``stored`` bytes there, ``bad`` when in quarantine. One
#: statement, since a statement costs more than rows. Grouped by keys: the rest depends on them.
_HERE = (
    select(
        *KERNEL_COLUMNS,
        kernel_artifacts.c.kind,
        artifacts.c.digest,
        artifacts.c.size,
        func.sum(artifact_chunks.c.size).label("stored"),
        func.max(quarantine.c.generation).label("bad"),
    )
    .select_from(
        kernels.join(kernel_artifacts, kernel_artifacts.c.kernel_id == kernels.c.id)
        .join(artifacts, artifacts.c.id == kernel_artifacts.c.artifact_id)
        .outerjoin(artifact_chunks, artifact_chunks.c.artifact_id == artifacts.c.id)
        .outerjoin(quarantine, IN_QUARANTINE)
    )
    .where(kernels.c.namespace_id == bindparam("ns"), kernels.c.epoch == bindparam("epoch"))
    .group_by(
        kernels.c.id,
        kernel_artifacts.c.kernel_id,
        kernel_artifacts.c.position,
        artifacts.c.id,
        artifact_chunks.c.generation,
    )
    .order_by(kernels.c.id, kernel_artifacts.c.position)
)
_BY_DIGEST = _HERE.where(kernels.c.kernel_digest == bindparam("digest"))
_BY_DIGESTS = _HERE.where(kernels.c.kernel_digest.in_(bindparam("digests", expanding=True)))
_VARIANT = kernels.alias("variant")
#: Toolchains are compared behind OFFSET 0, an optimization fence: Postgres, before it has statistics, would
#: search by toolchain.
_CANDIDATES = (
    select(_VARIANT.c.id, _VARIANT.c.toolchain)
    .where(
        _VARIANT.c.namespace_id == bindparam("ns"),
        _VARIANT.c.epoch == bindparam("epoch"),
        _VARIANT.c.key == bindparam("key"),
        _VARIANT.c.target == bindparam("target"),
        _VARIANT.c.options == bindparam("options"),
    )
    .offset(literal_column("0"))
    .subquery("candidates")
)
_VARIANTS = _HERE.where(
    kernels.c.id.in_(select(_CANDIDATES.c.id).where(_CANDIDATES.c.toolchain == bindparam("toolchain")))
)
_OF_KEY = kernels.alias("of_key")
_BY_KEY = _HERE.where(
    kernels.c.id.in_(
        select(_OF_KEY.c.id)
        .where(
            _OF_KEY.c.namespace_id == bindparam("ns"),
            _OF_KEY.c.epoch == bindparam("epoch"),
            _OF_KEY.c.key == bindparam("key"),
            _OF_KEY.c.id < bindparam("before"),
        )
        .order_by(_OF_KEY.c.id.desc())
        .limit(bindparam("most"))
    )
)
_IN_EPOCH = kernels.alias("in_epoch")
#: Kernels by rising id, page by page.
PAGE = _HERE.where(
    kernels.c.id.in_(
        select(_IN_EPOCH.c.id)
        .where(
            _IN_EPOCH.c.namespace_id == bindparam("ns"),
            _IN_EPOCH.c.epoch == bindparam("epoch"),
            _IN_EPOCH.c.id > bindparam("after"),
        )
        .order_by(_IN_EPOCH.c.id)
        .limit(bindparam("most"))
    )
)
_INGREDIENTS = (
    select(kernel_ingredients.c.name, kernel_ingredients.c.value)
    .join_from(kernel_ingredients, kernels, kernels.c.id == kernel_ingredients.c.kernel_id)
    .where(
        kernels.c.namespace_id == bindparam("ns"),
        kernels.c.epoch == bindparam("epoch"),
        kernels.c.kernel_digest == bindparam("digest"),
    )
    .order_by(kernel_ingredients.c.position)
)


class SqlKernels(SqlGenerations, KernelStore):
    """``KernelStore`` on SQL."""

    def publish_kernel(
        self,
        namespace: Namespace,
        draft: KernelDraft,
        lease: Lease | None = None,
        event: AuditEvent | None = None,
    ) -> Published:
        """Store a kernel in one transaction, or repair the stored one from the bytes of ``draft``.

        See ``KernelStore``.
        """
        checks.kernel(draft)
        checks.lease(lease, namespace, draft.kernel.kernel_digest)
        checks.events([] if event is None else [event])
        now = self._clock.wall()
        outcome = self._transact_with(
            namespace,
            (Blob(artifact.digest, artifact.content) for artifact in draft.artifacts),
            lambda connection, placing: publish(
                connection, namespace, draft, lease, event, self._writer, now, placing
            ),
        )
        stored = self.find_kernel(namespace, draft.kernel.kernel_digest)
        if stored is None:
            name = draft.kernel.kernel_digest.hex()
            if outcome.differs:
                raise Conflict(f"kernel {name} is stored with other artifacts, whose bytes are lost")
            raise StoreUnavailable(f"kernel {name} was removed as soon as it was published: ask again")
        return Published(stored, outcome.inserted, outcome.repaired, outcome.differs)

    def find_kernel(self, namespace: Namespace, kernel_digest: bytes) -> StoredKernel | None:
        checks.digest("kernel digest", kernel_digest)
        values = {"ns": namespace.id, "epoch": namespace.epoch, "digest": kernel_digest}
        stored = stored_kernels(self._db.fetch(_BY_DIGEST, values))
        return stored[0] if stored else None

    def find_kernels(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, StoredKernel]:
        checks.digests("kernel digest", kernel_digests)
        by_digest: dict[bytes, StoredKernel] = {}
        if len(kernel_digests) == 1:  # a list of parameters costs more than the statement
            kernel = self.find_kernel(namespace, kernel_digests[0])
            return {} if kernel is None else {kernel_digests[0]: kernel}
        for batch in batches(kernel_digests):
            values = {"ns": namespace.id, "epoch": namespace.epoch, "digests": batch}
            for stored in stored_kernels(self._db.fetch(_BY_DIGESTS, values)):
                by_digest[stored.kernel.kernel_digest] = stored
        return by_digest

    def find_variants(
        self, namespace: Namespace, key: int, target: str, options: str, toolchain: bytes
    ) -> tuple[StoredKernel, ...]:
        checks.digest("toolchain", toolchain)
        checks.text("target or options", target, options)
        checks.number("key", key)
        here = {"ns": namespace.id, "epoch": namespace.epoch, "key": key}
        values = {**here, "target": target, "options": options, "toolchain": toolchain}
        return stored_kernels(self._db.fetch(_VARIANTS, values))

    def list_kernels(
        self, namespace: Namespace, key: int, limit: int = 100, before: int | None = None
    ) -> tuple[StoredKernel, ...]:
        before = checks.MAX_INT if before is None else before
        checks.number("key, limit or before", key, limit, before)
        here = {"ns": namespace.id, "epoch": namespace.epoch, "key": key}
        values = {**here, "most": limit, "before": before}
        return stored_kernels(self._db.fetch(_BY_KEY, values))[::-1]

    def list_ingredients(self, namespace: Namespace, kernel_digest: bytes) -> Ingredients:
        checks.digest("kernel digest", kernel_digest)
        values = {"ns": namespace.id, "epoch": namespace.epoch, "digest": kernel_digest}
        return tuple((row.name, row.value) for row in self._db.fetch(_INGREDIENTS, values))


def stored_kernels(rows: Rows, *, lost_too: bool = False) -> tuple[StoredKernel, ...]:
    """The kernels whose bytes are all there, or all kernels, oldest first."""
    refs_of: dict[int, dict[ArtifactRef, bool]] = {}
    first: dict[int, Row] = {}
    for row in rows:
        refs = refs_of.setdefault(row.id, {})
        first.setdefault(row.id, row)
        ref = ArtifactRef(row.kind, row.digest, row.size)
        refs[ref] = refs.get(ref, False) or (row.bad is None and row.stored == row.size)
    return tuple(
        stored_kernel(first[kernel], tuple(refs))
        for kernel, refs in refs_of.items()
        if lost_too or all(refs.values())
    )


def stored_kernel(row: Row, artifacts: tuple[ArtifactRef, ...]) -> StoredKernel:
    """The kernel of a row that has ``KERNEL_COLUMNS``."""
    return StoredKernel(
        id=row.id,
        kernel=KernelRecord(
            row.kernel_digest, row.key, row.arg_spec, row.guard, row.target, row.options, row.toolchain
        ),
        manifest=SignedBytes(row.manifest, row.signature),
        artifacts=artifacts,
        epoch=row.epoch,
        compile_us=row.compile_us,
        created_at=row.created_at,
    )
