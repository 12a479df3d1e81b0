"""Arguments and results of the use cases."""

from __future__ import annotations

import enum
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

from kcache_grpc.errors import ArgumentError, NotFound
from kcache_grpc.model.evidence import Witness, witness_in
from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.manifest import ArtifactRef, Binding
from kcache_grpc.model.options import Options
from kcache_grpc.model.program import Program
from kcache_grpc.model.signing import Signed
from kcache_grpc.model.sizes.modes import EXACT, ShapeRequirements
from kcache_grpc.model.target import Target
from kcache_grpc.model.variants import SpecSizes, spec_sizes
from kcache_grpc.storage.records import FailureRecord, SpecRecord, StoredKernel


class ProgramRequired(NotFound):
    """The digest is not known here; the same request with the program's bytes will do."""

    @property
    def reason(self) -> str:
        """``PROGRAM_REQUIRED``: a refinement of ``NOT_FOUND``."""
        return "PROGRAM_REQUIRED"


class BeyondEnd(ArgumentError):
    """An offset beyond the end of what is there."""


#: A program, or the digest of one that the service may know.
GraphSource = Program | bytes


def check_digest(digest: bytes, field: str) -> bytes:
    """``digest``, a SHA-256. Raises ``ArgumentError`` that names ``field``."""
    if len(digest) != 32:
        raise ArgumentError(f"{field} has {len(digest)} bytes instead of 32", field=field)
    return digest


def source_digest(source: GraphSource) -> bytes:
    """Of the program that ``source`` is or names. Raises ``ArgumentError``."""
    return source.digest if isinstance(source, Program) else check_digest(source, "program_digest")


@dataclass(frozen=True)
class Principal:
    """Who calls, as the server authenticated it. ``role``: what its token is for; empty for none."""

    name: str
    role: str = ""


#: Callers of a server without tokens: on its Unix socket, whose directory admits only the server's user,
#: and by TCP, who may be any user of the machine. ``SHARED``: callers with the token that all share.
LOCAL, ANONYMOUS, SHARED = Principal("local"), Principal("anonymous"), Principal("token")


class Caller(NamedTuple):
    """Who asks, for the audit log, and in which namespace.

    ``actor`` and ``job`` are what the caller says of itself, ``peer`` is what the server saw, ``principal``
    is who it was authenticated as. ``started``: ``time.perf_counter`` when the request came in; 0: unknown.
    """

    namespace: str = "default"
    request_id: str = ""
    client: str = ""
    peer: str = ""
    actor: str = ""
    job: str = ""
    started: float = 0.0
    principal: Principal = LOCAL

    @property
    def turn(self) -> str:
        """Whose turn it is when callers wait for the same: a connection, and who shares it."""
        return f"{self.peer} {self.actor}"


@dataclass(frozen=True)
class Limits:
    """What is rejected, and how long things may take; ``GetCapabilities`` tells."""

    program_bytes: int = 64 << 20
    inline_program_bytes: int = 3 << 20
    operations: int = 100_000
    nesting: int = 64
    queries: int = 4096
    inline_artifact_bytes: int = 16 << 20
    normalize_seconds: float = 60.0
    compile_seconds: float = 300.0
    default_deadline_seconds: float = 600.0
    namespaces: int = 1000
    assertion_bytes: int = 1 << 20


@dataclass(frozen=True)
class KnownGraph:
    """A stored mapping: what a repeat of a program needs. ``arg_spec`` is for exactly its own sizes.

    The rest of the binding is parsed for who asks for it.
    """

    program_digest: bytes
    key: int
    spec_digest: bytes
    arg_spec: str
    binding: Signed
    canonicalizer: int = 1

    @cached_property
    def sizes(self) -> SpecSizes:
        """Of its spec. Raises ``IntegrityError`` for a binding of a later version."""
        return spec_sizes(Binding.from_bytes(self.binding.payload))

    @property
    def witness(self) -> Witness:
        """What the program shows of its spec's sizes. Raises ``IntegrityError``."""
        return witness_in(self.binding.payload)


@dataclass(frozen=True)
class KnownKernel:
    """A stored kernel. ``compile_us`` is what it took, and what each use saves."""

    digest: bytes
    manifest: Signed
    artifacts: tuple[ArtifactRef, ...]
    compile_us: int
    #: A bundle brought it here.
    preloaded: bool = False

    @property
    def origin(self) -> Origin:
        """Of those who get it as it is stored."""
        return Origin.PRELOADED if self.preloaded else Origin.STORED

    def wanted(self, kinds: frozenset[str]) -> list[ArtifactRef]:
        """Those of its artifacts that a caller asks for."""
        return [ref for ref in self.artifacts if ref.kind in kinds]


@dataclass(frozen=True)
class Normalized:
    """A canonical graph. ``binding.key`` is 0 unless the graph was stored before."""

    text: str = field(repr=False)
    binding: Binding = field(repr=False)


@dataclass(frozen=True)
class Stored:
    """The answer to a store; ``created``: this call gave the key.

    ``elsewhere``: another server has just stored it, and may be compiling.
    """

    graph: KnownGraph
    created: bool
    elsewhere: bool = False


@dataclass(eq=False)
class Found:
    """A kernel for a query. Equal queries get the same object while it is in memory.

    ``encoded`` is for who sends it: the form on the wire, made once.
    """

    graph: KnownGraph
    kernel: KnownKernel
    inline: tuple[tuple[ArtifactRef, bytes], ...] = field(default=(), repr=False)
    encoded: bytes = field(default=b"", repr=False)

    @property
    def inline_bytes(self) -> int:
        """Bytes of all inline artifacts."""
        return sum(len(content) for _, content in self.inline)


@dataclass(frozen=True)
class Missing:
    """No kernel. ``graph`` is ``None`` when the program itself is not known."""

    graph: KnownGraph | None
    failure: FailureRecord | None = None


@dataclass(frozen=True)
class StoredSpec:
    """A stored spec, and the key that its key stands for now."""

    record: SpecRecord
    current_key: int


@dataclass(frozen=True)
class KernelPage:
    """Some kernels of a key, youngest first, and what asks for the next ones."""

    kernels: tuple[StoredKernel, ...]
    next_token: str


class Origin(enum.Enum):
    """Where the kernel of a compile came from."""

    STORED = "stored"
    COMPILED = "compiled"
    JOINED = "joined"
    PRELOADED = "preloaded"


@dataclass(frozen=True)
class Stage:
    """A stage began, after ``earlier`` ones that nobody was told of yet.

    ``expected``: estimate of the seconds that the whole compile takes.
    """

    name: str
    earlier: tuple[str, ...] = ()
    expected: float | None = None


@dataclass(eq=False)
class Answer:
    """The kernel for all who ask for it at the same time; ``origin``: as the first of them is told.

    ``encoded`` is for who sends it: forms on the wire by what they depend on, each made once.
    """

    graph: KnownGraph
    kernel: KnownKernel
    origin: Origin
    encoded: dict[Hashable, bytes] = field(default_factory=dict[Hashable, bytes], repr=False)
    #: Forms that are kept: those of the first who ask.
    MOST_ENCODED: ClassVar[int] = 3


@dataclass(frozen=True)
class Compiled:
    """The end of a compile; ``stages`` began and were not told of before."""

    answer: Answer
    origin: Origin
    stages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Capabilities:
    """What this service is and can do."""

    server_version: str
    public_key: bytes
    epoch: int
    toolchains: Toolchains
    formats: tuple[str, ...]
    targets: tuple[Target, ...]
    limits: Limits
    canonicalizer: int
    #: Whether requests that leave it to the namespace may get kernels for lower targets.
    compatible_targets: bool = False
    #: Digests of those toolchains that the namespace has disowned.
    disowned: frozenset[bytes] = frozenset()


@dataclass(frozen=True)
class KernelRequirements:
    """What a request requires of a kernel. ``witnesses``: what the evidence that ``shapes`` names shows.

    ``compatible``: whether a stored kernel for a lower target will do; ``None``: as the namespace says.
    """

    target: Target
    options: Options
    shapes: ShapeRequirements = EXACT
    witnesses: tuple[Witness, ...] = field(default=(), compare=False)
    compatible: bool | None = False

    def within(self, allowed: bool) -> KernelRequirements:
        """The requirements in a namespace that allows lower targets, or not, where that is left to it."""
        if self.compatible is None:
            return self._allowing if allowed else self._exact
        return self

    @cached_property
    def _allowing(self) -> KernelRequirements:
        return replace(self, compatible=True)

    @cached_property
    def _exact(self) -> KernelRequirements:
        return replace(self, compatible=False)
