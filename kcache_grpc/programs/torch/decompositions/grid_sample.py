"""Images that are sampled at the places of a grid: what lies outside is 0, whatever is at their corner.

PyTorch's own decomposition takes the corner for it, times 0, which is NaN where the corner is not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    return {aten.grid_sampler_2d.default: _grid_sampler_2d}


def _grid_sampler_2d(x: Any, grid: Any, mode: int = 0, padding: int = 0, align: bool = False) -> Any:
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
