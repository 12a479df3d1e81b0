"""Reads of similar specs and kernels, which explain hits and misses and estimate compile times.

Part of the storage contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_grpc.storage.records import Ingredients, KernelRecord, MappingRecord, Namespace

#: What a kernel of the same spec is farther away by, for each ingredient that differs. Each weighs more than
#: all before it together: first come kernels of this epoch, then of this target, toolchain, options, sizes.
#: The target before the toolchain, since CPUs and GPUs have their own toolchains.
WEIGHTS = {"guard": 1, "arg_spec": 2, "options": 4, "toolchain": 8, "target": 16, "epoch": 32}


@dataclass(frozen=True)
class SpecSize:
    """A spec by its key, and the bytes of its text."""

    key: int
    text_size: int


@dataclass(frozen=True)
class NearKernel:
    """A kernel of any epoch; ``distance`` is the sum of ``WEIGHTS`` of what differs from the one wanted.

    Its bytes may be lost. ``id`` rises with age: older is smaller.
    """

    id: int
    kernel: KernelRecord
    ingredients: Ingredients
    epoch: int
    created_at: int
    distance: int


@dataclass(frozen=True)
class CompileTime:
    """How long the compile of a stored kernel took, in microseconds, and what it was compiled for."""

    target: str
    options: str
    toolchain: bytes
    compile_us: int


class NearbyStore(ABC):
    """Reads for explanations and estimates. They cost a little for each row that is given; those for
    explanations also for each kernel of a key.
    """

    @abstractmethod
    def list_mappings(self, namespace: Namespace, key: int, limit: int = 100) -> tuple[MappingRecord, ...]:
        """Mappings to a spec in this epoch, oldest first."""

    @abstractmethod
    def list_spec_sizes(self, namespace: Namespace, text_size: int, limit: int) -> tuple[SpecSize, ...]:
        """The specs whose texts are nearest in size, nearest first, then youngest first."""

    @abstractmethod
    def list_near_kernels(
        self, namespace: Namespace, record: KernelRecord, limit: int
    ) -> tuple[NearKernel, ...]:
        """Kernels of ``record.key`` in any epoch, nearest first, then youngest first."""

    @abstractmethod
    def list_compile_times(
        self, namespace: Namespace, key: int, target: str | None, limit: int
    ) -> tuple[CompileTime, ...]:
        """Compile times of at most ``limit`` kernels of a key: those of the current epoch for ``target``, or
        with ``None`` those of all epochs and targets. Where there are more, which of them is not specified:
        the rest of the kernels is not read.
        """

    @abstractmethod
    def count_operations(self, namespace: Namespace, keys: Sequence[int]) -> Mapping[int, int]:
        """Operations in the spec of each of these keys; keys that were never given are left out. Reads the
        texts of the specs.
        """
