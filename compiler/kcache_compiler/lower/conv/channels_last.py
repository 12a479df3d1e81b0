"""Convolutions of channels-last images that are depthwise, have few input channels, as first layers do, or
groups of channels.

Vectors of output channels, several pixels of a row in registers. If a vector has several groups, it reads as
many inputs, and shuffles give each lane those of its group; a loop goes through the inputs of larger groups.

All taps of a block of pixels are unrolled. The columns of a block that lie outside of the image are known
when the code is written: blocks at the left and right edge have their own code. Rows outside of it are
masked. Padding is therefore not copied; its zeros are multiplied, as the program says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product as product_of

from kcache_compiler.errors import CompileFailed
from kcache_compiler.lower.conv.channels_last_match import BYTES, Group, Layer, read_group
from kcache_compiler.lower.gemm.epilogue import write_rows
from kcache_compiler.lower.gemm.micro_kernel import spread
from kcache_compiler.lower.gemm.objects import lowered
from kcache_compiler.lower.gemm.outline import declared, write_in_place
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, read_nest, slice_function
from kcache_compiler.lower.sort_scatter.loop_builder import loop
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.passes.software_fma import has_fma
from kcache_compiler.passes.stage import Unit
from kcache_compiler.shapes.formula import Formula, product

_POINTER = "!llvm.ptr"


def outline_channels_last(unit: Unit, generics: list[mlir.Op], name: str, shapes: Shapes) -> Outlined | None:
    """The slice function of a convolution with its padding, fill and elementwise consumers.

    None for other groups.
    """
    group = read_group(generics, shapes, unit.target.vector_bytes)
    if group is None:
        return None
    spared = write_in_place(group.heads, group.followers, strided=True)
    group = read_group(generics, shapes, unit.target.vector_bytes)
    if group is None:
        raise CompileFailed(
            "launches", "a convolution does not write to the part of a buffer it may write to"
        )
    checks = [check for op in group.followers for check in read_nest(op, shapes)[0].checks]
    nest = replace(group.window.nest, checks=(*group.window.nest.checks, *checks))
    window = replace(group.window, nest=nest)
    outlined = declared(window, "window", group.generic, group.followers, name)
    outlined.spared, outlined.scratch = spared, group.layer.scratch
    if group.padding is not None:
        others = [buffer for buffer in outlined.buffers if buffer not in (group.padding.padded, group.image)]
        outlined.buffers = [group.image, *others]
        outlined.spared = [*spared, mlir.definition(group.padding.padded)]
    written = {op.operands[-1] for op in (group.generic, *group.followers)}
    function, entry = slice_function(unit.module, outlined, written)
    end = None
    if group.followers:
        end, _ = write_rows(unit.module, outlined, window.groups, group.generic, group.followers, shapes)
    fused = has_fma(unit.target) and _contracts(group.generic)
    text = _Row(group.layer, fused, f"{name}_row").text()
    if group.layer.rotates:
        text += rotated_window(group.layer, f"{name}_window")
    mlir.splice(unit.module, str(lowered(text)))
    with mlir.at_end(entry):
        _write(group, outlined, shapes, list(entry.arguments), end)
        func.return_([mlir.constant(0, "i32")])
    function.verify()
    return outlined


def _contracts(generic: mlir.Op) -> bool:
    """Whether products may be fused into the sums."""
    flags = [
        str(op.attributes["fastmath"]) if "fastmath" in op.attributes else ""
        for op in mlir.operations(mlir.block_of(generic))
        if mlir.name_of(op) in ("arith.mulf", "arith.addf")
    ]
    return all("contract" in each for each in flags)


def _write(
    group: Group, outlined: Outlined, shapes: Shapes, arguments: list[mlir.Value], end: str | None
) -> None:
    """The loop over rows of results; each row is followed by its epilogue."""
    operands = (group.image, *group.generic.operands[1:])
    pointers = [arguments[3 + outlined.buffers.index(operand)] for operand in operands]
    passed = arguments[2:]
    if group.layer.rotates:
        mlir.call_llvm(f"{outlined.name}_window", [pointers[1], passed[-1]])
        pointers[1] = passed.pop()
    window = group.window
    cache: dict[Formula, mlir.Value] = {}
    sizes = [
        memory.emit_formula(product([axis.size for axis in axes]), arguments[2], cache)
        for axes in (window.groups.m, window.groups.n)
    ]

    def row(number: mlir.Value) -> None:
        mlir.call_llvm(f"{outlined.name}_row", [number, *pointers])
        if end is not None:
            zero = mlir.constant(0)
            bounds = [number, zero, sizes[0], zero, sizes[1]]
            mlir.call_function(end, [*bounds, *passed])

    loop(arguments[0], arguments[1], row)


class _Row:
    """Emits the function of a row: ``(number, x, w, y)``."""

    def __init__(self, layer: Layer, fused: bool, name: str) -> None:
        self.layer, self.fused = layer, fused
        self.vector = f"vector<{layer.lanes}x{layer.kind}>"
        pointers = [(each, _POINTER) for each in ("x", "w", "y")]
        self.code = Code(name, [("number", "i64"), *pointers])
        self.zero = self.code.const("dense<0.0>", self.vector)
        self.sources: list[Name] = []
        self.masks: list[Name] = []

    def text(self) -> str:
        code, layer = self.code, self.layer
        image, row = code.div("%number", layer.rows.results), code.rem("%number", layer.rows.results)
        self._read_rows(image, row)
        place = code.add(code.mul(image, layer.y[0]), code.mul(row, layer.y[1]))
        target = code.at("%y", place, layer.kind)
        for first, blocks, step in layer.blocks():
            with code.loop(0, blocks) as block:
                pixel = code.add(code.mul(block.counter, step), first)
                self._block(target, pixel, layer.zeros(first))
        return code.text()

    def _read_rows(self, image: Name, row: Name) -> None:
        """The rows of the image that taps read, and masks of those inside of it."""
        code, layer = self.code, self.layer
        base = code.at("%x", code.mul(image, layer.x[0]), layer.kind)
        for tap in range(layer.rows.taps):
            place = code.add(code.mul(row, layer.rows.stride), tap * layer.rows.dilation - layer.rows.before)
            if layer.masks_rows:
                inside = code.compare("ult", place, layer.rows.image)
                place = code.choose(inside, place, code.const(0))
                self.masks.append(spread(code, inside, "i1", layer.lanes))
            self.sources.append(code.at(base, code.mul(place, layer.x[1]), layer.kind))

    def _block(self, target: Name, pixel: Name, zeros: frozenset[tuple[int, int]]) -> None:
        code, layer = self.code, self.layer
        start = code.sub(code.mul(pixel, layer.columns.stride), layer.columns.before)
        sources = [code.at(source, code.mul(start, layer.x[2]), layer.kind) for source in self.sources]
        target = code.at(target, code.mul(pixel, layer.y[2]), layer.kind)
        if layer.groups > 1 and not layer.mixes:
            with code.loop(0, layer.groups) as group:
                inputs = code.mul(group.counter, layer.inputs)
                sources = [code.at(source, inputs, layer.kind) for source in sources]
                first = code.mul(group.counter, layer.channels)
                window, target = (code.at(each, first, layer.kind) for each in ("%w", target))
                self._channels(sources, window, target, layer.channels, zeros)
            return
        self._channels(sources, "%w", target, layer.channels * layer.groups, zeros)

    def _channels(
        self,
        sources: list[Name],
        window: Name,
        target: Name,
        channels: int,
        zeros: frozenset[tuple[int, int]],
    ) -> None:
        """Emit the loop over vectors of channels that depend on the same inputs, or on those before them."""
        code, layer = self.code, self.layer
        width = layer.lanes * layer.vectors
        with code.loop(0, channels, width) as loop:
            last = channels - width
            channel = code.min(loop.counter, last) if channels % width else loop.counter
            if not layer.inputs or layer.mixes:
                sources = [code.at(source, channel, layer.kind) for source in sources]
            place = code.mul(loop.counter, layer.products) if layer.rotates else channel
            window, target = code.at(window, place, layer.kind), code.at(target, channel, layer.kind)
            if layer.rotates:
                self._rotated(sources, window, target, zeros)
            elif layer.groups > 1 and not layer.mixes:
                self._inputs(sources, window, target, zeros)
            else:
                self._products(sources, window, target, zeros)

    def _inputs(
        self, sources: list[Name], window: Name, target: Name, zeros: frozenset[tuple[int, int]]
    ) -> None:
        """Emit the results of vectors of channels of a group, for all pixels of a block."""
        code, layer = self.code, self.layer
        vectors = [number * layer.lanes for number in range(layer.vectors)]
        numbers = list(product_of(range(layer.pixels), vectors))
        with code.loop(0, layer.inputs, carried=[(self.zero, self.vector)] * len(numbers)) as loop:
            places = [code.at(source, loop.counter, layer.kind) for source in sources]
            weights = code.at(window, code.mul(loop.counter, layer.w[2]), layer.kind)
            sums = dict(zip(numbers, loop.carried, strict=True))
            taps = product_of(range(layer.rows.taps), range(layer.columns.taps), range(1))
            self._add_taps(sums, taps, places, weights, zeros)
            loop.following += sums.values()
        for (pixel, vector), total in zip(numbers, loop.results, strict=True):
            place = code.at(target, pixel * layer.y[2] + vector, layer.kind)
            code.store(total, place, self.vector, BYTES[layer.kind])

    def _rotated(
        self, sources: list[Name], window: Name, target: Name, zeros: frozenset[tuple[int, int]]
    ) -> None:
        """Emit the results of a vector of channels of several groups, for all pixels of a block.

        A lane multiplies its input with the weights of each output of its group. Products for outputs that
        are equally far from the input are summed in one vector, which is rotated when all taps are added.
        """
        code, layer = self.code, self.layer
        apart = range(layer.inputs)
        sums = {(pixel, distance): self.zero for pixel in range(layer.pixels) for distance in apart}
        for row, tap in product_of(range(layer.rows.taps), range(layer.columns.taps)):
            values: list[Name] = []
            for pixel in range(layer.pixels):
                column = pixel * layer.columns.stride + tap * layer.columns.dilation
                outside = (pixel, tap) in zeros
                values.append(self.zero if outside else self._inside(sources[row], column * layer.x[2], row))
            for distance in apart:
                number = (row * layer.columns.taps + tap) * layer.inputs + distance
                weights = self._load(window, number * layer.lanes)
                for pixel, value in enumerate(values):
                    sums[pixel, distance] = self._add(sums[pixel, distance], value, weights)
        for pixel in range(layer.pixels):
            total = sums[pixel, 0]
            for distance in apart[1:]:
                rotated = shuffled(code, sums[pixel, distance], layer.sources(-distance), self.vector)
                total = code.op(f"arith.addf {total}, {rotated} : {self.vector}")
            code.store(total, code.at(target, pixel * layer.y[2], layer.kind), self.vector, BYTES[layer.kind])

    def _inside(self, source: Name, offset: int, row: int) -> Name:
        """A vector of the image; zeros outside."""
        values, layer = self._load(source, offset), self.layer
        if not self.masks:
            return values
        kinds = f"vector<{layer.lanes}xi1>, {self.vector}"
        return self.code.op(f"arith.select {self.masks[row]}, {values}, {self.zero} : {kinds}")

    def _products(
        self, sources: list[Name], window: Name, target: Name, zeros: frozenset[tuple[int, int]]
    ) -> None:
        """Emit the results of some vectors of channels, for all pixels of a block."""
        code, layer = self.code, self.layer
        vectors = [number * layer.lanes for number in range(layer.vectors)]
        sums = {(pixel, vector): self.zero for pixel in range(layer.pixels) for vector in vectors}
        self._add_taps(sums, layer.taps(), sources, window, zeros)
        for (pixel, vector), total in sums.items():
            place = code.at(target, pixel * layer.y[2] + vector, layer.kind)
            code.store(total, place, self.vector, BYTES[layer.kind])

    def _add_taps(
        self,
        sums: dict[tuple[int, int], Name],
        taps: Iterable[tuple[int, int, int]],
        sources: list[Name],
        window: Name,
        zeros: frozenset[tuple[int, int]],
    ) -> None:
        """Add the products of ``taps`` to the ``sums`` of pixels and vectors of channels."""
        layer = self.layer
        vectors = [number * layer.lanes for number in range(layer.vectors)]
        read: dict[tuple[int, int, int], Name] = {}
        for row, tap, channel in taps:
            start = row * layer.w[0] + tap * layer.w[1] + channel * layer.w[2]
            weights = {vector: self._load(window, start + vector) for vector in vectors}
            for pixel in range(layer.pixels):
                column = pixel * layer.columns.stride + tap * layer.columns.dilation
                place = row, column, channel
                if (pixel, tap) in zeros:
                    read[place] = self.zero
                elif place not in read:
                    read[place] = self._image(sources[row], column * layer.x[2], row, channel)
                for vector in vectors:
                    sums[pixel, vector] = self._add(sums[pixel, vector], read[place], weights[vector])

    def _image(self, source: Name, offset: int, row: int, channel: int) -> Name:
        """A vector of the image, or a copy of an element for each lane that depends on it; zeros outside."""
        layer, code = self.layer, self.code
        if layer.inputs and not layer.mixes:
            place = code.at(source, offset + channel * layer.x[3], layer.kind)
            element = code.load(place, layer.kind, BYTES[layer.kind])
            values = spread(code, element, layer.kind, layer.lanes)
        else:
            values = self._load(source, offset)
        if layer.mixes:
            lanes = [lane // layer.inputs * layer.inputs + channel for lane in range(layer.lanes)]
            values = code.op(f"llvm.shufflevector {values}, {values} {lanes} : {self.vector}")
        if not self.masks:
            return values
        kinds = f"vector<{layer.lanes}xi1>, {self.vector}"
        return code.op(f"arith.select {self.masks[row]}, {values}, {self.zero} : {kinds}")

    def _load(self, base: Name, offset: int) -> Name:
        place = self.code.at(base, offset, self.layer.kind)
        return self.code.load(place, self.vector, BYTES[self.layer.kind])

    def _add(self, total: Name, left: Name, right: Name) -> Name:
        """``total + left * right``, rounded once if the program allows it and the target can."""
        if self.fused:
            kinds = f"({self.vector}, {self.vector}, {self.vector}) -> {self.vector}"
            return self.code.op(f"llvm.intr.fma({left}, {right}, {total}) : {kinds}")
        product = self.code.op(f"arith.mulf {left}, {right} : {self.vector}")
        return self.code.op(f"arith.addf {total}, {product} : {self.vector}")


def shuffled(code: Code, value: Name, lanes: list[int], kind: str) -> Name:
    """The ``lanes`` of a vector of type ``kind``, in order."""
    return code.op(f"llvm.shufflevector {value}, {value} {lanes} : {kind}")


def rotated_window(layer: Layer, name: str) -> str:
    """``(w, to)``: the weights of vectors of channels, by tap and distance of input and output in the group.

    Lane ``i`` of a vector of distance ``d`` has the weight of input ``i`` for output ``i + d``, both modulo
    the size of a group.
    """
    code = Code(name, [("w", _POINTER), ("to", _POINTER)])
    vector, channels, width = (
        f"vector<{layer.lanes}x{layer.kind}>",
        layer.channels * layer.groups,
        BYTES[layer.kind],
    )
    with code.loop(0, channels, layer.lanes) as loop:
        channel = code.min(loop.counter, channels - layer.lanes)
        target = code.at("%to", code.mul(loop.counter, layer.products), layer.kind)
        with code.loop(0, layer.rows.taps) as row, code.loop(0, layer.columns.taps) as tap:
            start = code.add(code.mul(row.counter, layer.w[0]), code.mul(tap.counter, layer.w[1]))
            first = code.at("%w", code.add(start, channel), layer.kind)
            number = code.add(code.mul(row.counter, layer.columns.taps), tap.counter)
            place = code.at(target, code.mul(number, layer.inputs * layer.lanes), layer.kind)
            rows = [
                code.load(code.at(first, entry * layer.w[2], layer.kind), vector, width)
                for entry in range(layer.inputs)
            ]
            for distance in range(layer.inputs):
                values = rows[0]
                for entry, weights in enumerate(rows):
                    lanes = [
                        layer.lanes + source if lane % layer.inputs == entry else lane
                        for lane, source in enumerate(layer.sources(distance))
                    ]
                    if not entry:
                        lanes = layer.sources(distance)
                    values = code.op(f"llvm.shufflevector {values}, {weights} {lanes} : {vector}")
                code.store(values, code.at(place, distance * layer.lanes, layer.kind), vector, width)
    return code.text()
