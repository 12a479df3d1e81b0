"""Arguments and results of a store: frozen values, without sessions and rows.

Digests are 32 bytes. Times are UTC microseconds since 1970, durations are microseconds, sizes are bytes.
A *draft* is what a caller offers; a *record* is what is stored, which after a lost race is the winner's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Ingredients = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Namespace:
    """A key space. ``epoch`` is the one that the holder of this value reads and writes in.

    ``id`` 0: nothing was written in it yet, and the store has no row of it; reading in it finds nothing.

    ``removals`` rises with every transaction that removes or quarantines something: what was remembered under
    another count is stale.
    """

    id: int
    name: str
    epoch: int
    removals: int = field(default=0, compare=False)

    @property
    def is_stored(self) -> bool:
        """Whether the store has it."""
        return self.id != 0


@dataclass(frozen=True)
class SpecDraft:
    """A canonical text and its digest. ``family`` is ``"stablehlo"`` or ``"linalg"``."""

    spec_digest: bytes
    text: str = field(repr=False)
    numerics: str
    canonicalizer: int
    family: str = "stablehlo"


@dataclass(frozen=True)
class SpecRecord:
    """A stored spec, under its key."""

    key: int
    spec_digest: bytes
    text: str = field(repr=False)
    numerics: str
    canonicalizer: int
    family: str
    created_at: int


@dataclass(frozen=True)
class SignedBytes:
    """Bytes as they are stored, signed and sent, and their signature."""

    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)


#: Gives the signed binding of a mapping once the key is known. Called inside the transaction, perhaps
#: more than once, and by the thread that writes for several callers: it is quick, has no side effects, waits
#: for no lock of its caller and never calls the store.
Bind = Callable[[int], SignedBytes]


@dataclass(frozen=True)
class MappingDraft:
    """(program digest, numerics) -> key. ``constants`` are the digests of the lifted constants, in order."""

    program_digest: bytes
    numerics: str
    key: int
    binding: SignedBytes
    constants: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class MappingRecord:
    """A stored graph mapping of one epoch."""

    program_digest: bytes
    numerics: str
    key: int
    binding: SignedBytes
    epoch: int
    created_at: int


@dataclass(frozen=True)
class Blob:
    """Bytes under their SHA-256."""

    digest: bytes
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class GraphDraft:
    """Everything that one transaction stores of a program: spec, key, mapping and lifted constants.

    ``constants`` are in the order of the binding.
    """

    spec: SpecDraft
    program_digest: bytes
    bind: Bind = field(repr=False)
    constants: tuple[Blob, ...] = ()


@dataclass(frozen=True)
class StoredGraph:
    """The winner's spec and mapping, and which of them this call stored."""

    spec: SpecRecord
    mapping: MappingRecord
    new_spec: bool
    new_mapping: bool


@dataclass(frozen=True)
class ArtifactDraft:
    """One artifact of a kernel. ``kind`` is ``"so"``, ``"llvm"``, ``"mlir"``, ``"asm"``, ``"ptx"``, ..."""

    kind: str
    digest: bytes
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class ArtifactRef:
    """Name and size of a stored artifact."""

    kind: str
    digest: bytes
    size: int


@dataclass(frozen=True)
class KernelRecord:
    """The identity of a kernel: what its digest covers, with the spec named by its key."""

    kernel_digest: bytes
    key: int
    arg_spec: str
    guard: str
    target: str
    options: str
    toolchain: bytes


@dataclass(frozen=True)
class KernelDraft:
    """A compiled kernel, ready to be published.

    ``ingredients`` are the key's parts by name, in order. ``compile_us`` is what the compile took.
    """

    kernel: KernelRecord
    manifest: SignedBytes
    artifacts: tuple[ArtifactDraft, ...]
    ingredients: Ingredients = ()
    compile_us: int = 0


@dataclass(frozen=True)
class StoredKernel:
    """A published kernel, all of whose artifacts can be read. ``id`` rises with age: older is smaller."""

    id: int
    kernel: KernelRecord
    manifest: SignedBytes
    artifacts: tuple[ArtifactRef, ...]
    epoch: int
    compile_us: int
    created_at: int


@dataclass(frozen=True)
class Wanted:
    """A kernel for these, and bytes of its artifacts of some kinds, of at most ``most`` bytes each."""

    target: str
    options: str
    toolchain: bytes
    kinds: frozenset[str] = frozenset()
    most: int = 0


@dataclass(frozen=True)
class LoadedKernel:
    """A published kernel, and bytes of its artifacts by digest."""

    stored: StoredKernel
    contents: Mapping[bytes, bytes] = field(repr=False)


@dataclass(frozen=True)
class LoadedGraph:
    """A mapping, and the only kernel of its key that was wanted."""

    mapping: MappingRecord
    only: LoadedKernel | None


@dataclass(frozen=True)
class Published:
    """What a publish came to.

    ``inserted``: this call's kernel is the stored one. ``repaired``: how many artifacts it gave new bytes.
    ``differs``: the winner has other artifacts than those offered; a row in ``conflicts`` says so.
    """

    stored: StoredKernel
    inserted: bool
    repaired: int = 0
    differs: bool = False


@dataclass(frozen=True)
class Lease:
    """The right to compile one kernel, as its holder shows it."""

    namespace: Namespace
    kernel_digest: bytes
    holder: str
    fencing_token: int


@dataclass(frozen=True)
class LeaseState:
    """A lease as others see it. ``stages`` are those reported so far, in order.

    ``expires_in`` is in microseconds and never negative; ``held`` is false once it is released or expired.
    """

    kernel_digest: bytes
    holder: str
    fencing_token: int
    stages: tuple[str, ...]
    expires_in: int
    held: bool
    acquired_at: int


@dataclass(frozen=True)
class Failure:
    """Why a compile failed. ``reason`` is an ErrorInfo reason; ``detail`` what else the error carries."""

    reason: str
    stage: str
    diagnostic: str
    detail: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FailureRecord:
    """A remembered failure: ``count`` times so far, forgotten at ``expires_at``."""

    kernel_digest: bytes
    failure: Failure
    count: int
    first_at: int
    last_at: int
    expires_at: int


@dataclass(frozen=True)
class UsageDelta:
    """Uses of a subject since the last report: a ``"kernel"``, ``"mapping"`` or ``"spec"``, by digest; or a
    caller (``kcache_grpc.storage.contract.saved_time``).
    """

    subject: str
    digest: bytes
    hits: int
    saved_us: int = 0
    last_used_at: int = 0


@dataclass(frozen=True)
class UsageRecord:
    """All uses so far."""

    subject: str
    digest: bytes
    hits: int
    saved_us: int
    last_used_at: int


@dataclass(frozen=True)
class AuditEvent:
    """One thing that happened. Empty text, ``None`` and 0 mean "does not apply".

    ``kind``, ``outcome`` and ``origin`` are words of the service (docs/operate/audit.md). ``actor`` and
    ``job`` are what the caller says of itself, ``peer`` is what the server saw. ``request_count`` is above 1
    where one event stands for several equal requests. ``at`` 0 is filled in by the store. ``detail`` is a
    JSON text.
    """

    kind: str
    outcome: str = ""
    origin: str = ""
    actor: str = ""
    job: str = ""
    peer: str = ""
    request_id: str = ""
    request_count: int = 1
    program_digest: bytes | None = None
    spec_digest: bytes | None = None
    key: int | None = None
    kernel_digest: bytes | None = None
    target: str = ""
    toolchain: bytes | None = None
    duration_us: int = 0
    byte_count: int = 0
    saved_us: int = 0
    detail: str = ""
    at: int = 0


@dataclass(frozen=True)
class AuditRecord:
    """A stored event. ``id`` rises, with gaps. ``writer`` is the process that appended it."""

    id: int
    event: AuditEvent
    namespace_id: int = 0
    epoch: int = 0
    writer: str = ""


@dataclass(frozen=True)
class ConflictRecord:
    """A different value that was offered under a taken name. ``kind`` is ``"kernel"`` or ``"alias"``."""

    kind: str
    name: bytes
    stored: bytes
    offered: bytes
    at: int


@dataclass(frozen=True)
class Swept:
    """Objects that a sweep deleted, or would have, and their bytes; ``waiting``: dead, but too young."""

    objects: int = 0
    object_bytes: int = 0
    waiting: int = 0

    def __add__(self, other: Swept) -> Swept:
        return Swept(
            self.objects + other.objects,
            self.object_bytes + other.object_bytes,
            self.waiting + other.waiting,
        )


@dataclass(frozen=True)
class Inlined:
    """Blobs whose bytes were in the object store and are in rows now, and those that were lost there."""

    blobs: int = 0
    blob_bytes: int = 0
    lost: int = 0

    def __add__(self, other: Inlined) -> Inlined:
        return Inlined(self.blobs + other.blobs, self.blob_bytes + other.blob_bytes, self.lost + other.lost)


@dataclass(frozen=True)
class Stats:
    """Counts of one namespace.

    ``mappings``, ``kernels``, ``compile_us`` and ``failures`` are of its current epoch. ``compiles`` are
    the kernels that were ever published, ``hits`` and ``saved_us`` the uses of kernels: in all epochs, and
    whether or not they are still stored. ``specs``, ``artifacts`` and ``audit_events`` are what is stored.
    """

    specs: int
    mappings: int
    kernels: int
    artifacts: int
    artifact_bytes: int
    hits: int
    saved_us: int
    compiles: int
    compile_us: int
    failures: int
    audit_events: int
