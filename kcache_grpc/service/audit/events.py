"""Entries that the recorder takes on the hot path, and the audit events and usage that they become later."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.target import Target
from kcache_grpc.service.values import Caller, Found, KnownGraph, KnownKernel, Missing
from kcache_grpc.storage.contract.saved_time import caller_usage
from kcache_grpc.storage.records import AuditEvent, Namespace, UsageDelta

#: Up to this many events in one batch are written one by one: 500 a second.
SINGLE_EVENTS = 100
#: Requests that one event stands for, at most.
MOST_JOINED = 1000


#: What equal requests have in common, and how to make the event of one of them.
Part = tuple[Hashable, Callable[[], AuditEvent]]


@dataclass(slots=True)
class Lookup:
    """A lookup of many kernels. ``at`` in nanoseconds, ``took`` in microseconds."""

    namespace: Namespace
    caller: Caller
    at: int
    took: int
    target: Target
    digests: Sequence[bytes]
    results: Sequence[Found | Missing]

    @property
    def count(self) -> int:
        """How many events it becomes."""
        return len(self.results)

    def parts(self, toolchains: Toolchains) -> Iterator[Part]:
        """One a digest."""
        target, toolchain = str(self.target), toolchains.of(self.target).digest
        who = (_who(self.caller), target)
        for digest, result in zip(self.digests, self.results, strict=True):
            identity = result.kernel.digest if isinstance(result, Found) else _why(result)
            yield (who, digest, identity), partial(self._event, digest, result, toolchain, target)

    def _event(self, digest: bytes, result: Found | Missing, toolchain: bytes, target: str) -> AuditEvent:
        base = _base(self.caller, self.at, self.took, toolchain, target)
        if isinstance(result, Found):
            return _serve(base, result.graph, result.kernel, result.kernel.origin.value, result.inline_bytes)
        return _miss(base, digest, result)

    def uses(self) -> Iterator[UsageDelta]:
        """Of the kernels, and by the caller."""
        hits = [result for result in self.results if isinstance(result, Found)]
        for result in hits:
            yield from _uses(result.graph, result.kernel, self.at)
        if hits:
            saved_us = sum(result.kernel.compile_us for result in hits)
            caller = self.caller
            yield caller_usage(caller.actor, caller.job, len(hits), saved_us, self.at // 1000)


@dataclass(slots=True)
class Use:
    """A kernel that was handed out."""

    namespace: Namespace
    caller: Caller
    at: int
    took: int
    graph: KnownGraph
    kernel: KnownKernel
    origin: str
    target: Target | None
    size: int

    @property
    def count(self) -> int:
        """One event."""
        return 1

    def parts(self, toolchains: Toolchains) -> Iterator[Part]:
        """One."""
        target, toolchain = str(self.target) if self.target else "", toolchains.of(self.target).digest
        identity = (self.graph.program_digest, self.kernel.digest, self.origin, self.size)
        yield (_who(self.caller), target, identity), partial(self._event, toolchain, target)

    def _event(self, toolchain: bytes, target: str) -> AuditEvent:
        base = _base(self.caller, self.at, self.took, toolchain, target)
        return _serve(base, self.graph, self.kernel, self.origin, self.size)

    def uses(self) -> Iterator[UsageDelta]:
        """Of the kernel, of the mapping that led to it, and by the caller."""
        yield from _uses(self.graph, self.kernel, self.at)
        caller = self.caller
        yield caller_usage(caller.actor, caller.job, 1, self.kernel.compile_us, self.at // 1000)


@dataclass(slots=True)
class Note:
    """Anything else."""

    namespace: Namespace
    caller: Caller
    at: int
    took: int
    event: AuditEvent

    @property
    def count(self) -> int:
        """One event."""
        return 1

    def parts(self, toolchains: Toolchains) -> Iterator[Part]:
        """One."""
        yield (_who(self.caller), self.event), self._event

    def _event(self) -> AuditEvent:
        """The event, with who, when and how long."""
        return replace(
            self.event,
            actor=self.caller.actor,
            job=self.caller.job,
            peer=self.caller.peer,
            request_id=self.caller.request_id,
            duration_us=self.took,
            at=self.at // 1000,
            detail=self.event.detail or client_detail(self.caller.client),
        )

    def uses(self) -> Iterator[UsageDelta]:
        """None."""
        return iter(())


Entry = Lookup | Use | Note


@dataclass
class Batch:
    """What is to be written of one namespace; ``count`` requests."""

    namespace: Namespace
    count: int = 0
    uses: list[UsageDelta] = field(default_factory=list[UsageDelta])
    events: list[AuditEvent] = field(default_factory=list[AuditEvent])


def batches(entries: Sequence[Entry], lost: Mapping[Namespace, int], toolchains: Toolchains) -> list[Batch]:
    """A batch a namespace."""
    groups: dict[Namespace, list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[entry.namespace].append(entry)
    by_namespace = {namespace: _batch(namespace, group, toolchains) for namespace, group in groups.items()}
    for namespace, count in lost.items():
        event = AuditEvent("drop", outcome="queue_full", request_count=count)
        by_namespace.setdefault(namespace, Batch(namespace)).events.append(event)
    return list(by_namespace.values())


def _batch(namespace: Namespace, entries: Sequence[Entry], toolchains: Toolchains) -> Batch:
    count = sum(entry.count for entry in entries)
    parts = ((entry, part) for entry in entries for part in entry.parts(toolchains))
    return Batch(
        namespace,
        count,
        [delta for entry in entries for delta in entry.uses()],
        [make() for _, (_, make) in parts] if count <= SINGLE_EVENTS else list(_joined(parts)),
    )


def _joined(parts: Iterable[tuple[Entry, Part]]) -> Iterator[AuditEvent]:
    """One event for all that are equal but for request and time.

    ``detail`` lists the ids of the requests; duration, bytes and time saved are sums.
    """
    groups: dict[Hashable, list[tuple[Entry, Callable[[], AuditEvent]]]] = defaultdict(list)
    for entry, (alike, make) in parts:
        groups[alike].append((entry, make))
    for group in groups.values():
        for start in range(0, len(group), MOST_JOINED):
            yield _one_for(group[start : start + MOST_JOINED])


def _one_for(group: Sequence[tuple[Entry, Callable[[], AuditEvent]]]) -> AuditEvent:
    count, first = len(group), group[0][1]()
    if count == 1:
        return first
    detail: dict[str, Any] = json.loads(first.detail) if first.detail else {}
    ids = dict.fromkeys(entry.caller.request_id for entry, _ in group)
    return replace(
        first,
        request_count=count,
        duration_us=sum(entry.took for entry, _ in group),
        byte_count=first.byte_count * count,
        saved_us=first.saved_us * count,
        detail=json.dumps({**detail, "request_ids": list(ids)}),
    )


@lru_cache(maxsize=256)
def client_detail(client: str) -> str:
    """The version of a caller's client, as a detail."""
    return json.dumps({"client": client}) if client else ""


def _who(caller: Caller) -> tuple[str, str, str, str]:
    return caller.actor, caller.job, caller.peer, caller.client


def _why(result: Missing) -> str:
    if result.failure is not None:
        return result.failure.failure.reason.lower()
    return "need_program" if result.graph is None else "need_compile"


def _base(caller: Caller, at: int, took: int, toolchain: bytes, target: str) -> dict[str, Any]:
    """Who, when, how long, for what."""
    return {
        "actor": caller.actor,
        "job": caller.job,
        "peer": caller.peer,
        "request_id": caller.request_id,
        "target": target,
        "toolchain": toolchain,
        "duration_us": took,
        "detail": client_detail(caller.client),
        "at": at // 1000,
    }


def _serve(
    base: dict[str, Any], graph: KnownGraph, kernel: KnownKernel, origin: str, size: int
) -> AuditEvent:
    return AuditEvent(
        kind="serve",
        outcome="hit",
        origin=origin,
        program_digest=graph.program_digest,
        spec_digest=graph.spec_digest,
        key=graph.key,
        kernel_digest=kernel.digest,
        byte_count=size,
        saved_us=kernel.compile_us,
        **base,
    )


def _miss(base: dict[str, Any], digest: bytes, result: Missing) -> AuditEvent:
    graph = result.graph
    return AuditEvent(
        kind="miss",
        outcome=_why(result),
        program_digest=digest,
        spec_digest=None if graph is None else graph.spec_digest,
        key=None if graph is None else graph.key,
        kernel_digest=result.failure.kernel_digest if result.failure and graph is not None else None,
        **base,
    )


def _uses(graph: KnownGraph, kernel: KnownKernel, at: int) -> Iterator[UsageDelta]:
    """A use of the kernel, and of the mapping that led to it: what eviction goes by."""
    yield UsageDelta("kernel", kernel.digest, 1, kernel.compile_us, at // 1000)
    yield UsageDelta("mapping", graph.program_digest, 1, 0, at // 1000)
