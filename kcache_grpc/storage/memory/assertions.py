"""``AssertionStore`` in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.assertions import (
    ASSERTION_BYTES,
    AssertionConflict,
    AssertionDraft,
    AssertionOutcome,
    AssertionRecord,
    AssertionStore,
    AssertionTotals,
    Dispute,
)
from kcache_grpc.storage.errors import MissingReference
from kcache_grpc.storage.memory.quotas import invalidate_caches, require_room
from kcache_grpc.storage.memory.state import HeldAssertion, MemoryPart, State
from kcache_grpc.storage.memory.usage_audit import hold_events
from kcache_grpc.storage.records import AuditEvent, Namespace


class MemoryAssertions(MemoryPart, AssertionStore):
    """``AssertionStore`` in memory."""

    def put_assertion(self, namespace: Namespace, draft: AssertionDraft) -> AssertionOutcome:
        """Insert an assertion, unless the actor has one under this source digest; see ``AssertionStore``."""
        checks.assertion(draft)
        name = (namespace.id, namespace.epoch, draft.source_digest, draft.actor)
        with self._state as state:
            entry = state.assertions.get(name)
            inserted = entry is None
            if entry is None:
                require_room(state, namespace, {ASSERTION_BYTES: draft.size}, {})
                entry = state.assertions[name] = _held(state, draft)
            elif entry.assertion.record_digest != draft.record_digest:
                conflict = AssertionConflict(
                    draft.source_digest,
                    draft.actor,
                    entry.assertion.record_digest,
                    draft.record_digest,
                    state.clock.wall(),
                )
                state.assertion_conflicts.setdefault((*name, draft.record_digest), conflict)
            return AssertionOutcome(_seen(state, namespace.epoch, namespace.id, entry), inserted)

    def find_assertions(
        self,
        namespace: Namespace,
        source_digests: Sequence[bytes],
        actor: str,
        roles: Sequence[str] = (),
        *,
        quarantined: bool = False,
    ) -> Mapping[bytes, tuple[AssertionRecord, ...]]:
        """Return the assertions that ``actor`` may trust, by source digest: its own first, then by age."""
        checks.digests("source digest", source_digests)
        digests = set(source_digests)
        trusted: dict[bytes, list[AssertionRecord]] = {}
        for assertion in self._of_epoch(namespace):
            is_trusted = assertion.actor == actor or assertion.role in roles
            is_served = quarantined or not assertion.quarantined
            if assertion.source_digest in digests and is_trusted and is_served:
                trusted.setdefault(assertion.source_digest, []).append(assertion)
        return {
            digest: tuple(sorted(rows, key=lambda row: (row.actor != actor, row.id)))
            for digest, rows in trusted.items()
        }

    def read_records(
        self, namespace: Namespace, assertions: Sequence[AssertionRecord]
    ) -> Mapping[int, bytes]:
        ids = {assertion.id for assertion in assertions}
        with self._state as state:
            return {
                entry.assertion.id: entry.record
                for name, entry in state.assertions.items()
                if name[0] == namespace.id and entry.assertion.id in ids
            }

    def dispute_assertion(
        self,
        namespace: Namespace,
        assertion: AssertionRecord,
        observed: bytes,
        disputed_by: str,
        reason: str = "",
    ) -> bool:
        """Put an assertion into quarantine; return False if it was there already."""
        checks.dispute(observed, disputed_by, reason)
        name = (
            namespace.id,
            namespace.epoch,
            assertion.source_digest,
            assertion.actor,
            assertion.record_digest,
        )
        with self._state as state:
            if name in state.assertion_disputes:
                return False
            state.assertion_disputes[name] = Dispute(
                assertion.source_digest,
                assertion.actor,
                assertion.record_digest,
                observed,
                disputed_by,
                reason,
                state.clock.wall(),
            )
            return True

    def add_assertion_hits(self, namespace: Namespace, hits: Mapping[int, int]) -> None:
        with self._state as state:
            for name, entry in state.assertions.items():
                if name[0] == namespace.id and (count := hits.get(entry.assertion.id, 0)):
                    entry.hits += count
                    entry.last_used_at = state.clock.wall()

    def list_assertions(
        self, namespace: Namespace, after_id: int = 0, limit: int = 1000
    ) -> tuple[AssertionRecord, ...]:
        checks.number("id or limit", after_id, limit)
        return tuple(row for row in self._of_epoch(namespace) if row.id > after_id)[:limit]

    def list_assertion_conflicts(
        self, namespace: Namespace, limit: int = 100
    ) -> tuple[AssertionConflict, ...]:
        checks.number("limit", limit)
        with self._state as state:
            mine = [row for name, row in state.assertion_conflicts.items() if name[0] == namespace.id]
        return tuple(reversed(mine))[:limit]

    def list_disputes(self, namespace: Namespace, limit: int = 100) -> tuple[Dispute, ...]:
        checks.number("limit", limit)
        with self._state as state:
            mine = [row for name, row in state.assertion_disputes.items() if name[0] == namespace.id]
        return tuple(reversed(mine))[:limit]

    def assertion_totals(self, namespace: Namespace) -> AssertionTotals:
        here = (namespace.id, namespace.epoch)
        with self._state as state:
            sizes = [row.assertion.size for name, row in state.assertions.items() if name[:2] == here]
            return AssertionTotals(
                len(sizes),
                sum(sizes),
                sum(name[:2] == here for name in state.assertion_conflicts),
                sum(name[:2] == here for name in state.assertion_disputes),
            )

    def remove_assertions(
        self,
        namespace: Namespace,
        unused_since: int,
        amount: int | None = None,
        *,
        stale: bool = False,
        reason: str = "idle",
        dry_run: bool = False,
    ) -> tuple[int, int]:
        """Remove unused assertions, longest unused first; return their number and bytes.

        See ``AssertionStore``.
        """
        checks.number("time", unused_since)
        with self._state as state:
            idle = [
                (_last_use(entry), entry.assertion.id, name, entry.assertion.size)
                for name, entry in state.assertions.items()
                if name[0] == namespace.id
                and _last_use(entry) < unused_since
                and not (stale and name[1] >= namespace.epoch)
            ]
            count = size = 0
            for _, _, name, row_size in sorted(idle):
                if amount is not None and size >= amount:
                    break
                count, size = count + 1, size + row_size
                if not dry_run:
                    del state.assertions[name]
            if count and not dry_run:
                detail = json.dumps({"table": "assertions", "rows": count, "reason": reason})
                hold_events(state, namespace, [AuditEvent("collect", "ok", detail=detail)])
                invalidate_caches(state, namespace.id)
            return count, size

    def trusted_roles(self, namespace: Namespace) -> tuple[str, ...]:
        with self._state as state:
            return state.trusted_roles.get(namespace.name, ())

    def set_trusted_roles(self, namespace: Namespace, roles: Sequence[str]) -> bool:
        checks.roles(roles)
        with self._state as state:
            if namespace.name not in state.namespaces:
                raise MissingReference(f"namespace {namespace.name!r} is not stored")
            before = state.trusted_roles.get(namespace.name, ())
            state.trusted_roles[namespace.name] = tuple(sorted(set(roles)))
            return state.trusted_roles[namespace.name] != before

    def _of_epoch(self, namespace: Namespace) -> list[AssertionRecord]:
        """By rising ids."""
        with self._state as state:
            rows = [
                _seen(state, namespace.epoch, namespace.id, entry)
                for name, entry in state.assertions.items()
                if name[:2] == (namespace.id, namespace.epoch)
            ]
        return sorted(rows, key=lambda row: row.id)


def _held(state: State, draft: AssertionDraft) -> HeldAssertion:
    state.last_assertion_id += 1
    assertion = AssertionRecord(
        state.last_assertion_id,
        draft.source_digest,
        draft.actor,
        draft.role,
        draft.record_digest,
        len(draft.record),
        draft.programs,
        draft.toolchain,
        draft.size,
        state.clock.wall(),
    )
    return HeldAssertion(assertion, draft.record)


def _seen(state: State, epoch: int, namespace_id: int, entry: HeldAssertion) -> AssertionRecord:
    """The assertion as it is now: in quarantine or not."""
    row = entry.assertion
    name = (namespace_id, epoch, row.source_digest, row.actor, row.record_digest)
    return replace(row, quarantined=name in state.assertion_disputes)


def _last_use(entry: HeldAssertion) -> int:
    return max(entry.last_used_at, entry.assertion.created_at)
