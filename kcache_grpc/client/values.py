"""The results of the graph operations: frozen, with documented fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kcache_grpc.model.manifest import ConstantBinding, SymbolSpec, TensorSpec
from kcache_grpc.model.options import Options
from kcache_grpc.model.target import Target


@dataclass(frozen=True)
class CanonicalGraph:
    """A program as the cache sees it: without names, locations and irrelevant order."""

    #: The canonical text. Its first line names the canonicalizer's version and the numerics class.
    text: str = field(repr=False)
    #: SHA-256 of the text, 32 bytes: equal for programs that share a key.
    digest: bytes
    #: Sizes that are not part of the graph, each with the axis that it is read from.
    symbols: tuple[SymbolSpec, ...]
    #: Dtype and shape of every argument, such as ``f32[4,8];i32[]``.
    arg_spec: str
    #: The same, in the program's order.
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arg_names: tuple[str, ...]
    #: Large constants that became arguments, in buffer order.
    constants: tuple[ConstantBinding, ...]
    #: Sizes of the symbols in this program, in their order; -1 for a dynamic axis.
    symbol_values: tuple[int, ...]
    #: The inputs as the text has them: equal symbols are equal sizes.
    symbolic_inputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Spec:
    """A stored canonical graph. Specs and their keys are permanent."""

    #: From 1, in the namespace.
    key: int
    #: SHA-256 of the text, 32 bytes.
    digest: bytes
    #: The canonical text, as ``CanonicalGraph.text``.
    text: str = field(repr=False)
    #: ``strict``, ``default`` or ``fast``.
    numerics: str
    #: Version of the canonicalizer that made it.
    canonicalizer: int
    #: When its key was given, UTC.
    created: datetime
    #: The key that this one stands for now: a lower one where a newer canonicalizer made two keys one.
    current_key: int


@dataclass(frozen=True)
class KernelSummary:
    """What tells a stored kernel from the others of its key."""

    #: SHA-256 over spec, arg spec, guard, target, options and toolchain, 32 bytes.
    digest: bytes
    #: The sizes that it was compiled for, such as ``f32[4,8]`` or ``f32[s0,8]``.
    arg_spec: str
    #: For which values of the symbols it may be used; empty: for all.
    guard: str
    target: Target
    options: Options
    #: SHA-256 over the toolchain's ingredients, 32 bytes.
    toolchain_digest: bytes
    #: When it was published, UTC.
    created: datetime
    compile_seconds: float


@dataclass(frozen=True)
class Saving:
    """Compile time that hits saved to one caller."""

    #: Who asked, and what for, as the requests said; empty: they said nothing.
    actor: str
    job: str
    #: Kernels that were handed out without a compile of their own.
    hits: int
    #: Seconds that the compiles of these kernels took.
    seconds_saved: float
    #: When the last of them was handed out, UTC; ``None`` where that is not recorded.
    last: datetime | None = None


@dataclass(frozen=True)
class Stats:
    """Counters of a namespace at the service, of this client, and of this machine's cache directory."""

    #: Stored now: specs of all epochs; mappings and kernels of the present one; artifacts and their bytes.
    specs: int
    mappings: int
    kernels: int
    artifacts: int
    artifact_bytes: int
    #: Since the namespace was created, in all epochs: kernels that the service handed out without a compile,
    #: and compiles that it published. Hits in the memory or on the disk of a client do not reach the service.
    hits: int
    compiles: int
    #: Failed compiles of the current epoch that are remembered now.
    remembered_failures: int
    #: Seconds of compiling that hits saved, since the namespace was created.
    seconds_saved: float
    #: Since the service started: programs parsed, and hits from its memory.
    programs_parsed: int
    memory_hits: int
    #: Events in the audit log, and requests that the service did not write there since it started.
    audit_events: int
    audit_dropped: int
    #: What this client counted, by name: hits by tier, retries, fallbacks, corrupt entries and so on.
    client: Mapping[str, int]
    #: Kernels that all processes with this cache directory have got, by origin (``memory_kernels``,
    #: ``disk_kernels``, ``remote_kernels``, ``compiled_kernels``), from any service, since the time ``since``
    #: (ISO 8601). Empty where nothing was counted yet. Clients that still run count at most a minute later.
    local: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])
    #: Of ``seconds_saved``, by actor and job, most time first; at most 100 callers. Counted since the service
    #: has kept them by caller.
    savings: tuple[Saving, ...] = ()
    #: Compile requests that bypassed the cache of the service since it started, by reason.
    bypasses: Mapping[str, int] = field(default_factory=dict[str, int])
    #: Of all processes with this cache directory, as ``local``: seconds of compiling that kernels saved, by
    #: their origin (``compiled``: those that another request compiled); the same by actor and job, with hits
    #: in memory, on disk and at services; and programs that bypassed the cache, by reason.
    local_seconds_saved: Mapping[str, float] = field(default_factory=dict[str, float])
    local_savings: tuple[Saving, ...] = ()
    local_bypasses: Mapping[str, int] = field(default_factory=dict[str, int])
    #: Values of ``BlobCache`` stored now, and their bytes; since the namespace was created, how many were
    #: handed out, and the seconds of producing them that this saved.
    blobs: int = 0
    blob_bytes: int = 0
    blob_hits: int = 0
    blob_seconds_saved: float = 0.0
    #: Of the current epoch: assertions of source digests stored now, and their bytes, those in quarantine
    #: included; records that an actor offered after another one; and assertions put into quarantine.
    assertions: int = 0
    assertion_bytes: int = 0
    assertion_conflicts: int = 0
    assertions_quarantined: int = 0

    @property
    def hit_ratio(self) -> float | None:
        """Share of kernels that the service handed out without a compile; ``None`` without any."""
        asked = self.hits + self.compiles
        return self.hits / asked if asked else None
