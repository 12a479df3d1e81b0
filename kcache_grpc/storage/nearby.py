"""What is stored near something: the reads that explain hits and misses. Part of the storage contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from kcache_grpc.storage.records import Ingredients, KernelRecord, MappingRecord, Namespace

#: What a kernel of the same spec is farther away by, for each ingredient that differs. Each weighs more than
#: all before it together: first come kernels of this epoch, then of this target, toolchain, options, sizes.
#: The target before the toolchain, since CPUs and GPUs have toolchains of their own.
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


class NearbyStore(ABC):
    """Reads for explanations. They cost a little for each row that is given, and for each kernel of a key."""

    @abstractmethod
    def list_mappings(self, namespace: Namespace, key: int, limit: int = 100) -> tuple[MappingRecord, ...]:
        """Mappings to a spec in this epoch, oldest first."""

    @abstractmethod
    def list_spec_sizes(self, namespace: Namespace, text_size: int, limit: int) -> tuple[SpecSize, ...]:
        """The specs whose texts are nearest in size, nearest first, then youngest first."""

    @abstractmethod
    def list_near_kernels(
        self, namespace: Namespace, wanted: KernelRecord, limit: int
    ) -> tuple[NearKernel, ...]:
        """Kernels of ``wanted.key`` in any epoch, nearest first, then youngest first."""
