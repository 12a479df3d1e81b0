"""Publishing a kernel on SQL: the steps of one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, select

from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.objects.placing import Placing
from kcache_grpc.storage.records import AuditEvent, Blob, KernelDraft, Lease, Namespace
from kcache_grpc.storage.schema import artifacts, kernel_artifacts, kernel_ingredients, kernels
from kcache_grpc.storage.sql.audit.usage_audit import insert_conflict, insert_events
from kcache_grpc.storage.sql.blobs.blobs import TRIES, store_blob, store_blobs
from kcache_grpc.storage.sql.engine.bulk import BulkInsert, insert_once
from kcache_grpc.storage.sql.graphs.graphs import require_key
from kcache_grpc.storage.sql.leases import forget_failure, lock, release
from kcache_grpc.storage.sql.quotas import Charge, require_owned, touch

_KERNEL_ID = select(kernels.c.id).where(
    kernels.c.namespace_id == bindparam("ns"),
    kernels.c.epoch == bindparam("epoch"),
    kernels.c.kernel_digest == bindparam("digest"),
)
#: Kept from collection until the transaction ends.
_KEEP_KERNEL = _KERNEL_ID.with_for_update(read=True, key_share=True)
_INSERT_KERNEL = insert_once(kernels).returning(kernels.c.id)
_INSERT_INGREDIENTS = BulkInsert(kernel_ingredients, ("kernel_id", "position", "name", "value"))
_INSERT_ARTIFACTS = BulkInsert(kernel_artifacts, ("kernel_id", "position", "kind", "artifact_id"))
_LINKED = (
    select(kernel_artifacts.c.kind, artifacts.c.digest)
    .join_from(kernel_artifacts, artifacts, artifacts.c.id == kernel_artifacts.c.artifact_id)
    .where(kernel_artifacts.c.kernel_id == bindparam("kernel"))
    .order_by(kernel_artifacts.c.position)
)


@dataclass(frozen=True)
class Outcome:
    """What the transaction did."""

    inserted: bool
    repaired: int
    differs: bool


def publish(
    connection: Connection,
    namespace: Namespace,
    draft: KernelDraft,
    lease: Lease | None,
    event: AuditEvent | None,
    writer: str,
    now: int,
    placing: Placing | None = None,
) -> Outcome:
    """Everything or nothing, in the caller's transaction. ``placing``: where bytes lie; ``None``: in rows."""
    if lease is not None:
        lock(connection, lease)
    require_owned(connection, namespace, draft.kernel.toolchain)
    charge = Charge(connection, namespace)
    name = {"ns": namespace.id, "epoch": namespace.epoch, "digest": draft.kernel.kernel_digest}
    for _ in range(TRIES):
        kernel_id = connection.execute(_KEEP_KERNEL, name).scalar()
        if kernel_id is not None:
            outcome = _repair(connection, namespace, draft, kernel_id, now, charge, placing)
            break
        outcome = _insert(connection, namespace, draft, lease, now, charge, placing)
        if outcome is not None:
            break
    else:
        text = f"kernel {draft.kernel.kernel_digest.hex()} is removed as often as it is published: ask again"
        raise StoreUnavailable(text)
    touch(connection, namespace, [("kernel", draft.kernel.kernel_digest)], now)
    forget_failure(connection, namespace, draft.kernel.kernel_digest)
    if lease is not None:
        release(connection, lease)
    if event is not None and (outcome.inserted or outcome.repaired):
        insert_events(connection, namespace, [replace(event, key=draft.kernel.key)], writer, now)
    charge.apply()
    return outcome


def _insert(
    connection: Connection,
    namespace: Namespace,
    draft: KernelDraft,
    lease: Lease | None,
    now: int,
    charge: Charge,
    placing: Placing | None,
) -> Outcome | None:
    """``None`` when another writer was faster."""
    require_key(connection, namespace, draft.kernel.key)
    blobs = [Blob(artifact.digest, artifact.content) for artifact in draft.artifacts]
    ids = store_blobs(connection, namespace, blobs, now, charge, placing)
    token = 0 if lease is None else lease.fencing_token
    kernel_id = connection.execute(_INSERT_KERNEL, _kernel_values(namespace, draft, token, now)).scalar()
    if kernel_id is None:
        return None
    charge.add("kernels")
    links = [
        {
            "kernel_id": kernel_id,
            "position": position,
            "kind": artifact.kind,
            "artifact_id": ids[artifact.digest],
        }
        for position, artifact in enumerate(draft.artifacts)
    ]
    if links:
        _INSERT_ARTIFACTS.execute(connection, links)
    ingredients = [
        {"kernel_id": kernel_id, "position": position, "name": name, "value": value}
        for position, (name, value) in enumerate(draft.ingredients)
    ]
    if ingredients:
        _INSERT_INGREDIENTS.execute(connection, ingredients)
    return Outcome(inserted=True, repaired=0, differs=False)


def _repair(
    connection: Connection,
    namespace: Namespace,
    draft: KernelDraft,
    kernel_id: int,
    now: int,
    charge: Charge,
    placing: Placing | None,
) -> Outcome:
    """Give artifacts of the stored kernel that have lost their bytes those that the draft brings."""
    linked = {row.kind: row.digest for row in connection.execute(_LINKED, {"kernel": kernel_id})}
    repaired = 0
    for artifact in sorted(draft.artifacts, key=lambda artifact: artifact.digest):
        if linked.get(artifact.kind) == artifact.digest:
            blob = Blob(artifact.digest, artifact.content)
            _, wrote = store_blob(connection, namespace, blob, now, charge, placing)
            repaired += wrote
    offered = {artifact.kind: artifact.digest for artifact in draft.artifacts}
    differs = any(linked.get(kind) != digest for kind, digest in offered.items())
    if differs:
        lists = (_digests(linked), _digests(offered))
        insert_conflict(connection, namespace, "kernel", draft.kernel.kernel_digest, *lists, now=now)
    return Outcome(inserted=False, repaired=repaired, differs=differs)


def _digests(by_kind: dict[str, bytes]) -> bytes:
    """The digests one after another, by kind."""
    return b"".join(digest for _, digest in sorted(by_kind.items()))


def _kernel_values(namespace: Namespace, draft: KernelDraft, token: int, now: int) -> dict[str, Any]:
    kernel = draft.kernel
    return {
        "namespace_id": namespace.id,
        "epoch": namespace.epoch,
        "kernel_digest": kernel.kernel_digest,
        "key": kernel.key,
        "target": kernel.target,
        "options": kernel.options,
        "toolchain": kernel.toolchain,
        "compile_us": draft.compile_us,
        "fencing_token": token,
        "created_at": now,
        "arg_spec": kernel.arg_spec,
        "guard": kernel.guard,
        "manifest": draft.manifest.payload,
        "signature": draft.manifest.signature,
    }
