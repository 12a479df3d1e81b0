"""Attention on a GPU: which programs are one launch, and how much of them a block takes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kcache_compiler.lower.attention.operands import Gathered
from kcache_compiler.lower.gpu.attention.tile_products import WARPS, Core, MatrixRows, PlainRows, Staged
from kcache_compiler.lower.gpu.kernel import begins_anywhere
from kcache_compiler.lower.gpu.matmul.loader import Walked, walk
from kcache_compiler.lower.gpu.tile_sizes import Sizes, rejected
from kcache_compiler.lower.loops import memory
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.shapes.formula import Formula

#: Depth that is kept whole.
DEPTH = 128
#: Depth of one piece where the whole is not kept.
PIECE = 64
_NARROW = ("f16", "bf16")


@dataclass(frozen=True)
class AttentionPlan:
    """``whole``: one piece of depth is all, and keys and values have two stages. ``fast``: along which of its
    two indices, row or K of ``walks``, each tile lies.
    """

    found: Gathered
    core: Core
    whole: bool
    walks: dict[str, Walked]
    fast: dict[str, str]
    staged: dict[str, Staged]
    #: Bytes by place: weights of plain arithmetic, flags, results with their maxima and totals.
    scratch: int
    flags: int
    results: int
    shared: int
    #: What scores are multiplied by after the product.
    scale: float

    @property
    def stages(self) -> int:
        return 2 if self.whole else 1


def plan_attention(found: Gathered, sizes: Sizes) -> AttentionPlan:
    """The plan of an attention; the first that fits into shared memory."""
    kinds = {found.operands[name].kind for name in ("q", "k", "v")}
    scale = found.operands["q"].scale * found.operands["k"].scale
    (kind, *others) = kinds
    matrix = (
        not others
        and kind in _NARROW
        and _weights_kind(found) == kind
        and found.wide == "f32"
        and sizes.gpu.cp_async
        and (scale == 1 or (kind == "f16" and abs(scale) <= 1))
    )
    walks = {name: _walk(found, name) for name in ("q", "k", "v")}
    plans = (
        _laid_out(found, core, whole, walks, scale if matrix else 1.0)
        for core, whole in _cores(found, sizes, matrix, kind)
    )
    fitting = next((plan for plan in plans if plan.shared <= sizes.room), None)
    if fitting is None:
        raise rejected(f"no tile of attention fits into {sizes.room} bytes of shared memory")
    return fitting


def _weights_kind(found: Gathered) -> str:
    """The type of the weights that the last contraction reads."""
    role = next(role for role in ("guarded", "share", "weights") if role in found.roles)
    return str(mlir.element_of(found.one(role).operands[-1].type))


def _cores(found: Gathered, sizes: Sizes, matrix: bool, kind: str) -> Iterator[tuple[Core, bool]]:
    depth, columns, rows = (found.size(name) for name in ("depth", "columns", "rows"))
    defaults, choices = sizes.defaults, sizes.choices
    across = _tile(columns, choices.columns or (defaults.columns if matrix else defaults.plain_columns))
    keys = choices.keys or (defaults.keys if matrix else defaults.plain_keys)
    whole = isinstance(depth, int) and depth <= DEPTH
    deep = _tile(depth, DEPTH)
    if matrix:
        if whole:
            yield MatrixRows(kind, keys, deep, across), True
        yield MatrixRows(kind, keys, PIECE, across), False
        return
    few = found.wide == "f64" or (isinstance(rows, int) and rows <= 16 * WARPS)
    if whole:
        for own in (2,) if few else (4, 2):
            yield PlainRows(found.wide, own, keys, deep, across), True
    for piece, part in ((PIECE, across), (PIECE // 2, across), (PIECE // 4, 16)):
        yield PlainRows(found.wide, 2, keys, piece, part), False


def _tile(size: Formula, most: int) -> int:
    """Equal shares of a size of at most ``most``, in multiples of 16."""
    if not isinstance(size, int):
        return min(PIECE, most)
    share = -(-size // max(1, -(-size // most)))
    return max(16, -(-share // 16) * 16)


def _walk(found: Gathered, name: str) -> Walked:
    """An operand by rows and K of its loader: queries by row and depth, keys by depth and key, values by
    column and key.
    """
    stride = {"q": "query", "k": "key", "v": "value"}[name]
    rows, k = {
        "q": (found.rows, found.depth),
        "k": (found.depth, found.keys),
        "v": (found.columns, found.keys),
    }[name]
    parts = [part for axis in found.batch for part in axis.parts or (axis,)]
    operand = found.operands[name]

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
    found: Gathered, core: Core, whole: bool, walks: dict[str, Walked], scale: float
) -> AttentionPlan:
    width = 2 if isinstance(core, MatrixRows) else memory.element_bytes(mlir.type_of(core.wide))
    fast = {"q": "k", "k": "row", "v": "row"}
    if isinstance(core, MatrixRows):
        fast = {name: "k" if one.along_k else "row" for name, one in walks.items()}
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
        along = (fast[name] == "k") != (name == "k")
        staged[name] = Staged(place, lines * pitch * width, pitch, along)
        place += count * staged[name].size
    scratch, flags = place, place + core.scratch
    wide = memory.element_bytes(mlir.type_of(core.wide))
    results = core.rows * (core.columns + core.pad) * wide + 2 * core.rows * wide
    shared = max(flags + 8 * WARPS, results)
    return AttentionPlan(found, core, whole, walks, fast, staged, scratch, flags, results, shared, scale)
