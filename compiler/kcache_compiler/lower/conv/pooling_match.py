"""Matches reductions of windows: pooling of images with channels before rows, and with channels last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kcache_compiler.lower.conv.channels_last_match import BYTES, Axis
from kcache_compiler.lower.conv.padded_copy import PaddedCopy, filled_with, read_padded_axes
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes, affine
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loop_nest import SLICE_WORK, Check
from kcache_compiler.shapes.formula import Formula

#: Taps of an axis at most, which are unrolled, and the greatest step from one result of a row to the next.
TAPS, STRIDE = 16, 2
#: Bytes of a vector at least: shorter rows are left to loops.
LEAST_BYTES = 16
#: Taps of a window at most where channels are last: each is an address.
WINDOW_TAPS = 32
#: Vectors of channels at most that are computed together.
CHANNEL_VECTORS = 4
#: Rows of results whose maxima along columns are found before those along rows, and their bytes at most.
TOGETHER, TOGETHER_BYTES = 4, 1 << 14

#: Combiners whose order is free, and the values that they leave out.
_NEUTRAL = {"arith.maximumf": float("-inf"), "arith.minimumf": float("inf")}


@dataclass(frozen=True)
class Pool:
    """The least or greatest elements of windows: ``combiner`` is the operation, ``neutral`` its constant.

    A vector has ``lanes`` elements of a row of results, or ``read`` of a row of the image.
    ``outer``: sizes of axes around rows, with the strides of image and results; ``x`` and ``y`` are the
    strides of rows of the image and of results, whose columns are contiguous.
    """

    image: mlir.Value
    result: mlir.Value
    combiner: mlir.Op
    neutral: float
    kind: str
    lanes: int
    read: int
    outer: tuple[tuple[int, int, int], ...]
    rows: Axis
    columns: Axis
    x: int
    y: int
    spared: tuple[mlir.Value, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def extent(self) -> Formula:
        """Rows of results."""
        return prod(size for size, _, _ in self.outer) * self.rows.results

    @property
    def grain(self) -> Formula:
        work = self.columns.image * self.rows.taps + self.columns.results * self.columns.taps
        return -(-4 * SLICE_WORK // work)

    @property
    def pads_rows(self) -> bool:
        """Whether a tap reads rows outside of the image."""
        return reads_outside(self.rows)

    @property
    def is_apart(self) -> bool:
        """Whether windows of a row are pairs of elements, all of the image."""
        columns = self.columns
        pairs = columns.stride == columns.taps == 2 and columns.dilation == 1
        return pairs and columns.before == 0 and 2 * columns.results <= columns.image

    @property
    def width(self) -> int:
        """Elements of a row that is reduced along columns, with those around it that vectors reach."""
        columns = self.columns
        last = columns.results * columns.stride + (columns.taps - 1) * columns.dilation + columns.stride
        lanes = 64 // BYTES[self.kind]
        return -(-(max(columns.before + columns.image, last) + lanes) // lanes) * lanes

    @property
    def together(self) -> int:
        return max(1, min(TOGETHER, TOGETHER_BYTES // (self.width * BYTES[self.kind])))


@dataclass(frozen=True)
class ChannelsPool:
    """The least or greatest elements of windows of images whose ``channels`` are contiguous.

    Names are those of ``Pool``; ``x`` and ``y`` are the strides of rows and of columns of the image and of
    the results. A vector has ``lanes`` channels.
    """

    image: mlir.Value
    result: mlir.Value
    combiner: mlir.Op
    kind: str
    lanes: int
    channels: int
    outer: tuple[tuple[int, int, int], ...]
    rows: Axis
    columns: Axis
    x: tuple[int, int]
    y: tuple[int, int]
    spared: tuple[mlir.Value, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def extent(self) -> Formula:
        """Rows of results."""
        return prod(size for size, _, _ in self.outer) * self.rows.results

    @property
    def grain(self) -> Formula:
        work = self.columns.results * self.channels * self.rows.taps * self.columns.taps
        return -(-4 * SLICE_WORK // work)

    @property
    def vectors(self) -> int:
        """Vectors of channels that are computed together."""
        count = CHANNEL_VECTORS
        while self.channels % (count * self.lanes) and count > 1:
            count //= 2
        return count


def reads_outside(axis: Axis) -> bool:
    """Whether a tap reads elements outside of the image."""
    ends = (0, axis.results - 1)
    return not all(axis.inside(result, tap) for result in ends for tap in range(axis.taps))


def read_pool(generics: Sequence[mlir.Op], shapes: Shapes, vector_bytes: int) -> Pool | ChannelsPool | None:
    """The pooling of ``generics``: padding, or none, a fill of the results and the reduction; else None."""
    if len(generics) not in (2, 4):
        return None
    *padding, fill, generic = generics
    combiner = _combiner(generic)
    if combiner is None or fill.operands[-1] != generic.operands[2]:
        return None
    neutral = _NEUTRAL[mlir.name_of(combiner)]
    padded = read_padded_axes(padding, shapes) if padding else None
    if not _is_filled(fill, neutral) or (padding and (padded is None or not _pads(padding, padded, generic))):
        return None
    return _pool(generic, combiner, neutral, padded, shapes, vector_bytes)


def _combiner(generic: mlir.Op) -> mlir.Op | None:
    """The operation that combines an element of the image, the first operand, with the result."""
    body, operands = mlir.block_of(generic), list(generic.operands)
    operations, arguments = mlir.operations(body), list(body.arguments)
    if len(operands) != 3 or mlir.input_count(generic) != 2 or len(operations) != 2:
        return None
    combiner = operations[0]
    if mlir.name_of(combiner) not in _NEUTRAL or set(combiner.operands) != {arguments[0], arguments[2]}:
        return None
    reduced = any("reduction" in kind for kind in mlir.iterator_types(generic))
    yields = list(operations[1].operands) == [combiner.results[0]]
    return combiner if reduced and yields and operands[0] != operands[2] else None


def _is_filled(fill: mlir.Op, neutral: float) -> bool:
    """Whether ``fill`` stores ``neutral`` in all elements."""
    constant = filled_with(fill)
    return constant is not None and mlir.constant_float(constant.results[0]) == neutral


def _pads(padding: Sequence[mlir.Op], padded: PaddedCopy, generic: mlir.Op) -> bool:
    """Whether ``generic`` alone reads what ``padding`` fills with the neutral constant, and copies to."""
    combiner = _combiner(generic)
    value = mlir.constant_float(padded.value.results[0])
    if combiner is None or value != _NEUTRAL[mlir.name_of(combiner)]:
        return False
    owner, view = mlir.defining(padded.padded), mlir.defining(padding[1].operands[1])
    users = {user for user, _ in mlir.uses(padded.padded)}
    if owner is None or view is None or users != {padding[0], view, generic}:
        return False
    return generic.operands[0] == padded.padded and not mlir.used_more_than_once(view.results[0])


def _pool(
    generic: mlir.Op,
    combiner: mlir.Op,
    neutral: float,
    padded: PaddedCopy | None,
    shapes: Shapes,
    vector_bytes: int,
) -> Pool | ChannelsPool | None:
    """``generic`` as a pooling of static sizes, contiguous along the last axis; None for another.

    At most two axes have windows of several elements: the last one, and one before it. ``padded``: the copy
    into a padded image that the launch includes.
    """
    source, window, result = generic.operands
    image = source if padded is None else padded.image
    kind = str(mlir.element_type(image.type))
    sizes, strides = shapes.sizes(image), shapes.strides(image)
    results, steps = shapes.sizes(result), shapes.strides(result)
    known = [each for each in (*sizes, *strides, *results, *steps) if isinstance(each, int)]
    if kind not in BYTES or len(known) != 2 * (len(sizes) + len(results)) or len(sizes) != len(results):
        return None
    if not sizes or strides[-1] != 1 or steps[-1] != 1 or memory.root_of(image) == memory.root_of(result):
        return None
    before = (0,) * len(sizes) if padded is None else padded.offsets
    axes = _axes(generic, [int(str(size)) for size in sizes], before, shapes)
    if axes is None or not 1 <= sum(axis.taps > 1 for axis in axes) <= 2:
        return None
    spared = [window] if _is_unused(window) else []
    spared += [] if padded is None else [padded.padded]
    if axes[-1].taps == 1:
        words = [(int(str(strides[n])), int(str(steps[n]))) for n in range(len(axes))]
        pool = _channels_pool(image, result, combiner, kind, axes, words, vector_bytes // BYTES[kind])
        return None if pool is None else replace(pool, spared=tuple(spared))
    place = next((n for n, axis in enumerate(axes[:-1]) if axis.taps > 1), len(axes) - 2)
    if place < 0 or not all(_is_whole(axis) for n, axis in enumerate(axes[:-1]) if n != place):
        return None
    columns = axes[-1]
    lanes, read = (_lanes(vector_bytes // BYTES[kind], size) for size in (columns.results, columns.image))
    outer = [(axis.results, int(str(strides[n])), int(str(steps[n]))) for n, axis in enumerate(axes[:-1])]
    x, y = outer.pop(place)[1:]
    pool = Pool(
        *(image, result, combiner, neutral, kind, lanes, read, tuple(outer), axes[place], columns, x, y),
        spared=tuple(spared),
    )
    fits = columns.stride <= STRIDE and pool.width * BYTES[kind] <= TOGETHER_BYTES
    return (
        pool
        if fits
        and min(lanes, read) * BYTES[kind] >= LEAST_BYTES
        and max(columns.taps, pool.rows.taps) <= TAPS
        else None
    )


def _channels_pool(
    image: mlir.Value,
    result: mlir.Value,
    combiner: mlir.Op,
    kind: str,
    axes: Sequence[Axis],
    strides: Sequence[tuple[int, int]],
    most: int,
) -> ChannelsPool | None:
    """A pooling along axes before the last one; ``strides``: of the image and of the results, by axis.

    Taps outside of the image are replaced by the nearest element in it, which must be one of the same window.
    """
    *places, channels = range(len(axes))
    pooled = [n for n in places if axes[n].taps > 1]
    column = pooled[-1]
    row = pooled[0] if len(pooled) == 2 else next((n for n in reversed(places) if n != column), None)
    if not all(_is_whole(axis) for n, axis in enumerate(axes) if n not in (row, column)):
        return None
    rows, apart = (Axis(1, 1, 1, 1, 1, 0), (0, 0)) if row is None else (axes[row], strides[row])
    columns, lanes = axes[column], _lanes(most, axes[channels].results)
    if lanes * BYTES[kind] < LEAST_BYTES or rows.taps * columns.taps > WINDOW_TAPS:
        return None
    if not (_stays_inside(rows) and _stays_inside(columns)):
        return None
    outer = [(axes[n].results, *strides[n]) for n in places if n not in (row, column)]
    x, y = ((apart[side], strides[column][side]) for side in range(2))
    size = axes[channels].results
    return ChannelsPool(image, result, combiner, kind, lanes, size, tuple(outer), rows, columns, x, y)


def _stays_inside(axis: Axis) -> bool:
    """Whether the element of the image that is nearest to a tap is in the window of that tap."""
    if not reads_outside(axis):
        return True
    ends = (0, axis.results - 1)
    return axis.dilation == 1 and all(
        any(axis.inside(result, tap) for tap in range(axis.taps)) for result in ends
    )


def _lanes(most: int, size: int) -> int:
    """Elements of the longest vector in a row of this many elements."""
    while most > size:
        most //= 2
    return most


def _is_whole(axis: Axis) -> bool:
    """Whether results are those of the elements of an axis, one for one."""
    return axis.before == 0 and axis.stride == 1 and axis.image == axis.results


def _is_unused(window: mlir.Value) -> bool:
    """Whether the operand that has the window's sizes is an allocation of this reduction."""
    owner = mlir.defining(window)
    return (
        owner is not None and mlir.name_of(owner) == "memref.alloc" and not mlir.used_more_than_once(window)
    )


def _axes(generic: mlir.Op, sizes: Sequence[int], before: Sequence[int], shapes: Shapes) -> list[Axis] | None:
    """The axes of the image in order; None if those of the results are others."""
    kinds = ["parallel" in kind for kind in mlir.iterator_types(generic)]
    maps, window = mlir.indexing_maps(generic), shapes.sizes(generic.operands[1])
    results = shapes.sizes(generic.operands[2])
    taps_of = {mlir.plain_dim(each): size for each, size in zip(maps[1].results, window, strict=True)}
    axes: list[Axis] = []
    used: list[int] = []
    for dim, index in enumerate(maps[0].results):
        factors, constant = affine(index, len(kinds), shapes.codes)
        loops = {number: factor for number, factor in enumerate(factors) if factor != 0}
        along = [number for number in loops if kinds[number]]
        taps = [number for number in loops if not kinds[number]]
        if (
            constant != 0
            or len(along) != 1
            or len(taps) > 1
            or mlir.plain_dim(maps[2].results[dim]) != along[0]
        ):
            return None
        words = [results[dim], loops[along[0]], *(word for n in taps for word in (taps_of.get(n), loops[n]))]
        numbers = [word for word in words if isinstance(word, int)]
        if len(numbers) != len(words) or min(numbers) < 1:
            return None
        count, dilation = (numbers[2], numbers[3]) if taps else (1, 1)
        axes.append(Axis(sizes[dim], numbers[0], count, numbers[1], dilation, before[dim]))
        used += loops
    return axes if sorted(used) == list(range(len(kinds))) else None
