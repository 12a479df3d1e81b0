"""Images at other sizes, axis by axis from the last: weighted sums of the elements along it; and images that
are sampled at the places of a grid.

The order of eager mode. PyTorch's own decompositions gather each element by the places of all axes, and take
``a + (b - a) * t`` for linear weights, which is NaN where ``a`` and ``b`` are one infinity.
Outside of the image of a grid is 0: PyTorch's own decomposition takes the value at a corner times 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


def _grid_sampler_2d(x: Any, grid: Any, mode: int = 0, padding: int = 0, align: bool = False) -> Any:
    """``grid_sampler_2d`` with static sizes; ``NotImplemented`` otherwise.

    Elements of 16 bits are computed in f32.
    """
    torch: Any = import_module("torch")
    sizes = (*x.shape, *grid.shape)
    if not all(type(size) is int and size for size in sizes):
        return NotImplemented
    half = x.dtype in (torch.float16, torch.bfloat16)
    image, places = (tensor.to(torch.float32) if half else tensor for tensor in (x, grid))
    at = [_unnormalized(places[..., axis], x.shape[3 - axis], align) for axis in (0, 1)]

    def within(coordinate: Any, axis: int) -> Any:
        return _within(torch, coordinate, x.shape[3 - axis], padding, align)

    def pixel(column: Any, row: Any) -> Any:
        return _pixel(torch, image, column, row)

    if mode == _BICUBIC:
        result = _bicubic(torch, at, within, pixel)
    else:
        column, row = (within(coordinate, axis) for axis, coordinate in enumerate(at))
        result = (
            pixel(torch.round(column), torch.round(row))
            if mode == _NEAREST
            else _bilinear(torch, column, row, pixel)
        )
    return result.to(x.dtype)


def _unnormalized(coordinate: Any, size: int, align: bool) -> Any:
    """From -1 to 1 to places of elements, by eager mode's steps."""
    return (coordinate + 1) * ((size - 1) / 2) if align else (coordinate + 1) * (size / 2) - 0.5


def _within(torch: Any, coordinate: Any, size: int, padding: int, align: bool) -> Any:
    """What the padding makes of a place that lies outside."""
    if padding == _ZEROS:
        return coordinate
    if padding == _REFLECTION:
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if not span:
            return torch.zeros_like(coordinate)
        apart = (coordinate - low).abs()
        rest, turns = torch.fmod(apart, span), torch.floor(apart / span)
        coordinate = torch.where(torch.remainder(turns, 2) == 0, rest + low, span + low - rest)
    # What is no number is at the first element, and so is a reflection of infinity.
    return torch.where(torch.isnan(coordinate), 0.0, torch.clamp(coordinate, 0, size - 1))


def _pixel(torch: Any, image: Any, column: Any, row: Any) -> Any:
    """The elements at places that are whole, 0 outside: of N,H,W places one of each channel."""
    count, channels, height, width = image.shape
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    across, down = (torch.where(inside, coordinate, 0.0).to(torch.int64) for coordinate in (column, row))
    index = (down * width + across).reshape(count, 1, -1).expand(count, channels, -1)
    values = torch.gather(image.reshape(count, channels, -1), 2, index)
    shaped = values.reshape(count, channels, *column.shape[1:])
    return torch.where(inside.unsqueeze(1), shaped, 0.0)


def _bilinear(torch: Any, column: Any, row: Any, pixel: Callable[[Any, Any], Any]) -> Any:
    left, top = torch.floor(column), torch.floor(row)
    total: Any = None
    for down in (0, 1):
        for right in (0, 1):
            across = column - left if right else left + 1 - column
            along = row - top if down else top + 1 - row
            weight = (across * along).unsqueeze(1)
            share = pixel(left + right, top + down) * weight
            total = share if total is None else total + share
    return total


def _bicubic(torch: Any, at: Any, within: Callable[[Any, int], Any], pixel: Callable[[Any, Any], Any]) -> Any:
    left, top = (torch.floor(coordinate) for coordinate in at)
    across, along = (cubic_weights(coordinate - torch.floor(coordinate)) for coordinate in at)
    total: Any = None
    for down, by_row in enumerate(along):
        line: Any = None
        for right, by_column in enumerate(across):
            value = pixel(within(left + (right - 1), 0), within(top + (down - 1), 1))
            share = value * by_column.unsqueeze(1)
            line = share if line is None else line + share
        total = line * by_row.unsqueeze(1) if total is None else total + line * by_row.unsqueeze(1)
    return total


def cubic_weights(t: Any) -> list[Any]:
    """The weights of four elements in a row (Keys, with -0.75), ``t`` behind the second."""
    a = -0.75

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


class _Axis(NamedTuple):
    """The sizes of an axis before and behind, and how they were asked for."""

    of: Any
    to: Any
    align: bool
    scale: float | None

    def step(self) -> Any:
        """How far apart two results lie, in elements of the image."""
        if self.align:
            return (self.of - 1.0) / (self.to - 1.0) if self.to > 1 else 0
        return 1.0 / self.scale if self.scale is not None and self.scale > 0 else self.of / self.to

    def places(self, torch: Any, dtype: Any) -> Any:
        """Where results lie among the elements."""
        at = torch.arange(self.to).to(dtype)
        return at * self.step() if self.align else (at + 0.5) * self.step() - 0.5

    def is_kept(self) -> bool:
        """Whether its size is the same, whatever an open one is: the one of the export says nothing."""
        shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
        return shapes.statically_known_true(self.of == self.to)

    def within(self, place: Any) -> Any:
        return place.clamp(0, self.of - 1)


#: The elements that a result along an axis is the sum of: their places, and their weights.
_Terms = Callable[[Any, Any, _Axis], list[tuple[Any, Any]]]


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    nearest = (aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d)
    exact = (aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d)
    linear = (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d)
    kinds = ((nearest, _nearest, False), (exact, _nearest_exact, False), (linear, _linear, True))
    table: dict[Any, Any] = {aten.grid_sampler_2d.default: _grid_sampler_2d}
    for packets, terms, weighted in (*kinds, ((aten.upsample_bicubic2d,), _cubic, True)):
        for packet in packets:
            table[packet.default] = _by_scales(terms, weighted)
            table[packet.vec] = _by_factors(terms, weighted)
    return table


def _by_scales(terms: _Terms, weighted: bool) -> Any:
    def decomposed(x: Any, output_size: Sequence[Any], *options: Any) -> Any:
        align, scales = (options[0], options[1:]) if weighted else (False, options)
        return _resized(x, output_size, align, scales or [None] * len(output_size), terms)

    return decomposed


def _by_factors(terms: _Terms, weighted: bool) -> Any:
    def decomposed(x: Any, output_size: Any, *options: Any) -> Any:
        torch: Any = import_module("torch")
        align, factors = options if weighted else (False, *options)
        if factors is None:
            return _resized(x, output_size, align, [None] * len(output_size), terms)
        sizes = [torch.sym_int(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True)]
        return _resized(x, sizes, align, factors, terms)

    return decomposed


def _resized(x: Any, sizes: Sequence[Any], align: bool, scales: Sequence[float | None], terms: _Terms) -> Any:
    """Weighted sums of floats only: eager mode rounds those of bytes in its own steps."""
    torch: Any = import_module("torch")
    copied = terms in (_nearest, _nearest_exact)
    if not copied and not x.is_floating_point():
        return NotImplemented
    resized = x if copied else x.to(_computed_in(torch, x.dtype))
    axes = [_Axis(*fields) for fields in zip(x.shape[2:], sizes, (align,) * len(sizes), scales, strict=True)]
    if terms is _nearest and len(axes) == 2 and all(axis.is_kept() for axis in axes):
        # Whatever the scales are, in eager mode too, but for lines and solids.
        return x.clone()
    for axis in reversed(range(2, x.dim())):
        along = axes[axis - 2]
        total: Any = None
        for place, weight in terms(torch, _computed_in(torch, x.dtype), along):
            share = resized.index_select(axis, place)
            if weight is not None:
                share = share * weight.reshape(-1, *(1,) * (x.dim() - axis - 1))
            total = share if total is None else total + share
        resized = total
    return resized.to(x.dtype)


def _computed_in(torch: Any, dtype: Any) -> Any:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _nearest(torch: Any, dtype: Any, axis: _Axis) -> list[tuple[Any, Any]]:
    return [(axis.within((torch.arange(axis.to).to(torch.float32) * axis.step()).to(torch.int64)), None)]


def _nearest_exact(torch: Any, dtype: Any, axis: _Axis) -> list[tuple[Any, Any]]:
    at = torch.arange(axis.to).to(torch.float32) + 0.5
    return [(axis.within((at * axis.step()).to(torch.int64)), None)]


def _linear(torch: Any, dtype: Any, axis: _Axis) -> list[tuple[Any, Any]]:
    if axis.is_kept():
        # Weights of 1 and 0, both of the element itself: an infinity is NaN, as in eager mode.
        at, none = torch.arange(axis.to), torch.zeros(axis.to, dtype=dtype)
        return [(at, none + 1), (at, none)]
    at = axis.places(torch, dtype).clamp(min=0.0)
    first = axis.within(at.to(torch.int64))
    weight = (at - first).clamp(0.0, 1.0)
    return [(first, 1 - weight), (axis.within(first + 1), weight)]


def _cubic(torch: Any, dtype: Any, axis: _Axis) -> list[tuple[Any, Any]]:
    at = axis.places(torch, dtype)
    whole = torch.floor(at)
    first, weights = whole.to(torch.int64), cubic_weights(at - whole)
    return [(axis.within(first + (place - 1)), weight) for place, weight in enumerate(weights)]
