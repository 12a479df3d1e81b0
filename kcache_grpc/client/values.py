"""What the graph operations give: frozen, with documented fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kcache_grpc.model.manifest import ConstantBinding, SymbolSpec, TensorSpec


@dataclass(frozen=True)
class CanonicalGraph:
    """A program as the cache sees it: without names, locations and irrelevant order."""

    #: The canonical text. Its first line names the canonicalizer's version and the numerics class.
    text: str = field(repr=False)
    #: SHA-256 of the text, 32 bytes: equal for programs that share a key.
    digest: bytes
    #: Sizes that are known when a kernel is called.
    symbols: tuple[SymbolSpec, ...]
    #: Dtype and shape of every argument, such as ``f32[4,8];i32[]``.
    arg_spec: str
    #: The same, in the program's order.
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arg_names: tuple[str, ...]
    #: Large constants that became arguments, in buffer order.
    constants: tuple[ConstantBinding, ...]


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
    #: What this client counted, by name: hits by tier, retries, fallbacks, corrupt entries and so on.
    client: Mapping[str, int]
