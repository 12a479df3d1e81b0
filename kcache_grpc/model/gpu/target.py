"""GPU targets: which GPU a kernel is for, which GPUs run it, and which drivers take its PTX."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_grpc.errors import ArgumentError

#: Architecture -> the lowest PTX version that has it, which is what kernels are emitted in.
_PTX: dict[str, tuple[int, int]] = {
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
GPU_TARGETS = tuple(_PTX)

#: CUDA version of a driver -> the newest PTX version that it compiles; newest first.
_DRIVERS = (
    ((13, 1), (9, 1)),
    ((13, 0), (9, 0)),
    ((12, 9), (8, 8)),
    ((12, 8), (8, 7)),
    ((12, 7), (8, 6)),
    ((12, 5), (8, 5)),
    ((12, 4), (8, 4)),
    ((12, 3), (8, 3)),
    ((12, 2), (8, 2)),
    ((12, 1), (8, 1)),
    ((12, 0), (8, 0)),
    ((11, 8), (7, 8)),
    ((11, 7), (7, 7)),
    ((11, 6), (7, 6)),
    ((11, 5), (7, 5)),
    ((11, 4), (7, 4)),
    ((11, 3), (7, 3)),
    ((11, 2), (7, 2)),
    ((11, 1), (7, 1)),
    ((11, 0), (7, 0)),
    ((10, 2), (6, 5)),
    ((10, 1), (6, 4)),
    ((10, 0), (6, 3)),
)

Version = tuple[int, int]


@dataclass(frozen=True)
class GpuTarget:
    """An NVIDIA GPU by architecture. The suffix ``a`` names only one GPU, ``f`` a family of them."""

    arch: str

    def __post_init__(self) -> None:
        if self.arch not in _PTX:
            raise ArgumentError(f"unknown GPU target {self.arch!r}; use one of {', '.join(GPU_TARGETS)}")

    @property
    def ptx(self) -> Version:
        """Version of the PTX that is emitted for it."""
        return _PTX[self.arch]

    @property
    def ptx_version(self) -> str:
        """The same, as PTX itself says it."""
        return text_of(self.ptx)

    @property
    def capability(self) -> Version:
        """The compute capability that it is made for."""
        digits = self.arch.removeprefix("sm_").rstrip("af")
        return int(digits[:-1]), int(digits[-1])

    @property
    def exact(self) -> bool:
        """Whether it runs only on this compute capability."""
        return self.arch.endswith("a")

    @property
    def family(self) -> bool:
        """Whether it runs only on this major version, from this minor version on."""
        return self.arch.endswith("f")

    def runs_on(self, capability: Version) -> bool:
        """Whether a GPU of this compute capability runs the PTX."""
        if self.exact:
            return capability == self.capability
        if self.family:
            return capability[0] == self.capability[0] and capability >= self.capability
        return capability >= self.capability

    def cubin_runs_on(self, capability: Version) -> bool:
        """Whether it runs the cubin: never on another major version."""
        return self.runs_on(capability) and capability[0] == self.capability[0]

    @property
    def needs(self) -> str:
        """What a GPU must be, for people."""
        at = text_of(self.capability)
        if self.exact:
            return f"compute capability {at} exactly"
        return f"compute capability {self.capability[0]}.x from {at}" if self.family else f"{at} or later"

    def __str__(self) -> str:
        return self.arch


def newest_ptx(cuda: Version) -> Version | None:
    """The newest PTX version that a driver for ``cuda`` compiles; None for drivers before CUDA 10.0.

    For drivers newer than this table it is the newest that the table has: a lower bound.
    """
    return next((ptx for version, ptx in _DRIVERS if cuda >= version), None)


def oldest_driver(ptx: Version) -> Version:
    """The lowest CUDA version whose driver compiles this PTX version."""
    return min(version for version, known in _DRIVERS if known >= ptx)


def text_of(version: Version) -> str:
    """``major.minor``."""
    return f"{version[0]}.{version[1]}"
