"""Attention on a GPU: the tiling of a launch, chosen to fit into shared memory.

Query heads that share keys and values are rows of one tile if there are few rows. A step of few rows divides
its keys among the warps of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kcache_compiler.lower.attention.evaluate import Coordinates
from kcache_compiler.lower.attention.operands import Gathered
from kcache_compiler.lower.attention.operands import Walked as Axis
from kcache_compiler.lower.gpu.attention.tile_products import WARPS, Core, MatrixRows, PlainRows, Staged
from kcache_compiler.lower.gpu.kernel import begins_anywhere
from kcache_compiler.lower.gpu.matmul.loader import Walked, walk
from kcache_compiler.lower.gpu.tile_sizes import STEP, Sizes, rejected
from kcache_compiler.lower.loops import memory
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.shapes.formula import Formula

#: Maximum depth of which a tile is kept whole.
DEPTH = 128
#: Depth of one piece of a larger depth, and of tiles whose chunks have an offset each, in registers.
PIECE, SCATTERED_PIECE = 64, 32
#: Maximum number of rows whose keys are divided among warps; keys of a step then, of f32 and f64.
FEW_ROWS, FEW_ROWS_KEYS = 16, (64, 32)
_NARROW = ("f16", "bf16")
#: The name of the row axis of query heads that share keys and values.
_SHARING = -1


@dataclass(frozen=True)
class SharedHeads:
    """Index ``count`` * i + j of axis ``name`` of the scores is index i in the batch, and j of a row."""

    name: int
    count: int

    def place(self, batch: Coordinates, rows: Coordinates) -> Coordinates:
        """The index on each axis from those in the batch and those of a row."""
        place = {**batch, **rows}
        head = memory.times(batch[self.name], mlir.constant(self.count))
        place[self.name] = memory.plus(head, place.pop(_SHARING))
        return place


@dataclass(frozen=True)
class AttentionPlan:
    """The tiling of an attention.

    ``whole``: a tile holds the full depth, and keys and values have two stages. ``fast``: the contiguous
    index, row or K of ``walks``, of each tile.
    """

    attention: Gathered
    core: Core
    whole: bool
    walks: dict[str, Walked]
    fast: dict[str, str]
    staged: dict[str, Staged]
    #: Offsets in shared memory of weights of FMA tiles and of flags; bytes of results, maxima and totals.
    scratch: int
    flags: int
    results: int
    shared: int
    #: The factor of scores after the product.
    scale: float
    heads: SharedHeads | None = None

    @property
    def stages(self) -> int:
        return 2 if self.whole else 1

    def place(self, batch: Coordinates, rows: Coordinates) -> Coordinates:
        """The index on each axis of the scores from those in the batch and those of a row."""
        return {**batch, **rows} if self.heads is None else self.heads.place(batch, rows)


def plan_attention(attention: Gathered, sizes: Sizes) -> AttentionPlan:
    """The first plan of an attention that fits into shared memory."""
    attention, heads = _with_shared_heads(attention)
    kinds = {attention.operands[name].kind for name in ("q", "k", "v")}
    scale = attention.operands["q"].scale * attention.operands["k"].scale
    (kind, *other_kinds) = kinds
    matrix = (
        not other_kinds
        and kind in _NARROW
        and _weights_kind(attention) == kind
        and attention.wide == "f32"
        and sizes.gpu.cp_async
        and (scale == 1 or (kind == "f16" and abs(scale) <= 1))
    )
    walks = {name: _walk(attention, name) for name in ("q", "k", "v")}
    plans = (
        _laid_out(attention, core, whole, walks, scale if matrix else 1.0)
        for core, whole in _cores(attention, sizes, matrix, kind)
    )
    fitting = next((plan for plan in plans if plan.shared <= sizes.room), None)
    if fitting is None:
        raise rejected(f"no tile of attention fits into {sizes.room} bytes of shared memory")
    return replace(fitting, heads=heads)


def _with_shared_heads(attention: Gathered) -> tuple[Gathered, SharedHeads | None]:
    """The attention with query heads that share keys and values as rows, if few rows leave a tile empty."""
    rows = attention.size("rows")
    shared = [axis for axis in attention.batch if axis.parts]
    if len(shared) != 1 or not isinstance(rows, int) or rows > FEW_ROWS:
        return attention, None
    (axis,) = shared
    outer, inner = axis.parts
    if (inner.key, inner.value) != (0, 0) or not isinstance(inner.size, int):
        return attention, None
    batch = [
        Axis(outer.name, outer.size, outer.query, outer.key, outer.value) if each == axis else each
        for each in attention.batch
    ]
    rows_axes = [*attention.rows, replace(inner, name=_SHARING)]
    return replace(attention, batch=batch, rows=rows_axes), SharedHeads(axis.name, inner.size)


def _weights_kind(attention: Gathered) -> str:
    """The type of the weights that the last contraction reads."""
    role = next(role for role in ("guarded", "share", "weights") if role in attention.roles)
    return str(mlir.element_of(attention.member(role).operands[-1].type))


def _cores(attention: Gathered, sizes: Sizes, matrix: bool, kind: str) -> Iterator[tuple[Core, bool]]:
    """Yield the tiles to try, preferred ones first.

    Each with whether its tiles have the whole depth, so that keys and values have two stages.
    """
    depth, columns, rows = (attention.size(name) for name in ("depth", "columns", "rows"))
    defaults, choices = sizes.defaults, sizes.choices
    tile_columns = _tile(columns, choices.columns or (defaults.columns if matrix else defaults.plain_columns))
    keys = choices.keys or (defaults.keys if matrix else defaults.plain_keys)
    whole = isinstance(depth, int) and depth <= DEPTH
    deep = _tile(depth, DEPTH)
    few = isinstance(rows, int) and rows <= FEW_ROWS
    divided = len(attention.rows) > 1 and not isinstance(rows, int)
    piece = PIECE if isinstance(depth, int) and not divided else SCATTERED_PIECE
    whole = whole and (not divided or (matrix and deep <= PIECE))
    if matrix:
        if whole and few and keys % (STEP * WARPS) == 0:
            yield MatrixRows(kind, keys, deep, tile_columns, WARPS), True
        if whole:
            yield MatrixRows(kind, keys, deep, tile_columns), True
        yield MatrixRows(kind, keys, piece, tile_columns), False
        return
    for few_keys in FEW_ROWS_KEYS if whole and few else ():
        yield PlainRows(attention.wide, 2, choices.keys or few_keys, deep, tile_columns, WARPS), True
    small_tile = attention.wide == "f64" or (isinstance(rows, int) and rows <= 16 * WARPS)
    if whole:
        for own in (2,) if small_tile else (4, 2):
            yield PlainRows(attention.wide, own, keys, deep, tile_columns), True
    for tile_depth, part in ((piece, tile_columns), (PIECE // 2, tile_columns), (PIECE // 4, 16)):
        yield PlainRows(attention.wide, 2, keys, tile_depth, part), False


def _tile(size: Formula, most: int) -> int:
    """The equal parts, of at most ``most`` and in multiples of 16, of a size."""
    if not isinstance(size, int):
        return min(PIECE, most)
    share = -(-size // max(1, -(-size // most)))
    return max(16, -(-share // 16) * 16)


def _walk(attention: Gathered, name: str) -> Walked:
    """An operand by rows and K of its loader.

    Queries are by row and depth, keys by depth and key, values by column and key.
    """
    stride = {"q": "query", "k": "key", "v": "value"}[name]
    rows, k = {
        "q": (attention.rows, attention.depth),
        "k": (attention.depth, attention.keys),
        "v": (attention.columns, attention.keys),
    }[name]
    parts = [part for axis in attention.batch for part in axis.parts or (axis,)]
    operand = attention.operands[name]

    def steps(axes: list[object]) -> tuple[list[Formula], list[Formula]]:
        return [getattr(axis, "size") for axis in axes], [getattr(axis, stride) for axis in axes]  # noqa: B009

    return walk(
        steps([*rows]),
        steps([*k]),
        steps([*parts]),
        operand.offset,
        str(mlir.element_of(operand.buffer.type)),
        anywhere=begins_anywhere(operand.buffer),
    )


def _laid_out(
    attention: Gathered, core: Core, whole: bool, walks: dict[str, Walked], scale: float
) -> AttentionPlan:
    """Return the plan of a core: offsets, pitches and sizes of its tiles in shared memory."""
    width = 2 if isinstance(core, MatrixRows) else memory.element_bytes(mlir.type_of(core.wide))
    fast = {"q": "k", "k": "row", "v": "row"}
    if isinstance(core, MatrixRows):
        fast = {name: "k" if walked.along_k else "row" for name, walked in walks.items()}
    sizes = {
        "q": (core.rows, core.depth, 1),
        "k": (core.depth, core.keys, 1 + whole),
        "v": (core.columns, core.keys, 1 + whole),
    }
    staged: dict[str, Staged] = {}
    place = 0
    for name, (row, k, count) in sizes.items():
        line, lines = (k, row) if fast[name] == "k" else (row, k)
        pitch = line + core.pad
        along_k = (fast[name] == "k") != (name == "k")
        staged[name] = Staged(place, lines * pitch * width, pitch, along_k)
        place += count * staged[name].size
    scratch, flags = place, place + core.scratch
    wide = memory.element_bytes(mlir.type_of(core.wide))
    results = core.lines * (core.columns + core.pad) * wide + 2 * core.lines * wide
    shared = max(flags + 8 * WARPS, results)
    return AttentionPlan(attention, core, whole, walks, fast, staged, scratch, flags, results, shared, scale)
