"""Leases and remembered failures in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kcache_grpc.storage import checks
from kcache_grpc.storage.clock import STEADY_SLACK
from kcache_grpc.storage.contract.change_notifications import ChangeListener, Watch
from kcache_grpc.storage.contract.store import LeaseStore
from kcache_grpc.storage.errors import LeaseLost
from kcache_grpc.storage.memory.state import HeldLease, MemoryPart, Name, State
from kcache_grpc.storage.records import Failure, FailureRecord, Lease, LeaseState, Namespace


class MemoryLeases(MemoryPart, LeaseStore):
    """``LeaseStore`` in memory."""

    def watch(self, listener: ChangeListener) -> Watch | None:
        return None

    def acquire_lease(
        self, namespace: Namespace, kernel_digest: bytes, holder: str, ttl: float
    ) -> Lease | LeaseState:
        """Take the lease of a kernel for ``ttl`` seconds, or return the state of another holder's."""
        checks.holder(kernel_digest, holder)
        duration = checks.ttl(ttl)
        with self._state as state:
            name = _name(namespace, kernel_digest)
            row = state.leases.get(name)
            if row is not None and _left(state, row) > 0:
                if row.holder == holder:
                    return Lease(namespace, kernel_digest, holder, row.fencing_token)
                return _seen(state, kernel_digest, row)
            token = row.fencing_token + 1 if row else 1
            now = state.clock.steady()
            state.leases[name] = HeldLease(
                holder, token, state.clock.boot, now, now + duration, state.clock.wall()
            )
            return Lease(namespace, kernel_digest, holder, token)

    def heartbeat_lease(self, lease: Lease, ttl: float) -> None:
        duration = checks.ttl(ttl)
        with self._state as state:
            row = own(state, lease)
            row.boot, row.renewed_at = state.clock.boot, state.clock.steady()
            row.expires_at = row.renewed_at + duration

    def report_stage(self, lease: Lease, *stages: str) -> None:
        for stage in stages:
            checks.stage(stage)
        with self._state as state:
            row = own(state, lease)
            row.stages = (*row.stages, *stages)

    def release_lease(self, lease: Lease) -> None:
        with self._state as state:
            release(state, lease)

    def find_leases(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, LeaseState]:
        checks.digests("kernel digest", kernel_digests)
        with self._state as state:
            names = {digest: _name(namespace, digest) for digest in kernel_digests}
            return {
                digest: _seen(state, digest, state.leases[name])
                for digest, name in names.items()
                if name in state.leases
            }

    def record_failure(
        self,
        namespace: Namespace,
        kernel_digest: bytes,
        failure: Failure,
        ttl: float,
        lease: Lease | None = None,
    ) -> FailureRecord:
        """Record a failed compile for ``ttl`` seconds, and release the lease. Raises ``LeaseLost``."""
        checks.failure(kernel_digest, failure)
        checks.lease(lease, namespace, kernel_digest)
        duration = checks.ttl(ttl)
        with self._state as state:
            if lease is not None:
                own(state, lease)
                release(state, lease)
            now = state.clock.wall()
            name = _name(namespace, kernel_digest)
            before = state.failures.get(name)
            state.failures[name] = FailureRecord(
                kernel_digest,
                failure,
                count=before.count + 1 if before else 1,
                first_at=before.first_at if before else now,
                last_at=now,
                expires_at=now + duration,
            )
            return state.failures[name]

    def find_failures(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, FailureRecord]:
        checks.digests("kernel digest", kernel_digests)
        with self._state as state:
            now = state.clock.wall()
            records = {digest: state.failures.get(_name(namespace, digest)) for digest in kernel_digests}
            return {
                digest: record for digest, record in records.items() if record and record.expires_at > now
            }


def own(state: State, lease: Lease) -> HeldLease:
    """The row of a lease that is still the caller's. Raises ``LeaseLost``."""
    row = state.leases.get(_name(lease.namespace, lease.kernel_digest))
    if row is None or (row.holder, row.fencing_token) != (lease.holder, lease.fencing_token):
        raise LeaseLost(f"{lease.holder} no longer holds the lease for kernel {lease.kernel_digest.hex()}")
    return row


def release(state: State, lease: Lease) -> None:
    """Give the lease back, if it is still the caller's."""
    try:
        row = own(state, lease)
    except LeaseLost:
        return
    row.holder, row.expires_at = "", 0


def _name(namespace: Namespace, kernel_digest: bytes) -> Name:
    return (namespace.id, namespace.epoch, kernel_digest)


def _left(state: State, row: HeldLease) -> int:
    """Microseconds until it expires; 0 for one that has, or that is of another boot."""
    now = state.clock.steady()
    same = row.boot == state.clock.boot and row.renewed_at <= now + STEADY_SLACK
    return max(row.expires_at - now, 0) if same else 0


def _seen(state: State, kernel_digest: bytes, row: HeldLease) -> LeaseState:
    left = _left(state, row)
    return LeaseState(
        kernel_digest, row.holder, row.fencing_token, row.stages, left, left > 0, row.acquired_at
    )
