"""Usage, audit and counts in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.saved_time import CALLER, SavingRecord, caller_of
from kcache_grpc.storage.contract.store import UsageAuditStore
from kcache_grpc.storage.memory.state import MemoryPart, State
from kcache_grpc.storage.records import (
    AuditEvent,
    AuditRecord,
    ConflictRecord,
    Namespace,
    Stats,
    UsageDelta,
    UsageRecord,
)


class MemoryUsageAudit(MemoryPart, UsageAuditStore):
    """``UsageAuditStore`` in memory."""

    def add_usage(self, namespace: Namespace, batch: Sequence[UsageDelta]) -> None:
        for delta in batch:
            checks.usage(delta)
        with self._state as state:
            for delta in batch:
                name = (namespace.id, delta.subject, delta.digest)
                before = state.usage.get(name, UsageRecord(delta.subject, delta.digest, 0, 0, 0))
                state.usage[name] = replace(
                    before,
                    hits=before.hits + delta.hits,
                    saved_us=before.saved_us + delta.saved_us,
                    last_used_at=max(before.last_used_at, delta.last_used_at or state.clock.wall()),
                )

    def find_usage(
        self, namespace: Namespace, subject: str, digests: Sequence[bytes]
    ) -> Mapping[bytes, UsageRecord]:
        checks.digests("digest", digests)
        checks.text("subject", subject)
        with self._state as state:
            names = {digest: (namespace.id, subject, digest) for digest in digests}
            usage = {digest: state.usage[name] for digest, name in names.items() if name in state.usage}
            return {digest: record for digest, record in usage.items() if record.hits}

    def list_savings(self, namespace: Namespace, limit: int) -> tuple[SavingRecord, ...]:
        checks.number("limit", limit)
        with self._state as state:
            used = [
                record
                for (owner, subject, _), record in state.usage.items()
                if owner == namespace.id and subject.startswith(CALLER)
            ]
        savings = [
            SavingRecord(*caller_of(each.subject), each.hits, each.saved_us, each.last_used_at)
            for each in used
        ]
        savings.sort(key=lambda each: (-each.saved_us, -each.hits, each.actor, each.job))
        return tuple(savings[:limit])

    def append_audit(self, namespace: Namespace, batch: Sequence[AuditEvent]) -> None:
        checks.events(batch)
        with self._state as state:
            hold_events(state, namespace, batch)

    def list_audit(
        self, namespace: Namespace, after_id: int = 0, limit: int = 100
    ) -> tuple[AuditRecord, ...]:
        checks.number("limit or id", after_id, limit)
        with self._state as state:
            events = [
                record
                for record in state.audit.values()
                if record.namespace_id == namespace.id and record.id > after_id
            ]
        return tuple(events[:limit])

    def list_conflicts(self, namespace: Namespace, limit: int = 100) -> tuple[ConflictRecord, ...]:
        checks.number("limit", limit)
        with self._state as state:
            conflicts = [record for owner, record in state.conflicts if owner == namespace.id]
        return tuple(conflicts[::-1][:limit])

    def stats(self, namespace: Namespace) -> Stats:
        """Return counts of a namespace: of its current epoch where rows have one."""
        here = (namespace.id, namespace.epoch)
        with self._state as state:
            now = state.clock.wall()
            kernels = [row for name, row in state.kernels.items() if name[:2] == here]
            sizes = [row.size for (owner, _), row in state.blobs.items() if owner == namespace.id]
            used = [
                record
                for (owner, subject, _), record in state.usage.items()
                if (owner, subject) == (namespace.id, "kernel")
            ]
            failures = [record for name, record in state.failures.items() if name[:2] == here]
            return Stats(
                specs=len(state.specs.get(namespace.id, [])),
                mappings=sum(name[:2] == here for name in state.mappings),
                kernels=len(kernels),
                artifacts=len(sizes),
                artifact_bytes=sum(sizes),
                hits=sum(record.hits for record in used),
                saved_us=sum(record.saved_us for record in used),
                compiles=state.removed_kernels.get(namespace.id, 0)
                + sum(name[0] == namespace.id for name in state.kernels),
                compile_us=sum(row.compile_us for row in kernels),
                failures=sum(record.expires_at > now for record in failures),
                audit_events=sum(record.namespace_id == namespace.id for record in state.audit.values()),
            )


def hold_events(state: State, namespace: Namespace, batch: Sequence[AuditEvent]) -> None:
    """Append events; times that are missing are now."""
    for event in batch:
        hold_event(state, namespace, event)


def hold_event(state: State, namespace: Namespace, event: AuditEvent) -> None:
    """Append one event."""
    dated = replace(event, at=event.at or state.clock.wall())
    number, state.next_event = state.next_event, state.next_event + 1
    state.audit[number] = AuditRecord(number, dated, namespace.id, namespace.epoch, state.writer)
    if state.sealing:
        state.unsealed.add(number)


def hold_conflict(
    state: State, namespace: Namespace, kind: str, name: bytes, stored: bytes, offered: bytes
) -> None:
    """Record that ``offered`` came second under ``name``."""
    record = ConflictRecord(kind, name, stored, offered, state.clock.wall())
    state.conflicts.append((namespace.id, record))
