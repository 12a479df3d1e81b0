"""Collection in memory: the contract in its plainest form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kcache_grpc.model.staleness import Staleness, is_current_epoch, is_earlier_epoch, staleness
from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.lifecycle import (
    QUARANTINE_REST,
    BlobUse,
    Collected,
    Cursor,
    QuarantinedRow,
    RowKind,
    Step,
)
from kcache_grpc.storage.memory.kernels import stored_kernel
from kcache_grpc.storage.memory.quotas import MemoryQuotas, invalidate_caches, require_room, touch
from kcache_grpc.storage.memory.state import HeldKernel, HeldRow, Name, State
from kcache_grpc.storage.memory.usage_audit import hold_events
from kcache_grpc.storage.records import AuditEvent, MappingRecord, Namespace, StoredKernel, UsageRecord

#: As on SQL: a lease that nobody has held for so long is forgotten, in microseconds.
LEASE_RETENTION = 3_600_000_000
REMOVED_SUBJECT = bytes(32)
_KERNELS = (RowKind.EPOCH_KERNELS, RowKind.DISOWNED_KERNELS, RowKind.IDLE_KERNELS)
_MAPPINGS = (RowKind.EPOCH_MAPPINGS, RowKind.IDLE_MAPPINGS)


@dataclass(frozen=True)
class _Victim:
    """``place`` in the order of its kind; ``is_removed``: false for a row that the step only examines."""

    place: Cursor
    name: Any
    is_removed: bool = True


class MemoryLifecycle(MemoryQuotas):
    """``LifecycleStore`` in memory."""

    def collect(self, namespace: Namespace, step: Step) -> Collected:
        checks.step(step)
        with self._state as state:
            candidates = sorted(_candidates(state, namespace, step), key=lambda victim: victim.place)
            behind = [each for each in candidates if step.after is None or each.place > step.after]
            chosen, after, last = _page(step, behind)
            victims = [each for each in chosen if each.is_removed]
            if step.dry_run:
                return replace(_count(state, namespace, step, victims), after=after, last=last)
            removing = _Removing(state, namespace, step.reason or step.kind.value)
            removing.remove(step.kind, [each.name for each in victims])
            if step.kind is RowKind.QUARANTINED:
                _forget_old(state, namespace)
            return Collected(removing.rows, removing.blobs, removing.blob_bytes, after, last)

    def discard(
        self,
        namespace: Namespace,
        kernels: Sequence[bytes],
        mappings: Sequence[tuple[bytes, str]],
        event: AuditEvent,
        artifacts: Sequence[bytes] = (),
    ) -> int:
        """Move kernels and mappings of this epoch into quarantine; return their number.

        See ``LifecycleStore``.
        """
        checks.digests("digest", [*kernels, *artifacts, *(digest for digest, _ in mappings)])
        checks.events([event])
        here = (namespace.id, namespace.epoch)
        with self._state as state:
            removing = _Removing(state, namespace, event.outcome, keep_blobs=True)
            names: list[Name] = [
                name
                for name, row in state.kernels.items()
                if name[:2] == here
                and (name[2] in kernels or any(digest in artifacts for _, digest in row.artifacts))
            ]
            mapped: list[Name] = [(*here, *mapping) for mapping in mappings]
            mapped = [name for name in mapped if name in state.mappings]
            for name in (*sorted(names, key=lambda name: state.kernels[name].id), *mapped):
                _quarantine_row(state, name, event.detail)
            removing.remove(RowKind.IDLE_KERNELS, names)
            removing.remove(RowKind.IDLE_MAPPINGS, mapped)
            if removing.rows:
                hold_events(state, namespace, [event])
            return removing.rows

    def list_quarantined(self, namespace: Namespace) -> tuple[QuarantinedRow, ...]:
        with self._state as state:
            return tuple(each.row for each in state.quarantined.values() if each.name[0] == namespace.id)

    def restore_quarantined(self, namespace: Namespace, ids: Sequence[int]) -> tuple[QuarantinedRow, ...]:
        checks.number("id", *ids)
        with self._state as state:
            here = [number for number in ids if number in state.quarantined]
            mine = [number for number in here if state.quarantined[number].name[0] == namespace.id]
            return tuple(row for number in mine if (row := _put_back(state, namespace, number)) is not None)

    def page_kernels(self, namespace: Namespace, after_id: int, limit: int) -> tuple[StoredKernel, ...]:
        checks.number("id or limit", after_id, limit)
        with self._state as state:
            here = [row for name, row in state.kernels.items() if name[:2] == (namespace.id, namespace.epoch)]
            page = sorted((each for each in here if each.id > after_id), key=lambda each: each.id)[:limit]
            return tuple(stored_kernel(state, namespace, each) for each in page)

    def page_mappings(
        self, namespace: Namespace, after: tuple[bytes, str] | None, limit: int
    ) -> tuple[MappingRecord, ...]:
        checks.number("limit", limit)
        with self._state as state:
            here = [
                record
                for name, record in state.mappings.items()
                if name[:2] == (namespace.id, namespace.epoch)
            ]
        here.sort(key=lambda record: (record.program_digest, record.numerics))
        behind = [each for each in here if (each.program_digest, each.numerics) > (after or (b"", ""))]
        return tuple(behind[:limit])


class _Removing:
    """One step."""

    def __init__(self, state: State, namespace: Namespace, reason: str, *, keep_blobs: bool = False) -> None:
        self._keep_blobs = keep_blobs
        self._state = state
        self._namespace = namespace
        self._reason = reason
        self.rows = self.blobs = self.blob_bytes = 0

    def remove(self, kind: RowKind, names: Sequence[Any]) -> None:
        """Remove rows of one kind by name, and blobs that nothing refers to any longer."""
        if not names:
            return
        blobs: set[bytes] = set()
        state, space = self._state, self._namespace.id
        for name in names:
            match kind:
                case RowKind.EPOCH_MAPPINGS | RowKind.IDLE_MAPPINGS:
                    del state.mappings[name]
                    state.mapping_constants.pop(name, None)
                    self._add_to_removed_total("mapping", name[2], state.mappings)
                case RowKind.EPOCH_KERNELS | RowKind.DISOWNED_KERNELS | RowKind.IDLE_KERNELS:
                    blobs.update(digest for _, digest in state.kernels.pop(name).artifacts)
                    state.removed_kernels[space] += 1
                    self._add_to_removed_total("kernel", name[2], state.kernels)
                case RowKind.CONSTANTS:
                    state.constants.pop((space, name))
                    blobs.add(name)
                case RowKind.PROGRAMS:
                    blobs.add(state.programs.pop((space, name))[1])
                case RowKind.BLOBS:
                    blobs.add(name)
                case RowKind.QUARANTINED:
                    state.blobs[space, name].bad_since = None
                case RowKind.FAILURES:
                    del state.failures[name]
                case RowKind.LEASES:
                    del state.leases[name]
        freed = 0 if self._keep_blobs else self._unused(blobs)
        self.rows += freed if kind is RowKind.BLOBS else len(names)
        if kind in (RowKind.FAILURES, RowKind.LEASES):
            return
        invalidate_caches(state, space)
        detail = json.dumps({"reason": self._reason, "rows": len(names)})
        hold_events(state, self._namespace, [AuditEvent("collect", outcome=kind.value, detail=detail)])

    def _unused(self, digests: Iterable[bytes]) -> int:
        unused = [digest for digest in digests if not _in_use(self._state, self._namespace, digest)]
        for digest in unused:
            self.blob_bytes += self._state.blobs.pop((self._namespace.id, digest)).size
        self.blobs += len(unused)
        return len(unused)

    def _add_to_removed_total(self, subject: str, digest: bytes, rows: dict[Name, Any]) -> None:
        space = self._namespace
        if any(name[:3] == (space.id, space.epoch, digest) for name in rows):
            return
        record = self._state.usage.pop((space.id, subject, digest), None)
        if record is None or not (record.hits or record.saved_us):
            return
        total = self._state.usage.get(
            (space.id, subject, REMOVED_SUBJECT), UsageRecord(subject, REMOVED_SUBJECT, 0, 0, 0)
        )
        self._state.usage[space.id, subject, REMOVED_SUBJECT] = replace(
            total, hits=total.hits + record.hits, saved_us=total.saved_us + record.saved_us
        )


def _quarantine_row(state: State, name: Name, problem: str) -> None:
    kernel, mapping = state.kernels.get(name), state.mappings.get(name)
    state.last_quarantined += 1
    number, now = state.last_quarantined, state.clock.wall()
    if kernel is not None:
        row = QuarantinedRow(number, "kernel", kernel.kernel.kernel_digest, problem, now)
        blobs = tuple(digest for _, digest in kernel.artifacts)
        state.quarantined[number] = HeldRow(row, name, kernel, (), blobs)
    elif mapping is not None:
        row = QuarantinedRow(number, "mapping", mapping.program_digest, problem, now)
        lifted = state.mapping_constants.get(name, ())
        state.quarantined[number] = HeldRow(row, name, mapping, lifted, lifted)


def _forget_old(state: State, namespace: Namespace) -> None:
    before = state.clock.wall() - QUARANTINE_REST
    for number, entry in list(state.quarantined.items()):
        if entry.name[0] == namespace.id and entry.row.created_at < before:
            del state.quarantined[number]


def _put_back(state: State, namespace: Namespace, number: int) -> QuarantinedRow | None:
    entry = state.quarantined[number]
    now = state.clock.wall()
    if entry.name in state.kernels or entry.name in state.mappings:
        return None
    if isinstance(entry.held, HeldKernel):
        require_room(state, namespace, {"kernels": 1}, {})
        state.kernels[entry.name] = entry.held
    else:
        require_room(state, namespace, {"mappings": 1}, {})
        state.mappings[entry.name] = entry.held
        state.mapping_constants[entry.name] = entry.lifted
        for digest in entry.lifted:
            state.constants.setdefault((namespace.id, digest), now)
    touch(state, namespace, entry.row.subject, entry.row.digest)
    del state.quarantined[number]
    return entry.row


def _in_use(state: State, namespace: Namespace, digest: bytes) -> bool:
    is_quarantined = any(
        digest in entry.blobs for entry in state.quarantined.values() if entry.name[0] == namespace.id
    )
    return is_quarantined or references(state, namespace, digest) > 0


def references(state: State, namespace: Namespace, digest: bytes) -> int:
    """How many rows refer to a blob."""
    kernels = sum(
        link == digest
        for name, row in state.kernels.items()
        if name[0] == namespace.id
        for _, link in row.artifacts
    )
    programs = sum(
        body == digest for (owner, _), (_, body) in state.programs.items() if owner == namespace.id
    )
    return kernels + programs + ((namespace.id, digest) in state.constants)


def _count(state: State, namespace: Namespace, step: Step, victims: Sequence[_Victim]) -> Collected:
    if step.kind is RowKind.BLOBS:
        size = sum(state.blobs[namespace.id, victim.name].size for victim in victims)
        return Collected(len(victims), len(victims), size)
    uses: list[BlobUse] = []
    for victim in victims if step.kind in _KERNELS else ():
        for _, digest in state.kernels[victim.name].artifacts:
            size = state.blobs[namespace.id, digest].size
            uses.append(BlobUse(digest, size, references(state, namespace, digest)))
    return Collected(len(victims), uses=tuple(uses))


def _page(
    step: Step, candidates: Sequence[_Victim]
) -> tuple[Sequence[_Victim], Cursor | None, Cursor | None]:
    if not candidates:
        return candidates, None, step.after
    end = min(step.limit, len(candidates))
    last = candidates[end - 1].place
    while end < len(candidates) and candidates[end].place == last:
        end += 1
    more = end < len(candidates) or len(candidates) >= step.limit + (2 if step.kind in _MAPPINGS else 0)
    # Behind the last kernel of one toolchain may be those of the next: SQL looks at one at a time.
    more = more or step.kind is RowKind.DISOWNED_KERNELS
    return candidates[:end], last if more else None, last


def _candidates(state: State, namespace: Namespace, step: Step) -> list[_Victim]:
    find: dict[RowKind, Callable[[State, Namespace, Step], list[_Victim]]] = {
        RowKind.EPOCH_KERNELS: _epoch_kernels,
        RowKind.DISOWNED_KERNELS: _disowned_kernels,
        RowKind.IDLE_KERNELS: _idle_kernels,
        RowKind.EPOCH_MAPPINGS: _epoch_mappings,
        RowKind.IDLE_MAPPINGS: _idle_mappings,
        RowKind.FAILURES: _failures,
        RowKind.LEASES: _leases,
        RowKind.CONSTANTS: _constants,
        RowKind.PROGRAMS: _programs,
        RowKind.BLOBS: _blobs,
        RowKind.QUARANTINED: _quarantined,
    }
    return find[step.kind](state, namespace, step)


def _kernels_of(
    state: State, namespace: Namespace, reason: Staleness | None
) -> list[tuple[Name, HeldKernel]]:
    """The kernels of a namespace that are stale for a reason; ``None``: those that are not."""
    disowned = {toolchain for owner, toolchain in state.disowned if owner == namespace.id}
    return [
        (name, row)
        for name, row in state.kernels.items()
        if name[0] == namespace.id
        and staleness(row.epoch, row.kernel.toolchain, namespace_epoch=namespace.epoch, disowned=disowned)
        is reason
    ]


def _epoch_kernels(state: State, namespace: Namespace, _: Step) -> list[_Victim]:
    return [
        _Victim((row.epoch, row.kernel.kernel_digest), name)
        for name, row in _kernels_of(state, namespace, Staleness.EPOCH)
    ]


def _disowned_kernels(state: State, namespace: Namespace, _: Step) -> list[_Victim]:
    return [
        _Victim((row.kernel.toolchain, row.id), name)
        for name, row in _kernels_of(state, namespace, Staleness.DISOWNED)
    ]


def _idle_kernels(state: State, namespace: Namespace, step: Step) -> list[_Victim]:
    return [
        _Victim((used_at, row.kernel.kernel_digest), name)
        for name, row in _kernels_of(state, namespace, None)
        if is_current_epoch(row.epoch, namespace.epoch)
        and (used_at := _used_at(state, namespace, "kernel", row.kernel.kernel_digest)) is not None
        and used_at < step.before
        and not _pinned(state, namespace, "kernel", row.kernel.kernel_digest, row.kernel.key)
    ]


def _epoch_mappings(state: State, namespace: Namespace, step: Step) -> list[_Victim]:
    specs = state.specs.get(namespace.id, [])
    newest = specs[-1].canonicalizer if specs else 0

    def tells_old_key(name: Name, record: MappingRecord) -> bool:
        used_at = _used_at(state, namespace, "mapping", record.program_digest)
        return (
            specs[record.key - 1].canonicalizer < newest
            and (namespace.id, namespace.epoch, *name[2:]) not in state.mappings
            and (record.created_at >= step.before or (used_at is not None and used_at >= step.before))
        )

    return [
        _Victim((record.epoch, record.program_digest), name)
        for name, record in state.mappings.items()
        if name[0] == namespace.id
        and is_earlier_epoch(record.epoch, namespace.epoch)
        and not tells_old_key(name, record)
    ]


def _idle_mappings(state: State, namespace: Namespace, step: Step) -> list[_Victim]:
    return [
        _Victim((used_at, record.program_digest), name)
        for name, record in state.mappings.items()
        if name[:2] == (namespace.id, namespace.epoch)
        and (used_at := _used_at(state, namespace, "mapping", record.program_digest)) is not None
        and used_at < step.before
        and not _pinned(state, namespace, "mapping", record.program_digest, record.key)
    ]


def _failures(state: State, namespace: Namespace, _: Step) -> list[_Victim]:
    now = state.clock.wall()
    return [
        _Victim((epoch, digest), name)
        for name, record in state.failures.items()
        if name[0] == namespace.id
        and isinstance(epoch := name[1], int)
        and isinstance(digest := name[2], bytes)
        and (record.expires_at <= now or is_earlier_epoch(epoch, namespace.epoch))
    ]


def _leases(state: State, namespace: Namespace, _: Step) -> list[_Victim]:
    before = state.clock.wall() - LEASE_RETENTION
    expired_before = state.clock.steady() - LEASE_RETENTION
    return [
        _Victim((epoch, digest), name)
        for name, lease in state.leases.items()
        if name[0] == namespace.id
        and isinstance(epoch := name[1], int)
        and isinstance(digest := name[2], bytes)
        and lease.acquired_at < before
        and (lease.boot != state.clock.boot or lease.expires_at < expired_before)
    ]


def _constants(state: State, namespace: Namespace, step: Step) -> list[_Victim]:
    lifted = {
        digest
        for name, digests in state.mapping_constants.items()
        if name[0] == namespace.id
        for digest in digests
    }
    return [
        _Victim((digest,), digest, created_at < step.before and digest not in lifted)
        for (owner, digest), created_at in state.constants.items()
        if owner == namespace.id
    ]


def _programs(state: State, namespace: Namespace, step: Step) -> list[_Victim]:
    mapped = {name[2] for name in state.mappings if name[:2] == (namespace.id, namespace.epoch)}
    mine = {digest: program for (owner, digest), program in state.programs.items() if owner == namespace.id}
    bodies = {body for digest, (_, body) in mine.items() if digest in mapped}
    return [
        _Victim(
            (digest,), digest, state.program_times[namespace.id, digest] < step.before and body not in bodies
        )
        for digest, (_, body) in mine.items()
    ]


def _blobs(state: State, namespace: Namespace, step: Step) -> list[_Victim]:
    return [
        _Victim((digest,), digest, blob.created_at < step.before and not _in_use(state, namespace, digest))
        for (owner, digest), blob in state.blobs.items()
        if owner == namespace.id
    ]


def _quarantined(state: State, namespace: Namespace, step: Step) -> list[_Victim]:
    return [
        _Victim((digest,), digest)
        for (owner, digest), blob in state.blobs.items()
        if owner == namespace.id and blob.bad_since is not None and blob.bad_since < step.before
    ]


def _used_at(state: State, namespace: Namespace, subject: str, digest: bytes) -> int | None:
    record = state.usage.get((namespace.id, subject, digest))
    return None if record is None else record.last_used_at


def _pinned(state: State, namespace: Namespace, subject: str, digest: bytes, key: int) -> bool:
    spec = state.specs[namespace.id][key - 1].spec_digest
    return any((namespace.id, *name) in state.pins for name in ((subject, digest), ("spec", spec)))
