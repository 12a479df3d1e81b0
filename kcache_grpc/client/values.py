"""What the graph operations give: frozen, with documented fields."""

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
    #: Sizes of the symbols in this program, in their order; -1 where it leaves the axis open.
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
class Stats:
    """Counters of a namespace, and of this client."""

    specs: int
    mappings: int
    kernels: int
    artifacts: int
    artifact_bytes: int
    #: Kernels that the service handed out without a compile, and compiles that it published.
    hits: int
    compiles: int
    remembered_failures: int
    #: Seconds of compiling that hits saved.
    seconds_saved: float
    #: Since the service started: programs parsed, and hits from its memory.
    programs_parsed: int
    memory_hits: int
    #: Events in the audit log, and requests that the service did not write there since it started.
    audit_events: int
    audit_dropped: int
    #: What this client counted, by name: hits by tier, retries, fallbacks, corrupt entries and so on.
    client: Mapping[str, int]
