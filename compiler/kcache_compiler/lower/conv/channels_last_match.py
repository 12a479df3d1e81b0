"""Matches convolutions of channels-last images that are depthwise, have few input channels, or groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from kcache_compiler.lower.conv.match import TAPS, Window, read_window
from kcache_compiler.lower.conv.padding import Padding, read_padding
from kcache_compiler.lower.gemm.match import is_contraction, makes_zero
from kcache_compiler.lower.loops.buffer_shapes import Shapes, affine
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.product_bodies import read_products
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.shapes.formula import Formula

#: Pixels of a block at most, and its products.
PIXELS, PRODUCTS = 8, 200
#: Input channels at most where outputs depend on all of them; then the sums of a block.
INPUTS, SUMS = 4, 8
#: Channels of a group at most, and products of one of its results.
GROUPED, GROUPED_PRODUCTS = 64, 1024
#: Sums of a block of pixels that are apart, with 32 registers.
ROTATED = 24
BYTES = {"f32": 4, "f64": 8}


@dataclass(frozen=True)
class Axis:
    """A spatial axis of the image, with ``before`` zeros before it, of the results, and of the window."""

    image: int
    results: int
    taps: int
    stride: int
    dilation: int
    before: int

    def place(self, result: int, tap: int) -> int:
        """Where a tap reads the image; outside of it are zeros."""
        return result * self.stride + tap * self.dilation - self.before

    def inside(self, result: int, tap: int) -> bool:
        return 0 <= self.place(result, tap) < self.image


@dataclass(frozen=True)
class Layer:
    """A convolution with ``channels`` outputs; strides of images, rows and columns.

    Each output depends on all ``inputs``; only on its own channel if they are 0. The image also has a
    stride of inputs: of adjacent elements, or of planes. Window strides are those of rows, columns and
    inputs. ``planar``: a result is the sum over inputs of sums over rows and columns, not the reverse.
    Of ``groups`` an output depends on the inputs of its own one; each has ``channels`` outputs.
    """

    kind: str
    rows: Axis
    columns: Axis
    channels: int
    inputs: int
    lanes: int
    x: tuple[int, int, int, int]
    w: tuple[int, int, int]
    y: tuple[int, int, int]
    planar: bool
    groups: int = 1
    #: Whether sums may be in any order: those of inputs and outputs at the same distance are apart.
    rotates: bool = False

    @property
    def scratch(self) -> int:
        """Bytes of the window in the order in which sums that are apart read it."""
        if not self.rotates:
            return 0
        vectors = -(-self.channels * self.groups // self.lanes)
        return vectors * self.products * self.lanes * BYTES[self.kind]

    @property
    def products(self) -> int:
        """Products of a result."""
        return self.rows.taps * self.columns.taps * max(1, self.inputs)

    @property
    def mixes(self) -> bool:
        """Whether a vector has the channels of several groups: whole ones, of as many inputs as outputs."""
        return self.groups > 1 and self.channels < self.lanes

    def sources(self, distance: int) -> list[int]:
        """For each lane the one that is so far behind it in the same group, whose ends meet."""
        size = self.inputs
        return [lane // size * size + (lane + distance) % size for lane in range(self.lanes)]

    def taps(self) -> Iterator[tuple[int, int, int]]:
        """The products of a result by row, column and input, in the order of the program."""
        rows, columns, inputs = range(self.rows.taps), range(self.columns.taps), range(max(1, self.inputs))
        if not self.planar:
            return product(rows, columns, inputs)
        return ((row, column, channel) for channel, row, column in product(inputs, rows, columns))

    def blocks(self) -> list[tuple[int, int, int]]:
        """First pixels of runs of blocks with the same code, the number of blocks, and their distance."""
        width, count = self.columns.results, -(-self.columns.results // self.pixels)
        starts = [min(number * self.pixels, width - self.pixels) for number in range(count)]
        runs: list[tuple[int, int, int]] = []
        for start in starts:
            if runs:
                first, blocks, step = runs[-1]
                regular = blocks == 1 or start - first == blocks * step
                if regular and self.zeros(start) == self.zeros(first):
                    runs[-1] = (first, blocks + 1, start - first if blocks == 1 else step)
                    continue
            runs.append((start, 1, 0))
        return runs

    @property
    def pixels(self) -> int:
        """Pixels of a block: equal shares of a row."""
        most = max(1, min(PIXELS, PRODUCTS // (self.rows.taps * self.columns.taps)))
        if self.rotates:
            wide = self.lanes * BYTES[self.kind] == 64
            most = min(PIXELS, max(1, (ROTATED if wide else ROTATED // 2) // self.inputs))
        elif self.groups > 1:
            most = PIXELS
        elif self.inputs:
            most = min(PIXELS, SUMS // self.vectors)
        width = self.columns.results
        return -(-width // -(-width // most))

    @property
    def vectors(self) -> int:
        """Vectors of channels of a block: two of groups only if a row has few pixels, and so few sums."""
        single = self.groups > 1 and self.columns.results > PIXELS // 2
        return 2 if self.inputs and not single and self.channels >= 2 * self.lanes else 1

    def zeros(self, start: int) -> frozenset[tuple[int, int]]:
        """The pixels of a block, each with the taps of the row that read zeros."""
        return frozenset(
            (pixel, tap)
            for pixel in range(self.pixels)
            for tap in range(self.columns.taps)
            if not self.columns.inside(start + pixel, tap)
        )

    @property
    def masks_rows(self) -> bool:
        ends = (0, self.rows.results - 1)
        return not all(self.rows.inside(row, tap) for row in ends for tap in range(self.rows.taps))


@dataclass(frozen=True)
class Group:
    """Operations of a launch: the convolution, what comes before and after it, its padding."""

    layer: Layer
    window: Window
    generic: mlir.Op
    heads: list[mlir.Op]
    followers: list[mlir.Op]
    padding: Padding | None

    @property
    def image(self) -> mlir.Value:
        return self.generic.operands[0] if self.padding is None else self.padding.image


def read_group(generics: Sequence[mlir.Op], shapes: Shapes, vector_bytes: int) -> Group | None:
    """The parts of a launch of ``generics``: padding, a fill with zeros, a convolution, consumers."""
    padding = read_padding(generics)
    rest = list(generics if padding is None else generics[2:])
    place = next((number for number, generic in enumerate(rest[:2]) if is_contraction(generic)), None)
    if place != 1 or not (rest[0].operands[-1] == rest[1].operands[2] and makes_zero(rest[0])):
        return None
    window = read_window(rest[1], shapes, GROUPED_PRODUCTS)
    image = None if window is None else _image(rest[1], window, padding, shapes)
    if window is None or image is None or (image.group is None and len(window.taps) > TAPS):
        return None
    columns = [image.columns[0]] if image.group is None else [image.columns[0], image.group]
    if {*window.outer, window.jam} != {*image.outer, *columns}:
        return None
    window = replace(window, outer=image.outer, jam=image.columns[0], group=image.group)
    layer = _layer(rest[1], window, image, vector_bytes)
    if layer is not None and layer.mixes and _is_free(rest[1]):
        layer = replace(layer, rotates=True)
    return None if layer is None else Group(layer, window, rest[1], rest[:2], rest[2:], padding)


def _is_free(generic: mlir.Op) -> bool:
    """Whether sums may be in any order."""
    sums = [op for op in mlir.operations(mlir.block_of(generic)) if mlir.name_of(op) == "arith.addf"]
    return all("reassoc" in str(op.attributes["fastmath"]) for op in sums if "fastmath" in op.attributes)


@dataclass(frozen=True)
class _Image:
    """The loops of the axes of the image: over images, pixels and taps of rows and columns, and inputs."""

    batch: int | None
    rows: tuple[int, int]
    columns: tuple[int, int]
    inputs: int | None
    group: int | None
    axes: tuple[Axis, Axis]
    strides: tuple[Formula, Formula, Formula, Formula]

    @property
    def outer(self) -> tuple[int, ...]:
        """Loops over images and rows of results."""
        return (self.rows[0],) if self.batch is None else (self.batch, self.rows[0])


def _layer(generic: mlir.Op, window: Window, image: _Image, vector_bytes: int) -> Layer | None:
    """Return the ``Layer`` of a convolution; None if its layout is unsupported or a size is dynamic."""
    kinds = {str(mlir.element_type(operand.type)) for operand in generic.operands}
    products = read_products(generic)
    if products is None or (products.left, products.right) != (0, 1) or len(kinds) != 1:
        return None
    if not kinds <= set(BYTES):
        return None
    a, b, c = window.nest.accesses
    ordered = [image.rows[1], image.columns[1], *([] if image.inputs is None else [image.inputs])]
    summed = [number for number, axis in enumerate(window.nest.axes) if not axis.parallel]
    planar = summed == [*ordered[2:], *ordered[:2]] != ordered
    if not (planar or summed == ordered) or not _contiguous(window, image, (a, b, c)):
        return None
    sizes = [window.nest.axes[loop].size for loop in (window.along, *ordered[2:])]
    of_result = [0 if image.batch is None else c.strides[image.batch], c.strides[image.rows[0]]]
    of_window = [b.strides[loop] for loop in ordered]
    words = [*image.strides, *of_window, *of_result, c.strides[image.columns[0]], *sizes]
    known = [word for word in words if isinstance(word, int)]
    dense = image.inputs is not None
    if len(known) != len(words):
        return None
    kind, channels = kinds.pop(), known[-2] if dense else known[-1]
    lanes = vector_bytes // BYTES[kind]
    groups = 1
    if image.group is not None:
        size = window.nest.axes[image.group].size
        if not (dense and planar and isinstance(size, int) and _are_adjacent(window, image.group, sizes)):
            return None
        groups = size
    elif dense and not 0 < known[-1] <= INPUTS:
        return None
    mixed = groups > 1 and known[-1] == channels and lanes % channels == 0 and lanes <= groups * channels
    while lanes > channels and not mixed:
        lanes //= 2
    x, known = known[:4], known[4:]
    w, y = known[:3] if dense else [*known[:2], 0], known[3:] if dense else known[2:]
    return Layer(
        *(kind, *image.axes, channels, known[-1] if dense else 0, lanes),
        *((x[0], x[1], x[2], x[3]), (w[0], w[1], w[2]), (y[0], y[1], y[2]), planar, groups),
    )


def _are_adjacent(window: Window, group: int, sizes: Sequence[Formula]) -> bool:
    """Whether the channels of groups of this many outputs and inputs, which are few, follow one another."""
    outputs, inputs = sizes
    steps = [access.strides[group] for access in window.nest.accesses]
    return steps == [inputs, outputs, outputs] and isinstance(outputs, int) and outputs <= GROUPED


def _contiguous(window: Window, image: _Image, accesses: tuple[Access, Access, Access]) -> bool:
    """Whether channels are contiguous, and those of the image too, unless an output depends on all inputs.

    All images and pixels have the same weights. Groups of channels, whose loop is like that over images, do
    not.
    """
    a, b, c = accesses
    along = window.along
    steps = (a.strides[along], b.strides[along], c.strides[along])
    expected = (1 if image.inputs is None else 0, 1, 1)
    if image.group is not None and image.strides[3] != 1:
        return False
    shared = all(b.strides[loop] == 0 for loop in (*image.outer, image.columns[0]))
    return shared and steps == expected and all(access.offset == 0 for access in accesses)


def _image(generic: mlir.Op, window: Window, padding: Padding | None, shapes: Shapes) -> _Image | None:
    """Return the loops and strides of the image; None if an index is not that of a window."""
    source = generic.operands[0] if padding is None else padding.image
    extents, strides = shapes.sizes(source), shapes.strides(source)
    axes = window.nest.axes
    batch: list[tuple[int, Formula]] = []
    group: list[int] = []
    inputs: list[tuple[int, Formula]] = []
    spatial: list[tuple[int, int, Formula, Axis]] = []
    for dim, result in enumerate(mlir.indexing_maps(generic)[0].results):
        loops = _loops(result, window, shapes)
        before = 0 if padding is None else padding.before[dim]
        if loops is None or (len(loops) == 1 and before != 0):
            return None
        first, *others = loops
        if not others:
            if not axes[first].parallel:
                inputs.append((first, strides[dim]))
            elif window.nest.accesses[1].strides[first] != 0 and first != window.along:
                group.append(first)
            elif first != window.along and axes[first].size != 1:
                batch.append((first, strides[dim]))
            continue
        numbers = [extents[dim], axes[first].size, axes[others[0]].size, *loops.values()]
        known = [number for number in numbers if isinstance(number, int)]
        if len(known) != len(numbers):
            return None
        extent, results, taps, stride, dilation = known
        axis = Axis(extent, results, taps, stride, dilation, before)
        spatial.append((first, others[0], strides[dim], axis))
    if len(spatial) != 2 or max(len(batch), len(inputs), len(group)) > 1:
        return None
    rows, columns = spatial
    images, planes = batch[0] if batch else (None, 0), inputs[0] if inputs else (None, 1)
    return _Image(
        *(images[0], rows[:2], columns[:2], planes[0], group[0] if group else None, (rows[3], columns[3])),
        (images[1], rows[2], columns[2], planes[1]),
    )


def _loops(result: mlir.AffineExpr, window: Window, shapes: Shapes) -> dict[int, Formula] | None:
    """The loops of an index of the image with their factors: one, or a parallel one and that over taps."""
    axes = window.nest.axes
    factors, constant = affine(result, len(axes), shapes.codes)
    loops = {number: factor for number, factor in enumerate(factors) if factor != 0}
    parallel = [axes[number].parallel for number in loops]
    if constant != 0 or parallel not in ([True], [False], [True, False]):
        return None
    return None if len(parallel) == 1 and list(loops.values()) != [1] else loops
