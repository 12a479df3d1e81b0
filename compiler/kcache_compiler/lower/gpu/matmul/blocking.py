"""Tiled contractions: matching, classification of axes, and tile sizes.

``C[batch, m, n] += A[batch, m, k] * B[batch, k, n]``, where each index is a group of axes: matrix products,
batched and transposed products, convolutions, whose window axes belong to K.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kcache_compiler.llvm.gpu_targets import GpuTarget
from kcache_compiler.lower.gemm.match import GemmAxis, Groups, is_contraction, partition
from kcache_compiler.lower.gpu.kernel import begins_anywhere
from kcache_compiler.lower.gpu.matmul.loader import Walked, chunk_lanes, walk
from kcache_compiler.lower.gpu.tile_sizes import FEW_ROWS, Sizes, Tile
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import read_nest
from kcache_compiler.lower.loops.planned_launches import Planned
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.product_bodies import read_products
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.shapes.formula import Formula

#: Minimum number of products per matrix of the batch, and of rows and columns, for tiles.
FEW, NARROW = 4096, 8
#: For tiles of fewer rows or columns: minimum steps of K, of the other side, and number of products.
DEEP, WIDE, MANY = 128, 64, 32768
#: Blocks that split-K makes at most, about as many as a large GPU runs at once; minimum steps along K of a
#: part, whose time is several times that of another launch; maximum parts.
BLOCKS, PART_STEPS, PARTS = 128, 32, 8
#: The same for few rows: threads of a multiprocessor, bytes along K of a part, parts.
FEW_ROWS_THREADS, FEW_ROWS_PART, FEW_ROWS_PARTS = 256, 1024, 16
#: Most addresses that a thread computes for the next tile of B of few rows.
ADDRESSES = 16
#: Minimum bytes of an asynchronous copy.
COPIED = 4
_NARROW_FLOATS = ("f16", "bf16")


@dataclass(frozen=True)
class Operand(Walked):
    """A or B, with its access and element type."""

    access: Access
    element: str


@dataclass(frozen=True)
class Tiles:
    """The plan of a contraction: number of its segment, axes, operands, type of sums, tile."""

    segment: int
    groups: Groups
    a: Operand
    b: Operand
    wide: str
    tile: Tile

    def sizes(self, name: str) -> list[Formula]:
        """The sizes of the axes of a group."""
        axes: tuple[GemmAxis, ...] = getattr(self.groups, name)
        return [axis.size for axis in axes]

    def counters(self, depth: int, values: Mapping[str, Sequence[mlir.Value]]) -> list[mlir.Value]:
        """The counters of the shared axes from those of the groups."""
        indices = [mlir.constant(0)] * depth
        for name in ("batch", "m", "n"):
            axes: tuple[GemmAxis, ...] = getattr(self.groups, name)
            for axis, value in zip(axes, values[name], strict=True):
                indices[axis.sources[0][0]] = value
        return indices


def takes_tiles(generic: mlir.Op, shapes: Shapes, strict: bool) -> bool:
    """Whether the operation is a contraction that is large enough for tiles."""
    if strict or not is_contraction(generic):
        return False
    groups = partition(read_nest(generic, shapes)[0])
    return groups is not None and bool(groups.k) and _worthwhile(groups)


def plan_tiles(planned: Planned, sizes: Sizes, numerics: str) -> Tiles | None:
    """The plan of a group with a contraction; None if other forms are as fast or numerics are strict."""
    fused = planned.fused
    candidates = [
        (place, segment[0])
        for place, segment in enumerate(fused.segments)
        if len(segment) == 1 and read_products(planned.codes[segment[0].number].generic) is not None
    ]
    if numerics == "strict" or len(candidates) != 1 or any(len(segment) != 1 for segment in fused.segments):
        return None
    place, statement = candidates[0]
    code = planned.codes[statement.number]
    products = read_products(code.generic)
    nest = statement.nest
    if products is None or list(code.numbers) != [0, 1, 2] or nest.fixed:
        return None
    if any(not axis.parallel for axis in nest.axes[: fused.shared]):
        return None
    groups, order = partition(nest), (0, 1)
    if groups is None or not groups.k:
        return None
    few = _few(groups)
    if few == "n" or (few is None and (not groups.n or groups.n[-1].c != 1)):
        groups, order = groups.swapped, (1, 0)
    if not _worthwhile(groups):
        return None
    outer = (*groups.batch, *groups.m, *groups.n)
    if any(axis.sources[0][0] >= fused.shared for axis in outer):
        return None
    kinds = [str(mlir.element_of(code.generic.operands[number].type)) for number in order]
    matrix = (
        kinds[0] == kinds[1] and kinds[0] in _NARROW_FLOATS and sizes.gpu.cp_async and products.wide == "f32"
    )
    moved = [begins_anywhere(planned.buffers[nest.accesses[number].buffer]) for number in order]
    a = _operand(nest.accesses[order[0]], kinds[0], groups, "m", "a", moved[0])
    b = _operand(nest.accesses[order[1]], kinds[1], groups, "n", "b", moved[1])
    tile = _few_rows_tile(sizes, groups, b, matrix, products.wide) if few else None
    tile = tile or sizes.tile(matrix, _large(groups, matrix, products.wide, sizes))
    if matrix and not all(_copied(operand, rows, tile) for operand, rows in ((a, tile.m), (b, tile.n))):
        tile = replace(tile, stages=2)
    return Tiles(place, groups, a, b, products.wide, tile)


def default_split(tiles: Tiles, gpu: GpuTarget) -> int:
    """The number of parts of K: more than 1 if a static product has few tiles and many steps along K."""
    groups, tile = tiles.groups, tiles.tile
    batch, m, n, k = (groups.sizes(name) for name in ("batch", "m", "n", "k"))
    if not (isinstance(batch, int) and isinstance(m, int) and isinstance(n, int) and isinstance(k, int)):
        return 1
    blocks = batch * -(-m // tile.m) * -(-n // tile.n)
    limits = BLOCKS, PART_STEPS * tile.k, PARTS
    if tile.m <= FEW_ROWS:
        width = memory.element_bytes(mlir.type_of(tiles.b.element))
        per_multiprocessor = FEW_ROWS_THREADS // tile.threads
        limits = per_multiprocessor * gpu.multiprocessors, FEW_ROWS_PART // width, FEW_ROWS_PARTS
    most_blocks, part, most = limits
    parts = 1
    while parts < most and 2 * parts * blocks <= most_blocks and 2 * parts * part <= k:
        parts *= 2
    return parts


def _few(groups: Groups) -> str | None:
    """Which of m and n has few rows, the fewer ones of both, if K is deep enough for their tiles."""
    k = groups.sizes("k")
    if isinstance(k, int) and k < DEEP:
        return None
    sizes = {name: size for name in ("m", "n") if isinstance(size := groups.sizes(name), int)}
    few = [name for name, size in sizes.items() if size <= FEW_ROWS]
    return min(few, key=lambda name: sizes[name], default=None)


def few_rows_pay(few: int, many: Formula, k: Formula, along_k: bool) -> bool:
    """Whether tiles pay for ``few`` rows, fewer than ``NARROW``, of a static product.

    ``along_k``: the large operand is contiguous along K. A block or warp per element of C, which reads K in
    vectors, is then as fast for one row.
    """
    if not (isinstance(many, int) and isinstance(k, int)) or few == 0 or (few == 1 and along_k):
        return False
    return k >= DEEP and many >= WIDE and few * many * k >= MANY


def _few_rows_tile(sizes: Sizes, groups: Groups, b: Operand, matrix: bool, wide: str) -> Tile | None:
    """The tile of a product of few rows. Elements of B that each need an address are few per thread."""
    rows = groups.sizes("m")
    tile = sizes.few_rows_tile(matrix, rows, wide) if isinstance(rows, int) else None
    one_address = len(groups.n) == 1 and len(groups.k) == 1
    if tile is None or one_address or tile.n * tile.k <= tile.threads * b.lanes * ADDRESSES:
        return tile
    return replace(tile, k=tile.k // 2) if matrix else sizes.few_rows_tile(matrix, FEW_ROWS, wide)


def _worthwhile(groups: Groups) -> bool:
    m, n, k = (groups.sizes(name) for name in ("m", "n", "k"))
    if any(isinstance(size, int) and size < NARROW for size in (m, n)):
        few, many, large = (m, n, "b") if _few(groups) == "m" else (n, m, "a")
        along_k = bool(groups.k) and getattr(groups.k[-1], large) == 1
        return isinstance(few, int) and few_rows_pay(few, many, k, along_k)
    return not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int) and m * n * k < FEW)


def _large(groups: Groups, matrix: bool, wide: str, sizes: Sizes) -> bool:
    """Whether to use large tiles: enough of them fill a GPU, or sizes are dynamic."""
    if not matrix and wide != "f32":
        return False
    large = sizes.defaults.matrix if matrix else sizes.defaults.large_plain
    sizes_mn = [groups.sizes(name) for name in ("batch", "m", "n")]
    static_sizes = [size for size in sizes_mn if isinstance(size, int)]
    if len(static_sizes) < 3:
        return matrix  # with bounds checks for dynamic sizes a larger FMA tile would spill
    return static_sizes[0] * static_sizes[1] * static_sizes[2] >= 128 * large.m * large.n


def _copied(operand: Operand, rows: int, tile: Tile) -> bool:
    """Whether chunks of the operand are large enough for asynchronous copies."""
    width = memory.element_bytes(mlir.type_of(operand.element))
    return chunk_lanes(operand, rows, tile.k, tile.threads) * width >= COPIED


def _operand(access: Access, element: str, groups: Groups, rows: str, name: str, moved: bool) -> Operand:
    row_axes: tuple[GemmAxis, ...] = getattr(groups, rows)

    def walked(axes: tuple[GemmAxis, ...]) -> tuple[tuple[Formula, ...], tuple[Formula, ...]]:
        return tuple(axis.size for axis in axes), tuple(getattr(axis, name) for axis in axes)

    layout = walk(
        walked(row_axes), walked(groups.k), walked(groups.batch), access.offset, element, anywhere=moved
    )
    return Operand(
        layout.row_sizes,
        layout.row_steps,
        layout.k_steps,
        layout.batch_steps,
        layout.along_k,
        layout.lanes,
        access,
        element,
    )
