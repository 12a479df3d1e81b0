"""Slices with static bounds, and padding."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, integers
from kcache_compiler.frontends.graph.ops.shaping import concatenate
from kcache_compiler.frontends.graph.size_expression import Size, SizeExpression, plus, times
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import ANY, StaticSizeRequired, Type, Value, axes_of, same_dtype


def pad(
    e: Emitter,
    x: Value,
    padding: Value | None = None,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...] | None = None,
) -> Value:
    """Pad around and between elements; negative widths at the edges remove elements."""
    rank = len(x.dims)
    between = (0,) * rank if interior is None else interior
    for name, widths in (("low", low), ("high", high), ("interior", between)):
        if len(widths) != rank:
            raise InvalidProgram(
                f"{name} has {len(widths)} entries, but {x} has {rank} axes: give one for each"
            )
    if any(width < 0 for width in between):
        raise InvalidProgram(f"interior {list(between)} contains a negative width")
    value = e.scalar(x.dtype, 0) if padding is None else padding
    same_dtype(x, value)
    if value.dims:
        raise InvalidProgram(f"the padding {value} is not a scalar")
    dims: list[Size] = []
    for axis, size in enumerate(x.dims):
        if isinstance(size, SizeExpression) and (between[axis] or low[axis] < 0 or high[axis] < 0):
            raise StaticSizeRequired(
                f"axis {axis} of {x} is dynamic: it takes no interior and no negative padding"
            )
        dilated = times(size, 1 + between[axis]) if isinstance(size, SizeExpression) or size else 0
        padded = plus(plus(dilated, -between[axis] if dilated != 0 else 0), low[axis] + high[axis])
        if isinstance(padded, int) and padded < 0:
            raise InvalidProgram(f"axis {axis} of {x} would have the size {padded}")
        dims.append(padded)
    if not e.is_static(dims) and not any(between) and min(*low, *high) >= 0:
        return _pad_by_concatenation(e, x, value, low, high)
    attributes = (
        f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)}, "
        f"interior_padding = {integers(between)}"
    )
    return e.emit("pad", (x, value), Type(x.dtype, tuple(dims)), attributes)


def _pad_by_concatenation(
    e: Emitter, x: Value, value: Value, low: Sequence[int], high: Sequence[int]
) -> Value:
    """Pad axis by axis by concatenation, the form that is compiled for dynamic dimensions."""
    for axis, widths in enumerate(zip(low, high, strict=True)):
        before, after = (
            [e.full(value, (*x.dims[:axis], width, *x.dims[axis + 1 :]))] if width else [] for width in widths
        )
        if before or after:
            x = concatenate(e, *before, x, *after, axis=axis)
    return x


def slice_(
    e: Emitter,
    x: Value,
    *,
    starts: tuple[int, ...],
    limits: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    axes: tuple[int, ...] | None = None,
) -> Value:
    """Slice from ``starts`` to ``limits`` along ``axes``, and all of the other axes."""
    sliced = tuple(range(len(x.dims))) if axes is None else axes_of(axes, len(x.dims))
    steps = (1,) * len(sliced) if strides is None else strides
    if not len(sliced) == len(starts) == len(limits) == len(steps):
        raise InvalidProgram(
            f"{len(sliced)} axes of {x}: {len(starts)} starts, {len(limits)} limits, {len(steps)} strides"
        )
    if all(isinstance(size, int) for size in x.dims):
        sizes = [size for size in x.dims if isinstance(size, int)]
        begin, end, step = [0] * len(sizes), list(sizes), [1] * len(sizes)
        for axis, start, limit, stride in zip(sliced, starts, limits, steps, strict=True):
            begin[axis], end[axis], step[axis] = _normalize_bounds(x, axis, sizes[axis], start, limit, stride)
        dims = tuple(
            max(0, -(-(stop - start) // stride)) for start, stop, stride in zip(begin, end, step, strict=True)
        )
        return _emit_slice(e, x, dims, begin, end, step)
    return _slice_dynamic(
        e, x, {a: (s, m, t) for a, s, m, t in zip(sliced, starts, limits, steps, strict=True)}
    )


def _emit_slice(
    e: Emitter,
    x: Value,
    dims: tuple[Size, ...],
    begin: Sequence[int],
    end: Sequence[int],
    step: Sequence[int],
) -> Value:
    attributes = (
        f"start_indices = {integers(begin)}, limit_indices = {integers(end)}, strides = {integers(step)}"
    )
    return e.emit("slice", (x,), Type(x.dtype, dims), attributes)


def _normalize_bounds(
    x: Value, axis: int, size: int, start: int, limit: int, stride: int
) -> tuple[int, int, int]:
    """Return (start, limit, stride) within an axis of ``size`` elements; negative ones count from the end."""
    if stride < 1:
        raise InvalidProgram(f"the stride {stride} of axis {axis} of {x} must be at least 1 (use reverse)")
    begin = start + size if start < 0 else start
    end = limit + size if limit < 0 else min(limit, size)
    if not 0 <= begin <= size or end < begin:
        limit_text = "the end" if limit >= size else str(limit)
        raise InvalidProgram(f"{start} to {limit_text} is not within axis {axis} of {x}")
    return begin, end, stride


def _slice_dynamic(e: Emitter, x: Value, bounds: dict[int, tuple[int, int, int]]) -> Value:
    """Slice static axes of a value with dynamic ones; ``bounds`` has (start, limit, stride) by axis."""
    begin: list[int] = []
    end: list[Size] = []
    step: list[int] = []
    for axis, size in enumerate(x.dims):
        if isinstance(size, int):
            normalized = _normalize_bounds(x, axis, size, *bounds.get(axis, (0, size, 1)))
            begin.append(normalized[0])
            end.append(normalized[1])
            step.append(normalized[2])
            continue
        if axis in bounds:
            raise StaticSizeRequired(
                f"axis {axis} of {x} is dynamic, which slice does not support: omit it from axes"
            )
        begin.append(0)
        end.append(size)
        step.append(1)
    dims = tuple(
        -(-(stop - start) // stride) if isinstance(stop, int) else stop
        for start, stop, stride in zip(begin, end, step, strict=True)
    )
    if e.is_static(end):
        return _emit_slice(e, x, dims, begin, [e.sample(stop) for stop in end], step)
    operands = (x, e.shape(tuple(begin)), e.shape(tuple(end)), e.shape(tuple(step)))
    return e.emit("real_dynamic_slice", operands, Type(x.dtype, dims))


_X = Operand("x", ANY)

SLICING = Group(
    "Slicing and padding",
    (
        Op(
            "slice",
            "A slice of x with static bounds.",
            (_X,),
            slice_,
            "ceil((limit - start) / stride) elements along each of `axes`; all elements along the others, "
            "which may be dynamic",
            "`stablehlo.slice`; `stablehlo.real_dynamic_slice` if another axis is dynamic",
            (
                Attribute("starts", "ints", "First indices; negative ones count from the end."),
                Attribute(
                    "limits",
                    "ints",
                    "Indices after the last; negative ones count from the end, larger ones are clamped to "
                    "the size.",
                ),
                Attribute("strides", "ints", "Strides, at least 1. Default: 1.", None),
                Attribute("axes", "ints", "The axes to slice. Default: all.", None),
            ),
        ),
        Op(
            "pad",
            "x padded at its edges and between its elements.",
            (_X, Operand("padding", ANY, optional=True)),
            pad,
            "along each axis low + size + high + interior * (size - 1); `padding` is a scalar of the dtype "
            "of `x`, 0 if omitted",
            "`stablehlo.pad`; `stablehlo.concatenate` along a dynamic axis",
            (
                Attribute(
                    "low", "ints", "Number of elements before each axis; negative ones remove elements."
                ),
                Attribute(
                    "high", "ints", "Number of elements after each axis; negative ones remove elements."
                ),
                Attribute(
                    "interior",
                    "ints",
                    "Number of elements between neighbors along each axis. Default: 0.",
                    None,
                ),
            ),
        ),
    ),
)
