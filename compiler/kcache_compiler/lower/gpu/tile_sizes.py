"""How much of a GPU each form of kernel takes: static defaults of an architecture, choices in their place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.gpu_targets import GPU_TARGETS, WARP_SIZE, GpuTarget
from kcache_compiler.schedule.choices import GpuChoices, parse_choices

#: Bytes of shared memory that the system keeps of what a block may ask for.
RESERVED = 1024
#: Elements that a thread of plain arithmetic may own along each axis of a tile.
OWN = (4, 8)
#: Rows and columns of a matrix instruction's operands that are loaded together; rows of warps of a tile.
STEP, WARP_ROWS = 16, 2


@dataclass(frozen=True)
class Tile:
    """What a block computes: ``m`` by ``n`` elements of C, ``k`` products of each at a time."""

    m: int
    n: int
    k: int
    threads: int
    #: Elements that a thread of plain arithmetic owns along each axis; 0: matrix instructions.
    own: int = 0
    #: Pairs of tiles in shared memory where operands are copied past the registers; else there are 2.
    stages: int = 2


@dataclass(frozen=True)
class Defaults:
    """Of one architecture: tiles of products, keys of a step and columns of a block of attention."""

    matrix: Tile = Tile(128, 128, 32, 256, stages=3)
    small_matrix: Tile = Tile(64, 64, 32, 128, stages=4)
    plain: Tile = Tile(64, 64, 16, 256, own=4)
    large_plain: Tile = Tile(128, 128, 8, 256, own=8)
    keys: int = 64
    plain_keys: int = 32
    columns: int = 128
    plain_columns: int = 64


_USUAL = Defaults()
#: By compute capability. All are equal: none was measured yet.
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
        """Bytes of shared memory that a block may have."""
        return self.gpu.shared_opt_in - RESERVED

    def tile(self, matrix: bool, large: bool) -> Tile:
        """Of a product. Raises ``CompileFailed`` for choices that no kernel is made of."""
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
        made = replace(tile, m=m, n=n, k=chosen.depth or tile.k, threads=threads)
        made = replace(made, stages=chosen.stages or tile.stages) if matrix else _plain(made)
        return _checked(made, matrix)


def _threads(m: int, n: int, matrix: bool) -> int:
    """Where only the tile is chosen: so that a thread has 64 sums of C, of small tiles fewer."""
    if matrix:
        return max(128, min(256, m * n // 64))
    return m * n // (64 if m * n >= 8192 else 16)


def _plain(tile: Tile) -> Tile:
    return replace(tile, own=isqrt(tile.m * tile.n // tile.threads))


def _checked(tile: Tile, matrix: bool) -> Tile:
    where = f"{tile.m} x {tile.n} x {tile.k} by {tile.threads // WARP_SIZE} warps"
    if matrix:
        across = tile.threads // WARP_SIZE // WARP_ROWS
        fits = tile.m % (WARP_ROWS * STEP) == 0 and tile.n % (across * STEP) == 0
        if not fits or tile.k % STEP:
            raise rejected(f"matrix instructions do not divide a tile of {where}")
    elif tile.own not in OWN or tile.own**2 * tile.threads != tile.m * tile.n or tile.k % (STEP // tile.own):
        raise rejected(f"threads of plain arithmetic own 4 x 4 or 8 x 8 elements, not those of {where}")
    if min(tile.m, tile.n) * tile.k % tile.threads:
        raise rejected(f"threads do not share the operands of a tile of {where} evenly")
    return tile


def rejected(why: str) -> CompileFailed:
    """The error of choices that are not for this program or target."""
    return CompileFailed("schedule", f"{why}; leave the choice out, or let kcache autotune find others")


@lru_cache(maxsize=256)
def sizes_for(gpu: GpuTarget, schedule: str) -> Sizes:
    """Raises ``CompileFailed`` for a text that is no schedule."""
    return Sizes(gpu, parse_choices(schedule).gpu)
