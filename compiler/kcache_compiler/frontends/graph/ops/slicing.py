"""Operations that take parts, and that add elements around."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, integers
from kcache_compiler.frontends.graph.extent import Extent, Size, plus, times
from kcache_compiler.frontends.graph.ops.shaping import concatenate
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import ANY, OpenAxis, Type, Value, axes_of, same_dtype


def pad(
    e: Emitter,
    x: Value,
    padding: Value | None = None,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...] | None = None,
) -> Value:
    """Elements around and between; negative widths take elements away."""
    rank = len(x.dims)
    between = (0,) * rank if interior is None else interior
    for name, widths in (("low", low), ("high", high), ("interior", between)):
        if len(widths) != rank:
            raise InvalidProgram(f"{name} has {len(widths)} entries, and {x} has {rank} axes: one for each")
    if any(width < 0 for width in between):
        raise InvalidProgram(f"interior {list(between)} is negative somewhere")
    value = e.scalar(x.dtype, 0) if padding is None else padding
    same_dtype(x, value)
    if value.dims:
        raise InvalidProgram(f"the padding {value} is no scalar")
    dims: list[Size] = []
    for axis, own in enumerate(x.dims):
        if isinstance(own, Extent) and (between[axis] or low[axis] < 0 or high[axis] < 0):
            raise OpenAxis(f"axis {axis} of {x} is open: it takes no interior and no negative padding")
        inside = times(own, 1 + between[axis]) if isinstance(own, Extent) or own else 0
        made = plus(plus(inside, -between[axis] if inside != 0 else 0), low[axis] + high[axis])
        if isinstance(made, int) and made < 0:
            raise InvalidProgram(f"axis {axis} of {x} would have the size {made}")
        dims.append(made)
    if not e.fixed(dims) and not any(between) and min(*low, *high) >= 0:
        return _surrounded(e, x, value, low, high)
    attributes = (
        f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)}, "
        f"interior_padding = {integers(between)}"
    )
    return e.emit("pad", (x, value), Type(x.dtype, tuple(dims)), attributes)


def _surrounded(e: Emitter, x: Value, value: Value, low: Sequence[int], high: Sequence[int]) -> Value:
    """Padding axis by axis: what is compiled for open axes, where a pad is not."""
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
    """From ``starts`` to before ``limits`` along ``axes``; all of the others."""
    along = tuple(range(len(x.dims))) if axes is None else axes_of(axes, len(x.dims))
    steps = (1,) * len(along) if strides is None else strides
    if not len(along) == len(starts) == len(limits) == len(steps):
        raise InvalidProgram(
            f"{len(along)} axes of {x}: {len(starts)} starts, {len(limits)} limits, {len(steps)} strides"
        )
    if all(isinstance(own, int) for own in x.dims):
        fixed = [own for own in x.dims if isinstance(own, int)]
        begin, end, step = [0] * len(fixed), list(fixed), [1] * len(fixed)
        for axis, start, limit, stride in zip(along, starts, limits, steps, strict=True):
            begin[axis], end[axis], step[axis] = _bounds(x, axis, fixed[axis], start, limit, stride)
        dims = tuple(
            max(0, -(-(stop - start) // stride)) for start, stop, stride in zip(begin, end, step, strict=True)
        )
        return _emit_slice(e, x, dims, begin, end, step)
    return _slice_open(e, x, {a: (s, m, t) for a, s, m, t in zip(along, starts, limits, steps, strict=True)})


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


def _bounds(x: Value, axis: int, own: int, start: int, limit: int, stride: int) -> tuple[int, int, int]:
    if stride < 1:
        raise InvalidProgram(f"the stride {stride} of axis {axis} of {x} is not from 1 (use reverse)")
    begin = start + own if start < 0 else start
    end = limit + own if limit < 0 else min(limit, own)
    if not 0 <= begin <= own or end < begin:
        shown = "the end" if limit >= own else str(limit)
        raise InvalidProgram(f"{start} to {shown} is not within axis {axis} of {x}")
    return begin, end, stride


def _slice_open(e: Emitter, x: Value, wanted: dict[int, tuple[int, int, int]]) -> Value:
    """Fixed axes are cut; an open one is in ``wanted`` only with its whole."""
    begin: list[int] = []
    end: list[Size] = []
    step: list[int] = []
    for axis, own in enumerate(x.dims):
        if isinstance(own, int):
            bounds = _bounds(x, axis, own, *wanted.get(axis, (0, own, 1)))
            begin.append(bounds[0])
            end.append(bounds[1])
            step.append(bounds[2])
            continue
        if axis in wanted:
            raise OpenAxis(f"axis {axis} of {x} is open, and slice has no form for it: leave it out of axes")
        begin.append(0)
        end.append(own)
        step.append(1)
    dims = tuple(
        -(-(stop - start) // stride) if isinstance(stop, int) else stop
        for start, stop, stride in zip(begin, end, step, strict=True)
    )
    if e.fixed(end):
        return _emit_slice(e, x, dims, begin, [e.sample(stop) for stop in end], step)
    operands = (x, e.shape(tuple(begin)), e.shape(tuple(end)), e.shape(tuple(step)))
    return e.emit("real_dynamic_slice", operands, Type(x.dtype, dims))


_X = Operand("x", ANY)
_SHAPE = "shape"

PARTS = Group(
    "Parts",
    (
        Op(
            "slice",
            "A part of x with fixed bounds.",
            (_X,),
            slice_,
            "along each of `axes` ceil((limit - start) / stride) elements; all along the others, open ones "
            "among them",
            "`stablehlo.slice`; `stablehlo.real_dynamic_slice` where another axis is open",
            (
                Attribute("starts", "ints", "First indices; from the end where negative."),
                Attribute(
                    "limits", "ints", "Indices after the last; from the end where negative, cut to the size."
                ),
                Attribute("strides", "ints", "Steps, from 1. Default: 1.", None),
                Attribute("axes", "ints", "The axes that are cut. Default: all.", None),
            ),
        ),
        Op(
            "pad",
            "Elements around x and between its elements.",
            (_X, Operand("padding", ANY, optional=True)),
            pad,
            "along each axis low + size + high + interior * (size - 1); `padding` is a scalar of the dtype "
            "of `x`, 0 where it is left out",
            "`stablehlo.pad`; where it is along an open axis `stablehlo.concatenate`",
            (
                Attribute("low", "ints", "For each axis how many in front; negative takes away."),
                Attribute("high", "ints", "For each axis how many behind; negative takes away."),
                Attribute("interior", "ints", "For each axis how many between neighbours. Default: 0.", None),
            ),
        ),
    ),
)
