"""Use cases of ``SourceAssertions``: what a caller may trust, what it asserts, what it disputes.

Actors are authenticated principals. What a request says of its actor is written to the audit log, and decides
nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from kcache_grpc.errors import ArgumentError, NotFound, ResourceExhausted, Unavailable
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.lifecycle.garbage_collection import QuotaEviction
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.hit_counts import HitCounts
from kcache_grpc.service.values import Caller, Limits, check_digest
from kcache_grpc.storage.contract.assertions import (
    AssertionDraft,
    AssertionOutcome,
    AssertionRecord,
    AssertionTotals,
)
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace

logger = logging.getLogger("kcache.service")

#: Bytes of records that are read together: of one message.
_PART_BYTES = 3 << 20
#: Digests that are looked up together.
_WINDOW = 256
#: Programs that a record may name.
MOST_PROGRAMS = 4096
_MOST_TOOLCHAIN, _MOST_REASON = 4096, 800
#: What a process counts.
COUNTERS: tuple[str, ...] = (
    "assertion_hits",
    "assertion_misses",
    "assertion_inserts",
    "assertion_conflicts",
    "assertions_quarantined",
)


@dataclass(frozen=True)
class TrustedAssertion:
    """An assertion that the caller may trust. ``index``: position of its digest in the request."""

    index: int
    assertion: AssertionRecord
    record: bytes


class SourceAssertions:
    """One event loop."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        writers: StoreThreads,
        namespaces: Namespaces,
        audit_recorder: AuditRecorder,
        quotas: QuotaEviction,
        limits: Limits,
    ) -> None:
        self._store = store
        self._threads = threads
        self._writers = writers
        self._namespaces = namespaces
        self._audit_recorder = audit_recorder
        self._quotas = quotas
        self._limits = limits
        self._hits = HitCounts(threads, store.add_assertion_hits, "assertions")
        self._counted: dict[str, int] = dict.fromkeys(COUNTERS, 0)

    def start(self) -> None:
        """Begins to write hit counters periodically."""
        self._hits.start()

    async def close(self) -> None:
        """Stops, and writes the hit counters."""
        await self._hits.close()

    async def get(
        self, caller: Caller, source_digests: Sequence[bytes]
    ) -> AsyncIterator[list[TrustedAssertion]]:
        """What the caller may trust, in the order of the digests, in parts of at most 3 MiB of records.

        Raises ``ArgumentError``, ``ResourceExhausted``.
        """
        if len(source_digests) > self._limits.queries:
            raise ResourceExhausted(
                f"{len(source_digests)} digests in one call, above the limit of {self._limits.queries}",
                limit="max_queries",
            )
        for digest in source_digests:
            check_digest(digest, "source_digests")
        if len(set(source_digests)) < len(source_digests):
            raise ArgumentError("a source digest comes twice", field="source_digests")
        namespace = await self._namespaces.get(caller.namespace)
        returned: list[TrustedAssertion] = []
        try:
            for start in range(0, len(source_digests), _WINDOW):
                window = source_digests[start : start + _WINDOW]
                chosen = await self._chosen(namespace, caller, window)
                indexed = [
                    (start + index, chosen[digest]) for index, digest in enumerate(window) if digest in chosen
                ]
                for group in _groups(indexed):
                    part = await self._read(namespace, group)
                    returned += [TrustedAssertion(row.index, row.assertion, b"") for row in part]
                    if part:
                        yield part
        finally:
            self._note_hits(namespace, caller, returned, len(source_digests))

    async def put(
        self,
        caller: Caller,
        source_digest: bytes,
        record: bytes,
        programs: Sequence[bytes],
        toolchain: str,
    ) -> tuple[AssertionOutcome, bytes]:
        """Stores an assertion of the caller unless it has one under this digest; the stored one.

        And its record, which is empty where it is ``record``. Raises ``ArgumentError``,
        ``ResourceExhausted``, and ``Unavailable`` where it was removed meanwhile.
        """
        self._check(source_digest, record, programs, toolchain)
        principal = caller.principal
        draft = AssertionDraft(
            source_digest, principal.name, record, tuple(programs), toolchain, principal.role
        )
        namespace = await self._namespaces.create(await self._namespaces.get(caller.namespace))
        outcome = await self._writers(
            self._quotas.insert_evicting, self._store.put_assertion, namespace, draft
        )
        winner = outcome.assertion
        is_conflict = winner.record_digest != draft.record_digest
        self._counted["assertion_inserts"] += outcome.inserted
        self._counted["assertion_conflicts"] += is_conflict
        detail = {
            "source": source_digest.hex(),
            "principal": principal.name,
            "role": principal.role,
            "record": winner.record_digest.hex(),
            "programs": len(winner.programs),
        } | ({"offered": draft.record_digest.hex()} if is_conflict else {})
        result = "conflict" if is_conflict else "inserted" if outcome.inserted else "known"
        event = AuditEvent("assertion_put", result, byte_count=len(record), detail=json.dumps(detail))
        self._audit_recorder.note(namespace, caller, event)
        if not is_conflict:
            return outcome, b""
        records = await self._threads(self._store.read_records, namespace, [winner])
        if winner.id not in records:
            raise Unavailable("the stored assertion was removed while it was read: try again")
        return outcome, records[winner.id]

    async def dispute(
        self, caller: Caller, source_digest: bytes, record_digest: bytes, observed: bytes, reason: str
    ) -> int:
        """Quarantines the assertions with this record that the caller may trust; how many it was.

        Raises ``ArgumentError``, and ``NotFound`` where there are none, in quarantine or not.
        """
        check_digest(source_digest, "source_digest")
        check_digest(record_digest, "record_digest")
        check_digest(observed, "observed_digest")
        if observed == record_digest:
            raise ArgumentError(
                "the observed record is the disputed one: there is nothing to dispute",
                field="observed_digest",
            )
        _check_text(reason, "reason", _MOST_REASON)
        namespace = await self._namespaces.get(caller.namespace)
        principal = caller.principal

        def work() -> list[AssertionRecord] | None:
            roles = self._store.trusted_roles(namespace)
            rows = self._store.find_assertions(
                namespace, [source_digest], principal.name, roles, quarantined=True
            )
            matching = [row for row in rows.get(source_digest, ()) if row.record_digest == record_digest]
            if not matching:
                return None
            return [
                row
                for row in matching
                if not row.quarantined
                and self._store.dispute_assertion(namespace, row, observed, principal.name, reason)
            ]

        disputed = await self._writers(work) if namespace.is_stored else None
        if disputed is None:
            raise NotFound(
                f"namespace {namespace.name} has no assertion of {source_digest.hex()} with the record "
                f"{record_digest.hex()} that {principal.name} may trust",
                source_digest=source_digest.hex(),
            )
        self._counted["assertions_quarantined"] += len(disputed)
        detail = {
            "source": source_digest.hex(),
            "principal": principal.name,
            "actors": [row.actor for row in disputed],
            "record": record_digest.hex(),
            "observed": observed.hex(),
            "reason": reason,
        }
        result = "quarantined" if disputed else "known"
        event = AuditEvent("assertion_dispute", result, detail=json.dumps(detail))
        self._audit_recorder.note(namespace, caller, event)
        return len(disputed)

    async def totals(self, caller: Caller) -> AssertionTotals:
        """What the namespace holds in its current epoch."""
        namespace = await self._namespaces.get(caller.namespace)
        return await self._threads(self._store.assertion_totals, namespace)

    def counters(self) -> dict[str, int]:
        """What this process did since it started, for metrics."""
        return dict(self._counted)

    async def _chosen(
        self, namespace: Namespace, caller: Caller, source_digests: Sequence[bytes]
    ) -> Mapping[bytes, AssertionRecord]:
        """The caller's own assertion of each digest, or else the oldest of a role that is trusted now."""
        if not namespace.is_stored or not source_digests:
            return {}

        def work() -> dict[bytes, AssertionRecord]:
            roles = self._store.trusted_roles(namespace)
            rows = self._store.find_assertions(namespace, source_digests, caller.principal.name, roles)
            return {digest: trusted[0] for digest, trusted in rows.items()}

        hurry = self._store.short_lock_waits if self._store.answers_from_memory else None
        return await self._threads.look(hurry, work)

    async def _read(
        self, namespace: Namespace, group: Sequence[tuple[int, AssertionRecord]]
    ) -> list[TrustedAssertion]:
        rows = [assertion for _, assertion in group]
        records = await self._threads(self._store.read_records, namespace, rows)
        return [
            TrustedAssertion(index, assertion, records[assertion.id])
            for index, assertion in group
            if assertion.id in records
        ]

    def _check(self, source_digest: bytes, record: bytes, programs: Sequence[bytes], toolchain: str) -> None:
        check_digest(source_digest, "source_digest")
        if not record:
            raise ArgumentError("the record is empty", field="record")
        if len(record) > self._limits.assertion_bytes:
            raise ResourceExhausted(
                f"the record has {len(record)} bytes; one has at most {self._limits.assertion_bytes}",
                limit="max_assertion_bytes",
            )
        if len(programs) > MOST_PROGRAMS:
            raise ArgumentError(
                f"{len(programs)} programs; a record names at most {MOST_PROGRAMS}", field="programs"
            )
        for digest in programs:
            check_digest(digest, "programs")
        _check_text(toolchain, "toolchain", _MOST_TOOLCHAIN)

    def _note_hits(
        self, namespace: Namespace, caller: Caller, returned: Sequence[TrustedAssertion], asked: int
    ) -> None:
        if returned:
            self._hits.add(namespace, (row.assertion.id for row in returned))
        self._counted["assertion_hits"] += len(returned)
        self._counted["assertion_misses"] += asked - len(returned)
        others = sorted({row.assertion.actor for row in returned} - {caller.principal.name})
        detail = {"digests": asked, "hits": len(returned), "principal": caller.principal.name}
        event = AuditEvent(
            "assertion_get",
            "hit" if len(returned) == asked else "miss",
            request_count=max(1, asked),
            byte_count=sum(row.assertion.record_size for row in returned),
            detail=json.dumps(detail | ({"of": others[:20]} if others else {})),
        )
        self._audit_recorder.note(namespace, caller, event)


def _groups(
    rows: Sequence[tuple[int, AssertionRecord]],
) -> list[list[tuple[int, AssertionRecord]]]:
    """The rows in their order, in groups of at most ``_PART_BYTES`` in messages."""
    groups: list[list[tuple[int, AssertionRecord]]] = []
    size = _PART_BYTES
    for row in rows:
        needed = row[1].size + 512
        if size + needed > _PART_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(row)
        size += needed
    return groups


def _check_text(text: str, field: str, most: int) -> None:
    if len(text.encode()) > most or "\0" in text:
        raise ArgumentError(f"{field} has at most {most} bytes, without NUL", field=field)
