"""Pooling: extremes of windows and their places, and means, where torch-mlir lacks the element type, the rank
or the rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    return {
        aten.adaptive_max_pool2d.default: _adaptive(2),
        aten.adaptive_max_pool3d.default: _adaptive(3),
        aten.avg_pool2d.default: _avg_pool(aten.avg_pool2d.default, 2),
        aten.avg_pool3d.default: _avg_pool(aten.avg_pool3d.default, 3),
        aten.max_pool2d_with_indices.default: _max_pool2d,
        aten.max_pool3d_with_indices.default: _max_pool3d,
    }


def _max_pool2d(
    x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """A stride that is not given is the kernel's size: torch-mlir takes it for 1. Bytes, which it has no
    least number of, are pooled as i32.
    """
    torch: Any = import_module("torch")
    operation = torch.ops.aten.max_pool2d_with_indices.default
    if x.dtype in (torch.uint8, torch.int8):
        settings = kernel_size, stride or kernel_size, padding, dilation, ceil_mode
        values, places = operation(x.to(torch.int32), *settings)
        return values.to(x.dtype), places
    if ceil_mode and not x.dtype.is_floating_point:
        return _pooled(x, 2, kernel_size, stride, padding, dilation, ceil_mode)
    return NotImplemented if stride else operation(x, kernel_size, kernel_size, padding, dilation, ceil_mode)


def _max_pool3d(
    x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    torch: Any = import_module("torch")
    settings = kernel_size, stride, padding, dilation, ceil_mode
    if x.dtype not in (torch.uint8, torch.int8):
        return _pooled(x, 3, *settings)
    result = _pooled(x.to(torch.int32), 3, *settings)
    return result if result is NotImplemented else (result[0].to(x.dtype), result[1])


def _adaptive(rank: int) -> Any:
    """Extremes of windows whose sizes differ: the last element of the short ones comes more than once."""

    def decomposed(x: Any, output_size: Sequence[Any]) -> Any:
        torch: Any = import_module("torch")
        sizes = x.shape[-rank:]
        if not all(type(size) is int for size in (*sizes, *output_size)) or 0 in (*sizes, *output_size):
            return NotImplemented
        if rank == 2 and all(size % out == 0 for size, out in zip(sizes, output_size, strict=True)):
            return NotImplemented
        windows, flat = x, torch.arange(sizes.numel()).reshape(sizes)
        for axis in range(rank):
            index = _window_places(torch, sizes[axis], output_size[axis])
            windows, flat = (_picked(whole, axis - rank, index) for whole in (windows, flat))
        order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
        outer = x.dim() - rank
        rows = windows.permute(*range(outer), *(outer + at for at in order)).flatten(outer + rank)
        places = flat.permute(order).flatten(rank).expand(rows.shape)
        value, at = torch.max(rows, -1)
        if x.is_floating_point():  # the last one of those that are NaN
            last = rows.shape[-1] - 1 - torch.argmax(torch.isnan(rows).flip(-1).to(torch.int32), -1)
            at = torch.where(torch.isnan(value), last, at)
        return value, torch.gather(places, -1, at.unsqueeze(-1)).squeeze(-1)

    return decomposed


def _window_places(torch: Any, size: int, out: int) -> Any:
    """A row of places for each window."""
    start = torch.arange(out) * size // out
    end = ((torch.arange(out) + 1) * size + out - 1) // out
    longest = max(-(-(i + 1) * size // out) - i * size // out for i in range(out))
    return torch.minimum(start.unsqueeze(1) + torch.arange(longest), end.unsqueeze(1) - 1)


def _picked(whole: Any, axis: int, index: Any) -> Any:
    """An axis as two: windows, and places in them."""
    axis += whole.dim()
    gathered = whole.index_select(axis, index.reshape(-1))
    return gathered.reshape(*whole.shape[:axis], *index.shape, *whole.shape[axis + 1 :])


class _Axis(NamedTuple):
    """A window's way along one axis."""

    size: int
    window: int
    step: int
    pad: int
    dilation: int
    up: bool

    @property
    def windows(self) -> int:
        """Where their number is rounded up, none begins in the padding behind."""
        rest = self.size + 2 * self.pad - self.dilation * (self.window - 1) - 1
        count = (-(-rest // self.step) if self.up else rest // self.step) + 1
        return count - 1 if self.up and (count - 1) * self.step >= self.size + self.pad else count

    @property
    def behind(self) -> int:
        """What has to be padded behind."""
        reach = (self.windows - 1) * self.step + self.dilation * (self.window - 1) + 1
        return max(reach - self.size - self.pad, 0)

    def at(self, offset: int) -> tuple[int, int, int]:
        """First, end and step of the elements that lie ``offset`` places into each window."""
        first = offset * self.dilation
        return first, first + (self.windows - 1) * self.step + 1, self.step

    def divisors(self, torch: Any, padded: bool) -> Any:
        """How many elements each window has along the axis."""
        first = torch.arange(self.windows) * self.step - self.pad
        end = (first + self.window).clamp(max=self.size + (self.pad if padded else 0))
        return end - (first if padded else first.clamp(min=0))


def _pooled(
    x: Any, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    """The greatest of all elements at one place of a window, place by place; NaN is above all."""
    torch: Any = import_module("torch")
    sizes = x.shape[-rank:]
    if not all(type(size) is int for size in sizes):
        return NotImplemented
    parts = [_spread(part, rank) for part in (kernel_size, stride or kernel_size, padding, dilation)]
    axes = [_Axis(size, k, s, p, d, ceil_mode) for size, k, s, p, d in zip(sizes, *parts, strict=True)]
    margins = [margin for axis in reversed(axes) for margin in (axis.pad, axis.behind)]
    least = float("-inf") if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    flat = torch.arange(sizes.numel()).reshape(sizes).expand(x.shape)
    padded = torch.constant_pad_nd(x, margins, least), torch.constant_pad_nd(flat, margins, -1)
    value, place = (_elements(whole, axes, [0] * rank) for whole in padded)
    for offsets in itertools.islice(itertools.product(*(range(axis.window) for axis in axes)), 1, None):
        other, there = (_elements(whole, axes, offsets) for whole in padded)
        above = (other > value) | (place < 0)
        above = above | torch.isnan(other) if x.dtype.is_floating_point else above
        value, place = torch.where(above, other, value), torch.where(above, there, place)
    return value, place


def _elements(whole: Any, axes: Sequence[_Axis], offsets: Sequence[int]) -> Any:
    torch: Any = import_module("torch")
    first = whole.dim() - len(axes)
    for at, (axis, offset) in enumerate(zip(axes, offsets, strict=True)):
        whole = torch.ops.aten.slice(whole, first + at, *axis.at(offset))
    return whole


def _avg_pool(operation: Any, rank: int) -> Any:
    """Means of windows that round up their number, or have a divisor of their own.

    torch-mlir rejects them, or takes the window's size for the divisor.
    """

    def decomposed(
        x: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        """Average pooling with static sizes and ``ceil_mode`` or a divisor; ``NotImplemented`` otherwise."""
        torch: Any = import_module("torch")
        sizes = x.shape[-rank:]
        known = all(type(size) is int for size in sizes) and x.is_floating_point()
        if not known or (not ceil_mode and divisor_override is None):
            return NotImplemented
        parts = [_spread(part, rank) for part in (kernel_size, stride or kernel_size, padding)]
        axes = [_Axis(size, k, s, p, 1, ceil_mode) for size, k, s, p in zip(sizes, *parts, strict=True)]
        wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
        margins = [margin for axis in reversed(axes) for margin in (axis.pad, axis.behind)]
        means = operation(torch.constant_pad_nd(wide, margins, 0.0), parts[0], parts[1])
        for at, axis in enumerate(axes):
            means = means.narrow(at - rank, 0, axis.windows)
        total = means * float(math.prod(parts[0]))
        if divisor_override is not None:
            return (total / float(divisor_override)).to(x.dtype)
        for at, axis in enumerate(axes):
            shape = [axis.windows if other == at else 1 for other in range(rank)]
            total = total / axis.divisors(torch, count_include_pad).reshape(shape).to(total.dtype)
        return total.to(x.dtype)

    return decomposed


def _spread(value: Any, rank: int) -> list[int]:
    numbers = [value] if isinstance(value, int) else [*value]
    return numbers * (rank // len(numbers))
