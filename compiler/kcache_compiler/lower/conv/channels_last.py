"""Depthwise convolutions of channels-last images: vectors of channels, several pixels of a row in registers.

All taps of a block of pixels are unrolled. The columns of a block that lie outside of the image are known
when the code is written: blocks at the left and right edge have code of their own. Rows outside of it are
masked. Padding is therefore not copied; its zeros are multiplied, as the program says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcache_compiler.lower.conv.match import Window, read_window
from kcache_compiler.lower.conv.padding import Padding, read_padding
from kcache_compiler.lower.gemm.epilogue import write_rows
from kcache_compiler.lower.gemm.match import is_contraction
from kcache_compiler.lower.gemm.micro_kernel import spread
from kcache_compiler.lower.gemm.objects import lowered
from kcache_compiler.lower.gemm.outline import declared, makes_zero, write_in_place
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes, affine
from kcache_compiler.lower.loops.launch import Outlined, read_nest, slice_function
from kcache_compiler.lower.sort_scatter.loop_builder import loop
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.passes.product_bodies import read_products
from kcache_compiler.passes.stage import Unit
from kcache_compiler.shapes.formula import Formula

#: Pixels of a block at most, and its products.
PIXELS, PRODUCTS = 8, 200
_BYTES = {"f32": 4, "f64": 8}
_POINTER = "!llvm.ptr"


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
class Depthwise:
    """A convolution of ``channels``; strides of images, rows and columns, of the window without images."""

    kind: str
    rows: Axis
    columns: Axis
    channels: int
    x: tuple[int, int, int]
    w: tuple[int, int]
    y: tuple[int, int, int]

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
        width = self.columns.results
        return -(-width // -(-width // most))

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
class _Group:
    """Operations of a launch: the convolution, what comes before and after it, its padding."""

    depthwise: Depthwise
    window: Window
    generic: mlir.Op
    heads: list[mlir.Op]
    followers: list[mlir.Op]
    padding: Padding | None

    @property
    def image(self) -> mlir.Value:
        return self.generic.operands[0] if self.padding is None else self.padding.image


def outline_channels_last(unit: Unit, generics: list[mlir.Op], name: str, shapes: Shapes) -> Outlined | None:
    """The slice function of a depthwise convolution, with its padding, fill and elementwise consumers.

    None for other groups.
    """
    group = _read(generics, shapes)
    if group is None:
        return None
    spared = write_in_place(group.heads, group.followers)
    checks = [check for op in group.followers for check in read_nest(op, shapes)[0].checks]
    nest = replace(group.window.nest, checks=(*group.window.nest.checks, *checks))
    window = replace(group.window, nest=nest)
    outlined = declared(window, "window", group.generic, group.followers, name)
    outlined.spared = spared
    if group.padding is not None:
        others = [buffer for buffer in outlined.buffers if buffer not in (group.padding.padded, group.image)]
        outlined.buffers = [group.image, *others]
        outlined.spared = [*spared, mlir.definition(group.padding.padded)]
    written = {op.operands[-1] for op in (group.generic, *group.followers)}
    function, entry = slice_function(unit.module, outlined, written)
    end = None
    if group.followers:
        end, _ = write_rows(unit.module, outlined, window.groups, group.generic, group.followers, shapes)
    lanes = unit.target.vector_bytes // _BYTES[group.depthwise.kind]
    text = _Row(group.depthwise, _flags(group.generic), f"{name}_row", lanes).text()
    mlir.splice(unit.module, str(lowered(text)))
    with mlir.at_end(entry):
        _write(group, outlined, shapes, list(entry.arguments), end)
        func.return_([mlir.constant(0, "i32")])
    function.verify()
    return outlined


def is_padded_depthwise(generics: Sequence[mlir.Op], shapes: Shapes) -> bool:
    """Whether ``outline_channels_last`` accepts ``generics``, the first two of which pad the image."""
    group = _read(list(generics), shapes)
    return group is not None and group.padding is not None


def _read(generics: list[mlir.Op], shapes: Shapes) -> _Group | None:
    padding = read_padding(generics)
    rest = generics if padding is None else generics[2:]
    place = next((number for number, generic in enumerate(rest[:2]) if is_contraction(generic)), None)
    if place != 1 or not (rest[0].operands[-1] == rest[1].operands[2] and makes_zero(rest[0])):
        return None
    window, depthwise = read_window(rest[1], shapes), None
    if window is not None:
        depthwise = _depthwise(rest[1], window, padding, shapes)
    if window is None or depthwise is None:
        return None
    return _Group(depthwise, window, rest[1], rest[:2], rest[2:], padding)


def _depthwise(generic: mlir.Op, window: Window, padding: Padding | None, shapes: Shapes) -> Depthwise | None:
    """``generic`` as a depthwise convolution of up to one batch axis, two spatial ones, channels last."""
    kinds = {str(mlir.element_type(operand.type)) for operand in generic.operands}
    products = read_products(generic)
    if products is None or (products.left, products.right) != (0, 1) or len(kinds) != 1:
        return None
    a, b, c = window.nest.accesses
    along = window.along
    steps = [access.strides[along] for access in (a, b, c)]
    if not kinds <= set(_BYTES) or steps != [1, 1, 1] or any(access.offset != 0 for access in (a, b, c)):
        return None
    image = generic.operands[0] if padding is None else padding.image
    extents, strides = shapes.sizes(image), shapes.strides(image)
    spatial: list[_Spatial] = []
    batch: list[tuple[int, Formula]] = []
    for dim, result in enumerate(mlir.indexing_maps(generic)[0].results):
        loops = _loops(result, window, shapes)
        before = 0 if padding is None else padding.before[dim]
        if loops is None or (len(loops) == 1 and before != 0):
            return None
        if len(loops) == 1:
            others = [number for number in loops if number != along and window.nest.axes[number].size != 1]
            batch += [(number, strides[dim]) for number in others]
            continue
        (pixel, stride), (tap, dilation) = loops.items()
        sizes = [extents[dim], window.nest.axes[pixel].size, window.nest.axes[tap].size]
        numbers = [number for number in (*sizes, stride, dilation) if isinstance(number, int)]
        if len(numbers) != 5:
            return None
        extent, results, taps, stride, dilation = numbers
        axis = Axis(extent, results, taps, stride, dilation, before)
        spatial.append(_Spatial(pixel, tap, strides[dim], axis))
    if len(spatial) != 2 or len(batch) > 1:
        return None
    rows, columns = spatial
    outer = (*(number for number, _ in batch), rows.pixel)
    channels = window.nest.axes[along].size
    if window.jam != columns.pixel or window.outer != outer or rows.tap > columns.tap:
        return None
    images = batch[0] if batch else (None, 0)
    words: list[Formula] = [channels, images[1], rows.step, columns.step]
    words += [b.strides[rows.tap], b.strides[columns.tap]]
    words += [
        0 if images[0] is None else c.strides[images[0]],
        c.strides[rows.pixel],
        c.strides[columns.pixel],
    ]
    known = [word for word in words if isinstance(word, int)]
    if len(known) != len(words):
        return None
    x, w, y = known[1:4], known[4:6], known[6:]
    return Depthwise(
        *(kinds.pop(), rows.axis, columns.axis, known[0]),
        *((x[0], x[1], x[2]), (w[0], w[1]), (y[0], y[1], y[2])),
    )


@dataclass(frozen=True)
class _Spatial:
    """A spatial axis, the loops over its pixels and taps, and its stride in the image."""

    pixel: int
    tap: int
    step: Formula
    axis: Axis


def _loops(result: mlir.AffineExpr, window: Window, shapes: Shapes) -> dict[int, Formula] | None:
    """The loops of an index of the image with their factors: a parallel one, then that over taps, if any."""
    axes = window.nest.axes
    factors, constant = affine(result, len(axes), shapes.codes)
    loops = {number: factor for number, factor in enumerate(factors) if factor != 0}
    parallel = [axes[number].parallel for number in loops]
    if constant != 0 or parallel not in ([True], [True, False]):
        return None
    return None if parallel == [True] and list(loops.values()) != [1] else loops


def _flags(generic: mlir.Op) -> dict[str, str]:
    """The fast-math flags of the operations of the body, as they are written."""
    body = mlir.operations(mlir.block_of(generic))
    return {
        mlir.name_of(op): str(op.attributes["fastmath"]).removeprefix("#arith.")
        for op in body
        if "fastmath" in op.attributes
    }


def _write(
    group: _Group, outlined: Outlined, shapes: Shapes, arguments: list[mlir.Value], end: str | None
) -> None:
    """The loop over rows of results; each row is followed by its epilogue."""
    operands = (group.image, *group.generic.operands[1:])
    pointers = [arguments[3 + outlined.buffers.index(operand)] for operand in operands]
    window = group.window
    cache: dict[Formula, mlir.Value] = {}
    sizes = [
        memory.emit_formula(window.nest.axes[axis].size, arguments[2], cache)
        for axis in (window.jam, window.along)
        if axis is not None
    ]

    def row(number: mlir.Value) -> None:
        mlir.call_llvm(f"{outlined.name}_row", [number, *pointers])
        if end is not None:
            zero = mlir.constant(0)
            bounds = [number, zero, sizes[0], zero, sizes[1]]
            mlir.call_function(end, [*bounds, *arguments[2:]])

    loop(arguments[0], arguments[1], row)


class _Row:
    """Emits the function of a row: ``(number, x, w, y)``."""

    def __init__(self, depthwise: Depthwise, flags: dict[str, str], name: str, lanes: int) -> None:
        self.depthwise, self.flags = depthwise, flags
        while lanes > depthwise.channels:
            lanes //= 2
        self.lanes = lanes
        self.vector = f"vector<{lanes}x{depthwise.kind}>"
        pointers = [(each, _POINTER) for each in ("x", "w", "y")]
        self.code = Code(name, [("number", "i64"), *pointers])
        self.zero = self.code.const("dense<0.0>", self.vector)
        self.sources: list[Name] = []
        self.masks: list[Name] = []

    def text(self) -> str:
        code, one = self.code, self.depthwise
        image, row = code.div("%number", one.rows.results), code.rem("%number", one.rows.results)
        self._read_rows(image, row)
        place = code.add(code.mul(image, one.y[0]), code.mul(row, one.y[1]))
        target = code.at("%y", place, one.kind)
        for first, blocks, step in one.blocks():
            with code.loop(0, blocks) as block:
                pixel = code.add(code.mul(block.counter, step), first)
                self._block(target, pixel, one.zeros(first))
        return code.text()

    def _read_rows(self, image: Name, row: Name) -> None:
        """The rows of the image that taps read, and masks of those inside of it."""
        code, one = self.code, self.depthwise
        base = code.at("%x", code.mul(image, one.x[0]), one.kind)
        for tap in range(one.rows.taps):
            place = code.add(code.mul(row, one.rows.stride), tap * one.rows.dilation - one.rows.before)
            if one.masks_rows:
                inside = code.compare("ult", place, one.rows.image)
                place = code.choose(inside, place, code.const(0))
                self.masks.append(spread(code, inside, "i1", self.lanes))
            self.sources.append(code.at(base, code.mul(place, one.x[1]), one.kind))

    def _block(self, target: Name, pixel: Name, zeros: frozenset[tuple[int, int]]) -> None:
        code, one = self.code, self.depthwise
        start = code.sub(code.mul(pixel, one.columns.stride), one.columns.before)
        sources = [code.at(source, code.mul(start, one.x[2]), one.kind) for source in self.sources]
        target = code.at(target, code.mul(pixel, one.y[2]), one.kind)
        last = one.channels - self.lanes
        with code.loop(0, one.channels, self.lanes) as loop:
            channel = code.min(loop.counter, last) if one.channels % self.lanes else loop.counter
            self._products([code.at(each, channel, one.kind) for each in (*sources, "%w", target)], zeros)

    def _products(self, places: list[Name], zeros: frozenset[tuple[int, int]]) -> None:
        """Emit the results of the channels of a vector, for all pixels of a block."""
        code, one = self.code, self.depthwise
        *sources, window, target = places
        sums = [self.zero] * one.pixels
        for row, source in enumerate(sources):
            read: dict[int, Name] = {}
            for tap in range(one.columns.taps):
                weights = self._load(window, row * one.w[0] + tap * one.w[1])
                for pixel in range(one.pixels):
                    place = pixel * one.columns.stride + tap * one.columns.dilation
                    if (pixel, tap) in zeros:
                        read[place] = self.zero
                    elif place not in read:
                        read[place] = self._image(source, place * one.x[2], row)
                    product = self._do("mulf", read[place], weights)
                    sums[pixel] = self._do("addf", sums[pixel], product)
        for pixel, total in enumerate(sums):
            code.store(total, code.at(target, pixel * one.y[2], one.kind), self.vector, _BYTES[one.kind])

    def _image(self, source: Name, offset: int, row: int) -> Name:
        values = self._load(source, offset)
        if not self.masks:
            return values
        kinds = f"vector<{self.lanes}xi1>, {self.vector}"
        return self.code.op(f"arith.select {self.masks[row]}, {values}, {self.zero} : {kinds}")

    def _load(self, base: Name, offset: int) -> Name:
        place = self.code.at(base, offset, self.depthwise.kind)
        return self.code.load(place, self.vector, _BYTES[self.depthwise.kind])

    def _do(self, operation: str, left: Name, right: Name) -> Name:
        flags = self.flags.get(f"arith.{operation}", "")
        return self.code.op(f"arith.{operation} {left}, {right} {flags} : {self.vector}")
