"""Targets of GPU kernels: NVIDIA architectures, their features and limits.

An allow-list: LLVM treats an unknown ``sm_`` name as its oldest GPU, and aborts the process for a feature
that an architecture lacks. Figures are from the CUDA C++ programming guide and the PTX ISA.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kcache_compiler.errors import CompileFailed

TRIPLE = "nvptx64-nvidia-cuda"
WARP_SIZE = 32
#: Maximum parameters of a launch, of 8 bytes each.
MAX_PARAMETERS = 512
#: Maximum bytes of static ``.shared`` variables.
STATIC_SHARED = 48 << 10


class Reach(Enum):
    """The GPUs that run the PTX of an architecture."""

    #: Its own compute capability and all later ones.
    FORWARD = "forward"
    #: Later minor versions of its major one: the suffix ``f``.
    FAMILY = "family"
    #: Its own compute capability alone: the suffix ``a``.
    EXACT = "exact"


@dataclass(frozen=True)
class GpuTarget:
    """An architecture by name; ``capability`` and ``ptx`` are (major, minor).

    ``ptx`` is the lowest PTX version that has the architecture, and the emitted one, which the most drivers
    accept. ``shared_opt_in`` is the maximum shared memory of a block in bytes, ``threads`` and
    ``shared_total`` are the limits of a multiprocessor. ``multiprocessors`` is their number on a large GPU of
    the architecture, for schedules only.
    """

    name: str
    capability: tuple[int, int]
    ptx: tuple[int, int]
    reach: Reach
    shared_opt_in: int
    shared_total: int
    threads: int
    multiprocessors: int
    triple: str = TRIPLE

    @property
    def cp_async(self) -> bool:
        """``cp.async``: asynchronous copies from global to shared memory."""
        return self.capability >= (8, 0)

    @property
    def ptx_version(self) -> str:
        """The PTX version as in ``.version``."""
        return "{}.{}".format(*self.ptx)

    def __str__(self) -> str:
        return self.name


#: Capability -> maximum KiB of shared memory of a block and of a multiprocessor, and its threads. 8.8 and
#: 11.0 have the values of similar architectures: schedules may depend on them, correctness does not, since
#: the runtime queries the device.
_SIZES = {
    (7, 5): (64, 64, 1024),
    (8, 0): (163, 164, 2048),
    (8, 6): (99, 100, 1536),
    (8, 7): (163, 164, 1536),
    (8, 8): (99, 100, 1536),
    (8, 9): (99, 100, 1536),
    (9, 0): (227, 228, 2048),
    (10, 0): (227, 228, 2048),
    (10, 3): (227, 228, 2048),
    (11, 0): (227, 228, 1536),
    (12, 0): (99, 100, 1536),
    (12, 1): (99, 100, 1536),
}
#: Capability -> multiprocessors: T4, A100, A40, Orin, and so on; 8.8 as 8.7.
_MULTIPROCESSORS = {
    (7, 5): 40,
    (8, 0): 108,
    (8, 6): 84,
    (8, 7): 16,
    (8, 8): 16,
    (8, 9): 142,
    (9, 0): 132,
    (10, 0): 148,
    (10, 3): 148,
    (11, 0): 20,
    (12, 0): 170,
    (12, 1): 48,
}
_REACHES = {"a": Reach.EXACT, "f": Reach.FAMILY}
#: Name -> lowest PTX version.
_VERSIONS = {
    "sm_75": (6, 3),
    "sm_80": (7, 0),
    "sm_86": (7, 1),
    "sm_87": (7, 4),
    "sm_88": (9, 0),
    "sm_89": (7, 8),
    "sm_90": (7, 8),
    "sm_90a": (8, 0),
    "sm_100": (8, 6),
    "sm_100a": (8, 6),
    "sm_100f": (8, 8),
    "sm_103": (8, 8),
    "sm_103a": (8, 8),
    "sm_103f": (8, 8),
    "sm_110": (9, 0),
    "sm_110a": (9, 0),
    "sm_110f": (9, 0),
    "sm_120": (8, 7),
    "sm_120a": (8, 7),
    "sm_120f": (8, 8),
    "sm_121": (8, 8),
    "sm_121a": (8, 8),
    "sm_121f": (8, 8),
}


def _target(name: str, ptx: tuple[int, int]) -> GpuTarget:
    digits = name.removeprefix("sm_").rstrip("af")
    capability = (int(digits[:-1]), int(digits[-1]))
    opt_in, total, threads = _SIZES[capability]
    reach = _REACHES.get(name[-1], Reach.FORWARD)
    limits = opt_in << 10, total << 10, threads
    return GpuTarget(name, capability, ptx, reach, *limits, _MULTIPROCESSORS[capability])


#: Supported targets, by name.
GPU_TARGETS: dict[str, GpuTarget] = {name: _target(name, ptx) for name, ptx in _VERSIONS.items()}


def is_gpu(name: str) -> bool:
    """Whether a target's name is that of a GPU, supported or not."""
    return name.startswith("sm_")


def gpu_target_named(name: str) -> GpuTarget:
    """The target ``name``; raises ``CompileFailed`` for an unknown name."""
    if name not in GPU_TARGETS:
        raise CompileFailed("target", f"unknown target {name!r}; known: {', '.join(GPU_TARGETS)}")
    return GPU_TARGETS[name]
