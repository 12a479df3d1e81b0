"""Quotas, pins and disowned toolchains in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.lifecycle import EVICT, Disowned, LifecycleStore, Pin, Quota
from kcache_grpc.storage.errors import MissingReference, QuotaExceeded, ToolchainDisowned
from kcache_grpc.storage.memory.state import MemoryPart, State
from kcache_grpc.storage.records import Namespace, UsageRecord


class MemoryQuotas(MemoryPart, LifecycleStore):
    """The part of ``LifecycleStore`` that sets quotas, pins and disowned toolchains."""

    def set_quota(self, namespace: Namespace, resource: str, most: int, policy: str = EVICT) -> Quota:
        checks.quota(resource, most, policy)
        with self._state as state:
            state.quotas[namespace.id, resource] = (most, policy)
        return self.list_quotas(namespace)[resource]

    def remove_quota(self, namespace: Namespace, resource: str) -> bool:
        checks.text("resource", resource)
        with self._state as state:
            return state.quotas.pop((namespace.id, resource), None) is not None

    def list_quotas(self, namespace: Namespace) -> Mapping[str, Quota]:
        with self._state as state:
            mine = sorted(
                (resource, *limit)
                for (owner, resource), limit in state.quotas.items()
                if owner == namespace.id
            )
            return {
                resource: Quota(resource, most, policy, used(state, namespace, resource))
                for resource, most, policy in mine
            }

    def recount_quotas(self, namespace: Namespace) -> None:
        """Nothing to do: they are counted whenever they are asked for."""

    def pin(self, namespace: Namespace, subject: str, digest: bytes, reason: str = "") -> bool:
        checks.pin(subject, digest, reason)
        with self._state as state:
            name = (namespace.id, subject, digest)
            new = name not in state.pins
            state.pins.setdefault(name, Pin(subject, digest, reason, state.clock.wall()))
            return new

    def unpin(self, namespace: Namespace, subject: str, digest: bytes) -> bool:
        checks.pin(subject, digest, "")
        with self._state as state:
            return state.pins.pop((namespace.id, subject, digest), None) is not None

    def list_pins(self, namespace: Namespace) -> tuple[Pin, ...]:
        with self._state as state:
            mine = [pin for name, pin in state.pins.items() if name[0] == namespace.id]
        return tuple(sorted(mine, key=lambda pin: (pin.subject, pin.digest)))

    def disown_toolchain(self, namespace: Namespace, toolchain: bytes, reason: str = "") -> bool:
        checks.digest("toolchain", toolchain)
        checks.text("reason", reason)
        with self._state as state:
            if namespace.id not in state.specs:
                raise MissingReference(f"namespace {namespace.name!r} is not stored")
            name = (namespace.id, toolchain)
            new = name not in state.disowned
            state.disowned.setdefault(name, Disowned(toolchain, reason, state.clock.wall()))
            return new

    def readmit_toolchain(self, namespace: Namespace, toolchain: bytes) -> bool:
        checks.digest("toolchain", toolchain)
        with self._state as state:
            return state.disowned.pop((namespace.id, toolchain), None) is not None

    def list_disowned(self, namespace: Namespace) -> tuple[Disowned, ...]:
        with self._state as state:
            mine = [each for name, each in state.disowned.items() if name[0] == namespace.id]
        return tuple(sorted(mine, key=lambda each: each.toolchain))


def used(state: State, namespace: Namespace, resource: str) -> int:
    """How much of a resource a namespace holds, in all epochs."""
    match resource:
        case "kernels":
            return sum(name[0] == namespace.id for name in state.kernels)
        case "mappings":
            return sum(name[0] == namespace.id for name in state.mappings)
        case "specs":
            return len(state.specs.get(namespace.id, []))
        case "cache_bytes":
            mine = (row for name, row in state.cache_values.items() if name[0] == namespace.id)
            return sum(row.record.size for row in mine)
        case "assertion_bytes":
            return sum(
                row.assertion.size for name, row in state.assertions.items() if name[0] == namespace.id
            )
        case _:
            return sum(row.size for (owner, _), row in state.blobs.items() if owner == namespace.id)


def require_room(
    state: State, namespace: Namespace, added: Mapping[str, int], blobs: Mapping[bytes, int]
) -> None:
    """Raises ``QuotaExceeded`` if this many rows and these blobs would be too many."""
    new = sum(size for digest, size in blobs.items() if (namespace.id, digest) not in state.blobs)
    for resource, amount in sorted((dict(added) | {"artifact_bytes": new}).items()):
        quota = state.quotas.get((namespace.id, resource))
        if quota is None or not amount:
            continue
        total = used(state, namespace, resource) + amount
        if total > quota[0]:
            raise QuotaExceeded(namespace.name, resource, quota[0], total, quota[1])


def require_owned(state: State, namespace: Namespace, toolchain: bytes) -> None:
    """Raises ``ToolchainDisowned``."""
    if (namespace.id, toolchain) in state.disowned:
        raise ToolchainDisowned(namespace.name, toolchain)


def touch(state: State, namespace: Namespace, subject: str, digest: bytes) -> None:
    """A subject that is in use from now on, counted as no hit."""
    name = (namespace.id, subject, digest)
    before = state.usage.get(name, UsageRecord(subject, digest, 0, 0, 0))
    latest = max(before.last_used_at, state.clock.wall())
    state.usage[name] = UsageRecord(subject, digest, before.hits, before.saved_us, latest)


def invalidate_caches(state: State, namespace_id: int) -> None:
    """Something that was served is served no longer."""
    for name, namespace in state.namespaces.items():
        if namespace.id == namespace_id:
            state.namespaces[name] = replace(namespace, removals=namespace.removals + 1)
