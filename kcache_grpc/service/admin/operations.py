"""Administration of a store, each operation with an audit event: for servers and for commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from kcache_grpc.service.lifecycle.garbage_collection import CollectionOptions, Collector, Report
from kcache_grpc.service.lifecycle.verify import SAMPLE, Compile, Counts, Fault, Verification
from kcache_grpc.service.values import Caller
from kcache_grpc.storage.contract.lifecycle import QuarantinedRow, Quota
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace


class Administration:
    """Blocks; thread-safe. ``by``: who does it, for the audit log."""

    def __init__(self, store: Store, by: Caller) -> None:
        self._store = store
        self._by = by

    def set_quota(self, namespace: Namespace, resource: str, most: int | None, policy: str) -> Quota | None:
        """``most`` ``None`` takes the quota away."""
        quota = None
        if most is None:
            self._store.remove_quota(namespace, resource)
        else:
            quota = self._store.set_quota(namespace, resource, most, policy)
        self._note(namespace, "quota", resource=resource, most=most, policy=policy)
        return quota

    def pin(self, namespace: Namespace, subject: str, digest: bytes, reason: str) -> bool:
        """True unless it was pinned."""
        created = self._store.pin(namespace, subject, digest, reason)
        self._note(namespace, "pin", subject=subject, digest=digest.hex(), reason=reason)
        return created

    def unpin(self, namespace: Namespace, subject: str, digest: bytes) -> bool:
        """True when it was pinned."""
        removed = self._store.unpin(namespace, subject, digest)
        self._note(namespace, "unpin", subject=subject, digest=digest.hex())
        return removed

    def raise_epoch(self, namespace: Namespace, reason: str) -> Namespace:
        """The namespace in its next epoch."""
        raised = self._store.raise_epoch(namespace)
        self._note(raised, "epoch", epoch=raised.epoch, reason=reason)
        return raised

    def disown(self, namespace: Namespace, toolchain: bytes, reason: str, *, undo: bool = False) -> bool:
        """Disown a toolchain, or take it back; true when that changed anything."""
        if undo:
            changed = self._store.readmit_toolchain(namespace, toolchain)
        else:
            changed = self._store.disown_toolchain(namespace, toolchain, reason)
        self._note(namespace, "readmit" if undo else "disown", toolchain=toolchain, reason=reason)
        return changed

    def set_compatible_targets(self, namespace: Namespace, allowed: bool) -> bool:
        """Say whether kernels for lower targets will do where requests leave it open; true if changed."""
        changed = self._store.set_compatible_targets(namespace, allowed)
        self._note(namespace, "target_match", compatible_targets=allowed)
        return changed

    def set_trusted_roles(self, namespace: Namespace, roles: Sequence[str]) -> bool:
        """Say whose assertions callers trust in addition to their own; true if changed."""
        changed = self._store.set_trusted_roles(namespace, roles)
        self._note(namespace, "trusted_roles", roles=sorted(set(roles)))
        return changed

    def collect(self, namespace: Namespace, options: CollectionOptions) -> Iterator[Report]:
        """A collection, with what came of it so far after each transaction, and a last time at its end."""
        report = Report(namespace.name, options.dry_run)
        for report in Collector(self._store).steps(namespace, options):
            yield report
        if not options.dry_run:
            self._note(namespace, "collect", rows=report.rows, blobs=report.blobs, bytes=report.blob_bytes)

    def verify(
        self,
        namespace: Namespace,
        public_key: bytes | None,
        sample: int | None = SAMPLE,
        toolchains: frozenset[bytes] = frozenset(),
        recompile: Compile | None = None,
        *,
        repair: bool = False,
        confirmed: bool = False,
    ) -> Iterator[Fault | Counts]:
        """Faults, then the counts. See ``verify.Verification``."""
        verification = Verification(self._store, public_key, toolchains, recompile)
        for event in verification.steps(namespace, sample, repair=repair, confirmed=confirmed):
            if isinstance(event, Counts):
                self._note(
                    namespace,
                    "verify",
                    kernels=event.kernels,
                    compiled=event.compiled,
                    faults=event.faults,
                    repaired=event.repaired,
                    withheld=event.withheld,
                )
            yield event

    def restore_quarantined(self, namespace: Namespace, ids: Sequence[int]) -> tuple[QuarantinedRow, ...]:
        """Put rows that verification took out back in service; those that were put back."""
        back = self._store.restore_quarantined(namespace, ids)
        if back:
            self._note(namespace, "restore", rows=[f"{row.subject} {row.digest.hex()}" for row in back])
        return back

    def rebuild_summaries(self) -> list[str]:
        """What was wrong, in words; nothing is done where nothing was."""
        wrong = list(self._store.wrong_summaries())
        if wrong:
            self._store.rebuild_summaries()
            for namespace in self._store.list_namespaces():
                self._note(namespace, "summaries", wrong=len(wrong))
        return wrong

    def _note(
        self, namespace: Namespace, outcome: str, *, toolchain: bytes | None = None, **detail: object
    ) -> None:
        if not namespace.is_stored:  # nothing was done in it
            return
        by = self._by
        event = AuditEvent(
            kind="admin",
            outcome=outcome,
            actor=by.actor or by.client,
            job=by.job,
            peer=by.peer,
            request_id=by.request_id,
            toolchain=toolchain,
            detail=json.dumps(detail),
        )
        self._store.append_audit(namespace, [event])
