"""The rows of a pooling of images with channels last: vectors of channels, with all taps of a window.

The combiner may take an element twice, so that a tap outside of the image is replaced by the nearest one in
it, which is in the same window: no padding is stored, and no row or column has code of its own.
"""

from __future__ import annotations

from kcache_compiler.lower.conv.channels_last_match import BYTES, Axis
from kcache_compiler.lower.conv.pooling_match import ChannelsPool, reads_outside
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.text_builder import Code, Name

_POINTER = "!llvm.ptr"


def channels_text(pool: ChannelsPool, name: str) -> str:
    """``(begin, end, x, y)``: rows of results, counted through all outer axes."""
    code = Code(name, [("begin", "i64"), ("end", "i64"), ("x", _POINTER), ("y", _POINTER)])
    with code.loop("%begin", "%end") as row:
        _write_row(code, pool, row.counter)
    return code.text()


def _write_row(code: Code, pool: ChannelsPool, number: Name) -> None:
    image, result, point = "%x", "%y", code.div(number, pool.rows.results)
    for size, *strides in reversed(pool.outer):
        index, point = code.rem(point, size), code.div(point, size)
        image, result = (
            code.at(base, code.mul(index, stride), pool.kind)
            for base, stride in zip((image, result), strides, strict=True)
        )
    row = code.rem(number, pool.rows.results)
    sources = [
        code.at(image, code.mul(place, pool.x[0]), pool.kind) for place in _places(code, pool.rows, row)
    ]
    result = code.at(result, code.mul(row, pool.y[0]), pool.kind)
    with code.loop(0, pool.columns.results) as column:
        offsets = [code.mul(place, pool.x[1]) for place in _places(code, pool.columns, column.counter)]
        taps = [code.at(source, offset, pool.kind) for source in sources for offset in offsets]
        target = code.at(result, code.mul(column.counter, pool.y[1]), pool.kind)
        _write_pixel(code, pool, taps, target)


def _places(code: Code, axis: Axis, result: Name) -> list[Name]:
    """Where the taps of a result read the image."""
    places = [
        code.add(code.mul(result, axis.stride), tap * axis.dilation - axis.before) for tap in range(axis.taps)
    ]
    if not reads_outside(axis):
        return places
    return [code.min(code.max(place, 0), axis.image - 1) for place in places]


def _write_pixel(code: Code, pool: ChannelsPool, taps: list[Name], target: Name) -> None:
    """Store the results of all channels; the last vector may overlap the one before."""
    vector, width, step = f"vector<{pool.lanes}x{pool.kind}>", BYTES[pool.kind], pool.lanes * pool.vectors
    with code.loop(0, pool.channels, step) as loop:
        last = pool.channels - step
        first = code.min(loop.counter, last) if pool.channels % step else loop.counter
        for number in range(pool.vectors):
            channel = code.add(first, number * pool.lanes) if number else first
            total: Name = ""
            for tap in taps:
                values = code.load(code.at(tap, channel, pool.kind), vector, width)
                total = _combined(code, pool, values, total, vector) if total else values
            code.store(total, code.at(target, channel, pool.kind), vector, width)


def _combined(code: Code, pool: ChannelsPool, value: Name, total: Name, vector: str) -> Name:
    attributes = pool.combiner.attributes
    flags = str(attributes["fastmath"]).removeprefix("#arith.") + " " if "fastmath" in attributes else ""
    return code.op(f"{mlir.name_of(pool.combiner)} {value}, {total} {flags}: {vector}")
