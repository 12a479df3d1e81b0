"""Tile sizes of GPU kernels: defaults of an architecture, which schedule choices override."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.gpu_targets import GPU_TARGETS, WARP_SIZE, GpuTarget
from kcache_compiler.schedule.choices import GpuChoices, parse_choices

#: Bytes of a block's shared memory that the system reserves.
RESERVED = 1024
#: Supported register tile sizes of a thread, along each axis, of FMA tiles.
OWN = (4, 8)
#: Rows and columns of an operand that are loaded by one matrix instruction; rows of warps of a tile.
STEP, WARP_ROWS = 16, 2
#: Most rows of a product for tiles of few rows.
FEW_ROWS = 16


@dataclass(frozen=True)
class Tile:
    """The tile of a block: ``m`` by ``n`` elements of C, ``k`` products of each per step."""

    m: int
    n: int
    k: int
    threads: int
    #: Elements of a thread along each axis of an FMA tile; 0: an MMA tile.
    own: int = 0
    #: Pipeline stages in shared memory with asynchronous copies; otherwise there are 2.
    stages: int = 2

    @property
    def warp_rows(self) -> int:
        """Rows of warps of an MMA tile."""
        return 1 if self.m == STEP else WARP_ROWS


@dataclass(frozen=True)
class Defaults:
    """Defaults of an architecture: tiles of products, keys of a step and columns of a block of attention."""

    matrix: Tile = Tile(128, 128, 32, 256, stages=3)
    small_matrix: Tile = Tile(64, 64, 32, 128, stages=4)
    plain: Tile = Tile(64, 64, 16, 256, own=4)
    large_plain: Tile = Tile(128, 128, 8, 256, own=8)
    #: Tiles of few rows, of which loads of B take the time; FMA tiles by the most rows.
    few_matrix: Tile = Tile(16, 64, 64, 128, stages=4)
    few_plain: tuple[Tile, ...] = (
        Tile(4, 128, 16, 32, own=4),
        Tile(8, 128, 16, 64, own=4),
        Tile(16, 64, 16, 64, own=4),
    )
    keys: int = 64
    plain_keys: int = 32
    columns: int = 128
    plain_columns: int = 64


_USUAL = Defaults()
#: Defaults by compute capability. All are equal: none has been tuned.
DEFAULTS: dict[tuple[int, int], Defaults] = {target.capability: _USUAL for target in GPU_TARGETS.values()}


@dataclass(frozen=True)
class Sizes:
    """The defaults of a target, and the choices of a schedule."""

    gpu: GpuTarget
    choices: GpuChoices

    @property
    def defaults(self) -> Defaults:
        return DEFAULTS[self.gpu.capability]

    @property
    def room(self) -> int:
        """Bytes of shared memory that a block may allocate."""
        return self.gpu.shared_opt_in - RESERVED

    def few_rows_tile(self, matrix: bool, rows: int, wide: str) -> Tile | None:
        """The tile of a product of ``rows`` rows; None for more than a few, or if a schedule has a tile."""
        chosen = self.choices
        if rows > FEW_ROWS or chosen.tile or chosen.depth or chosen.warps or chosen.stages:
            return None
        if matrix:
            return self.defaults.few_matrix
        tile = next(tile for tile in self.defaults.few_plain if rows <= tile.m)
        return replace(tile, k=tile.k // 2) if wide == "f64" else tile

    def tile(self, matrix: bool, large: bool) -> Tile:
        """The tile of a product. Raises ``CompileFailed`` for unsupported choices."""
        defaults, chosen = self.defaults, self.choices
        if matrix:
            tile = defaults.matrix if large else defaults.small_matrix
        else:
            tile = defaults.large_plain if large else defaults.plain
        if chosen.tile is None and not (chosen.depth or chosen.warps or chosen.stages):
            return tile
        m, n = chosen.tile or (tile.m, tile.n)
        threads = chosen.warps * WARP_SIZE or (
            tile.threads if chosen.tile is None else _threads(m, n, matrix)
        )
        chosen_tile = replace(tile, m=m, n=n, k=chosen.depth or tile.k, threads=threads)
        chosen_tile = (
            replace(chosen_tile, stages=chosen.stages or tile.stages) if matrix else _plain(chosen_tile)
        )
        return _checked(chosen_tile, matrix)


def _threads(m: int, n: int, matrix: bool) -> int:
    """The threads of a chosen tile, for 64 sums per thread, or fewer for small tiles."""
    if matrix:
        return max(128, min(256, m * n // 64))
    return m * n // (64 if m * n >= 8192 else 16)


def _plain(tile: Tile) -> Tile:
    return replace(tile, own=isqrt(tile.m * tile.n // tile.threads))


def _checked(tile: Tile, matrix: bool) -> Tile:
    description = f"{tile.m} x {tile.n} x {tile.k} by {tile.threads // WARP_SIZE} warps"
    if matrix:
        warp_columns = tile.threads // WARP_SIZE // tile.warp_rows
        fits = tile.m % (tile.warp_rows * STEP) == 0 and tile.n % (warp_columns * STEP) == 0
        if not fits or tile.k % STEP:
            raise rejected(f"matrix instructions do not divide a tile of {description}")
    elif tile.own not in OWN or tile.own**2 * tile.threads != tile.m * tile.n or tile.k % (STEP // tile.own):
        raise rejected(f"threads of plain arithmetic own 4 x 4 or 8 x 8 elements, not those of {description}")
    if min(tile.m, tile.n) * tile.k % tile.threads:
        raise rejected(f"threads do not share the operands of a tile of {description} evenly")
    return tile


def rejected(reason: str) -> CompileFailed:
    """The error for choices that do not suit this program or target."""
    return CompileFailed("schedule", f"{reason}; leave the choice out, or let kcache autotune find others")


@lru_cache(maxsize=256)
def sizes_for(gpu: GpuTarget, schedule: str) -> Sizes:
    """The sizes of a schedule. Raises ``CompileFailed`` for an invalid text."""
    return Sizes(gpu, parse_choices(schedule).gpu)
