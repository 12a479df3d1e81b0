"""Retention: quotas, pins, disowned toolchains, collection. Part of the storage contract.

Specs, keys and aliases are never removed. Everything else is removed only by ``collect`` and ``discard``:
each call is one small transaction, which writes its audit events, counts the rows off the quotas and raises
``Namespace.removals``. A call that is interrupted has removed nothing or all; calling again goes on.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_grpc.storage.records import AuditEvent, MappingRecord, Namespace, StoredKernel

#: What a namespace may have a quota of: rows, the bytes of all its artifacts, constants and programs, or
#: those of its ``BlobCache`` values.
RESOURCES = ("artifact_bytes", "assertion_bytes", "cache_bytes", "kernels", "mappings", "specs")
#: Beyond its quota an insert makes room by eviction, or is rejected. Specs are rejected always.
EVICT, REFUSE = "evict", "refuse"
#: What may be pinned, by digest: a kernel, the mappings of a program, or all kernels and mappings of a spec.
PINNABLE = ("kernel", "mapping", "spec")


@dataclass(frozen=True)
class Quota:
    """The most that a namespace may hold of a resource, in all epochs, and what it holds."""

    resource: str
    most: int
    policy: str
    used: int


@dataclass(frozen=True)
class Pin:
    """What eviction leaves. A pin outlives what it pins."""

    subject: str
    digest: bytes
    reason: str
    created_at: int


@dataclass(frozen=True)
class Disowned:
    """A toolchain whose kernels are not served, and no longer published."""

    toolchain: bytes
    reason: str
    created_at: int


#: Rows stay in quarantine for 30 days, in microseconds.
QUARANTINE_REST = 30 * 86_400 * 1_000_000


@dataclass(frozen=True)
class QuarantinedRow:
    """A kernel or mapping that verification took out of service. ``digest``: of the kernel or the program."""

    id: int
    subject: str
    digest: bytes
    problem: str
    created_at: int


class RowKind(enum.Enum):
    """Kinds of rows that a collection removes, in the order in which it does."""

    #: Kernels and mappings of epochs before the present one. Mappings that still tell which key a program had
    #: under an older canonicalizer stay until they were not used since ``Step.before``.
    EPOCH_KERNELS = "epoch_kernels"
    EPOCH_MAPPINGS = "epoch_mappings"
    #: Kernels of disowned toolchains, of this epoch.
    DISOWNED_KERNELS = "disowned_kernels"
    #: What was made and last used before ``Step.before``, in this epoch, longest unused first; neither what
    #: is pinned nor what is disowned.
    IDLE_KERNELS = "idle_kernels"
    IDLE_MAPPINGS = "idle_mappings"
    #: Failures that have expired; leases that nobody has held for an hour.
    FAILURES = "failures"
    LEASES = "leases"
    #: What nothing refers to and was made before ``Step.before``.
    CONSTANTS = "constants"
    PROGRAMS = "programs"
    BLOBS = "blobs"
    #: Bytes in quarantine since before ``Step.before``, with all that is in quarantine of the same blob. The
    #: blob stays, and the entries that say what was wrong. Rows go after ``QUARANTINE_REST``.
    QUARANTINED = "quarantined"


#: Where a step ended: the place in the order of its rows. Opaque; for ``Step.after`` of the same kind.
Cursor = tuple[int | bytes, ...]


@dataclass(frozen=True)
class Step:
    """One step of a collection: at most ``limit`` rows of one kind, after those that were seen before."""

    kind: RowKind
    limit: int = 100
    before: int = 0
    after: Cursor | None = None
    dry_run: bool = False
    reason: str = ""


@dataclass(frozen=True)
class BlobUse:
    """A blob that rows of a step refer to, and how many rows refer to it in all."""

    digest: bytes
    size: int
    references: int


@dataclass(frozen=True)
class Collected:
    """What a step removed, or would have. ``after`` is ``None`` at the end; ``last`` is where that was.

    ``blobs`` and ``blob_bytes``: those that went with the rows, as nothing else referred to them. A dry run
    cannot know them: it gives ``uses``, one entry a reference of the rows that would go.
    """

    rows: int
    blobs: int = 0
    blob_bytes: int = 0
    after: Cursor | None = None
    last: Cursor | None = None
    uses: tuple[BlobUse, ...] = ()


class LifecycleStore(ABC):
    """Quotas, pins, disowned toolchains, collection."""

    @abstractmethod
    def set_quota(self, namespace: Namespace, resource: str, most: int, policy: str = EVICT) -> Quota:
        """Limit a resource from now on; counts what there is. Nothing is removed, whatever ``most`` is.

        An insert that would pass it raises ``QuotaExceeded`` and changes nothing. Raises ``InvalidValue``
        for an unknown resource or policy, and for specs with ``EVICT``.
        """

    @abstractmethod
    def remove_quota(self, namespace: Namespace, resource: str) -> bool:
        """Limit it no longer; true when there was a quota."""

    @abstractmethod
    def list_quotas(self, namespace: Namespace) -> Mapping[str, Quota]:
        """By resource, in alphabetical order."""

    @abstractmethod
    def recount_quotas(self, namespace: Namespace) -> None:
        """Count anew what is used. Reads indexes from end to end."""

    @abstractmethod
    def pin(self, namespace: Namespace, subject: str, digest: bytes, reason: str = "") -> bool:
        """Keep what ``PINNABLE`` says from eviction; true unless it was pinned. It need not be stored."""

    @abstractmethod
    def unpin(self, namespace: Namespace, subject: str, digest: bytes) -> bool:
        """True when there was a pin."""

    @abstractmethod
    def list_pins(self, namespace: Namespace) -> tuple[Pin, ...]:
        """By subject and digest."""

    @abstractmethod
    def disown_toolchain(self, namespace: Namespace, toolchain: bytes, reason: str = "") -> bool:
        """From now on no kernel of the toolchain may be published here; true unless it was disowned.

        Lookups go on finding those that are stored, until they are collected: services leave them out.
        Publishing raises ``ToolchainDisowned``.
        """

    @abstractmethod
    def readmit_toolchain(self, namespace: Namespace, toolchain: bytes) -> bool:
        """Take that back; true when it was disowned."""

    @abstractmethod
    def list_disowned(self, namespace: Namespace) -> tuple[Disowned, ...]:
        """By toolchain."""

    @abstractmethod
    def collect(self, namespace: Namespace, step: Step) -> Collected:
        """Remove what a step says; with ``dry_run`` count it only.

        Rows that another transaction is about to refer to are left for a later call. Blobs that nothing
        refers to any longer go with the rows.
        """

    @abstractmethod
    def discard(
        self,
        namespace: Namespace,
        kernels: Sequence[bytes],
        mappings: Sequence[tuple[bytes, str]],
        event: AuditEvent,
        artifacts: Sequence[bytes] = (),
    ) -> int:
        """Take kernels, and mappings by program digest and numerics, of this epoch out of service.

        Pinned or not. ``artifacts``: all kernels that have one of them, too. For what verification found to
        be wrong: the next request makes it anew. The rows go into quarantine, where they stay with their
        blobs for ``QUARANTINE_REST``; ``event.detail`` says why. How many rows went.
        """

    @abstractmethod
    def list_quarantined(self, namespace: Namespace) -> tuple[QuarantinedRow, ...]:
        """Rows in quarantine, oldest first."""

    @abstractmethod
    def restore_quarantined(self, namespace: Namespace, ids: Sequence[int]) -> tuple[QuarantinedRow, ...]:
        """Put rows back in service; those that were put back. Others were made anew, or are not there.

        Raises ``QuotaExceeded``, and changes nothing then.
        """

    @abstractmethod
    def page_kernels(self, namespace: Namespace, after_id: int, limit: int) -> tuple[StoredKernel, ...]:
        """Kernels of this epoch by rising id, those included whose bytes are lost."""

    @abstractmethod
    def page_mappings(
        self, namespace: Namespace, after: tuple[bytes, str] | None, limit: int
    ) -> tuple[MappingRecord, ...]:
        """Mappings of this epoch by program digest and numerics."""
