"""Schedule choices: what the autotuner may vary. They change the speed of a kernel, never what it computes.

A choice is part of the compile options as canonical text, ``grain:4,unroll:on``: names in order, and only
values that differ from the default. So a choice that is added later changes no kernel that does not use it.
Results stay within the numerics class: those of ``strict`` have the same bits under every choice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kcache_compiler.errors import CompileFailed
from kcache_compiler.shapes.formula import Formula, apply, mul

#: Name -> values, the default first. docs/guide/tune.md says what each changes.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "attention": ("joined", "apart"),
    "columns": ("1", "1/2", "2", "4"),
    "contraction": ("auto", "packed", "windows", "loops"),
    "depth": ("256", "128", "384", "512"),
    "direct": ("2", "0", "1", "4"),
    "fuse": ("auto", "none", "less", "more"),
    "gpu_bytes": ("16", "4", "8"),
    "gpu_columns": ("auto", "32", "64"),
    "gpu_depth": ("auto", "8", "16", "32", "64"),
    "gpu_items": ("1", "2", "4"),
    "gpu_keys": ("auto", "32", "64", "128"),
    "gpu_row": ("auto", "32", "64", "128", "256", "512", "1024"),
    "gpu_rows": ("auto", "1", "2", "4", "8"),
    "gpu_split": ("auto", "1", "2", "4", "8"),
    "gpu_stages": ("auto", "2", "3", "4", "5"),
    "gpu_threads": ("256", "128", "512"),
    "gpu_tile": ("auto", "64x64", "64x128", "128x64", "128x128", "128x256", "256x128"),
    "gpu_warps": ("auto", "4", "8", "16"),
    "grain": ("1", "1/4", "4", "16"),
    "group": ("auto", "apart", "less", "more"),
    "keys": ("256", "128", "512"),
    "launches": ("direct", "reported"),
    "panels": ("4", "1", "2", "8"),
    "recompute": ("auto", "never", "more"),
    "rows": ("4", "1", "2", "8"),
    "stream": ("auto", "2", "8", "128", "never"),
    "tile": ("auto", "4x3", "4x4", "6x4", "8x2", "8x3", "14x2"),
    "unroll": ("off", "on"),
    "vectors": ("auto", "1", "2", "4", "8"),
    "width": ("auto", "128", "256"),
}
#: Choices of kernels for CPUs and for GPUs; ``gpu_`` ones are only for GPUs, others only for CPUs.
COMMON = ("attention", "fuse", "group", "recompute")


@dataclass(frozen=True)
class FuseLimits:
    """Of elementwise fusion: operations of a body and operands of a launch at most; how many simple
    operations are computed again for each of how many readers. ``expanded``: operations of a body with those
    of the math functions that it calls.
    """

    body: int = 64
    operands: int = 12
    simple: int = 4
    users: int = 4
    expanded: int = 2048


@dataclass(frozen=True)
class GroupLimits:
    """Limits of nests that share a launch: the most operations and buffers.

    ``joins``: nests may share a launch. ``shares_rows``: a chunked reduction may share the loops of the rows
    that it reduces. ``serial``: the iterations of a nest below which one thread computes it, in a
    shared launch or not.
    """

    operations: int = 400
    buffers: int = 20
    joins: bool = True
    shares_rows: bool = True
    serial: int = 0


@dataclass(frozen=True)
class Blocks:
    """Of contractions and attention: the register tile (None: the target's own), steps of K in a block, the
    width of a block of packed B in parts of the usual, panels of rows up to which B is read unpacked.
    """

    tile: tuple[int, int] | None = None
    depth: int = 256
    columns: tuple[int, int] = (1, 1)
    direct: int = 2
    keys: int = 256
    panels: int = 4


@dataclass(frozen=True)
class GpuChoices:
    """Of kernels for GPUs; None and 0: as the defaults of the architecture have it.

    Tiles of products are rows and columns of a block, ``depth`` their steps along K, ``stages`` how many of
    these are in shared memory. ``bytes`` are those of an access of a thread, ``items`` how many of such
    chunks it has, ``row_threads`` the threads of a row, ``rows`` the rows of a block of warps, ``split`` the
    blocks that share the sums of a tile.
    """

    tile: tuple[int, int] | None = None
    depth: int = 0
    warps: int = 0
    stages: int = 0
    bytes: int = 16
    items: int = 1
    threads: int = 256
    row_threads: int = 0
    rows: int = 0
    keys: int = 0
    columns: int = 0
    split: int = 0


USUAL_GROUPS, USUAL_BLOCKS = GroupLimits(), Blocks()
_BODIES = {"auto": (64, 12), "none": (0, 0), "less": (16, 6), "more": (256, 24)}
_AGAIN = {"auto": (4, 4), "never": (0, 0), "more": (16, 8)}
_GROUPS = {
    "auto": USUAL_GROUPS,
    "apart": GroupLimits(joins=False),
    "less": GroupLimits(60, 8),
    "more": GroupLimits(1600, 40),
}


@dataclass(frozen=True)
class Choices:
    """One value for every name."""

    attention: str = "joined"
    columns: str = "1"
    contraction: str = "auto"
    depth: str = "256"
    direct: str = "2"
    fuse: str = "auto"
    gpu_bytes: str = "16"
    gpu_columns: str = "auto"
    gpu_depth: str = "auto"
    gpu_items: str = "1"
    gpu_keys: str = "auto"
    gpu_row: str = "auto"
    gpu_rows: str = "auto"
    gpu_split: str = "auto"
    gpu_stages: str = "auto"
    gpu_threads: str = "256"
    gpu_tile: str = "auto"
    gpu_warps: str = "auto"
    grain: str = "1"
    group: str = "auto"
    keys: str = "256"
    launches: str = "direct"
    panels: str = "4"
    recompute: str = "auto"
    rows: str = "4"
    stream: str = "auto"
    tile: str = "auto"
    unroll: str = "off"
    vectors: str = "auto"
    width: str = "auto"

    @property
    def unrolls(self) -> bool:
        return self.unroll == "on"

    @property
    def joins_attention(self) -> bool:
        return self.attention == "joined"

    @property
    def reports_launches(self) -> bool:
        """Whether every launch goes through the host, with its number before the closure."""
        return self.launches == "reported"

    @property
    def blocks(self) -> Blocks:
        above, _, below = self.columns.partition("/")
        return Blocks(
            _pair(self.tile),
            int(self.depth),
            (int(above), int(below or 1)),
            int(self.direct),
            int(self.keys),
            int(self.panels),
        )

    @property
    def gpu(self) -> GpuChoices:
        """The choices of GPU kernels as numbers; None for those that are not set."""
        return GpuChoices(
            _pair(self.gpu_tile),
            _number(self.gpu_depth),
            _number(self.gpu_warps),
            _number(self.gpu_stages),
            int(self.gpu_bytes),
            int(self.gpu_items),
            int(self.gpu_threads),
            _number(self.gpu_row),
            _number(self.gpu_rows),
            _number(self.gpu_keys),
            _number(self.gpu_columns),
            _number(self.gpu_split),
        )

    @property
    def fuse_limits(self) -> FuseLimits:
        return FuseLimits(*_BODIES[self.fuse], *_AGAIN[self.recompute])

    @property
    def group_limits(self) -> GroupLimits:
        return _GROUPS[self.group]

    @property
    def stream_bytes(self) -> int | None:
        """Bytes of a launch's results from which on they go past the caches; None: as the target has it."""
        if self.stream == "never":
            return 1 << 62
        return None if self.stream == "auto" else int(self.stream) << 20

    @property
    def rows_together(self) -> int:
        """Rows that one pass over accumulators in memory takes in at most."""
        return int(self.rows)

    @property
    def vectors_a_turn(self) -> int:
        """Vectors that innermost loops take in one turn; 0: as bodies have it."""
        return 0 if self.vectors == "auto" else int(self.vectors)

    @property
    def vector_bits(self) -> int:
        """The widest vector that LLVM shall prefer; 0: its own choice for the target."""
        return 0 if self.width == "auto" else int(self.width)

    def slice_of(self, grain: Formula) -> Formula:
        """The least slice that stands for ``grain``."""
        if self.grain.startswith("1/"):
            return apply("ceildiv", grain, int(self.grain[2:]))
        return mul(grain, int(self.grain))

    def is_whole(self, extent: Formula, grain: Formula) -> bool:
        """Whether a launch is always one slice: shorter than two, and run without asking the host."""
        least = self.slice_of(grain)
        if self.reports_launches or not isinstance(extent, int) or not isinstance(least, int):
            return False
        return extent < 2 * least


def require_choices(text: str, gpu: bool) -> None:
    """Raises ``CompileFailed`` for choices that kernels for a GPU, or for a CPU, do not know."""
    parse_choices(text)
    for name in (part.partition(":")[0] for part in filter(None, text.split(","))):
        if name not in COMMON and name.startswith("gpu_") != gpu:
            kinds = ("CPUs", "GPUs") if gpu else ("GPUs", "CPUs")
            said = f"{name} is a choice of kernels for {kinds[0]}, and this one is for {kinds[1]}"
            raise CompileFailed("schedule", f"{said}: leave it out")


def _pair(text: str) -> tuple[int, int] | None:
    first, _, second = text.partition("x")
    return None if text == "auto" else (int(first), int(second))


def _number(text: str) -> int:
    return 0 if text == "auto" else int(text)


@functools.lru_cache(maxsize=256)
def parse_choices(text: str) -> Choices:
    """The choices of canonical text; raises ``CompileFailed`` for a name or value that is none."""
    given: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition(":")
        if value not in CHOICES.get(name, ()):
            raise CompileFailed("schedule", f"{part!r} is no schedule choice of this compiler")
        given[name] = value
    make: Callable[..., Choices] = Choices
    return make(**given)
